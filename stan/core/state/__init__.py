"""The replicated state of a channel group: what entries make of it, the same on every node. Deterministic."""
