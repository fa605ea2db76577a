"""Features of the broker, each in a room of its own above the core that all of them use."""
