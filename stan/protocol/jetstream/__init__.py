"""JetStream's client protocol as this broker speaks it: subjects, JSON, error codes, configurations. Pure."""
