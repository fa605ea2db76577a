"""The choice of the traced messages, and their ids; pure.

Every node chooses the same messages and ids by itself, from the sequences: so a trace goes on under the next leader.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError
from stan_protocol.proto import wire_pb2 as wire

from stan.protocol.entries import BATCH_HEADER, BESIDE_UID, CHANGE_FLAG
from stan.protocol.kernel import server as kernel

HEADER = b"traceparent"
CHANNELS_MAX = 10_000
"""Channels of which the newest chosen message is remembered."""
CARRIED_MAX = 100
"""Messages of one record batch that are traced because they bring the context of a trace along."""
_SAMPLED = re.compile(rb"\x0a\x0btraceparent\x12\x3700-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]")
"""A Header as encoded, whose trace is sampled; may stand in a payload, too."""
_KEY = b"\x0a\x0btraceparent"
"""The beginning of each of these: a search for it without a match costs far less than one for the whole."""
_CONTEXT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_HEADER = Struct("<IQI16xI4xI").unpack_from
"""Of the header of a record batch: uid, base sequence, count, length, flags."""
_HEADER_BYTES = BATCH_HEADER.size
_NONE = (-1, 0)
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)  # odd, with bits of no pattern: neighbours get far apart
_MASK = (1 << 64) - 1


class SpanIds(NamedTuple):
    """A span: its trace, and its place there."""

    trace: int
    span: int


class Carried(NamedTuple):
    """A message of a record batch that is considered, with its own context."""

    sequence: int
    parent: SpanIds | None  # None: it brings no context
    sampled: bool  # its trace is; True if it brings none
    size: int  # of its payload


class Sampler:
    """The choice of one message in each block of *period* sequences of a channel, at a place by a hash of channel and block."""

    def __init__(self, period: int) -> None:
        """*period*: 1 for each message, 1000 for one in a thousand."""
        self._period = period
        self._newest: dict[int, tuple[int, int]] = {}  # by channel: a block, and its chosen sequence

    def within(self, uid: int, first: int, last: int) -> Iterator[int]:
        """The chosen sequences in [first, last], in order. Costs nothing for each message, only for each block."""
        period = self._period
        for block in range(first // period, last // period + 1):
            mixed = (block * _MULTIPLIERS[0] ^ uid * _MULTIPLIERS[1]) & _MASK
            sequence = block * period + (mixed >> 29) % period
            if first <= sequence <= last:
                yield sequence

    def concerns(self, body: bytes) -> bool:
        """False if nothing in the body of a RECORDS entry matters: no message is chosen, none brings a context along,
        and there is no change. That is so of nearly all entries, and this check is their whole cost of tracing."""
        if _KEY in body:
            return True
        at, end = 0, len(body)
        while at < end:
            uid, first, count, length, flags = _HEADER(body, at)
            at += _HEADER_BYTES + length
            if uid != BESIDE_UID:
                block, chosen = self._newest.get(uid, _NONE)
                last = first + count - 1
                if first // self._period != block or last // self._period != block:
                    chosen = next(self.within(uid, first, last), 0)
                    if chosen:
                        return True
                    block = last // self._period
                    begin = block * self._period
                    if (
                        len(self._newest) >= CHANNELS_MAX
                    ):  # deleted ones, too: they are forgotten, and others read again
                        self._newest.clear()
                    self._newest[uid] = block, next(self.within(uid, begin, begin + self._period - 1))
                elif first <= chosen <= last:
                    return True
            elif flags == CHANGE_FLAG:
                return True
        return False


def ids_of(*key: object) -> SpanIds:
    """Return the ids of the span named by *key*, the same on all nodes."""
    digest = blake2b(repr(key).encode(), digest_size=24).digest()
    return SpanIds(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:], "big") or 1)


def carried(records: bytes | memoryview, base: int, chosen: list[int]) -> list[Carried]:
    """Return the traced messages of a record batch that begins with sequence *base*: the *chosen* ones, and those whose own
    context is sampled. Without any, the batch is searched once, for a header."""
    starts = [match.start() for match in _SAMPLED.finditer(records)]
    if not starts and not chosen:
        return []
    ends = array("I")
    ends.frombytes(kernel.slots(records)[1])
    places = {sequence - base for sequence in chosen}
    for at in starts[:CARRIED_MAX]:
        places.add(bisect_right(ends, at))
    return [
        message
        for place in sorted(places)
        if place < len(ends)
        for message in (_read_message(records[(ends[place - 1] if place else 0) + 4 : ends[place]], base + place),)
        if message.parent is not None or message.sequence in chosen
    ]


def _read_message(record: bytes | memoryview, sequence: int) -> Carried:
    try:
        message = wire.MsgProto.FromString(bytes(record))
    except DecodeError:
        return Carried(sequence, None, sampled=True, size=0)
    for header in message.headers:
        context = _CONTEXT.fullmatch(header.value) if header.key == HEADER else None
        if context is not None and int(context[1], 16) and int(context[2], 16):
            parent = SpanIds(int(context[1], 16), int(context[2], 16))
            return Carried(sequence, parent, bool(int(context[3], 16) & 1), len(message.data))
    return Carried(sequence, None, sampled=True, size=len(message.data))
