"""Requests that are made again until servers answer them: what every answer begins with, and how one request fares. Pure.

Silence, "nobody listens" and answers that say so mean: ask again. Both the broker's nodes and the clients ask by these rules;
how long they wait, and which errors they raise in the end, is theirs.
"""

from typing import Any, Protocol, Self, TypeVar

RETRY_MAX_S = 0.5
"""The longest pause before a request is made again."""


class Response(Protocol):
    """What every answer begins with."""

    error: bytes
    error_code: str
    retry: bool

    @classmethod
    def FromString(cls, serialized: bytes, /) -> Self:  # noqa: N802 - protobuf's name
        """Decode."""


class LeadersResponse(Response, Protocol):
    """An answer of a leader for the groups that it leads."""

    pool: int

    @property
    def groups(self) -> Any:
        """Numbers of these groups."""


A = TypeVar("A", bound=Response)
L = TypeVar("L", bound=LeadersResponse)


def missing(answers: list[L]) -> set[int]:
    """The groups of channels that no answer tells about."""
    told = {group for answer in answers for group in answer.groups}
    return set(range(1, max((answer.pool for answer in answers), default=0) + 1)) - told


class Attempts:
    """How one request fares: what was said last, and how long to pause before it is made again, in seconds, doubled each time."""

    def __init__(self, kind: str, patience_s: float, pause_s: float) -> None:
        self.kind = kind
        self.patience_s = patience_s
        self.pause_s = pause_s
        self.said = ""

    def told(self, answer: Response, errors: str) -> bool:
        """Whether an answer is one without error; *errors* is what becomes of bytes that are no text."""
        self.said = answer.error.decode("utf-8", errors)
        return not answer.error

    def nobody(self) -> None:
        """NATS says that no server listens to such requests."""
        self.said = "nobody listens"

    def paused(self) -> None:
        """The next pause is longer."""
        self.pause_s = min(2 * self.pause_s, RETRY_MAX_S)
