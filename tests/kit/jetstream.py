"""JetStream's clients on the core harness: requests of the API, publishes to streams, and their answers. And real ones."""

import asyncio
import contextlib
import json
from typing import NamedTuple

import nats
from stan_protocol.frames import Frame

from stan.config import Config
from stan.core.base.names import raw
from stan.protocol.jetstream import headers
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
    """A NATS message comes on *subject*, if the broker listens there; True if it does. *fields*: headers, or their block."""
    taker = next((take for pattern, take in _takers(broker_harness) if covers(pattern, subject)), None)
    if taker is None:
        return False
    if isinstance(fields, bytes):
        block = fields
    else:
        block = headers.render([(name.encode(), value.encode()) for name, value in fields]) if fields else b""
    taker(Frame(100_001, raw(subject), reply.encode(), block, payload))
    return True


def covers(pattern, subject):
    wanted, tokens = pattern.split("."), subject.split(".")
    rest = wanted[-1] == ">"
    if rest:
        wanted.pop()
    if len(tokens) <= len(wanted) if rest else len(tokens) != len(wanted):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def _takers(broker_harness):
    return broker_harness.broker.view.scope.more_subjects.items()


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
    for payload in payloads:
        broker_harness.inboxes += 1
        replies.append(f"reply.{broker_harness.inboxes}")
        assert hears(broker_harness, subject, payload, replies[-1], fields)
    broker_harness.turn()
    said = [answer_to(broker_harness, reply) for reply in replies]
    return [None if one is None else json.loads(one.payload) for one in said]


async def asked(call, seconds=90):
    """The answer to a question of nats-py that is asked until there is one."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
                return await call()
            await asyncio.sleep(0.05)
