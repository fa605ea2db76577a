"""Parts of a transaction before it is committed (staged, dropped, expired), and which version of an app is finished; on the
leader of the group.

A part is stored as one message of the group's hidden channel, with the change that registers it in the same entry; the
StageRequest is answered once both are committed. A part that is staged already is not stored again.
"""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from stan import errors, limits
from stan.config import ChannelLimits
from stan.core.context import BrokerContext, nobody_waits
from stan.core.leader.leadership import Leadership
from stan.core.publishing.channels import NO_METADATA, LiveChannel, LiveChannels
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.row_batch import RowBatch, StoreResult, refusal
from stan.core.requests.request import LeaderRequest, leader_request
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo
from stan.core.state.transactions import TransactionRefused, Transactions, is_same
from stan.protocol.entries import STAGING_UID
from stan.protocol.frames import Frame
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import extension_pb2 as ext
from stan.protocol.proto import wire_pb2 as wire
from stan.types import GroupId

STAGING_NAME = b"_STAN.staged"
"""Channel name in the messages of the hidden channels; no client can request it."""
PASSING = frozenset((NO_METADATA, errors.CHANNEL_DELETING, errors.CHANNEL_RESTORING))
"""Errors of opening a channel that pass."""


@dataclass(slots=True)
class _Staged:
    """The hidden channel of one group, while this node leads it."""

    hidden: LiveChannel
    opening: int = 0  # requests that wait for their channel


class Staging:
    """Handles the requests stage, abort, finish and last_committed."""

    def __init__(self, context: BrokerContext, channels: LiveChannels, publishing: Publishing) -> None:
        self.context = context
        self.channels = channels
        self.publishing = publishing

    def lead(self, number: GroupId, leadership: Leadership) -> None:
        """This node leads a group from now on: make the live view of its hidden channel."""
        info = ChannelInfo(STAGING_NAME, STAGING_UID, number)
        index = self.context.written(number, STAGING_UID)
        hidden = LiveChannel(
            info=info,
            limits=ChannelLimits(msgs=0, bytes=0),
            next_sequence=self.channels.written_end(info),
            last_timestamp=index.last_timestamp,
            idle_since=self.context.clock.now,
        )
        leadership.keep(_Staged(hidden))

    def _here(self, number: GroupId) -> _Staged:
        return self.context.kept(number, _Staged)

    # --- stage --------------------------------------------------------------------------------------------------------

    def stage(self, frame: Frame) -> None:
        """A StageRequest."""
        context = self.context
        kinds = (ext.StageRequest, ext.StageResponse)
        found = leader_request(context, frame, kinds, attrgetter("channel"), errors.INVALID_TRANSACTION)
        if found is None:
            return
        request = found.request
        names = _is_app(request.app) and 0 < len(request.txn) <= limits.TXN_BYTES_MAX and request.version >= 0
        error = refusal(request.channel, request.rows, request.count, context.message_payload_max(request.channel))
        if error or not names:
            found.refuse(error if names else errors.INVALID_TRANSACTION)
        elif (here := self._here(found.number)).opening >= limits.COMMITS_WAITING_MAX:
            found.busy()
        else:
            here.opening += 1
            self.channels.open(request.channel, partial(self._opened, found))

    def _opened(self, found: LeaderRequest, channel: LiveChannel | None, error: str) -> None:
        here = self._here(found.number)
        here.opening -= 1
        if channel is None:
            found.refuse(error, retry=error in PASSING)
            return
        request, known = found.request, found.group.machine.transactions
        part = pb.StagedPart(
            uid=channel.info.uid,
            app=request.app,
            version=request.version,
            txn=request.txn,
            part=request.part,
            count=request.count,
            bytes=len(request.rows),
            user=found.user,
        )
        if known.is_anothers(part.uid, part.app, part.user):
            found.refuse(errors.APP_OF_ANOTHER)
        elif known.find(part.uid, part.user, part.txn, part.part) or known.is_done(part.uid, part.app, part.version):
            self._answer(found, part, StoreResult())
        elif len(known.staged) >= limits.STAGED_PARTS_MAX or known.staged_bytes >= limits.STAGED_BYTES_MAX:
            found.refuse(errors.STAGED_TOO_MUCH, retry=True)
        else:
            record = wire.MsgProto(data=request.rows).SerializeToString()
            body = b"".join((len(record).to_bytes(4, "little"), record))
            rows = RowBatch(body, 1, partial(self._answer, found, part), partial(self._change, part))
            self.publishing.add(here.hidden, rows)

    def _change(self, part: pb.StagedPart, sequence: int) -> bytes:
        part.sequence, part.at = sequence, self.context.clock.wall
        return pb.GroupChange(staged=part).SerializeToString()

    def _answer(self, found: LeaderRequest, part: pb.StagedPart, stored: StoreResult) -> None:
        known = found.group.machine.transactions
        there = known.find(part.uid, part.user, part.txn, part.part)
        if stored.error:
            found.refuse(stored.error, retry=stored.retry)
        elif there is not None and not is_same(there, part):
            found.refuse(errors.STAGED_OTHERWISE)
        else:  # staged, or dropped since: it will not be committed
            found.answer()

    # --- abort --------------------------------------------------------------------------------------------------------

    def abort(self, frame: Frame) -> None:
        """An AbortRequest."""
        kinds = (ext.AbortRequest, ext.AbortResponse)
        found = leader_request(self.context, frame, kinds, attrgetter("channel"), errors.INVALID_TRANSACTION)
        if found is None:
            return
        channel = self.channels.by_name.get(found.request.channel)
        if channel is None or not found.request.txns:  # nothing can be staged there
            found.answer()
            return
        drop = pb.DropStaged(uid=channel.info.uid, txns=found.request.txns, user=found.user)
        self.context.change_group(found.number, partial(_respond, found), drop_staged=drop)

    def expire(self) -> None:
        """Drop staged parts that were not committed within STAGED_AGE_MAX."""
        before = self.context.clock.wall - limits.STAGED_AGE_MAX
        for number, group in self.context.led():
            if group.machine.transactions.staged_before(before):
                self.context.change_group(number, nobody_waits, drop_staged=pb.DropStaged(before=before))

    # --- finish -------------------------------------------------------------------------------------------------------

    def finish(self, frame: Frame) -> None:
        """A FinishRequest."""
        kinds = (ext.FinishRequest, ext.FinishResponse)
        found = leader_request(self.context, frame, kinds, attrgetter("app"), errors.INVALID_TRANSACTION)
        if found is None:
            return
        request = found.request
        if not _is_app(request.app) or request.version < 0:
            found.refuse(errors.INVALID_TRANSACTION)
            return
        finished = pb.Finished(app=request.app, version=request.version, at=self.context.clock.wall, user=found.user)
        self.context.change_group(found.number, partial(_respond, found), finished=finished)

    def last_committed(self, frame: Frame) -> None:
        """A LastCommittedRequest."""
        kinds = (ext.LastCommittedRequest, ext.LastCommittedResponse)
        found = leader_request(self.context, frame, kinds, attrgetter("app"), errors.INVALID_TRANSACTION)
        if found is None:
            return
        known: Transactions = found.group.machine.transactions
        finished = known.finished.get(found.request.app)
        if known.is_finished_by_another(found.request.app, found.user):
            found.refuse(errors.APP_OF_ANOTHER)
        elif finished is None:
            found.answer(known=False)
        else:
            found.answer(known=True, version=finished.version)


def _is_app(app: bytes) -> bool:
    return 0 < len(app) <= limits.APP_BYTES_MAX


def _respond(found: LeaderRequest, result: object, error: str) -> None:
    outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
    if isinstance(outcome, TransactionRefused):
        found.refuse(outcome.error, retry=result is None)
    else:
        found.answer()
