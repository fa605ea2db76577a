"""Requests of operators and questions about channels: lists, cursors, changes of channels, restores, clients and nodes."""
