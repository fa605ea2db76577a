"""Clients, their heartbeats and subscriptions, and what permissions let them do."""
