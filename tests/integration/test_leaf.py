"""The leafnode connection with a real nats-server: what leaves on it reaches clients under the subjects that it names."""

from contextlib import asynccontextmanager
from dataclasses import replace

import nats
from psutil import Process

from stan.config import EmbeddedConfig, LogConfig
from stan.core.base.interest import Interest
from stan.edge.log import ServerLog
from stan.edge.nats.embedded import EmbeddedNats
from stan.edge.nats.leaf import LeafConnection
from tests.kit.fake_broker import eventually

REPLY = b"$JS.ACK.ORDERS.worker.1.5.6.1700000000000000000.3"


class Edge:
    """The connection, and what it tells."""

    def __init__(self, embedded: EmbeddedNats, *, wrong: bool = False) -> None:
        self.notes: list[tuple[str, str]] = []
        self.interest = Interest()
        self.connection = LeafConnection(
            lambda: self.address(embedded, wrong=wrong),
            "stan",
            self.look,
            lambda level, text: self.notes.append((level, text)),
        )

    @staticmethod
    def address(embedded, *, wrong):
        found = embedded.leafnode
        return replace(found, password=found.password[:-1]) if wrong and found is not None else found

    def look(self) -> None:
        news = self.connection.news
        if news.forgotten:
            self.interest.clear()
        self.interest.change(news.interest)
        news.interest.clear()
        news.forgotten = news.changed = False


@asynccontextmanager
async def connected(**options):
    config = EmbeddedConfig(host="127.0.0.1", port=-1)
    embedded = EmbeddedNats(config, ServerLog(LogConfig()), leafnode=True)
    await embedded.start()
    edge = Edge(embedded, **options)
    client = await nats.connect(embedded.url)
    edge.connection.start()
    try:
        yield embedded, edge, client
    finally:
        await client.close()
        await edge.connection.close()
        await embedded.stop()


async def test_a_delivery_reaches_a_client_under_the_message_s_subject_and_with_its_ack_subject():
    async with connected() as (_, edge, client):
        got = await client.subscribe("_INBOX.pulled.*")
        await client.flush()
        await edge.connection.wait_until_up()
        edge.connection.write(b"LMSG _INBOX.pulled.1 %b@orders.new 5\r\nhello\r\n" % REPLY)
        header = b"NATS/1.0\r\nColour: red\r\n\r\n"
        size = len(header)
        edge.connection.write(
            b"HMSG _INBOX.pulled.1 %b@orders.old %d %d\r\n%b%b\r\n" % (REPLY, size, size + 5, header, b"again")
        )
        first, second = await got.next_msg(timeout=5), await got.next_msg(timeout=5)

        assert (first.subject, first.reply, first.data) == ("orders.new", REPLY.decode(), b"hello")
        assert (second.subject, second.reply, second.data) == ("orders.old", REPLY.decode(), b"again")
        assert second.headers == {"Colour": "red"}
        assert first.metadata.sequence.stream == 5
        assert first.metadata.num_pending == 3


async def test_of_a_queue_group_one_member_gets_a_delivery():
    async with connected() as (_, edge, client):
        members = [await client.subscribe("work.here", queue="workers") for _ in range(2)]
        await client.flush()
        await edge.connection.wait_until_up()
        await eventually(lambda: edge.interest.has(b"work.here", b"workers"))
        for _ in range(20):
            edge.connection.write(b"LMSG work.here + %b@orders.new workers 1\r\nx\r\n" % REPLY)
        await eventually(lambda: sum(one.pending_msgs for one in members) == 20)

        assert (await members[0].next_msg(timeout=5)).subject == "orders.new"


async def test_interest_comes_and_goes_with_subscriptions():
    async with connected() as (_, edge, client):
        await edge.connection.wait_until_up()
        assert not edge.interest.has(b"deliver.to.me")
        exact = await client.subscribe("deliver.to.me")
        await client.flush()
        await eventually(lambda: edge.interest.has(b"deliver.to.me"))
        await exact.unsubscribe()
        await client.flush()
        await eventually(lambda: not edge.interest.has(b"deliver.to.me"))
        pattern = await client.subscribe("deliver.*.me")
        await client.flush()
        await eventually(lambda: edge.interest.has(b"deliver.to.me"))
        await pattern.unsubscribe()
        await client.flush()
        await eventually(lambda: not edge.interest.has(b"deliver.to.me"))


async def test_the_connection_and_the_interest_come_back_with_nats_server():
    async with connected() as (embedded, edge, client):
        await client.subscribe("deliver.to.me")
        await client.flush()
        await eventually(lambda: edge.interest.has(b"deliver.to.me"))
        embedded._process.kill()
        await eventually(lambda: not edge.connection.up)
        assert not edge.connection.write(b"LMSG deliver.to.me 0\r\n\r\n")
        assert not edge.interest.has(b"deliver.to.me")
        await eventually(lambda: edge.connection.up and edge.interest.has(b"deliver.to.me"))

        assert [level for level, _ in edge.notes if level != "DBG"] == ["WRN", "INF"] or edge.notes[-1][0] == "INF"


async def test_a_wrong_password_is_told_once():
    async with connected(wrong=True) as (_, edge, _client):
        await eventually(lambda: bool(edge.notes))

        assert not edge.connection.up
        assert "Authorization Violation" in edge.notes[0][1]


async def test_the_listener_is_on_the_loopback_interface_and_each_start_makes_a_password():
    seen = []
    for _ in range(2):
        async with connected() as (embedded, _edge, _client):
            seen.append(embedded.leafnode)
            assert embedded.leafnode.password not in " ".join(Process(embedded.pid).cmdline())

    assert [one.host for one in seen] == ["127.0.0.1"] * 2
    assert len({one.password for one in seen}) == 2
