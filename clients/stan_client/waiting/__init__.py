"""Calls that wait: for a change, and for how long."""
