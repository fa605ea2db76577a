"""The source of a move: the leader of the group that channels are moved from holds them, and answers the questions of the
target's leader about them (docs/decisions/0021).

Promises: answers report committed state; rows are sent only of channels that are held, so of which nothing changes.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain

from stan_protocol.fetches import LENGTH_PREFIX
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import BUSY, CHANNEL_DELETING, CHANNEL_RESTORING, MOVE_WAITS_STAGED, go_quote
from stan_protocol.scalars import ChannelUid, KiB, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.base.ready import ReadResult, Replay
from stan.core.features.moves.steps import MoveAction, MoveEvent, MoveStep, next_step
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import ProposedChanges
from stan.core.services.services import Services
from stan.core.state.channel_moves import half_done
from stan.core.state.group_state import GroupResult
from stan.core.state.moved_rows import moved_rows
from stan.core.state.moves import Stage
from stan.policies import COMMITS
from stan.protocol.proto import entries_pb2 as pb

ROOM = 4 * KiB
"""Bytes of an answer besides messages, fingerprints and rows, and of the protocol around it."""
TOO_LARGE = "stan: message {} of the channel is too large to be moved"
ROW_TOO_LARGE = "stan: a part of its state is too large to be moved"
TOO_YOUNG = "stan: the leader of its group has not heard publishers for long enough"
HAS_MESSAGES = "channel {} has messages, acked as {}: purge it first"
NAMED_MAX = 10
"""Channels that a complaint names."""
OTHERS_BELONG = "stan: other channels belong to the channel by now"


class MoveSource(StoringPart):
    """Holds channels that are to go from one group, and answers what the group has of them, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.placement = services.placement
        self._waiting_since: dict[int, int] = {}  # Nanos: by move, when it was first asked to wait

    # --- holding ------------------------------------------------------------------------------------------------------

    def hold(self, move: int, infos: list[ChannelInfo], family: Iterable[ChannelUid]) -> str:
        """Hold the channels of a move: from now on nobody leads them. *family*: the channels that belong together now. Returns
        why they are not held, or "": they are, or the entry that tells it is on its way."""
        if self._step(move, infos) is not MoveStep.LED:
            return ""
        if found := OTHERS_BELONG if sorted(family) != [info.uid for info in infos] else self._acked_otherwise(infos):
            self._feed(move, infos, MoveEvent.HOPELESS)
            return found
        if self._known_for(infos) < limits.MOVE_KNOWN_MIN:
            return TOO_YOUNG
        for info in infos:
            if reason := self._not_now(half_done(self.group.machine, info.uid), info):
                if reason == MOVE_WAITS_STAGED:
                    self._let_transactions_end(move, infos)
                return reason
        self._feed(move, infos, MoveEvent.ASKED)
        return ""

    def _step(self, move: int, infos: list[ChannelInfo]) -> MoveStep:
        """The step of a move that the metadata have not decided."""
        moves, departing = self.group.machine.moves, self.group.dispatch.stops.departing
        if departing.issuperset(info.uid for info in infos):
            return MoveStep.DEPARTING
        return MoveStep.HELD if all(moves.at(info.uid, move, Stage.HELD) for info in infos) else MoveStep.LED

    def _feed(self, move: int, infos: list[ChannelInfo], event: MoveEvent) -> None:
        uids, stops = [info.uid for info in infos], self.group.dispatch.stops
        match next_step(self._step(move, infos), event)[1]:
            case MoveAction.CANCEL:
                end_move(self.proposals, move, done=False)
            case MoveAction.DEPART:
                done, in_doubt = partial(self._departed, move, infos), partial(self._in_doubt, move, infos)
                self.change(done, in_doubt, depart=pb.Moving(move=move, uids=uids))
                stops.departing |= frozenset(uids)
                for channel in filter(None, map(self.channels.leave, infos)):
                    self.publishing.leave(channel)
                self.placement.changed()
            case MoveAction.GO_ON:
                stops.departing -= frozenset(uids)
                self.go_on(uids, anew=False)

    def _acked_otherwise(self, infos: list[ChannelInfo]) -> str:
        """Why the channels cannot go to a group in which an ack means something else: they have messages. "": they have none, or
        acks mean the same there."""
        commit_of = self.node.meta.commit_of
        return "" if commit_of(infos[0].moving_to) == commit_of(self.number) else self._messages(infos)

    def _messages(self, infos: Iterable[ChannelInfo]) -> str:
        """The channels that have messages, in words; "" if none has any."""
        word = COMMITS[self.node.meta.commit_of(self.number)]
        found = [HAS_MESSAGES.format(go_quote(text(one.name)), word) for one in infos if self._has_messages(one.uid)]
        more = [f"{len(found) - NAMED_MAX} more channels have messages"] if len(found) > NAMED_MAX else []
        return "; ".join(found[:NAMED_MAX] + more)

    def _has_messages(self, uid: ChannelUid) -> bool:
        index = self.channels.stores.logs(
            self.number, uid
        )  # of an ephemeral channel nothing is in it, and nothing moves
        first = max(index.first_sequence, self.group.machine.channel(uid).first_sequence, 1)
        return first <= index.last_sequence

    def tell_messages(self, infos: Iterable[ChannelInfo], reply: bytes) -> None:
        """Answer what keeps channels of a group from one of another kind; asked before a move has begun."""
        self._say(reply, pb.MoveAnswer(waits_for=self._messages(infos)))

    def _let_transactions_end(self, move: int, infos: list[ChannelInfo]) -> None:
        """Begin no transaction in these channels for a while, so that those under way are the last ones; not for ever, as one
        that was left behind may stay for hours."""
        since = self._waiting_since.setdefault(move, self.node.clock.now)
        for part in self.leadership.all(LeaderPart):
            part.to_depart({info.uid for info in infos}, since + limits.MOVE_STAGING_MAX)

    def _not_now(self, half_done: str, info: ChannelInfo) -> str:
        channel = self.channels.by_uid.get(info.uid)
        if half_done or channel is None:
            return half_done or BUSY
        return CHANNEL_DELETING if channel.deleting else CHANNEL_RESTORING if channel.restoring else ""

    def _departed(self, move: int, infos: list[ChannelInfo], result: object, _error: str) -> None:
        """The entry is committed, or was refused: then the channels go on here."""
        if not isinstance(result, GroupResult) or result.error:
            self._feed(move, infos, MoveEvent.REFUSED)
        self.group.dispatch.stops.departing -= frozenset(info.uid for info in infos)

    def _in_doubt(self, move: int, infos: list[ChannelInfo]) -> None:
        """Let the channels go on here if this node still leads when it looks: another leader was sought and none took over, so
        the entry was not written."""

        def look(_now: Nanos) -> None:
            if self._step(move, infos) is MoveStep.DEPARTING:
                self._departed(move, infos, None, "")

        self.at(self.node.clock.now + limits.MOVE_LOOK, look)

    def go_on(self, uids: Iterable[int], *, anew: bool) -> list[ChannelInfo]:
        """Channels are led by this node from now on: they have come to a group that it leads, or stay in it after all. *anew*:
        the live view of their subscriptions is to be made."""
        group, known = self.group, self.node.meta.by_uid
        infos = [info for uid in uids if (info := known.get(ChannelUid(uid))) is not None and info.group == self.number]
        infos = [info for info in infos if info.uid not in self.channels.by_uid]
        self.channels.take(infos)
        for info in infos:
            if anew:
                group.dispatch.members.take(info.uid, self.node.clock.now, self.node.clock.wall)
            else:
                group.dispatch.uncovered(info.uid)
        self.placement.changed()
        if infos:
            self.outgoing.replays.append(Replay(self.number, frozenset(info.name for info in infos)))
        return infos

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, question: pb.MoveQuestion, infos: list[ChannelInfo], waits_for: str, reply: bytes) -> None:
        """Answer the question of the target's leader about one of the channels of a move."""
        uid = ChannelUid(question.uid)
        machine, index = self.group.machine, self.channels.stores.logs(self.number, uid)
        answer = pb.MoveAnswer(waits_for=waits_for, departed=machine.moves.at(uid, question.move, Stage.HELD))
        answer.known_for = self._known_for(infos)
        answer.first_sequence = max(index.first_sequence, machine.channel(uid).first_sequence, 1)
        answer.last_sequence = index.last_sequence
        begin = max(question.next, answer.first_sequence)
        if question.rows_from:
            if answer.departed and (why := self._acked_otherwise(infos)):  # they came before it was held
                self._feed(question.move, infos, MoveEvent.HOPELESS)
                answer.waits_for = why
            elif answer.departed:
                self._tell_rows(question, infos, answer)
            self._say(reply, answer)
        elif begin <= answer.last_sequence:
            found = partial(self._read, question, infos, answer, reply, begin)
            self.leadership.part(StoredReads).ask(uid, ((begin, answer.last_sequence),), found)
        else:
            self._tell_fingerprints(question, infos, answer)
            self._say(reply, answer)

    def _known_for(self, infos: Iterable[ChannelInfo]) -> int:
        """For how long (ns) this node knows the fingerprints of all publishes that were stored in channels of a group."""
        known = self.group.replay_filter
        return self.node.clock.now - known.known_since(info.name for info in infos)

    def _say(self, reply: bytes, answer: pb.MoveAnswer) -> None:
        self.outgoing.respond(reply, answer.SerializeToString(), (self.number,))

    @property
    def _room(self) -> int:
        return min(self.nats.payload_bytes_max, limits.MOVE_ANSWER_BYTES_MAX) - ROOM

    def _read(
        self,
        question: pb.MoveQuestion,
        infos: list[ChannelInfo],
        answer: pb.MoveAnswer,
        reply: bytes,
        begin: int,
        batches: list[ReadResult],
        error: str,
    ) -> None:
        """Messages were read: answer with those from *begin* on, as many as fit."""
        if error:
            return  # it asks again
        room = self._room
        for batch in batches:
            part, whole = _part_of(batch, max(begin, batch.base_sequence), room)
            if part is not None:
                room -= part.ByteSize() + ROOM // 64
                answer.batches.append(part)
            if not whole:
                break
        if batches and not answer.batches:
            answer.waits_for = TOO_LARGE.format(max(begin, batches[0].base_sequence))
        if not batches:  # the messages are lost: their sequences stay unused
            count = min(answer.last_sequence - begin + 1, limits.RESTORED_GAP_MAX)
            answer.batches.add(base_sequence=begin, count=count)
        index = self.channels.stores.logs(self.number, ChannelUid(question.uid))
        end = answer.batches[-1].base_sequence + answer.batches[-1].count - 1 if answer.batches else begin - 1
        every = answer.last_sequence - max(index.first_sequence, 1) + 1
        answer.bytes_left = index.bytes * (answer.last_sequence - end) // max(every, 1)
        self._tell_fingerprints(question, infos, answer, room)
        self._say(reply, answer)

    def _tell_fingerprints(
        self,
        question: pb.MoveQuestion,
        infos: list[ChannelInfo],
        answer: pb.MoveAnswer,
        room: int | None = None,
    ) -> None:
        group, node = self.group, self.node.name.encode()
        answer.told_by = b"%b %d" % (node, group.leadership_epoch)
        at = question.told_from if question.told_by == answer.told_by else 0
        names = [info.name for info in infos]
        size = self._room if room is None else room
        answer.fingerprints, answer.told_next, answer.told_end = group.replay_filter.told_since(names, at, size)

    def _tell_rows(self, question: pb.MoveQuestion, infos: list[ChannelInfo], answer: pb.MoveAnswer) -> None:
        machine, room = self.group.machine, self._room
        rows = moved_rows(
            machine, (info.uid for info in infos), lambda uid: self.channels.stores.logs(self.number, uid).last_sequence
        )
        recent = self.group.joined
        rows = chain(rows, (pb.MovedRow(recent=pb.RecentRequest(client_id=one[0], inbox=one[1])) for one in recent))
        answer.rows_end = True
        for at, row in enumerate(rows, 1):
            if at < question.rows_from:
                continue
            room -= row.ByteSize() + ROOM // 64
            if room < 0:
                answer.rows_end = False
                if not answer.rows:
                    answer.waits_for = ROW_TOO_LARGE
                return
            answer.rows.append(row)


def end_move(proposals: ProposedChanges, move: int, *, done: bool) -> None:
    """Tell the metadata that a move has ended, as far as it has not."""
    proposals.ask_meta(end_move=pb.EndMove(move=move, done=done))


def _part_of(batch: ReadResult, begin: int, room: int) -> tuple[pb.MovedBatch | None, bool]:
    """The messages of a batch from *begin* on that fit into *room* bytes, None if none does; and True if these are all."""
    records, at, sequence = memoryview(batch.records), 0, batch.base_sequence
    while sequence < begin and at < len(records):
        at += LENGTH_PREFIX + int.from_bytes(records[at : at + LENGTH_PREFIX], "little")
        sequence += 1
    start, first = at, sequence
    while at < len(records):
        size = LENGTH_PREFIX + int.from_bytes(records[at : at + LENGTH_PREFIX], "little")
        if at + size - start > room:
            break
        at += size
        sequence += 1
    if at == start:
        return None, at >= len(records)
    length = int.from_bytes(records[start : start + LENGTH_PREFIX], "little")
    message = wire.MsgProto.FromString(bytes(records[start + LENGTH_PREFIX : start + LENGTH_PREFIX + length]))
    part = pb.MovedBatch(
        base_sequence=first, count=sequence - first, timestamp=message.timestamp, records=bytes(records[start:at])
    )
    return part, at >= len(records)
