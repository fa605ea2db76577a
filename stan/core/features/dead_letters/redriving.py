"""Dead letters are put back into the channel that they come from, on the leader of their group (docs/admin-api.md).

    redrive ─► messages are read ─► channel is opened, in the same group ─► one entry: rows there, and their removal here

Promises: a dead letter is in one of the two channels, never in both and never in neither, whatever crashes when. It says how
often it was put back (`stan-redriven`); one that was REDRIVES_MAX times stays. Whoever asks must be allowed to publish there.
Where a message comes from is known of those that the broker has moved; others go where the request says, or stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from stan_protocol import dead_letters as letters
from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.core.base.runs import Run, Runs, pairs
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.stored_reads import stored_messages
from stan.core.requests.request import AcceptedRequest
from stan.core.services.services import Services
from stan.core.state.cursor_override import well_formed
from stan.permissions import Right
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class _Redrive:
    """One request: what of its messages goes where, and what stays."""

    asked: AcceptedRequest
    source: LiveChannel  # the dead letter channel
    rows: list[bytes] = field(default_factory=list)
    runs: Runs = field(default_factory=Runs)
    told: admin.Redriven = field(default_factory=admin.Redriven)  # what became of the others


class Redriving(Relocating):
    """Handles the request `redrive` in one group, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.senders = services.senders

    def redrive(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """A RedriveRequest about a dead letter channel."""
        request, channel = accepted.request, self.channels.by_uid.get(info.uid)
        if not request.runs or not well_formed(request.runs) or len(request.runs) > 2 * limits.REDRIVE_MESSAGES_MAX:
            accepted.refuse(refusals.INVALID_RUNS)
        elif request.to and (not is_channel_name(request.to) or request.to == info.name):
            accepted.refuse(refusals.INVALID_SUBJECT)
        elif channel is None or info.uid in self.running:
            accepted.busy()
        elif channel.closed:
            accepted.refuse(channel.closed, retry=True)
        else:
            index = self.stored.indexes(info.group, info.uid)
            runs = _wanted(request.runs, index.first_sequence, index.last_sequence)
            if not runs.size:
                accepted.answer()
                return
            wanted = tuple((run.first, run.last) for run in runs)[: limits.BATCHES_PER_READ_MAX]
            self.begin(info.uid, self._redrive(_Redrive(accepted, channel), wanted))

    def _redrive(self, redrive: _Redrive, wanted: tuple[tuple[int, int], ...]) -> Steps[None]:
        asked, info = redrive.asked, redrive.source.info
        try:
            batches = yield from self.read(info.uid, wanted)
        except StepError:
            asked.refuse(refusals.UNREADABLE, retry=True)
            return
        into = self._pick(redrive, stored_messages(batches, wanted))
        if refusal := self._refusal(redrive, into):
            asked.refuse(refusal)
            return
        try:
            if redrive.rows:
                target = yield from self.open(into)
                if redrive.source.closed:
                    asked.refuse(refusals.BUSY, retry=True)
                    return
                yield from self.store(target, redrive.rows, partial(self._change, redrive))
        except StepError as error:
            asked.refuse(str(error), retry=error.retry)
        else:
            asked.answer(changed=len(redrive.rows), redriven=redrive.told)

    def _pick(self, redrive: _Redrive, messages: Iterable[tuple[int, bytes]]) -> bytes:
        """Take the messages that go back into one channel; returns its name, b"" if there are none."""
        info, into = redrive.source.info, b""
        deleted = self.stored.deleted(info.group, info.uid)
        for sequence, stored in messages:
            if deleted is not None and sequence in deleted:
                continue
            message = wire.MsgProto.FromString(stored)
            target = redrive.asked.request.to or letters.origin_of(message)
            if (
                letters.CHANNEL not in letters.headers_of(message)
                or target in (b"", info.name)
                or target != (into or target)
            ):
                redrive.told.foreign += 1
            else:
                into = target
                self._take(redrive, sequence, message, into)
            redrive.told.next_sequence = sequence + 1
            if len(redrive.rows) >= limits.REDRIVE_MESSAGES_MAX:
                break
        return into

    def _take(self, redrive: _Redrive, sequence: int, message: wire.MsgProto, into: bytes) -> None:
        redriven = letters.redriven(message)
        if redriven >= limits.REDRIVES_MAX:
            redrive.told.stopped += 1
            return
        row = letters.row(
            message, [(letters.REDRIVEN, b"%d" % (redriven + 1))], letters.ADDED | frozenset({letters.REDRIVEN})
        )
        if len(row) > self.nats.message_payload_max(into) - MESSAGE_ROOM - len(into):
            redrive.told.too_large += 1
            return
        redrive.rows.append(row)
        redrive.runs.add(Run(sequence, sequence))

    def _refusal(self, redrive: _Redrive, into: bytes) -> str:
        """Why nothing can be put back into that channel; "" if it can."""
        if not redrive.rows:
            return ""
        if not is_channel_name(into):
            return refusals.INVALID_SUBJECT
        authorizer = self.senders.authorizer
        if authorizer is not None and (error := authorizer.right_refusal(redrive.asked.reply, Right.PUBLISH, into)):
            return error
        info = redrive.source.info
        deleted = self.stored.deleted(info.group, info.uid)
        pieces = redrive.runs.pieces + (deleted.pieces if deleted is not None else 0)
        return refusals.TOO_MANY_DELETED if pieces > limits.DELETED_RUNS_MAX else ""

    def _change(self, redrive: _Redrive, _first: int) -> bytes:
        removal = self.channels.policies.tiers.tell(
            pb.Removal(uid=redrive.source.info.uid, deleted=redrive.runs.flat())
        )
        return pb.GroupChange(removal=removal).SerializeToString()


def _wanted(asked: Iterable[int], first: int, last: int) -> Runs:
    """Those of the runs that are asked for that lie between *first* and *last*, sorted and disjoint."""
    runs = Runs()
    for begin, end in pairs(asked):
        run = Run(max(begin, first, 1), min(end, last))
        if run.first <= run.last:
            runs.merge(run)
    return runs
