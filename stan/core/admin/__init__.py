"""What operators ask: lists, positions, changes of channels, restores, members."""
