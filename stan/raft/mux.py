"""All groups of a node on one link per peer: what they say in one turn leaves in one frame, heartbeats of all groups with it.

    group.send ─► out[peer] ─► flush: frames ─► Wire ─► peer's Mux.receive ─► its groups
    tick: a ping where nothing was said, peers that were silent for too long are down

Promises: messages between two nodes arrive in order and once, or the link goes down and up again and every group hears of both;
what was queued for a peer that is down is dropped. Garbage resets the link. Never delivers a message inside `send`.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from random import Random
from typing import Protocol

from stan import limits
from stan.invariant import invariant
from stan.raft.codec import FrameError, Message, decode, encode
from stan.raft.link import Link
from stan.types import GroupId, Nanos


class Wire(Protocol):
    """What carries frames: it may lose, delay and repeat them, and says nothing about it."""

    def write(self, peer: str, frame: bytes) -> None:
        """Send a frame of at most RAFT_FRAME_BYTES_MAX bytes and a header."""


class Member(Protocol):
    """A group on this node."""

    def receive(self, peer: str, message: Message) -> None:
        """A message of the same group on another node."""

    def peer_up(self, peer: str) -> None:
        """Messages reach the peer from now on."""

    def peer_down(self, peer: str) -> None:
        """What was on the way is lost."""


class Mux:
    """This node's end of all links. `wake` is called when something wants to leave outside of a turn."""

    def __init__(
        self,
        peers: Seq[str],
        wire: Wire,
        *,
        now: Callable[[], Nanos],
        random: Random,
        note: Callable[[str, str], None],
        wake: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._random = random
        self._now = now
        self._note = note
        self._wake = wake
        self._members: dict[GroupId, Member] = {}
        self._links: dict[str, Link] = {}
        self._out: dict[str, list[bytes]] = {}
        self._out_bytes: dict[str, int] = {}
        self._ready: dict[str, list[bytes]] = {}  # frames of batches that were full
        for peer in sorted(peers):
            self.add_peer(peer)

    # --- peers ------------------------------------------------------------------------------------------------------------

    def add_peer(self, peer: str) -> None:
        """Speak with another node from now on."""
        if peer not in self._links:
            self._links[peer] = Link(self._random, self._now())
            self._out[peer], self._out_bytes[peer], self._ready[peer] = [], 0, []

    def remove_peer(self, peer: str) -> None:
        """Speak with a node no more."""
        if peer in self._links:
            self._reset(peer)
            del self._links[peer], self._out[peer], self._out_bytes[peer], self._ready[peer]

    def is_up(self, peer: str) -> bool:
        """Whether messages reach the peer, as far as one can know."""
        link = self._links.get(peer)
        return link is not None and link.up

    # --- groups -----------------------------------------------------------------------------------------------------------

    def attach(self, group: GroupId, member: Member) -> None:
        """A group takes part from now on."""
        invariant(group not in self._members, "one member per group and node", group=group)
        self._members[group] = member
        for peer, link in self._links.items():
            if link.up:
                member.peer_up(peer)

    def detach(self, group: GroupId) -> None:
        """A group takes part no more."""
        del self._members[group]

    def send(self, group: GroupId, peer: str, message: Message) -> None:
        """Queue a message for the next flush; dropped if the peer is down."""
        if not self.is_up(peer):
            return
        parts = encode(group, message)
        self._out[peer] += parts
        self._out_bytes[peer] += sum(map(len, parts))
        if self._out_bytes[peer] >= limits.RAFT_FRAME_BYTES_MAX:
            self._pack(peer)

    def _pack(self, peer: str) -> None:
        self._ready[peer] += self._links[peer].frames(b"".join(self._out[peer]), self._now())
        self._out[peer].clear()
        self._out_bytes[peer] = 0

    def flush(self) -> None:
        """End of a turn: what was queued leaves."""
        for peer, link in self._links.items():
            if self._out[peer]:
                self._pack(peer)
            elif link.wants_to_speak:
                self._ready[peer] += link.frames(b"", self._now())
            frames, self._ready[peer] = self._ready[peer], []
            for frame in frames:
                self._wire.write(peer, frame)

    # --- links ------------------------------------------------------------------------------------------------------------

    def receive(self, peer: str, frame: bytes | memoryview) -> None:
        """A frame from the wire; frames of strangers are ignored."""
        link = self._links.get(peer)
        if link is None:
            return
        was_up = link.up
        try:
            content = link.take(frame, self._now())
            self._tell(peer, was_up=was_up)
            for group, message in decode(content):
                member = self._members.get(group)
                if member is not None:
                    member.receive(peer, message)
        except FrameError as error:
            self._note("WRN", f"link to {peer} is reset: {error}")
            self._reset(peer)
        if link.wants_to_speak:
            self._wake()

    def tick(self) -> None:
        """Look at the timers of the links."""
        now = self._now()
        for peer, link in self._links.items():
            if link.is_silent(now):
                self._note("WRN", f"nothing from {peer} for {(now - link.heard_at) / 1e9:.3f}s")
                self._reset(peer)
            if link.is_due(now):
                link.wants_to_speak = True

    def reset_all(self) -> None:
        """The wire itself was lost: every link ends."""
        for peer in self._links:
            self._reset(peer)

    def _reset(self, peer: str) -> None:
        was_up = self._links[peer].up
        self._links[peer].reset()
        self._tell(peer, was_up=was_up)

    def _tell(self, peer: str, *, was_up: bool) -> None:
        """Groups hear what became of a link."""
        up = self._links[peer].up
        if up == was_up:
            return
        self._out[peer].clear()
        self._out_bytes[peer] = 0
        self._ready[peer].clear()
        self._note("INF", f"link to {peer} is {'up' if up else 'down'}")
        for member in list(self._members.values()):
            if up:
                member.peer_up(peer)
            else:
                member.peer_down(peer)
