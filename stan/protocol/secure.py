"""Who is to speak TLS with NATS speaks nothing else. Pure.

A NATS server begins in clear, with INFO; nats-py goes on in TLS only if that says it has to, else it sends names and passwords in
clear. Whoever was told to speak TLS asks here, before anything is sent.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

SCHEMES: Final = ("tls", "wss")
"""Of URLs that ask for TLS."""
OPTIONS: Final = ("tls", "tls_hostname", "tls_handshake_first")
"""Of nats-py, that nobody has a use for but who speaks TLS."""


def told(servers: Iterable[str], options: Mapping[str, Any]) -> bool:
    """Whether TLS was asked for, by one of the URLs or by an option: then it is for every server, also those heard of later."""
    schemes = {url.strip().partition("://")[0].lower() for url in servers if "://" in url}
    return not schemes.isdisjoint(SCHEMES) or any(options.get(name) for name in OPTIONS)


def offered(info: dict[str, Any]) -> bool:
    """Whether the server of an INFO speaks TLS; if so *info* says that it has to, so that nats-py does."""
    if info.get("tls_available"):
        info["tls_required"] = True
    return bool(info.get("tls_required"))
