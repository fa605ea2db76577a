"""Parts of a transaction before it is committed (staged, dropped, expired), and which version of an app is finished; on the
leader of the group.

A request stages parts of many channels of the group, all or none. A part is stored as one message of the group's hidden
channel, in a batch of its own, so that a commit can refer to it, with the change that registers all parts of the request in the
same entry; the StageRequest is answered once both are committed. A part that is staged already is not stored again.
"""

from collections.abc import Set
from functools import partial

from stan_protocol import refusals
from stan_protocol.scalars import ChannelUid, WallNanos

from stan import limits
from stan.config import ChannelLimits
from stan.core.base.shares import Shares
from stan.core.features.transactions.waiting_commit import is_app
from stan.core.features.transactions.waiting_stage import WaitingStage, waiting_stage
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.part_routing import rows_refusal
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult
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
        waiting = waiting_stage(accepted)
        if isinstance(waiting, str):
            accepted.refuse(waiting)
        elif self._opening.left(accepted.user, limits.STAGES_WAITING_MAX) <= 0:
            accepted.busy()
        else:
            self._opening.add(accepted.user, 1)
            for name in waiting.rows:
                if not waiting.over:
                    self.channels.openings.open(name, partial(self._reached, waiting, name))

    def _reached(self, waiting: WaitingStage, name: bytes, channel: LiveChannel | None, error: str) -> None:
        if waiting.over:
            return
        rows = waiting.rows[name]
        if channel is None:
            self._opened(waiting, name, None, error, error in PASSING)
        elif error := rows_refusal(self.node.meta, channel, rows.rows):
            self._opened(waiting, name, None, error, error == refusals.PARTS_DOUBLING)
        else:
            self.publishing.schemas.rows(channel, rows.rows, rows.count, partial(self._opened, waiting, name))

    def _opened(
        self,
        waiting: WaitingStage,
        name: bytes,
        channel: LiveChannel | None,
        error: str,
        retry: bool,  # noqa: FBT001 - as the checks of schemas tell it
    ) -> None:
        if waiting.over:
            return
        if channel is not None:
            waiting.channels[name] = channel
            if len(waiting.channels) < len(waiting.rows):
                return
        self._opening.add(waiting.accepted.user, -1)
        if channel is None:
            waiting.refuse(name, error, retry=retry)
        elif not all(map(self._is_here, waiting.channels.values())):  # not any more, while others were made
            waiting.refuse(name, refusals.BUSY, retry=True)
        else:
            self._store(waiting)

    def _is_here(self, channel: LiveChannel) -> bool:
        info = channel.info
        return self.channels.by_uid.get(info.uid) is channel and not channel.closed and info.group == self.number

    def _store(self, waiting: WaitingStage) -> None:
        """Store the parts of a request that are not staged yet, or refuse all of it."""
        known, request, user = self.group.machine.transactions, waiting.accepted.request, waiting.accepted.user
        change = pb.Staged(app=request.app, version=request.version, txn=request.txn, user=user)
        bodies = []
        for name, rows in waiting.rows.items():
            uid, packed = waiting.channels[name].info.uid, rows.rows
            if known.is_anothers(uid, request.app, user):
                waiting.refuse(name, refusals.APP_OF_ANOTHER)
                return
            part = pb.StagedPart(uid=uid, part=rows.part, count=rows.count, bytes=len(packed))
            there = known.find(uid, user, request.txn, rows.part)
            if there is not None and not is_same(there, change, part):
                waiting.refuse(name, refusals.STAGED_OTHERWISE)
                return
            if there is not None or known.is_done(uid, request.app, request.version):
                continue
            if self._paused.get(uid, 0) > self.node.clock.now and not known.has_begun(uid, change):
                waiting.refuse(name, refusals.CHANNEL_MOVING, retry=True)
                return
            change.parts.append(part)
            bodies.append(staged_body(name, packed))
        if not bodies:
            waiting.confirm()
        elif refused := known.staging_refusal(user, len(bodies)):
            waiting.refuse(request.channel, refused, retry=not known.is_all_of(change))
        else:
            done, of_entry = partial(self._stored, waiting, change), partial(self._change, change)
            self.publishing.add(self._hidden, RowBatch(b"".join(bodies), len(bodies), done, of_entry))

    def _change(self, change: pb.Staged, first: int) -> bytes:
        change.at = self.node.clock.wall
        for sequence, part in enumerate(change.parts, first):
            part.sequence = sequence
        return pb.GroupChange(staged=change).SerializeToString()

    def _stored(self, waiting: WaitingStage, change: pb.Staged, stored: StoreResult) -> None:
        """Answer a request whose parts are staged, or were dropped since: those will not be committed."""
        known = self.group.machine.transactions
        found = [(known.find(part.uid, change.user, change.txn, part.part), part) for part in change.parts]
        if stored.error:
            waiting.refuse(waiting.accepted.name, stored.error, retry=stored.retry)
        elif any(there is not None and not is_same(there, change, part) for there, part in found):
            waiting.refuse(waiting.accepted.name, refusals.STAGED_OTHERWISE)
        else:
            waiting.confirm()

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


def _respond(accepted: AcceptedRequest, result: object, error: str) -> None:
    outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
    if isinstance(outcome, TransactionRefused):
        accepted.refuse(outcome.error, retry=result is None)
    else:
        accepted.answer()
