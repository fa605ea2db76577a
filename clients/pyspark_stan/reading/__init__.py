"""The source: plan ranges of channels, read them in tasks, tell offsets and lag."""
