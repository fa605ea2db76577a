"""Streams: requests about them, publishes to them, and their messages."""
