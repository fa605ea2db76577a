"""The simulated leafnode connection of a node."""

from stan.edge.nats.leaf import LeafNews
from stan.testing.nats import SimMessage, SimPort


class SimLeaf(SimPort):
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
        self.nats.followers[self] = None
        for subject in self.nats.subjects():
            self.interest_changed(subject, begins=True)
        self.inward.send(self.run, self._hear)
        return True

    def cut(self):
        if not super().cut():
            return False
        self.nats.followers.pop(self, None)
        self.run(self._lost)
        return True

    def interest_changed(self, subject, *, begins):
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
            messages.append(SimMessage(to, reply, data[start + header : start + size], data[start : start + header]))
            at = start + size + 2
        self.send(messages)
        return True
