"""The common base of the components of a group's machine that keep one state per channel (see components.py).

A row's key is the channel's uid, big-endian; the row is the state as the component encodes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stan_protocol.scalars import ChannelUid

UID_BYTES = 4

State = TypeVar("State")


@dataclass(slots=True)
class PerChannel(Generic[State]):
    """A component that keeps one state per channel; a subclass gives KIND, encode and decode."""

    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, State] = field(default_factory=dict)

    def encode(self, state: State) -> bytes:
        """The row of a state."""
        raise NotImplementedError

    def decode(self, row: bytes) -> State:
        """The state of a row."""
        raise NotImplementedError

    def put(self, uid: ChannelUid, state: State | None) -> None:
        """Keep *state* for a channel from now on; None: keep nothing."""
        if state is None:
            self.by_channel.pop(uid, None)
        else:
            self.by_channel[uid] = state
        self.dirty.add(_key(uid))

    def drop_channel(self, uid: ChannelUid) -> None:
        """Drop the state of a channel that is gone."""
        if uid in self.by_channel:
            self.put(uid, None)

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows, one per channel that has a state."""
        return map(_key, self.by_channel)

    def row(self, key: bytes) -> bytes | None:
        """The encoded state of the channel with that key; None if it has none."""
        state = self.by_channel.get(_uid(key))
        return None if state is None else self.encode(state)

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first change."""
        self.by_channel[_uid(key)] = self.decode(state)


def _key(uid: ChannelUid) -> bytes:
    return uid.to_bytes(UID_BYTES, "big")


def _uid(key: bytes) -> ChannelUid:
    return ChannelUid(int.from_bytes(key, "big"))
