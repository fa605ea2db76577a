"""NATS as the simulation needs it: exact subjects for clients, one node with prefix subscriptions, FIFO links with delay.

Nothing is lost while a link is up; when the node's link is cut, everything on its way in either direction is gone, and what
is published meanwhile has nobody to go to (as with core NATS).
"""

from stan.types import MICROSECOND


class SimNats:
    def __init__(self, loop):
        self.loop = loop
        self.inboxes = {}  # subject -> callback(payload, reply) of a client
        self.node = None  # the node's link, when up
        self._to_node = 0
        self._to_clients = 0

    def publish(self, subject, payload, reply=""):
        """A client publishes; only the node listens to what clients send."""
        link = self.node
        if link is None:
            return
        self._to_node = max(self._to_node, self.loop.now) + self.loop.random.randint(1, 800) * MICROSECOND
        self.loop.at(self._to_node, link.arrive, subject, payload, reply)

    def from_node(self, link, data):
        """The node wrote PUB frames: hand them out in order."""
        self._to_clients = max(self._to_clients, self.loop.now) + self.loop.random.randint(1, 800) * MICROSECOND
        self.loop.at(self._to_clients, self._hand_out, link, data)

    def _hand_out(self, link, data):
        if not link.up:
            return
        at = 0
        while at < len(data):
            end = data.index(b"\r\n", at)
            parts = data[at:end].decode().split(" ")
            if parts[0] != "PUB":
                at = end + 2
                continue
            size = int(parts[-1])
            payload = data[end + 2 : end + 2 + size]
            at = end + 4 + size
            subject, reply = parts[1], parts[2] if len(parts) == 4 else ""
            heard = self.inboxes.get(subject)
            if heard is not None:
                heard(payload, reply)
            elif reply:
                link.no_responders(reply)


class NodeLink:
    """The node's end: stan.edge.gateway.Link."""

    max_payload = 1 << 20

    def __init__(self, nats, gateway):
        self.nats = nats
        self.gateway = gateway
        self.subscriptions = {}
        self.up = False
        self.unsent = 0

    def connect(self):
        self.up = True
        self.nats.node = self
        self.gateway.on_up()

    def cut(self):
        if self.up:
            self.up = False
            if self.nats.node is self:
                self.nats.node = None
            self.gateway.on_down()

    def arrive(self, subject, payload, reply):
        if not self.up:
            return
        sid = next((sid for sid, pattern in self.subscriptions.items() if _matches(pattern, subject)), None)
        if sid is not None:
            middle = f" {reply}" if reply else ""
            self.gateway.on_data(f"MSG {subject} {sid}{middle} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def no_responders(self, subject):
        sid = next((sid for sid, pattern in self.subscriptions.items() if _matches(pattern, subject)), None)
        if sid is not None and self.up:
            header = b"NATS/1.0 503\r\n\r\n"
            self.gateway.on_data(f"HMSG {subject} {sid} {len(header)} {len(header)}\r\n".encode() + header + b"\r\n")

    def write(self, data):
        if self.up:
            self.nats.from_node(self, bytes(data))
        return self.up

    def hold_reading(self, hold):
        return None

    def break_off(self):
        raise AssertionError("the node calls its own simulation garbage")

    def ponged(self):
        return None


def _matches(pattern, subject):
    if pattern.endswith(">"):
        return subject.startswith(pattern[:-1])
    if pattern.endswith("*"):
        return subject.startswith(pattern[:-1]) and "." not in subject[len(pattern) - 1 :]
    return pattern == subject
