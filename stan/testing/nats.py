"""NATS as the simulation needs it: servers with routes between them, connections of nodes and clients, and their faults.

    connection ─ outward ─► its server ─ route ─► other server ─ inward ─► connections that subscribed

Every arrow is first in, first out, with delays of its own: what one publishes keeps its order everywhere, what two publish may
arrive at two places in different orders. As with core NATS, what has nobody to go to is gone (a request of a node is answered
with a 503), and so is what is on the way when a connection or a route breaks.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from stan_protocol.patterns import matches
from stan_protocol.scalars import MICROSECOND

from stan.testing.loop import Loop

DELAY_MAX: Final = 700 * MICROSECOND
NOBODY: Final = b"NATS/1.0 503\r\n\r\n"


class SimMessage(NamedTuple):
    """A message on its way."""

    subject: str
    reply: str
    payload: bytes
    header: bytes = b""


class Way:
    """One direction of one link."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.slow = 0  # everything takes this much longer
        self.held_until = 0  # nothing arrives before
        self.cuts = 0  # what set out before a cut never arrives
        self._last = 0

    def send(self, call: Callable[..., object], *args: Any) -> None:
        """Call with *args* at the other end."""
        loop = self.loop
        delay = 1 + int(loop.random.random() * DELAY_MAX) + self.slow
        self._last = when = max(self._last, loop.now + delay, self.held_until)
        loop.at(when, self._arrive, self.cuts, call, args)

    def _arrive(self, cuts: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if cuts == self.cuts:
            call(*args)

    def cut(self) -> None:
        """Lose everything that is on the way."""
        self.cuts += 1
        self._last = 0


class SimPort:
    """A connection to one server. `received` gets a list of (sid, SimMessage)."""

    asks_for_503 = False

    def __init__(self, nats: "SimNats", name: str, server: int = 0) -> None:
        self.nats = nats
        self.name = name
        self.server = server
        self.up = False
        self.outward = Way(nats.loop)
        self.inward = Way(nats.loop)

    def connect(self) -> bool:
        """Connect. False if it is up already."""
        if self.up:
            return False
        self.up = True
        self.outward.cut()
        self.inward.cut()
        self.nats.ports[self] = None
        return True

    def cut(self) -> bool:
        """Break the connection, and lose everything that is on the way. False if there was none."""
        if not self.up:
            return False
        self.up = False
        self.outward.cut()
        self.inward.cut()
        self.nats.forget(self)
        return True

    def slow_down(self, delay: int) -> None:
        """Let everything take so much longer."""
        self.outward.slow = self.inward.slow = delay

    def hold(self, length: int) -> None:
        """Let everything in both directions wait until *length* is over."""
        self.outward.held_until = self.inward.held_until = self.nats.loop.now + length

    def send(self, messages: list[SimMessage]) -> None:
        """Write to the server once."""
        if self.up:
            self.outward.send(self.nats.published, self, messages)

    def received(self, messages: list[tuple[int, SimMessage]]) -> None:
        """Take messages, each with the sid of its subscription."""
        raise NotImplementedError


class InterestFollower(Protocol):
    """A connection that learns which subjects somebody subscribes to."""

    def interest_changed(self, subject: str, *, begins: bool) -> None:
        """Note that somebody subscribes to *subject* now, or nobody any more."""


class NodeBuffer(Protocol):
    """The node's end of its connection: `stan.edge.nats.read_buffer.ReadBuffer`."""

    def on_up(self) -> None:
        """Note that there is a connection."""

    def on_down(self) -> None:
        """Note that the connection is gone."""

    def on_data(self, data: bytes) -> object:
        """Take bytes that have arrived."""


class NodePort(SimPort):
    """A node's connection: `stan.edge.nats.gateway.NatsPort`, bytes in and out. `run(call, *args)` is how anything reaches the
    node."""

    asks_for_503 = True
    max_payload = 1 << 20
    unsent = 0

    def __init__(
        self,
        nats: "SimNats",
        name: str,
        read_buffer: NodeBuffer,
        server: int = 0,
        run: Callable[..., object] | None = None,
    ) -> None:
        super().__init__(nats, name, server)
        self.read_buffer = read_buffer
        self.run = run or (lambda call, *args: call(*args))
        self.subscriptions: dict[int, str] = {}
        self.leaves: dict[
            bytes, Any
        ] = {}  # the leafnode connections of a node that serves clients of JetStream, by user
        self._held: list[bytes] | None = None  # what arrives while the node does not read

    def connect(self) -> bool:
        """Connect, and subscribe again. False if it is up already."""
        if not super().connect():
            return False
        for sid, subject in self.subscriptions.items():
            self.nats.subscribe(self, subject, sid)
        self._held = None
        self.run(self.read_buffer.on_up)
        for leaf in self.leaves.values():
            leaf.connect()
        return True

    def cut(self) -> bool:
        """Break the connection. False if there was none."""
        if not super().cut():
            return False
        self._held = None
        self.run(self.read_buffer.on_down)
        for leaf in self.leaves.values():
            leaf.cut()
        return True

    def received(self, messages: list[tuple[int, SimMessage]]) -> None:
        """Hand the bytes to the node."""
        self._read(b"".join(encoded(sid, message) for sid, message in messages))

    def _read(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        else:
            self.run(self.read_buffer.on_data, data)

    def write(self, data: bytes) -> bool:
        """Write frames of NATS's protocol; False if there is no connection."""
        if not self.up:
            return False
        messages: list[SimMessage] = []
        at = 0
        data = bytes(data)
        while at < len(data):
            end = data.index(b"\r\n", at)
            words = data[at:end].decode().split(" ")
            at = end + 2
            if words[0] == "PUB":
                size = int(words[-1])
                reply = words[2] if len(words) == 4 else ""
                messages.append(SimMessage(words[1], reply, data[at : at + size]))
                at += size + 2
            elif words[0] == "HPUB":
                header, size = int(words[-2]), int(words[-1])
                reply = words[2] if len(words) == 5 else ""
                messages.append(SimMessage(words[1], reply, data[at + header : at + size], data[at : at + header]))
                at += size + 2
            elif words[0] == "SUB":
                self.outward.send(self.nats.subscribe, self, words[1], int(words[-1]))
            elif words[0] == "UNSUB":
                self.outward.send(self.nats.unsubscribe_sid, self, int(words[1]))
            elif words[0] == "PING":
                self.outward.send(self.inward.send, self._read, b"PONG\r\n")
            else:
                raise AssertionError(f"a node wrote {words}")
        if messages:
            self.send(messages)
        return True

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Stop or go on reading."""
        if hold:
            self._held = self._held or []
        elif self._held is not None:
            held, self._held = self._held, None
            for data in held:
                self._read(data)

    def break_off(self) -> None:
        """Never called: what the node gets is well formed."""
        raise AssertionError("the node calls its own simulation garbage")

    def ponged(self) -> None:
        """Does nothing: a link breaks when the simulation says so."""

    def informed(self, info: dict[str, Any]) -> None:
        """Does nothing: the servers stay what they are."""


def encoded(sid: int, message: SimMessage) -> bytes:
    """The frame of a message, as a server sends it."""
    reply = f" {message.reply}" if message.reply else ""
    if message.header:
        size = len(message.header)
        head = f"HMSG {message.subject} {sid}{reply} {size} {size + len(message.payload)}\r\n"
    else:
        head = f"MSG {message.subject} {sid}{reply} {len(message.payload)}\r\n"
    return head.encode() + message.header + message.payload + b"\r\n"


class SimNats:
    """Servers with routes, and who subscribed to what."""

    def __init__(self, loop: Loop, servers: int = 1) -> None:
        self.loop = loop
        self.ports: dict[SimPort, None] = {}  # the connections that are up, in order of connecting
        self.broken: dict[tuple[int, int], None] = {}  # (server, server) -> None: no route
        self.deaf: dict[tuple[str, str], None] = {}  # (from node, to node) -> None: Raft frames are lost
        self.lossy: float = 0  # share of the Raft frames that are lost
        self.seen: Callable[[SimPort, SimMessage], object] | None = (
            None  # called with (port, message) for what nodes send to nodes
        )
        self._routes = {(a, b): Way(loop) for a in range(servers) for b in range(servers) if a != b}
        self._exact: dict[str, dict[SimPort, int]] = {}  # subject -> {port: sid}
        self._wild: dict[str, dict[SimPort, int]] = {}  # pattern -> {port: sid}
        self._matching: dict[str, list[str]] = {}  # subject -> patterns; forgotten when the patterns change
        self.followers: dict[InterestFollower, None] = {}  # those who are up

    # --- faults -----------------------------------------------------------------------------------------------------------

    def partition(self, sides: Iterable[Iterable[int]]) -> None:
        """Let servers of different *sides* not reach each other; everything that is on the way is lost."""
        side_of = {server: at for at, side in enumerate(sides) for server in side}
        for a, b in self._routes:
            if side_of[a] != side_of[b]:
                self.broken[a, b] = None
                self._routes[a, b].cut()

    def heal(self) -> None:
        """Let routes, Raft frames and delays be as they should be. Connections are their owners' business."""
        self.broken.clear()
        self.deaf.clear()
        self.lossy = 0
        for way in self._routes.values():
            way.slow = way.held_until = 0
        for port in self.ports:
            port.slow_down(0)
            port.outward.held_until = port.inward.held_until = 0

    def route(self, a: int, b: int) -> Way:
        """The way from a server to another one."""
        return self._routes[a, b]

    # --- interest ---------------------------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        """All subjects that somebody subscribes to, patterns included."""
        return [*self._exact, *self._wild]

    def subscribe(self, port: SimPort, subject: str, sid: int) -> None:
        """Note what a connection subscribes to."""
        if subject not in self._exact and subject not in self._wild:
            for follower in self.followers:
                follower.interest_changed(subject, begins=True)
        if subject.endswith((".>", ".*")) or "*" in subject:
            if subject not in self._wild:
                self._matching.clear()
            self._wild.setdefault(subject, {})[port] = sid
        else:
            self._exact.setdefault(subject, {})[port] = sid

    def unsubscribe(self, port: SimPort, subject: str, _sid: int) -> None:
        """Forget what a connection has subscribed to."""
        table = self._wild if subject in self._wild else self._exact
        ports = table.get(subject)
        if ports is not None and ports.pop(port, None) is not None and not ports:
            del table[subject]
            self._matching.clear()
            for follower in self.followers:
                follower.interest_changed(subject, begins=False)

    def unsubscribe_sid(self, port: SimPort, sid: int) -> None:
        """Forget a subscription of a connection by its sid."""
        for table in (self._exact, self._wild):
            for subject in [s for s, ports in table.items() if ports.get(port) == sid]:
                self.unsubscribe(port, subject, sid)

    def forget(self, port: SimPort) -> None:
        """Forget a connection, and all that it has subscribed to."""
        self.ports.pop(port, None)
        for table in (self._exact, self._wild):
            for subject in [subject for subject, ports in table.items() if port in ports]:
                self.unsubscribe(port, subject, 0)

    def _interested(self, subject: str) -> list[tuple[SimPort, int]]:
        found = list(self._exact.get(subject, {}).items())
        patterns = self._matching.get(subject)
        if patterns is None:
            patterns = self._matching[subject] = [p for p in self._wild if matches(p, subject)]
        for pattern in patterns:
            found += self._wild[pattern].items()
        return found

    # --- the way of messages ------------------------------------------------------------------------------------------------

    def published(self, port: SimPort, messages: list[SimMessage]) -> None:
        """Take messages that are at the server of their sender."""
        home = port.server
        by_server: dict[int, dict[SimPort, list[tuple[int, SimMessage]]]] = {}
        for message in messages:
            reached = False
            if self.seen is not None and message.subject.startswith("_STAN.node."):
                self.seen(port, message)
            for target, sid in self._interested(message.subject):
                if (home, target.server) in self.broken:
                    continue
                reached = True
                if (self.deaf or self.lossy) and self._is_lost(message.subject):
                    continue
                by_server.setdefault(target.server, {}).setdefault(target, []).append((sid, message))
            if not reached and message.reply and port.asks_for_503:
                self._say_nobody(port, message.reply, by_server.setdefault(home, {}))
        for server, targets in by_server.items():
            if server == home:
                self._hand_out(targets)
            else:
                self._routes[home, server].send(self._hand_out, targets)

    def _say_nobody(self, port: SimPort, reply: str, targets: dict[SimPort, list[tuple[int, SimMessage]]]) -> None:
        nobody = SimMessage(reply, "", b"", NOBODY)
        for target, sid in self._interested(reply):
            if target is port:
                targets.setdefault(port, []).append((sid, nobody))

    def _is_lost(self, subject: str) -> bool:
        if not subject.startswith("_STAN.raft."):
            return False
        *_, target, source = subject.split(".")
        return (source, target) in self.deaf or self.loop.random.random() < self.lossy

    def _hand_out(self, targets: dict[SimPort, list[tuple[int, SimMessage]]]) -> None:
        for target, messages in targets.items():
            if target.up:
                target.inward.send(target.received, messages)
