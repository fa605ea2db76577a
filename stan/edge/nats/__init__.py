"""The connection to NATS, what is scanned and written there, and the nats-server that the broker starts itself."""
