"""Names from the wire as text, and in log lines."""

from stan_protocol.refusals import go_quote


def text(raw: bytes) -> str:
    """Bytes of the wire as text; bytes that are not UTF-8 survive the round trip through `raw`."""
    return raw.decode("utf-8", "surrogateescape")


def raw(shown: str) -> bytes:
    """The inverse of `text`."""
    return shown.encode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """Bytes of the wire for a log line: escaped as in a quoted string, without the quotes. Harmless names stay as they are."""
    return go_quote(text(name))[1:-1]
