"""Channels that come back from a backup."""
