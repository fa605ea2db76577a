"""The message slices of one channel as record batches of ours, nearly without touching a message.

The old store has MsgProto as subscribers get it, like ours: a record is copied as it is, without its checksum,
once that is right and sequence, channel and timestamp stand where the original puts them. A message that looks different, or is
encrypted, is decoded and encoded again.

A batch has one timestamp, by which messages are found and expire: it holds messages of the same 17 ms (the timestamp without its
lowest 24 bits, which is a comparison of bytes), and has the time of its newest. So a search by time misses none and begins at
most 17 ms early; each message keeps its own time to the nanosecond.

Promises: sequences only grow; damage and gaps are reported with file and offset, and reading goes on after them.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from stan_protocol.kernel.wire_py import number, read_varint, text, varint
from stan_protocol.scalars import KiB

from stan.migration.crypto import Opener
from stan.migration.records import HEADER, SIZE_MAX, VERSION, FileWindow, ProtoFields
from stan.migration.report import Note
from stan.migration.source import MessageRun

BATCH_BYTES_MAX = 256 * KiB
INDEX_RECORD_BYTES = 32

_LOW = [b"\x08%c" % low for low in range(0x80)]
_LOW_GOES_ON = [b"\x08%c" % (low | 0x80) for low in range(0x80)]
TIME_TAG = 5 << 3
TIME_SIZE = 10
"""Bytes of a timestamp with its tag: the varint of every time from 1972 to 2262 has nine."""
_TIME_HIGH = 5
"""Bytes of that varint that hold all but its lowest 28 bits; the highest four of these are in the byte in front of them."""
_NEVER = b"\xff" * 12
"""No message has this behind its channel."""
SEQUENCE_MAX = (1 << 63) - 1


class _Message(NamedTuple):
    """The fields of a decoded message."""

    sequence: int
    payload: bytes
    timestamp: int  # 0: see `timestamp_of`


class SliceReader:
    """Reads the slices of one channel, which are given in their order."""

    def __init__(self, channel: bytes, note: Note, opener: Opener | None) -> None:
        self.last = 0  # newest sequence so far
        self.faults = 0  # reported so far
        self._channel = channel
        self._subject = text(2, channel)
        self._note = note
        self._opener = opener
        self._path = ""
        self._reported = False  # the reason why the next messages are missing
        self._page = -1  # of the sequences that `_low` and `_middle` are for: all but their lowest 7 bits
        self._low = _LOW
        self._middle = b""
        self._shapes = Shapes()

    def read(self, path: Path) -> Iterator[MessageRun]:
        """The batches of one slice."""
        self._path = str(path)
        try:
            with FileWindow(path) as window:
                yield from self._read(window)
        except OSError as error:
            self._report(0, f"cannot be read: {error.strerror}")

    def _read(self, window: FileWindow) -> Iterator[MessageRun]:
        if window.size == 0:
            return
        if not window.load(0, len(VERSION)) or window.bytes_at(0, len(VERSION)) != VERSION:
            self._report(0, "not of file version 1")
        at = len(VERSION)
        while at < window.size:
            if window.right(at):
                at = yield from self._read_run(window, at)
                continue
            behind = self._behind_damage(window, at)
            if behind < 0 and window.only_zeros(at):
                return  # room that was never used
            if behind < 0:
                self._report(at, f"{self._fault(window, at)}; the other {window.size - at} bytes cannot be read")
                return
            self._report(at, f"{self._fault(window, at)}; readable again from offset {behind}")
            at = behind

    def _read_run(self, window: FileWindow, at: int) -> Generator[MessageRun, None, int]:
        """Read the valid records from *at* on that are in memory; returns the place after them."""
        data, base = window.data, window.offset
        here, end = at - base, len(window.data)
        unpack, shapes, plain = HEADER.unpack_from, self._shapes, self._opener is None
        gap, first = False, self.last + 1
        want, low, middle = self._expect(first)
        fixed = 2 + len(middle)
        parts: list[bytes] = []
        room, high, tick, stamp, payload = BATCH_BYTES_MAX, b"", 0, 0, b""
        while here + 8 <= end:
            size, crc = unpack(data, here)
            stop = here + 8 + size
            if stop > end or not size:
                break
            record = data[here + 8 : stop]
            if crc32(record) != crc:
                break
            if want >> 7 != self._page:
                want, low, middle = self._expect(want)
                fixed = 2 + len(middle)
            sequence, time, shape = want, 0, shapes[size - fixed]
            usual = (
                record.startswith(low[want & 0x7F] + middle)
                and record.startswith(shape, fixed)
                and record[-TIME_SIZE] == TIME_TAG
                and record[-1] < 0x80
            )
            if not (usual and plain):
                message = self._parse(record, base + here, (fixed, fixed + len(shape)) if usual else None)
                if message is None:
                    here = stop
                    continue
                sequence, record, time = message
            if record[-_TIME_HIGH - 1] >> 3 != tick or record[-_TIME_HIGH:] != high or room < 0 or sequence != want:
                if parts:
                    yield MessageRun(first, len(parts) >> 1, stamp or timestamp_of(payload), b"".join(parts), gap)
                    parts.clear()
                gap = sequence != want and self._missing(want, sequence, base + here)
                first, room, high, tick = sequence, BATCH_BYTES_MAX, record[-_TIME_HIGH:], record[-_TIME_HIGH - 1] >> 3
            parts += (len(record).to_bytes(4, "little"), record)
            room -= size
            payload, stamp = record, time
            self.last = sequence
            want = sequence + 1
            here = stop
        if parts:
            yield MessageRun(first, len(parts) >> 1, stamp or timestamp_of(payload), b"".join(parts), gap)
        self._reported = False
        return base + here

    def _expect(self, sequence: int) -> tuple[int, list[bytes], bytes]:
        """Return the expected beginning of the message *sequence* of the channel: number, and two parts."""
        if sequence >> 7 != self._page:
            self._page = sequence >> 7
            self._low = _LOW_GOES_ON if self._page else _LOW
            self._middle = (varint(self._page) if self._page else b"") + self._subject
        return sequence, self._low, self._middle

    def _missing(self, want: int, sequence: int, at: int) -> bool:
        """Report messages that are missing before *sequence*: True if there are any; none precede a channel's first."""
        if not self.last:
            return False
        if not self._reported:
            self._note(self._path, at, f"messages {want} to {sequence - 1} are missing here")
            self.faults += 1
        return True

    def _parse(self, payload: bytes, at: int, usual: tuple[int, int] | None) -> _Message | None:
        """Decode a message and encode it as the original would today; None if that is not possible.

        *usual*: where data with its tag, and data begin, in one that looks as expected and is to be opened only.
        """
        try:
            if usual is not None:
                head, data = usual
                content = text(4, self._opened(payload[data:-TIME_SIZE]))
                return _Message(self.last + 1, payload[:head] + content + payload[-TIME_SIZE:], 0)
            fields = ProtoFields(payload)
            sequence, stamp = fields.number(1), fields.number(5) or 1
            if not self.last < sequence <= SEQUENCE_MAX:
                raise ValueError(f"sequence {sequence} follows {self.last}")
            record = encoded(fields, self._channel, self._opened(fields.text(4)))
        except ValueError as error:
            self._report(at, f"left out: {error}")
            return None
        return _Message(sequence, record, stamp if stamp <= SEQUENCE_MAX else 1)

    def _opened(self, content: bytes) -> bytes:
        return self._opener(content) if self._opener is not None and content else content

    # --- damage -----------------------------------------------------------------------------------------------------

    def _behind_damage(self, window: FileWindow, at: int) -> int:
        """Return the place of the next valid record after *at*, -1 if there is none.

        It is where the damaged one ends by its size, or else where the channel's name follows a sequence, a tag and a header.
        """
        if window.load(at, HEADER.size):
            size: int = HEADER.unpack(window.bytes_at(at, HEADER.size))[0]
            follows = at + HEADER.size + size
            if follows < window.size and window.right(follows):
                return follows
        match = window.find(self._subject, at + 1)
        while match >= 0:
            for start in range(match - 2, max(at + HEADER.size, match - 12), -1):
                if window.load(start, 1) and window.bytes_at(start, 1) == b"\x08" and window.right(start - HEADER.size):
                    return start - HEADER.size
            match = window.find(self._subject, match + 1)
        return -1

    def _fault(self, window: FileWindow, at: int) -> str:
        """Describe the fault of the record at *at*."""
        if not window.load(at, HEADER.size):
            return "a record is cut off"
        size, crc = HEADER.unpack(window.bytes_at(at, HEADER.size))
        there = window.size - at - HEADER.size
        if not 0 < size <= SIZE_MAX:
            return f"a record cannot have {size} bytes"
        if size > there:
            return f"a record is cut off: {size} bytes announced, {there} there"
        window.load(at, HEADER.size + size)
        return f"expected crc to be 0x{crc:08x}, got 0x{crc32(window.bytes_at(at + HEADER.size, size)):08x}"

    def _report(self, at: int, fault: str) -> None:
        self._note(self._path, at, fault)
        self.faults += 1
        self._reported = True


def encoded(fields: ProtoFields, channel: bytes, data: bytes) -> bytes:
    """Return a message as the original would encode it today, with *data* for its payload."""
    content = text(2, channel) + text(3, fields.text(3)) + text(4, data)
    return number(1, fields.number(1)) + content + number(5, fields.number(5) or 1)


class Shapes(dict[int, bytes]):
    """Bytes after the channel -> the expected ones there, if data and a timestamp are all that follows."""

    def __missing__(self, size: int) -> bytes:
        between = size - TIME_SIZE
        shape = _NEVER if between else b""
        for width in range(1, 6):
            content = between - 1 - width
            if content > 0 and len(varint(content)) == width:
                shape = b"\x22" + varint(content)
        self[size] = shape
        return shape


def timestamp_of(payload: bytes) -> int:
    """Time of a message that looks as expected."""
    return read_varint(payload, len(payload) - TIME_SIZE + 1, len(payload))[0]


def newest_in_index(path: Path, hint: Note) -> int:
    """Return the sequence of the newest message in a slice's index, 0 if it has none; the original writes a damaged one again."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        hint(str(path), 0, f"cannot be read: {error.strerror}")
        return 0
    at = len(data) - (len(data) - len(VERSION)) % INDEX_RECORD_BYTES - INDEX_RECORD_BYTES
    reported = False
    while at >= len(VERSION):
        record = data[at : at + INDEX_RECORD_BYTES]
        if crc32(record[:28]) == int.from_bytes(record[28:], "little") and any(record):
            return int.from_bytes(record[:8], "little")
        if any(record) and not reported:
            hint(str(path), at, "a record of the index is damaged; the index is not needed")
            reported = True
        at -= INDEX_RECORD_BYTES
    return 0


def sample(path: Path, count: int) -> list[bytes]:
    """Payloads of the first messages of a slice, as far as they are valid."""
    payloads: list[bytes] = []
    try:
        with FileWindow(path) as window:
            at = len(VERSION)
            while len(payloads) < count and window.right(at):
                size = HEADER.unpack(window.bytes_at(at, HEADER.size))[0]
                payloads.append(ProtoFields(window.bytes_at(at + HEADER.size, size)).text(4))
                at += HEADER.size + size
    except (OSError, ValueError):
        pass
    return [payload for payload in payloads if payload]
