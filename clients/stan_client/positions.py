"""Start positions of subscriptions and reads: a constructor for each of the five positions of STAN (STAN-SPEC 5.3), and `newest`.

A start position counts only for a new subscription: a resumed durable and an existing queue group continue at their own position.
The server moves positions outside the channel to its beginning or end; none is an error.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_NEW_ONLY, _LAST_RECEIVED, _TIME_DELTA, _SEQUENCE, _FIRST = range(5)  # StartPosition (STAN-SPEC 2.1)
_NEWEST = -1  # fetch only

COUNT_MAX: Final = (1 << 64) - 1
"""Most messages that a request can ask for: more than a channel can ever hold."""
RESUME_MARGIN_NS: Final = 500_000_000
"""Time by which a subscription that is made again starts earlier than needed, because servers read its request with a delay."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start position; made by the functions below."""

    position: int
    sequence: int = 0  # of a sequence position; for the newest: number of messages
    delta_ns: int = 0  # of a relative time: nanoseconds before the request
    time_ns: int = 0  # of an absolute time: Unix nanoseconds

    @property
    def is_newest(self) -> bool:
        """True if this is `newest`, which no subscription can have."""
        return self.position == _NEWEST

    def start_time_delta(self) -> int:
        """Return the start in nanoseconds before now, as a SubscriptionRequest has it; 0 if the position is not a time."""
        if self.position != _TIME_DELTA:
            return 0
        return time.time_ns() - self.time_ns if self.time_ns else self.delta_ns

    def fetch_start(self) -> dict[str, int]:
        """Return the start as fields of a FetchRequest; none for `new_only`."""
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
        """Return the position that, used *elapsed_ns* later, finds the messages of this position and all that came since.

        Servers count back from the time when they read the request, which is later than now: RESUME_MARGIN_NS makes up for it.
        """
        if self.position in (_NEW_ONLY, _LAST_RECEIVED):
            return Start(_TIME_DELTA, delta_ns=elapsed_ns + RESUME_MARGIN_NS)
        if self.position == _TIME_DELTA and not self.time_ns:
            return Start(_TIME_DELTA, delta_ns=self.delta_ns + elapsed_ns + RESUME_MARGIN_NS)
        return self


def new_only() -> Start:
    """Start with the first message that is published from now on."""
    return Start(_NEW_ONLY)


def last_received() -> Start:
    """Start with the newest message of the channel."""
    return Start(_LAST_RECEIVED)


def from_sequence(sequence: int) -> Start:
    """Start at *sequence*, or with the oldest message if *sequence* was removed."""
    return Start(_SEQUENCE, sequence=sequence)


def from_time(when: datetime) -> Start:
    """Start with the first message that was published at *when* or later; a datetime without zone is local time."""
    return Start(_TIME_DELTA, time_ns=int(when.timestamp() * 1_000_000) * 1_000)


def ago(seconds: float) -> Start:
    """Start with the first message that is at most *seconds* old."""
    return Start(_TIME_DELTA, delta_ns=int(seconds * 1_000_000_000))


def everything() -> Start:
    """Start with the oldest message of the channel."""
    return Start(_FIRST)


def newest(count: int) -> Start:
    """Start with the *count* newest messages, with the oldest one if there are not as many; removed ones are not counted.

    For fetch and read only: a subscription with it is a ValueError, as is a negative *count*; 0 the server refuses.
    """
    if count < 0:
        raise ValueError(f"cannot start with the {count} newest messages")
    return Start(_NEWEST, sequence=min(count, COUNT_MAX))
