"""Transfer of a group to a member that lacks entries no longer in the leader's log: the state first, then raw segment files.

    receiver                     sender
    open(session, group)   →     links the group's files aside, answers with the length of its offer
    read(part, offset) …   →     bytes of the offer (part 0), of the state (part 1), of the segments (2 …)
    close(session)         →     removes the links

The receiver has several reads outstanding at a time. Each answer names its request, so late and repeated answers do no harm, and
the caller may send any request again. What is offered is a committed prefix of the log and never changes. Message bodies are in
segments only, and holes between segments arrive as they are.

Promises: received files equal the sent ones (each answer has a CRC, and each entry is verified once more at the end);
the received files stay in a directory of their own until `Storage.install`. No clock, no network, no tasks in here.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from stan_protocol.scalars import GroupId, Nanos, RaftIndex

from stan import limits
from stan.edge.storage.received_files import ReceivedFiles
from stan.edge.storage.transfer_codec import LENGTH, OFFER, Header, Offer, OfferedSegment, Status, Verb, decode, encode
from stan.errors import Damage, NotNow, StanError, fault
from stan.log.encryption import Cipher
from stan.log.files.disk import Files, remove_directory
from stan.log.files.segment import segment_name
from stan.log.files.segments import Extent
from stan.log.types import GroupLog
from stan.state.database import StoredState

# --- sending ----------------------------------------------------------------------------------------------------------


class Export(NamedTuple):
    """The log of a group, its files linked into a directory."""

    first_index: RaftIndex
    extents: list[Extent]


@dataclass
class _Session:
    group: int
    directory: str
    parts: list[bytes | tuple[str, int]]  # bytes, or path and length
    deadline: int


class Sender:
    """Answers the requests of all receivers. `handle` blocks for a read of a chunk at most; `read` is for a worker thread.

    Args:
        files: the disk.
        directory: for the links of sessions; a start empties it.
        read: reads the state of a group, with the content of a snapshot file; blocks. Raises NotNow, Damage.
        export: links a group's files up to the entry of a state into a directory, or raises NotNow.
        now: monotonic time.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        read: Callable[[GroupId], StoredState],
        export: Callable[[GroupId, StoredState, str], Export],
        now: Callable[[], Nanos],
    ) -> None:
        self._files = files
        self._directory = directory
        self.read = read
        self._export = export
        self._now = now
        self._sessions: dict[int, _Session] = {}

    def opens(self, request: bytes) -> GroupId | None:
        """Return the group whose state `handle` needs for this request to open a session; None: it opens none."""
        decoded = decode(request)
        if decoded is None or decoded[0].verb != Verb.OPEN or decoded[0].session in self._sessions:
            return None
        return None if len(self._sessions) >= limits.TRANSFER_SESSIONS_MAX else GroupId(decoded[0].group)

    def handle(self, request: bytes, state: StoredState | Exception | None = None) -> bytes:
        """Return the answer to a request; b"" if the bytes are no request. *state*: of the group that it `opens`, or the error
        instead."""
        decoded = decode(request)
        if decoded is None:
            return b""
        header = decoded[0]
        try:
            self.expire()
            content = self._answer(header, state)
        except Exception as error:  # noqa: BLE001 - the border of the group
            return encode(header._replace(status=Status.REFUSED), fault(error).encode())
        return encode(header._replace(status=Status.FINE), content)

    def _answer(self, header: Header, state: StoredState | Exception | None) -> bytes:
        if header.verb == Verb.CLOSE:
            self._end(header.session)
            return b""
        session = self._sessions.get(header.session)
        if session is None and header.verb == Verb.OPEN:
            session = self._open(header, state)
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

    def _open(self, header: Header, state: StoredState | Exception | None) -> _Session:
        if isinstance(state, Exception):
            raise state
        if state is None:
            raise NotNow("too many transfers at once")
        directory = f"{self._directory}/{header.session:016x}"
        self._files.makedirs(directory)
        try:
            first_index, extents = self._export(GroupId(header.group), state, directory)
        except BaseException:
            remove_directory(self._files, directory)
            raise
        offer = Offer(
            GroupId(header.group),
            state.applied_index,
            state.applied_term,
            first_index,
            len(state.content),
            tuple(OfferedSegment(extent.first_index, extent.length, extent.generation) for extent in extents),
        )
        links = [(f"{directory}/{segment_name(extent.first_index)}", extent.length) for extent in extents]
        session = _Session(header.group, directory, [offer.encode(), state.content, *links], 0)
        self._sessions[header.session] = session
        return session

    def expire(self) -> None:
        """End the sessions without a request for TRANSFER_LEASE."""
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
            with suppress(OSError):  # a start removes the rest
                remove_directory(self._files, session.directory)


# --- receiving --------------------------------------------------------------------------------------------------------


class TransferStep(NamedTuple):
    """The next step of the caller: requests to send; *done* and *failed* come once, at the end."""

    requests: list[bytes]
    done: bool = False
    failed: str = ""


NOTHING = TransferStep([])


class ChunkRequests:
    """The requests of a receiver in one session: planned ones, and those without an answer yet."""

    def __init__(self, group: GroupId, chunk_bytes: int) -> None:
        """*chunk_bytes*: content of one request."""
        self.chunk_bytes = chunk_bytes
        self._group = group
        self._session = 0
        self._outstanding: dict[tuple[int, int, int], bytes] = {}  # verb, part, offset -> request
        self._planned: Iterator[tuple[int, int, int]] = iter(())  # part, offset, length

    def begin(self, session: int) -> bytes:
        """Forget the last session; returns the request that opens the new one."""
        self._outstanding.clear()
        self._session = session
        self._planned = iter(())
        return self._ask(Verb.OPEN)

    def end(self) -> None:
        """End the session; no answer counts until `begin`."""
        self._outstanding.clear()
        self._session = -1

    def plan(self, lengths: dict[int, int]) -> None:
        """Plan the requests for these parts, given with their lengths."""
        self._planned = self._chunks(lengths)

    def _chunks(self, lengths: dict[int, int]) -> Iterator[tuple[int, int, int]]:
        for part, length in lengths.items():
            for offset in range(0, length, self.chunk_bytes):
                yield part, offset, min(self.chunk_bytes, length - offset)

    def next_requests(self) -> list[bytes]:
        """Requests to send now: as many as may be outstanding."""
        requests = []
        while len(self._outstanding) < limits.TRANSFER_WINDOW:
            chunk = next(self._planned, None)
            if chunk is None:
                break
            requests.append(self._ask(Verb.READ, *chunk))
        return requests

    def _ask(self, verb: Verb, part: int = 0, offset: int = 0, length: int = 0) -> bytes:
        request = encode(Header(verb, 0, self._group, self._session, part, length, offset))
        self._outstanding[verb, part, offset] = request
        return request

    def outstanding(self) -> list[bytes]:
        """All requests that are not answered, as they were sent."""
        return list(self._outstanding.values())

    def is_outstanding(self, answer: Header) -> bool:
        """True if this answers a waiting request of this session."""
        key = (answer.verb, answer.part, answer.offset)
        return answer.session == self._session and answer.group == self._group and key in self._outstanding

    def answered(self, answer: Header) -> None:
        """Note that a request is answered."""
        del self._outstanding[answer.verb, answer.part, answer.offset]

    def closing(self) -> bytes:
        """The request that ends the session at the sender; it needs no answer."""
        return encode(Header(Verb.CLOSE, 0, self._group, self._session, 0, 0, 0))


class Receiver:
    """Receives one group: `begin`, `accept` until it is done, `finish`, then Storage.install.

    After a failure, `begin` leaves complete files in place. `accept` writes to the disk and may run in a worker thread, one call
    at a time.

    Args:
        files: the disk.
        directory: of its own, made by `accept`.
        group: its number.
        store_id: of this node's logs; replaces the sender's.
        cipher: of this node's logs; has to decrypt the sender's segments.
        chunk_bytes: content that one request asks for; an answer is a little longer.
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
        self._received = ReceivedFiles(files, directory, group, store_id, cipher)
        self._requests = ChunkRequests(group, chunk_bytes)
        self._offer_bytes = bytearray()
        self._offer_missing = 0

    def begin(self, session: int) -> list[bytes]:
        """Begin, or begin again; *session* is a new random number of 64 bits. Returns the requests to send."""
        self._received.forget_incomplete()
        self.offer, self.finished = None, False
        return [self._requests.begin(session)]

    def repeat(self) -> list[bytes]:
        """All requests that are not answered, to be sent again if no answer comes for a while."""
        return self._requests.outstanding()

    def accept(self, answer: bytes) -> TransferStep:
        """Accept an answer; bytes that answer no outstanding request change nothing."""
        decoded = decode(answer)
        if decoded is None:
            return NOTHING
        header, content = decoded
        if not self._requests.is_outstanding(header):
            return NOTHING
        if header.status != Status.FINE:
            return self._fail(str(content, errors="replace"))
        self._requests.answered(header)
        try:
            if header.verb == Verb.OPEN:
                self._opened(content)
            elif len(content) != header.length:
                return self._fail(f"part {header.part} ends {header.length - len(content)} bytes early")
            elif header.part == 0:
                self._take_offer(header.offset, content)
            else:
                self._received.write(header.part, header.offset, content)
        except (OSError, StanError) as error:
            return self._fail(str(error))
        return self._go_on()

    def _go_on(self) -> TransferStep:
        requests = self._requests.next_requests()
        if self._requests.outstanding() or self.offer is None:
            return TransferStep(requests)
        return TransferStep([self._requests.closing()], done=True)

    def _fail(self, why: str) -> TransferStep:
        self._requests.end()
        self._received.forget_incomplete()
        return TransferStep([], failed=why)

    def _opened(self, content: bytes | memoryview) -> None:
        if len(content) != LENGTH.size:
            raise Damage("an offer's length is not a number")
        length = LENGTH.unpack(content)[0]
        if not OFFER.size <= length <= limits.TRANSFER_OFFER_BYTES_MAX:
            raise Damage(f"an offer of {length} bytes")
        self._offer_bytes = bytearray(length)
        self._offer_missing = length
        self._requests.plan({0: length})

    def _take_offer(self, offset: int, content: bytes | memoryview) -> None:
        self._offer_bytes[offset : offset + len(content)] = content
        self._offer_missing -= len(content)
        if self._offer_missing:
            return
        offer = Offer.decode(bytes(self._offer_bytes))
        if offer.group != self.group:
            raise Damage(f"an offer of group {offer.group}, not {self.group}")
        missing = self._received.expect(offer)
        self.offer = offer
        self._requests.plan(missing)

    def finish(self) -> None:
        """Make everything durable and verify every entry. Blocking, for a worker thread; no other method is called meanwhile.

        Raises:
            NotNow: not everything was received.
            Damage: the files are not the offered ones; the next `begin` starts from nothing.
            OSError: the disk fails.
        """
        if self.offer is None or not self._received.is_complete:
            raise NotNow("not everything was received")
        self._received.finish(self.offer)
        self.finished = True

    def discard(self) -> None:
        """Remove all received files."""
        self._requests.end()
        self.offer, self.finished = None, False
        self._received.discard()


def goes_on(old: GroupLog, offer: Offer) -> bool:
    """True if the old log's entries after the offer's end continue the offer. Raises NotNow if the old log cannot show it."""
    if old.last_index <= offer.index:
        return True
    term = old.term_at(offer.index)
    if old.first_index - 1 > offer.index or (offer.index and not term):
        present = f"[{old.first_index}, {old.last_index}]"
        raise NotNow(f"group {offer.group} was received up to entry {offer.index}, the log here holds {present}")
    return term == offer.term  # else the old log's entries from there on were never committed
