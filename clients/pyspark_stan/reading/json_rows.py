"""Messages in JSON as Arrow columns, without Python code per message; picks out those that Arrow does not read. Pure.

Arrow reads the messages of an answer as one text. What it reads is taken only if it cannot have put two messages together: each
begins with `{` and ends with `}`, texts cannot go over the line's end between them, and there are as many rows as messages. A
message that is in the way is left out of the text, with an empty object in its place: so it costs what it costs, and the others
cost no more. What a fault looks like is remembered, so the next answers are read without another attempt that fails.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

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
_TWICE: Final = re.compile(r"Column\(/([^/]+)\) was specified twice")
_BEGINNINGS: Final = {"string": '"', "number": "[-0-9NI]", "object": r"\{", "array": r"\[", "boolean": "[tf]"}
_TRIES: Final = 64
"""Attempts of Arrow to read an answer; each ends where a message is in the way, and the next one goes on behind it."""
_EXPECTED_FOR: Final = 64
"""Answers in which a fault is looked for, before Arrow is asked again: a pattern may find messages that Arrow reads."""
_ODD_SHARE: Final = 16
"""With more than one odd message in so many, all of them are read one by one: to pick them out would cost more."""

# Python reads more kinds of times than Arrow: with digits below the microsecond, which it cuts off, and without a zone, in UTC.
_DAY: Final = r"\d{4}-(?:(?:0[13578]|1[02])-(?:[012]\d|3[01])|(?:0[469]|11)-(?:[012]\d|30)|02-[012]\d)"
_TIME: Final = rf"^({_DAY}[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)"
_CUT: Final = pc.ReplaceSubstringOptions(_TIME + r"(\.\d{6})\d+", r"\1\2")
_IN_UTC: Final = pc.ReplaceSubstringOptions(_TIME + r"(\.\d+)?$", r"\1\2Z")
_TIMES: Final = pc.MatchSubstringOptions(_TIME + r"(\.\d{1,6})?(Z|[+-]\d\d(:?\d\d)?)$")
_DATES: Final = pc.MatchSubstringOptions(rf"^{_DAY}$")


def _json_object(depth: int) -> str:
    """Return a pattern of objects in JSON, nested so deep (1: in none); it takes an opening bracket for a comma, too."""
    text = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*"'
    values = scalars = rf"{text}|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null"
    for _ in range(depth):
        found = rf"\{{\s*\}}|(?:[{{,]\s*{text}\s*:\s*(?:{values})\s*)+\}}"
        values = rf"{scalars}|{found}|\[\s*\]|(?:[\[,]\s*(?:{values})\s*)+\]"
    return found


class _Fault(NamedTuple):
    """A kind of fault, by a pattern of messages. It may be that of some others, too, which costs more, and harms nothing."""

    pattern: str
    here: bool  # it is the pattern of those that have the fault


_NO_JSON: Final = [_Fault(f"^(?:{_json_object(depth)})$", here=False) for depth in (1, 5)]
"""The first one is found in less time, the second one is not that of usual messages that are nested."""
_NO_TEXT: Final = _Fault(
    r'^(?:[^\\]|\\["\\/bfnrt]|\\u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*$",
    here=False,
)


@lru_cache(16)
def reader_of(payload: pa.StructType) -> "JsonRows":
    """Return the reader of payloads of this type: there is one in a process, as it learns."""
    return JsonRows(payload)


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
        integers = "|".join(map(_name_pattern, _integers(self._payload)))
        self._no_integer = _Fault(rf"(?:{integers})\s*:\s*-?\d*(?:[.eENI]|\d{{19}})", here=True)
        self._expected: dict[_Fault, int] = {}  # faults of the answer before, with how many more it is to be looked for

    def read(self, values: pa.Array) -> tuple[pa.StructArray, list[int]]:
        """Return the payloads of *values* (binary), and the rows that are to be read otherwise, whose payloads here say nothing.

        A value without bytes is an empty payload. Raises TooManyOddError, and pa.ArrowException, NotImplementedError or KeyError
        if the payload has types that Arrow does not read."""
        odd = _Odd(len(values))
        texts = self._without_expected(_texts(values, odd), odd)
        found = self._objects(texts, odd)
        arrays = [_cast(found.field(at), field.type, odd) for at, field in enumerate(self._payload)]
        odd.update(row for array in arrays for row in _infinite(array))
        return pa.StructArray.from_arrays(arrays, fields=list(self._payload)), sorted(odd)

    def _without_expected(self, texts: pa.Array, odd: "_Odd") -> pa.Array:
        """Return *texts* without those that have a fault which others had before; a fault that none has is forgotten."""
        expected = {fault: left - 1 for fault, left in self._expected.items() if left}
        here = [fault for fault in expected if fault.here]
        searched = {fault: [fault] for fault in expected if not fault.here}
        if here:
            searched[_Fault("|".join(fault.pattern for fault in here), here=True)] = here
        self._expected = {}
        for fault, faults in searched.items():
            rows = _faulty(fault, texts)
            if rows and odd.may_have(rows):
                odd.update(rows)
                self._expected.update((each, expected[each]) for each in faults)
        return _without(texts, odd)

    def _objects(self, texts: pa.Array, odd: "_Odd") -> pa.StructArray:
        """Return what Arrow reads in one go, without the messages that are in its way: they are odd."""
        first = 0
        known = set(self._expected)
        for _ in range(_TRIES):
            try:
                objects = self._read(_joined(texts.slice(first)), len(texts) - first)
            except pa.ArrowInvalid as error:
                named = _NAMED_ROW.search(str(error))
                found = {min(first + int(named[1]), len(texts) - 1)} if named else set()
                alike = self._alike(str(error), texts, odd, known)
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

    def _alike(self, error: str, texts: pa.Array, odd: "_Odd", known: set[_Fault]) -> set[int]:
        """Return the rows that probably have the same fault, if it is not one of *known*: they cost no attempt of their own."""
        rows: list[int] = []
        for fault in self._faults(error):
            if fault in known:
                return set()
            known.add(fault)
            rows = _faulty(fault, texts)
            if odd.may_have(rows):
                self._expected.update({fault: _EXPECTED_FOR} if rows else {})
                break
        return set(rows)

    def _faults(self, error: str) -> list[_Fault]:
        """Return the faults that an error of Arrow may mean; the first one is looked for in less time."""
        if changed := _CHANGED.search(error):
            return [_Fault(rf"{_name_pattern(changed[1])}\s*:\s*{_BEGINNINGS.get(changed[2], '$')}", here=True)]
        if twice := _TWICE.search(error):
            once = rf"[^{{}}\[\]]*{_name_pattern(twice[1])}\s*:"
            return [_Fault(rf"^\{{{once}{once}", here=True)]
        if "couldn't parse" in error:
            return [self._no_integer]
        return [_NO_TEXT] if "surrogate" in error or "escape" in error else _NO_JSON

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

    def may_have(self, rows: Collection[int]) -> bool:
        """Return True if so many more rows would not be too many."""
        return len(self) + len(rows) <= self._most

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


def _faulty(fault: _Fault, texts: pa.Array) -> list[int]:
    """Return the rows that have a fault, or look so."""
    matching = pc.match_substring_regex(texts, fault.pattern)
    return _rows(matching if fault.here else pc.invert(matching))


def _name_pattern(name: str) -> str:
    """Return the pattern of a field's name in JSON."""
    return re.escape(json.dumps(name, ensure_ascii=False))


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
    """Return a column with other *values* in some of its *rows*, which are in order."""
    return _replaced(column, mask(len(column), rows), values)


def _replaced(column: pa.Array, which: pa.BooleanArray, values: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        pairs = zip(column.flatten(), values.flatten(), strict=True)
        arrays = [_replaced(each, which, others) for each, others in pairs]
        nothing = pc.replace_with_mask(column.is_null(), which, values.is_null())
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=nothing)
    if not pa.types.is_nested(kind):
        return pc.replace_with_mask(column, which, values)
    places = list(range(len(column)))
    for place, row in enumerate(_rows(which), len(column)):
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
