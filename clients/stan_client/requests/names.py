"""Names of channels and of all else as the wire has them: bytes."""

from stan_protocol.channels import part_name

from stan_client.transport.session import text_of


def part_names(channel: str, parts: int) -> list[str]:
    """The names of the parts of a channel that has so many."""
    return [text_of(part_name(raw(channel), number)) for number in range(parts)]


def raw(name: str) -> bytes:
    """Encode a name for the wire; the inverse of `text_of`."""
    return name.encode("utf-8", "surrogateescape")
