"""API of the original's Python client, asyncio-nats-streaming 0.4.0, on top of `stan_client`."""
