"""Batches into tables of Delta Lake and Iceberg, without Spark: batches of another query, and which row of a key stays."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark_stan.errors import IdentityError, OptionsError, TableError
from pyspark_stan.schema import COLUMNS
from pyspark_stan.tables.upserts import ABOUT_MESSAGES

from tests.spark.tables import Frame, Target


@pytest.fixture(params=["delta", "iceberg"])
def target(request, tmp_path):
    return Target(request.param, tmp_path)


def in_order(*rows):
    return sorted(rows, key=repr)


# --- whose batches they are -----------------------------------------------------------------------------------------------


def test_a_repeated_batch_adds_nothing_on_connect(target):
    write = target.writing(app="app")
    write(Frame([("a", 1), ("b", 2)], None), 0)
    write(Frame([("b", 2), ("a", 1)], None, run="after a crash"), 0)
    write(Frame([("c", 3)], None), 1)
    assert target.rows() == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_new_checkpoint_on_connect_is_an_error(target, batch):
    write = target.writing(app="app")
    for at in range(3):
        write(Frame([("a", at)], None), at)
    with pytest.raises(IdentityError, match=r"give it an app of its own.*or remove the table"):
        write(Frame([("new", 1)], None, "r2"), batch)
    assert target.rows() == [("a", 0), ("a", 1), ("a", 2)]


def test_queries_without_an_app_are_kept_apart_by_their_ids(target):
    for query in ("q1", "q2"):
        target.writing()(Frame([(query, 1)], query, query), 0)
    assert target.rows() == [("q1", 1), ("q2", 1)]


@pytest.mark.parametrize("before", [False, True], ids=["a table that is not there", "one that is there"])
@pytest.mark.parametrize(
    ("options", "columns"),
    [({}, "k v"), ({"keys": ["k"]}, "k v"), ({"keys": ["k"]}, "k v more")],
    ids=["appended", "replaced", "with a new column"],
)
def test_two_queries_into_one_table_at_once_both_get_their_rows_in(target, before, options, columns):
    write = target.writing(**options)
    if before:
        write(Frame([("old", 0)], "q0"), 0)
    row = (1,) * (len(columns.split(" ")) - 1)
    other = Frame([("b", *row)], "q2", columns=columns)
    write(Frame([("a", *row)], columns=columns, meanwhile=lambda: target.writing(**options)(other, 0)), 0)
    assert target.rows() == [("a", 1), ("b", 1), *([("old", 0)] if before else [])]


# --- which row of a key stays ---------------------------------------------------------------------------------------------


def test_a_row_with_a_null_key_replaces_the_one_with_a_null_key(target):
    write = target.writing(keys=["k"])
    write(Frame([(None, 1), ("a", 1)]), 0)
    write(Frame([(None, 2), ("a", 2)]), 1)
    assert target.rows() == in_order(("a", 2), (None, 2))


def test_with_two_keys_a_row_replaces_the_one_with_both(target):
    write = target.writing(keys=["k", "j"])
    write(Frame([("a", 1, 0), ("a", 2, 0), ("b", 1, 0), ("b", 2, 0), ("a", None, 0), (None, 1, 0)], columns="k j v"), 0)
    write(Frame([("a", 1, 9), ("b", 2, 9), ("a", None, 9), (None, None, 9)], columns="k j v"), 1)
    assert target.rows("k j v") == in_order(
        *[("a", 1, 9), ("a", 2, 0), ("b", 1, 0), ("b", 2, 9), ("a", None, 9), (None, 1, 0), (None, None, 9)]
    )


def test_of_rows_with_a_null_in_order_none_is_lost(target):
    """Late fields, left joins and drift of a schema make such rows: null is older than any value."""
    rows = [("a", 1, None), ("b", 1, 7), ("b", 2, None), (None, 3, None), ("c", 1, 1), ("c", 2, 2)]
    write = target.writing(keys=["k"], order="o")
    write(Frame(rows, columns="k v o"), 0)
    assert target.rows("k v o") == in_order(("a", 1, None), ("b", 1, 7), (None, 3, None), ("c", 2, 2))
    write(Frame([("a", 2, None), ("b", 3, None), (None, 4, 1)], columns="k v o"), 1)
    assert target.rows("k v o") == in_order(("a", 2, None), ("b", 1, 7), (None, 4, 1), ("c", 2, 2))


def test_an_older_row_of_a_later_batch_replaces_nothing(target):
    """Several channels, or parts, come in any order."""
    write = target.writing(keys=["k"], order="o")
    write(Frame([("a", 1, 5), ("b", 1, 5), ("c", 1, 5)], columns="k v o"), 0)
    write(Frame([("a", 2, 4), ("b", 2, 5), ("c", 2, 6), ("c", 3, 4)], columns="k v o"), 1)
    assert target.rows() == [("a", 1), ("b", 2), ("c", 2)]


def test_an_order_that_the_table_does_not_have_yet_is_newer(target):
    target.writing(keys=["k"])(Frame([("a", 1), ("b", 1)]), 0)
    target.writing(keys=["k"], order="o")(Frame([("a", 2, 7)], columns="k v o"), 1)
    assert target.rows("k v o") == [("a", 2, 7), ("b", 1, None)]


@pytest.mark.parametrize("nothing", [(None, None), (None, "")])
def test_a_tombstone_deletes_its_key(target, nothing):
    columns = "k v text o _sequence"
    write = target.writing(keys=["k"], order="o")
    write(Frame([("a", 1, "x", 1, 1), ("b", 1, "x", 9, 2), ("c", 1, "x", 1, 3)], columns=columns), 0)
    gone = [("a", *nothing, 2, 4), ("b", *nothing, 3, 5), ("c", None, "still", 2, 6), ("never", *nothing, 1, 7)]
    write(Frame(gone, columns=columns), 1)
    assert target.rows("k v text") == [("b", 1, "x"), ("c", None, "still")]
    write(Frame([("a", 5, "", 3, 8), ("c", 1, "x", 3, 9), ("c", *nothing, 4, 9)], columns=columns), 2)
    assert target.rows("k v text") == [("a", 5, ""), ("b", 1, "x")]


def test_a_condition_says_which_rows_delete_their_key(target):
    write = target.writing(keys=["k"], deletes="text = 'd'")
    write(Frame([("a", 1, "c"), ("b", 1, "c")], columns="k v text"), 0)
    write(Frame([("a", 1, "d"), ("b", None, None), ("n", 1, "d")], columns="k v text"), 1)
    assert target.rows("k v text") == [("b", None, None)]


def test_rows_of_keys_only_delete_nothing(target):
    write = target.writing(keys=["k"], order="o")
    for batch in range(2):
        write(Frame([("a", batch)], columns="k o"), batch)
    assert target.rows("k o") == [("a", 1)]


def test_columns_about_the_message_are_those_of_a_typed_read():
    assert {f"_{name}" for name in COLUMNS} - ABOUT_MESSAGES == {"_value", "_reply"}


def test_rows_with_the_bytes_of_a_malformed_message_delete_nothing(target):
    write = target.writing(keys=["k"])
    write(Frame([("a", None, 7)], columns="k v _malformed"), 0)
    assert target.rows() == [("a", None)]


def test_a_key_that_comes_twice_needs_an_order(target):
    with pytest.raises(TableError, match=r"1 rows of a batch have the same k as others for .*order tells"):
        target.writing(keys=["k"])(Frame([("a", 1), ("a", 2), ("b", 1)]), 0)


def test_a_filter_of_an_iceberg_table_has_no_condition_for_each_row(tmp_path, monkeypatch):
    """With one, two batches of 3,000 rows with two keys took 99 s."""
    pyiceberg = pytest.importorskip("pyiceberg.table")
    filters, scan = [], pyiceberg.Table.scan
    target = Target("iceberg", tmp_path)
    rows = [(f"k{at}", at) for at in range(100)]
    with monkeypatch.context() as patch:
        patch.setattr(
            pyiceberg.Table, "scan", lambda self, row_filter: filters.append(row_filter) or scan(self, row_filter)
        )
        write = target.writing(keys=["k", "j"])
        write(Frame([*((*row, 0) for row in rows), ("k7", 99, 0)], columns="k j v"), 0)
        write(Frame([(*row, 1) for row in rows], columns="k j v"), 1)
        few = [(f"k{at}", at, 2) for at in (7, 8, 99)]  # so few that what lies between is not read
        write(Frame(few, columns="k j v"), 2)
    assert len(filters) >= 3
    for each in filters:
        assert sum(repr(each).count(f"{name}(") for name in ("And", "Or", "Equal", "In")) <= 7
    wanted = {**dict.fromkeys(rows, 1), **{(k, j): value for k, j, value in few}, ("k7", 99): 0}
    assert {(k, j): value for k, j, value in target.rows("k j v")} == wanted
    assert len(target.rows("k j v")) == len(wanted)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "Europe/Berlin"), [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)]),
        (pa.date32(), [date(2020, 1, 1), date(2021, 1, 1)]),
        (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("2.50")]),
        (pa.binary(), [b"", b"\xff"]),
    ],
    ids=str,
)
def test_keys_and_order_of_many_types_are_compared(target, kind, values):
    """In the time zone of the session, too, in which Spark gives times."""
    write = target.writing(keys=["key", "k"], order="order")
    for batch in range(2):
        orders = values if batch else values[::-1]
        frame = Frame([])
        made = {"key": pa.array(values, kind), "order": pa.array(orders, kind), "k": ["a", "b"], "v": [batch, batch]}
        made["in"] = pa.array([[{"x": value}] for value in values], pa.list_(pa.struct({"x": kind})))
        frame.toArrow = lambda made=made: pa.table(made)
        write(frame, batch)
    assert target.rows() == [("a", 0), ("b", 1)]


# --- names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"keys": "id"}, r"keys: a list of columns, \['id'\]"),
        ({"keys": ["a", ""]}, "keys: '' is no column's name"),
        ({"keys": ["a", "A"]}, "keys: 'A' comes twice"),
        ({"keys": ["a"], "order": "a"}, "order: 'a' comes twice"),
        ({"order": "a"}, "order: goes with keys"),
        ({"deletes": "a"}, "deletes: goes with keys"),
    ],
)
def test_mistakes_are_told_when_the_function_is_made(target, options, wanted):
    with pytest.raises(OptionsError, match=wanted):
        target.writing(**options)


def test_names_that_a_format_does_not_take_are_told_when_the_function_is_made(target):
    character = {"delta": "`", "iceberg": "."}[target.kind]
    for option in ({"keys": [f"a{character}b"]}, {"keys": ["a"], "order": f"b{character}"}):
        with pytest.raises(OptionsError, match=r"(keys|order): '.*' has a .*: give the column another name before"):
            target.writing(**option)


@pytest.mark.parametrize("name", ['a"b', "a'b", "A", "a.b", "a`b", "größe"])
def test_other_names_are_taken_as_they_are(target, name):
    if {"delta": "`", "iceberg": "."}[target.kind] in name:
        pytest.skip("refused when the function is made")
    write = target.writing(keys=[name], order="o")
    for batch in range(2):
        write(Frame([(1, batch, batch)], columns=f"{name} o v"), batch)
    assert target.rows(f"{name} v") == [(1, 1)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"keys": ["K"]}, "keys: a batch for .* has no column 'K'; write 'k'"),
        ({"keys": ["k"], "order": "q"}, "order: a batch for .* has no column 'q'; there are k, v"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_the_cure(target, options, wanted):
    with pytest.raises(TableError, match=wanted):
        target.writing(**options)(Frame([("a", 1)]), 0)


def test_a_key_that_the_table_does_not_have_is_told(target):
    target.writing()(Frame([("a", 1)]), 0)
    with pytest.raises(TableError, match=r"keys: the table .* has no column 'j'; there are k, v"):
        target.writing(keys=["j"])(Frame([(1, 1)], columns="j v"), 1)


def test_keys_and_order_have_values_that_can_be_compared(target):
    frame = Frame([("a", 1)])
    frame.toArrow = lambda: pa.table({"k": ["a"], "v": [{"x": 1}]})
    with pytest.raises(TableError, match=r"order: 'v' is struct.*, which has no order; take a field of it"):
        target.writing(keys=["k"], order="v")(frame, 0)
