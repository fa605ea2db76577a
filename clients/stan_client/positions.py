"""Where a new subscription begins: small constructors for the five start positions of STAN (STAN-SPEC 5.3).

A position counts only when the subscription is new: a durable that is resumed and a queue group that exists go on where
they are. The server clamps positions outside the channel; none is ever an error.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_NEW_ONLY, _LAST_RECEIVED, _TIME_DELTA, _SEQUENCE, _FIRST = range(5)  # StartPosition (STAN-SPEC 2.1)
_NEWEST = -1  # fetch only

RESUME_MARGIN_NS: Final = 500_000_000
"""How late a server may read a request without the subscription missing what came just after it was first made."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start position; made by the functions below."""

    position: int
    sequence: int = 0  # of a sequence position; how many of the newest
    delta_ns: int = 0  # of a relative time: nanoseconds before the request
    time_ns: int = 0  # of an absolute time: Unix nanoseconds

    def start_time_delta(self) -> int:
        """Nanoseconds before now, as the request wants it; 0 for other positions."""
        if self.position != _TIME_DELTA:
            return 0
        return time.time_ns() - self.time_ns if self.time_ns else self.delta_ns

    def fetch_start(self) -> dict[str, int]:
        """The same as the start of a FetchRequest; nothing at all for what comes from now on."""
        if self.position == _TIME_DELTA:
            return {"from_time": self.time_ns or time.time_ns() - self.delta_ns}
        return {
            _NEW_ONLY: {},
            _LAST_RECEIVED: {"newest": 1},
            _SEQUENCE: {"from_sequence": self.sequence},
            _FIRST: {"from_sequence": 1},
            _NEWEST: {"newest": self.sequence},
        }[self.position]

    def since(self, elapsed_ns: int) -> "Start":
        """The position that finds, *elapsed_ns* later, what this one would have found then and everything since.

        The server counts back from the moment when it reads the request, which is later than the one meant here: so a little
        more is asked for."""
        if self.position in (_NEW_ONLY, _LAST_RECEIVED):
            return Start(_TIME_DELTA, delta_ns=elapsed_ns + RESUME_MARGIN_NS)
        if self.position == _TIME_DELTA and not self.time_ns:
            return Start(_TIME_DELTA, delta_ns=self.delta_ns + elapsed_ns + RESUME_MARGIN_NS)
        return self


def new_only() -> Start:
    """Only what is published from now on."""
    return Start(_NEW_ONLY)


def last_received() -> Start:
    """The newest message of the channel, then everything after it."""
    return Start(_LAST_RECEIVED)


def from_sequence(sequence: int) -> Start:
    """From *sequence* on, or from the oldest message kept when it is gone."""
    return Start(_SEQUENCE, sequence=sequence)


def from_time(when: datetime) -> Start:
    """From the first message published at or after *when*; a datetime without zone is local time."""
    return Start(_TIME_DELTA, time_ns=int(when.timestamp() * 1_000_000) * 1_000)


def ago(seconds: float) -> Start:
    """From the first message that is at most *seconds* old."""
    return Start(_TIME_DELTA, delta_ns=int(seconds * 1_000_000_000))


def everything() -> Start:
    """From the oldest message kept."""
    return Start(_FIRST)


def newest(count: int) -> Start:
    """From the *count* newest messages on; for fetch and read, no subscription can begin there."""
    return Start(_NEWEST, sequence=count)
