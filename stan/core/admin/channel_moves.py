"""Moves of channels between groups while the cluster runs (docs/decisions/0021): begun by the metadata, done by the leaders
of the two groups, decided by the metadata.

    begin ─► target copies (move_target) ─► source holds (move_source) ─► target has all ─► metadata decide ─► goes on there

Promises: whoever leads a group finds in its state and in the metadata how far each move is, and goes on; nobody leads a channel
whose group does not know for certain that it is its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan_protocol.refusals import BUSY, go_quote
from stan_protocol.scalars import SECOND, ChannelUid, GroupId, Nanos

from stan import limits
from stan.core.admin.move_source import MoveSource, context_change
from stan.core.admin.move_target import MoveTarget
from stan.core.clients.clients import Clients
from stan.core.clients.subscribing import Subscribing
from stan.core.context import META_GROUP, BrokerContext, nobody_waits, text
from stan.core.leader.local_group import ChannelGroup
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.expiring import Expiring
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.stored_reads import StoredReads
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo, MetaResult
from stan.core.state.moves import MoveStage, Stage
from stan.protocol.proto import entries_pb2 as pb

NOBODY = 1 << 63
"""No subscription has this id."""

Told = Callable[[str, bool], None]
"""Called once with why a move was not begun and True if it may be asked for again, or with "" and False: it is under way."""


@dataclass(slots=True)
class _Moving:
    """What the leader of a group remembers of its moves."""

    asked: dict[tuple[str, int], int] = field(default_factory=dict)  # entry, move -> Nanos: not proposed again before
    # Came in this leadership: no earlier leader has sent anything of them.
    unsent: set[ChannelUid] = field(default_factory=set)


class ChannelMoves:
    """Carries moves out, in the groups that this node leads."""

    def __init__(
        self,
        context: BrokerContext,
        channels: LiveChannels,
        publishing: Publishing,
        stored_reads: StoredReads,
        clients: Clients,
        subscribing: Subscribing,
    ) -> None:
        self.context = context
        self.source = MoveSource(context, channels, publishing, stored_reads)
        self.target = MoveTarget(context)
        self.clients = clients
        self.subscribing = subscribing
        self.restless = False  # a group that this node leads has something to do
        # Move -> when its channels were held (Nanos), on every node: the next leader does not begin to wait anew.
        self.held_at: dict[int, Nanos] = {}

    # --- begin ----------------------------------------------------------------------------------------------------------

    def family(self, info: ChannelInfo) -> list[ChannelInfo]:
        """The channels that are moved together with one, which is among them, by uid: those of its group that are placed by the
        same channel."""
        context = self.context
        if not context.policies.rules:
            return [info]
        root = context.placed_by(info.name)
        found = [
            one
            for one in context.meta.channels.values()
            if one.group == info.group and (one is info or root in (one.name, context.placed_by(one.name)))
        ]
        return sorted(found, key=lambda one: one.uid)

    def begin(self, info: ChannelInfo, to: GroupId, told: Told, pin: pb.Pin | None = None) -> None:
        """Begin to move a channel, with those that belong to it, to another group; only on the leader of the metadata. *pin*: is
        set in the same entry."""
        begin = pb.BeginMove(uids=[one.uid for one in self.family(info)], to=to, pin=pin)

        def done(result: object, error: str) -> None:
            if not isinstance(result, MetaResult):
                told(error or BUSY, True)  # noqa: FBT003
            else:
                told(result.error, False)  # noqa: FBT003

        self.context.change_meta(done, begin_move=begin)

    def cancel(self, move: int) -> None:
        """Cancel a move, if it is not decided yet."""
        context_change(self.context, move, done=False)

    # --- events ---------------------------------------------------------------------------------------------------------

    def asked(self, question: pb.MoveQuestion, reply: bytes) -> None:
        """A leader asks about a channel that comes to its group; the leader of the group where it is answers."""
        context = self.context
        info = context.meta.by_uid.get(ChannelUid(question.uid))
        if info is None or info.move != question.move or not context.leads(info.group):
            return
        if context.leading.replaying is None and reply:
            context.within(info.group, self._answer, question, info, reply)

    def _answer(self, question: pb.MoveQuestion, info: ChannelInfo, reply: bytes) -> None:
        context = self.context
        if not info.move:  # none has begun
            self.source.tell_messages(info.group, self.family(info), reply)
            return
        infos = context.meta.moves()[info.move]
        waits_for = ""
        if question.depart:
            family = [one.uid for one in self.family(infos[0])]
            waits_for = self.source.hold(info.group, info.move, infos, family)
        self.source.answer(info.group, question, infos, waits_for, reply)

    def meta_applied(self, result: MetaResult) -> None:
        """An entry of the metadata was applied: moves have begun or ended, or channels are gone."""
        moved = result.moved
        if moved is None and result.deleted is None:
            return
        self.restless = True
        if moved is not None and moved.left:
            for info in moved.infos:
                self.context.leading.held.release(info.name)
            self.context.placement_changed()
            group = moved.infos[0].group
            if self.context.leads(group):
                self.context.within(group, self._take_over, group, [info.uid for info in moved.infos])
        if self.held_at:
            self.held_at = {move: at for move, at in self.held_at.items() if move in self.context.meta.moves()}
        self._look_at_all()

    def meta_reset(self) -> None:
        """The metadata were loaded again: moves may have ended meanwhile."""
        known, held = self.context.meta.by_uid, self.context.leading.held
        for info in list(held.by_name.values()):
            there = known.get(info.uid)
            if there is None or there.group != info.group:
                held.release(info.name)
        self.context.placement_changed()
        for number, group in self.context.leading.led:
            moves = group.machine.moves
            arrived = [uid for uid, state in moves.by_channel.items() if state.stage is Stage.ARRIVED]
            self.context.within(number, self._take_over, number, arrived)  # as far as they are this group's
        self.restless = True

    def applied(self, number: GroupId, name: str, change: pb.GroupChange, result: GroupResult) -> None:
        """An entry of a group that tells of a move was applied, on every node that holds the group."""
        told = getattr(change, name)
        self.restless = True
        if result.error:
            return
        match name:
            case "arrived":
                self._arrived(number, told)
            case "depart":
                self.held_at[told.move] = self.context.clock.now
                self.source.held(number, told.uids)
            case "departed":
                self.context.outgoing.drops += [(number, ChannelUid(uid)) for uid in told.uids]
                stops = self.context.groups[number].dispatch.stops
                stops.moving = stops.moving.difference(told.uids)
            case "returned" if self.context.leads(number):
                self._take_over(number, told.uids)

    def _arrived(self, number: GroupId, told: pb.Arrived) -> None:
        """Everything of some channels has come to a group; they are not its own before the metadata say so."""
        group = self.context.groups[number]
        self.context.kept(number, _Moving).unsent.update(map(ChannelUid, told.uids))
        for uid in map(ChannelUid, told.uids):
            self.context.outgoing.trims.append((number, uid, group.machine.first_sequence(uid)))
        self._note_unknown(group, told)
        group.dispatch.stops.moving = group.dispatch.stops.moving.union(map(ChannelUid, told.uids))
        now = self.context.clock.now
        for row in told.rows:
            if row.HasField("recent"):
                group.joined.setdefault((row.recent.client_id, row.recent.inbox), (now, NOBODY))
        for cursor in [one for uid in told.uids for one in group.machine.channel(ChannelUid(uid)).cursors.values()]:
            for member in cursor.members:
                self.subscribing.remember(group, member)

    def _note_unknown(self, group: ChannelGroup, told: pb.Arrived) -> None:
        """Publishes of before the source's leader knew their fingerprints are never replayed."""
        now, taken_over = self.context.clock.now, group.replay_filter.taken_over
        group.replay_filter.forget_old(now)
        unknown_until = now - told.known_for + limits.MOVE_KNOWN_MARGIN
        for info in filter(None, map(self.context.meta.by_uid.get, map(ChannelUid, told.uids))):
            taken_over[info.name] = Nanos(unknown_until)

    def _take_over(self, number: GroupId, uids: list[ChannelUid]) -> None:
        """Channels are a group's that this node leads: it goes on with them as a new leader does. One that has come before this
        leadership may have been led by an earlier leader, who knew of it sooner."""
        infos, moving = self.source.go_on(number, uids, anew=True), self.context.kept(number, _Moving)
        expiring = self.context.part(number, Expiring)
        for info in infos:
            arrived = self.context.groups[number].machine.moves.by_channel.get(info.uid)
            if arrived is not None and arrived.stage is Stage.ARRIVED and info.uid not in moving.unsent:
                self.context.groups[number].dispatch.mark_unconfirmed(info.uid)
            self.context.note("INF", f"Channel {go_quote(text(info.name))} goes on in group {number}")
            if expiring is not None:
                expiring.taken(info.uid)
        if infos:
            self.clients.lead_group(number)
            self.subscribing.lead_group(number)

    def others(self, number: GroupId) -> frozenset[ChannelUid]:
        """Channels of which a group's state has something, but that are another group's, or nobody's, as far as is known here."""
        known, machine = self.context.meta.by_uid, self.context.groups[number].machine
        return frozenset(
            uid
            for uid in machine.moves.by_channel
            if uid in machine.moves.held or (info := known.get(uid)) is None or info.group != number
        )

    def lead_group(self, number: GroupId) -> None:
        """This node leads a group from now on: its channels that are held are nobody's."""
        known = self.context.meta.by_uid
        for uid in self.context.groups[number].machine.moves.held:
            info = known.get(uid)
            if info is not None and info.group == number:
                self.context.leading.held.hold(info)
        self.restless = True
        self.context.placement_changed()

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group."""
        held = self.context.leading.held
        for name in [name for name, info in held.by_name.items() if info.group == number]:
            held.release(name)

    # --- going on -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look now and then what is to be done."""
        self.context.timers.at(self.context.clock.now + limits.MOVE_LOOK, self._tick, META_GROUP)

    def _tick(self, now: Nanos) -> None:
        self.context.timers.at(now + limits.MOVE_LOOK, self._tick, META_GROUP)
        if self.restless or self.context.meta.moving:
            self._look_at_all()

    def _look_at_all(self) -> None:
        self.restless = False
        for number, _ in self.context.leading.led:
            self.context.within(number, self._look, number)

    def _look(self, number: GroupId) -> None:
        machine, meta = self.context.groups[number].machine, self.context.meta
        for move, infos in meta.moves().items() if meta.moving else ():
            if infos[0].moving_to == number:
                self.target.look(number, move, infos)
        for uid, state in list(machine.moves.by_channel.items()):
            if meta.applied < state.move:  # this copy of the metadata is behind
                self.restless = True
            else:
                self._settle(number, uid, state, meta.by_uid.get(uid))

    def _settle(self, number: GroupId, uid: ChannelUid, state: MoveStage, info: ChannelInfo | None) -> None:
        """Do what is next for one channel, as far as this group has to."""
        move = state.move
        if info is None:
            if uid < self.context.meta.next_uid and state.stage is not Stage.HELD:
                self._propose(number, "drop_channel", int(uid), drop_channel=pb.DropChannel(uid=uid))
            return
        under_way = info.move == move
        if state.stage is Stage.HELD and under_way:
            since = self.held_at.setdefault(move, self.context.clock.now)
            if self.context.clock.now - since > limits.MOVE_HOLD_MAX and self._may_ask(number, "cancel", move):
                context_change(self.context, move, done=False)
        elif state.stage is Stage.HELD:
            name = "returned" if info.group == number else "departed"
            uids = self._of_move(number, state)
            self._propose(number, name, move, **{name: pb.Moving(move=move, uids=uids)})
        elif state.stage is Stage.ARRIVED and under_way:
            if self._may_ask(number, "done", move):
                context_change(self.context, move, done=True)
        elif state.stage is Stage.ARRIVED and info.group != number:
            self._propose(
                number, "dropped", move, arrival_dropped=pb.Moving(move=move, uids=self._of_move(number, state))
            )

    def _of_move(self, number: GroupId, state: MoveStage) -> list[ChannelUid]:
        by_channel = self.context.groups[number].machine.moves.by_channel
        return sorted(uid for uid, known in by_channel.items() if known == state)

    def _may_ask(self, number: GroupId, what: str, move: int) -> bool:
        """True if that was not asked for in the last quarter of a second."""
        self.restless = True
        asked, now = self.context.kept(number, _Moving).asked, self.context.clock.now
        if asked.get((what, move), 0) > now:
            return False
        asked[what, move] = now + limits.FORWARD_INTERVAL
        return True

    def _propose(self, number: GroupId, what: str, move: int, **change: object) -> None:
        """Propose a change, unless it is on its way."""
        self.restless = True
        asked, now = self.context.kept(number, _Moving).asked, self.context.clock.now
        if asked.get((what, move), 0) > now:
            return
        asked[what, move] = now + SECOND

        def done(_result: object, _error: str) -> None:
            asked.pop((what, move), None)

        self.context.change_group(number, done, nobody_waits, **change)
