"""Requests that are repeated until servers answer them: the common fields of answers, and the attempts of one request. Pure.

After silence, "nobody listens" and answers with `retry` the request is repeated. The broker's nodes and the clients share these
rules; their patience and their errors are their own.
"""

from typing import Any, Protocol, Self, TypeVar

RETRY_MAX_S = 0.5
"""The longest pause before a request is made again."""


class Response(Protocol):
    """The fields that every answer has."""

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
    """Return the groups of channels that no answer covers."""
    covered = {group for answer in answers for group in answer.groups}
    return set(range(1, max((answer.pool for answer in answers), default=0) + 1)) - covered


class Attempts:
    """The attempts of one request: the last answer's error, and the pause before the next attempt, in seconds, which doubles."""

    def __init__(self, kind: str, patience_s: float, pause_s: float) -> None:
        self.kind = kind
        self.patience_s = patience_s
        self.pause_s = pause_s
        self.said = ""

    def accepted(self, answer: Response, errors: str) -> bool:
        """Return True if an answer has no error; *errors*: how bytes that are no text are decoded."""
        self.said = answer.error.decode("utf-8", errors)
        return not answer.error

    def no_responders(self) -> None:
        """Note that no server listens to such requests, as NATS reports."""
        self.said = "nobody listens"

    def paused(self) -> None:
        """Make the next pause longer."""
        self.pause_s = min(2 * self.pause_s, RETRY_MAX_S)
