"""The way of requests and answers: the connection to NATS, inboxes, a client's session with the server."""
