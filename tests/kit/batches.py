"""Entries with record batches for tests of the log: messages of a chosen size whose bytes tell what they are."""

from stan_protocol.compression import zstd_module
from stan_protocol.proto import wire_pb2 as wire

from stan.log.types import Entry
from stan.protocol.compressed_batches import stored_form
from stan.protocol.entries import STAGING_UID, Kind, Reference, encode_batch, encode_references
from stan.protocol.kernel import server as kernel
from stan.protocol.staged import sealed, staged_body


def records(uid, base, count, size=20):
    """*count* messages of *size* bytes, each a repetition of its channel and sequence."""
    parts = []
    for sequence in range(base, base + count):
        parts += [size.to_bytes(4, "little"), (f"<{uid}:{sequence}>" * size)[:size].encode()]
    return b"".join(parts)


def rows_of(payloads):
    """Rows as requests carry them, one for each of *payloads*."""
    return rows_of_messages([wire.MsgProto(data=payload) for payload in payloads])


def rows_of_messages(messages):
    """Rows as requests carry them, one for each MsgProto."""
    rows = [message.SerializeToString() for message in messages]
    return b"".join(len(row).to_bytes(4, "little") + row for row in rows)


def full_messages(count):
    """*count* messages of which each has data, and some a reply, some a key, some headers, also of bytes that are no text."""
    headers = (
        wire.Header(key=b"trace", value=b"t\xc3\xbc"),
        wire.Header(key=b"trace", value=b"\xff\x00"),
        wire.Header(),
    )
    return [
        wire.MsgProto(
            data=b"%d" % at,
            reply=b"answers" if at % 2 else b"",
            key=(b"", b"customer %d" % at, b"\x00\xfe")[at % 3],
            headers=headers[: at % 4],
        )
        for at in range(count)
    ]


def batch(uid, base, count, timestamp=0, first=0, size=20):
    """Header and records of one batch."""
    return b"".join(encode_batch(uid, base, count, timestamp or base * 10, first, records(uid, base, count, size)))


def compressed(uid, base, count, timestamp, rows, first=0):
    """Header and records of one batch of *rows* that is compressed, if that makes it smaller at all."""
    made = kernel.seal(b"foo", base, timestamp, [rows])
    return b"".join(
        encode_batch(uid, base, count, timestamp, first, *stored_form(b"foo", zstd_module().compress(rows), made))
    )


def compressed_batch(uid, base, count, timestamp=0, size=20):
    """As `batch`, compressed."""
    rows = rows_of([(f"<{uid}:{base}>" * size)[:size].encode()] * count)
    return compressed(uid, base, count, timestamp or base * 10, rows)


def staged_records(sequence, channel, rows, timestamp):
    """The records of the hidden channel's message *sequence*, with rows for a channel."""
    return kernel.seal(b"_STAN.staged", sequence, timestamp, [staged_body(channel, rows)])


def staged_batch(sequence, channel, rows, timestamp=1, first=0):
    """Header and records of a part of a transaction."""
    records = staged_records(sequence, channel, rows, timestamp)
    return b"".join(encode_batch(STAGING_UID, sequence, 1, timestamp, first, records))


def references(*parts, uid, base, timestamp, first=0, expiry=0):
    """References of a channel, one behind the other, to *parts*: each the records of a part, its sequence, and its count."""
    made = []
    for records, sequence, count in parts:
        size = len(sealed(records, base, timestamp, expiry))
        made.append(Reference(uid, base, count, timestamp, first, sequence, size, expiry))
        base += count
    return b"".join(encode_references(made))


def entry(index, *batches, term=1):
    """An entry of record batches."""
    return Entry(index, term, Kind.RECORDS, b"".join(batches))


def change(index, body=b"change", term=1):
    """An entry of another kind."""
    return Entry(index, term, Kind.CHANGE, body)
