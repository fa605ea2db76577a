"""Consumers of streams: cursors of their channels, whose messages leave by the leafnode connection.

What clients can do with them: docs/jetstream-consumers.md.
"""
