"""Channels that keep the newest message of each key."""
