"""The broker as a value: step events in, take one Ready out. Pure: no IO, no clock, no randomness."""
