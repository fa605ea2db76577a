"""Asyncio client of the STAN protocol."""
