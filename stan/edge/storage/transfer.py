"""Transfer of a group to a member that lacks what the leader's log no longer has: the state first, then raw segment files.

    receiver                     sender
    open(session, group)   →     links the group's files aside, says how long its offer is
    read(part, offset) …   →     bytes of the offer (part 0), of the state (part 1), of the segments (2 …)
    close(session)         →     removes the links

The receiver asks, several reads at a time; every answer names what it answers, so that late and repeated ones do no harm and
whoever drives it may send any request again. What is offered is a committed prefix of the log and never changes. Message
bodies are in segments only, and holes between segments arrive as they are.

Promises: nothing is taken for received but what was sent (a CRC on every answer, and on every entry once more at the end);
what is received lies aside until `Storage.install`. No clock, no network, no tasks in here.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from stan import limits
from stan.edge.storage.groupfiles import read_snapshot, snapshot_bytes, snapshot_path
from stan.edge.storage.transfer_codec import LENGTH, OFFER, Header, Offer, OfferedSegment, Status, Verb, decode, encode
from stan.errors import Damage, NotNow, StanError
from stan.log.encryption import NEVER, Cipher, Encryptor
from stan.log.files.disk import Files, remove_directory
from stan.log.files.filelog import FileLog
from stan.log.files.reencryption import reencrypt
from stan.log.files.segment import SEGMENT_HEADER_SIZE, decode_segment_header, segment_name
from stan.log.files.segments import Extent
from stan.log.types import GroupLog
from stan.protocol.proto import entries_pb2 as pb
from stan.types import GroupId, Nanos, RaftIndex, Term

# --- sending ----------------------------------------------------------------------------------------------------------


class Export(NamedTuple):
    """A group as of now, its files linked into a directory."""

    state: pb.Snapshot
    first_index: RaftIndex
    extents: list[Extent]


@dataclass
class _Session:
    group: int
    directory: str
    parts: list[bytes | tuple[str, int]]  # bytes, or path and length
    deadline: int


class Sender:
    """Answers the requests of all receivers. `handle` blocks for one read of at most a chunk.

    Args:
        files: where the files are.
        directory: for the links of sessions; what is in there is forgotten at a start.
        export: links a group's files into a directory, or raises NotNow.
        now: monotonic time.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        export: Callable[[GroupId, str], Export],
        now: Callable[[], Nanos],
    ) -> None:
        self._files = files
        self._directory = directory
        self._export = export
        self._now = now
        self._sessions: dict[int, _Session] = {}

    def handle(self, request: bytes) -> bytes:
        """The answer to a request; b"" for what is none."""
        decoded = decode(request)
        if decoded is None:
            return b""
        header = decoded[0]
        try:
            self.expire()
            content = self._answer(header)
        except (StanError, OSError) as error:
            return encode(header._replace(status=Status.REFUSED), str(error).encode())
        return encode(header._replace(status=Status.FINE), content)

    def _answer(self, header: Header) -> bytes:
        if header.verb == Verb.CLOSE:
            self._end(header.session)
            return b""
        session = self._sessions.get(header.session)
        if session is None and header.verb == Verb.OPEN:
            session = self._open(header)
        if session is None or session.group != header.group:
            raise NotNow("no such transfer")
        session.deadline = self._now() + limits.TRANSFER_LEASE
        if header.verb == Verb.OPEN:
            return LENGTH.pack(len(session.parts[0]))
        if header.part >= len(session.parts) or header.length > limits.TRANSFER_CHUNK_BYTES:
            raise NotNow(f"no part {header.part} of {header.length} bytes at once")
        part = session.parts[header.part]
        if isinstance(part, bytes):
            return part[header.offset : header.offset + header.length]
        path, length = part
        descriptor = self._files.open(path)
        try:
            return self._files.pread(descriptor, min(header.length, max(0, length - header.offset)), header.offset)
        finally:
            self._files.close(descriptor)

    def _open(self, header: Header) -> _Session:
        if len(self._sessions) >= limits.TRANSFER_SESSIONS_MAX:
            raise NotNow("too many transfers at once")
        directory = f"{self._directory}/{header.session:016x}"
        self._files.makedirs(directory)
        try:
            state, first_index, extents = self._export(GroupId(header.group), directory)
        except BaseException:
            remove_directory(self._files, directory)
            raise
        content = snapshot_bytes(state)
        offer = Offer(
            GroupId(header.group),
            RaftIndex(state.applied_index),
            Term(state.applied_term),
            first_index,
            len(content),
            tuple(OfferedSegment(extent.first_index, extent.length, extent.generation) for extent in extents),
        )
        links = [(f"{directory}/{segment_name(extent.first_index)}", extent.length) for extent in extents]
        session = _Session(header.group, directory, [offer.encode(), content, *links], 0)
        self._sessions[header.session] = session
        return session

    def expire(self) -> None:
        """End the sessions that nobody asked for during a lease."""
        now = self._now()
        for number in [number for number, session in self._sessions.items() if session.deadline <= now]:
            self._end(number)

    def close(self) -> None:
        """End all sessions."""
        for number in list(self._sessions):
            self._end(number)

    def _end(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            with suppress(OSError):  # a start removes what is left
                remove_directory(self._files, session.directory)


# --- receiving --------------------------------------------------------------------------------------------------------


class TransferStep(NamedTuple):
    """What comes next: requests to send; then, once, that all is here or why it cannot be."""

    requests: list[bytes]
    done: bool = False
    failed: str = ""


NOTHING = TransferStep([])


@dataclass
class _File:
    """A part that is being received."""

    path: str
    length: int
    first: OfferedSegment | None  # None: the state
    missing: int = field(init=False)
    descriptor: int = -1

    def __post_init__(self) -> None:
        self.missing = self.length


class Receiver:
    """One group on its way here: `begin`, `take` until it is done, `finish`, then Storage.install.

    After a failure `begin` goes on with what is complete. `take` writes to the disk and may run in a worker thread, one call at
    a time. Args:
        files: where it is kept.
        directory: of its own, made by `begin`.
        group: which one.
        store_id: of this node's logs; replaces the sender's.
        cipher: of this node's logs; has to open what the sender has encrypted.
        chunk_bytes: asked for at once; an answer is a little longer.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        group: GroupId,
        store_id: bytes,
        cipher: Cipher | None = None,
        *,
        chunk_bytes: int = limits.TRANSFER_CHUNK_BYTES,
    ) -> None:
        self.group = group
        self.offer: Offer | None = None
        self.finished = False  # everything is durable and was verified
        self._files = files
        self._directory = directory
        self._store_id = store_id
        self._cipher = cipher
        self._chunk = chunk_bytes
        self._session = 0
        self._outstanding: dict[tuple[int, int, int], bytes] = {}  # verb, part, offset -> request
        self._plan: Iterator[tuple[int, int, int]] = iter(())  # part, offset, length
        self._offer_bytes = bytearray()
        self._offer_missing = 0
        self._parts: dict[int, _File] = {}  # not complete yet
        self._complete: dict[str, OfferedSegment | None] = {}  # by path
        self._origins: dict[str, bytes] = {}  # of segments: the store that they were sealed for

    # --- driving ------------------------------------------------------------------------------------------------------

    def begin(self, session: int) -> list[bytes]:
        """Start or start again; *session* is a new random number of 64 bits. Returns the requests to send."""
        self._forget_parts()
        self.offer, self.finished = None, False
        self._session = session
        self._plan = iter(())
        return [self._ask(Verb.OPEN)]

    def repeat(self) -> list[bytes]:
        """All requests that are not answered: what to send after a while of silence."""
        return list(self._outstanding.values())

    def take(self, answer: bytes) -> TransferStep:
        """An answer has come; any bytes will do, only those that were asked for change anything."""
        decoded = decode(answer)
        if decoded is None:
            return NOTHING
        header, content = decoded
        key = (header.verb, header.part, header.offset)
        if header.session != self._session or header.group != self.group or key not in self._outstanding:
            return NOTHING
        if header.status != Status.FINE:
            return self._fail(str(content, errors="replace"))
        del self._outstanding[key]
        try:
            if header.verb == Verb.OPEN:
                self._opened(content)
            elif len(content) != header.length:
                return self._fail(f"part {header.part} ends {header.length - len(content)} bytes early")
            elif header.part == 0:
                self._take_offer(header.offset, content)
            else:
                self._write(header.part, header.offset, content)
        except (OSError, StanError) as error:
            return self._fail(str(error))
        return self._go_on()

    def _go_on(self) -> TransferStep:
        requests = []
        while len(self._outstanding) < limits.TRANSFER_WINDOW:
            wanted = next(self._plan, None)
            if wanted is None:
                break
            requests.append(self._ask(Verb.READ, *wanted))
        if self._outstanding or self.offer is None:
            return TransferStep(requests)
        return TransferStep([encode(Header(Verb.CLOSE, 0, self.group, self._session, 0, 0, 0))], done=True)

    def _ask(self, verb: Verb, part: int = 0, offset: int = 0, length: int = 0) -> bytes:
        request = encode(Header(verb, 0, self.group, self._session, part, length, offset))
        self._outstanding[verb, part, offset] = request
        return request

    def _fail(self, why: str) -> TransferStep:
        self._forget_parts()
        self._session = -1
        return TransferStep([], failed=why)

    def _forget_parts(self) -> None:
        self._outstanding.clear()
        for part in self._parts.values():
            if part.descriptor >= 0:
                self._files.close(part.descriptor)
        self._parts.clear()

    # --- content ------------------------------------------------------------------------------------------------------

    def _opened(self, content: bytes | memoryview) -> None:
        if len(content) != LENGTH.size:
            raise Damage("an offer's length is not a number")
        length = LENGTH.unpack(content)[0]
        if not OFFER.size <= length <= limits.TRANSFER_OFFER_BYTES_MAX:
            raise Damage(f"an offer of {length} bytes")
        self._offer_bytes = bytearray(length)
        self._offer_missing = length
        self._plan = self._chunks(0, length)

    def _take_offer(self, offset: int, content: bytes | memoryview) -> None:
        self._offer_bytes[offset : offset + len(content)] = content
        self._offer_missing -= len(content)
        if self._offer_missing:
            return
        offer = Offer.decode(bytes(self._offer_bytes))
        if offer.group != self.group:
            raise Damage(f"an offer of group {offer.group}, not {self.group}")
        self._files.makedirs(self._directory)
        paths = [snapshot_path(self._directory, offer.index)]
        paths += [f"{self._directory}/{segment_name(part.first_index)}" for part in offer.segments]
        lengths = [offer.state_bytes, *(part.length for part in offer.segments)]
        wanted: dict[str, OfferedSegment | None] = dict(zip(paths, (None, *offer.segments), strict=True))
        # Two nodes clean at different times, but what was never cleaned is the same wherever it comes from.
        same = {
            path for path, part in self._complete.items() if part and not part.generation and wanted.get(path) == part
        }
        self._complete = {path: self._complete[path] for path in same}
        for name in self._files.listdir(self._directory):
            if f"{self._directory}/{name}" not in same:
                self._files.unlink(f"{self._directory}/{name}")
        for number, (path, length) in enumerate(zip(paths, lengths, strict=True), 1):
            if path not in same:
                self._parts[number] = _File(path, length, wanted[path])
        for empty in [number for number, part in self._parts.items() if not part.length]:
            self._write(empty, 0, b"")
        self.offer = offer
        self._plan = self._all_chunks({number: part.length for number, part in self._parts.items()})

    def _all_chunks(self, lengths: dict[int, int]) -> Iterator[tuple[int, int, int]]:
        for number, length in lengths.items():
            yield from self._chunks(number, length)

    def _chunks(self, part: int, length: int) -> Iterator[tuple[int, int, int]]:
        for offset in range(0, length, self._chunk):
            yield part, offset, min(self._chunk, length - offset)

    def _write(self, number: int, offset: int, content: bytes | memoryview) -> None:
        part = self._parts[number]
        if part.descriptor < 0:
            part.descriptor = self._files.create(part.path)
        if part.first is not None and offset == 0:
            content = self._made_ours(part.path, part.first, content)
        self._files.pwritev(part.descriptor, [content], offset)
        part.missing -= len(content)
        if not part.missing:
            self._files.close(part.descriptor)
            self._complete[part.path] = part.first
            del self._parts[number]

    def _made_ours(self, path: str, part: OfferedSegment, content: bytes | memoryview) -> bytes:
        """The beginning of a segment with this node's store id in its header."""
        header = decode_segment_header(bytes(content[:SEGMENT_HEADER_SIZE]))
        if (header.group, header.first_index, header.generation) != (self.group, part.first_index, part.generation):
            raise Damage(f"a segment of group {header.group} from {header.first_index} on where {part} was offered")
        self._origins[path] = header.store_id
        ours = replace(header, store_id=self._store_id)
        if self.offer is not None and part.first_index == self.offer.index + 1:
            ours = replace(ours, previous_term=self.offer.term)  # the log that sent it may have forgotten
        return b"".join((ours.encode(), content[SEGMENT_HEADER_SIZE:]))

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Make everything durable and verify every entry. Blocking, for a worker thread; nothing else is called meanwhile.

        Raises:
            Damage: it is not what was offered; `begin` starts from nothing.
            OSError: the disk refuses.
        """
        offer = self.offer
        if offer is None or self._parts:
            raise NotNow("not everything was received")
        try:
            self._reseal(offer)
            for path in self._complete:
                descriptor = self._files.open(path)
                try:
                    self._files.fdatasync(descriptor)
                finally:
                    self._files.close(descriptor)
            self._verify(offer)
            self._files.sync_directory(self._directory)
        except BaseException:
            self._complete.clear()
            raise
        self.finished = True

    def _reseal(self, offer: Offer) -> None:
        """What the sender has encrypted is bound to its store: bind it to this one. Raises Damage."""
        if self._cipher is None:
            return
        state = read_snapshot(self._files, snapshot_path(self._directory, offer.index))
        since = RaftIndex(state.sealed_from or NEVER)
        ours = Encryptor(self._cipher.of(self._store_id, self.group, RaftIndex(1)))
        for path, part in self._complete.items():
            if part is not None:
                reencrypt(self._files, path, self._cipher.of(self._origins[path], self.group, since), ours)

    def _verify(self, offer: Offer) -> None:
        path = snapshot_path(self._directory, offer.index)
        state = read_snapshot(self._files, path)
        if (state.applied_index, state.applied_term) != (offer.index, offer.term):
            raise Damage(f"{path}: a state as of entry {state.applied_index}, not {offer.index}")
        log, report = FileLog.open(
            Path(self._directory),
            self.group,
            self._store_id,
            lost_found=Path(self._directory + ".damaged"),
            files=self._files,
            cipher=None if self._cipher is None else self._cipher.of(self._store_id, self.group, RaftIndex(1)),
        )
        try:
            log.check_key()
        finally:
            log.close()
        found = (log.first_index, log.last_index, log.last_term, report.segments)
        if report.texts or found != (offer.first_index, offer.index, offer.term, len(offer.segments)):
            raise Damage(f"what was received of group {self.group} is not what was offered: {report.texts or found}")

    def discard(self) -> None:
        """Remove what was received."""
        self._forget_parts()
        self._complete.clear()
        self.offer, self.finished, self._session = None, False, -1
        for directory in (self._directory, self._directory + ".damaged"):
            self._files.makedirs(directory)
            remove_directory(self._files, directory)


def goes_on(old: GroupLog, offer: Offer) -> bool:
    """True if the old log's entries after the offer's end continue the offer. Raises NotNow if the old log cannot show it."""
    if old.last_index <= offer.index:
        return True
    term = old.term_at(offer.index)
    if old.first_index - 1 > offer.index or (offer.index and not term):
        held = f"[{old.first_index}, {old.last_index}]"
        raise NotNow(f"group {offer.group} was received up to entry {offer.index}, the log here holds {held}")
    return term == offer.term  # else the old log's entries from there on were never committed
