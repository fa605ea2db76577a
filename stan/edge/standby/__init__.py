"""Fault tolerance with a shared store: the server that has the lease is active, the others are standbys."""
