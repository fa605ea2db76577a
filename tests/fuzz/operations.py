"""Parsers of what operating a server needs: leases, partitions, sealed batches, backups, contexts."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from stan.cli.commands.archive import ArchiveError, BackupIndex, SavedChannel, Writer, blocks, read_index
from stan.cli.commands.exchange import LineError, _row
from stan.cli.support import contexts
from stan.edge.serving.partitioning import decode_list, encode_lists
from stan.edge.standby.store_lease import Holder
from stan.errors import StartError, WrongKey
from stan.log.encryption import Cipher, Encryptor
from stan.protocol.entries import BATCH_HEADER
from tests.fuzz.disk import MEMORY
from tests.fuzz.engine import Parser
from tests.kit.batches import batch, entry

JSON = (b"null", b"{}", b"[]", b'"', b"1e999", b"\\ud800", b"true", b"-1", b'{"')


def of_servers() -> Iterator[Parser]:
    """What servers leave for, and tell each other."""
    holder = json.dumps(asdict(Holder.here("server"))).encode()
    yield Parser("leases of a fault tolerance group", (holder,), Holder.read, (), JSON)
    lists = encode_lists(("foo", "bar.>", "a" * 100), 300)
    yield Parser("lists of partitions", lists, decode_list)
    try:
        cipher = Cipher(b"0123456789abcdef0123456789abcdef")
        log = cipher.of(bytes(16), 1)
        sealed = Encryptor(log).encrypted(entry(1, batch(7, 1, 3))).body
    except StartError:  # cryptography is not installed
        return

    def opened(data: bytes) -> None:
        if len(data) >= BATCH_HEADER.size:
            log.decrypt(data[: BATCH_HEADER.size], data[BATCH_HEADER.size :], 1)

    yield Parser("sealed batches", (sealed,), opened, (WrongKey,))
    yield Parser(
        "proofs of keys", (cipher.check(b"note").encode(),), lambda data: cipher.fits(data.decode("latin-1"), b"note")
    )


def of_operators() -> Iterator[Parser]:
    """What the operator's tool reads."""
    kept = tempfile.TemporaryDirectory(prefix="stan-fuzz-", dir=MEMORY if Path(MEMORY).is_dir() else None)
    directory = Path(kept.name)
    writer = Writer(directory / "x.messages")
    writer.write(b"one")
    writer.write(b"two" * 50)
    writer.close()
    file, index_file = directory / "x.messages", directory / "backup.json"
    channel = SavedChannel("foo", "000001", 1, 1, 2, 2, 0, {"max_msgs": 5})
    index = json.dumps(asdict(BackupIndex("cluster", "name", "2026", "stan", [channel]))).encode()

    def read_blocks(data: bytes) -> None:
        assert kept.name  # the directory lives as long as its parsers
        file.write_bytes(data)
        for _ in blocks(file):
            pass

    def read(data: bytes) -> None:
        assert kept.name  # see above
        index_file.write_bytes(data)
        read_index(directory)

    yield Parser("blocks of a backup", (file.read_bytes(),), read_blocks, (ArchiveError,), (b"SBK1",))
    yield Parser("backup.json", (index,), read, (ArchiveError,), JSON)
    context = json.dumps({"server": "nats://a:4222", "user": "a", "password": "b"}).encode()
    yield Parser(
        "contexts",
        (context,),
        lambda data: contexts.checked(json.loads(data), "x"),
        (contexts.ContextError, ValueError),
    )
    line = b'{"sequence": 7, "data": "text", "reply": "r", "headers": [["k", "v"]]}'
    other = b'{"data_base64": "AAEC"}'
    yield Parser("lines of an import", (line, other), lambda data: _row(data, "jsonl"), (LineError,), JSON)


def parsers() -> Iterator[Parser]:
    """All of this module."""
    for family in (of_servers, of_operators):
        yield from family()
