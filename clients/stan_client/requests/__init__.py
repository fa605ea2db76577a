"""Requests to the servers that need no registration, those of operators among them, repeated until they are answered."""
