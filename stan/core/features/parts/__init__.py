"""Channels with parts: their number is doubled."""
