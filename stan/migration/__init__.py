"""Moving in: another server's data directory becomes one of ours."""
