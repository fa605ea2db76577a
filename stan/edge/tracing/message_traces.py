"""The traces of messages, from their group's log: stored, delivered, acked.

    a RECORDS entry is written ─► synced ─► committed            store, and inside of it append, sync, replicate
    a progress entry is committed, with deliveries               deliver, one for each delivery; ack, since the last one

Every node follows committed entries, so that the next leader knows the traces; the leader alone makes spans. The span `store` is
the root, or the child of the span that published if the message brings a `traceparent`.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex, WallNanos

from stan import limits
from stan.core.base.names import shown
from stan.core.base.ready import Proposal
from stan.core.base.runs import pairs
from stan.core.boundary.view import BrokerView
from stan.edge.tracing.export import Span
from stan.edge.tracing.sampling import Sampler, SpanIds, carried, ids_of
from stan.log.types import Entry
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import DEFERRED_UID, STAGING_UID, Kind, RecordBatch, decode_records
from stan.protocol.proto import entries_pb2 as pb

MICROSECOND = 1000


@dataclass(slots=True)
class Contexts:
    """The traces that messages of one channel have brought along."""

    sequences: list[int] = field(default_factory=list)  # in increasing order
    store: list[SpanIds | None] = field(default_factory=list)  # of each the store span; None: not to be traced


@dataclass(slots=True)
class Writing:
    """An entry on its way into the log, when each step was done (Unix ns)."""

    written: int
    synced: int = 0


class MessageTraces:
    """The traced messages of one node."""

    def __init__(self, view: BrokerView, period: int, add: Callable[[Span], None]) -> None:
        """*period*: one in so many messages is traced, of all publishers; *add* receives the spans."""
        self._view = view
        self._sampler = Sampler(period)
        self._add = add
        self._contexts: OrderedDict[ChannelUid, Contexts] = OrderedDict()
        self._carried = 0  # messages in there
        # First and last of the newest entries that this leader has written, if nothing has to be done when they are committed.
        self.looked_at: dict[GroupId, tuple[int, int]] = {}
        # Those of them with messages to trace.
        self.writing: OrderedDict[tuple[GroupId, RaftIndex], Writing] = OrderedDict()
        self._delivered: OrderedDict[tuple[GroupId, int, int], tuple[SpanIds, int]] = OrderedDict()

    # --- stored ---------------------------------------------------------------------------------------------------------

    def written(
        self, number: GroupId, last: RaftIndex, proposals: list[Proposal], now: Callable[[], WallNanos]
    ) -> None:
        """Note that *proposals* are in this leader's log, the newest as entry *last*. Entries whose way has to be watched
        are `writing` then, the others `looked_at`."""
        first = RaftIndex(last - len(proposals) + 1)
        looked_at, index, watch = self.looked_at.get(number), first, False
        for proposal in proposals:
            if proposal.kind != Kind.RECORDS:
                watch = True
            elif self._sampler.concerns(proposal.body):
                watch = True
                self.writing[number, index] = Writing(now())
                if len(self.writing) > limits.TRACED_MESSAGES_MAX:
                    self.writing.popitem(last=False)
            index = RaftIndex(index + 1)
        if watch:
            self.looked_at.pop(number, None)
        elif looked_at is not None and looked_at[1] == first - 1:
            self.looked_at[number] = looked_at[0], last
        else:
            self.looked_at[number] = first, last

    def synced(self, number: GroupId, durable: RaftIndex, now: int) -> None:
        """Note that this node's log of a group is durable up to *durable*."""
        for (group, index), step in self.writing.items():
            if group == number and index <= durable and not step.synced:
                step.synced = now

    def committed(self, number: GroupId, entries: Iterable[Entry], now: int) -> None:
        """Note committed entries of a channel group, which are about to be applied."""
        group = self._view.group(number)
        if group is None:
            return
        leads = group.leads
        for entry in entries:
            if entry.kind == Kind.RECORDS:
                if not self._sampler.concerns(entry.body):
                    continue
                step = self.writing.pop((number, entry.index), None)
                batches, _, changes = decode_records(entry.body)
                for batch in batches:
                    if batch.uid not in {STAGING_UID, DEFERRED_UID} and not batch.staged:
                        self._stored(batch, step, now, leads=leads)
            else:
                changes = [entry.body] if entry.kind == Kind.CHANGE else []
            for body in changes:
                self._changed(number, body, leads=leads)

    def _stored(self, batch: RecordBatch, step: Writing | None, now: int, *, leads: bool) -> None:
        uid = ChannelUid(batch.uid)
        chosen = list(self._sampler.within(uid, batch.base_sequence, batch.base_sequence + batch.count - 1))
        for message in carried(in_clear(batch), batch.base_sequence, chosen):
            own = self._own(uid, message.sequence)
            ids = own if message.parent is None else SpanIds(message.parent.trace, own.span)
            if message.parent is not None:
                self._remember(uid, message.sequence, ids if message.sampled else None)
            if not leads or not message.sampled:
                continue
            about = self._about(uid, message.sequence, "store") | {"messaging.message.body.size": message.size}
            self._add(Span(f"store {self._name(uid)}", ids, message.parent, batch.timestamp, now, about))
            if step is not None:
                self._steps(uid, message.sequence, ids, batch.timestamp, step, now)

    def _remember(self, uid: ChannelUid, sequence: int, ids: SpanIds | None) -> None:
        known = self._contexts.setdefault(uid, Contexts())
        if known.sequences and sequence <= known.sequences[-1]:  # a new log under an old uid
            self._carried -= len(known.sequences)
            known.sequences, known.store = [], []
        known.sequences.append(sequence)
        known.store.append(ids)
        self._carried += 1
        if self._carried > limits.TRACED_MESSAGES_MAX:  # the older half of one channel after the other
            uid, known = self._contexts.popitem(last=False)
            half = (len(known.sequences) + 1) // 2
            self._carried -= half
            if half < len(known.sequences):
                self._contexts[uid] = Contexts(known.sequences[half:], known.store[half:])

    def _steps(self, uid: ChannelUid, sequence: int, store: SpanIds, began: int, step: Writing, now: int) -> None:
        synced = step.synced or now
        steps = [("append", began, step.written), ("sync", step.written, synced)]
        if self._view.clustered:
            steps.append(("replicate", step.written, now))
        for name, start, end in steps:
            self._child(name, uid, sequence, store, (start, end), {})

    # --- delivered and acked -----------------------------------------------------------------------------------------------

    def _changed(self, number: GroupId, body: bytes, *, leads: bool) -> None:
        try:
            change = pb.GroupChange.FromString(body)
        except DecodeError:
            return
        group = self._view.group(number)
        for progress in change.progress:
            cursor = group.cursor(progress.cursor_id) if group is not None else None
            if cursor is None:
                continue
            about = {"stan.cursor": progress.cursor_id, "messaging.consumer.group.name": shown(cursor.name)}
            for sent in progress.sent:
                for sequence, store in self._traced(cursor.uid, sent.runs):
                    self._sent(number, progress.cursor_id, cursor.uid, sequence, store, sent, change.at, about, leads)
            removed = {sequence for sequence, _ in self._traced(cursor.uid, progress.removed)}
            for sequence, store in self._traced(cursor.uid, progress.acked):
                parent, since = self._delivered.pop((number, progress.cursor_id, sequence), (store, change.at))
                if leads and sequence not in removed:
                    self._child("ack", cursor.uid, sequence, parent, (since, change.at), about)

    def _sent(
        self,
        number: GroupId,
        cursor_id: int,
        uid: ChannelUid,
        sequence: int,
        store: SpanIds,
        sent: pb.Sent,
        at: int,
        about: dict[str, Any],
        leads: bool,  # noqa: FBT001 - of this node
    ) -> None:
        start, end = at - sent.first_ago * MICROSECOND, at - sent.last_ago * MICROSECOND
        details = {
            "messaging.client.id": shown(sent.client_id),
            "stan.redelivery_count": sent.count,
            "stan.node": self._view.node,
        }
        ids = SpanIds(store.trace, ids_of(self._view.nuid, "deliver", uid, sequence, cursor_id, start, sent.count).span)
        self._delivered[number, cursor_id, sequence] = (ids, start)
        if len(self._delivered) > limits.TRACED_MESSAGES_MAX:
            self._delivered.popitem(last=False)
        if leads:
            about = self._about(uid, sequence, "deliver") | about | details
            self._add(Span(f"deliver {self._name(uid)}", ids, store, start, end, about))

    def _traced(self, uid: ChannelUid, runs: Iterable[int]) -> list[tuple[int, SpanIds]]:
        """The traced messages in *runs* of a channel, and their store spans."""
        contexts = self._contexts.get(uid)
        spans: dict[int, SpanIds | None] = {}
        for first, last in pairs(runs):
            for sequence in self._sampler.within(uid, first, last):
                spans[sequence] = self._own(uid, sequence)
            if contexts is not None:
                at = bisect_left(contexts.sequences, first)
                while at < len(contexts.sequences) and contexts.sequences[at] <= last:
                    spans[contexts.sequences[at]] = contexts.store[at]
                    at += 1
        return [(sequence, ids) for sequence, ids in sorted(spans.items()) if ids is not None]

    # --- spans ------------------------------------------------------------------------------------------------------------

    def _own(self, uid: ChannelUid, sequence: int) -> SpanIds:
        return ids_of(self._view.nuid, "store", uid, sequence)

    def _child(
        self, name: str, uid: ChannelUid, sequence: int, parent: SpanIds, when: tuple[int, int], about: dict[str, Any]
    ) -> None:
        ids = SpanIds(parent.trace, ids_of(self._view.nuid, name, uid, sequence, parent.span, when[0]).span)
        about = self._about(uid, sequence, name) | {"stan.node": self._view.node} | about
        self._add(Span(f"{name} {self._name(uid)}", ids, parent, *when, about))

    def _about(self, uid: ChannelUid, sequence: int, operation: str) -> dict[str, Any]:
        return {
            "messaging.system": "stan",
            "messaging.operation.name": operation,
            "messaging.destination.name": self._name(uid),
            "stan.sequence": sequence,
            "stan.node": self._view.node,
        }

    def _name(self, uid: ChannelUid) -> str:
        info = self._view.meta.by_uid.get(uid)
        return shown(info.name) if info is not None else f"#{uid}"
