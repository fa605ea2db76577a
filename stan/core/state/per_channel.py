"""What the parts of a group's machine share that keep one state for each channel (see components.py).

A row's key is the channel's uid, big-endian; the row is the state as the part encodes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stan.types import ChannelUid

UID_BYTES = 4

State = TypeVar("State")


@dataclass(slots=True)
class PerChannel(Generic[State]):
    """The rows of such a part; a subclass gives KIND, CHANGES, apply, encode and decode."""

    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, State] = field(default_factory=dict)

    def encode(self, state: State) -> bytes:
        """The row of a state."""
        raise NotImplementedError

    def decode(self, row: bytes) -> State:
        """The state of a row."""
        raise NotImplementedError

    def put(self, uid: ChannelUid, state: State | None) -> None:
        """What is kept of a channel from now on; None: nothing."""
        if state is None:
            self.by_channel.pop(uid, None)
        else:
            self.by_channel[uid] = state
        self.dirty.add(_key(uid))

    def drop_channel(self, uid: ChannelUid) -> None:
        """See StateComponent."""
        if uid in self.by_channel:
            self.put(uid, None)

    def keys(self) -> Iterable[bytes]:
        """See StateComponent."""
        return map(_key, self.by_channel)

    def row(self, key: bytes) -> bytes | None:
        """See StateComponent."""
        state = self.by_channel.get(_uid(key))
        return None if state is None else self.encode(state)

    def load(self, key: bytes, state: bytes) -> None:
        """See StateComponent."""
        self.by_channel[_uid(key)] = self.decode(state)


def _key(uid: ChannelUid) -> bytes:
    return uid.to_bytes(UID_BYTES, "big")


def _uid(key: bytes) -> ChannelUid:
    return ChannelUid(int.from_bytes(key, "big"))
