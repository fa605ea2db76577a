"""Real processes, real disks, real clients, and everything that may happen to them."""
