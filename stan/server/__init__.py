"""A whole server: the composition root above edge and monitor."""
