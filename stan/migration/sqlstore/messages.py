"""The messages of one channel of a SQL store as record batches of ours.

A row has a MsgProto as subscribers get it, like ours: it is copied as it is if it looks as expected, else decoded and encoded
again, with the sequence of its row, by which the original finds it. Batches are cut as those of a FILE store (`messages.py`).
"""

from collections.abc import Iterator
from typing import Final

from stan_protocol.kernel.wire_py import number, text
from stan_protocol.scalars import KiB

from stan.migration.crypto import Opener
from stan.migration.messages import BATCH_BYTES_MAX, SEQUENCE_MAX, TIME_SIZE, TIME_TAG, Shapes, timestamp_of
from stan.migration.records import SIZE_MAX, ProtoFields
from stan.migration.report import NoteRow
from stan.migration.source import MessageRun
from stan.migration.sqlstore.database import Row, SqlConnection

PAGE_ROWS: Final = 1000
INLINE_BYTES: Final = 16 * KiB
"""A page has payloads up to this size; larger ones are read one by one."""
WINDOW_BITS: Final = 24
"""A batch has messages of the same 2^24 ns (17 ms)."""
TABLE: Final = "Messages"
PAGE: Final = """
SELECT seq, octet_length(data), CASE WHEN octet_length(data) <= %s THEN data END
FROM Messages WHERE id = %s AND seq > %s ORDER BY seq LIMIT %s
"""
ONE: Final = "SELECT data FROM Messages WHERE id = %s AND seq = %s"
BELOW_ONE: Final = "SELECT COUNT(*) FROM Messages WHERE id = %s AND seq < 1"


class RowReader:
    """Reads the messages of one channel, page by page."""

    def __init__(
        self, connection: SqlConnection, channel_id: int, channel: bytes, note: NoteRow, opener: Opener | None
    ) -> None:
        self.last = 0  # newest sequence so far
        self.rewritten = 0  # messages that had another sequence or channel than their row
        self._connection = connection
        self._id = channel_id
        self._channel = channel
        self._subject = text(2, channel)
        self._note = note
        self._opener = opener
        self._shapes = Shapes()
        self._reported = False  # the reason why the next messages are missing

    def read(self) -> Iterator[MessageRun]:
        """The batches."""
        ((below,),) = self._connection.rows(BELOW_ONE, self._id)
        if below:
            self._report(0, f"{below} rows have sequences below 1, and are left out")
        parts: list[bytes] = []
        first = size = window = newest = 0
        gap = False
        for sequence, record, timestamp in self._records():
            if parts and (
                sequence != self.last + 1 or timestamp >> WINDOW_BITS != window or size + len(record) > BATCH_BYTES_MAX
            ):
                yield MessageRun(first, len(parts) >> 1, newest, b"".join(parts), gap)
                parts.clear()
            if not parts:
                gap = self._missing(sequence)
                first, size, window = sequence, 0, timestamp >> WINDOW_BITS
            parts += (len(record).to_bytes(4, "little"), record)
            size += len(record)
            newest = timestamp
            self.last = sequence
        if parts:
            yield MessageRun(first, len(parts) >> 1, newest, b"".join(parts), gap)

    def _records(self) -> Iterator[tuple[int, bytes, int]]:
        """Sequence, record and time of each message that can be read."""
        after = 0
        page: list[Row] = [()] * PAGE_ROWS
        while len(page) == PAGE_ROWS:
            page = self._connection.rows(PAGE, INLINE_BYTES, self._id, after, PAGE_ROWS)
            for row in page:
                after = row[0]
                try:
                    yield after, *self._record(after, self._data(row))
                except ValueError as error:
                    self._report(after, f"left out: {error}")

    def _data(self, row: Row) -> bytes:
        sequence, size, data = row
        if sequence > SEQUENCE_MAX:
            raise ValueError(f"{sequence} cannot be a sequence")
        if size is None:
            raise ValueError("data is NULL")
        if size > SIZE_MAX:
            raise ValueError(f"a message cannot have {size} bytes")
        if data is None:
            ((data,),) = self._connection.rows(ONE, self._id, sequence)
        return bytes(data)

    def _record(self, sequence: int, data: bytes) -> tuple[bytes, int]:
        """Return a message as the original would encode it, and its time."""
        head = number(1, sequence) + self._subject
        usual = (
            data.startswith(head)
            and data.startswith(self._shapes[len(data) - len(head)], len(head))
            and data[-TIME_SIZE] == TIME_TAG
            and data[-1] < 0x80
        )
        if usual and self._opener is None:
            return data, timestamp_of(data)
        fields = ProtoFields(data)
        stamp = fields.number(5)
        stamp = stamp if 0 < stamp <= SEQUENCE_MAX else 1
        content = fields.text(4)
        if self._opener is not None and content:
            content = self._opener(content)
        self.rewritten += (fields.number(1), fields.text(2)) != (sequence, self._channel)
        return head + text(3, fields.text(3)) + text(4, content) + number(5, stamp), stamp

    def _missing(self, sequence: int) -> bool:
        """Report messages that are missing before *sequence*: True if there are any; none precede a channel's first."""
        reported, self._reported = self._reported, False
        if not self.last or sequence == self.last + 1:
            return False
        if not reported:
            self._note(
                TABLE,
                f"id={self._id} seq={sequence}",
                f"messages {self.last + 1} to {sequence - 1} are missing before it",
            )
        return True

    def _report(self, sequence: int, fault: str) -> None:
        self._note(TABLE, f"id={self._id} seq={sequence}", fault)
        self._reported = True
