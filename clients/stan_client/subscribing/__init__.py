"""Subscriptions: the path of one on a session, messages that wait for the handler, what is said about them."""
