"""The commands: stan-server (drop-in flags) and stan (the operator's tool)."""
