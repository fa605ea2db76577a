"""Somebody who speaks bare NATS as a user of the permissions and says whatever he likes; and servers to say it to."""

import contextlib
import itertools
import os
import subprocess
import sys

import nats
import nats.errors
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.running import settled
from tests.kit.server import CLUSTER_ID, ROOT, NatsServer, StanServer

CLUSTER = CLUSTER_ID
PATHS = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")])}


def url(server, user, password=""):
    """Where *server* is, for a user; his password is `p` and the first letter of his name."""
    return server.url.replace("nats://", f"nats://{user}:{password or 'p' + user[0]}@")


@contextlib.contextmanager
def with_nats_of_somebody_else(directory, conf, *flags, leaf_port=0):
    """A server over a nats-server with the accounts that `stan config accounts` prints; the broker's user is `broker`.
    *leaf_port*: where it listens for leafnodes, not 0."""
    file, accounts = directory / "stan.conf", directory / "nats.conf"
    file.write_text(conf.replace("streaming {", "streaming {\n  username: broker, password: pb", 1))
    command = [sys.executable, "-m", "stan.cli.main", "config", "accounts", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False, timeout=60)
    assert told.returncode == 0, told.stderr
    leafnodes = f"leafnodes {{ listen: 127.0.0.1:{leaf_port} }}\n" if leaf_port else ""
    accounts.write_text(leafnodes + told.stdout)
    with (
        NatsServer(directory, "-c", str(accounts)) as theirs,
        StanServer(directory, "-sc", str(file), *flags, nats_url=theirs.url) as server,
    ):
        yield server


class Rogue:
    """A bare connection to NATS, which hears everything that its user can hear."""

    numbers = itertools.count(1)

    def __init__(self, link):
        self.link = link
        self.client_id = f"mallory-{next(self.numbers)}"
        self.heard = []

    @classmethod
    async def of(cls, server, user):
        self = cls(await nats.connect(url(server, user), max_reconnect_attempts=0, allow_reconnect=False, no_echo=True))

        async def hear(message):
            self.heard.append((message.subject, message.data))

        await self.link.subscribe(">", cb=hear)
        await settled(self.link)
        return self

    async def ask(self, subject, request, answer):
        """What the broker answers; None if nobody does."""
        try:
            said = await self.link.request(subject, request.SerializeToString(), timeout=10)
        except nats.errors.NoRespondersError:
            return None
        return answer.FromString(said.data)

    async def asks(self, kind, request, answer=admin.ChangeResponse):
        return await self.ask(f"_STAN.x.{CLUSTER}.{kind}", request, answer)

    async def register(self, client_id="", inbox="_INBOX.mallory.hb"):
        client_id = client_id or self.client_id

        async def beat(message):
            await message.respond(b"")

        await self.link.subscribe(inbox, cb=beat)
        request = wire.ConnectRequest(
            client_id=client_id.encode(),
            heartbeat_inbox=inbox.encode(),
            conn_id=b"conn-" + client_id.encode(),
            protocol=1,
        )
        return (await self.ask(f"_STAN.discover.{CLUSTER}", request, wire.ConnectResponse)).error.decode()

    def say(self, subject, request, reply=""):
        """Send something and wait for no answer."""
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        return self.link.publish(subject, payload, reply)

    async def publish(self, channel, client_id="", conn_id=None):
        client_id = client_id or self.client_id
        conn = b"conn-" + client_id.encode() if conn_id is None else conn_id
        message = wire.PubMsg(
            client_id=client_id.encode(), guid=b"g", subject=channel.encode(), data=b"x", conn_id=conn
        )
        return (await self.ask(f"_STAN.pub.{CLUSTER}.{channel}", message, wire.PubAck)).error.decode()

    async def subscribe(self, channel, client_id="", durable=""):
        request = wire.SubscriptionRequest(
            client_id=(client_id or self.client_id).encode(),
            subject=channel.encode(),
            inbox=b"_INBOX.mallory.messages",
            max_in_flight=10,
            ack_wait_s=30,
            durable_name=durable.encode(),
            start_position=4,
        )
        return (await self.ask(f"_STAN.sub.{CLUSTER}", request, wire.SubscriptionResponse)).error.decode()
