"""Long polls: requests that wait until channels have newer messages, or until their time is over.

Promises: each `call` is called once; no work is done per message, only per turn for the watched channels that have grown in it; a
channel may be watched before it exists.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stan_protocol.scalars import ChannelUid, GroupId, Nanos

from stan import limits
from stan.core.base.shares import Shares
from stan.core.metadata.meta import ChannelInfo
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services


class _Watch:
    """One request that waits."""

    __slots__ = ("call", "over", "positions", "user")

    def __init__(self, positions: Mapping[bytes, int], over: int, call: Callable[[], object], user: bytes) -> None:
        self.positions = positions
        self.user = user
        self.over = over  # tick
        self.call = call


class LongPoll:
    """The requests that wait, by channel and by the time when they are given up."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.stored = services.outgoing, services.placement, services.stored
        self.timers = services.timers
        self._by_channel: dict[bytes, set[_Watch]] = {}
        self._by_tick: dict[int, set[_Watch]] = {}
        self._watched = Shares()

    def is_newer(self, positions: Mapping[bytes, int]) -> bool:
        """True if one of the channels has messages after its position now."""
        return any(self._last(name) > sequence for name, sequence in positions.items())

    def add(
        self, positions: Mapping[bytes, int], wait: int, call: Callable[[], None], group: GroupId, user: bytes = b""
    ) -> bool:
        """Call *call* once for *group*, as soon as one of the channels has messages after its position or is deleted, or after
        *wait* nanoseconds. False if too many requests, or too many of the *user*, wait already."""
        if len(positions) > self._watched.left(user, limits.WATCHED_MAX):
            return False
        tick = -(-(self.node.clock.now + min(wait, limits.INFO_WAIT_MAX)) // limits.INFO_WAIT_TICK)
        watch = _Watch(positions, tick, self.faults.bound(group, call), user)
        if tick not in self._by_tick:
            self._by_tick[tick] = set()
            self.timers.at(tick * limits.INFO_WAIT_TICK, partial(self._over, tick), META_GROUP)
        self._by_tick[tick].add(watch)
        for name in positions:
            self._by_channel.setdefault(name, set()).add(watch)
            info = self.node.meta.channels.get(name)
            if info is not None:
                self.outgoing.watched.add(info.uid)
        self._watched.add(user, len(positions))
        return True

    def tell(self) -> None:
        """Call the requests whose channels have newer messages since the last turn."""
        if not self.outgoing.news or any(group.dispatch.stops.lease_lapsed for _, group in self.leading.led):
            return
        news, self.outgoing.news = self.outgoing.news, set()
        for uid in news:
            info = self.node.meta.by_uid.get(uid)
            if info is not None:
                last = self._last(info.name)
                for watch in list(self._by_channel.get(info.name, ())):
                    if last > watch.positions[info.name]:
                        self._end(watch)

    def registered(self, info: ChannelInfo) -> None:
        """A channel was made, which a request may be waiting for."""
        if info.name in self._by_channel:
            self.outgoing.watched.add(info.uid)

    def unregistered(self, info: ChannelInfo) -> None:
        """A channel was deleted: the requests that wait for it are answered."""
        self.outgoing.watched.discard(info.uid)
        self._end_all([info.name])

    def follow(self, number: GroupId) -> None:
        """This node no longer leads a group: the requests that wait for its channels are answered."""
        self._end_all([name for name in self._by_channel if self.placement.group_number(name) == number])

    def left(self, uids: Iterable[ChannelUid]) -> None:
        """Channels are held for a move to another group: the requests that wait for them are answered."""
        known = self.node.meta.by_uid
        self._end_all([known[uid].name for uid in uids if uid in known and known[uid].name in self._by_channel])

    def reset(self) -> None:
        """The metadata was loaded anew, so channels may have been made and deleted unnoticed: all requests are answered."""
        self._end_all(list(self._by_channel))
        self.outgoing.watched.clear()

    def _last(self, name: bytes) -> int:
        info = self.node.meta.channels.get(name)
        return 0 if info is None else self.stored.indexes(info.group, info.uid).last_sequence

    def _over(self, tick: int, _now: Nanos) -> None:
        for watch in list(self._by_tick[tick]):
            self._end(watch)
        del self._by_tick[tick]

    def _end_all(self, names: list[bytes]) -> None:
        for watch in {watch for name in names for watch in self._by_channel.get(name, ())}:
            self._end(watch)

    def _end(self, watch: _Watch) -> None:
        self._by_tick[watch.over].discard(watch)
        for name in watch.positions:
            watches = self._by_channel[name]
            watches.discard(watch)
            if not watches:
                del self._by_channel[name]
                info = self.node.meta.channels.get(name)
                self.outgoing.watched.discard(info.uid if info is not None else ChannelUid(0))
        self._watched.add(watch.user, -len(watch.positions))
        watch.call()
