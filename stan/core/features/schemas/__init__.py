"""Schemas of channels: registered and listed."""
