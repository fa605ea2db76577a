"""Parsers of what disks give back: logs, rows, manifests, and the stores of NATS Streaming Server."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from google.protobuf.message import DecodeError

from stan.core.state.group import GroupMachine
from stan.edge.storage.manifest import Manifest, read_manifest
from stan.errors import Damage, StanError
from stan.invariant import InvariantError
from stan.log.files.filelog import FileLog
from stan.log.files.segment import SEGMENT_HEADER_SIZE, decode_segment_header
from stan.migration.messages import SliceReader
from stan.migration.subscriptions import read_positions
from stan.protocol.entries import decode_records
from stan.protocol.proto import entries_pb2 as pb
from stan.raft import configuration
from stan.raft.pysyncobj import hard_state
from tests.fuzz.engine import Parser
from tests.kit import old_store
from tests.kit.batches import batch, change, entry
from tests.kit.files import CrashingFiles

STORE = b"0123456789abcdef"
DIRECTORY = "/store/groups/1"
MEMORY = "/dev/shm"  # noqa: S108 - faster than a disk


def _open(files: CrashingFiles) -> FileLog:
    log, _ = FileLog.open(
        Path(DIRECTORY), 1, STORE, files=files, segment_bytes_max=250, lost_found=Path("/store/lost+found")
    )
    return log


def _written() -> dict[str, bytes]:
    """Contents of the files of a log of three segments."""
    files = CrashingFiles()
    log = _open(files)
    made = [entry(1, batch(7, 1, 2, size=9)), change(2), entry(3, batch(7, 3, 1, size=9), batch(8, 1, 1, size=9))]
    made += [change(4, b"", term=2), entry(5, batch(7, 4, 1, size=9), term=2), entry(6, batch(8, 2, 2, size=9), term=2)]
    for one in made:
        log.append([one])
    log.close()
    return {path: files.content(path) for path in files.paths()}


def logs() -> Iterator[Parser]:
    """The log: whole directories, and its words one by one."""
    contents = _written()
    segments = sorted(path for path in contents if path.endswith(".log"))
    beside = sorted(path for path in contents if not path.endswith(".log"))

    def of(path: str, name: str) -> Parser:
        def opened(data: bytes) -> None:
            files = CrashingFiles()
            for other, good in contents.items():
                files.put(other, data if other == path else good)
            log = _open(files)
            log.commit(log.last_index)
            for uid in (7, 8):
                for ref in log.channel(uid).refs(0, 1 << 60, 1 << 30, 100):
                    log.read(ref)
            log.close()

        return Parser(name, (contents[path],), opened, (Damage,))

    yield of(segments[0], "first segment of a log")
    yield of(segments[-1], "last segment of a log")
    yield from (of(path, f"{Path(path).name.rpartition('.')[2]} of a log") for path in beside[:1])
    data = contents[segments[0]]
    yield Parser("headers of segments", (data[:SEGMENT_HEADER_SIZE],), decode_segment_header, (Damage,))

    def batches(data: bytes) -> None:
        for verify in (True, False):
            with suppress(Damage):
                decode_records(data, verify=verify)

    yield Parser(
        "record batches", (entry(1, batch(7, 1, 2)).body, entry(1, batch(7, 1, 2), batch(8, 1, 1)).body), batches
    )
    yield Parser("states of votes", _hard_states(), hard_state._decode)
    voters = configuration.encode(("a", "b", "c"))
    yield Parser("sets of voters", (voters,), configuration.decode, (UnicodeDecodeError,))  # the entry's CRC was right


def _hard_states() -> tuple[bytes, ...]:
    return tuple(hard_state._encode(1, 2, 3, name, kind) for name in (None, "n1") for kind in hard_state.Amnesia)


# --- the replicated state ----------------------------------------------------------------------------------------------------


def _machine(data: bytes) -> None:
    GroupMachine(1).restore(pb.Snapshot.FromString(data))


def states() -> Iterator[Parser]:
    """Snapshots and committed entries."""
    cursor = pb.Cursor(cursor_id=1, uid=7, name=b"d", kind=1, client_id=b"me", last_sent=9, to_redeliver=[1, 3])
    member = pb.Subscription(subscription_id=2, cursor_id=1, client_id=b"me", inbox=b"in", pending=[4, 5])
    snapshot = pb.Snapshot(applied_index=5, cursors=[cursor], subscriptions=[member])
    # They carry a CRC on the way, and stand in SQLite: who is wrong in shape only must not hang or fill the memory.
    refuses = (DecodeError, Damage, InvariantError, KeyError, ValueError, OverflowError)
    yield Parser("snapshots of groups", (snapshot.SerializeToString(),), _machine, refuses)


# --- files beside the log -----------------------------------------------------------------------------------------------------


def manifests() -> Iterator[Parser]:
    """stan.json."""
    good = Manifest("test-cluster", 8, STORE.hex(), "boot", clean=True, node_id="n1")
    text = json.dumps(asdict(good)).encode()

    def read(data: bytes) -> None:
        files = CrashingFiles()
        files.put("/store/stan.json", data)
        read_manifest("/store", files)

    yield Parser("stan.json", (text,), read, (StanError, OSError), (b"null", b"{}", b"[]", b'"', b"1e999", b"\\ud800"))


def old_stores() -> Iterator[Parser]:
    """Files of NATS Streaming Server."""
    kept = tempfile.TemporaryDirectory(prefix="stan-fuzz-", dir=MEMORY if Path(MEMORY).is_dir() else None)
    directory = Path(kept.name)
    old_store.write_server(directory)
    times = [old_store.EPOCH + n for n in range(5)]
    messages = [old_store.message(b"foo", n + 1, b"payload", times[n]) for n in range(5)]
    old_store.write_slice(directory / "foo", 1, messages, 1, times)
    old_store.write_subscriptions(directory / "foo", old_store.durable(1, b"me", b"d"), old_store.sent(1, 1))
    slices, subs = directory / "foo" / "msgs.1.dat", directory / "foo" / "subs.dat"
    good_slice, good_subs = slices.read_bytes(), subs.read_bytes()

    def read_slice(data: bytes) -> None:
        assert kept.name  # see below
        slices.write_bytes(data)
        for _ in SliceReader(b"foo", lambda *_: None, None).read(slices):
            pass

    def read_subs(data: bytes) -> None:
        assert kept.name  # the directory lives as long as its parsers
        subs.write_bytes(data)
        read_positions(subs, lambda *_: None)

    yield Parser("slices of an old store", (good_slice,), read_slice)
    yield Parser("subscriptions of an old store", (good_subs,), read_subs)


def parsers() -> Iterator[Parser]:
    """All of this module."""
    for family in (logs, states, manifests, old_stores):
        yield from family()
