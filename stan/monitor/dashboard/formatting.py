"""Times and names in the form that the dashboard's pages use. Pure."""

from urllib.parse import quote, unquote_to_bytes

from stan_protocol.scalars import MILLISECOND


def millis(nanos: int) -> int | None:
    """Return a Unix time in milliseconds, as browsers use it; None for 0, which means that there is none."""
    return nanos // MILLISECOND if nanos else None


def shown(name: str) -> str:
    """Replace bytes of a name that are no UTF-8, so that it can be encoded."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def key_of(name: str) -> str:
    """Encode a name as ASCII, for URLs; surrogates stand for bytes that are no UTF-8."""
    return quote(name, safe="", errors="surrogateescape")


def name_of_key(key: str) -> bytes:
    """Decode the result of `key_of`, to the bytes of the name."""
    return unquote_to_bytes(key.encode("utf-8", "replace"))
