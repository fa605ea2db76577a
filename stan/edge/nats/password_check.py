"""Checks the password of a user by NATS: of a hashed one only nats-server can tell if it fits.

Promises: NATS has to refuse another, random password of the same user first. If it does not, it looks at no passwords at all
(no users, or users by their certificates), and none counts as right.
"""

import asyncio
import contextlib
import secrets
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from stan_protocol.nats_client import Error as NatsError
from stan_protocol.nats_client import NoServersError, RepairedClient
from stan_protocol.secure import requires_tls

from stan.config import NatsConfig
from stan.edge.nats.connection import login_options

CONNECT_TIMEOUT_S: Final = 2
PATIENCE_S: Final = 5
_ONCE: Final[dict[str, Any]] = {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.01}
"""nats-py tries a server that it cannot reach at first again and again, unless there are only so many attempts."""


async def is_password(config: NatsConfig, urls: tuple[str, ...], user: str, password: str) -> bool:
    """Return True if NATS lets *user* in with *password*, and with no other. False as well if NATS does not answer.

    *config*: says how our own connection trusts NATS; *urls*: of NATS; logins in them are left out.
    """
    bare = tuple(map(_without_login, urls))
    if await _OneLogin().is_let_in(config, bare, user, secrets.token_urlsafe(32)):
        return False
    return await _OneLogin().is_let_in(config, bare, user, password)


class _OneLogin(RepairedClient):
    """A connection that is made only to see if NATS lets somebody in."""

    async def is_let_in(self, config: NatsConfig, urls: tuple[str, ...], user: str, password: str) -> bool:
        options = login_options(replace(config, user=user, password=password, token=""))
        self._secure = requires_tls(urls, options)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.connect(
                    list(urls),
                    allow_reconnect=False,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    error_cb=_ignored,
                    **_ONCE,
                    **options,
                )
        except (NatsError, NoServersError, OSError, TimeoutError):
            return False
        finally:
            with contextlib.suppress(NatsError, OSError):
                await self.close()
        return True


async def _ignored(_error: Exception) -> None:
    """The error is that of `connect`."""


def _without_login(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
