"""The NATS connection of a simulated client."""

from stan.testing.nats import SimMessage, SimPort


class ClientPort(SimPort):
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
        self.send([SimMessage(subject, reply, payload)])

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
