"""Dataclasses that `Admin` takes and returns: channels, positions, clients, nodes, policies and so on."""

from stan_protocol.admin_types import *  # noqa: F403 - a name for users of this package
