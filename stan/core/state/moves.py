"""Moves of channels between groups: where the move of each channel is, as the log of one group says.

A component of the group's machine (see components.py), fed by committed entries alone. The changes concern all that a group knows
of a channel, so they are in channel_moves.py; here is which move has come how far. A move is named by the index of the metadata
entry that has begun it, and changes that name an earlier move than the known one of their channel change nothing.

    source:  depart ─► departed | returned            target:  arriving ─► arrived | arrival_dropped
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, NamedTuple

from stan_protocol.scalars import ChannelUid

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb


class Stage(IntEnum):
    """How far the move of a channel is in a group; stored, so numbers are never reused."""

    COPYING = 1  # target: messages come, or have come; nothing else of the channel is here
    ARRIVED = 2  # target: all of the channel is here, and it is this group's once the metadata say so
    HELD = 3  # source: nothing of the channel changes until the metadata tell how the move has ended
    GONE = 4  # source: the channel is another group's


class MoveStage(NamedTuple):
    """The newest move of a channel that this group has to do with."""

    move: int  # RaftIndex of the metadata entry that has begun it
    stage: Stage


@dataclass(slots=True)
class MoveStages(PerChannel[MoveStage]):
    """The moves of a group's channels, by uid. A row is a pb.MoveState."""

    KIND: ClassVar[str] = "moves"

    held: set[ChannelUid] = field(default_factory=set)  # channels of which nothing changes here: they are held, or gone

    def put(self, uid: ChannelUid, state: MoveStage | None) -> None:
        """Keep how far a channel's move is."""
        PerChannel.put(self, uid, state)
        self._hold(uid, state)

    def _hold(self, uid: ChannelUid, state: MoveStage | None) -> None:
        if state is not None and state.stage in (Stage.HELD, Stage.GONE):
            self.held.add(uid)
        else:
            self.held.discard(uid)

    def at(self, uid: ChannelUid, move: int, *stages: Stage) -> bool:
        """True if that move of the channel is at one of *stages*."""
        known = self.by_channel.get(uid)
        return known is not None and known.move == move and known.stage in stages

    def is_newer(self, uid: ChannelUid, move: int) -> bool:
        """True if nothing is known of this move or a later one of the channel."""
        known = self.by_channel.get(uid)
        return known is None or known.move < move

    def moved(self, move: int, uids: Iterable[int], stage: Stage) -> None:
        """Put these channels of a move at *stage*."""
        for uid in uids:
            self.put(ChannelUid(uid), MoveStage(move, stage))

    def drop_channel(self, uid: ChannelUid) -> None:
        """Forget the move of a channel that is gone."""
        if uid in self.by_channel:
            self.put(uid, None)

    def encode(self, state: MoveStage) -> bytes:
        """The row of a channel."""
        return pb.MoveState(move=state.move, stage=state.stage).SerializeToString()

    def decode(self, row: bytes) -> MoveStage:
        """Decode a row."""
        found = pb.MoveState.FromString(row)
        return MoveStage(found.move, Stage(found.stage))

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first change."""
        PerChannel.load(self, key, state)
        self._hold(ChannelUid(int.from_bytes(key)), self.decode(state))
