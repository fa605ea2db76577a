"""JetStream's clients on the core harness: requests of the API, publishes to streams, and their answers. And real ones."""

import asyncio
import contextlib
import json
from typing import NamedTuple

import nats

from stan.config import Config
from stan.core.base.names import raw
from stan.protocol.jetstream import headers
from stan.protocol.kernel import server as kernel
from stan.protocol.user_subjects import rules
from tests.kit.core_harness import CoreHarness


class Answer(NamedTuple):
    """A message of the broker to a client."""

    fields: list[tuple[str, str]]
    payload: bytes
    status: str

    @property
    def header(self):
        return dict(self.fields)


def harness(**options):
    return CoreHarness(Config(jetstream_api=True, **options))


def hears(broker_harness, subject, payload=b"", reply="", fields=()):
    """A NATS message comes on *subject*, if the broker listens there; True if it does."""
    return arrive(broker_harness, (subject, payload, reply, fields))


def arrive(broker_harness, *messages):
    """Messages come in one read; False if the broker does not listen on all their subjects. Each is its subject, payload, reply
    subject and headers, or their block."""
    scope = broker_harness.broker.view.scope
    sids = {pattern: sid for sid, pattern in enumerate(scope.more_subjects, 10)}
    takers = dict(enumerate(scope.more_subjects.values(), 10))
    sid_of = [next((sid for one, sid in sids.items() if covers(one, subject)), 0) for subject, *_ in messages]
    if not all(sid_of):
        return False
    data, at = b"".join(map(_frame, sid_of, messages)), 0
    streams = {sids[one]: stream for one, stream in scope.stream_subjects.items()}
    found = {
        "rules": rules(broker_harness.config),
        "streams": streams,
        "consumer_sid": sids.get(scope.consumer_acks, 0),
    }
    while at < len(data):
        scan = kernel.scan(data, at, 1, 2, b"_STAN.pub.test-cluster.", **found)
        broker_harness.broker.frames.step_jetstream(scan.streams, scan.consumers)
        for frame in scan.others:
            takers[frame.sid](frame)
        at += scan.consumed
    return True


def _frame(sid, message):
    subject, payload, reply, fields = message
    named = b"%b %d %b" % (raw(subject), sid, reply.encode() + b" " if reply else b"")
    if not fields:
        return b"MSG %b%d\r\n%b\r\n" % (named, len(payload), payload)
    block = fields
    if not isinstance(fields, bytes):
        block = headers.render([(name.encode(), value.encode()) for name, value in fields])
    return b"HMSG %b%d %d\r\n%b%b\r\n" % (named, len(block), len(block) + len(payload), block, payload)


def covers(pattern, subject):
    wanted, tokens = pattern.split("."), subject.split(".")
    rest = wanted[-1] == ">"
    if rest:
        wanted.pop()
    if len(tokens) <= len(wanted) if rest else len(tokens) != len(wanted):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def asks(broker_harness, request, document=None):
    """Ask the API; returns the subject of the answer. What is said shows after the next turn."""
    broker_harness.inboxes += 1
    reply = f"reply.{broker_harness.inboxes}"
    payload = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
    assert hears(broker_harness, f"$JS.API.{request}", payload, reply)
    return reply


def api(broker_harness, request, document=None):
    """Ask the API; returns the answer, None if there is none."""
    reply = asks(broker_harness, request, document)
    broker_harness.turn()
    answer = answer_to(broker_harness, reply)
    return None if answer is None else json.loads(answer.payload)


def direct(broker_harness, request, document=None):
    """Ask for a message; returns the whole answer."""
    reply = asks(broker_harness, request, document)
    broker_harness.turn()
    return answer_to(broker_harness, reply)


def answer_to(broker_harness, reply):
    said = broker_harness.hear(reply)
    return answer_of(said[0].payload) if said else None


def answer_of(payload):
    if not payload.startswith(headers.LINE):
        return Answer([], payload, "")
    block, _, rest = payload.partition(b"\r\n\r\n")
    fields = [(name.decode(), value.decode()) for name, value in headers.parse(block)]
    return Answer(fields, rest, block.split(b"\r\n")[0].removeprefix(headers.LINE).strip().decode())


def publish(broker_harness, subject, *payloads, fields=()):
    """Publish in one read; returns the answers."""
    replies = []
    for _ in payloads:
        broker_harness.inboxes += 1
        replies.append(f"_INBOX.{broker_harness.inboxes}")
    assert arrive(broker_harness, *((subject, *one, fields) for one in zip(payloads, replies, strict=True)))
    broker_harness.turn()
    said = [answer_to(broker_harness, reply) for reply in replies]
    return [None if one is None else json.loads(one.payload) for one in said]


async def asked(call, seconds=90):
    """The answer to a question of nats-py that is asked until there is one."""
    async with asyncio.timeout(seconds):
        while True:
            # A fetch that has no time left for its second request raises the plain TimeoutError.
            with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
                return await call()
            await asyncio.sleep(0.05)
