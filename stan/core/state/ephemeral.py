"""The epochs of ephemeral channels, whose messages are in the memory of their group's leader and in no log.

A component of the group's machine (see components.py), fed by committed entries alone.

An epoch is the time in which one leader has the messages. The next leader begins another: the channel is empty, and its sequences
begin above all that may have been given out. Sequences are given to epochs in blocks of 2**BLOCK_BITS; an epoch that uses its
blocks up gets more of them by entries of its own.

    ephemeral_epoch(more=0): a new epoch, in a block that is nobody's ─► ephemeral_epoch(more=its number): the next block, too

Promises: no sequence is in the blocks of two epochs; an epoch that has ended gets no more; a channel that was never ephemeral has
no row. Why: docs/decisions/0028-ephemeral-channels-live-with-their-leader.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from stan_protocol.refusals import EPHEMERAL_USED_UP
from stan_protocol.scalars import ChannelUid, Sequence

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb

BLOCK_BITS: Final = 32
BLOCKS_MAX: Final = (1 << 53 - BLOCK_BITS) - 1
"""Of one channel: old clients in JavaScript take sequences for floating point numbers, which are exact up to 2**53."""


class Epoch(NamedTuple):
    """The newest epoch of an ephemeral channel."""

    number: int = 0  # counts from 1; 0: none has begun
    first: Sequence = Sequence(1)  # below it are the sequences of earlier epochs
    block: int = 0  # the newest one that was given to it
    began: int = 0  # Unix ns, as the leader told that asked for it; 0: it did not

    @property
    def last(self) -> Sequence:
        """The last sequence that may be given out in the epoch, unless it gets another block."""
        return Sequence((self.block + 1) << BLOCK_BITS)


NONE: Final = Epoch()
"""Of a channel of which no epoch has begun, or that is not ephemeral. Block 0 is no epoch's."""


@dataclass(slots=True)
class EphemeralEpochs(PerChannel[Epoch]):
    """The newest epoch of each ephemeral channel that had one. A row is an EpochRow."""

    KIND: ClassVar[str] = "ephemeral"

    def of(self, uid: ChannelUid) -> Epoch:
        """The newest epoch of a channel."""
        return self.by_channel.get(uid, NONE)

    def begin(self, change: pb.EphemeralEpoch) -> str:
        """Begin an epoch, or give the newest one another block. Returns why nothing changed, or "": what asks for more in an
        epoch that has ended changes nothing, as does what asks a second time."""
        uid = ChannelUid(change.uid)
        known = self.of(uid)
        if change.more and (change.more, change.block) != (known.number, known.block):
            return ""
        block = known.block + 1
        if block > BLOCKS_MAX:
            return EPHEMERAL_USED_UP
        if change.more:
            self.put(uid, known._replace(block=block))
        else:
            self.put(uid, Epoch(known.number + 1, Sequence((block << BLOCK_BITS) + 1), block, change.at))
        return ""

    def encode(self, state: Epoch) -> bytes:
        """The row of a channel's epoch."""
        return pb.EpochRow(**state._asdict()).SerializeToString()

    def decode(self, row: bytes) -> Epoch:
        """The epoch that a row holds."""
        found = pb.EpochRow.FromString(row)
        return Epoch(found.number, Sequence(found.first), found.block, found.began)
