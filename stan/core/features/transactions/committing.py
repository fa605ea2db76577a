"""Commits of staged rows, on the leader of the channel's group.

    request ─► decision (one entry) ─► one entry refers to the staged parts, which become batches of the channel where they lie
                                   └─► or: read them, seal them as rows of the channel (steps) ─► the last step: visible

Rows are copied where a reference would not do: in a SQL store, and in channels whose policy compresses what is stored or lets it
expire.

One commit at a time in a channel; publishes and other commits wait behind it. The channels of a request that belong to one group
are decided by one entry, and become visible together. A decided commit is carried out by whichever node leads, as its progress is
in the log. Never more than a few MiB of a commit are in memory. The CommitRequest is answered only when
the commit is complete.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from stan_protocol import refusals
from stan_protocol.scalars import ChannelUid, Nanos, Sequence, WallNanos

from stan import limits
from stan.core.base.names import shown
from stan.core.base.ready import Fetch, ReadResult, Ready
from stan.core.features.transactions.staging import PASSING
from stan.core.features.transactions.waiting_commit import CommitQueues, WaitingCommit, sequences_of, waiting_commit
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel, Reservation
from stan.core.publishing.publishing import Publishing, Sealed, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.publishing.stored_reads import stored_messages
from stan.core.requests.request import AcceptedRequest
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.group import GroupResult
from stan.core.state.transactions import Ended, TransactionRefused, Transactions
from stan.invariant import invariant
from stan.protocol.entries import REFERENCE, STAGING_UID, Reference, encode_references
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.staged import rows_of, sealed_size


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


class Committing(StoringPart):
    """Decides the commits of one group and carries them out, while this node leads it."""

    follows = frozenset({"drop_channel", "commit", "joint_commit", "commit_step"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.leading = services.leading
        self._asked = CommitQueues()
        self._deciding: dict[ChannelUid, list[pb.Commit]] = {}  # decisions on their way into the log
        self._carriers: dict[ChannelUid, CommitRun] = {}

    @property
    def _known(self) -> Transactions:
        return self.group.machine.transactions

    def followed(self, change: pb.GroupChange, result: GroupResult) -> None:
        """A channel is gone, or commits may be complete."""
        if change.HasField("drop_channel"):
            self._dropped(ChannelUid(change.drop_channel.uid))
        if isinstance(result.of_part, Ended):
            self._ended(result.of_part)

    def _dropped(self, uid: ChannelUid) -> None:
        """A channel is gone: forget its commits and refuse the requests that wait for them."""
        self._carriers.pop(uid, None)
        self._deciding.pop(uid, None)
        self._next(self._refuse(self._asked.of(uid), refusals.CHANNEL_DELETING, retry=True))

    # --- requests -----------------------------------------------------------------------------------------------------

    def commit(self, accepted: AcceptedRequest) -> None:
        """A CommitRequest."""
        waiting = waiting_commit(accepted)
        if isinstance(waiting, str):
            accepted.refuse(waiting)
            return
        for name in waiting.txns:
            if not waiting.over:
                self.channels.open(name, partial(self._opened, waiting))

    def _opened(self, waiting: WaitingCommit, channel: LiveChannel | None, error: str) -> None:
        if waiting.over:
            return
        if channel is None:
            waiting.refuse(error, retry=error in PASSING)
            return
        waiting.channels[channel.info.uid] = channel
        if len(waiting.channels) < len(waiting.txns):
            return
        by_uid = self.channels.by_uid
        for uid, one in waiting.channels.items():  # those that were opened first may be gone, or in another group
            if by_uid.get(uid) is not one or one.closed or one.info.group != self.number:
                waiting.refuse(refusals.BUSY, retry=True)
                return
        if not self._asked.add(waiting):
            waiting.refuse(refusals.BUSY, retry=True)
            return
        waiting.left.update(waiting.channels)
        self._next(waiting.channels)

    def _next(self, uids: Iterable[ChannelUid]) -> None:
        """Decide the requests that are the first ones in all of their channels, and answer those that need no decision."""
        under_way, open_channels = self._known.under_way, [*uids]
        while open_channels:
            first = self._asked.first(open_channels.pop())
            if first is None or any(uid in self._deciding or uid in under_way for uid in first.left):
                continue
            if self._decide(first):
                open_channels += first.channels

    def _decide(self, waiting: WaitingCommit) -> bool:
        """Decide a request; True if it needs no decision, and was answered."""
        accepted, known = waiting.accepted, self._known
        request, user, commits = accepted.request, accepted.user, []
        for uid, channel in waiting.channels.items():
            if refused := known.claim_refusal(uid, request.app, request.version, user, request.writer):
                return self._answer(waiting, refused)
            if known.is_done(uid, request.app, request.version):
                waiting.already |= waiting.left & {uid}
                continue
            sequences = sequences_of(known, uid, accepted, waiting.txns[channel.info.name])
            if isinstance(sequences, str):
                return self._answer(waiting, sequences)
            at, writer = self.node.clock.wall, request.writer
            told = pb.Commit(uid=uid, app=request.app, version=request.version, at=at, user=user, writer=writer)
            told.sequences.extend(sequences)
            commits.append(told)
        if not commits:
            return self._answer(waiting)
        if refused := known.commits_refusal([(one.uid, one.app) for one in commits], user, commits[0].at):
            return self._answer(waiting, refused)
        waiting.left = {ChannelUid(commit.uid) for commit in commits}
        for uid in waiting.left:
            self.publishing.reserve(waiting.channels[uid])
        self._deciding.update(dict.fromkeys(waiting.left, commits))
        change = {"commit": commits[0]} if len(commits) == 1 else {"joint_commit": pb.JointCommit(commits=commits)}
        self.change(partial(self._decided, commits), partial(self._in_doubt, commits), **change)
        return False

    def _answer(self, waiting: WaitingCommit, error: str = "") -> bool:
        self._asked.remove(waiting)
        if error:
            waiting.refuse(error)
        else:
            waiting.confirm(self._known)
        return True

    def _refuse(self, requests: list[WaitingCommit], error: str, *, retry: bool) -> list[ChannelUid]:
        """Refuse requests; returns the channels in which others may be the first ones now."""
        for waiting in requests:
            self._asked.remove(waiting)
            waiting.refuse(error, retry=retry)
        return [uid for waiting in requests for uid in waiting.channels]

    def _in_doubt(self, commits: list[pb.Commit]) -> None:
        """Nobody knows if a decision is in the log. If this node still leads when it looks next, another leader was sought and
        none took over: the requests are answered with "ask again"."""

        def look(_now: Nanos) -> None:
            if any(self._deciding.get(ChannelUid(one.uid)) is commits for one in commits):
                self._decided(commits, None, refusals.BUSY)

        self.at(self.node.clock.now, look)

    def _decided(self, commits: list[pb.Commit], result: object, error: str) -> None:
        uids = [ChannelUid(one.uid) for one in commits if self._deciding.get(ChannelUid(one.uid)) is commits]
        for uid in uids:  # the other channels are gone, or the decision has ended their commits
            del self._deciding[uid]
        outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
        if isinstance(outcome, TransactionRefused):
            self._release(uids)
            for commit in commits:
                same = self._asked.of_version(commit)
                uids += self._refuse(same, outcome.error, retry=result is None)
            self._next(uids)

    def _release(self, uids: Iterable[ChannelUid]) -> None:
        for uid in uids:
            channel = self.channels.by_uid.get(uid)
            if channel is not None:
                self.publishing.release(channel)

    def _ended(self, ended: Ended) -> None:
        """Commits are complete, or given up."""
        uids = [ChannelUid(one.uid) for one in (*ended.committed, *ended.given_up)]
        for uid in uids:
            self._carriers.pop(uid, None)
            self._deciding.pop(uid, None)
            if uid in self.outgoing.watched:
                self.outgoing.news.add(uid)
        self._release(uids)
        for given_up in ended.given_up:
            uids += self._refuse(self._asked.of_version(given_up), refusals.STAGED_GONE, retry=False)
        for committed in ended.committed:
            for waiting in self._asked.of_version(committed):
                waiting.left.discard(ChannelUid(committed.uid))
                if not waiting.left:
                    self._answer(waiting)
                    uids += waiting.channels
        self._next(uids)

    # --- carrying out ---------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """True if `pump` would find something to do."""
        return any(self._can_go_on(self._carriers.get(channel.info.uid)) for channel, _ in self._under_way())

    def _under_way(self) -> Iterator[tuple[LiveChannel, pb.Commit]]:
        """Commits under way, without those whose channel is being deleted or is not known to this copy of the metadata yet."""
        for uid, commit in self._known.under_way.items():
            channel = self.channels.by_uid.get(ChannelUid(uid))
            if channel is not None and not channel.deleting:
                yield channel, commit

    def _can_go_on(self, carrier: CommitRun | None) -> bool:
        if carrier is None:
            return True
        if carrier.pause_until > self.node.clock.now:
            return False
        if carrier.broken:
            return not carrier.in_flight
        under_way = sum(here.bytes_under_way for here in self.leading.all_parts(Committing))
        return bool(carrier.unread and not carrier.fetch and under_way < limits.COMMIT_BYTES_IN_FLIGHT)

    @property
    def bytes_under_way(self) -> int:
        """Bytes of rows that are read, or wait to be stored."""
        return sum(one.in_flight + one.reading for one in self._carriers.values())

    def pump(self, ready: Ready) -> None:
        """Continue the commits under way; adds Fetches to *ready*."""
        referring = Sealed(self.number)
        for channel, commit in self._under_way():
            self._go_on(channel, commit, ready, referring)
        if referring.rows:
            self.publishing.propose(referring)

    def _go_on(self, channel: LiveChannel, commit: pb.Commit, ready: Ready, referring: Sealed) -> None:
        carrier = self._carriers.get(channel.info.uid)
        if not self._can_go_on(carrier):
            return
        if carrier is None or carrier.broken:
            carrier = self._begin(channel, commit, carrier)
            parts = [self._known.staged[sequence] for sequence in carrier.unread]
            if self._can_go_on(carrier) and self._can_refer(channel):
                self._refer(carrier, parts, referring)
        if self._can_go_on(carrier):
            ready.fetches.append(self._read(carrier))

    def _begin(self, channel: LiveChannel, commit: pb.Commit, before: CommitRun | None) -> CommitRun:
        """Begin or resume a commit from its progress in the log. No rows of the channel may be on their way."""
        channel.next_sequence = self.channels.written_end(channel.info)
        first = commit.first_sequence or channel.next_sequence
        channel.reservation = Reservation(first, first + commit.count - 1)
        unread = deque(commit.sequences)
        staged, done = self._known.staged, commit.done
        while done > 0:
            done -= staged[unread.popleft()].count
        invariant(not done, "rows are stored part by part", uid=commit.uid, done=commit.done)
        made = self._carriers[channel.info.uid] = CommitRun(channel, commit, channel.last_timestamp, unread)
        if before is not None:
            made.pause_until, made.failures = before.pause_until, before.failures
        return made

    def _can_refer(self, channel: LiveChannel) -> bool:
        """True if staged parts can become batches of the channel where they lie."""
        uid, sql = channel.info.uid, self.node.config.store.kind == "sql"
        return not sql and uid not in self.channels.policies.compressed and uid not in self.channels.policies.ttls

    def _refer(self, carrier: CommitRun, parts: list[pb.StagedPart], entry: Sealed) -> None:
        """Put into *entry* that the parts become batches of their channel. Commits that begin in one turn share an entry."""
        channel, info = carrier.channel, carrier.channel.info
        timestamp = max(self.node.clock.wall, channel.last_timestamp)
        count, base, sizes = sum(part.count for part in parts), channel.next_sequence, []
        for part in parts:
            sizes.append(sealed_size(info.name, part.bytes, part.count, base, timestamp))
            base += part.count
        index = self.stored.written(info.group, info.uid)
        size = index.accounted(sum(sizes), count)
        first = self.channels.retention.first_after(channel, index, count, size)
        references, base = [], channel.next_sequence
        for part, told in zip(parts, sizes, strict=True):
            place = info.uid, Sequence(base), part.count, WallNanos(timestamp), Sequence(first)
            references.append(Reference(*place, Sequence(part.sequence), told))
            base += part.count
        entry.parts += encode_references(references)
        carrier.unread.clear()
        in_flight = REFERENCE.size * len(references)
        carrier.in_flight += in_flight
        step, stored = partial(self._change, carrier, info.uid, count), partial(self._stored, carrier, in_flight)
        entry.rows.append((RowBatch(b"", count, stored, step), channel.next_sequence))
        self.publishing.add_to(entry, channel, base, size)
        channel.last_timestamp, channel.idle_since = timestamp, self.node.clock.now

    def _read(self, carrier: CommitRun) -> Fetch:
        """Make a Fetch for the next parts, about as many bytes as one entry holds."""
        staged = self._known.staged
        wanted: list[int] = []
        size = 0
        for sequence in carrier.unread:
            full = size >= limits.READ_BYTES_MAX or len(wanted) >= limits.BATCHES_PER_READ_MAX
            if wanted and (full or sequence < wanted[-1]):
                break
            wanted.append(sequence)
            size += staged[sequence].bytes
        carrier.fetch, carrier.wanted, carrier.reading = self.group.dispatch.fetch_number(), wanted, size
        runs = tuple((sequence, sequence) for sequence in wanted)
        return Fetch(self.number, STAGING_UID, 0, runs, limits.READ_BYTES_MAX, carrier.fetch)

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
        staged = self._known.staged
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
        return next((carrier for carrier in self._carriers.values() if carrier.fetch == fetch.number), None)

    def _failed(self, carrier: CommitRun, why: str) -> None:
        channel = carrier.channel
        carrier.failures += 1
        if carrier.failures == 1:
            self.reports.note("ERR", f"Error reading rows staged for {shown(channel.info.name)} ({why})")
        if carrier.failures >= limits.COMMIT_READS_MAX and not carrier.in_flight and not self.node.clustered:
            carrier.failures = 0
            step = pb.CommitStep(uid=channel.info.uid, given_up=True)
            self.reports.note("ERR", f"A commit to {shown(channel.info.name)} is given up: its rows cannot be read")
            self.change(nobody_waits, commit_step=step)
        self._pause(carrier, refusals.UNREADABLE)

    def _pause(self, carrier: CommitRun, error: str) -> None:
        """Pause a commit that cannot continue now, and refuse the requests and publishes that wait for it."""
        at = Nanos(self.node.clock.now + limits.COMMIT_RETRY)
        if carrier.pause_until < at:
            carrier.pause_until = at
            self._timers.wake_at(at, self.number)
        if not self.node.clustered:  # else another leader may store what this one has refused
            self.publishing.resume(carrier.channel, error)
        self._next(self._refuse(self._asked.of(carrier.channel.info.uid), error, retry=True))


def _records(batches: list[ReadResult], wanted: list[int]) -> list[bytes]:
    """The *wanted* stored messages, up to the first that is missing."""
    found = dict(stored_messages(batches, [(sequence, sequence) for sequence in wanted]))
    return [found[sequence] for sequence in takewhile(found.__contains__, wanted)]
