"""Clients without a registration: reading channels by ranges and as tables, consumers that pull, members of a group."""
