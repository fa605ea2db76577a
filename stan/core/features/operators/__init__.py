"""Requests of operators about channels, positions, clients, nodes and policies."""
