"""Moves of channels between groups while the cluster runs (docs/decisions/0021): begun by the metadata, done by the leaders
of the two groups, decided by the metadata.

    begin ─► target copies (move_target) ─► source holds (move_source) ─► target has all ─► metadata decide ─► goes on there

Promises: each next leader of a group reads in its state and in the metadata how far each move is, and goes on; nobody leads a
channel whose group does not know for certain that it is its own.
"""

from collections.abc import Callable

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.refusals import BUSY
from stan_protocol.scalars import ChannelUid, GroupId, Nanos

from stan import limits
from stan.core.clients.clients import Clients
from stan.core.clients.subscription_requests import SubscriptionRequests
from stan.core.features.moves.group_moves import GroupMoves, MoveWatch
from stan.core.features.moves.source import MoveSource, end_move
from stan.core.features.moves.target import MoveTarget
from stan.core.leader.local_group import ChannelGroup, Leadership
from stan.core.metadata.meta import ChannelInfo, MetaResult
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.publishing import Publishing
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.moves import Stage
from stan.protocol.proto import entries_pb2 as pb

NOBODY = 1 << 63
"""No subscription has this id."""

Begun = Callable[[str, bool], None]
"""Called once with why a move was not begun and True if it may be asked for again, or with "" and False: it is under way."""


class ChannelMoves:
    """Follows moves in all groups of this node; what the leader of a group has to do is in its `GroupMoves`."""

    def __init__(
        self,
        services: Services,
        channels: LiveChannels,
        publishing: Publishing,
        clients: Clients,
        subscribing: SubscriptionRequests,
    ) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.timers = services.timers
        self.channels = channels
        self.publishing = publishing
        self.clients = clients
        self.subscribing = subscribing
        self.watch = MoveWatch()

    # --- begin ----------------------------------------------------------------------------------------------------------

    def family(self, info: ChannelInfo) -> list[ChannelInfo]:
        """The channels that are moved together with one, which is among them, by uid: those of its group that are placed by the
        same channel."""
        if not self.placement.policies.rules:
            return [info]
        root = self.placement.placed_by(info.name)
        found = [
            one
            for one in self.node.meta.channels.values()
            if one.group == info.group and (one is info or root in (one.name, self.placement.placed_by(one.name)))
        ]
        return sorted(found, key=lambda one: one.uid)

    def begin(self, info: ChannelInfo, to: GroupId, begun: Begun, pin: pb.Pin | None = None) -> None:
        """Begin to move a channel, with those that belong to it, to another group; only on the leader of the metadata. *pin*: is
        set in the same entry."""
        begin = pb.BeginMove(uids=[one.uid for one in self.family(info)], to=to, pin=pin)

        def done(result: object, error: str) -> None:
            if not isinstance(result, MetaResult):
                begun(error or BUSY, True)  # noqa: FBT003
            else:
                begun(result.error, False)  # noqa: FBT003

        self.proposals.change_meta(done, begin_move=begin)

    def cancel(self, move: int) -> None:
        """Cancel a move, if it is not decided yet."""
        end_move(self.proposals, move, done=False)

    # --- events ---------------------------------------------------------------------------------------------------------

    def answer(self, frame: Frame) -> None:
        """Answer the leader of a group to which a channel comes, if this node leads the group that it comes from."""
        try:
            question = pb.MoveQuestion.FromString(frame.payload)
        except DecodeError:
            return
        info = self.node.meta.by_uid.get(ChannelUid(question.uid))
        if info is None or info.move != question.move or not self.node.leads(info.group):
            return
        if self.leading.replaying is None and frame.reply:
            self.faults.within(info.group, self._answer_as_source, question, info, frame.reply)

    def _answer_as_source(self, question: pb.MoveQuestion, info: ChannelInfo, reply: bytes) -> None:
        source = self.leading.leadership(info.group).part(GroupMoves).source
        if not info.move:  # none has begun
            source.tell_messages(self.family(info), reply)
            return
        infos = self.node.meta.moves()[info.move]
        waits_for = ""
        if question.depart:
            family = [one.uid for one in self.family(infos[0])]
            waits_for = source.hold(info.move, infos, family)
        source.answer(question, infos, waits_for, reply)

    def meta_applied(self, result: MetaResult) -> None:
        """An entry of the metadata was applied: moves have begun or ended, or channels are gone."""
        moved = result.moved
        if moved is None and result.deleted is None:
            return
        self.watch.restless = True
        if moved is not None and moved.left:
            self.placement.changed()
            group, moves = moved.infos[0].group, self.leading.part(moved.infos[0].group, GroupMoves)
            if moves is not None:
                self.faults.within(group, moves.take_over, [info.uid for info in moved.infos])
        for move in self.watch.held_at.keys() - self.node.meta.moves().keys():
            del self.watch.held_at[move]
        self._look_at_all()

    def meta_loaded(self) -> None:
        """The metadata were loaded again: moves may have ended meanwhile."""
        self.leading.each(GroupMoves, _take_over_arrived)
        self.watch.restless = True

    def applied(self, number: GroupId, name: str, change: pb.GroupChange, result: GroupResult) -> None:
        """An entry of a group that tells of a move was applied, on every node that holds the group."""
        moved = getattr(change, name)
        self.watch.restless = True
        if result.error:
            return
        match name:
            case "arrived":
                self._arrived(number, moved)
            case "depart":
                self._departs(number, moved)
            case "departed":
                self.outgoing.drops += [(number, ChannelUid(uid)) for uid in moved.uids]
            case "returned":
                moves = self.leading.part(number, GroupMoves)
                if moves is not None:
                    moves.take_over(moved.uids)

    def _departs(self, number: GroupId, moving: pb.Moving) -> None:
        """Channels are held: the live view of them ends."""
        self.watch.held_at[moving.move] = self.node.clock.now
        group = self.node.groups[number]
        for uid in map(ChannelUid, moving.uids):
            if uid in group.machine.moves.held:
                group.dispatch.members.drop_channel(uid)

    def _arrived(self, number: GroupId, arrived: pb.Arrived) -> None:
        """Everything of some channels has come to a group; they are not its own before the metadata say so."""
        group = self.node.groups[number]
        moves = self.leading.part(number, GroupMoves)
        if moves is not None:
            moves.arrived(map(ChannelUid, arrived.uids))
        for uid in map(ChannelUid, arrived.uids):
            self.outgoing.trims.append((number, uid, group.machine.first_sequence(uid)))
        self._note_unknown(group, arrived)
        now = self.node.clock.now
        for row in arrived.rows:
            if row.HasField("recent"):
                group.joined.setdefault((row.recent.client_id, row.recent.inbox), (now, NOBODY))
        for cursor in [one for uid in arrived.uids for one in group.machine.channel(ChannelUid(uid)).cursors.values()]:
            for member in cursor.members:
                self.subscribing.remember(group, member)

    def _note_unknown(self, group: ChannelGroup, arrived: pb.Arrived) -> None:
        """Never replay publishes that are older than the fingerprints that the source's leader knew."""
        now, taken_over = self.node.clock.now, group.replay_filter.taken_over
        group.replay_filter.forget_old(now)
        unknown_until = now - arrived.known_for + limits.MOVE_KNOWN_MARGIN
        for info in filter(None, map(self.node.meta.by_uid.get, map(ChannelUid, arrived.uids))):
            taken_over[info.name] = Nanos(unknown_until)

    def lead(self, leadership: Leadership) -> None:
        """This node leads a group from now on: its channels that are held are nobody's."""
        source = MoveSource(self._services, leadership, self.channels, self.publishing)
        target = MoveTarget(self._services, leadership)
        leadership.keep(
            GroupMoves(self._services, leadership, source, target, self.clients, self.subscribing, self.watch)
        )
        self.watch.restless = True
        self.placement.changed()

    # --- going on -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look at the moves at intervals."""
        self.timers.at(self.node.clock.now + limits.MOVE_LOOK, self._tick, META_GROUP)

    def _tick(self, now: Nanos) -> None:
        self.timers.at(now + limits.MOVE_LOOK, self._tick, META_GROUP)
        if self.watch.restless or self.node.meta.by_uid.moving:
            self._look_at_all()

    def _look_at_all(self) -> None:
        self.watch.restless = False
        self.leading.each(GroupMoves, GroupMoves.look)


def _take_over_arrived(moves: GroupMoves) -> None:
    stages = moves.group.machine.moves.by_channel
    arrived = [uid for uid, state in stages.items() if state.stage is Stage.ARRIVED]
    moves.take_over(arrived)  # as far as they are this group's
