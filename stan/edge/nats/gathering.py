"""Gathers what a bulk brings, for a server alone: a turn that handles many messages costs little more than one that handles few.

    on_data ─► arrived ─┬─ few bytes, or a third of a bulk ► a turn soon
                        └─ a smaller part of one ─► timer ─► a turn

nats-server hands a bulk on in pieces of up to 64 KiB, and a socket gives parts of them. A turn for each would sync and write for
each. How large a bulk is, the turns before tell: the most that came for one of them lately. A third of that is enough, so that a
publisher whose window is the bulk has the acks of one part while it publishes the next.

Promises: a turn waits for one timer of GATHER_WAIT at most, and only for a bulk: a few bytes alone are handled at once.
"""

from collections.abc import Callable
from typing import Protocol

from stan_protocol.scalars import MILLISECOND, SECOND, KiB

GATHER_BYTES_MIN = 8 * KiB
"""Fewer unread bytes are no part of a bulk: some thirty small publishes."""
GATHER_WAIT = 1 * MILLISECOND
"""The longest wait for the rest of a bulk, in nanoseconds; about what a large turn takes. An event loop's timers are no finer."""
BULK_SHARE = 32
"""One in so many parts of the largest bulk is forgotten with each turn: half of it within some twenty."""


class UnreadBytes:
    """The bytes that have come since the last turn that took some in; its owner counts."""

    __slots__ = ("bulk", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bulk = 0  # the most that they were for one turn lately


class Timer(Protocol):
    """A timer that runs."""

    def cancel(self) -> None:
        """Never ring."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls after so many seconds, as `call_later` of an event loop does."""


class Gathering:
    """The wish for a turn, postponed while a bulk arrives."""

    def __init__(self, unread: UnreadBytes, look: Callable[[], None], later: Later) -> None:
        """*look*: have a turn soon."""
        self._unread = unread
        self._look = look
        self._later = later
        self._timer: Timer | None = None

    def arrived(self) -> None:
        """Have a turn soon, or a little later if more of a bulk is to be expected."""
        unread = self._unread
        if unread.count < GATHER_BYTES_MIN or 3 * unread.count >= unread.bulk:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._look()
        elif self._timer is None:
            self._timer = self._later(GATHER_WAIT / SECOND, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._unread.count:  # else another turn has taken it in meanwhile
            self._look()
