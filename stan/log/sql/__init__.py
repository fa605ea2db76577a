"""The group log in a SQLite file that people can query."""
