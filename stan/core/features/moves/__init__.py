"""Moves of channels from group to group: by hand, by pins, by growth of the pool."""
