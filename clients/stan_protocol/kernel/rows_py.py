"""The rows kernel in plain Python: messages from and to columns, and sets of ids; the work per message of batches and Spark.

Has the same results as its compiled twin, rows.pyx, byte for byte. Rows are messages without sequence, as BatchRequest
and `Publishes.bodies` hold them: per row u32 little-endian length, then MsgProto's fields reply (3), data (4), headers (16) and
key (17) as encoded, absent when empty, in this order and nothing else. Columns have the form of Arrow's binary arrays: int32
offsets and the bytes of all values, one behind the other. Written to be read: the compiled twin is the fast one.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b
from struct import Struct, pack
from typing import NamedTuple

from stan_protocol.kernel.wire_py import (
    HEADER_TAG,
    KEY_TAG,
    behind_texts,
    is_header,
    long_text,
    read_fields,
    read_varint,
    records_in,
    text,
)
from stan_protocol.kernel.wire_py import number as number_field
from stan_protocol.limits import KEY_BYTES_MAX
from stan_protocol.parted import NO_SLOT, slot_of_key

KERNEL_VERSION = 4
"""Raised with every change of the contract; a compiled twin with another one is not used."""

ID_BYTES = 16
"""Size of an id of an `IdSet`."""

Buffer = bytes | bytearray | memoryview
"""Whatever shows its bytes; the compiled twin and this one take an Arrow buffer, too."""
Headers = Seq[tuple[bytes, bytes]]
"""Of one row: pairs of key and value."""

_LENGTH = Struct("<I")
_OFFSET_MAX = (1 << 31) - 1
_REPLY_TAG, _DATA_TAG = b"\x1a", b"\x22"
_WIRES = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 0, 7: 0, 10: 0, 16: 2, 17: 2}


class Columns(NamedTuple):
    """Messages as columns."""

    sequences: bytes  # int64 little-endian each
    timestamps: bytes  # int64 little-endian each, Unix ns
    data_offsets: bytes  # int32 little-endian, one more than there are messages
    data: bytes
    reply_offsets: bytes  # as data_offsets
    replies: bytes
    headers: list[Headers] | None  # of each message, () for none; None: not requested
    keys: tuple[bytes, bytes] | None  # offsets as data_offsets, and the keys; None: not requested


# --- into rows ---------------------------------------------------------------------------------------------------


def pack_rows(
    offsets: Buffer,
    data: Buffer,
    first: int,
    count: int,
    *,
    replies: tuple[Buffer, Buffer, int] | None = None,
    headers: bytes | Seq[Headers | None] | None = None,
    keys: tuple[Buffer, Buffer, int] | None = None,
) -> bytes:
    """Rows out of columns.

    Args:
        offsets: int32 little-endian; value i of the column is `data[offsets[i]:offsets[i + 1]]`.
        data: the bytes of all values.
        first: place of the first row's value in the column (an Arrow array's offset).
        count: of rows.
        replies: offsets, data and first of the replies' column; None: no row has one.
        headers: of each row; or of all rows alike, as encoded (see `encode_headers`); None: no row has any.
        keys: offsets, data and first of the keys' column; None: no row has one.

    Raises:
        ValueError: the offsets are too few, decrease or lie outside of the data; or the headers are not as many as the rows.
    """
    places = _places(offsets, data, first, count)
    view = memoryview(data).cast("B")
    reply_of, key_of = _texts_of(replies, count), _texts_of(keys, count)
    if headers is None or isinstance(headers, bytes):
        ends: Iterable[bytes] = [headers or b""] * count
    else:
        if len(headers) != count:
            raise ValueError("headers are not as many as rows")
        ends = [encode_headers(pairs) if pairs else b"" for pairs in headers]
    parts: list[bytes] = []
    for row, end in enumerate(ends):
        key = key_of(row)
        content = text(3, reply_of(row)) + text(4, bytes(view[places[row] : places[row + 1]])) + end
        content += long_text(KEY_TAG, key) if key else b""
        parts += (_LENGTH.pack(len(content)), content)
    return b"".join(parts)


def encode_headers(pairs: Headers) -> bytes:
    """Headers as they stand in a row."""
    parts: list[bytes] = []
    for key, value in pairs:
        parts.append(long_text(HEADER_TAG, text(1, key) + text(2, value)))
    return b"".join(parts)


def _texts_of(column: tuple[Buffer, Buffer, int] | None, count: int) -> Callable[[int], bytes]:
    """Returns a row's value in an optional column: offsets, data, and the place of the first row."""
    if column is None:
        return lambda _row: b""
    places, view = _places(*column, count), memoryview(column[1]).cast("B")
    return lambda row: bytes(view[places[row] : places[row + 1]])


def _places(offsets: Buffer, data: Buffer, first: int, count: int) -> Seq[int]:
    if first < 0 or count < 0:
        raise ValueError("first and count cannot be negative")
    if count + 1 > memoryview(offsets).nbytes // 4 - first:
        raise ValueError("fewer offsets than rows")
    places = Struct(f"<{count + 1}i").unpack_from(offsets, 4 * first)
    before = 0
    for place in places:
        if place < before:
            raise ValueError("offsets decrease")
        before = place
    if before > memoryview(data).nbytes:
        raise ValueError("offsets lie outside of the data")
    return places


# --- rows --------------------------------------------------------------------------------------------------------


def check_rows(rows: bytes, count: int) -> int:
    """The place of the first row that is not well-formed, or missing, or one too many; -1: they are *count* good ones."""
    at = row = 0
    while at < len(rows) and row < count:
        stop = _row_end(rows, at)
        if stop < 0 or not _is_good(rows, at + 4, stop):
            return row
        at, row = stop, row + 1
    return -1 if at == len(rows) and row == count else row


def _row_end(rows: Buffer, at: int) -> int:
    """Return the end of the row at *at*; -1 if it is cut off."""
    if at + 4 > len(rows):
        return -1
    end = at + 4 + int(_LENGTH.unpack_from(rows, at)[0])
    return end if end <= len(rows) else -1


def _is_good(rows: bytes, at: int, end: int) -> bool:
    """Return True if [at, end) has the fields of a row."""
    try:
        at = behind_texts(rows, at, end, (_REPLY_TAG, _DATA_TAG))
        while rows.startswith(HEADER_TAG, at, end):
            size, at = read_varint(rows, at + 2, end)
            if at + size > end or not is_header(rows[at : at + size]):
                return False
            at += size
        if rows.startswith(KEY_TAG, at, end):
            size, at = read_varint(rows, at + 2, end)
            if not 0 < size <= KEY_BYTES_MAX:
                return False
            at += size
    except ValueError:
        return False
    return at == end


def pick_rows(rows: bytes, mask: bytes) -> bytes:
    """The rows whose byte of *mask* is not 0.

    Raises:
        ValueError: a row is cut off, or the rows are not as many as the mask tells.
    """
    parts: list[bytes] = []
    at = 0
    for chosen in mask:
        stop = _row_end(rows, at)
        if stop < 0:
            raise ValueError("row cut off")
        if chosen:
            parts.append(rows[at:stop])
        at = stop
    if at != len(rows):
        raise ValueError("more rows than the mask tells")
    return b"".join(parts)


def behind(records: Buffer, at: int, count: int, bytes_max: int) -> tuple[int, int]:
    """Return how many of the next *count* records from place *at* on are within *bytes_max*, and the place after them.

    Records are any bytes after their u32 little-endian length. Raises ValueError: one that was looked at is cut off, or there
    is no such place.
    """
    view = memoryview(records)
    if not 0 <= at <= len(view):
        raise ValueError("no such place")
    begin, number = at, 0
    while number < count:
        stop = _row_end(view, at)
        if stop < 0:
            raise ValueError("record cut off")
        if stop - begin > bytes_max:
            break
        at, number = stop, number + 1
    return number, at


def seal(channel: bytes, base_sequence: int, timestamp: int, bodies: Seq[bytes]) -> bytes:
    """The record batch of *bodies* (`Publishes.bodies`, in this order): u32 length and MsgProto per message.

    Args:
        channel: its name.
        base_sequence: of the first message, 1 or more; all sequences fit into 64 bits.
        timestamp: the leader's, Unix nanoseconds, the same for all.
        bodies: any number of blobs.

    Raises:
        ValueError: a body is cut off, or *base_sequence* is below 1.

    Source: STAN-SPEC 2.1, MsgProto.
    """
    if base_sequence < 1:
        raise ValueError("base_sequence must be 1 or more")
    tail = number_field(5, timestamp)
    parts: list[bytes] = []
    sequence, name = base_sequence, text(2, channel)
    for blob in bodies:
        for start, end in records_in(blob):
            record = number_field(1, sequence) + name + blob[start:end] + tail
            parts += (_LENGTH.pack(len(record)), record)
            sequence += 1
    return b"".join(parts)


def slots(records: bytes | bytearray | memoryview) -> tuple[bytes, bytes]:
    """Slots of the messages of a record batch, and where their records end.

    Returns: for each record the slot of its message (u16, little-endian): a hash of its key (`MsgProto.key`) below SLOTS, equal
    on every node, or NO_SLOT without a key or if the record is no MsgProto; and for each record the place behind its last byte
    (u32, little-endian).

    Raises:
        ValueError: a record is cut off.

    Cost: O(len(records)).
    """
    data = bytes(records)
    slots: list[int] = []
    ends: list[int] = []
    for start, end in records_in(data):
        slots.append(_slot_of(data[start:end]))
        ends.append(end)
    return pack(f"<{len(slots)}H", *slots), pack(f"<{len(ends)}I", *ends)


def _slot_of(record: bytes) -> int:
    key = b""
    try:
        for field, wire, _, start, stop in read_fields(record):
            if field == 17:
                if wire != 2:
                    return NO_SLOT
                key = record[start:stop]
    except ValueError:
        return NO_SLOT
    return slot_of_key(key) if key else NO_SLOT


# --- out of records ----------------------------------------------------------------------------------------------


def columns(records: Buffer, count: int, *, headers: bool = False, keys: bool = False) -> Columns:
    """The columns of stored messages, as an answer to a fetch holds them: u32 little-endian length and MsgProto each.

    Args:
        records: *count* of them, and nothing else.
        count: of messages.
        headers: return them, too, which costs objects per message.
        keys: return them, too.

    Raises:
        ValueError: a message is cut off or no MsgProto, they are not *count*, or a column has 2 GiB or more.

    Source: STAN-SPEC 2.1, MsgProto.
    """
    if count < 0:
        raise ValueError("count cannot be negative")
    whole = bytes(records)
    decoded: list[tuple[int, int, bytes, bytes, Headers, bytes]] = []
    at = 0
    while at < len(whole):
        stop = _row_end(whole, at)
        if stop < 0:
            raise ValueError("record cut off")
        if len(decoded) == count:
            raise ValueError("more records than were told")
        decoded.append(_message(whole[at + 4 : stop], headers=headers))
        at = stop
    if len(decoded) != count:
        raise ValueError("fewer records than were told")
    data, replies = [message[2] for message in decoded], [message[3] for message in decoded]
    named = [message[5] for message in decoded]
    return Columns(
        _packed("q", [message[0] for message in decoded]),
        _packed("q", [message[1] for message in decoded]),
        _offsets(data),
        b"".join(data),
        _offsets(replies),
        b"".join(replies),
        [message[4] for message in decoded] if headers else None,
        (_offsets(named), b"".join(named)) if keys else None,
    )


def _message(body: bytes, *, headers: bool) -> tuple[int, int, bytes, bytes, Headers, bytes]:
    """Return sequence, timestamp, data, reply, headers, if requested, and key of one record."""
    numbers = {1: 0, 5: 0}
    texts = {3: b"", 4: b"", 17: b""}
    pairs: list[tuple[bytes, bytes]] = []
    for field, wire, value, start, end in read_fields(body):
        if wire != _WIRES.get(field, wire):
            raise ValueError("not a MsgProto")
        numbers[field] = value
        texts[field] = body[start:end]
        if field == 16 and headers:
            pairs.append(_pair(body[start:end]))
    return _signed(numbers[1]), _signed(numbers[5]), texts[4], texts[3], tuple(pairs), texts[17]


def _pair(content: bytes) -> tuple[bytes, bytes]:
    key = value = b""
    for field, wire, _, start, end in read_fields(content):
        if field <= 2 and wire != 2:
            raise ValueError("not a header")
        if field == 1:
            key = content[start:end]
        elif field == 2:
            value = content[start:end]
    return key, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _packed(code: str, values: list[int]) -> bytes:
    return Struct(f"<{len(values)}{code}").pack(*values)


def _offsets(values: list[bytes]) -> bytes:
    places = [0]
    at = 0
    for value in values:
        at += len(value)
        places.append(at)
    if at > _OFFSET_MAX:
        raise ValueError("a column of 2 GiB or more")
    return _packed("i", places)


# --- ids ---------------------------------------------------------------------------------------------------------


def digests(offsets: Buffer, data: Buffer, first: int, count: int, *, salt: bytes = b"", person: bytes = b"") -> bytes:
    """An id of each value of a column, made of its bytes: BLAKE2b of ID_BYTES.

    Args:
        offsets: as of `pack_rows`.
        data: as of `pack_rows`.
        first: as of `pack_rows`.
        count: of values.
        salt: 16 bytes at most, which the ids depend on.
        person: the same once more.

    Raises:
        ValueError: as of `pack_rows`; or *salt* or *person* is too long.

    Source: RFC 7693 and the BLAKE2 specification, 2.8 (salt and personalization).
    """
    places, view = _places(offsets, data, first, count), memoryview(data).cast("B")
    if max(len(salt), len(person)) > blake2b.SALT_SIZE:
        raise ValueError("salt and person have 16 bytes at most")
    return b"".join(
        blake2b(view[places[row] : places[row + 1]], digest_size=ID_BYTES, salt=salt, person=person).digest()
        for row in range(count)
    )


class IdSet:
    """A set of ids of ID_BYTES bytes each, with calls for many at once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._known)

    def add(self, ids: bytes) -> bytes:
        """Put *ids* in; of each, 1 if it was not there, also not further ahead in *ids*, else 0. Raises ValueError: cut off."""
        known = self._known
        mask = bytearray()
        for item in _items(ids):
            mask.append(item not in known)
            known.add(item)
        return bytes(mask)

    def missing(self, ids: bytes) -> bytes:
        """Return for each of *ids* 1 if it is not there, else 0. Raises ValueError: cut off."""
        known = self._known
        return bytes([item not in known for item in _items(ids)])


def pick_ids(ids: bytes, mask: bytes) -> bytes:
    """The ids whose byte of *mask* is not 0. Raises ValueError: they are not as many."""
    if len(ids) != ID_BYTES * len(mask):
        raise ValueError("ids are not as many as the mask tells")
    return b"".join([item for item, chosen in zip(_items(ids), mask, strict=True) if chosen])


def _items(ids: bytes) -> list[bytes]:
    if len(ids) % ID_BYTES:
        raise ValueError("an id is cut off")
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
