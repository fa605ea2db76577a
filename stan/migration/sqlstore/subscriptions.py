"""The durables of one channel of a SQL store: its rows of Subscriptions, and of SubsPending with sequences as the original lists
them.

A row of SubsPending has one sequence that is pending (servers without a cache), or two lists in JSON: sequences that were sent,
and sequences that were acked, of this row or of rows before it.
"""

import json
from collections.abc import Iterator
from typing import Final

from stan.migration.messages import SEQUENCE_MAX
from stan.migration.records import ProtoFields
from stan.migration.report import NoteRow
from stan.migration.sqlstore.database import Row, SqlConnection
from stan.migration.subscriptions import OldPosition, SubscriptionState, positions_of

PENDING_MAX: Final = 1 << 20
"""Of one subscription: no client has more in flight by far."""
PAGE_ROWS: Final = 200
BYTES_MAX: Final = 65_535
"""Of a proto; and of a list of sequences, into which the original writes 2000 at most."""
SUBSCRIPTIONS: Final = """
SELECT subid, lastsent, octet_length(proto), CASE WHEN octet_length(proto) <= %s THEN proto END
FROM Subscriptions WHERE id = %s AND subid >= %s AND deleted = FALSE ORDER BY subid LIMIT %s
"""
PENDING: Final = """
SELECT s.row, s.seq, s.lastsent,
    octet_length(s.pending), CASE WHEN octet_length(s.pending) <= %s THEN s.pending END,
    octet_length(s.acks), CASE WHEN octet_length(s.acks) <= %s THEN s.acks END
FROM SubsPending s WHERE s.subid = %s AND s.row >= %s ORDER BY s.row LIMIT %s
"""


class SubscriptionReader:
    """Reads the subscriptions of one channel."""

    def __init__(self, connection: SqlConnection, channel_id: int, note: NoteRow) -> None:
        self.newest = 0  # that any subscription was sent, also one that is no more
        self._connection = connection
        self._id = channel_id
        self._note = note

    def read(self) -> tuple[list[OldPosition], int]:
        """Return the positions, and the number of subscriptions that end because they are not durable."""
        rows = self._pages(SUBSCRIPTIONS, BYTES_MAX, self._id)
        return positions_of([state for row in rows for state in self._state(row)])

    def _pages(self, query: str, *parameters: int) -> Iterator[Row]:
        """The rows of *query*, page by page. Behind *parameters* it takes the least number of a row, which is its first column,
        and the size of a page."""
        least = 0
        page: list[Row] = [()] * PAGE_ROWS
        while len(page) == PAGE_ROWS:
            page = self._connection.rows(query, *parameters, least, PAGE_ROWS)
            for row in page:
                yield row
                least = row[0] + 1

    def _state(self, row: Row) -> Iterator[SubscriptionState]:
        subid, last_sent, size, proto = row
        last_sent = self._bounded(last_sent)
        self.newest = max(self.newest, last_sent)
        try:
            if proto is None:
                raise ValueError("proto is NULL" if size is None else f"proto has {size} bytes")
            fields = ProtoFields(bytes(proto))
        except ValueError as error:
            self._note("Subscriptions", f"id={self._id} subid={subid}", f"left out: {error}")
            return
        state = SubscriptionState(fields, max(last_sent, self._bounded(fields.number(9))))
        for pending in self._pages(PENDING, BYTES_MAX, BYTES_MAX, fields.number(1)):
            try:
                self._apply(state, pending)
            except ValueError as error:
                self._note("SubsPending", f"subid={fields.number(1)} row={pending[0]}", f"left out: {error}")
        self.newest = max(self.newest, state.last_sent)
        yield state

    def _apply(self, state: SubscriptionState, row: Row) -> None:
        """Apply a row of SubsPending. Raises ValueError: it is damaged, and nothing of it counts."""
        _, sequence, last_sent, pending_size, pending, acks_size, acks = row
        if sequence:
            sent, acked = _sequences([sequence]), []
            last_sent = sequence
        else:
            sent, acked = _listed("pending", pending_size, pending), _listed("acks", acks_size, acks)
        if len(state.pending) + len(sent) > PENDING_MAX:
            raise ValueError(f"more than {PENDING_MAX} messages are pending")
        state.last_sent = max([state.last_sent, self._bounded(last_sent), *sent])
        state.pending.update(sent)
        state.pending.difference_update(acked)

    def _bounded(self, sequence: int | None) -> int:
        return sequence if sequence is not None and 0 <= sequence <= SEQUENCE_MAX else 0


def _listed(column: str, size: int | None, content: bytes | None) -> list[int]:
    """The sequences of a list in JSON. Raises ValueError."""
    if not size:
        return []
    if content is None:
        raise ValueError(f"{column} has {size} bytes")
    try:
        listed = json.loads(bytes(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{column} is no list of sequences: {error}") from None
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise ValueError(f"{column} is no list of sequences")  # noqa: TRY004 - of the data, not of a caller
    return _sequences(listed)


def _sequences(listed: list[object]) -> list[int]:
    sequences = [one for one in listed if type(one) is int and 0 < one <= SEQUENCE_MAX]
    if len(sequences) != len(listed):
        raise ValueError("there are no such sequences")
    return sequences
