"""Explain: the log's account of one message of a durable, a queue group or a subscription (`.admin.explain`).

    request for the leader ─► look-up of cursor and message ─► the log, off the loop, changes alone ─► account ─► answer

Promises: an answer covers a bounded number of entries and has the beginning of the next request; it ends early once the
message is settled and no operator has moved the cursor since. Gaps of the log are reported, not guessed.
"""

from collections.abc import Mapping
from functools import partial

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.refusals import INVALID_ADMIN, UNKNOWN_CHANNEL, UNREADABLE, beyond_end
from stan_protocol.scalars import GroupId, RaftIndex, Sequence

from stan import limits
from stan.core.base.names import text
from stan.core.boundary.group_view import CursorIdentity
from stan.core.broker.broker import Broker
from stan.core.features.operators.cursors import which
from stan.core.features.queries.account import Account, StagedMessage
from stan.core.metadata.meta import ChannelInfo
from stan.core.requests.request import AcceptedRequest
from stan.edge.batch_lookup import LOOKUP_ATTEMPTS
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.log.types import BatchRef, GroupLog, StaleRef
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.consensus import Consensus


class Explaining:
    """Serves the `.admin.explain` requests for the groups that this node leads."""

    def __init__(self, broker: Broker, groups: Mapping[GroupId, Consensus], gateway: Gateway, runtime: Runtime) -> None:
        self._broker = broker
        self._view = broker.view
        self._groups = groups
        self._gateway = gateway
        self._runtime = runtime
        self._under_way = 0
        gateway.serve("admin.explain", self._on_request)

    def _on_request(self, accepted: AcceptedRequest) -> None:
        if accepted.request.sequence < 1:
            accepted.refuse(INVALID_ADMIN)
        elif self._under_way >= limits.VERIFIES_UNDER_WAY_MAX:
            accepted.busy()
        elif accepted.name in self._view.meta.channels:
            self._look_up(accepted, 1)
        else:
            self._under_way += 1
            self._broker.catch_up(partial(self._caught_up, accepted), accepted.border)

    def _caught_up(self, accepted: AcceptedRequest, known: bool) -> None:  # noqa: FBT001 - an answer
        self._under_way -= 1
        if known:
            self._look_up(accepted, 1)
        else:
            accepted.busy()

    def _look_up(self, accepted: AcceptedRequest, attempt: int) -> None:
        request: admin.ExplainRequest = accepted.request
        info = self._view.meta.channels.get(accepted.name)
        if info is None:
            accepted.refuse(UNKNOWN_CHANNEL)
            return
        group, live_group = self._groups.get(info.group), self._view.group(info.group)
        if group is None or live_group is None or not live_group.leads:
            accepted.busy()
            return
        cursor = which(live_group.cursors_of(info.uid), request.which)
        if isinstance(cursor, str):
            accepted.refuse(cursor)
            return
        index = group.log.channel(info.uid)
        if request.sequence > index.last_sequence:
            accepted.refuse(beyond_end(text(info.name), request.sequence, index.last_sequence))
            return
        gone = self._is_gone(info, group.log, request.sequence)
        before = index.refs_before(Sequence(request.sequence), 1, 1)
        reading = Reading(group.log, cursor, request, before[0] if before else None, gone=gone)
        reading.response.node = self._view.node
        reading.response.state = live_group.state_of(cursor.cursor_id, request.sequence, gone=gone)
        self._under_way += 1
        self._runtime.work(reading.run, partial(self._was_read, accepted, reading, attempt))

    def _is_gone(self, info: ChannelInfo, log: GroupLog, sequence: int) -> bool:
        """True if the channel does not have the message any more."""
        index, at = log.channel(info.uid), Sequence(sequence)
        deleted = self._view.deleted(info.group, info.uid)
        if sequence < index.first_sequence or (deleted is not None and sequence in deleted):
            return True
        return not any(ref.base_sequence <= sequence for ref in index.refs(at, at, 1, 1))

    def _was_read(self, accepted: AcceptedRequest, reading: "Reading", attempt: int, problem: Exception | None) -> None:
        self._under_way -= 1
        if isinstance(problem, StaleRef) and attempt < LOOKUP_ATTEMPTS:
            self._look_up(accepted, attempt + 1)
        elif isinstance(problem, StaleRef):
            accepted.busy()
        elif problem is not None:
            self._gateway.complain("ERR", f"Error explaining a message of channel {text(accepted.name)} ({problem})")
            accepted.refuse(UNREADABLE)
        else:
            accepted.answer_with(reading.response)


class Reading:
    """The reading of one part of the log, for a worker thread; `response` is complete after `run`."""

    def __init__(
        self,
        log: GroupLog,
        cursor: CursorIdentity,
        request: admin.ExplainRequest,
        ref: BatchRef | None,
        *,
        gone: bool = False,
    ) -> None:
        """*ref*: the newest batch that begins at the message or before it; None: there is none. *gone*: it is removed."""
        self._log = log
        self._ref = ref
        self._own = ref is not None and request.sequence < ref.base_sequence + ref.count
        going_on = request.HasField("from")
        place = admin.ExplainPlace()
        if going_on:
            place.CopyFrom(getattr(request, "from"))
        self._first = not going_on
        staged = StagedMessage(ref.staged, ref.timestamp) if ref is not None and self._own and ref.staged else None
        self._account = Account(cursor, request.sequence, place, staged)
        self._moved = cursor.epoch
        timestamp = ref.timestamp if ref is not None and not gone else 0
        self.response = admin.ExplainResponse(cursor_id=cursor.cursor_id, timestamp=timestamp)

    def run(self) -> None:
        """Read entries, and account for them. Raises StaleRef if the message has moved: look it up again; Damage."""
        account, response, place = self._account, self.response, self._account.place
        if self._first:
            # Of a message that a commit refers to, this is the entry that staged it.
            place.index = self._log.index_of(self._ref) if self._ref is not None else 1
            response.begins_late = place.index < self._log.first_index
            place.unstored = not self._own and not response.begins_late
        for _ in range(0, limits.EXPLAIN_ENTRIES_MAX, limits.EXPLAIN_ENTRIES_AT_ONCE):
            response.more = self._account_for_next()
            if not response.more or len(account.steps) >= limits.EXPLAIN_STEPS_MAX:
                break
        response.steps.extend(account.steps)
        response.next.CopyFrom(place)

    def _account_for_next(self) -> bool:
        """Account for the next entries; False if no more matter."""
        account, place = self._account, self._account.place
        changes = self._log.changes(RaftIndex(place.index), limits.EXPLAIN_ENTRIES_AT_ONCE)
        goes_on = changes.next_index > place.index
        place.index = changes.next_index
        for entry in changes.entries:
            account.take(entry.index, entry.term, pb.GroupChange.FromString(entry.body))
            if place.settled and entry.index >= self._moved:
                return False
        return goes_on
