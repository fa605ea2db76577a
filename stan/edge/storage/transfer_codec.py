"""The messages of a transfer: requests, answers, and the offer. Fixed layouts, little-endian, a CRC-32 at the end.

Promises: `decode` returns only sent messages; a decoded offer makes sense: its numbers fit together.
"""

import zlib
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import NamedTuple

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.errors import Damage
from stan.log.files.segment import POSITION_MAX, SEGMENT_HEADER_SIZE

VERSION = 1
_HEADER = Struct("<BBBxIQIIQ")  # version, verb, status, group, session, part, length, offset
_CRC = Struct("<I")
LENGTH = Struct("<Q")
OFFER = Struct("<IQIQQI")  # group, index, term, first index, bytes of the state, segments
_SEGMENT = Struct("<QQH")  # first index, bytes, generation


class Verb(IntEnum):
    """The kinds of requests."""

    OPEN = 1
    READ = 2
    CLOSE = 3


class Status(IntEnum):
    """The kinds of answers: the requested content, or an error text."""

    FINE = 0
    REFUSED = 1


class Header(NamedTuple):
    """The header of a request, and of its answer."""

    verb: int
    status: int
    group: int
    session: int
    part: int
    length: int
    offset: int


def encode(words: Header, content: bytes = b"") -> bytes:
    """A request or an answer."""
    header = _HEADER.pack(VERSION, *words)
    return b"".join((header, content, _CRC.pack(zlib.crc32(content, zlib.crc32(header)))))


def decode(data: bytes) -> tuple[Header, memoryview] | None:
    """Decode a request or an answer, its content without a copy; None if these are not the sent bytes."""
    if len(data) < _HEADER.size + _CRC.size:
        return None
    view = memoryview(data)
    if _CRC.unpack(view[-_CRC.size :])[0] != zlib.crc32(view[: -_CRC.size]) or data[0] != VERSION:
        return None
    return Header(*_HEADER.unpack_from(data)[1:]), view[_HEADER.size : -_CRC.size]


class OfferedSegment(NamedTuple):
    """A segment of an offer."""

    first_index: RaftIndex
    length: int
    generation: int


@dataclass(frozen=True)
class Offer:
    """The parts of a transfer: the state of a group as of an entry, and the segments of its log up to that entry."""

    group: GroupId
    index: RaftIndex  # newest entry, applied in the state
    term: Term
    first_index: RaftIndex  # from here on no entry is missing
    state_bytes: int  # length of the pb.Snapshot
    segments: tuple[OfferedSegment, ...]

    def encode(self) -> bytes:
        """The offer as bytes."""
        front = OFFER.pack(self.group, self.index, self.term, self.first_index, self.state_bytes, len(self.segments))
        return front + b"".join(_SEGMENT.pack(*part) for part in self.segments)

    @classmethod
    def decode(cls, data: bytes) -> "Offer":
        """The inverse of `encode`; raises Damage if the offer makes no sense."""
        try:
            group, index, term, first_index, state_bytes, count = OFFER.unpack_from(data)
            segments = tuple(OfferedSegment(*part) for part in _SEGMENT.iter_unpack(data[OFFER.size :]))
        except StructError as error:
            raise Damage(f"offer of {len(data)} bytes: {error}") from error
        firsts = [part.first_index for part in segments]
        if (
            len(segments) != count
            or not segments
            or firsts != sorted(set(firsts))
            or not 1 <= firsts[0] <= first_index <= index + 1
            or firsts[-1] > index + 1
            or not all(SEGMENT_HEADER_SIZE <= part.length <= POSITION_MAX for part in segments)
        ):
            raise Damage(f"offer up to entry {index} makes no sense: {segments[:3]} … {segments[-1:]}")
        return cls(GroupId(group), RaftIndex(index), Term(term), RaftIndex(first_index), state_bytes, segments)
