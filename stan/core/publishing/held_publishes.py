"""Publishes that cannot be queued yet, in the memory of the leader that has heard them: their publisher is unknown until the
metadata are new enough, or their channel is being made. Pure.

What waits belongs to the group of its channel as it was when the publish was heard: it is forgotten when that group is led no
more, as the next leader has heard it, too.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from stan_protocol.frames import Publishes, Sender
from stan_protocol.scalars import GroupId


class HeldBatch(NamedTuple):
    """Publishes that wait."""

    group: GroupId
    batch: Publishes
    replayed: bool  # the leader before may have taken them


class HeldPublishes:
    """Those of one node."""

    def __init__(self) -> None:
        self.for_metadata: deque[HeldBatch] = deque()  # of unknown clients, in order of arrival
        self.publishers: Counter[Sender] = Counter()  # their senders, whose later publishes wait behind them
        self.bytes: Counter[GroupId] = Counter()
        self._for_channel: dict[int, HeldBatch] = {}  # by running number
        self._numbered = 0

    def wait_for_metadata(self, held: HeldBatch) -> None:
        """Until `let_go`."""
        self.for_metadata.append(held)
        self.publishers.update(held.batch.senders())
        self.bytes[held.group] += len(held.batch.bodies)

    def let_go(self) -> HeldBatch:
        """The first that waits for the metadata waits no more."""
        held = self.for_metadata.popleft()
        self.publishers -= Counter(held.batch.senders())
        self.bytes[held.group] -= len(held.batch.bodies)
        return held

    def wait_for_channel(self, held: HeldBatch) -> int:
        """Returns the number by which they are taken when their channel is there."""
        self._numbered += 1
        self._for_channel[self._numbered] = held
        self.bytes[held.group] += len(held.batch.bodies)
        return self._numbered

    def take(self, number: int) -> HeldBatch | None:
        """Their channel is there, or is not to be made. None: they were forgotten meanwhile."""
        held = self._for_channel.pop(number, None)
        if held is not None:
            self.bytes[held.group] -= len(held.batch.bodies)
        return held

    def follow(self, group: GroupId) -> None:
        """This node no longer leads the group."""
        self._forget(lambda held: held.group == group, channels=True)

    def forget_replayed(self, group: GroupId, channels: Collection[bytes]) -> None:
        """Publishes to *channels* are replayed for *group*. Those that have waited since the channels belonged to other groups,
        before they were pinned for instance, are among them."""
        self._forget(lambda held: held.group != group and held.batch.channel in channels, channels=True)

    def forget_foreign(self, channel: bytes, group: GroupId) -> bool:
        """A channel turns out to be in *group*. If some of what waits for it was heard as for another group, all of it is
        forgotten; returns whether it was."""
        here = [held for held in (*self.for_metadata, *self._for_channel.values()) if held.batch.channel == channel]
        foreign = any(held.group != group for held in here)
        if foreign:
            self._forget(lambda held: held.batch.channel == channel, channels=True)
        return foreign

    def forget_unknown(self, channels: Collection[bytes]) -> list[HeldBatch]:
        """Forget publishes to *channels* that wait for the metadata; returns them."""
        return self._forget(lambda held: held.batch.channel in channels, channels=False)

    def _forget(self, goes: Callable[[HeldBatch], bool], *, channels: bool) -> list[HeldBatch]:
        gone = [held for held in self.for_metadata if goes(held)]
        if gone:
            self.for_metadata = deque(held for held in self.for_metadata if not goes(held))
            self.publishers = Counter(sender for held in self.for_metadata for sender in held.batch.senders())
        if channels:
            numbers = [number for number, held in self._for_channel.items() if goes(held)]
            gone += [self._for_channel.pop(number) for number in numbers]
        for held in gone:
            self.bytes[held.group] -= len(held.batch.bodies)
        return gone
