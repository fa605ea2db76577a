"""The two ends of a migration: a store of the original as channels, messages and positions, and a place that takes them.

Sources: FILE stores (`file_stores.py`), of a server (`old_store.py`) or of the nodes of a cluster (`cluster`), and the SQL store
(`sqlstore`). Sinks: a new data directory (`target.py`), running servers (`stan.cli.commands.running_target`).
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from stan.migration.crypto import Opener
from stan.migration.report import MigrationReport
from stan.migration.subscriptions import OldPosition


class MessageRun(NamedTuple):
    """Messages with sequences that follow each other."""

    base: int
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a batch
    timestamp: int  # Unix ns, of the newest
    records: bytes  # u32 little-endian length and MsgProto each
    gap: bool  # messages before it are missing


# --- sources ------------------------------------------------------------------------------------------------------------------


class SourceChannel(Protocol):
    """A channel of the old store."""

    @property
    def name(self) -> bytes:
        """Its name."""

    @property
    def lost(self) -> int:
        """Messages that are known to be missing at its beginning; after `runs`."""

    @property
    def may_be_empty(self) -> bool:
        """Limits may have removed all messages: without any, none is missing."""

    def positions(self) -> tuple[list[OldPosition], int]:
        """Return the durables, and the number of subscriptions that end because they are not durable."""

    def runs(self, open_payload: Opener | None) -> Iterator[MessageRun]:
        """The messages, in order; damage is reported, and they go on after it."""

    def newest(self) -> int:
        """Return the newest sequence that the store tells of beside messages and durables; after `runs`."""

    def report(self, fault: str) -> None:
        """Report a fault of the whole channel."""


class OldServerCheck(NamedTuple):
    """The result of asking on NATS if the old server runs."""

    runs: str = ""  # the server that answers, "" if none does
    outcome: str = "nobody was asked"


class Watch(Protocol):
    """Signs that the old server runs, from the beginning of a migration on."""

    @property
    def not_seen(self) -> str:
        """The sentence that there is none, with a place for `nats`."""

    def holders(self) -> list[str]:
        """Describe who may write to the store now."""

    def changed(self) -> str:
        """Return the first change since the watch began, "" if there is none; waits until the watch was long enough."""


class Source(Protocol):
    """A store of the original, read and never written."""

    @property
    def report(self) -> MigrationReport:
        """The report of the migration, with the name of the store and its damage so far."""

    @property
    def cluster_id(self) -> bytes:
        """The cluster id, b"": not known."""

    @property
    def node_id(self) -> bytes:
        """Of a server of a cluster whose durables are not read."""

    @property
    def size(self) -> int:
        """Of all messages in bytes; 0: not known."""

    @property
    def watch(self) -> Watch:
        """The watch that has begun."""

    @property
    def channels(self) -> Iterable[SourceChannel]:
        """The channels, in the order in which they are moved."""

    def clients(self) -> list[bytes]:
        """Ids of the clients that were registered."""

    def samples(self) -> Iterator[tuple[bytes, bytes]]:
        """Channel and payload of some messages that may be encrypted, and b"" in place of other payloads."""

    def close(self) -> None:
        """End reading."""


# --- sinks --------------------------------------------------------------------------------------------------------------------


class ChannelSink(Protocol):
    """A channel of the target."""

    def add(self, batch: MessageRun) -> None:
        """Add the next messages."""

    def begin_behind(self, sequence: int) -> None:
        """Begin an empty channel, whose next message comes after *sequence*."""

    def position(self, position: OldPosition) -> None:
        """Add a durable or durable group as its last member would have left it."""


class StoreSink(Protocol):
    """A place for channels, which takes effect with `finish`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def channel(self, name: bytes) -> ChannelSink | None:
        """Begin a channel; None if the name of another one differs from it in upper and lower case alone."""

    def finish(self) -> None:
        """Make everything usable."""
