"""Who waits for newer messages of channels: called when there are some, or when the time is over.

Promises: every `call` comes once; nothing is looked at per message, only channels that are watched and have become longer in a
turn; a name may be watched before the channel exists.
"""

from collections.abc import Callable, Mapping
from functools import partial

from stan import limits
from stan.core.context import BrokerContext
from stan.core.state.meta import ChannelInfo
from stan.types import ChannelUid, GroupId, Nanos


class _Watch:
    """One who waits."""

    __slots__ = ("call", "over", "positions")

    def __init__(self, positions: Mapping[bytes, int], over: int, call: Callable[[], None]) -> None:
        self.positions = positions
        self.over = over  # tick
        self.call = call


class LongPoll:
    """See the module's docstring."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self._by_channel: dict[bytes, set[_Watch]] = {}
        self._by_tick: dict[int, set[_Watch]] = {}
        self._watched = 0

    def is_newer(self, positions: Mapping[bytes, int]) -> bool:
        """Whether a channel has messages behind its position, now."""
        return any(self._last(name) > sequence for name, sequence in positions.items())

    def add(self, positions: Mapping[bytes, int], wait: int, call: Callable[[], None]) -> bool:
        """Call as soon as a channel has messages behind its position, or goes, or after *wait* ns; False: too many wait."""
        if self._watched + len(positions) > limits.WATCHED_MAX:
            return False
        context = self.context
        tick = -(-(context.clock.now + min(wait, limits.INFO_WAIT_MAX)) // limits.INFO_WAIT_TICK)
        watch = _Watch(positions, tick, call)
        if tick not in self._by_tick:
            self._by_tick[tick] = set()
            context.timers.at(tick * limits.INFO_WAIT_TICK, partial(self._over, tick))
        self._by_tick[tick].add(watch)
        for name in positions:
            self._by_channel.setdefault(name, set()).add(watch)
            info = context.meta.channels.get(name)
            if info is not None:
                context.outgoing.watched.add(info.uid)
        self._watched += len(positions)
        return True

    def tell(self) -> None:
        """Call those who have waited for what this turn has brought."""
        context = self.context
        if not context.outgoing.news or any(group.dispatch.lease_lapsed for _, group in context.led()):
            return
        news, context.outgoing.news = context.outgoing.news, set()
        for uid in news:
            info = context.meta.by_uid.get(uid)
            if info is not None:
                last = self._last(info.name)
                for watch in list(self._by_channel.get(info.name, ())):
                    if last > watch.positions[info.name]:
                        self._end(watch)

    def registered(self, info: ChannelInfo) -> None:
        """A channel is there from now on."""
        if info.name in self._by_channel:
            self.context.outgoing.watched.add(info.uid)

    def unregistered(self, info: ChannelInfo) -> None:
        """A channel is gone: who waits for it shall hear of it."""
        self.context.outgoing.watched.discard(info.uid)
        self._end_all([info.name])

    def follow(self, number: GroupId) -> None:
        """This node leads a group no more: others answer for it."""
        self._end_all([name for name in self._by_channel if self.context.group_number(name) == number])

    def reset(self) -> None:
        """Channels may have come and gone unheard."""
        self._end_all(list(self._by_channel))
        self.context.outgoing.watched.clear()

    def _last(self, name: bytes) -> int:
        info = self.context.meta.channels.get(name)
        return 0 if info is None else self.context.indexes(info.group, info.uid).last_sequence

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
                info = self.context.meta.channels.get(name)
                self.context.outgoing.watched.discard(info.uid if info is not None else ChannelUid(0))
        self._watched -= len(watch.positions)
        watch.call()
