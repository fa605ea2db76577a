"""Snapshots of groups: `groups/<n>/state-<index>.snap`, the state of a group as of an entry, without message bodies.

A snapshot file is a pb.Snapshot between two fields that the message does not have, the second one with a CRC-32; see
docs/log-format.md. Blocking; raises OSError, Damage.
"""

import re
import zlib

from google.protobuf.message import DecodeError
from stan_protocol.scalars import GroupId, RaftIndex

from stan.errors import Damage
from stan.log.files.disk import Files, read_file, write_durably
from stan.protocol.proto import entries_pb2 as pb

_SNAPSHOT = re.compile(r"state-(\d{20})\.snap")
_SNAPSHOT_FRONT = b"\xc2\x3e\x04SNAP"
_SNAPSHOT_END = b"\xcd\x3e"
"""Tags of fields 1000 and 1001."""


class SnapshotFiles:
    """The snapshot files of all groups, and the newest one of each group."""

    def __init__(self, files: Files, groups: str) -> None:
        """*groups*: the directory of the groups' directories."""
        self.newest: dict[GroupId, RaftIndex] = {}  # index of the newest snapshot, by group; 0: there is none
        self._files = files
        self._groups = groups

    def _path(self, number: GroupId) -> str:
        return f"{self._groups}/{number}"

    def is_due(self, number: GroupId, sealed: RaftIndex, flushed: RaftIndex) -> bool:
        """True if a snapshot of a group is to be written: a segment was sealed since the newest one, and the state's rows are as
        new as its end."""
        return self.newest.get(number, RaftIndex(0)) < sealed <= flushed

    def find(self, number: GroupId) -> RaftIndex:
        """Look for the newest snapshot of a group; returns its index, 0 if there is none."""
        self.newest[number] = max(self._indexes(number), default=RaftIndex(0))
        return self.newest[number]

    def _indexes(self, number: GroupId) -> list[RaftIndex]:
        matches = map(_SNAPSHOT.fullmatch, self._files.listdir(self._path(number)))
        return sorted(RaftIndex(int(name[1])) for name in matches if name)

    def read(self, number: GroupId, index: RaftIndex) -> pb.Snapshot:
        """Read the snapshot of a group as of an index. Raises Damage."""
        return read_snapshot(self._files, snapshot_path(self._path(number), index))

    def write(self, number: GroupId, index: RaftIndex, content: bytes) -> None:
        """Write the content of a snapshot file durably, in place of the older ones."""
        older = [other for other in self._indexes(number) if other < index]
        write_durably(self._files, snapshot_path(self._path(number), index), content)
        for other in older:
            self._files.unlink(snapshot_path(self._path(number), other))


def snapshot_bytes(*serialized: bytes) -> bytes:
    """The content of a snapshot file: the message, given in parts, between two fields that it does not have, the second one with
    a CRC-32."""
    content = b"".join((_SNAPSHOT_FRONT, *serialized))
    return b"".join((content, _SNAPSHOT_END, zlib.crc32(content).to_bytes(4, "little")))


def read_snapshot(files: Files, path: str) -> pb.Snapshot:
    """Read a snapshot file. Raises Damage."""
    content = read_file(files, path)
    framed = content.startswith(_SNAPSHOT_FRONT) and content[-6:-4] == _SNAPSHOT_END
    if not framed or zlib.crc32(content[:-6]) != int.from_bytes(content[-4:], "little"):
        raise Damage(f"{path}: wrong CRC")
    try:
        return pb.Snapshot.FromString(content[len(_SNAPSHOT_FRONT) : -6])
    except DecodeError as error:
        raise Damage(f"{path}: {error}") from error


def snapshot_path(directory: str, index: RaftIndex) -> str:
    """Name of the file with the state as of *index*."""
    return f"{directory}/state-{index:020d}.snap"
