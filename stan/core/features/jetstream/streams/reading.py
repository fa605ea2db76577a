"""Stored messages of streams are read, on the leader of their group: for an index by subject, for a scan, or one alone.

    index: read from the log from its end on, at the first question ─► caught up ─► the questions are answered
    scan: message by message, as far as a request wants

Promises: an index that is handed over has every message that is committed. What reads take is bounded: one read is in hand at a
time for each run, and API_SCANS_MAX runs for requests are under way in a group, beside one for each index; of them, and of the
requests that wait for an index, a user has at most half of what the others leave.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from stan_protocol.patterns import matches
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import ChannelUid, Nanos, WallNanos

from stan import limits
from stan.core.base.names import raw, text
from stan.core.base.ready import ReadResult
from stan.core.base.shares import Shares, share_left
from stan.core.features.jetstream.streams.subjects import SubjectIndex, id_of
from stan.core.leader.local_group import Leadership
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.stored_reads import stored_messages
from stan.core.services.services import Services
from stan.core.state.tombstones import behind
from stan.errors import fault
from stan.protocol.entries import RecordBatch
from stan.protocol.jetstream.headers import takes_place
from stan.protocol.proto import entries_pb2 as pb

Ready = Callable[[SubjectIndex | None], None]
"""Called once: with an index that has every committed message, or None if it cannot be made now."""


class _Note(NamedTuple):
    """The properties of a message that an index knows."""

    sequence: int
    key: bytes
    message_id: bytes
    at: int  # Unix ns
    replaces: bool  # it takes the place of those before it of its subject

    @classmethod
    def of(cls, sequence: int, message: wire.MsgProto, at: int) -> "_Note":
        """The note of a message."""
        return cls(sequence, message.key, id_of(message), at, takes_place(message))


class Found(NamedTuple):
    """A message of a stream."""

    sequence: int
    subject: bytes
    stored: wire.MsgProto


class StreamReading(Relocating):
    """Reads messages of the streams of one group, and keeps the indexes of those that are asked for by subject or id."""

    follows = frozenset({"removal"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self._indexes: dict[ChannelUid, SubjectIndex] = {}
        self._waiting: dict[ChannelUid, list[tuple[str, Ready]]] = {}  # each with the user who waits
        # Of streams whose index is being caught up: messages that were committed meanwhile.
        self._ahead: dict[ChannelUid, list[_Note]] = {}
        self._reads, self._scans = Shares(), Shares()  # runs for requests, and those of them that read many messages
        self._line: deque[Callable[[Nanos], None]] = deque()  # runs that wait for a turn
        self._looked = Nanos(0), 0  # the time of a turn, and at how many messages and subjects runs have looked in it

    # --- indexes ------------------------------------------------------------------------------------------------------

    def index(self, uid: ChannelUid) -> SubjectIndex | None:
        """The index of a stream, as far as it has got; None if nobody has asked for it."""
        return self._indexes.get(uid)

    def current(self, stream: Stream) -> SubjectIndex | None:
        """The index of a stream if it has every committed message; None if it has to be caught up first."""
        found = self._indexes.get(stream.uid)
        return found if found is not None and found.through >= self._last(stream.uid) else None

    def with_index(self, stream: Stream, ready: Ready, user: str = "") -> None:
        """Call *ready* with the stream's index, now or once it is caught up; None if too many wait for it, of all users or of
        *user*. "": without users, or for a leader's own work."""
        found = self.current(stream)
        if found is not None:
            ready(found)
            return
        waiting = self._waiting.setdefault(stream.uid, [])
        own = sum(one == user for one, _ in waiting)
        if share_left(raw(user), limits.API_WAITING_MAX, len(waiting), own) <= 0:
            ready(None)
            return
        waiting.append((user, ready))
        if stream.uid not in self._ahead:
            self._ahead[stream.uid] = []
            self.publishing.followed[stream.uid] = partial(self._committed, stream.uid)
            self.begin(object(), self._catch_up(stream))

    def followed(self, change: pb.GroupChange) -> None:
        """Messages were removed: where single ones were, an earlier message may be the newest one of its subject now."""
        uid = ChannelUid(change.removal.uid)
        index = self._indexes.get(uid)
        if change.removal.deleted and index is not None and not index.outlives_removals:
            self._indexes[uid] = index.emptied()

    def refresh(self) -> None:
        """A stream is gone, or has another configuration: its index is made again when it is asked for."""
        streams = self.node.meta.streams.by_uid
        for uid, index in list(self._indexes.items()):
            if uid not in streams or streams[uid].config != index.config:
                del self._indexes[uid]

    def _last(self, uid: ChannelUid) -> int:
        return self.stored.indexes(self.number, uid).last_sequence

    def _catch_up(self, stream: Stream) -> Steps[None]:
        uid = stream.uid
        found = self._indexes.get(uid)
        if found is None:
            found = self._indexes[uid] = SubjectIndex(stream)
            if not found.by_key:  # its subject is known: ids alone are wanted
                since = WallNanos(self.node.clock.wall - stream.config.duplicate_window)
                recent = self.stored.indexes(self.number, uid).sequence_at(since)
                found.through = max(0, min(recent, self._last(uid)) - 1)  # the newest message tells the last id
        failed = False
        try:
            while found.through < self._last(uid):
                last = self._last(uid)
                messages, end = yield from self._next(stream, found.through + 1, last, gone=stream.config.history > 0)
                deleted = self.stored.deleted(self.number, uid)
                for sequence, message in messages:
                    gone = deleted is not None and sequence in deleted
                    self._add(stream, found, _Note.of(sequence, message, message.timestamp), gone=gone)
                found.through = max(found.through, end)
                self._go_ahead(stream, found)
        except StepError:
            failed = True
        index = None if failed else self._indexes.get(uid)  # None: it was forgotten meanwhile
        self._ahead.pop(uid, None)  # those who are called may ask again
        for _, ready in self._waiting.pop(uid, []):
            ready(index)

    def _committed(self, uid: ChannelUid, batch: RecordBatch) -> None:
        """Messages of a stream with an index are committed: they follow it, or wait until it has come that far. What does not
        follow is read when somebody asks."""
        index, stream = self._indexes.get(uid), self.node.meta.streams.by_uid.get(uid)
        info = self.node.meta.by_uid.get(uid)
        moved = info is None or info.group != self.number
        if self.leadership.ended or index is None or stream is None or moved:
            del self.publishing.followed[uid]
            return
        ahead = self._ahead.get(uid)
        follows = index.through + 1 == batch.base_sequence
        if batch.staged or not (follows or ahead is not None):
            return
        records = batch.records if not batch.size else self.publishing.compressing.records(self.number, batch)
        if follows and ahead is None and index.note_batch(records, batch.base_sequence, batch.count, batch.timestamp):
            return
        result = ReadResult(batch.base_sequence, batch.count, records)
        last = batch.base_sequence + batch.count - 1
        for sequence, message in _decoded([result], batch.base_sequence, last):
            note = _Note.of(sequence, message, batch.timestamp)
            if follows:
                self._add(stream, index, note)
            elif ahead is not None and len(ahead) < limits.STREAM_AHEAD_MAX:
                ahead.append(note)

    def _go_ahead(self, stream: Stream, index: SubjectIndex) -> None:
        """Add the messages that were committed meanwhile, as far as they follow."""
        for note in self._ahead.get(stream.uid, ()):
            if note.sequence == index.through + 1:
                self._add(stream, index, note)

    @staticmethod
    def _add(stream: Stream, index: SubjectIndex, note: _Note, *, gone: bool = False) -> None:
        sequence, key, message_id, at, replaces = note
        index.note(stream, sequence, key, message_id, at, replaces=replaces, gone=gone)

    # --- scans --------------------------------------------------------------------------------------------------------

    def is_busy(self, user: str, *, of_one: bool = False) -> bool:
        """True if no further run for a request of *user* ("" without users) may begin: a user has at most half of what the other
        users leave. *of_one*: it reads one message, for which there is more room."""
        if of_one:
            return self._reads.left(raw(user), limits.API_READS_MAX) <= 0
        return self._scans.left(raw(user), limits.API_SCANS_MAX) <= 0

    def run(self, steps: Steps[None], user: str, *, of_one: bool = False) -> None:
        """Begin a run of steps for a request of *user*; see `is_busy`. If the program fails in it, that request alone has no
        answer: it changes nothing but by an entry."""
        self.begin(object(), self._guarded(steps, raw(user), 0 if of_one else 1))

    def _guarded(self, steps: Steps[None], user: bytes, scans: int) -> Steps[None]:
        self._reads.add(user, 1)
        self._scans.add(user, scans)
        try:
            yield from steps
        except Exception as error:  # noqa: BLE001 - of this request alone
            self.reports.complain("ERR", f"a request that reads a stream failed: {fault(error)}")
        finally:
            self._reads.add(user, -1)
            self._scans.add(user, -scans)

    def look(self, many: int) -> Steps[None]:
        """Look at *many* subjects or messages more: in this turn, or behind other runs in a later one, if this turn has had
        STREAM_SLICE of them."""
        if self._looked[0] != self.node.clock.now:
            self._looked = self.node.clock.now, 0
        if self._line or self._looked[1] >= limits.STREAM_SLICE:
            yield self._in_line
            self._looked = self.node.clock.now, 0
        self._looked = self._looked[0], self._looked[1] + many

    def _in_line(self, go_on: Callable[[Nanos], None]) -> None:
        self._line.append(go_on)
        if len(self._line) == 1:
            self.at(self.node.clock.now + 1, self._next_in_line)

    def _next_in_line(self, now: Nanos) -> None:
        go_on = self._line.popleft()
        if self._line:
            self.at(now + 1, self._next_in_line)
        go_on(now)

    def look_at_subjects(self, index: SubjectIndex, pattern: str, look: Callable[[bytes], None]) -> Steps[None]:
        """Call *look* with each subject of the index that a pattern covers, with some of them in each turn."""
        for some, passed in index.in_slices(pattern):
            if passed > 1:
                yield from self.look(passed)
            for subject in some:
                look(subject)

    def message_at(self, stream: Stream, sequence: int) -> Steps[Found | None]:
        """The message with that sequence; None if there is none. Raises StepError: it cannot be read."""
        uid, deleted = stream.uid, self.stored.deleted(self.number, stream.uid)
        index = self.stored.indexes(self.number, uid)
        if not index.first_sequence <= sequence <= index.last_sequence or (deleted and sequence in deleted):
            return None
        messages, _ = yield from self._next(stream, sequence, sequence)
        return next((Found(at, stream.subject_of(one.key), one) for at, one in messages), None)

    def some(self, stream: Stream, first: int, last: int) -> Steps[tuple[list[Found], int]]:
        """The messages from *first* on, at most to *last*, that one read gives, and the sequence up to which it goes. Raises
        StepError."""
        messages, end = yield from self._next(stream, first, last)
        yield from self.look(end - first + 1)
        deleted = self.stored.deleted(self.number, stream.uid)
        kept = ((at, one) for at, one in messages if deleted is None or at not in deleted)
        return [Found(at, stream.subject_of(one.key), one) for at, one in kept], end

    def before(self, stream: Stream, sequence: int, subject: str) -> Steps[Found | None]:
        """The newest message of a subject before *sequence*; None if there is none. Cost: everything before it is read. Raises
        StepError."""
        newest: Found | None = None
        at = 1
        while at < sequence:
            found, end = yield from self.some(stream, at, sequence - 1)
            newest = next((one for one in reversed(found) if one.subject == raw(subject)), newest)
            at = end + 1
        return newest

    def count(
        self,
        stream: Stream,
        pattern: str,
        counted: Callable[[Mapping[bytes, int] | None], None],
        first: int = 1,
    ) -> Steps[None]:
        """Count the messages from *first* on of each subject that a pattern covers; *counted* is called once, with None if they
        cannot be read. Cost: all of them are read. Where the newest messages of each subject stay, the index tells it instead."""
        found: Counter[bytes] = Counter()
        at = first
        try:
            while at <= self.last(stream):
                messages, end = yield from self.some(stream, at, self.last(stream))
                found.update(one.subject for one in messages if matches(pattern, text(one.subject)))
                at = end + 1
        except StepError:
            counted(None)
            return
        counted(found)

    def is_there(self, stream: Stream) -> Callable[[int], bool]:
        """Return a function that tells if a message has not been removed."""
        index, deleted = self.stored.indexes(self.number, stream.uid), self.stored.deleted(self.number, stream.uid)
        first = index.first_sequence
        return lambda sequence: sequence >= first and (deleted is None or sequence not in deleted)

    def removals(self, stream: Stream) -> tuple[int, int]:
        """Return two numbers of which one is another one once messages were removed."""
        index, deleted = self.stored.indexes(self.number, stream.uid), self.stored.deleted(self.number, stream.uid)
        return index.first_sequence, deleted.size if deleted is not None else 0

    def last(self, stream: Stream) -> int:
        """The sequence of the newest message; 0: there was none."""
        return self._last(stream.uid)

    def _next(
        self, stream: Stream, first: int, last: int, *, gone: bool = False
    ) -> Steps[tuple[Iterator[tuple[int, wire.MsgProto]], int]]:
        """The messages from *first* on, at most to *last*, as far as one read goes, and where it ends. Messages that were deleted
        are passed over, unless *gone*."""
        index = self.stored.indexes(self.number, stream.uid)
        begin = max(first, index.first_sequence)
        begin = begin if gone else behind(self.stored.deleted(self.number, stream.uid), begin)
        if begin > last:
            return iter(()), last
        batches = yield from self.read(stream.uid, ((begin, last),))
        found = [batch for batch in batches if batch.records]
        end = max((batch.base_sequence + batch.count - 1 for batch in batches), default=last)
        return _decoded(found, begin, last), min(end, last)


def _decoded(batches: list[ReadResult], first: int, last: int) -> Iterator[tuple[int, wire.MsgProto]]:
    return (
        (sequence, wire.MsgProto.FromString(stored))
        for sequence, stored in stored_messages(batches, ((first, last),))
        if stored
    )
