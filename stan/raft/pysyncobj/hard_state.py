"""Raft's hard state of one member of a group, in a file: term, vote, amnesia, a hint of its commit index.

The file has two slots, a page apart, each with a number and a CRC. Of the slots whose CRC is right, the one with the higher
number counts:

    slot   magic u32 | version u32 | number u64 | term u64 | commit u64 | length u32 | amnesiac u8 | voted for | CRC-32 u32

A new file is amnesiac: a member of the same name may have voted and acknowledged entries before. A member that knows its votes,
and may have lost entries that it had acknowledged before they were synced, has forgotten entries only.

Promises: `save` returns only after term and vote are on stable storage; a crash at any point leaves the old pair or the new one.
Only the commit hint may lag or be lost. Never overwrites the slot that was synced last, so a torn write of the hint loses neither
term nor vote. Never replaces a damaged file: the caller has to put it aside first, and the new file is amnesiac.
"""

import zlib
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Self

from stan_protocol.scalars import RaftIndex, Term

from stan import limits
from stan.errors import Damage, Frozen, StartError
from stan.invariant import invariant
from stan.log.files.disk import Files


class Amnesia(IntEnum):
    """The promises that a member may have made without knowing of them; written to disk."""

    NONE = 0
    ALL = 1  # votes and entries
    ENTRIES = 2  # entries that it acknowledged before they were durable


_MAGIC = 0x54524148
_VERSION = 1
_SLOT = Struct("<IIQQQIB")
_KINDS = frozenset(map(int, Amnesia))
_CRC = Struct("<I")
_SLOT_BYTES = 4096
"""Distance of the two slots in the file: a page, so that no write touches both."""
_NEW = ".new"
HARD_STATE = "hard_state"
"""Name of the file."""


class HardState:
    """Term, vote and commit hint of one member of one group. Made by `open` only; every method blocks for one small write."""

    def __init__(self, files: Files, path: str, descriptor: int) -> None:
        self.term = Term(0)
        self.voted_for: str | None = None
        self.commit_hint = RaftIndex(0)
        self.amnesia = Amnesia.NONE
        self._files = files
        self._path = path
        self._descriptor = descriptor
        self._number = 0
        self._synced_slot = 0
        self._hint_written = RaftIndex(0)
        self._frozen = ""

    @classmethod
    def open(cls, files: Files, directory: str, name: str = HARD_STATE) -> Self:
        """Open the file in *directory*, which is created if it is missing.

        Raises:
            Damage: no slot is valid.
            StartError: the disk fails.
        """
        path = f"{directory}/{name}"
        try:
            files.makedirs(directory)
            if name not in files.listdir(directory):
                _create(files, directory, path)
            state = cls(files, path, files.open(path))
            try:
                state._load()
            except Damage:
                state.close()
                raise
            # A process that was killed may have left its newest slot unsynced, and one whose sync failed a slot that can be read
            # and that no later sync covers: only a slot that is written again is sure to reach the disk.
            slot = state._put(state.term, state.voted_for, state.amnesia)
            files.fdatasync(state._descriptor)
            state._synced_slot = slot
            files.sync_directory(directory)
        except OSError as error:
            raise StartError(f"{path}: {error.strerror}") from error
        return state

    @property
    def amnesiac(self) -> bool:
        """True if this member does not know all that it may have promised."""
        return self.amnesia is not Amnesia.NONE

    def save(self, term: Term, voted_for: str | None) -> None:
        """Make term and vote durable.

        Raises:
            Frozen: the disk failed; no message that shows this term or vote may leave, now or later.
        """
        self._save(term, voted_for, self.amnesia)

    def mark_readmitted(self) -> None:
        """Note durably that this member is not amnesiac (any more): its votes and answers count. Raises Frozen."""
        self._save(self.term, self.voted_for, Amnesia.NONE)

    def mark_amnesiac(self) -> None:
        """Note durably that this member is amnesiac: entries that it acknowledged may be gone. Raises Frozen."""
        self._save(self.term, self.voted_for, Amnesia.ALL)

    def mark_entries_forgotten(self) -> None:
        """Note durably that entries which this member acknowledged before they were durable may be gone. Raises Frozen."""
        if not self.amnesiac:
            self._save(self.term, self.voted_for, Amnesia.ENTRIES)

    def _save(self, term: Term, voted_for: str | None, amnesia: Amnesia) -> None:
        if (term, voted_for, amnesia) == (self.term, self.voted_for, self.amnesia):
            return
        invariant(term >= self.term, "R1: terms never go back", term=term, had=self.term)
        invariant(
            term > self.term or self.voted_for in (None, voted_for),
            "R1: one vote per term",
            term=term,
            voted_for=voted_for,
            had=self.voted_for,
        )
        slot = self._write(term, voted_for, amnesia)
        try:
            self._files.fdatasync(self._descriptor)
        except OSError as error:
            raise self._freeze(error) from error
        self._synced_slot = slot
        self.term, self.voted_for, self.amnesia = term, voted_for, amnesia

    def hint(self, commit: RaftIndex) -> None:
        """Raise the commit hint in memory; `write_hint` or the next `save` writes it."""
        self.commit_hint = max(self.commit_hint, commit)

    def lower_hint(self, commit: RaftIndex) -> None:
        """Lower the commit hint to *commit*, the end of a log that a loss of power has cut; else a later start finds damage."""
        self.commit_hint = commit
        with suppress(OSError):
            self._put(self.term, self.voted_for, self.amnesia)

    def write_hint(self) -> None:
        """Write the commit hint, if it has moved, without a sync. A failure is ignored: it costs only the hint."""
        if self.commit_hint > self._hint_written and not self._frozen:
            with suppress(OSError):
                self._put(self.term, self.voted_for, self.amnesia)

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._descriptor)

    def _write(self, term: Term, voted_for: str | None, amnesia: Amnesia) -> int:
        """Write the slot that is not the synced one; returns its number (0 or 1). Raises Frozen."""
        if self._frozen:
            raise Frozen(self._frozen)
        try:
            return self._put(term, voted_for, amnesia)
        except OSError as error:
            raise self._freeze(error) from error

    def _put(self, term: Term, voted_for: str | None, amnesia: Amnesia) -> int:
        """Write a slot; raises OSError, and then that slot may be torn."""
        slot = 1 - self._synced_slot
        data = _encode(self._number + 1, term, self.commit_hint, voted_for, amnesia)
        self._files.pwritev(self._descriptor, [data], slot * _SLOT_BYTES)
        self._number += 1
        self._hint_written = self.commit_hint
        return slot

    def _load(self) -> None:
        slots = []
        for slot in (0, 1):
            decoded = _decode(self._files.pread(self._descriptor, _SLOT_BYTES, slot * _SLOT_BYTES))
            if decoded is not None:
                slots.append((*decoded, slot))
        if not slots:
            raise Damage(f"{self._path} is damaged: neither of its two slots is right")
        self._number, self.term, self.commit_hint, self.voted_for, self.amnesia, self._synced_slot = max(
            slots, key=lambda item: item[0]
        )
        self._hint_written = self.commit_hint

    def _freeze(self, error: OSError) -> Frozen:
        self._frozen = f"{self._path}: {error.strerror}"
        return Frozen(self._frozen)


def _create(files: Files, directory: str, path: str) -> None:
    """Make the file: written and synced under another name first, so a file of the right name always has a valid slot."""
    descriptor = files.create(path + _NEW)
    try:
        first = _encode(1, Term(0), RaftIndex(0), None, Amnesia.ALL)
        files.pwritev(
            descriptor, [first + bytes(2 * _SLOT_BYTES - len(first))], 0
        )  # both pages: later writes need no room
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(path + _NEW, path)
    files.sync_directory(directory)


def _encode(number: int, term: Term, commit: RaftIndex, voted_for: str | None, amnesia: Amnesia) -> bytes:
    name = (voted_for or "").encode()
    invariant(len(name) <= limits.NODE_NAME_BYTES_MAX, "names of nodes are bounded", name=name)
    data = _SLOT.pack(_MAGIC, _VERSION, number, term, commit, len(name), amnesia) + name
    return data + _CRC.pack(zlib.crc32(data))


def _decode(data: bytes) -> tuple[int, Term, RaftIndex, str | None, Amnesia] | None:
    """Number, term, commit hint, vote and amnesia of a slot; None if the slot is torn, damaged or of an unknown version."""
    if len(data) < _SLOT.size:
        return None
    magic, version, number, term, commit, length, amnesia_code = _SLOT.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or length > limits.NODE_NAME_BYTES_MAX:
        return None
    start = _SLOT.size
    end = start + length
    if len(data) < end + _CRC.size:
        return None
    if _CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        return None
    amnesia = Amnesia(amnesia_code) if amnesia_code in _KINDS else Amnesia.ALL
    return number, Term(term), RaftIndex(commit), data[start:end].decode() or None, amnesia
