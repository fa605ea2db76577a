"""Streams: requests about them, what is published to them, and what they hold."""
