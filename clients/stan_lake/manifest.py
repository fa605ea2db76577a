"""The content of a table of the lake: its files with their ranges of sequences, as JSON documents. Pure.

A manifest is one document, and those of its chunks, each of which has a part of the files: what does not change is stored once.
A table has the messages of one incarnation of a channel in one cluster: after a deletion the next one has another uid, and
another table. A manifest never changes; each commit writes the next version. Promises: the files of a manifest are in the order
of their sequences, do not overlap, and lie below `next`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Final

from stan_lake.errors import LakeError

FORMAT: Final = 2
RESTORE: Final = "restore it from a copy, and remove nothing: files that no manifest lists are deleted"
Run = tuple[int, int]
"""First and last sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file."""

    name: str
    first: int  # sequences of its first and last message
    last: int
    rows: int
    bytes: int
    message_bytes: int  # of its messages in memory, before compression
    first_time_ns: int  # the earliest and the latest timestamp
    last_time_ns: int
    expires_at_ns: int = 0  # when the first message of it expires; 0: none does


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of the files, stored by itself; it never changes."""

    name: str
    files: tuple[DataFile, ...]  # at least one

    def to_json(self) -> bytes:
        """Return the chunk as it is stored."""
        return _json({"format": FORMAT, "files": [asdict(file) for file in self.files]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A file or chunk that no manifest lists any more, but stays for a while for readers of older manifests."""

    name: str
    at_s: int  # Unix


@dataclass(frozen=True, slots=True, kw_only=True)
class TableManifest:
    """A version of a table."""

    channel: str  # UTF-8, other bytes as surrogates
    uid: int
    cluster: str = ""  # whose channel it is; "": not known yet
    version: int = 0  # 0: there is none yet
    epoch: int = 0  # counts the tierers that have taken the table over: only the last one may write
    next: int = 1  # everything below this sequence is in the files, or is gone
    read_ns: int = 0  # timestamp of the channel's newest message when it was read; 0: not known
    files: tuple[DataFile, ...] = ()  # all, those of chunks too
    chunks: tuple[Chunk, ...] = ()  # as they are stored; a commit brings them up to date
    missing: tuple[Run, ...] = ()  # removed by the broker before they came here
    deleted: tuple[Run, ...] = ()  # in the files, and not to be read
    replaced: tuple[Replaced, ...] = ()
    released: bool = False  # the last writer has ended: the tierer before it may go on

    @property
    def first(self) -> int:
        """The oldest sequence in the files; `next` if there are none."""
        return self.files[0].first if self.files else self.next

    @property
    def alone(self) -> tuple[DataFile, ...]:
        """The files that are in no chunk."""
        elsewhere = {file.name for chunk in self.chunks for file in chunk.files}
        return tuple(file for file in self.files if file.name not in elsewhere)

    def overlapping(self, first: int, end: int) -> list[DataFile]:
        """Return the files with sequences of [first, end)."""
        return [file for file in self.files if file.first < end and file.last >= first]

    def to_json(self) -> bytes:
        """Return the manifest as it is stored, without the files of chunks."""
        rest = replace(self, chunks=(), files=self.alone)
        return _json({"format": FORMAT, **asdict(rest), "chunks": [chunk.name for chunk in self.chunks]})


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise LakeError(f"{what} is damaged: it has no {error}; {RESTORE}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise LakeError(f"{what} is damaged: {error}; {RESTORE}") from None


def _document(text: bytes, what: str) -> dict[str, Any]:
    """Return the fields of a document with files. Raises LakeError: it is of another version of this program; those of
    `_reading`."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    layout = document.pop("format")
    if type(layout) is not int:
        raise TypeError(f"its format is {layout!r}")
    later = sorted(document.keys() - {one.name for one in fields(TableManifest)})
    if layout > FORMAT or later:
        has = (
            f"the fields {', '.join(later)}" if layout <= FORMAT else f"format {layout} ({FORMAT} is the newest known)"
        )
        raise LakeError(f"{what} has {has}, of a later version of stan_lake: go on with that version")
    if layout < FORMAT:
        raise LakeError(f"{what} has format {layout}, and {FORMAT} is the only one that this version reads")
    files = tuple(DataFile(**_checked(DataFile, file)) for file in document["files"])
    return {**document, "files": files}


def from_json(text: bytes, chunk: Callable[[str], Chunk | bytes]) -> TableManifest:
    """Read a manifest; *chunk* returns one of this name, or the text of it. Raises LakeError: it or a chunk is none, or one of
    another version of this program."""
    with _reading("the manifest"):
        document = _document(text, "the manifest")
        chunks = tuple(_chunk(name, chunk(name)) for name in document["chunks"])
        files = [*document["files"], *(file for one in chunks for file in one.files)]
        made = TableManifest(
            **{
                **document,
                "files": tuple(sorted(files, key=lambda file: file.first)),
                "chunks": chunks,
                "missing": _runs(document["missing"]),
                "deleted": _runs(document["deleted"]),
                "replaced": tuple(Replaced(**_checked(Replaced, file)) for file in document["replaced"]),
            }
        )
        if (
            not isinstance(made.channel, str)
            or not isinstance(made.cluster, str)
            or not isinstance(made.released, bool)
        ):
            raise TypeError(f"channel is {made.channel!r} of {made.cluster!r}")
        numbers = made.uid, made.version, made.epoch, made.next, made.read_ns
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise TypeError(f"a number is none: {numbers}")
        ends = [bound for file in made.files for bound in (file.first, file.last + 1)] + [made.next]
        if any(later < earlier for earlier, later in pairwise(ends)):
            raise ValueError("its files overlap")
    return made


def _chunk(name: str, chunk: Chunk | bytes) -> Chunk:
    if isinstance(chunk, Chunk):
        return chunk
    what = f"the chunk {name} of the manifest"
    with _reading(what):
        return Chunk(name=name, files=_document(chunk, what)["files"])


def _checked(kind: type, values: Any) -> dict[str, Any]:
    """Return the fields of a file, of which each has its type, and whose name lies in the table's directory."""
    for one in fields(kind):
        value = values[one.name]
        if type(value) is not one.type or (one.type is int and value < 0):
            raise TypeError(f"{one.name} of a file is {value!r}")
    if "/" in values["name"] or not values["name"]:
        raise TypeError(f"a file lies elsewhere: {values['name']!r}")
    return dict(values)


def _runs(pairs: Any) -> tuple[Run, ...]:
    return merged((first, last) for first, last in pairs)


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs in order, those that touch as one. Raises TypeError, ValueError: they are none."""
    joined: list[Run] = []
    for first, last in sorted(runs):
        if not 0 < first <= last:
            raise ValueError(f"{first} to {last} is no run")
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def within(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """Return the parts of *runs* that lie in [first, last]."""
    return [(max(begin, first), min(end, last)) for begin, end in runs if begin <= last and end >= first]


def without(runs: Sequence[Run], first: int, last: int) -> tuple[Run, ...]:
    """Return the parts of *runs* that lie outside of [first, last]."""
    below, above = within(runs, 1, first - 1), within(runs, last + 1, 1 << 64)
    return (*below, *above)
