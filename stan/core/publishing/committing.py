"""Commits of staged rows, on the leader of the channel's group.

    request ─► decision (one entry) ─► one entry refers to the staged parts, which become batches of the channel where they lie
                                   └─► or: read them, seal them as rows of the channel (steps) ─► the last step: visible

Rows are copied where a reference would not do: below level SCALE, in a SQL store, and in channels whose policy compresses what is
stored or lets it expire.

One commit at a time in a channel; publishes and other commits wait behind it. A decided commit is carried out by whichever node
leads, as its progress is in the log. Never more than a few MiB of a commit are in memory. The CommitRequest is answered only when
the commit is complete.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from stan import errors, limits
from stan.core.base.ready import Fetch, ReadResult, Ready
from stan.core.context import BrokerContext, nobody_waits, shown
from stan.core.leader.local_group import ChannelGroup
from stan.core.publishing.channels import LiveChannel, LiveChannels, Reservation
from stan.core.publishing.publishing import Publishing, Sealed
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.publishing.staging import PASSING, is_app, writer_of
from stan.core.publishing.stored_reads import stored_messages
from stan.core.requests.request import AcceptedRequest
from stan.core.state.group import GroupResult
from stan.core.state.transactions import Ended, TransactionRefused, Transactions, writer_refusal
from stan.invariant import invariant
from stan.level import SCALE
from stan.protocol.channels import is_channel_name
from stan.protocol.entries import STAGING_UID, Reference, encode_references
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import extension_pb2 as ext
from stan.protocol.staged import rows_of, sealed_size
from stan.types import ChannelUid, GroupId, Nanos, Sequence, WallNanos


@dataclass(slots=True)
class CommitRun:
    """A commit that is being carried out. Its parts are read and stored in their order."""

    channel: LiveChannel
    commit: pb.Commit
    timestamp_before: int
    unread: deque[int]  # sequences of the hidden channel
    wanted: list[int] = field(default_factory=list)  # sequences that are being read
    fetch: int = 0  # number of the Fetch under way; 0: none
    reading: int = 0  # bytes of that Fetch
    in_flight: int = 0  # bytes of rows that wait to be stored
    failures: int = 0  # consecutive failed reads
    pause_until: int = 0  # Nanos
    broken: bool = False  # rows were refused: the run starts again once nothing is in flight


@dataclass(slots=True)
class _Commits:
    """The commits of one group, while this node leads it."""

    asked: dict[ChannelUid, list[AcceptedRequest]] = field(
        default_factory=dict
    )  # waiting requests, in order of arrival
    deciding: dict[ChannelUid, pb.Commit] = field(default_factory=dict)  # decisions on their way into the log
    carriers: dict[ChannelUid, CommitRun] = field(default_factory=dict)


class Committing:
    """Decides commits and carries them out, in the groups that this node leads."""

    def __init__(self, context: BrokerContext, channels: LiveChannels, publishing: Publishing) -> None:
        self.context = context
        self.channels = channels
        self.publishing = publishing
        self.doubtful: list[tuple[LiveChannel, pb.Commit]] = []  # decisions that are in doubt
        self.fetches = 0

    def _of(self, number: GroupId) -> _Commits:
        return self.context.kept(number, _Commits)

    def dropped(self, number: GroupId, uid: ChannelUid) -> None:
        """A channel is gone: forget its commits and refuse the requests that wait for them."""
        here = self._of(number)
        here.carriers.pop(uid, None)
        here.deciding.pop(uid, None)
        for waiting in here.asked.pop(uid, []):
            waiting.refuse(errors.CHANNEL_DELETING, retry=True)

    # --- requests -----------------------------------------------------------------------------------------------------

    def commit(self, accepted: AcceptedRequest) -> None:
        """A CommitRequest."""
        error = _complaint(accepted.request)
        if error:
            accepted.refuse(error)
        else:
            self.channels.open(accepted.request.channel, partial(self._opened, accepted))

    def _opened(self, accepted: AcceptedRequest, channel: LiveChannel | None, error: str) -> None:
        if channel is None:
            accepted.refuse(error, retry=error in PASSING)
            return
        waiting = self._of(channel.info.group).asked.setdefault(channel.info.uid, [])
        if len(waiting) >= limits.COMMITS_WAITING_MAX:
            accepted.busy()
            return
        waiting.append(accepted)
        self._next(channel)

    def _next(self, channel: LiveChannel) -> None:
        """Answer waiting requests whose version is committed already or cannot be committed, up to the first that needs a
        decision."""
        uid = channel.info.uid
        group, here = self.context.group_of(channel.info), self._of(channel.info.group)
        while here.asked.get(uid) and uid not in here.deciding and uid not in group.machine.transactions.under_way:
            self._decide(channel, group, here.asked[uid][0])
        if not here.asked.get(uid):
            here.asked.pop(uid, None)

    def _decide(self, channel: LiveChannel, group: ChannelGroup, accepted: AcceptedRequest) -> None:
        uid, request, known = channel.info.uid, accepted.request, group.machine.transactions
        last, here = known.committed.get((uid, request.app)), self._of(channel.info.group)
        if known.is_anothers(uid, request.app, accepted.user):
            here.asked[uid].remove(accepted)
            accepted.refuse(errors.APP_OF_ANOTHER)
            return
        if refused := writer_refusal(last, request.version, request.writer):
            here.asked[uid].remove(accepted)
            accepted.refuse(refused)
            return
        if last is not None and request.version <= last.version:
            here.asked[uid].remove(accepted)
            _confirm(accepted, last, already=True)
            return
        sequences = _sequences(known, uid, accepted.user, request)
        if isinstance(sequences, str):
            here.asked[uid].remove(accepted)
            accepted.refuse(sequences)
            return
        self.publishing.reserve(channel)
        commit = pb.Commit(
            uid=uid,
            app=request.app,
            version=request.version,
            sequences=sequences,
            at=self.context.clock.wall,
            user=accepted.user,
            writer=writer_of(self.context, request),
        )
        here.deciding[uid] = commit
        decided, in_doubt = partial(self._decided, channel, commit), partial(self.doubtful.append, (channel, commit))
        self.context.change_group(channel.info.group, decided, in_doubt, commit=commit)

    def _decided(self, channel: LiveChannel, commit: pb.Commit, result: object, error: str) -> None:
        uid = channel.info.uid
        if self._of(channel.info.group).deciding.pop(uid, None) is None:  # the channel is gone
            return
        outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
        if isinstance(outcome, Ended):
            self.ended(channel.info.group, outcome)
        elif isinstance(outcome, TransactionRefused):
            for waiting in self._take_asked(channel.info.group, uid, commit):
                waiting.refuse(outcome.error, retry=result is None)
            self.publishing.release(channel)
            self._next(channel)

    def _take_asked(self, number: GroupId, uid: ChannelUid, commit: pb.Commit | pb.Committed) -> list[AcceptedRequest]:
        """Take the requests that wait for one version of an app out of the waiting ones."""
        here = self._of(number)
        waiting = here.asked.pop(uid, [])
        same = [
            (one.request.app, one.request.version) == (commit.app, commit.version)
            and (one.user == commit.user or not (one.user and commit.user))
            and (one.request.writer == commit.writer or not (one.request.writer and commit.writer))
            for one in waiting
        ]
        here.asked[uid] = [one for one, is_same in zip(waiting, same, strict=True) if not is_same]
        return [one for one, is_same in zip(waiting, same, strict=True) if is_same]

    def ended(self, number: GroupId, ended: Ended) -> None:
        """A commit is complete, or given up; called on every node that holds the group."""
        group = self.context.groups[number]
        channel = self.channels.by_uid.get(ended.uid)
        group.dispatch.uncovered(ended.uid)
        if not group.leads or channel is None:
            return
        self._of(number).carriers.pop(ended.uid, None)
        if ended.uid in self.context.outgoing.watched:
            self.context.outgoing.news.add(ended.uid)
        self.publishing.release(channel)
        for waiting in self._take_asked(number, ended.uid, ended.committed):
            if ended.error:
                waiting.refuse(ended.error)
            else:
                _confirm(waiting, ended.committed, already=False)
        self._next(channel)

    # --- carrying out ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if `pump` would find something to do."""
        return any(self._can_go_on(self._carrier(channel)) for _, channel, _ in self._under_way())

    def _under_way(self) -> Iterator[tuple[ChannelGroup, LiveChannel, pb.Commit]]:
        """Commits under way in the groups that this node leads, without those whose channel is being deleted or is not known to
        this copy of the metadata yet."""
        for _, group in self.context.leading.led:
            for uid, commit in group.machine.transactions.under_way.items():
                channel = self.channels.by_uid.get(ChannelUid(uid))
                if channel is not None and not channel.deleting:
                    yield group, channel, commit

    def _carrier(self, channel: LiveChannel) -> CommitRun | None:
        return self._of(channel.info.group).carriers.get(channel.info.uid)

    def _can_go_on(self, carrier: CommitRun | None) -> bool:
        if carrier is None:
            return True
        if carrier.pause_until > self.context.clock.now:
            return False
        if carrier.broken:
            return not carrier.in_flight
        under_way = sum(
            one.in_flight + one.reading for here in self.context.all_kept(_Commits) for one in here.carriers.values()
        )
        return bool(carrier.unread and not carrier.fetch and under_way < limits.COMMIT_BYTES_IN_FLIGHT)

    def pump(self, ready: Ready) -> None:
        """Continue the commits under way in the groups that this node leads; adds Fetches to *ready*."""
        if self.doubtful:
            self._refuse_doubtful()
        for group, channel, commit in self._under_way():
            self.context.within(channel.info.group, self._go_on, group, channel, commit, ready)

    def _go_on(self, group: ChannelGroup, channel: LiveChannel, commit: pb.Commit, ready: Ready) -> None:
        carrier = self._carrier(channel)
        if not self._can_go_on(carrier):
            return
        if carrier is None or carrier.broken:
            carrier = self._begin(group, channel, commit, carrier)
            parts = [group.machine.transactions.staged[sequence] for sequence in carrier.unread]
            if self._can_go_on(carrier) and self._can_refer(channel, parts):
                self._refer(carrier, parts)
        if self._can_go_on(carrier):
            ready.fetches.append(self._read(group, carrier))

    def _refuse_doubtful(self) -> None:
        """If this node still leads, answer requests whose decision is in doubt with "ask again": another leader was sought, and
        none took over."""
        doubtful = [*self.doubtful]
        self.doubtful.clear()
        for channel, commit in doubtful:
            if self._of(channel.info.group).deciding.get(channel.info.uid) is commit:
                self.context.within(channel.info.group, self._decided, channel, commit, None, errors.BUSY)

    def _begin(
        self, group: ChannelGroup, channel: LiveChannel, commit: pb.Commit, before: CommitRun | None
    ) -> CommitRun:
        """Begin or resume a commit from its progress in the log. No rows of the channel may be on their way."""
        channel.next_sequence = self.channels.written_end(channel.info)
        first = commit.first_sequence or channel.next_sequence
        channel.reservation = Reservation(first, first + commit.count - 1)
        unread = deque(commit.sequences)
        staged, done = group.machine.transactions.staged, commit.done
        while done > 0:
            done -= staged[unread.popleft()].count
        invariant(not done, "rows are stored part by part", uid=commit.uid, done=commit.done)
        made = self._of(channel.info.group).carriers[channel.info.uid] = CommitRun(
            channel, commit, channel.last_timestamp, unread
        )
        if before is not None:
            made.pause_until, made.failures = before.pause_until, before.failures
        return made

    def _can_refer(self, channel: LiveChannel, parts: list[pb.StagedPart]) -> bool:
        """True if parts can become batches of their channel where they lie."""
        uid, context = channel.info.uid, self.context
        if uid in self.channels.compressed or uid in self.channels.ttls or context.config.store.kind == "sql":
            return False
        return context.meta.level >= SCALE and all(part.in_place for part in parts)

    def _refer(self, carrier: CommitRun, parts: list[pb.StagedPart]) -> None:
        """Propose the entry in which the parts become batches of their channel."""
        channel, info = carrier.channel, carrier.channel.info
        timestamp = max(self.context.clock.wall, channel.last_timestamp)
        count, base, sizes = sum(part.count for part in parts), channel.next_sequence, []
        for part in parts:
            sizes.append(sealed_size(info.name, part.bytes, part.count, base, timestamp))
            base += part.count
        index = self.context.written(info.group, info.uid)
        size = index.accounted(sum(sizes), count)
        first = self.channels.first_after(channel, index, count, size)
        references, base = [], channel.next_sequence
        for part, told in zip(parts, sizes, strict=True):
            place = info.uid, Sequence(base), part.count, WallNanos(timestamp), Sequence(first)
            references.append(Reference(*place, Sequence(part.sequence), told))
            base += part.count
        entry = Sealed(info.group)
        entry.parts += encode_references(references)
        carrier.unread.clear()
        carrier.in_flight += size
        step = partial(self._change, carrier, info.uid, count)
        entry.rows.append((RowBatch(b"", count, partial(self._stored, carrier, size), step), channel.next_sequence))
        self.publishing.propose(entry, channel, base, size)
        channel.last_timestamp, channel.idle_since = timestamp, self.context.clock.now

    def _read(self, group: ChannelGroup, carrier: CommitRun) -> Fetch:
        """Make a Fetch for the next parts, about as many bytes as one entry holds."""
        staged = group.machine.transactions.staged
        wanted: list[int] = []
        size = 0
        for sequence in carrier.unread:
            full = size >= limits.READ_BYTES_MAX or len(wanted) >= limits.BATCHES_PER_READ_MAX
            if wanted and (full or sequence < wanted[-1]):
                break
            wanted.append(sequence)
            size += staged[sequence].bytes
        self.fetches += 1
        carrier.fetch, carrier.wanted, carrier.reading = self.fetches, wanted, size
        runs = tuple((sequence, sequence) for sequence in wanted)
        return Fetch(carrier.channel.info.group, STAGING_UID, 0, runs, limits.READ_BYTES_MAX, self.fetches)

    def fetched(self, fetch: Fetch, batches: list[ReadResult]) -> None:
        """The answer to a Fetch: messages of the hidden channel."""
        carrier = self._reader(fetch)
        if carrier is None:
            return
        carrier.fetch = carrier.reading = 0
        if carrier.broken:  # rows before these were refused meanwhile
            return
        records = list(_records(batches, carrier.wanted))
        if not records:
            self._failed(carrier, "they are gone")
            return
        carrier.failures = 0
        staged = self.context.group_of(carrier.channel.info).machine.transactions.staged
        for record in records:
            part = staged[carrier.unread.popleft()]
            rows = rows_of(record)
            change = partial(self._change, carrier, part.uid, part.count)
            carrier.in_flight += len(rows)
            on_done = partial(self._stored, carrier, len(rows))
            self.publishing.add(carrier.channel, RowBatch(rows, part.count, on_done, change, priority=True))

    def _change(self, carrier: CommitRun, uid: int, count: int, first: int) -> bytes:
        step = pb.CommitStep(uid=uid, first_sequence=first, count=count, timestamp_before=carrier.timestamp_before)
        return pb.GroupChange(commit_step=step).SerializeToString()

    def _stored(self, carrier: CommitRun, size: int, stored: StoreResult) -> None:
        carrier.in_flight -= size
        if stored.error:
            carrier.broken = True
            self._pause(carrier, stored.error)

    def read_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer."""
        carrier = self._reader(fetch)
        if carrier is not None:
            carrier.fetch = carrier.reading = 0
            self._failed(carrier, why)

    def _reader(self, fetch: Fetch) -> CommitRun | None:
        carriers = self._of(fetch.group).carriers.values()
        return next((carrier for carrier in carriers if carrier.fetch == fetch.number), None)

    def _failed(self, carrier: CommitRun, why: str) -> None:
        channel = carrier.channel
        carrier.failures += 1
        if carrier.failures == 1:
            self.context.note("ERR", f"Error reading rows staged for {shown(channel.info.name)} ({why})")
        if carrier.failures >= limits.COMMIT_READS_MAX and not carrier.in_flight and not self.context.clustered:
            carrier.failures = 0
            step = pb.CommitStep(uid=channel.info.uid, given_up=True)
            self.context.note("ERR", f"A commit to {shown(channel.info.name)} is given up: its rows cannot be read")
            self.context.change_group(channel.info.group, nobody_waits, commit_step=step)
        self._pause(carrier, errors.UNREADABLE)

    def _pause(self, carrier: CommitRun, error: str) -> None:
        """Pause a commit that cannot continue now, and refuse the requests and publishes that wait for it."""
        at = Nanos(self.context.clock.now + limits.COMMIT_RETRY)
        if carrier.pause_until < at:
            carrier.pause_until = at
            self.context.timers.at(at, lambda _now: None)  # only so that a turn runs then
        if not self.context.clustered:  # else another leader may store what this one has refused
            self.publishing.refuse_waiting(carrier.channel, error)
        for waiting in self._of(carrier.channel.info.group).asked.pop(carrier.channel.info.uid, []):
            waiting.refuse(error, retry=True)


def _complaint(request: ext.CommitRequest) -> str:
    """Return why a request is invalid, whatever is staged; "" if it is valid."""
    if not is_channel_name(request.channel):
        return errors.INVALID_SUBJECT
    names = [txn.txn for txn in request.txns]
    if not is_app(request.app, request.writer) or request.version < 0 or len(set(names)) < len(names):
        return errors.INVALID_TRANSACTION
    return ""


def _sequences(known: Transactions, uid: ChannelUid, user: bytes, request: ext.CommitRequest) -> list[int] | str:
    """The sequences of the parts that a request names, in the order of their rows; or the error: a part is missing, or the
    transaction has a part more, whose rows would be dropped silently."""
    sequences = []
    for txn in request.txns:
        for number in range(txn.parts):
            part = known.find(uid, user, txn.txn, number)
            if part is None or (part.app, part.version) != (request.app, request.version):
                return errors.STAGED_GONE
            sequences.append(part.sequence)
        if known.find(uid, user, txn.txn, txn.parts):
            return errors.STAGED_UNNAMED
    return sequences


def _records(batches: list[ReadResult], wanted: list[int]) -> list[bytes]:
    """The *wanted* stored messages, up to the first that is missing."""
    found = dict(stored_messages(batches, [(sequence, sequence) for sequence in wanted]))
    return [found[sequence] for sequence in takewhile(found.__contains__, wanted)]


def _confirm(accepted: AcceptedRequest, committed: pb.Committed, *, already: bool) -> None:
    """Answer that a version is committed. The sequences are known only of the newest version of an app, else they are 0."""
    newest = committed.version == accepted.request.version
    accepted.answer(
        already=already,
        first_sequence=committed.first_sequence if newest else 0,
        last_sequence=committed.last_sequence if newest else 0,
    )
