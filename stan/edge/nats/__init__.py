"""The connection to NATS, its reader and writer, and the nats-server that the broker starts itself."""
