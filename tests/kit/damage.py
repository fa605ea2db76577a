"""Damage of the newest entries of a log, on a disk in memory: what a bad medium, a cable or a hand does, not a crash; and of
what is in memory."""

import struct
from typing import NamedTuple

_HEADER = struct.Struct("<2sBBIIIQ")  # of an entry, see docs/log-format.md
_MAGIC = b"\xe7\x5a"
_FIRST = 48  # position of a segment's first entry

KINDS = ("cut", "inside", "flip", "zeros", "flushed")
NEWEST = 6
"""Entries that damage may reach back over."""


def written(data):
    """A segment's bytes without the zeros behind its newest entry."""
    at = _FIRST
    while data[at : at + 2] == _MAGIC:
        at += _HEADER.size + int.from_bytes(data[at + 4 : at + 8], "little")
    return data[:at] if not any(data[at:]) else data


def log_bytes(directory):
    """Bytes of all logs below a directory of a server that may run, without the zeros behind their ends."""
    return sum(len(written(path.read_bytes())) for path in directory.rglob("*.log"))


class Place(NamedTuple):
    """Of an entry."""

    path: str
    index: int
    start: int
    end: int


def places(files, directory):
    """Of all entries of a log, oldest first."""
    found = []
    for path in files.paths():
        if path.startswith(f"{directory}/") and path.endswith(".log"):
            data, at = files.content(path), _FIRST
            while at + _HEADER.size <= len(data):
                magic, *_, length, _, _, index = _HEADER.unpack_from(data, at)
                end = at + _HEADER.size + length
                if magic != _MAGIC or end > len(data):  # zeros behind the newest entry
                    break
                found.append(Place(path, index, at, end))
                at = end
    return found


def damage(files, directory, kind, draw, *, durable, flushed):
    """Damage an entry that was *durable*, or all behind what was *flushed*; returns its place, None if nothing was.

    All that was written before is safe on the medium from then on: damage is noticed later than it happens.
    """
    _settle(files)
    at = [place for place in places(files, directory) if place.index <= durable]
    at = [place for place in at if place.index > flushed][:1] if kind == "flushed" else at[-NEWEST:]
    if kind in ("flip", "zeros"):  # of older segments a start trusts the index_file, and each read looks for itself
        newest = max(path for path in files.paths() if path.startswith(f"{directory}/") and path.endswith(".log"))
        at = [place for place in at if place.path == newest]
    if not at:
        return None
    place = draw.choice(at)
    data = bytearray(files.content(place.path))
    before = bytes(data)
    if kind == "flip":
        bit = draw.randrange(place.start * 8, place.end * 8)
        data[bit // 8] ^= 1 << bit % 8
    elif kind == "zeros":
        begin = draw.randrange(place.start, place.end)
        data[begin:] = bytes(len(data) - begin)
    else:
        del data[place.start if kind != "inside" else draw.randrange(place.start + 1, place.end) :]
        for path in [path for path in files.paths() if path.startswith(f"{directory}/") and path > place.path]:
            if path.endswith((".log", ".idx")) and path[-24:-4] > place.path[-24:-4]:
                del files.names[path], files.synced_names[path]
    files.put(place.path, bytes(data))
    return place if data != before else None  # what became zeros may have been zeros


def _settle(files):
    for node in files.names.values():
        node.settle()
    files.synced_names = dict(files.names)
    files.name_changes.clear()


def change_in_memory(broker, group=1, bit=32):
    """A bit of the first position of a group, in memory, is another than it was, and will be written; returns its number."""
    machine = broker.services.node.groups[group].machine
    cursor = next(iter(machine.cursors.values()))
    cursor.last_sent ^= bit
    machine.dirty.cursors.add(cursor.cursor_id)
    return cursor.cursor_id
