"""Parts of a transaction before it is committed (staged, dropped, expired), and which version of an app is finished; on the
leader of the group.

A part is stored as one message of the group's hidden channel, in a batch of its own, so that a commit can refer to it, with the
change that registers it in the same entry; the StageRequest is answered once both are committed. A part that is staged already is
not stored again.
"""

from collections.abc import Set
from functools import partial

from stan_protocol import refusals
from stan_protocol.scalars import ChannelUid, WallNanos

from stan import limits
from stan.config import ChannelLimits
from stan.core.base.shares import Shares
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.part_routing import rows_refusal
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, refusal
from stan.core.requests.request import AcceptedRequest
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.transactions import TransactionRefused, Transactions, is_same, writer_refusal
from stan.protocol.entries import STAGING_UID
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.staged import staged_body

STAGING_NAME = b"_STAN.staged"
"""Channel name in the messages of the hidden channels; no client can request it."""
PASSING = frozenset((refusals.NO_METADATA, refusals.CHANNEL_DELETING, refusals.CHANNEL_RESTORING))
"""Errors of opening a channel that pass."""


class Staging(StoringPart):
    """Handles the requests stage, abort, finish and last_committed in one group, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        info = ChannelInfo(STAGING_NAME, STAGING_UID, self.number)
        self._hidden = LiveChannel(
            info=info,
            limits=ChannelLimits(msgs=0, bytes=0),
            next_sequence=channels.written_end(info),
            last_timestamp=services.stored.indexes(self.number, STAGING_UID).last_timestamp,
            idle_since=services.node.clock.now,
        )
        self._opening = Shares()  # requests that wait for their channel, by user
        self._paused: dict[ChannelUid, int] = {}  # -> Nanos until which no transaction begins in a channel

    def to_depart(self, uids: Set[ChannelUid], until: int) -> None:
        """Begin no transaction in these channels until then (Nanos): a move to another group waits for those under way."""
        now = self.node.clock.now
        self._paused = {uid: end for uid, end in self._paused.items() if end > now} | dict.fromkeys(uids, until)

    # --- stage --------------------------------------------------------------------------------------------------------

    def stage(self, accepted: AcceptedRequest) -> None:
        """A StageRequest."""
        request = accepted.request
        rows: bytes = request.rows  # reading it makes a copy
        names = is_app(request.app) and 0 < len(request.txn) <= limits.TXN_BYTES_MAX and request.version >= 0
        payload_max = self.nats.message_payload_max(request.channel)
        error = refusal(request.channel, rows, request.count, payload_max)
        if error or not names:
            accepted.refuse(error if names else refusals.INVALID_TRANSACTION)
        elif self._opening.left(accepted.user, limits.STAGES_WAITING_MAX) <= 0:
            accepted.busy()
        else:
            self._opening.add(accepted.user, 1)
            self.channels.openings.open(request.channel, partial(self._found, accepted, rows))

    def _found(self, accepted: AcceptedRequest, rows: bytes, channel: LiveChannel | None, error: str) -> None:
        if channel is not None and (error := rows_refusal(self.node.meta, channel, rows)):
            self._opened(accepted, rows, None, error, error == refusals.PARTS_DOUBLING)
        elif channel is None:
            self._opened(accepted, rows, None, error, error in PASSING)
        else:
            self.publishing.schemas.rows(channel, rows, accepted.request.count, partial(self._opened, accepted, rows))

    def _opened(
        self,
        accepted: AcceptedRequest,
        rows: bytes,
        channel: LiveChannel | None,
        error: str,
        retry: bool,  # noqa: FBT001 - as the checks of schemas tell it
    ) -> None:
        self._opening.add(accepted.user, -1)
        if channel is None:
            accepted.refuse(error, retry=retry)
            return
        request, known = accepted.request, self.group.machine.transactions
        part = pb.StagedPart(
            uid=channel.info.uid,
            app=request.app,
            version=request.version,
            txn=request.txn,
            part=request.part,
            count=request.count,
            bytes=len(rows),
            user=accepted.user,
        )
        if known.is_anothers(part.uid, part.app, part.user):
            accepted.refuse(refusals.APP_OF_ANOTHER)
        elif known.find(part.uid, part.user, part.txn, part.part) or known.is_done(part.uid, part.app, part.version):
            self._answer(accepted, part, StoreResult())
        elif self._paused.get(channel.info.uid, 0) > self.node.clock.now and not known.has_begun(part):
            accepted.refuse(refusals.CHANNEL_MOVING, retry=True)
        elif refused := known.staging_refusal(part.user):
            accepted.refuse(refused, retry=not known.is_all_of(part))
        else:
            body, answer = staged_body(channel.info.name, rows), partial(self._answer, accepted, part)
            self.publishing.add(self._hidden, RowBatch(body, 1, answer, partial(self._change, part)))

    def _change(self, part: pb.StagedPart, sequence: int) -> bytes:
        part.sequence, part.at = sequence, self.node.clock.wall
        return pb.GroupChange(staged=part).SerializeToString()

    def _answer(self, accepted: AcceptedRequest, part: pb.StagedPart, stored: StoreResult) -> None:
        known = self.group.machine.transactions
        there = known.find(part.uid, part.user, part.txn, part.part)
        if stored.error:
            accepted.refuse(stored.error, retry=stored.retry)
        elif there is not None and not is_same(there, part):
            accepted.refuse(refusals.STAGED_OTHERWISE)
        else:  # staged, or dropped since: it will not be committed
            accepted.answer()

    # --- abort --------------------------------------------------------------------------------------------------------

    def abort(self, accepted: AcceptedRequest) -> None:
        """An AbortRequest."""
        channel = self.channels.by_name.get(accepted.request.channel)
        if channel is None or not accepted.request.txns:  # nothing can be staged there
            accepted.answer()
            return
        drop = pb.DropStaged(uid=channel.info.uid, txns=accepted.request.txns, user=accepted.user)
        self.change(partial(_respond, accepted), drop_staged=drop)

    def expire(self) -> None:
        """Drop staged parts that were not committed within STAGED_AGE_MAX."""
        before = WallNanos(self.node.clock.wall - limits.STAGED_AGE_MAX)
        if self.group.machine.transactions.staged_before(before):
            self.change(nobody_waits, drop_staged=pb.DropStaged(before=before))

    # --- finish -------------------------------------------------------------------------------------------------------

    def finish(self, accepted: AcceptedRequest) -> None:
        """A FinishRequest."""
        request = accepted.request
        if not is_app(request.app, request.writer) or request.version < 0:
            accepted.refuse(refusals.INVALID_TRANSACTION)
            return
        finished = pb.Finished(
            app=request.app,
            version=request.version,
            at=self.node.clock.wall,
            user=accepted.user,
            writer=request.writer,
        )
        self.change(partial(_respond, accepted), finished=finished)

    def last_committed(self, accepted: AcceptedRequest) -> None:
        """A LastCommittedRequest."""
        known: Transactions = self.group.machine.transactions
        request = accepted.request
        finished = known.finished.get(request.app)
        if known.is_finished_by_another(accepted.request.app, accepted.user):
            accepted.refuse(refusals.APP_OF_ANOTHER)
        elif refused := writer_refusal(finished, request.version, request.writer):
            accepted.refuse(refused)
        elif finished is None:
            accepted.answer(known=False)
        else:
            accepted.answer(known=True, version=finished.version)


def is_app(app: bytes, writer: bytes = b"") -> bool:
    """True if an app and its writer have names that are not too long."""
    return 0 < len(app) <= limits.APP_BYTES_MAX and len(writer) <= limits.APP_BYTES_MAX


def _respond(accepted: AcceptedRequest, result: object, error: str) -> None:
    outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
    if isinstance(outcome, TransactionRefused):
        accepted.refuse(outcome.error, retry=result is None)
    else:
        accepted.answer()
