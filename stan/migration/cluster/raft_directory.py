"""The Raft directory of a node: its log, `raft.log`, and snapshots, `snapshots/TERM-INDEX-TIME/` with `meta.json`, `state.bin`.

Promises: reads only; damage is reported by file and offset, and the rest is read.
"""

import base64
import fcntl
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stan.errors import StartError
from stan.migration.cluster.bolt import BoltFile
from stan.migration.cluster.msgpack import unpack
from stan.migration.report import Note

LOG = "raft.log"
_SNAPSHOTS = "snapshots"
_META_BYTES_MAX = 1 << 20
_COMMAND, _CONFIGURATION = 0, 5
"""Kinds of entries: an operation of the server, and a list of the nodes; the others are of no use here."""
_POLYNOMIAL = 0xC96C5795D7870F42
"""Of the checksum of a snapshot's state, CRC-64 of ECMA-182 with its bits reversed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a server at an entry."""

    term: int
    index: int
    voters: frozenset[bytes]
    state: bytes  # RaftSnapshot, encoded
    path: Path


@dataclass(frozen=True, slots=True)
class LoggedCommand:
    """An entry of the log that the server applies."""

    index: int
    data: bytes
    offset: int  # of the entry in the file
    size: int


class RaftDirectory:
    """The Raft directory of a node, read at once as far as it takes to compare it with others.

    Raises:
        StartError: it is none, or in use.
    """

    def __init__(self, directory: Path, note: Note, hint: Note) -> None:
        self.path = directory / LOG
        self._note = note
        self.snapshot = _newest_snapshot(directory / _SNAPSHOTS, hint)
        self.channel_ids: dict[bytes, int] = {}
        self.voters = self.snapshot.voters if self.snapshot else frozenset()
        self.term, self.index = (self.snapshot.term, self.snapshot.index) if self.snapshot else (0, 0)
        self.headless = False  # entries are missing right behind the snapshot, or at the beginning
        try:
            with BoltFile(self.path, note) as file:
                _refuse_company(self.path, file.fileno())
                for item in file.items(b"channels"):
                    if len(item.value) == 8:
                        self.channel_ids[item.key] = int.from_bytes(item.value)
                for entry, _, _ in _entries(self.path, file, note):
                    self._look(entry)
        except OSError as error:
            raise StartError(f"{self.path}: {error.strerror}") from error
        except ValueError as error:
            note(str(self.path), 0, str(error))
        self.headless |= self.index == 0

    def commands(self) -> Iterator[LoggedCommand]:
        """The operations after the snapshot. Raises OSError, ValueError."""
        after = self.snapshot.index if self.snapshot else 0
        with BoltFile(self.path, _nowhere) as file:
            for entry, offset, size in _entries(self.path, file, _nowhere):
                if entry.kind == _COMMAND and entry.index > after:
                    yield LoggedCommand(entry.index, entry.data, offset, size)

    def data(self, offset: int, size: int) -> bytes:
        """Read the data of an entry again. Raises OSError, ValueError."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return _entry(file.read(size)).data

    def _look(self, entry: "_Entry") -> None:
        after = self.snapshot.index if self.snapshot else 0
        if entry.index <= after:
            return
        if entry.index != self.index + 1:
            self._note(str(self.path), 0, f"entries {self.index + 1} to {entry.index - 1} are missing")
            self.headless |= self.index == 0
        self.term, self.index = entry.term, entry.index
        if entry.kind == _CONFIGURATION:
            with suppress(ValueError):  # then the last one counts, as if there were none
                self.voters = _voters(unpack(entry.data), b"Servers", b"ID", b"Suffrage") or self.voters


@dataclass(frozen=True, slots=True)
class _Entry:
    index: int
    term: int
    kind: int
    data: bytes


def _entries(path: Path, file: BoltFile, note: Note) -> Iterator[tuple[_Entry, int, int]]:
    """All entries in their order, with their places."""
    last = 0
    for item in file.items(b"logs"):
        try:
            entry = _entry(item.value)
            if entry.index != int.from_bytes(item.key) or entry.index <= last:
                raise ValueError(f"entry {entry.index} follows {last}")
        except ValueError as error:
            note(str(path), item.offset, f"left out: {error}")
            continue
        last = entry.index
        yield entry, item.offset, len(item.value)


def _entry(value: bytes) -> _Entry:
    """Decode an entry. Raises ValueError: it is none."""
    match unpack(value):
        case {b"Index": int(index), b"Term": int(term), b"Type": int(kind), b"Data": bytes() | None as data} if (
            index > 0
        ):
            return _Entry(index, term, kind, data or b"")
    raise ValueError("not an entry of a Raft log")


def _newest_snapshot(directory: Path, hint: Note) -> Snapshot | None:
    """Return the newest valid snapshot, as the original takes an older one for one that is damaged."""
    for path in sorted(directory.glob("*-*-*"), key=_order, reverse=True):
        if path.suffix == ".tmp" or not path.is_dir():
            continue
        try:
            return _snapshot(path)
        except OSError as error:
            hint(str(path), 0, f"cannot be read: {error.strerror}")
        except (ValueError, RecursionError) as error:
            hint(str(path), 0, f"the snapshot is left out: {error}")
    return None


def _order(path: Path) -> list[int]:
    return [int(part) if part.isascii() and part.isdigit() else 0 for part in path.name.split("-")]


def _snapshot(path: Path) -> Snapshot:
    with (path / "meta.json").open("rb") as file:
        meta = json.loads(file.read(_META_BYTES_MAX))
    data = (path / "state.bin").read_bytes()
    try:
        index, term, crc = int(meta["Index"]), int(meta["Term"]), base64.b64decode(meta["CRC"] or "")
    except (KeyError, TypeError) as error:
        raise ValueError("meta.json does not describe a snapshot") from error
    if not path.name.startswith(f"{term}-{index}-"):
        raise ValueError("meta.json is of another snapshot")
    if crc != _crc64(data):
        raise ValueError("state.bin has another checksum")
    size = int.from_bytes(data[:4], "little")
    if size > len(data) - 4:
        raise ValueError("state.bin is cut off")
    return Snapshot(
        term, index, _voters(meta.get("Configuration"), "Servers", "ID", "Suffrage"), data[4 : 4 + size], path
    )


def _voters(configuration: object, servers: str | bytes, name: str | bytes, suffrage: str | bytes) -> frozenset[bytes]:
    """Return the ids of the nodes that vote, none if *configuration* does not tell."""
    nodes = configuration.get(servers) if isinstance(configuration, dict) else None
    known = [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
    voters = [node.get(name) for node in known if not node.get(suffrage)]
    texts = [voter.encode() if isinstance(voter, str) else voter for voter in voters]
    return frozenset(text for text in texts if isinstance(text, bytes) and text)


def _crc64(data: bytes) -> bytes:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 - the usual way to make the table
        table.append(value)
    crc = 0xFFFF_FFFF_FFFF_FFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return (crc ^ 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8)


def _refuse_company(path: Path, handle: int) -> None:
    """Raise StartError if a running node has the log open, which locks it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise StartError(f"{path} is in use by another server; stop it first") from error


def _nowhere(_file: str, _offset: int, _text: str) -> None:
    """Report nothing: the first reading has."""
