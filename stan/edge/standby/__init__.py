"""Fault tolerance by a shared store: who holds the lease leads, the others wait."""
