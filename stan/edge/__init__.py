"""All IO: asyncio, NATS, files, processes, the clock. Nothing below this package awaits."""
