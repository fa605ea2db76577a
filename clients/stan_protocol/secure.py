"""A NATS connection for which TLS is configured never falls back to plain text. Pure.

A NATS server begins in plain text, with INFO; nats-py continues in TLS only if the INFO requires it, else it sends names and
passwords in plain text. Code that has to use TLS checks the INFO here before it sends anything.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

SCHEMES: Final = ("tls", "wss")
"""Schemes of URLs that ask for TLS."""
OPTIONS: Final = ("tls", "tls_hostname", "tls_handshake_first")
"""Options of nats-py that make sense only with TLS."""
HIDDEN: Final = "******"
"""Stands for a secret."""


def without_secrets(urls: str) -> str:
    """Return NATS URLs without user, password or token."""
    return re.sub(r"(^|//|,\s?)[^/@,]+@", rf"\1{HIDDEN}@", urls)


def requires_tls(servers: Iterable[str], options: Mapping[str, Any]) -> bool:
    """Return True if one of the URLs or an option asks for TLS: then TLS holds for every server, also those discovered later."""
    schemes = {url.strip().partition("://")[0].lower() for url in servers if "://" in url}
    return not schemes.isdisjoint(SCHEMES) or any(options.get(name) for name in OPTIONS)


def offered(info: dict[str, Any]) -> bool:
    """True if the server of an INFO offers TLS; then *info* is changed to require it, so that nats-py uses TLS."""
    if info.get("tls_available"):
        info["tls_required"] = True
    return bool(info.get("tls_required"))
