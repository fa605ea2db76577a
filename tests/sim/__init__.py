"""A whole node and its clients in one process, under virtual time, from one seed."""
