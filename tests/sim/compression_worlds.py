"""Worlds whose channels are compressed, by a policy and by clients that send batches, under all faults: what is checked elsewhere
of messages holds for those that come out of compressed batches, after crashes, changes of the leader, and compaction by key."""

from dataclasses import replace
from unittest import mock

from stan_protocol import compression
from stan_protocol.compression import Compressor

from stan.policies import PolicyRule
from stan.protocol.entries import Kind, decode_batches
from tests.sim.batch_world import BatchClusterWorld, Batcher, BatchWorld
from tests.sim.compaction_worlds import ClusterCompaction, NodeCompaction

POLICY = PolicyRule(pattern=">", compress=1)


class FramingBatcher(Batcher):
    """Sends some of its batches compressed, a repeat like the first time."""

    def _make(self):
        made = super()._make()
        frame = Compressor().frame(made.rows) if self.random.random() < 0.7 else b""
        if frame:
            made.compressed_rows, made.rows = frame, b""
            self.world.framed += 1
        return made


class _Compressing:
    """What is small is compressed, too, as messages are small here."""

    batcher = FramingBatcher
    compressed = framed = 0  # batches in committed entries; requests

    def __init__(self, seed):
        super().__init__(seed)
        self.policies = tuple(replace(rule, compress=1) for rule in self.policies) or (POLICY,)

    def run(self, **patience):
        with mock.patch.object(compression, "COMPRESSED_BYTES_MIN", 40):
            return super().run(**patience)

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        if kind == Kind.RECORDS:
            self.compressed += sum(1 for batch in decode_batches(body) if batch.size)


class NodeCompression(_Compressing, BatchWorld):
    """One node, and its disk."""


class ClusterCompression(_Compressing, BatchClusterWorld):
    """A cluster."""


class NodeCompressedTables(_Compressing, NodeCompaction):
    """One node, whose channels are compacted by key, too."""


class ClusterCompressedTables(_Compressing, ClusterCompaction):
    """A cluster, whose channels are compacted by key, too."""
