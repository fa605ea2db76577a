"""Compression of record batches on the leader, while they are sealed.

    batches of a channel ─► runs: what came compressed, each alone; all others together ─► what the log keeps

Promises: a batch that came compressed is stored as it came, unless its rows have changed since; others are compressed where the
channel's policy says so and it makes them smaller; a SQL store, which has a row for each message, gets everything in clear. What
the leader has compressed itself it need not decompress to deliver it.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import groupby

from stan_protocol.frames import Publishes
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.row_batch import RowBatch
from stan.core.services.services import Services
from stan.protocol.compressed_batches import BatchCompressor, in_clear, stored_form
from stan.protocol.entries import RecordBatch

Batch = Publishes | RowBatch


def frame_of(batches: Seq[Batch]) -> bytes:
    """The frame in which all the messages of *batches* came; b"": they came in clear, or not in one frame."""
    alone = batches[0] if len(batches) == 1 else None
    return alone.frame if isinstance(alone, RowBatch) else b""


def apart(batches: list[Batch]) -> Iterator[list[Batch]]:
    """The batches that become one record batch each: those that came compressed, alone; between them all others together."""
    for alone, run in groupby(batches, key=lambda batch: bool(frame_of((batch,)))):
        together = [*run]
        yield from [[batch] for batch in together] if alone else [together]


@dataclass(slots=True)
class CompressedTotals:
    """Batches that a leader has stored compressed, or meant to."""

    batches: int = 0
    clear_bytes: int = 0  # of their records in clear
    kept_bytes: int = 0  # of what the log keeps of them

    def add(self, clear_bytes: int, kept_bytes: int) -> None:
        """One more batch."""
        self.batches += 1
        self.clear_bytes += clear_bytes
        self.kept_bytes += kept_bytes


class Compressing:
    """What becomes of batches that are sealed, in the groups that this node leads."""

    def __init__(self, services: Services, channels: LiveChannels) -> None:
        self.node = services.node
        self.channels = channels
        self.framed: set[ChannelUid] = set()  # channels in which a batch may wait that came compressed
        self.totals = {"client": CompressedTotals(), "leader": CompressedTotals(), "nobody": CompressedTotals()}
        """By who has compressed; nobody: what came compressed, or a policy wants so, is kept in clear all the same."""
        self._compressor = BatchCompressor()
        # The records of compressed batches that are on their way into the log, by group, channel and first sequence.
        self._on_their_way: dict[GroupId, dict[tuple[ChannelUid, int], bytes]] = {}

    @property
    def is_possible(self) -> bool:
        """True if the store can keep compressed batches."""
        return self.node.config.store.kind != "sql"

    def kept(self, info: ChannelInfo, base: int, bodies: Seq[bytes], frame: bytes, records: bytes) -> tuple[bytes, int]:
        """What the log keeps of a batch, and the size that its header tells.

        Args:
            info: of its channel.
            base: its first sequence.
            bodies: of its messages.
            frame: in which they came; b"": they came in clear.
            records: made of them.
        """
        if not frame and info.uid not in self.channels.policies.compressed:
            return records, 0
        if not self.is_possible:
            found = records, 0
        elif frame:
            found = stored_form(info.name, frame, records)
        else:
            found = self._compressor.stored_form(info.name, b"".join(bodies), records)
        by = ("client" if frame else "leader") if found[1] else "nobody"
        self.totals[by].add(len(records), len(found[0]))
        if found[1] and self.node.groups[info.group].dispatch.cursors.by_channel.get(info.uid):
            self._on_their_way.setdefault(info.group, {})[info.uid, base] = records
        return found

    def records(self, number: GroupId, batch: RecordBatch) -> bytes | memoryview:
        """The records of a batch that is committed. Raises Damage."""
        known = self._on_their_way.get(number)
        found = known.pop((batch.uid, batch.base_sequence), None) if known else None
        return in_clear(batch) if found is None or len(found) != batch.size else found

    def forget(self, number: GroupId, uid: ChannelUid | None = None, base: int = 0) -> None:
        """A batch was not written; or, without *uid*, the group is led no more."""
        if uid is None:
            self._on_their_way.pop(number, None)
        elif known := self._on_their_way.get(number):
            known.pop((uid, base), None)
