"""Fixtures that all tests share: a real server, and a NATS of our own."""

from tests.kit.server import external_nats, stan_server

__all__ = ["external_nats", "stan_server"]
