"""Servers of one cluster id that share the channels among them: which of them are this server's (STAN-SPEC 11). Pure.

The others' channels belong to ELSEWHERE, a group that nobody leads here: requests for them are neither answered nor refused. As
every server lets clients in by itself, what a client sends may be here before the client is: it waits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stan import limits
from stan.patterns import ONE, REST, matches
from stan.protocol.frames import Sender
from stan.remembered import Remembered
from stan.types import GroupId, Nanos

if TYPE_CHECKING:
    from stan.core.shared import Shared

ELSEWHERE = GroupId(-1)
"""The group of the channels of other servers."""


class Partition(Remembered[bytes, bool]):
    """Whether a channel is this server's, by name; remembers what it was asked, as the kernel asks for every batch."""

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__()
        self.patterns = tuple(sorted(patterns))

    def __missing__(self, channel: bytes) -> bool:
        name = channel.decode("utf-8", "surrogateescape")
        return self.remember(channel, any(matches(pattern, name) for pattern in self.patterns), len(channel))

    def cover(self) -> str:
        """The narrowest subject that all its channels fit."""
        split = [pattern.split(".") for pattern in self.patterns]
        found = []
        for place in range(max(map(len, split), default=0)):
            tokens = {tokens[place] if place < len(tokens) else REST for tokens in split}
            if REST in tokens:
                break
            found.append(tokens.pop() if len(tokens) == 1 else ONE)
        else:
            return ".".join(found)
        if any(len(tokens) == len(found) for tokens in split):  # `a` and `a.b`: `a.>` would not cover the first
            return REST if len(found) == 1 else ".".join([*found[:-1], REST])
        return ".".join([*found, REST])


def conflict(mine: Iterable[str], theirs: Iterable[str]) -> str | None:
    """The first of *theirs* that also one of *mine* covers, or is covered by."""
    mine = tuple(mine)
    return next((name for name in theirs if any(matches(own, name) or matches(name, own) for own in mine)), None)


@dataclass(slots=True)
class _Awaiting:
    publishers: tuple[Sender, ...]
    call: Callable[[bool], None]


class Latecomers:
    """What was sent by clients that have not been let in here; bounded in time, and by what the callers hold."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._waiting: list[_Awaiting] = []
        self._failed: dict[Sender, None] = {}  # were waited for in vain; oldest first

    def wait(self, publishers: Iterable[Sender], call: Callable[[bool], None]) -> None:
        """Call with True once all *publishers* are known or have had their time; at once if it is so already."""
        strangers = tuple(
            one for one in dict.fromkeys(publishers) if not self._is_known(one) and one not in self._failed
        )
        if not strangers:
            call(True)  # noqa: FBT003 - as stan.core.requests.catchup answers
            return
        awaiting = _Awaiting(strangers, call)
        self._waiting.append(awaiting)
        shared = self._shared
        shared.timers.at(shared.clock.now + limits.PARTITION_CLIENT_PATIENCE, lambda now: self._late(awaiting, now))

    def _is_known(self, publisher: Sender) -> bool:
        known = self._shared.sender(publisher) is not None
        if known:
            self._failed.pop(publisher, None)
        return known

    def applied(self) -> None:
        """Clients may have come."""
        if not self._waiting:
            return
        there = [one for one in self._waiting if all(map(self._is_known, one.publishers))]
        self._waiting = [one for one in self._waiting if one not in there]
        for one in there:
            one.call(True)  # noqa: FBT003

    def _late(self, awaiting: _Awaiting, _now: Nanos) -> None:
        if awaiting not in self._waiting:
            return
        self._waiting.remove(awaiting)
        for publisher in awaiting.publishers:
            if not self._is_known(publisher):
                self._failed[publisher] = None
        if len(self._failed) > limits.PARTITION_STRANGERS_MAX:
            for publisher in list(self._failed)[: limits.PARTITION_STRANGERS_PRUNED]:
                del self._failed[publisher]
        awaiting.call(True)  # noqa: FBT003
