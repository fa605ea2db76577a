"""Clients of JetStream's consumers on the core harness: they listen, pull, ack, and read what the leafnode connection brings."""

import json
from dataclasses import dataclass, field

from stan_protocol.scalars import SECOND

from stan.protocol.jetstream import headers
from tests.kit.jetstream import api, harness, hears


@dataclass
class Got:
    """A message of a consumer, or what is told of its state."""

    to: str  # where a client listens
    subject: str  # under which the client gets it
    ack: str  # subject of its ack
    payload: bytes
    fields: dict[str, str] = field(default_factory=dict)
    status: str = ""

    @property
    def numbers(self):
        """Delivered how often, sequence in the stream, number in the consumer's life, and how many follow."""
        delivered, sequence, number, _, pending = (int(one) for one in self.ack.split(".")[-5:])
        return delivered, sequence, number, pending

    @property
    def sequence(self):
        return self.numbers[1]

    @property
    def delivered(self):
        return self.numbers[0]


def read_frames(data):
    """What frames of the leafnode protocol bring, to whom."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        verb, to, *words = data[at:end].decode().split(" ")
        start = end + 2
        size = int(words.pop())
        header = int(words.pop()) if verb == "HMSG" else 0
        reply = words[1] if words[:1] == ["+"] else words[0] if words and words[0] != "|" else ""
        block, payload = data[start : start + header], data[start + header : start + size]
        at = start + size + 2
        ack, _, subject = reply.rpartition("@") if "@" in reply else (reply, "", to)
        fields = {name.decode(): value.decode() for name, value in headers.parse(block)}
        first = block.split(b"\r\n")[0]
        status = first.removeprefix(headers.LINE).strip().decode()
        yield Got(to, subject, ack, payload, fields, status)


def served(subjects=("orders.*",), name="ORDERS", **config):
    """A broker with a stream, and a leafnode connection."""
    h = harness()
    listens(h)
    assert "error" not in api(h, f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects), **config})
    return h


def listens(h, *subjects, queue="", gone=(), up=True):
    """NATS tells that somebody listens to subjects, or no more."""
    changes = [(True, one.encode(), queue.encode()) for one in subjects]
    changes += [(False, one.encode(), queue.encode()) for one in gone]
    h.broker.stops.step_leaf(changes, up=up, forgotten=False)
    h.turn()


def consumer(h, name, stream="ORDERS", **config):
    """Make a consumer, by default one with explicit acks; returns the answer."""
    asked = {"durable_name": name, "name": name, "ack_policy": "explicit"} | config
    asked = {key: value for key, value in asked.items() if value is not None}
    return api(h, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": asked})


def info(h, name, stream="ORDERS"):
    return api(h, f"CONSUMER.INFO.{stream}.{name}")


def pull(h, name, batch=1, stream="ORDERS", inbox="", **request):
    """Ask for messages; returns what comes."""
    h.inboxes += 1
    inbox = inbox or f"_INBOX.pull.{h.inboxes}"
    listens(h, inbox)
    asks(h, name, inbox, stream, batch=batch, **request)
    return got(h, inbox)


def asks(h, name, inbox, stream="ORDERS", **request):
    payload = json.dumps(request).encode() if request else b""
    assert hears(h, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", payload, inbox)
    h.turn()


def got(h, to):
    """What came to a subject since the last call, by the leafnode connection or as an answer."""
    found, others = [], []
    for frames in h.leaf_said:
        for one in read_frames(frames):
            (found if one.to == to else others).append((one, frames))
    h.leaf_said = [_again(one) for one, _ in others]
    for said in h.hear(to):
        first, _, rest = said.payload.partition(b"\r\n\r\n")
        status = first.split(b"\r\n")[0].removeprefix(headers.LINE).strip().decode()
        found.append((Got(to, to, said.reply, rest, {}, status), b""))
    return [one for one, _ in found]


def _again(one):
    """The frame of something that nobody has read yet."""
    block = headers.render([(k.encode(), v.encode()) for k, v in one.fields.items()], one.status.encode())
    reply = f"{one.ack}@{one.subject}" if one.subject != one.to else one.ack
    head = f"HMSG {one.to} {reply + ' ' if reply else ''}{len(block)} {len(block) + len(one.payload)}\r\n"
    return head.encode() + block + one.payload + b"\r\n"


def says(h, message, what=b"", reply=""):
    """A client says something about a message."""
    assert hears(h, message.ack, what, reply)
    h.turn()


def pause(nanos):
    return b'-NAK {"delay": %d}' % nanos


SECONDS = SECOND
