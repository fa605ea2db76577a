"""Consumers of streams: cursors of their channels, whose messages leave by the leafnode connection (docs/jetstream-consumers.md)."""
