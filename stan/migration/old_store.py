"""The directory of a NATS Streaming Server's FILE store (STAN-SPEC 8.4), read and never written.

Promises: damage is reported with file and offset, and everything else is read. Nothing in it makes reading fail but a
directory that is none, or one that another process uses.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from stan_protocol.channels import is_channel_name

from stan.errors import StartError
from stan.migration.crypto import Opener, looks_encrypted
from stan.migration.messages import SliceReader, newest_in_index, sample
from stan.migration.quiet_watch import QuietWatch
from stan.migration.records import ProtoFields, read_small
from stan.migration.report import MigrationReport
from stan.migration.source import MessageRun
from stan.migration.subscriptions import OldPosition, read_positions

SERVER, CLIENTS, SUBSCRIPTIONS = "server.dat", "clients.dat", "subs.dat"
_LOCK = ".rootdir.lck"
_SAMPLE = 20
"""Messages of a channel by which its encryption is judged."""


class OldChannel:
    """The directory of one channel."""

    lost = 0  # at its beginning: none that this store would know of
    may_be_empty = False

    def __init__(
        self, name: bytes, directory: Path, slices: list[Path], indexes: list[Path], report: MigrationReport
    ) -> None:
        self.name = name
        self.directory = directory
        self.slices = slices
        self.indexes = indexes
        self._report = report

    @property
    def subscriptions(self) -> Path:
        """The log of its subscriptions."""
        return self.directory / SUBSCRIPTIONS

    @property
    def size(self) -> int:
        """Size of its messages in bytes."""
        return sum(path.stat().st_size for path in self.slices if path.exists())

    def positions(self) -> tuple[list[OldPosition], int]:
        """Return the positions, and the number of subscriptions that end because they are not durable."""
        return read_positions(self.subscriptions, self._report.note)

    def runs(self, open_payload: Opener | None) -> Iterator[MessageRun]:
        """Yield the messages."""
        reader = SliceReader(self.name, self._report.note, open_payload)
        for path in self.slices:
            faults = reader.faults
            yield from reader.read(path)
            if reader.faults == faults:
                self._compare(path, reader.last)

    def newest(self) -> int:
        """Return the newest sequence that an index tells, 0 if none does."""
        return max((newest_in_index(path, self._report.hint) for path in self.indexes[-1:]), default=0)

    def report(self, fault: str) -> None:
        """Report a fault of the whole channel."""
        self._report.note(str(self.directory), 0, fault)

    def _compare(self, path: Path, last: int) -> None:
        """Report messages that only the index of a slice has; nothing else shows that they are missing."""
        newest = newest_in_index(path.with_suffix(".idx"), self._report.hint)
        if newest > last:
            self._report.note(str(path), path.stat().st_size, f"ends early: its index tells of messages up to {newest}")


class OldStore:
    """A FILE store of NATS Streaming Server, read-only. Raises StartError: *directory* is no such store, or in use."""

    def __init__(self, directory: Path, watch_s: float = 0) -> None:
        self.directory = directory
        self.report = MigrationReport(str(directory))
        self.watch = QuietWatch([directory], watch_s)
        self.cluster_id = b""
        self.node_id = b""  # of a server of a cluster
        self._note = self.report.note
        try:
            names = os.listdir(directory)  # noqa: PTH208 - names as the file system has them
        except OSError as error:
            raise StartError(f"{directory}: {error.strerror}") from error
        self.channels = list(self._channels(sorted(names)))
        known = SERVER in names or CLIENTS in names or any(channel.slices for channel in self.channels)
        if not known or "stan.json" in names:
            raise StartError(f"{directory} is not the data directory of a NATS Streaming Server's FILE store")
        self._refuse_company()
        self._read_server()

    @property
    def size(self) -> int:
        """Size of all messages in bytes."""
        return sum(channel.size for channel in self.channels)

    def clients(self) -> list[bytes]:
        """Ids of the clients that were registered: they are not moved, so damage to their file costs nothing."""
        clients: dict[bytes, None] = {}
        path = self.directory / CLIENTS
        for record in read_small(path, self.report.hint, typed=True):
            try:
                client = ProtoFields(record.payload).text(1)
            except ValueError as error:
                self.report.hint(str(path), record.offset, f"left out: {error}")
                continue
            if record.kind == 1:
                clients[client] = None
            elif record.kind == 2:
                clients.pop(client, None)
        return list(clients)

    def samples(self) -> Iterator[tuple[bytes, bytes]]:
        """Channel and payload of some messages that may be encrypted, and b"" in place of other payloads."""
        for channel in self.channels:
            for path in channel.slices[:1]:
                for payload in sample(path, _SAMPLE):
                    yield channel.name, payload if looks_encrypted(payload) else b""

    def close(self) -> None:
        """Nothing stays open."""

    def _read_server(self) -> None:
        path = self.directory / SERVER
        records = list(read_small(path, self._note, typed=False))
        try:
            info = ProtoFields(records[0].payload if records else b"")
        except ValueError as error:
            self._note(str(path), records[0].offset, str(error))
            return
        self.cluster_id, self.node_id = info.text(1), info.text(9)

    def _channels(self, names: list[str]) -> Iterator[OldChannel]:
        for text in names:
            directory = self.directory / text
            if not directory.is_dir():
                continue
            name = os.fsencode(text)
            if not is_channel_name(name):
                self._note(str(directory), 0, "left out: not the name of a channel")
                continue
            try:
                slices, indexes = self._slices(directory, "dat"), self._slices(directory, "idx")
                channel = OldChannel(name, directory, slices, indexes, self.report)
            except OSError as error:
                self._note(str(directory), 0, f"left out: {error.strerror}")
                continue
            if channel.slices or channel.indexes or channel.subscriptions.exists():  # else the file system's lost+found
                yield channel

    def _slices(self, directory: Path, ending: str) -> list[Path]:
        """Files of messages, or their indexes, in the order of their numbers."""
        slices = []
        for path in directory.glob(f"msgs.*.{ending}"):
            number = path.name.removeprefix("msgs.").removesuffix(f".{ending}")
            if number.isascii() and number.isdigit():
                slices.append((int(number), path))
            else:
                self._note(str(path), 0, f"message log has an invalid name: {number}")
        return [path for _, path in sorted(slices)]

    def _refuse_company(self) -> None:
        """Raise StartError if a server in fault tolerance mode locks the directory; servers in other modes hold no lock."""
        try:
            handle = os.open(self.directory / _LOCK, os.O_RDWR)
        except OSError:
            return
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartError(f"{self.directory} is in use by another server; stop it first") from error
        finally:
            os.close(handle)
