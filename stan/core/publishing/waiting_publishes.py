"""Publishes that cannot be queued yet, in the memory of the leader that has received them: their publisher is unknown until the
metadata are new enough, or their channel is being made. Pure.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from stan_protocol.frames import Publishes, Sender
from stan_protocol.scalars import GroupId


class Attempt(NamedTuple):
    """An attempt of publishes to pass the filters."""

    replayed: bool = False
    """The leader before may have taken them."""
    newest: bool | None = None
    """They have waited for the metadata: True if this copy is now as new as the leader's, False if it is not in time."""
    admitted: bool = False
    """They have waited for their channel. Their publishers were judged before, and are not once more: a client may close while
    its channel is made, and what it sent before that counts."""


class WaitingBatch(NamedTuple):
    """Publishes that wait."""

    group: GroupId
    """Of their channel, as it was when they came: the next leader of the group has buffered them, too."""
    batch: Publishes
    attempt: Attempt


class WaitingPublishes:
    """The waiting publishes of one node, each batch with a number, in order of arrival."""

    def __init__(self) -> None:
        self.for_metadata: OrderedDict[int, WaitingBatch] = OrderedDict()  # a dict looks long for its first item
        self.for_channel: dict[int, WaitingBatch] = {}
        self.publishers: Counter[Sender] = Counter()  # of `for_metadata`: their later publishes wait behind them
        self.bytes: Counter[GroupId] = Counter()
        self._numbered = 0

    def add(self, queue: dict[int, WaitingBatch], waiting: WaitingBatch) -> int:
        """Have publishes wait in one of the two; returns the number by which they are taken out."""
        self._numbered += 1
        queue[self._numbered] = waiting
        self.bytes[waiting.group] += len(waiting.batch.bodies)
        if queue is self.for_metadata:
            self.publishers.update(waiting.batch.senders())
        return self._numbered

    def remove(self, queue: dict[int, WaitingBatch], number: int) -> WaitingBatch | None:
        """Publishes wait no more. None: they were forgotten meanwhile."""
        waiting = queue.pop(number, None)
        if waiting is not None:
            self.bytes[waiting.group] -= len(waiting.batch.bodies)
            for sender in waiting.batch.senders() if queue is self.for_metadata else ():
                self.publishers[sender] -= 1
                if not self.publishers[sender]:
                    del self.publishers[sender]
        return waiting

    def forget(self, goes: Callable[[WaitingBatch], bool], *, channels: bool = True) -> list[WaitingBatch]:
        """Forget those publishes, but not those that wait for their channel unless *channels*; returns them."""
        queues = (self.for_metadata, self.for_channel) if channels else (self.for_metadata,)
        gone = [(queue, number) for queue in queues for number, waiting in queue.items() if goes(waiting)]
        return [waiting for queue, number in gone if (waiting := self.remove(queue, number)) is not None]
