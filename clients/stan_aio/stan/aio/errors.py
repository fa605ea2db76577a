"""Errors of the old API, and their counterparts in `stan_client`.

Failures of nats-py come as nats-py's own errors, as in the original; in those classes that have the old names, which old programs
catch.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.errors import ErrConnectionClosed, ErrMaxPayload, ErrTimeout
from stan_client.errors import (
    BadConnectionError,
    MessageTooLargeError,
    PublishAckTimeoutError,
    RequestTimeoutError,
    StanClientError,
)

__all__ = ["ErrConnectReqTimeout", "ErrTimeoutError", "StanError", "asyncio"]


class StanError(Exception):
    """The server refused something, or the session is gone; the text is the server's."""


class ErrTimeoutError(asyncio.TimeoutError):
    """Nothing came in time."""


class ErrConnectReqTimeout(ErrTimeoutError):
    """No server answered the request to connect."""


@contextmanager
def as_of_old(nats: Any) -> Iterator[None]:
    """Raise errors of `stan_client` as those of the old API. *nats*: the connection that was used."""
    try:
        yield
    except StanClientError as error:
        raise old_error(error, nats) from error


def old_error(error: StanClientError, nats: Any) -> Exception:
    """The error of the old API that stands for *error*, which came while *nats* was used."""
    if nats.is_closed or isinstance(error, BadConnectionError):
        return ErrConnectionClosed()
    if isinstance(error, MessageTooLargeError):
        return ErrMaxPayload()
    if isinstance(error, PublishAckTimeoutError):
        return ErrTimeoutError(str(error))
    if isinstance(error, RequestTimeoutError):
        return ErrTimeout()
    return StanError(str(error))
