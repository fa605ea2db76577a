"""The broker: its parts put together, its roles, what it does with committed entries, and the object that the edge steps."""
