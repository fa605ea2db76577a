"""Channels go by themselves to the group where they belong, on the leader of the metadata: to the one to which they are pinned,
and where the hash of their names puts them now that the pool has grown (docs/decisions/0021).

    the pool is opened, a pin is set, this node begins to lead ─► look at all channels ─► begin a move ─► it has ended ─► the next

Promises: one move at a time is begun here, and none while an operator has paused them; a channel that is elsewhere than any size
of the pool would have put it was placed by hand, and stays. Who leads next looks again: nothing of this is in the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, ChannelUid, GroupId, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.leader.local_group import LeaderParts
from stan.core.metadata.meta import ChannelInfo, MetaResult
from stan.core.services.leader_part import MetaPart
from stan.core.services.services import Services


@dataclass(slots=True)
class _Wish:
    """A channel is to move."""

    due: int = 0  # Nanos: not before
    pause: int = limits.MOVE_RETRY  # until the next attempt, if one fails


class Spreading(MetaPart):
    """Begins the moves that nobody has to ask for."""

    def __init__(self, services: Services, leadership: LeaderParts, moves: ChannelMoves) -> None:
        super().__init__(services, leadership)
        self.placement = services.placement
        self.moves = moves
        self.unseen: dict[ChannelUid, None] = {}  # channels that are still to be looked at
        self.wishes: dict[ChannelUid, _Wish] = {}
        self.asked_until = Nanos(0)  # an entry that begins a move may be on its way until then
        self.ticking = False
        self._look_at_all()

    # --- events ---------------------------------------------------------------------------------------------------------

    def applied(self, result: MetaResult) -> None:
        """An entry of the metadata was applied."""
        if result.pool_changed or result.pins_changed or result.policies_changed:
            self._look_at_all()
        changed = [*result.created, *(result.moved.infos if result.moved is not None else ())]
        for info in changed if self._needed() else ():
            wish = self._look_at(info.uid)
            if wish is not None and result.moved is not None and not info.move:  # it was cancelled
                self._later(info.uid, wish)
        if result.deleted is not None:
            self.wishes.pop(result.deleted.uid, None)
        if changed or result.deleted is not None or result.pause_changed:
            self._count()
            self._tick_on()

    # --- who belongs where ----------------------------------------------------------------------------------------------

    def _needed(self) -> bool:
        """True if a channel may be elsewhere than where it belongs."""
        return bool(self.node.clustered and (self.node.meta.pool.growths or self.node.meta.pins))

    def _look_at_all(self) -> None:
        if self._needed():
            self.unseen.update(dict.fromkeys(self.node.meta.by_uid))
            self._look_at_some()
            self._tick_on()

    def _look_at_some(self) -> None:
        for uid in list(islice(self.unseen, limits.MOVE_LOOKED_AT)):
            del self.unseen[uid]
            self._look_at(uid)
        self._count()

    def _look_at(self, uid: ChannelUid) -> _Wish | None:
        info = self.node.meta.by_uid.get(uid)
        if info is None or self._belongs(info) == info.group:
            self.wishes.pop(uid, None)
            return None
        return self.wishes.setdefault(uid, _Wish())

    def _belongs(self, info: ChannelInfo) -> GroupId:
        """The group where a channel belongs; where it is, if it stays there: it goes along with another channel, or cannot come
        back, or was placed by hand."""
        meta = self.node.meta
        name = self.placement.placed_by(info.name)
        if name != info.name and name in meta.channels:
            return info.group
        to = meta.pins.get(name, GroupId(0))
        if not to and name in meta.channels.parted.by_part:
            return info.group  # its hash says nothing: parts are in groups one after the other
        if not to:
            commit = self.node.meta.commit_of(info.group)  # a channel stays what it is
            to = self.placement.hashed(name, commit, self.placement.pool_open)
            sizes = [self.node.config.store.raft_groups, *(growth.groups for growth in meta.pool.growths)]
            if to != info.group and info.group not in {self.placement.hashed(name, commit, size) for size in sizes}:
                return info.group
        return info.group if to in info.left else to

    def _count(self) -> None:
        self.leading.to_move = len(self.wishes)

    # --- moves ----------------------------------------------------------------------------------------------------------

    def _tick_on(self) -> None:
        if not self.ticking and (self.unseen or self.wishes):
            self.ticking = True
            self.at(self.node.clock.now + limits.MOVE_LOOK, self._tick)

    def _tick(self, now: Nanos) -> None:
        self.ticking = False
        self._go_on(now)
        self._tick_on()

    def _go_on(self, now: Nanos) -> None:
        meta = self.node.meta
        if self.unseen:
            self._look_at_some()
        elif (
            now >= self.asked_until
            and not meta.moves_paused
            and not any(uid in self.wishes for uid in meta.by_uid.moving)
        ):
            uid = next((uid for uid in self._in_turn() if uid in self.wishes and self.wishes[uid].due <= now), None)
            if uid is not None:
                self._begin(meta.by_uid[uid])

    def _in_turn(self) -> Iterator[ChannelUid]:
        """Channels that may be to move, those first that an operator has pinned."""
        channels = self.node.meta.channels
        pinned = (channels[name].uid for name in self.node.meta.pins if name in channels)
        return chain(pinned, self.wishes)

    def _begin(self, info: ChannelInfo) -> None:
        self.asked_until = Nanos(self.node.clock.now + SECOND)
        self.moves.begin(info, self._belongs(info), partial(self._begun, info))

    def _begun(self, info: ChannelInfo, error: str, retry: bool) -> None:  # noqa: FBT001 - as Begun has it
        self.asked_until = Nanos(0)
        wish = self.wishes.get(info.uid)
        if error and wish is not None:
            if not retry:
                self.reports.note("WRN", f"Channel {go_quote(text(info.name))} is not moved yet: {error}")
            self._later(info.uid, wish)

    def _later(self, uid: ChannelUid, wish: _Wish) -> None:
        """Move a channel behind the others, and not before a pause."""
        wish.due, wish.pause = self.node.clock.now + wish.pause, min(2 * wish.pause, limits.MOVE_RETRY_MAX)
        self.wishes[uid] = self.wishes.pop(uid)
