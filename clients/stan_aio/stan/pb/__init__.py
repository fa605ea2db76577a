"""Messages of the STAN protocol under the names that programs for asyncio-nats-streaming import."""
