"""Groups of consumers among which channels are divided."""
