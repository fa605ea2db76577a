"""A lake for tests: a store that crashes at a chosen moment, a channel in memory whose old messages go as soon as they may."""

import contextlib
import re
import shutil
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import StaticTable
from stan_client import Bookmark, ChannelInfo, Fetched
from stan_lake.manifest import TableManifest
from stan_lake.reading import read_file
from stan_lake.store import Children
from stan_lake.table import LakeTable
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.proto.wire_pb2 import MsgProto

SECOND = 1_000_000_000
UID = 7


class CrashError(BaseException):
    """The process dies: nothing of it may go on."""


class CrashingStore:
    """Another store, in front of which the process dies at a write or a removal: before it is done, or behind it."""

    def __init__(self, inner):
        self.inner = inner
        self.moments = 0  # at which it could have died
        self.dies_at = 0  # 0: never
        self.after = False

    def _do(self, call, *args):
        self.moments += 1
        if self.moments != self.dies_at:
            return call(*args)
        if self.after:
            call(*args)
        raise CrashError

    def put_new(self, path, data):
        return self._do(self.inner.put_new, path, data)

    def delete(self, path):
        with contextlib.suppress(FileNotFoundError):
            self.inner.get(path)  # where there is nothing, nothing happens
            self._do(self.inner.delete, path)

    def prune(self, path):
        return self._do(self.inner.prune, path)

    def get(self, path):
        return self.inner.get(path)

    def children(self, path):
        return self.inner.children(path)

    def opened(self, path):
        return self.inner.opened(path)

    def location(self, path):
        return self.inner.location(path)


class MemoryStore:
    """A store of this process alone, for runs with very many writes."""

    def __init__(self, root="/nowhere"):
        self.root = Path(root)
        self.objects = {}

    def put_new(self, path, data):
        return self.objects.setdefault(path, data) is data

    def get(self, path):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def children(self, path):
        start = f"{path}/" if path else ""
        inside = [name[len(start) :].split("/") for name in self.objects if name.startswith(start)]
        return Children(
            sorted({parts[0] for parts in inside if len(parts) > 1}),
            sorted(parts[0] for parts in inside if len(parts) == 1),
        )

    def delete(self, path):
        self.objects.pop(path, None)

    def prune(self, path):
        pass

    def opened(self, path):
        return pa.BufferReader(self.get(path))

    def location(self, path):
        return str(self.root / path)

    def to_disk(self):
        """Write all to the place that it tells of, and remove what else is there."""
        shutil.rmtree(self.root, ignore_errors=True)
        for name, data in self.objects.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(data)


class OneChannel:
    """A channel behind the part of `Direct` that a tierer uses. What lies below its position goes at once."""

    def __init__(self, name="orders"):
        self.name = name
        self.cluster = "aa"
        self.messages = {}
        self.first, self.last = 1, 0
        self.last_timestamp = 0
        self.reads_behind = []  # what each read_range names as the newest timestamp of what was read before
        self.position = 0
        self.removals, self.removed = 0, []
        self.gone = set()  # all that was ever removed
        self.later = ()  # what is removed behind the next answer
        self.positions = []  # all that were set
        self.answer_rows = 3
        self.batches = self.bookmarks = self

    def publish(self, count, **fields):
        for _ in range(count):
            self.last += 1
            text = b"%d" % self.last
            self.messages[self.last] = MsgProto(
                sequence=self.last, data=text, **{"timestamp": self.last * SECOND, "key": text, **fields}
            )
            self.last_timestamp = self.messages[self.last].timestamp

    def drop_below(self, first):
        """Retention."""
        self.first = max(self.first, min(first, self.last + 1))
        self.messages = {at: message for at, message in self.messages.items() if at >= self.first}

    @property
    def info(self):
        size = sum(message.ByteSize() for message in self.messages.values())
        return ChannelInfo(self.name, UID, self.first if self.last else 0, self.last, size, 0, 0, self.cluster)

    def _answer(self, first, last):
        cluster = bytes.fromhex(self.cluster)
        found = FetchResponse(uid=UID, cluster=cluster, first_sequence=self.first, last_sequence=self.last)
        found.lost_until = self.first - 1
        found.last_timestamp = self.last_timestamp
        taken = [self.messages[at] for at in range(first, last + 1) if at in self.messages][: self.answer_rows]
        records = b""
        for message in taken:
            found.runs.add(first_sequence=message.sequence, count=1, timestamp=message.timestamp, position=len(records))
            text = message.SerializeToString()
            records += len(text).to_bytes(4, "little") + text
        found.records = records
        more = taken and any(at in self.messages for at in range(taken[-1].sequence + 1, last + 1))
        found.next_sequence = taken[-1].sequence + 1 if more else max(first, min(last, self.last) + 1)
        return Fetched(self.name, found)

    async def read_range(self, _channel, first, last, *, uid, cluster, read_ns):
        assert (uid, cluster) == (UID, self.cluster)
        self.reads_behind.append(read_ns)
        while first <= min(last, self.last):
            found = self._answer(first, last)
            yield found
            first = found.next_sequence
            later, self.later = self.later, ()
            self.remove(*later)

    async def fetch(self, _channel, *, start, count):
        assert count == 1
        found = self._answer(start.fetch_start()["from_sequence"], self.last)
        if found.count > 1:
            del found.runs[1:]
        return found

    @property
    def place(self):
        """The position as the broker tells of it."""
        return Bookmark(self.position, self.last, self.removals, tuple(self.removed)) if self.positions else None

    def remove(self, *sequences):
        """An operator deletes messages, of which the broker may have lost some already."""
        if not sequences:
            return
        for sequence in sequences:
            self.messages.pop(sequence, None)
        if self.positions:
            self.removals += 1
            self.removed += [(sequence, sequence) for sequence in sequences]
        self.gone |= set(sequences)

    async def set(self, _name, positions, *, taken):
        if taken >= self.removals:
            self.removed = []
        await self.noted(_name, positions, taken=taken)
        self.drop_below(self.position)

    async def noted(self, _name, positions, *, taken):
        """Set the position; retention waits."""
        self.position = positions[self.name]
        self.positions.append(self.position)


def parquet_files(store, table):
    """The names of all Parquet files of a table, listed or not."""
    return {name for name in store.children(table.path("").rstrip("/")).objects if name.endswith(".parquet")}


def iceberg_of(store, table, **properties):
    """A table as readers of Iceberg find it; None: there is none yet."""
    names = [name for name in store.children(table.path("metadata")).objects if name.endswith(".metadata.json")]
    newest = max(names, key=lambda name: int(re.findall(r"\d+", name)[0]), default=None)
    return newest and StaticTable.from_metadata(store.location(table.path(f"metadata/{newest}")), properties)


def rows_of(store, channel, manifest: TableManifest | None = None, columns=("sequence", "value"), now_ns=0):
    """All rows of a table, as tuples of these columns."""
    table = LakeTable(store, channel, UID)
    manifest = manifest or table.manifest()
    found = []
    for file in manifest.files:
        batches = read_file(
            store,
            table.path(file.name),
            file,
            file.first,
            file.last + 1,
            columns,
            deleted=manifest.deleted,
            now_ns=now_ns,
        )
        for batch in batches:
            found += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return found
