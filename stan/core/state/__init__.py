"""The replicated state of a group, and of the metadata: what entries make of it, the same on every node. Deterministic."""
