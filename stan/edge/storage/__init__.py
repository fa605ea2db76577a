"""The storage of a node: its data directory with logs, rows and manifest, and the transfer of groups between nodes."""
