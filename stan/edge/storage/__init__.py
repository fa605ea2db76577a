"""The data directory: logs and rows of a node, its manifest, and whole groups that move between nodes."""
