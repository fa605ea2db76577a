"""Delays of channels, and publish times of messages."""
