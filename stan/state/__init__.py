"""Rows of the replicated state in SQLite, at an applied index."""
