"""The operator's commands, a module each."""
