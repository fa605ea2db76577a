"""Random values in the rows of an old SQL store: reading them never fails, invents nothing, and reports each message that is not
there."""

from hypothesis import given
from hypothesis import strategies as st

from stan.migration.records import SIZE_MAX
from stan.migration.report import MigrationReport
from stan.migration.sqlstore.messages import INLINE_BYTES, ONE, PAGE, RowReader
from stan.migration.sqlstore.subscriptions import BYTES_MAX, PENDING, SUBSCRIPTIONS, SubscriptionReader
from tests.kit.old_store import EPOCH, message
from tests.kit.opened_store import unpack
from tests.kit.sql_store import durable

LARGEST = (1 << 64) - 1
numbers = st.one_of(st.integers(0, 30), st.integers(0, LARGEST))
contents = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.lists(st.one_of(st.integers(-2, 30), st.integers(0, 1 << 70)), max_size=6).map(lambda one: repr(one).encode()),
    st.sampled_from(
        [b"null", b"[", b"[[1]]", b'{"1": 2}', b"[1.0]", b"[true]", b"[NaN]", b"1" * (BYTES_MAX + 1), b"[" * BYTES_MAX]
    ),
)


class Tables:
    """A connection that answers the queries of the readers from lists of rows."""

    def __init__(self, *, messages=(), subscriptions=(), pending=()):
        self.messages = dict(messages)
        self.subscriptions = sorted(subscriptions)
        self.pending = sorted(pending, key=lambda row: row[:2])

    def rows(self, query, *parameters):
        if query == PAGE:
            most, _, after, count = parameters
            found = [(seq, data) for seq, data in sorted(self.messages.items()) if seq > after][:count]
            return [(seq, size(data), short(data, most)) for seq, data in found]
        if query == ONE:
            return [(self.messages[parameters[1]],)]
        if query == SUBSCRIPTIONS:
            most, _, least, count = parameters
            found = [row for row in self.subscriptions if row[0] >= least][:count]
            return [(subid, last, size(proto), short(proto, most)) for subid, last, proto in found]
        if query == PENDING:
            most, _, subid, least, count = parameters
            found = [row[1:] for row in self.pending if row[0] == subid and row[1] >= least][:count]
            return [
                (row, seq, last, size(sent), short(sent, most), size(acked), short(acked, most))
                for row, seq, last, sent, acked in found
            ]
        return [(0,)]


def size(content):
    return None if content is None else len(content)


def short(content, most):
    return content if content is not None and len(content) <= most else None


def good(sequence):
    return message(b"foo", sequence, b"payload %d" % sequence, EPOCH + sequence)


@st.composite
def damaged_messages(draw):
    """Rows of messages by sequence, some of them damaged."""
    rows = {sequence: good(sequence) for sequence in range(5, 40)}
    for sequence in draw(st.lists(st.integers(5, 39), max_size=8)):
        data = bytearray(good(sequence))
        how = draw(st.sampled_from(["flip", "cut", "none", "drop", "noise", "large"]))
        at = draw(st.integers(0, len(data) - 1))
        if how == "flip":
            data[at] ^= 1 << draw(st.integers(0, 7))
        rows[sequence] = {
            "flip": bytes(data),
            "cut": bytes(data[:at]),
            "none": None,
            "noise": draw(st.binary(max_size=30)),
            "large": bytes(INLINE_BYTES + 1),
        }.get(how, b"")
        if how == "drop":
            del rows[sequence]
    return rows


@given(damaged_messages())
def test_damaged_messages_are_reported_and_the_others_are_as_they_were(rows):
    report = MigrationReport()
    reader = RowReader(Tables(messages=rows), 1, b"foo", report.note_row, None)
    found = {}
    last = lost = 0
    for run in reader.read():
        messages = unpack(run.records)
        assert len(messages) == run.count
        assert run.gap == (0 < last < run.base - 1)
        lost += run.base - last - 1 if run.gap else 0
        last = run.base + run.count - 1
        for sequence, fields in enumerate(messages, run.base):
            assert fields.number(1) == sequence
            assert fields.text(2) == b"foo"
            found[sequence] = fields.text(4)
    assert list(found) == sorted(found)
    assert found.keys() <= rows.keys()
    for sequence, data in rows.items():
        if data == good(sequence):
            assert found[sequence] == b"payload %d" % sequence
    between = set(range(min(found), max(found) + 1)) if found else set()
    assert lost == len(between - found.keys())
    assert len(report.problems) >= bool(lost or rows.keys() - found.keys())
    assert reader.last < SIZE_MAX


@given(
    st.lists(
        st.tuples(numbers, numbers, st.one_of(contents, st.just(durable(3, b"me", b"d")))),
        max_size=4,
        unique_by=lambda one: one[0],
    ),
    st.lists(
        st.tuples(st.sampled_from([0, 3]), numbers, numbers, numbers, contents, contents),
        max_size=6,
        unique_by=lambda one: one[:2],
    ),
)
def test_rows_of_subscriptions_with_any_values_give_positions_that_can_be_or_problems(subscriptions, pending):
    report = MigrationReport()
    reader = SubscriptionReader(Tables(subscriptions=subscriptions, pending=pending), 1, report.note_row)
    positions, ended = reader.read()
    assert len(positions) + ended <= len(subscriptions)
    for position in positions:
        assert 0 <= position.last_sent < 1 << 63
        assert all(0 < sequence <= position.last_sent for sequence in position.pending)
        assert 0 < position.max_in_flight < 1 << 31
    assert reader.newest < 1 << 63
