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
from stan_protocol.scalars import ChannelUid, GroupId, Nanos, Sequence, WallNanos

from stan import limits
from stan.core.base.ready import Fetch, ReadResult, Ready
from stan.core.context import BrokerContext, nobody_waits, shown
from stan.core.leader.local_group import ChannelGroup
from stan.core.publishing.channels import LiveChannel, LiveChannels, Reservation
from stan.core.publishing.commit_requests import CommitQueues, WaitingCommit, sequences_of, waiting_commit
from stan.core.publishing.publishing import Publishing, Sealed
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.publishing.staging import PASSING
from stan.core.publishing.stored_reads import stored_messages
from stan.core.requests.request import AcceptedRequest
from stan.core.state.group import GroupResult
from stan.core.state.transactions import Ended, TransactionRefused, writer_refusal
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


@dataclass(slots=True)
class _Commits:
    """The commits of one group, while this node leads it."""

    asked: CommitQueues = field(default_factory=CommitQueues)
    deciding: dict[ChannelUid, list[pb.Commit]] = field(default_factory=dict)  # decisions on their way into the log
    carriers: dict[ChannelUid, CommitRun] = field(default_factory=dict)


class Committing:
    """Decides commits and carries them out, in the groups that this node leads."""

    def __init__(self, context: BrokerContext, channels: LiveChannels, publishing: Publishing) -> None:
        self.context = context
        self.channels = channels
        self.publishing = publishing
        self.doubtful: list[tuple[GroupId, list[pb.Commit]]] = []  # decisions that are in doubt
        self.fetches = 0

    def _of(self, number: GroupId) -> _Commits:
        return self.context.kept(number, _Commits)

    def dropped(self, number: GroupId, uid: ChannelUid) -> None:
        """A channel is gone: forget its commits and refuse the requests that wait for them."""
        here = self._of(number)
        here.carriers.pop(uid, None)
        here.deciding.pop(uid, None)
        self._next(number, self._refuse(number, here.asked.of(uid), refusals.CHANNEL_DELETING, retry=True))

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
        number, by_uid = waiting.accepted.number, self.channels.by_uid
        for uid, one in waiting.channels.items():  # those that were opened first may be gone, or in another group
            if by_uid.get(uid) is not one or one.closed or one.info.group != number:
                waiting.refuse(refusals.BUSY, retry=True)
                return
        if not self._of(number).asked.add(waiting):
            waiting.refuse(refusals.BUSY, retry=True)
            return
        waiting.left.update(waiting.channels)
        self._next(number, waiting.channels)

    def _next(self, number: GroupId, uids: Iterable[ChannelUid]) -> None:
        """Decide the requests that are the first ones in all of their channels, and answer those that need no decision."""
        here, under_way = self._of(number), self.context.groups[number].machine.transactions.under_way
        open_channels = [*uids]
        while open_channels:
            first = here.asked.first(open_channels.pop())
            if first is None or any(uid in here.deciding or uid in under_way for uid in first.left):
                continue
            if self._decide(number, first):
                open_channels += first.channels

    def _decide(self, number: GroupId, waiting: WaitingCommit) -> bool:
        """Decide a request; True if it needs no decision, and was answered."""
        accepted, known, here = waiting.accepted, self.context.groups[number].machine.transactions, self._of(number)
        request, user, commits = accepted.request, accepted.user, []
        for uid, channel in waiting.channels.items():
            last = known.committed.get((uid, request.app))
            refused = refusals.APP_OF_ANOTHER if known.is_anothers(uid, request.app, user) else ""
            if refused := refused or writer_refusal(last, request.version, request.writer):
                return self._answer(here, waiting, refused)
            if known.is_done(uid, request.app, request.version):
                waiting.already |= waiting.left & {uid}
                continue
            sequences = sequences_of(known, uid, accepted, waiting.txns[channel.info.name])
            if isinstance(sequences, str):
                return self._answer(here, waiting, sequences)
            at, writer = self.context.clock.wall, request.writer
            told = pb.Commit(uid=uid, app=request.app, version=request.version, at=at, user=user, writer=writer)
            told.sequences.extend(sequences)
            commits.append(told)
        if not commits:
            return self._answer(here, waiting)
        if refused := known.commits_refusal([(one.uid, one.app) for one in commits], user, commits[0].at):
            return self._answer(here, waiting, refused)
        waiting.left = {ChannelUid(commit.uid) for commit in commits}
        for uid in waiting.left:
            self.publishing.reserve(waiting.channels[uid])
        here.deciding.update(dict.fromkeys(waiting.left, commits))
        change = {"commit": commits[0]} if len(commits) == 1 else {"joint_commit": pb.JointCommit(commits=commits)}
        in_doubt = partial(self.doubtful.append, (number, commits))
        self.context.change_group(number, partial(self._decided, number, commits), in_doubt, **change)
        return False

    def _answer(self, here: "_Commits", waiting: WaitingCommit, error: str = "") -> bool:
        here.asked.remove(waiting)
        if error:
            waiting.refuse(error)
        else:
            waiting.confirm(waiting.accepted.group.machine.transactions)
        return True

    def _refuse(self, number: GroupId, requests: list[WaitingCommit], error: str, *, retry: bool) -> list[ChannelUid]:
        """Refuse requests; returns the channels in which others may be the first ones now."""
        for waiting in requests:
            self._of(number).asked.remove(waiting)
            waiting.refuse(error, retry=retry)
        return [uid for waiting in requests for uid in waiting.channels]

    def _decided(self, number: GroupId, commits: list[pb.Commit], result: object, error: str) -> None:
        here = self._of(number)
        uids = [ChannelUid(one.uid) for one in commits if here.deciding.get(ChannelUid(one.uid)) is commits]
        for uid in uids:  # the other channels are gone, or the decision has ended their commits
            del here.deciding[uid]
        outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
        if isinstance(outcome, TransactionRefused):
            self._release(uids)
            for commit in commits:
                same = here.asked.of_version(commit)
                uids += self._refuse(number, same, outcome.error, retry=result is None)
            self._next(number, uids)

    def _release(self, uids: Iterable[ChannelUid]) -> None:
        for uid in uids:
            channel = self.channels.by_uid.get(uid)
            if channel is not None:
                self.publishing.release(channel)

    def ended(self, number: GroupId, ended: Ended) -> None:
        """Commits are complete, or given up; called on every node that holds the group."""
        group = self.context.groups[number]
        uids = [ChannelUid(one.uid) for one in (*ended.committed, *ended.given_up)]
        for uid in uids:
            group.dispatch.uncovered(uid)
        if not group.leads:
            return
        here = self._of(number)
        for uid in uids:
            here.carriers.pop(uid, None)
            here.deciding.pop(uid, None)
            if uid in self.context.outgoing.watched:
                self.context.outgoing.news.add(uid)
        self._release(uids)
        for given_up in ended.given_up:
            uids += self._refuse(number, here.asked.of_version(given_up), refusals.STAGED_GONE, retry=False)
        for committed in ended.committed:
            for waiting in here.asked.of_version(committed):
                waiting.left.discard(ChannelUid(committed.uid))
                if not waiting.left:
                    self._answer(here, waiting)
                    uids += waiting.channels
        self._next(number, uids)

    # --- carrying out ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if `pump` would find something to do."""
        within = self.context.within
        return any(within(channel.info.group, self._has_work, channel) for _, channel, _ in self._under_way())

    def _has_work(self, channel: LiveChannel) -> bool:
        return self._can_go_on(self._carrier(channel))

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
        referring: dict[GroupId, Sealed] = {}
        for group, channel, commit in self._under_way():
            number = channel.info.group
            self.context.within(number, self._go_on, group, channel, commit, ready, referring)
        for number, entry in referring.items():
            self.context.within(number, self.publishing.propose, entry)

    def _go_on(
        self,
        group: ChannelGroup,
        channel: LiveChannel,
        commit: pb.Commit,
        ready: Ready,
        referring: dict[GroupId, Sealed],
    ) -> None:
        carrier = self._carrier(channel)
        if not self._can_go_on(carrier):
            return
        if carrier is None or carrier.broken:
            carrier = self._begin(group, channel, commit, carrier)
            parts = [group.machine.transactions.staged[sequence] for sequence in carrier.unread]
            if self._can_go_on(carrier) and self._can_refer(channel):
                self._refer(carrier, parts, referring.setdefault(channel.info.group, Sealed(channel.info.group)))
        if self._can_go_on(carrier):
            ready.fetches.append(self._read(group, carrier))

    def _refuse_doubtful(self) -> None:
        """If this node still leads, answer requests whose decision is in doubt with "ask again": another leader was sought, and
        none took over."""
        doubtful = [*self.doubtful]
        self.doubtful.clear()
        for number, commits in doubtful:
            deciding = self._of(number).deciding if self.context.leads(number) else {}
            if any(deciding.get(ChannelUid(commit.uid)) is commits for commit in commits):
                self.context.within(number, self._decided, number, commits, None, refusals.BUSY)

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

    def _can_refer(self, channel: LiveChannel) -> bool:
        """True if staged parts can become batches of the channel where they lie."""
        uid, sql = channel.info.uid, self.context.config.store.kind == "sql"
        return not sql and uid not in self.channels.compressed and uid not in self.channels.ttls

    def _refer(self, carrier: CommitRun, parts: list[pb.StagedPart], entry: Sealed) -> None:
        """Put into *entry* that the parts become batches of their channel. Commits that begin in one turn share an entry."""
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
        entry.parts += encode_references(references)
        carrier.unread.clear()
        in_flight = REFERENCE.size * len(references)
        carrier.in_flight += in_flight
        step, stored = partial(self._change, carrier, info.uid, count), partial(self._stored, carrier, in_flight)
        entry.rows.append((RowBatch(b"", count, stored, step), channel.next_sequence))
        self.publishing.add_to(entry, channel, base, size)
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
        self._pause(carrier, refusals.UNREADABLE)

    def _pause(self, carrier: CommitRun, error: str) -> None:
        """Pause a commit that cannot continue now, and refuse the requests and publishes that wait for it."""
        at = Nanos(self.context.clock.now + limits.COMMIT_RETRY)
        if carrier.pause_until < at:
            carrier.pause_until = at
            self.context.timers.wake_at(at, carrier.channel.info.group)
        if not self.context.clustered:  # else another leader may store what this one has refused
            self.publishing.refuse_waiting(carrier.channel, error)
        number, uid = carrier.channel.info.group, carrier.channel.info.uid
        self._next(number, self._refuse(number, self._of(number).asked.of(uid), error, retry=True))


def _records(batches: list[ReadResult], wanted: list[int]) -> list[bytes]:
    """The *wanted* stored messages, up to the first that is missing."""
    found = dict(stored_messages(batches, [(sequence, sequence) for sequence in wanted]))
    return [found[sequence] for sequence in takewhile(found.__contains__, wanted)]
