"""The channels that requests name: found once this node's copy of the metadata is new enough to tell.

A client may have made a channel a moment ago at the leader of the metadata, and ask for it here before this copy knows it.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Final

from stan_protocol.patterns import ONE, REST
from stan_protocol.refusals import UNKNOWN_CHANNEL

from stan import limits
from stan.core.metadata.meta import ChannelInfo, MetaMachine
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.requests.request import AcceptedRequest
from stan.core.services.services import Services

HEAD_ROOM: Final = 8 * limits.RAFT_GROUPS_MAX + 64
"""Bytes of an answer besides its items."""
ITEM_ROOM: Final = 4
"""Bytes of overhead per item of a list."""

Found = Callable[[AcceptedRequest, ChannelInfo], None]


class ChannelLookup:
    """Finds the channels that requests name, and waits for newer metadata where that is needed."""

    def __init__(self, services: Services, read_index: MetadataReadIndex) -> None:
        self.leading, self.node, self.placement = services.leading, services.node, services.placement
        self.read_index = read_index
        self._waiting = 0  # requests that wait for the metadata
        self._names: tuple[MetaMachine | None, int, int, list[bytes]] = (None, 0, 0, [])

    def existing(self, found: Found) -> Callable[[AcceptedRequest], None]:
        """Return a handler that calls *found* with a request and its channel; it refuses requests for unknown channels."""
        return lambda accepted: self._find(accepted, found)

    def _find(self, accepted: AcceptedRequest, found: Found) -> None:
        name = accepted.name

        def look(known: bool) -> None:  # noqa: FBT001 - an answer
            info = self.node.meta.channels.get(name)
            if not known or not self.leading.holds((self.placement.group_number(name),)):
                accepted.busy()
            elif info is None or self.is_dropped(info):
                accepted.refuse(UNKNOWN_CHANNEL)
            else:
                found(accepted, info)

        if name in self.node.meta.channels:
            look(True)  # noqa: FBT003
        else:
            self.catch_up(accepted, look)

    def is_dropped(self, info: ChannelInfo) -> bool:
        """True if the channel's group has dropped it and the metadata still lists it."""
        return info.uid in self.node.group_of(info).machine.dropped

    def sorted_names(self) -> list[bytes]:
        """The sorted names of all channels; cached until a channel comes or goes. Callers must not change the list."""
        meta = self.node.meta
        machine, next_uid, count, _ = self._names
        if machine is not meta or (next_uid, count) != (meta.next_uid, len(meta.channels)):
            self._names = (meta, meta.next_uid, len(meta.channels), sorted(meta.channels))
        return self._names[3]

    def names_of(self, pattern: bytes, also: Collection[bytes]) -> list[bytes]:
        """The sorted names of channels that begin as a valid *pattern* does, and those of *also*. Callers must not change the
        list."""
        names, begins = self.sorted_names(), _literal_tokens(pattern)
        if begins:  # "." is the byte before "/", which no name has
            names = names[bisect_left(names, begins) : bisect_left(names, begins[:-1] + b"/")]
            names = sorted({*names, *also}) if also else names
        return names

    def catch_up(self, accepted: AcceptedRequest, call: Callable[[bool], None]) -> None:
        """Call *call*, for the request *accepted*, with True once this copy of the metadata is as new as the leader's was at the
        time of this call; with False if that fails in time, or too many requests wait already."""
        if self._waiting >= limits.QUESTIONS_WAITING_MAX:
            call(False)  # noqa: FBT003
            return
        self._waiting += 1

        def caught_up(known: bool) -> None:  # noqa: FBT001
            self._waiting -= 1
            call(known)

        self.read_index.wait(caught_up, accepted.border)


def _literal_tokens(pattern: bytes) -> bytes:
    """What the names that a pattern covers begin with: its tokens before the first wildcard, each with its dot."""
    tokens = pattern.split(b".")
    wild = next((at for at, token in enumerate(tokens) if token in (ONE.encode(), REST.encode())), len(tokens) - 1)
    return b"".join(b"%b." % token for token in tokens[:wild])


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Return a function that tests if a valid *pattern* covers a name, in one pass over the name for any pattern."""
    wanted = pattern.split(b".")
    one, rest = ONE.encode(), wanted[-1] == REST.encode()
    if rest:
        wanted.pop()
    literal = next((at for at, want in enumerate(wanted) if want == one), len(wanted))
    if literal == len(wanted) and not rest:
        return pattern.__eq__
    begins = b"".join(b"%b." % want for want in wanted[:literal])
    some, count = wanted[literal:], len(wanted)

    def covers(name: bytes) -> bool:
        if not name.startswith(begins):
            return False
        tokens = name.split(b".", count)
        if len(tokens) <= count if rest else len(tokens) != count:
            return False
        return all(want in (one, token) for want, token in zip(some, tokens[literal:], strict=False))

    return covers
