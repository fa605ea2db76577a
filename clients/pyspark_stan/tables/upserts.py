"""The meaning of keys, order and tombstones, the same for all formats of tables: of each key one row stays.

A null in keys is a value equal to itself. A row replaces another one with the same keys unless its order is older; null is older
than any value, and of two equal ones the later row is newer. A tombstone deletes its key by the same rule.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_stan.errors import OptionsError, TableError

DELETES: Final = "__stan_deletes"
"""A column of booleans in the rows of an upsert: the row deletes its key."""


Kind = Literal["delta", "iceberg"]
REFUSED: Final[Mapping[Kind, Mapping[str, str]]] = {
    "delta": {"`": "which deltalake takes for the end of a name"},
    "iceberg": {".": "which pyiceberg takes for a field of a struct"},
}
"""Characters that keys and order do not have, and why."""


ABOUT_MESSAGES: Final = frozenset({"_channel", "_sequence", "_timestamp", "_headers", "_key", "_partition"})
"""Columns of a typed read that are about the message, and no data of its own: a tombstone has them, too."""


class Upserts(NamedTuple):
    """The columns that say which row replaces which."""

    keys: tuple[str, ...]
    order: str  # "": the later row is newer
    deletes: str  # SQL, true for tombstones; "": rows with nothing but keys and order


def upserts_of(kind: Kind, keys: Sequence[str], order: str, deletes: str) -> Upserts | None:
    """Check the arguments of an upsert; None: there are no keys, so rows are appended.

    Args:
        kind: of table.
        keys: columns that identify a row.
        order: the column whose greatest value tells the newest row.
        deletes: a condition in SQL.

    Raises:
        OptionsError: has all mistakes in them.
    """
    if isinstance(keys, str):
        raise OptionsError([f"keys: a list of columns, [{keys!r}], not the text {keys!r}"])
    complaints = [
        f"{name}: goes with keys" for name, text in (("order", order), ("deletes", deletes)) if text and not keys
    ]
    complaints += [f"keys: {key!r} is no column's name" for key in keys if not (isinstance(key, str) and key)]
    names = [("keys", key) for key in keys if isinstance(key, str)] + ([("order", order)] if order else [])
    seen: set[str] = set()
    for option, name in names:
        if name.casefold() in seen:
            complaints.append(f"{option}: {name!r} comes twice")
        seen.add(name.casefold())
        complaints += [
            f"{option}: {name!r} has a {character}, {reason}: give the column another name before, with withColumnRenamed"
            for character, reason in REFUSED[kind].items()
            if character in name
        ]
    if complaints:
        raise OptionsError(complaints)
    return Upserts(tuple(keys), order, deletes) if keys else None


def changes_of(rows: pa.Table, upserts: Upserts, name: str) -> pa.Table:
    """Return the newest row of each key in a batch, with the column DELETES.

    Args:
        rows: the batch; with a condition for tombstones it has the column DELETES.
        upserts: says which row replaces which.
        name: of the table, for errors.

    Raises:
        TableError: a column is missing or cannot be compared, or without an order a key comes twice.
    """
    check_columns([column for column in rows.column_names if column != DELETES], upserts, f"a batch for {name}")
    for option, column in (
        *(("keys", key) for key in upserts.keys),
        *([("order", upserts.order)] if upserts.order else []),
    ):
        if pa.types.is_nested(rows.field(column).type):
            raise TableError(
                f"stan: {option}: {column!r} is {rows.field(column).type}, which has no order; take a field of it"
            )
    if upserts.deletes:
        at = rows.column_names.index(DELETES)
        rows = rows.set_column(at, DELETES, pc.fill_null(rows.column(DELETES), fill_value=False))
    else:
        rows = rows.append_column(DELETES, _nothing_but_keys(rows, upserts))
    places = newest(rows, upserts)
    if not upserts.order and len(places) < rows.num_rows:
        raise TableError(
            f"stan: {rows.num_rows - len(places)} rows of a batch have the same {', '.join(upserts.keys)} as others for {name}: "
            "order tells which is the newest"
        )
    return rows.take(places)


def check_columns(columns: Sequence[str], upserts: Upserts, where: str) -> None:
    """Raise TableError if one of the keys, or the order, is not among the columns of *where*."""
    options = [("keys", key) for key in upserts.keys] + ([("order", upserts.order)] if upserts.order else [])
    for option, wanted in options:
        if wanted not in columns:
            folded = {column.casefold(): column for column in columns}
            near = difflib.get_close_matches(wanted.casefold(), folded, 1)
            cure = f"write {folded[near[0]]!r}" if near else f"there are {', '.join(columns)}"
            raise TableError(f"stan: {option}: {where} has no column {wanted!r}; {cure}")


def newest(rows: pa.Table, upserts: Upserts) -> pa.Array:
    """Return the places of the newest row of each key, in ascending order."""
    places = pa.array(range(rows.num_rows), pa.int64())
    by_age = places
    if upserts.order:
        order = rows.column(upserts.order)
        by_age = pc.sort_indices(  # a stable sort
            pa.table({"known": pc.is_valid(order), "order": order}),
            sort_keys=[("known", "ascending"), ("order", "ascending")],
        )
    names = [f"key{number}" for number in range(len(upserts.keys))]
    keyed = rows.select(upserts.keys).rename_columns(names).take(by_age).append_column("age", places)
    ages = keyed.group_by(names).aggregate([("age", "max")]).column("age_max")
    found = by_age.take(ages.combine_chunks())
    return found.take(pc.sort_indices(found))


def _nothing_but_keys(rows: pa.Table, upserts: Upserts) -> pa.ChunkedArray:
    """Return true for rows without data: all columns are null or empty but keys, order, and those about the message."""
    known = {*upserts.keys, upserts.order, *ABOUT_MESSAGES}
    others = [name for name in rows.column_names if name not in known]
    nothing = pa.chunked_array([pa.repeat(bool(others), rows.num_rows)])
    for name in others:
        column = rows.column(name)
        empty = pc.is_null(column)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            empty = pc.or_(empty, pc.fill_null(pc.equal(pc.binary_length(column), 0), fill_value=False))
        nothing = pc.and_(nothing, empty)
    return nothing
