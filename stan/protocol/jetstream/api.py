"""Subjects of JetStream's API, and the types that its answers name."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from stan.permissions import Right

PREFIX: Final = "$JS.API."
ASKS_SERVER: Final = b'{"stan":true}'
"""Payload of an INFO request by which a streaming server asks if another one answers. NATS's own server ignores it, and clients
send none."""
ALL: Final = f"{PREFIX}>"
PAGED: Final = (("total", 0), ("offset", 0), ("limit", 0))
"""Fields of answers that have pages."""
LEVEL: Final = 1
"""The level of the API that answers tell; what came to JetStream with a higher one is done here only where the docs say so."""
LEVEL_READ: Final = 5
"""The highest level that a request may ask for: of each option up to there it is known if it is done, and else it is refused."""
_TYPE: Final = "io.nats.jetstream.api.v1."

SEES: Final = (Right.ADMIN_READ, Right.PUBLISH, Right.SUBSCRIBE, Right.ADMIN_WRITE)
"""Rights of which one is needed to see that a stream is there."""
READS: Final = (Right.SUBSCRIBE,)
CHANGES: Final = (Right.ADMIN_WRITE,)
OWNS: Final = (Right.SUBSCRIBE, Right.ADMIN_READ, Right.ADMIN_WRITE)
"""Rights of which one is needed to ask for consumers; the handler looks whose they are."""
JUDGED_LATER: Final = ()


class Answerer(Enum):
    """The node that answers a request."""

    METADATA = auto()  # the leader of the metadata
    STREAM = auto()  # the leader of the stream's channel; the leader of the metadata, that there is none


class ApiRow(NamedTuple):
    """Describes a kind of request."""

    subject: str  # behind PREFIX; `*` and, at the end, `>` stand for what the request names
    response: str  # type of the answer, without its prefix and `_response`; "": the answer is no JSON
    rights: tuple[Right, ...]  # one of these to the stream's channel is needed; (): the handler judges
    answerer: Answerer = Answerer.STREAM  # the first that a request of a stream names is the stream
    refused: tuple[tuple[str, object], ...] = ()  # fields of a refusal, beside the error
    rated: bool = False  # it counts against the configured rate of operators' requests
    outlasts: int = 0  # ns; who begins to lead the stream's channel so much later at most answers it, too

    @property
    def type(self) -> str:
        """The type that the answer names."""
        return f"{_TYPE}{self.response}_response"


class ApiTable:
    """Finds the row of a request by its subject."""

    def __init__(self, rows: Iterable[ApiRow]) -> None:
        """Rows with more literal tokens come first, so that `MSG.GET.*` is not taken for `MSG.>`."""
        self._rows = [(row.subject.split("."), row) for row in rows]
        self._rows.sort(key=lambda one: -sum(token not in ("*", ">") for token in one[0]))

    def find(self, subject: str) -> tuple[ApiRow, tuple[str, ...]] | None:
        """The row of a whole subject, and what the request names in the place of its wildcards; what `>` stands for is one
        string. None if there is no such request."""
        tokens = subject.removeprefix(PREFIX).split(".")
        for wanted, row in self._rows:
            named = _named(wanted, tokens)
            if named is not None:
                return row, named
        return None


def _named(pattern: list[str], tokens: list[str]) -> tuple[str, ...] | None:
    rest = pattern[-1] == ">"
    fixed = len(pattern) - rest
    if len(tokens) < len(pattern) or (not rest and len(tokens) != fixed) or not all(tokens):
        return None
    pairs = list(zip(pattern[:fixed], tokens, strict=False))
    if any(want not in ("*", token) for want, token in pairs):
        return None
    found = [token for want, token in pairs if want == "*"]
    return (*found, ".".join(tokens[fixed:])) if rest else tuple(found)
