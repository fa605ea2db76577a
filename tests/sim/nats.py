"""NATS as the simulation needs it: servers with routes between them, connections of nodes and clients, and their faults.

    connection ─ outward ─► its server ─ route ─► other server ─ inward ─► connections that subscribed

Every arrow is first in, first out, with delays of its own: what one publishes keeps its order everywhere, what two publish may
arrive at two places in different orders. As with core NATS, what has nobody to go to is gone (a request of a node is answered
with a 503), and so is what is on the way when a connection or a route breaks.
"""

from typing import NamedTuple

from stan_protocol.scalars import MICROSECOND

from stan.edge.nats.leaf import LeafNews

DELAY_MAX = 700 * MICROSECOND
NOBODY = b"NATS/1.0 503\r\n\r\n"


class Message(NamedTuple):
    subject: str
    reply: str
    payload: bytes
    header: bytes = b""


class Way:
    """One direction of one link."""

    def __init__(self, loop):
        self.loop = loop
        self.slow = 0  # everything takes this much longer
        self.held_until = 0  # nothing arrives before
        self.cuts = 0  # what set out before a cut never arrives
        self._last = 0

    def send(self, call, *args):
        loop = self.loop
        delay = 1 + int(loop.random.random() * DELAY_MAX) + self.slow
        self._last = when = max(self._last, loop.now + delay, self.held_until)
        loop.at(when, self._arrive, self.cuts, call, args)

    def _arrive(self, cuts, call, args):
        if cuts == self.cuts:
            call(*args)

    def cut(self):
        self.cuts += 1
        self._last = 0


class Port:
    """One connection to one server. `received` gets a list of (sid, Message)."""

    asks_for_503 = False

    def __init__(self, nats, name, server=0):
        self.nats = nats
        self.name = name
        self.server = server
        self.up = False
        self.outward = Way(nats.loop)
        self.inward = Way(nats.loop)

    def connect(self):
        """False if it is up already."""
        if self.up:
            return False
        self.up = True
        self.outward.cut()
        self.inward.cut()
        self.nats.ports[self] = None
        return True

    def cut(self):
        """The connection breaks, and with it goes what is on the way. False if there was none."""
        if not self.up:
            return False
        self.up = False
        self.outward.cut()
        self.inward.cut()
        self.nats.forget(self)
        return True

    def slow_down(self, delay):
        """Clogged (or no more, with 0)."""
        self.outward.slow = self.inward.slow = delay

    def hold(self, length):
        """Everything in both directions waits until *length* is over."""
        self.outward.held_until = self.inward.held_until = self.nats.loop.now + length

    def send(self, messages):
        """One write to the server."""
        if self.up:
            self.outward.send(self.nats.published, self, messages)

    def received(self, messages):
        raise NotImplementedError


class ClientPort(Port):
    """A client's connection: callbacks by inbox. What is sent while it is down leaves when it is up, as real clients do it."""

    def __init__(self, nats, name, server=0):
        super().__init__(nats, name, server)
        self.inboxes = {}  # subject -> callback(payload, reply)
        self._waiting = []

    def connect(self):
        if not super().connect():
            return False
        for subject in self.inboxes:
            self.nats.subscribe(self, subject, subject)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.send(waiting)
        return True

    def listen(self, subject, call):
        self.inboxes[subject] = call
        if self.up:
            self.nats.subscribe(self, subject, subject)

    def forget(self, subject):
        """False if nobody listened there."""
        if self.up:
            self.nats.unsubscribe(self, subject, subject)
        return self.inboxes.pop(subject, None) is not None

    def publish(self, subject, payload, reply=""):
        self.send([Message(subject, reply, payload)])

    def send(self, messages):
        if self.up:
            super().send(messages)
        else:
            self._waiting += messages

    def received(self, messages):
        for sid, message in messages:
            heard = self.inboxes.get(sid)
            if heard is not None:
                heard(message.payload, message.reply)


class NodePort(Port):
    """A node's connection: `stan.edge.nats.gateway.NatsPort`, bytes in and out. `run(call, *args)` is how anything reaches the
    node."""

    asks_for_503 = True
    max_payload = 1 << 20
    unsent = 0
    leaf = None

    def __init__(self, nats, name, read_buffer, server=0, run=None):
        super().__init__(nats, name, server)
        self.read_buffer = read_buffer
        self.run = run or (lambda call, *args: call(*args))
        self.subscriptions = {}
        self._held = None  # what arrives while the node does not read

    def connect(self):
        if not super().connect():
            return False
        for sid, subject in self.subscriptions.items():
            self.nats.subscribe(self, subject, sid)
        self._held = None
        self.run(self.read_buffer.on_up)
        if self.leaf is not None:
            self.leaf.connect()
        return True

    def cut(self):
        if not super().cut():
            return False
        self._held = None
        self.run(self.read_buffer.on_down)
        if self.leaf is not None:
            self.leaf.cut()
        return True

    def received(self, messages):
        self._read(b"".join(_encoded(sid, message) for sid, message in messages))

    def _read(self, data):
        if self._held is not None:
            self._held.append(data)
        else:
            self.run(self.read_buffer.on_data, data)

    def write(self, data):
        if not self.up:
            return False
        messages = []
        at = 0
        data = bytes(data)
        while at < len(data):
            end = data.index(b"\r\n", at)
            words = data[at:end].decode().split(" ")
            at = end + 2
            if words[0] == "PUB":
                size = int(words[-1])
                reply = words[2] if len(words) == 4 else ""
                messages.append(Message(words[1], reply, data[at : at + size]))
                at += size + 2
            elif words[0] == "HPUB":
                header, size = int(words[-2]), int(words[-1])
                reply = words[2] if len(words) == 5 else ""
                messages.append(Message(words[1], reply, data[at + header : at + size], data[at : at + header]))
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

    def hold_reading(self, hold):
        if hold:
            self._held = self._held or []
        elif self._held is not None:
            held, self._held = self._held, None
            for data in held:
                self._read(data)

    def break_off(self):
        raise AssertionError("the node calls its own simulation garbage")

    def ponged(self):
        return None

    def informed(self, info):
        return None


class SimLeaf(Port):
    """A node's leafnode connection: `stan.edge.nats.leaf.LeafPort`. *wake*: has the node look at `news`."""

    unsent = 0

    def __init__(self, nats, name, server, run, wake):
        super().__init__(nats, name, server)
        self.run = run
        self.wake = wake
        self.news = LeafNews()

    def connect(self):
        if not super().connect():
            return False
        self.nats.leaves[self] = None
        for subject in self.nats.subjects():
            self.tell(subject, begins=True)
        self.inward.send(self.run, self._hear)
        return True

    def cut(self):
        if not super().cut():
            return False
        self.nats.leaves.pop(self, None)
        self.run(self._lost)
        return True

    def tell(self, subject, *, begins):
        """NATS has interest in a subject, or no more."""
        self.inward.send(self.run, self._hear, (begins, subject.encode(), b""))

    def _hear(self, *changes):
        self.news.interest += changes
        self.news.changed = True
        self.wake()

    def _lost(self):
        self.news.interest.clear()
        self.news.forgotten = self.news.changed = True
        self.wake()

    def write(self, data):
        if not self.up:
            return False
        messages, at, data = [], 0, bytes(data)
        while at < len(data):
            end = data.index(b"\r\n", at)
            verb, to, *words = data[at:end].decode().split(" ")
            size = int(words.pop())
            header = int(words.pop()) if verb == "HMSG" else 0
            reply = words[0] if words else ""
            start = end + 2
            messages.append(Message(to, reply, data[start + header : start + size], data[start : start + header]))
            at = start + size + 2
        self.send(messages)
        return True


def _encoded(sid, message):
    reply = f" {message.reply}" if message.reply else ""
    if message.header:
        size = len(message.header)
        head = f"HMSG {message.subject} {sid}{reply} {size} {size + len(message.payload)}\r\n"
    else:
        head = f"MSG {message.subject} {sid}{reply} {len(message.payload)}\r\n"
    return head.encode() + message.header + message.payload + b"\r\n"


class SimNats:
    def __init__(self, loop, servers=1):
        self.loop = loop
        self.ports = {}  # the connections that are up, in order of connecting
        self.broken = {}  # (server, server) -> None: no route
        self.deaf = {}  # (from node, to node) -> None: Raft frames are lost
        self.lossy = 0  # share of the Raft frames that are lost
        self.seen = None  # called with (port, message) for what nodes send to nodes
        self._routes = {(a, b): Way(loop) for a in range(servers) for b in range(servers) if a != b}
        self._exact = {}  # subject -> {port: sid}
        self._wild = {}  # pattern -> {port: sid}
        self._matching = {}  # subject -> patterns; forgotten when the patterns change
        self.leaves = {}  # leafnode connections that are up -> None

    # --- faults -----------------------------------------------------------------------------------------------------------

    def partition(self, sides):
        """Servers of different *sides* (lists of them) do not reach each other; what is on the way is lost."""
        side_of = {server: at for at, side in enumerate(sides) for server in side}
        for a, b in self._routes:
            if side_of[a] != side_of[b]:
                self.broken[a, b] = None
                self._routes[a, b].cut()

    def heal(self):
        """Routes, raft frames and delays are as they should be. Connections are their owners' business."""
        self.broken.clear()
        self.deaf.clear()
        self.lossy = 0
        for way in self._routes.values():
            way.slow = way.held_until = 0
        for port in self.ports:
            port.slow_down(0)
            port.outward.held_until = port.inward.held_until = 0

    def route(self, a, b):
        return self._routes[a, b]

    # --- interest ---------------------------------------------------------------------------------------------------------

    def subjects(self):
        """In which somebody has interest."""
        return [*self._exact, *self._wild]

    def subscribe(self, port, subject, sid):
        if self.leaves and subject not in self._exact and subject not in self._wild:
            for leaf in self.leaves:
                leaf.tell(subject, begins=True)
        if subject.endswith((".>", ".*")) or "*" in subject:
            if subject not in self._wild:
                self._matching.clear()
            self._wild.setdefault(subject, {})[port] = sid
        else:
            self._exact.setdefault(subject, {})[port] = sid

    def unsubscribe(self, port, subject, _sid):
        table = self._wild if subject in self._wild else self._exact
        ports = table.get(subject)
        if ports is not None and ports.pop(port, None) is not None and not ports:
            del table[subject]
            self._matching.clear()
            for leaf in self.leaves:
                leaf.tell(subject, begins=False)

    def unsubscribe_sid(self, port, sid):
        for table in (self._exact, self._wild):
            for subject in [s for s, ports in table.items() if ports.get(port) == sid]:
                self.unsubscribe(port, subject, sid)

    def forget(self, port):
        self.ports.pop(port, None)
        for table in (self._exact, self._wild):
            for subject in [subject for subject, ports in table.items() if port in ports]:
                self.unsubscribe(port, subject, 0)

    def _interested(self, subject):
        found = list(self._exact.get(subject, {}).items())
        patterns = self._matching.get(subject)
        if patterns is None:
            patterns = self._matching[subject] = [p for p in self._wild if _matches(p, subject)]
        for pattern in patterns:
            found += self._wild[pattern].items()
        return found

    # --- the way of messages ------------------------------------------------------------------------------------------------

    def published(self, port, messages):
        """They are at the server of their sender."""
        home = port.server
        by_server = {}
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
                for target, sid in self._interested(message.reply):
                    if target is port:
                        nobody = sid, Message(message.reply, "", b"", NOBODY)
                        by_server.setdefault(home, {}).setdefault(port, []).append(nobody)
        for server, targets in by_server.items():
            if server == home:
                self._hand_out(targets)
            else:
                self._routes[home, server].send(self._hand_out, targets)

    def _is_lost(self, subject):
        if not subject.startswith("_STAN.raft."):
            return False
        *_, target, source = subject.split(".")
        return (source, target) in self.deaf or self.loop.random.random() < self.lossy

    def _hand_out(self, targets):
        for target, messages in targets.items():
            if target.up:
                target.inward.send(target.received, messages)


def _matches(pattern, subject):
    """NATS wildcards."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and all(w in ("*", g) for w, g in zip(wanted[:-1], given, strict=False))
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))
