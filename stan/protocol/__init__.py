"""The wire: STAN messages, NATS frames, log entries and the batch kernel. Pure; imports only words above it."""
