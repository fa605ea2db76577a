"""Times and names in the form that the dashboard's pages use. Pure."""

from urllib.parse import quote, unquote_to_bytes

from stan_protocol.scalars import MILLISECOND


def millis(nanos: int) -> int | None:
    """Return a Unix time in milliseconds, as browsers use it; None for 0, which means that there is none."""
    return nanos // MILLISECOND if nanos else None


def key_of(name: bytes) -> str:
    """Encode a name of any bytes as ASCII, for URLs."""
    return quote(name, safe="")


def name_of_key(key: str) -> bytes:
    """Decode the result of `key_of`."""
    return unquote_to_bytes(key.encode("utf-8", "replace"))
