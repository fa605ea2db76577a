"""Consumers of streams: cursors of their channels."""
