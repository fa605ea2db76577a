"""All groups of a node on one link per peer: the messages that they send in one turn leave in one frame, as far as there is room.

    group.send ─► outgoing[peer] ─► flush: frames ─► Wire ─► peer's Mux.receive ─► its groups
    tick: ping peers to which nothing was sent, take down the links to peers that were silent for too long

Consecutive messages that have a short form (`codec.short`) are bundled into one.

Promises: messages between two nodes arrive in order and once, or the link goes down and up again and every group learns of both;
messages queued for a peer whose link is down are dropped. Bytes that cannot be decoded reset the link. If that happens
RAFT_GARBLED_MAX times in a row for one group, that group gets `garbled` instead, because the other groups need the link.
Never delivers a message inside `send`.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq
from random import Random
from typing import Protocol

from stan_protocol.scalars import GroupId, Nanos, RaftIndex, Term

from stan import limits
from stan.invariant import invariant
from stan.raft.backoff import Backoff
from stan.raft.transport import codec
from stan.raft.transport.codec import AppendAnswer, AppendEntries, FrameError, Message
from stan.raft.transport.link import Link

_AWAY = limits.RAFT_TICK_INTERVAL + limits.RAFT_AWAY
_LATE = limits.RAFT_PEER_TIMEOUT // 2
"""A peer that is silent for longer was nearly taken for dead."""


class Wire(Protocol):
    """Port to the network that carries frames. The network may lose, delay and repeat frames without notice."""

    def write(self, frames: Seq[tuple[str, bytes]]) -> bool:
        """Send frames, each to its peer and of at most RAFT_FRAME_BYTES_MAX bytes and a header.

        Returns True if the network's connection is lost, and frames with it; each loss is reported once."""


class GroupEndpoint(Protocol):
    """A group on this node, as the mux calls it."""

    def receive(self, peer: str, message: Message) -> None:
        """Handle a message of the same group on another node."""

    def on_heartbeat(self, peer: str, term: Term, commit: RaftIndex, prev_term: Term, seq: int) -> None:
        """Handle a heartbeat in short form: an AppendEntries without entries, whose prev_index is *commit*."""

    def answered(self, peer: str, answer: AppendAnswer) -> None:
        """Handle an answer to an AppendEntries that came in short form."""

    def garbled(self, peer: str, why: str) -> None:
        """Handle that a peer keeps sending messages for this group that cannot be decoded."""

    def peer_up(self, peer: str) -> None:
        """Note that the link to the peer is up: messages reach it from now on."""

    def peer_down(self, peer: str) -> None:
        """Note that the link to the peer is down; messages on the way are lost."""


class _Outgoing:
    """The link to one peer, and the messages and frames that are to leave on it."""

    __slots__ = ("kind", "link", "parts", "ready", "run", "size")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.parts: list[bytes] = []  # encoded messages that are in no frame yet
        self.size = 0  # bytes in `parts`
        self.ready: list[bytes] = []  # frames that were made because `parts` had grown to RAFT_FRAME_BYTES_MAX
        self.kind = 0  # type of the bundle that is being made; 0 if there is none
        self.run: list[bytes] = []  # messages in short form of that bundle

    def add(self, group: GroupId, message: Message) -> None:
        """Queue a message after the others, in short form if it has one."""
        has_entries = isinstance(message, AppendEntries) and message.entries
        form = None if has_entries else codec.short(group, message)
        kind = 0 if form is None else form[0]
        if kind != self.kind:
            self._close()
            self.kind = kind
        if form is not None:
            self.run.append(form[1])
        else:
            parts = codec.encode(group, message)
            self.parts += parts
            self.size += sum(map(len, parts))

    def _close(self) -> None:
        """End the bundle that is being made: queue it as one message."""
        if self.run:
            parts = codec.bundle(self.kind, self.run)
            self.parts += parts
            self.size += sum(map(len, parts))
            self.run = []
        self.kind = 0

    def pop(self) -> bytes:
        """Remove and return the queued messages, as the content of a frame."""
        if self.kind:
            self._close()
        content = b"".join(self.parts)
        self.parts.clear()
        self.size = 0
        return content

    def drop(self) -> None:
        """Discard queued messages and frames."""
        self.pop()
        self.ready.clear()


class ReadingTimes:
    """The times at which this node reads its sockets: after a stop or long work, peers must not count as silent. Pure.

    If it has not read them for longer than a tick and RAFT_AWAY, it was away."""

    def __init__(self, now: Nanos) -> None:
        self._ticked_at = now
        self._looked_at = now  # of the last read of the sockets
        self._since = now  # beginning of the time in which it was not away

    def since(self, now: Nanos) -> Nanos:
        """Beginning of the time in which this node has not been away; *now* if it was until now."""
        return now if now - self._looked_at > _AWAY else self._since

    def look(self, now: Nanos) -> None:
        """Note that the sockets are read."""
        if now - self._looked_at > _AWAY:
            self._since = now
        self._looked_at = now

    def tick(self, now: Nanos, *, reads_nothing: bool) -> Nanos:
        """Note a tick; with *reads_nothing* this node is busy, and has not read its sockets although ticks come in time.

        Returns the nanoseconds since the last tick if this node was away or busy since then; else 0."""
        passed, self._ticked_at = Nanos(now - self._ticked_at), now
        if reads_nothing:
            return passed
        self.look(now)
        return passed if passed > _AWAY else Nanos(0)

    def was_late(self, now: Nanos) -> bool:
        """True if this node was away within the last RAFT_LATE_MEMORY, and so may be short of CPU."""
        return now - self._since < limits.RAFT_LATE_MEMORY


class Mux:
    """This node's end of all links.

    The constructor's callbacks: *wake* is called when a frame has to leave and no turn may be under way to `flush` it; *note*
    gets the level and the text of a line for the log. *epoch*: of the cluster, see stan.raft.transport.link."""

    def __init__(
        self,
        peers: Seq[str],
        wire: Wire,
        *,
        now: Callable[[], Nanos],
        random: Random,
        note: Callable[[str, str], None],
        wake: Callable[[], None],
        epoch: int = 0,
    ) -> None:
        self.epoch = epoch
        self._wire = wire
        self._random = random
        self._now = now
        self._note = note
        self._wake = wake
        self._members: dict[GroupId, GroupEndpoint] = {}
        self._outgoing: dict[str, _Outgoing] = {}  # by peer
        self._reading = ReadingTimes(now())
        self._backoff = Backoff()
        self.speaks: set[str] = set()  # peers for which a frame may be due
        self._garbled: Counter[GroupId] = Counter()  # messages in a row that could not be decoded
        for peer in sorted(peers):
            self.add_peer(peer)

    # --- peers ------------------------------------------------------------------------------------------------------------

    def add_peer(self, peer: str) -> None:
        """Have a link to another node from now on. Does nothing if there is one."""
        if peer not in self._outgoing:
            self._outgoing[peer] = _Outgoing(Link(self._random, self._now(), self.epoch))

    def is_up(self, peer: str) -> bool:
        """True if the link to the peer is up, so messages reach it, as far as this node knows."""
        outgoing = self._outgoing.get(peer)
        return outgoing is not None and outgoing.link.up

    def begin_epoch(self, epoch: int) -> None:
        """Talk to the nodes of this epoch from now on, and to no others: every link starts again."""
        self.reset_all()
        self.epoch = epoch
        for outgoing in self._outgoing.values():
            outgoing.link = Link(self._random, self._now(), epoch)

    # --- groups -----------------------------------------------------------------------------------------------------------

    def attach(self, group: GroupId, member: GroupEndpoint) -> None:
        """Hand the messages for a group to *member* from now on, and notify it of the links that are up."""
        invariant(group not in self._members, "one member per group and node", group=group)
        self._members[group] = member
        for peer, outgoing in self._outgoing.items():
            if outgoing.link.up:
                member.peer_up(peer)

    def detach(self, group: GroupId) -> None:
        """Remove a group: messages for it are ignored from now on."""
        del self._members[group]

    def send(self, group: GroupId, peer: str, message: Message) -> None:
        """Queue a message for the next flush; it is dropped if the link to the peer is down."""
        out = self._outgoing.get(peer)
        if out is None or not out.link.up:
            return
        self.speaks.add(peer)
        out.add(group, message)
        if out.size >= limits.RAFT_FRAME_BYTES_MAX:
            out.ready += out.link.frames(out.pop(), self._now())

    def flush(self) -> None:
        """At the end of a turn: write the queued messages to the wire, and pings that are due."""
        frames: list[tuple[str, bytes]] = []
        for peer in sorted(self.speaks):
            out = self._outgoing[peer]
            content = out.pop()
            if content or out.link.must_send:
                out.ready += out.link.frames(content, self._now())
            for frame in out.ready:
                frames.append((peer, frame))  # noqa: PERF401 - no call
            out.ready.clear()
        self.speaks.clear()
        if frames and self._wire.write(frames):
            self.reset_all()

    # --- links ------------------------------------------------------------------------------------------------------------

    def listens_since(self) -> Nanos:
        """Beginning of the time in which this node has read its peers' messages; the current time if it was stopped or busy."""
        return self._reading.since(self._now())

    def receive(self, peer: str, frame: bytes | memoryview) -> None:
        """Receive a frame from the wire, and hand its messages to their groups. Frames of unknown peers are ignored."""
        outgoing = self._outgoing.get(peer)
        if outgoing is None:
            return
        link, now = outgoing.link, self._now()
        was_up = link.up
        self._reading.look(now)
        if was_up and now - link.received_at >= _LATE:
            since = max(link.received_at, self._reading.since(now))
            self._backoff.late(now - since, limits.RAFT_PEER_TIMEOUT, now)
        try:
            content = link.accept(frame, now)
            if link.up != was_up:
                self._announce(peer)
            if content:
                self._hand_out(peer, content)
        except FrameError as error:
            self._note("WRN", f"link to {peer} is reset: {error}")
            self._reset(peer)
        if link.must_send:
            self.speaks.add(peer)
        if peer in self.speaks:
            self._wake()

    def _hand_out(self, peer: str, content: bytes | memoryview) -> None:
        """Hand the messages in *content* to their groups; raises FrameError after the last one that can be decoded."""
        members = self._members
        messages, fault = codec.split(content)
        for kind, group, fields in messages:
            if kind in codec.BUNDLES:
                self._hand_out_bundle(peer, kind, fields)
            elif group in members:
                try:
                    message = codec.decode_one(kind, fields)
                except FrameError as error:
                    self._not_understood(peer, group, error)
                    continue
                if self._garbled:
                    self._garbled.pop(group, None)
                members[group].receive(peer, message)
        if fault is not None:
            raise fault

    def _hand_out_bundle(self, peer: str, kind: int, fields: memoryview) -> None:
        """Hand messages in short form to their groups; raises FrameError after the last one that can be decoded."""
        members = self._members
        if kind == codec.HEARTBEATS:
            for number, term, commit, prev_term, seq in codec.heartbeats(fields):
                if number in members:
                    members[number].on_heartbeat(peer, term, commit, prev_term, seq)
            return
        answers, fault = codec.answers(fields)
        for number, answer in answers:
            if number in members:
                members[number].answered(peer, answer)
        if fault is not None:
            raise fault

    def _not_understood(self, peer: str, group: GroupId, error: FrameError) -> None:
        """Count a message that cannot be decoded: the group of too many in a row is frozen; raises *error* before that."""
        self._garbled[group] += 1
        if self._garbled[group] < limits.RAFT_GARBLED_MAX:
            raise error  # the link is reset, and Raft sends again: perhaps this time it can be decoded
        self._members[group].garbled(peer, str(error))

    def tick(self, *, reads_nothing: bool = False) -> None:
        """Take down the links to peers that were silent for too long, and ping peers to which nothing was sent.

        The time in which this node was stopped, or with *reads_nothing* busy, is not counted as silence of its peers."""
        now = self._now()
        away = self._reading.tick(now, reads_nothing=reads_nothing)
        patience = limits.RAFT_PEER_TIMEOUT * self._backoff.factor(now)
        for peer, outgoing in self._outgoing.items():
            link = outgoing.link
            link.received_at = Nanos(min(now, link.received_at + away))
            if link.is_silent(now, patience):
                self._note("WRN", f"nothing from {peer} for {(now - link.received_at) / 1e9:.3f}s")
                if self._reading.was_late(now):  # short of CPU, as the peer may be
                    self._backoff.setback(now)
                self._reset(peer)
            if link.is_due(now):
                link.must_send = True
                self.speaks.add(peer)

    def reset_all(self) -> None:
        """End every link: the wire has lost its connection."""
        for peer in self._outgoing:
            self._reset(peer)

    def _reset(self, peer: str) -> None:
        link = self._outgoing[peer].link
        was_up = link.up
        link.reset()
        self.speaks.add(peer)
        if link.up != was_up:
            self._announce(peer)

    def _announce(self, peer: str) -> None:
        """Drop the queue for *peer*, whose link has come up or gone down, and notify every group."""
        up = self._outgoing[peer].link.up
        self._outgoing[peer].drop()
        self._note("INF", f"link to {peer} is {'up' if up else 'down'}")
        for member in list(self._members.values()):
            if up:
                member.peer_up(peer)
            else:
                member.peer_down(peer)
