"""Avro schemas: parsed, compared by Avro's rules of schema resolution, and data checked against one.

Data is one datum in Avro's binary form, without any prefix. It is walked and not decoded: nothing is built of it, and the steps
are bounded by its size, as a few bytes may tell of billions of items.

Source: Avro specification 1.11, Schema Declaration, Binary Encoding, Schema Resolution.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stan_protocol.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from stan_protocol.schemas.kinds import SchemaError, TooIntricate
from stan_protocol.schemas.misfit import Misfit, Path

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
PROMOTED: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""For each type of a reader the other types of a writer that it reads."""
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
PAIRS_DEEP_MAX: Final = 96
"""Pairs of records that may be under way at once: each takes some of the program's stack."""
LONG_BYTES_MAX: Final = 10
STEPS_PER_BYTE: Final = 8
STEPS_LEAST: Final = 1024
SIZES: Final = {"null": 0, "float": 4, "double": 8}


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    has_default: bool = False


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; a named one is one object, however often it is referred to."""

    kind: str
    name: str = ""  # full name, of named types
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    # Branches of a union; the items of an array, the values of a map.
    parts: list["AvroType"] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    size: int = 0  # of fixed
    has_default: bool = False  # of an enum

    def called(self) -> str:
        """Return its name for people."""
        return self.name or self.kind


# --- schemas ----------------------------------------------------------------------------------------------------------


def parse(text: bytes) -> AvroType:
    """Read a schema.

    Raises:
        SchemaError: it is none, or is nested too deeply.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    return _Parser().type_of(schema, "", "", SCHEMA_DEPTH_MAX)


class _Parser:
    """Reads the types of one schema."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type_of(self, schema: Any, space: str, path: str, depth: int) -> AvroType:
        """Return the type that a part of a schema declares or refers to; *space*: the namespace there."""
        if not depth:
            raise SchemaError(f"{path}: nested too deeply")
        if isinstance(schema, str):
            return self._referred(schema, space, path)
        if isinstance(schema, list):
            parts = [self.type_of(one, space, f"{path}/{at}", depth - 1) for at, one in enumerate(schema)]
            kinds = [part.called() for part in parts]
            if len(set(kinds)) < len(kinds) or "union" in kinds or not kinds:
                raise SchemaError(f"{path or '/'}: a union has branches of different types, and no union among them")
            return AvroType("union", parts=parts)
        if not isinstance(schema, dict):
            raise SchemaError(f"{path or '/'}: no type")
        kind: Any = schema.get("type")
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, path, depth - 1)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return AvroType(kind, parts=[self.type_of(schema.get(inner), space, f"{path}/{inner}", depth - 1)])
        if kind in NAMED:
            return self._declared(schema, str(kind), space, path, depth)
        return self._referred(kind, space, path)

    def _referred(self, name: Any, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        declared = self._named.get(_full(name, space)) if isinstance(name, str) else None
        if declared is None:
            raise SchemaError(f"{path or '/'}: {json.dumps(name)[:80]} is no type")
        return declared

    def _declared(self, schema: dict[str, Any], kind: str, space: str, path: str, depth: int) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"{path or '/'}: a {kind} has a name")
        given = schema.get("namespace")
        whole = _full(name, given if isinstance(given, str) else space)
        if whole in self._named:
            raise SchemaError(f"{path or '/'}: {whole} is declared twice")
        new = self._named[whole] = AvroType("record" if kind == "error" else kind, whole, _words(schema.get("aliases")))
        if kind == "fixed":
            new.size = schema.get("size", -1)
            if type(new.size) is not int or new.size < 0:
                raise SchemaError(f"{path or '/'}: a fixed has a size")
        elif kind == "enum":
            new.symbols, new.has_default = _words(schema.get("symbols")), "default" in schema
            if not new.symbols or len(set(new.symbols)) < len(new.symbols):
                raise SchemaError(f"{path or '/'}: an enum has different symbols")
        else:
            self._fields(new, schema.get("fields"), path, depth)
        return new

    def _fields(self, record: AvroType, schemas: Any, path: str, depth: int) -> None:
        space = record.name.rpartition(".")[0]
        given: list[Any] = schemas if isinstance(schemas, list) else [None]
        names: set[str] = set()
        for one in given:
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or name in names:
                raise SchemaError(f"{path or '/'}: a record has fields with different names")
            names.add(name)
            kind = self.type_of(one.get("type"), space, f"{path}/{name}", depth - 1)
            record.fields.append(AvroField(name, kind, _words(one.get("aliases")), "default" in one))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _words(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


# --- comparison -------------------------------------------------------------------------------------------------------


def not_read(reader: AvroType, writer: AvroType) -> list[str]:
    """Return reasons why *reader* may not read data of *writer*, each with the path of a field; empty if it reads all."""
    try:
        return _Resolution().refused(writer, reader, "")
    except TooIntricate as problem:
        return [str(problem)]


class _Resolution:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()  # pairs of records: recursive ones meet themselves again
        self._steps = 0

    def refused(self, wrote: AvroType, reads: AvroType, path: str) -> list[str]:
        """Return why *reads* may refuse something that *wrote* allows.

        Raises:
            TooIntricate: it takes more steps than a comparison may have.
        """
        self._steps += (
            1 + len(reads.aliases) + len(reads.symbols) + len(reads.fields) + len(wrote.fields) + len(wrote.symbols)
        )
        if self._steps > SCHEMA_STEPS_MAX or len(self._under_way) > PAIRS_DEEP_MAX:
            raise TooIntricate(path)
        if wrote.kind == "union":
            return [why for part in wrote.parts for why in self.refused(part, reads, path)]
        if reads.kind == "union":
            tried = [self.refused(wrote, part, path) for part in reads.parts]
            return (
                []
                if not all(tried)
                else [f"{path or '/'}: may be {wrote.called()}, which no branch of the union reads"]
            )
        if wrote.kind != reads.kind:
            promoted = wrote.kind in PROMOTED.get(reads.kind, ())
            return [] if promoted else [f"{path or '/'}: may be {wrote.called()}, and is read as {reads.called()}"]
        if wrote.kind in NAMED and not _same_name(wrote, reads):
            return [f"{path or '/'}: is called {wrote.name}, and is read as {reads.name}"]
        return self._of_one_kind(wrote, reads, path)

    def _of_one_kind(self, wrote: AvroType, reads: AvroType, path: str) -> list[str]:
        here = path or "/"
        if wrote.kind == "record":
            return self._record(wrote, reads, path)
        if wrote.kind in ("array", "map"):
            return self.refused(wrote.parts[0], reads.parts[0], f"{path}/*")
        known = frozenset(reads.symbols)
        reasons = [f"{here}: symbol {one} is not known" for one in wrote.symbols if one not in known]
        if wrote.size != reads.size:
            reasons.append(f"{here}: has {wrote.size} bytes, and is read as {reads.size}")
        return [] if reads.has_default else reasons

    def _record(self, wrote: AvroType, reads: AvroType, path: str) -> list[str]:
        pair = id(wrote), id(reads)
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        reasons: list[str] = []
        written = {one.name: one for one in wrote.fields}
        for one in reads.fields:
            self._steps += len(one.aliases)
            names = [name for name in (one.name, *one.aliases) if name in written]
            if names:
                reasons += self.refused(written[names[0]].type, one.type, f"{path}/{one.name}")
            elif not one.has_default:
                reasons.append(f"{path}/{one.name}: has no default, and is not written")
        self._under_way.discard(pair)
        return reasons


def _same_name(wrote: AvroType, reads: AvroType) -> bool:
    short = wrote.name.rpartition(".")[2]
    return short in {name.rpartition(".")[2] for name in (reads.name, *reads.aliases)}


# --- data -------------------------------------------------------------------------------------------------------------


def checker(schema: AvroType) -> Callable[[bytes], str]:
    """Return a function that checks the data of a message: it returns the path to the misfit, and the reason; "" if it fits."""

    def check(data: bytes) -> str:
        walk = DatumWalk(data)
        try:
            walk.value(schema, None, SCHEMA_DEPTH_MAX)
            walk.end()
        except Misfit as misfit:
            return str(misfit)
        return ""

    return check


class DatumWalk:
    """A walk through one datum. All methods step over what they name, and raise Misfit if it is not there."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._steps = STEPS_PER_BYTE * len(data) + STEPS_LEAST

    def end(self) -> None:
        """Check that nothing is left over."""
        if self.at != len(self._data):
            raise Misfit(None, f"{len(self._data) - self.at} bytes are left over")

    def step(self, path: Path, depth: int) -> None:
        """Count one value; there are only so many for so many bytes."""
        self._steps -= 1
        if self._steps < 0 or not depth:
            raise Misfit(path, "has more items than bytes" if depth else "is nested too deeply")

    def value(self, schema: AvroType, path: Path, depth: int) -> None:
        """Step over one value."""
        self.step(path, depth)
        if schema.kind in SIZES or schema.kind == "fixed":
            self.read_bytes(SIZES.get(schema.kind, schema.size), path)
        elif schema.kind == "string":
            self.text(path)
        elif schema.kind == "bytes":
            self.read_bytes(self.long(path), path)
        elif schema.kind in ("array", "map"):
            self._items(schema, path, depth)
        elif schema.kind == "record":
            for one in schema.fields:
                self.value(one.type, (path, one.name), depth - 1)
        elif schema.kind == "union":
            self.value(schema.parts[self.index(schema.parts, "branch", path)], path, depth - 1)
        else:
            self.number(schema, path)

    def number(self, schema: AvroType, path: Path) -> None:
        """Step over a boolean, an enum, an int or a long."""
        if schema.kind == "boolean":
            if self.read_bytes(1, path) not in (b"\0", b"\1"):
                raise Misfit(path, "is no boolean")
        elif schema.kind == "enum":
            self.index(schema.symbols, "symbol", path)
        elif not -(1 << 31) <= self.long(path) < 1 << 31 and schema.kind == "int":
            raise Misfit(path, "is no int")

    def index(self, of: Sequence[object], what: str, path: Path) -> int:
        """Return the place of a branch or symbol."""
        at = self.long(path)
        if not 0 <= at < len(of):
            raise Misfit(path, f"is no {what}")
        return at

    def _items(self, schema: AvroType, path: Path, depth: int) -> None:
        for each in self.places(path):
            if schema.kind == "map":
                self.text(each)
            self.value(schema.parts[0], each, depth - 1)

    def places(self, path: Path) -> Iterator[tuple[Path, int]]:
        """Yield the path of each item of an array or map, where the item begins."""
        place = 0
        while count := self.long(path):
            if count < 0:  # with the bytes of the block
                self.long(path)
            for _ in range(abs(count)):
                yield path, place
                place += 1

    def text(self, path: Path) -> bytes:
        """Return a text in UTF-8."""
        text = self.read_bytes(self.long(path), path)
        try:
            text.decode()
        except UnicodeDecodeError:
            raise Misfit(path, "is no text in UTF-8") from None
        return text

    def read_bytes(self, size: int, path: Path) -> bytes:
        """Return so many bytes."""
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise Misfit(path, "is cut off")
        data = self._data[self.at : end]
        self.at = end
        return data

    def long(self, path: Path) -> int:
        """Return a whole number."""
        number = 0
        for place in range(LONG_BYTES_MAX):
            if self.at == len(self._data):
                raise Misfit(path, "is cut off")
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise Misfit(path, "is no number")
