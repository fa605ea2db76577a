"""Messages in JSON as Arrow columns, without Python code per message; picks out those that Arrow does not read. Pure.

Arrow reads the messages of an answer as one text. What it reads is taken only if it cannot have put two messages together: each
begins with `{` and ends with `}`, texts cannot go over the line's end between them, and there are as many rows as messages. A
message that is in the way is left out of the text, with an empty object in its place: so it costs what it costs, and the others
cost no more.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pyspark_stan.reading.decode import mask, numbers, text_array

_TRIM: Final = pc.TrimOptions(" \t\r\n")
_BEGIN: Final = pc.MatchSubstringOptions("{")
_END: Final = pc.MatchSubstringOptions("}")
_OBJECT: Final = text_array([b"{}"])[0]
_NOTHING: Final = text_array([b""])
_LINE_END: Final = text_array([b"\n"])
_NAMED_ROW: Final = re.compile(r" in row (\d+)$")
_CHANGED: Final = re.compile(r"Column\(/(?:.*/)?([^/]+)\) changed from \w+ to (\w+)")
_BEGINNINGS: Final = {"string": '"', "number": "[-0-9NI]", "object": r"\{", "array": r"\[", "boolean": "[tf]"}
_TRIES: Final = 64
"""Attempts of Arrow to read an answer; each ends where a message is in the way, and the next one goes on behind it."""
_ODD_SHARE: Final = 16
"""With more than one odd message in so many, all of them are read one by one: to pick them out would cost more."""

# Python reads more kinds of times than Arrow: with digits below the microsecond, which it cuts off, and without a zone, in UTC.
_TIME: Final = r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)"
_CUT: Final = pc.ReplaceSubstringOptions(_TIME + r"(\.\d{6})\d+", r"\1\2")
_IN_UTC: Final = pc.ReplaceSubstringOptions(_TIME + r"(\.\d+)?$", r"\1\2Z")
_TIMES: Final = pc.MatchSubstringOptions(_TIME + r"(\.\d{1,6})?(Z|[+-]\d\d(:?\d\d)?)$")
_DATES: Final = pc.MatchSubstringOptions(r"^\d{4}-\d\d-\d\d$")


def _json_text(depth: int) -> str:
    """Return a pattern of values in JSON, nested so deep."""
    text = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*"'
    values = rf"{text}|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null"
    pair, item = text + r"\s*:\s*(?:{0})\s*", r"(?:{0})\s*"
    for _ in range(depth):
        each = [part.replace("{0}", values) for part in (pair, item)]
        values += "".join(
            rf"|{o}\s*(?:{p}(?:,\s*{p})*)?{c}" for p, o, c in zip(each, (r"\{", r"\["), (r"\}", r"\]"), strict=True)
        )
    return values


_JSON: Final = f"^(?:{_json_text(2)})$"


class TooManyOddError(ValueError):
    """So many messages are odd that all of them are to be read one by one."""


class JsonRows:
    """Reads messages in JSON as payloads of one type."""

    def __init__(self, payload: pa.StructType) -> None:
        self._payload = payload
        self._as_json = pa.struct([field.with_type(_in_json(field.type)) for field in payload])
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(self._as_json)), newlines_in_values=False, unexpected_field_behavior="ignore"
        )
        integers = "|".join(re.escape(json.dumps(name, ensure_ascii=False)) for name in _integers(self._payload))
        self._no_integer = rf"(?:{integers})\s*:\s*-?\d*(?:[.eENI]|\d{{19}})"

    def read(self, values: pa.Array) -> tuple[pa.StructArray, list[int]]:
        """Return the payloads of *values* (binary), and the rows that are to be read otherwise, whose payloads here say nothing.

        A value without bytes is an empty payload. Raises TooManyOddError, and pa.ArrowException, NotImplementedError or KeyError
        if the payload has types that Arrow does not read."""
        odd = _Odd(len(values))
        texts = _texts(values, odd)
        found = self._objects(texts, odd)
        arrays = [_cast(found.field(at), field.type, odd) for at, field in enumerate(self._payload)]
        odd.update(row for array in arrays for row in _infinite(array))
        return pa.StructArray.from_arrays(arrays, fields=list(self._payload)), sorted(odd)

    def _objects(self, texts: pa.Array, odd: "_Odd") -> pa.StructArray:
        """Return what Arrow reads in one go, without the messages that are in its way: they are odd."""
        first = 0
        for _ in range(_TRIES):
            try:
                objects = self._read(_joined(texts.slice(first)), len(texts) - first)
            except pa.ArrowInvalid as error:
                named = _NAMED_ROW.search(str(error))
                found = {min(first + int(named[1]), len(texts) - 1)} if named else set()
                alike = self._alike(str(error), texts)
                if not alike <= odd:
                    found |= alike
                elif found:
                    first = max(found) + 1
                if found <= odd:
                    raise
                odd.update(found)
                texts = _without(texts, odd)
            else:
                if not first:
                    return objects
                first = 0  # those before may have faults that Arrow finds only once it reads all of a text
        raise TooManyOddError

    def _alike(self, error: str, texts: pa.Array) -> set[int]:
        """Return the rows that probably have the same fault: they cost no attempt of their own."""
        changed = _CHANGED.search(error)
        if changed:
            name = re.escape(json.dumps(changed[1], ensure_ascii=False))
            faulty = pc.match_substring_regex(texts, name + r"\s*:\s*" + _BEGINNINGS.get(changed[2], "$"))
        elif "couldn't parse" in error:
            faulty = pc.match_substring_regex(texts, self._no_integer)
        else:
            faulty = pc.invert(pc.match_substring_regex(texts, _JSON))
        return set(_rows(faulty))

    def _read(self, text: pa.Buffer, count: int) -> pa.StructArray:
        """Return the objects of *text*, *count* of them. Raises pa.ArrowInvalid."""
        if not count:
            return pa.nulls(0, self._as_json)
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1)
        table = pyarrow.json.read_json(pa.BufferReader(text), read_options=options, parse_options=self._options)
        if table.num_rows != count:
            raise pa.ArrowInvalid(f"{table.num_rows} objects in {count} messages")
        arrays = [table.column(field.name).combine_chunks() for field in self._as_json]
        return pa.StructArray.from_arrays(arrays, fields=list(self._as_json))


class _Odd(set[int]):
    """Odd rows: so many of them at most that it is worth while to pick them out."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._most = rows // _ODD_SHARE + 1

    def update(self, *rows: Iterable[int]) -> None:
        """Add rows. Raises TooManyOddError."""
        super().update(*rows)
        if len(self) > self._most:
            raise TooManyOddError


def _texts(values: pa.Array, odd: _Odd) -> pa.Array:
    """Return messages as texts that may be put together, with an empty object for each that has no bytes or is odd."""
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        odd.update(row for row, value in enumerate(values.to_pylist()) if not _is_text(value))
        texts = pc.if_else(mask(len(values), odd), _OBJECT.cast(pa.binary()), values).cast(pa.string())
    texts = pc.ascii_trim(texts, options=_TRIM)
    objects = pc.and_(pc.starts_with(texts, options=_BEGIN), pc.ends_with(texts, options=_END))
    if pc.all(objects).as_py():
        return texts
    odd.update(_rows(pc.and_not(pc.binary_length(values).cast(pa.bool_()), objects)))
    return pc.if_else(objects, texts, _OBJECT)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _rows(which: pa.BooleanArray) -> list[int]:
    """Return the rows that are true."""
    rows: list[int] = pc.indices_nonzero(which).to_pylist()
    return rows


def _without(texts: pa.Array, odd: _Odd) -> pa.Array:
    return pc.if_else(mask(len(texts), odd), _OBJECT, texts) if odd else texts


def _joined(texts: pa.Array) -> pa.Buffer:
    """Return texts as one, with a line's end behind each of them: at the last one Arrow's reader cuts a text."""
    lines = pa.ListArray.from_arrays(numbers([0, len(texts) + 1]), pa.concat_arrays([texts, _NOTHING]))
    return pc.binary_join(lines, _LINE_END)[0].as_buffer()


def _by_halves(
    convert: Callable[[pa.Array], pa.Array], values: pa.Array, kind: pa.DataType, odd: _Odd, first: int = 0
) -> pa.Array:
    """Return *values* converted to *kind*, null where that fails: these rows, of which the one at 0 is *first*, are odd."""
    try:
        return convert(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            odd.update([first])
            return pa.nulls(1, kind)
    middle = len(values) // 2
    halves = (values[:middle], first), (values[middle:], first + middle)
    return pa.concat_arrays([_by_halves(convert, half, kind, odd, at) for half, at in halves])


def _cast(column: pa.Array, kind: pa.DataType, odd: _Odd) -> pa.Array:
    """Return a column as it came from JSON as one of *kind*."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        if pa.types.is_struct(kind):
            arrays = [_cast(each, field.type, odd) for each, field in zip(column.flatten(), kind, strict=True)]
            return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=column.is_null())
    if pa.types.is_string(column.type):
        usual = _TIMES if pa.types.is_timestamp(kind) else _DATES
        rows = _rows(pc.invert(pc.match_substring_regex(column, options=usual)))
        mended = column.take(numbers(rows))
        for options in (_CUT, _IN_UTC) if pa.types.is_timestamp(kind) else ():
            mended = pc.replace_substring_regex(mended, options=options)
        fits = pc.match_substring_regex(mended, options=usual)
        odd.update(rows[at] for at in _rows(pc.invert(fits)))
        mended = pc.if_else(fits, mended, pa.nulls(len(rows), column.type))
        column = patched(column, rows, mended)
    return _by_halves(lambda part: part.cast(kind), column, kind, odd)


def _infinite(column: pa.Array) -> Collection[int]:
    """Return the rows with a number that JSON does not have: Arrow reads NaN and Infinity."""
    if pa.types.is_floating(column.type):
        finite = pc.is_finite(column)
        return () if pc.all(finite).as_py() else _rows(pc.invert(finite))
    if pa.types.is_struct(column.type):
        return {row for each in column.flatten() for row in _infinite(each)}
    if pa.types.is_list(column.type):
        inner = _infinite(column.flatten())
        return pc.list_parent_indices(column).take(numbers(inner)).to_pylist() if inner else ()
    return ()


def _integers(kind: pa.StructType) -> Iterator[str]:
    """The names of fields that are integers, at any depth."""
    for field in kind:
        if pa.types.is_struct(field.type):
            yield from _integers(field.type)
        elif pa.types.is_integer(field.type):
            yield field.name


def patched(column: pa.Array, rows: list[int], values: pa.Array) -> pa.Array:
    """Return a column with other *values* in some of its *rows*."""
    places = list(range(len(column)))
    for place, row in enumerate(rows, len(column)):
        places[row] = place
    return pa.concat_arrays([column, values]).take(numbers(places))


def _in_json(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's reader of JSON reads it, before it is cast to *kind*."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_json(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_json(kind.value_type))
    return kind
