"""Common parts of commands: arguments, output, contexts, sessions with a cluster."""
