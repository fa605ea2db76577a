"""Requests of clients that wait for messages of one consumer, on the leader of its group.

Promises: they are served in the order in which they came; a call costs O(log requests), unless it says something else, so that a
client that has many of them waiting cannot keep the node busy.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.shares import Shares

NEVER: Final = Nanos(0)
_STALE_MIN: Final = 64
"""Of entries about requests that are gone so many may always be there."""


@dataclass(slots=True)
class Pull:
    """A request of a client for messages."""

    inbox: bytes
    left: int  # messages
    bytes_left: int = 0  # 0: no limit
    limited: bool = False  # by bytes
    over_at: Nanos = NEVER  # 0: never
    impatient: bool = False  # over as soon as there is no message, or no more where it has a time to wait for the first
    heartbeat: int = 0  # ns; 0: none
    told_at: Nanos = NEVER  # when something was sent to it
    served: bool = False  # it has got a message
    unheard_until: Nanos = NEVER  # NATS tells of interest in its inbox before that; 0: it has
    user: bytes = b""  # whose share of the room it takes
    number: int = 0  # its place among those of the consumer

    def look_at(self, pause: int) -> int:
        """Nanos at which something is to be done about it; 0: never. *pause*: shortest interval of heartbeats, ns."""
        times = [self.over_at] if self.over_at else []
        if self.heartbeat:
            times.append(Nanos(self.told_at + max(self.heartbeat, pause)))
        if self.unheard_until:
            times.append(self.unheard_until)
        return min(times, default=NEVER)


@dataclass(slots=True)
class PullRoom:
    """The room that the requests for all consumers of a group have together, and the pace of work on them."""

    shares: Shares = field(default_factory=Shares)
    _deaf_at: Nanos = NEVER  # before it nobody looks again for clients that do not listen any more
    _armed: bool = False  # somebody looks then

    @property
    def size(self) -> int:
        """How many requests wait."""
        return self.shares.used

    @property
    def pause(self) -> int:
        """The shortest interval of heartbeats of a request, ns: all together get a bounded number of them."""
        return self.size * limits.PULL_BEAT_PAUSE

    def open_places(self, user: bytes) -> int:
        """How many more requests of a user there may be."""
        return self.shares.left(user, limits.PULLS_MAX)

    def look_for_deaf(self, now: Nanos) -> int | None:
        """Decide when the requests of clients that do not listen any more are looked for: 0: now; another time, Nanos, at which
        this has to be called again; None: somebody calls it then already."""
        if now >= self._deaf_at:
            self._deaf_at, self._armed = Nanos(now + self.size * limits.PULL_DEAF_PAUSE), False
            return 0
        armed, self._armed = self._armed, True
        return None if armed else self._deaf_at


@dataclass(slots=True)
class Pulls:
    """The waiting requests of one consumer. Iterating gives them in their order."""

    room: PullRoom = field(default_factory=PullRoom)
    demand: int = 0  # messages that they want
    limited: int = 0  # how many of them have a limit of bytes
    _waiting: OrderedDict[int, Pull] = field(default_factory=OrderedDict)
    _hasty: OrderedDict[int, Pull] = field(default_factory=OrderedDict)  # over as soon as there is no message
    _looks: list[tuple[int, int]] = field(
        default_factory=list
    )  # heap: when each is to be looked at; perhaps of one that is gone
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pull]:
        return iter(self._waiting.values())

    @property
    def first(self) -> Pull:
        """The one that is served next; there is one."""
        return next(iter(self._waiting.values()))

    def add(self, pull: Pull) -> None:
        """A request comes behind the others."""
        pull.number = next(self._numbers)
        self._waiting[pull.number] = pull
        if pull.impatient and not pull.over_at:
            self._hasty[pull.number] = pull
        self.demand += pull.left
        self.limited += pull.limited
        self.room.shares.add(pull.user, 1)
        self._note(pull)

    def pass_on(self, pull: Pull) -> None:
        """The others come before a request that goes on."""
        self._waiting.move_to_end(pull.number)

    def remove(self, pull: Pull) -> None:
        """A request is over."""
        del self._waiting[pull.number]
        self._hasty.pop(pull.number, None)
        self.demand -= pull.left
        self.limited -= pull.limited
        self.room.shares.add(pull.user, -1)

    def serve(self, pull: Pull, messages: int, now: Nanos) -> None:
        """A request gets some messages; it is over when it wants no more."""
        pull.left -= messages
        self.demand -= messages
        pull.told_at, pull.served = now, True
        if not pull.left:
            self.remove(pull)

    def has(self, pull: Pull) -> bool:
        """True if a request still waits."""
        return pull.number in self._waiting

    def hasty(self) -> list[Pull]:
        """The requests that are over if there is no message now."""
        return list(self._hasty.values())

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_look(self) -> int:
        """Nanos at which something is to be done about one, at the earliest; 0: about none."""
        while self._looks and self._looks[0][1] not in self._waiting:
            heappop(self._looks)
        return self._looks[0][0] if self._looks else NEVER

    def due(self, now: Nanos) -> list[Pull]:
        """The requests that are to be looked at. Each has to be looked at again, by `look_again`, unless it is removed."""
        found = []
        while self._looks and self._looks[0][0] <= now:
            pull = self._waiting.get(heappop(self._looks)[1])
            if pull is not None:
                found.append(pull)
        return found

    def look_again(self, pull: Pull, now: Nanos) -> None:
        """Something was done about one that was due."""
        self._note(pull, Nanos(now + 1))

    def _note(self, pull: Pull, earliest: Nanos = NEVER) -> None:
        at = pull.look_at(self.room.pause)
        if at:
            heappush(self._looks, (max(at, earliest), pull.number))
        if len(self._looks) > 2 * len(self._waiting) + _STALE_MIN:
            self._looks = [one for one in self._looks if one[1] in self._waiting]
            heapify(self._looks)
