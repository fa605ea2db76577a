"""A real server with users: who has no right cannot publish, subscribe, ack for others, read by fetch, or administer.

The rogue has a user of his own, speaks bare NATS, and says whatever he likes.
"""

import asyncio
import contextlib
import itertools
import re

import nats
import nats.errors
import pytest
import stan_client
from stan_protocol.commits import commit_request
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.core_harness import CoreHarness
from tests.kit.rogue import CLUSTER, Rogue, url
from tests.kit.running import run_whole, settled
from tests.kit.server import StanServer, until

SECRET = b"for alice alone"
CONF = """
streaming {
  permissions {
    users: [
      { user: alice, password: pa, clients: "alice-*" }
      { user: mallory, password: pm, clients: ["mallory-*"] }
      { user: nobody, password: pn }
      { user: ops, password: po }
    ]
    allow: [
      { user: alice, publish: "a.>", subscribe: "a.>", durable: "a.>" }
      { user: mallory, publish: "m.>", subscribe: ["m.>", "mixed"], admin_read: "m.>" }
      { user: ops, admin_read: ">", admin_write: "a.>" }
    ]
  }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("permissions")
    (directory / "stan.conf").write_text(CONF)
    with StanServer(directory, "-c", str(directory / "stan.conf")) as running:
        yield running


@contextlib.asynccontextmanager
async def people(server):
    """Alice with a durable that has one unacknowledged message, and the rogue."""
    alice = await stan_client.connect(url(server, "alice"), client_id="alice-1", cluster_id=CLUSTER)
    rogue = await Rogue.of(server, "mallory")
    try:
        yield alice, rogue
    finally:
        await rogue.link.close()
        await alice.close()


def play(server, scene):
    async def run():
        async with people(server) as (alice, rogue):
            await scene(alice, rogue)

    run_whole(run())


async def last_of(server, channel):
    async with stan_client.Direct(url(server, "alice"), cluster_id=CLUSTER) as direct:
        return (await direct.channels.info([channel]))[channel].last


def test_nobody_gets_in_without_a_user(server):
    async def refused(where):
        with pytest.raises(nats.errors.Error):
            await nats.connect(where, allow_reconnect=False, max_reconnect_attempts=0, connect_timeout=5)

    for where in (server.url, url(server, "alice", "wrong"), url(server, "stan-broker", "x")):
        run_whole(refused(where))


def test_user_without_a_rule_can_do_nothing(server):
    async def scene():
        rogue = await Rogue.of(server, "nobody")
        assert await rogue.register("alice-9") == 'stan: no permission for client id "alice-9"'
        assert await rogue.publish("a.b", "alice-9") == "stan: invalid publish request"
        assert await rogue.subscribe("a.b", "alice-9") == "stan: unknown clientID"
        fetched = await rogue.asks("fetch", ext.FetchRequest(channel=b"a.b"), ext.FetchResponse)
        assert fetched.error == b'stan: no permission to read "a.b"'
        assert (
            await rogue.asks("admin.clients", admin.ClientsRequest())
        ).error == b'stan: no permission to look into ">"'
        await rogue.link.close()

    run_whole(scene())


def test_rogue_cannot_publish(server):
    async def scene(alice, rogue):
        await alice.publish("a.b", b"right")
        before = await last_of(server, "a.b")
        assert await rogue.register() == ""
        no = 'stan: no permission to publish to "a.b"'
        assert await rogue.publish("m.ine") == ""
        assert await rogue.publish("a.b") == no
        for conn_id in (
            b"",
            b"guessed",
            alice._sessions.current.conn_id,
        ):  # NATS tells who publishes, whatever he knows
            assert await rogue.publish("a.b", "alice-1", conn_id) == "stan: invalid publish request"
        row = wire.MsgProto(data=b"x").SerializeToString()
        rows = len(row).to_bytes(4, "little") + row
        for kind, request in (
            ("batch", ext.BatchRequest(channel=b"a.b", count=1, rows=rows)),
            ("stage", ext.StageRequest(channel=b"a.b", app=b"a", txn=b"t", count=1, rows=rows)),
            ("commit", commit_request(b"a", 0, {b"a.b": [(b"t", 1)]})),
            ("abort", ext.AbortRequest(channel=b"a.b", txns=[b"t"])),
        ):
            assert (await rogue.asks(kind, request)).error.decode() == no, kind
        for subject in (f"_STAN.from.alice._STAN.pub.{CLUSTER}.a.b", f"_STAN.to.alice._STAN.pub.{CLUSTER}.a.b"):
            await rogue.link.publish(subject, b"forged")
        await settled(rogue.link)
        assert await last_of(server, "a.b") == before

    play(server, scene)


def test_rogue_cannot_subscribe_nor_listen(server):
    async def scene(alice, rogue):
        assert await rogue.register() == ""
        got = asyncio.Event()
        sub = await alice.subscribe("a.secret", lambda _message: got.set())
        assert await rogue.subscribe("a.secret") == 'stan: no permission to read "a.secret"'
        assert await rogue.subscribe(">") == "stan: invalid subject"
        assert await rogue.subscribe("a.secret", "alice-1") == "stan: unknown clientID"
        assert await rogue.subscribe("mixed", durable="d") == 'stan: no permission to keep durables on "mixed"'
        assert await rogue.subscribe("mixed") == ""
        await alice.publish("a.secret", SECRET)
        await got.wait()
        await settled(rogue.link)
        assert [data for _, data in rogue.heard if SECRET in data or b"alice" in data] == []
        await sub.close()

    play(server, scene)


def test_rogue_cannot_ack_for_others(server):
    async def scene(alice, rogue):
        await alice.publish("a.acked", SECRET)
        sub = await alice.subscribe("a.acked", durable="d", start=stan_client.everything(), manual_acks=True)
        message = await anext(aiter(sub))
        inbox = sub.inboxes[1].encode()
        ack = wire.Ack(subject=b"a.acked", sequence=message.sequence).SerializeToString()
        for subject in (inbox.decode(), f"_STAN.from.alice.{inbox.decode()}", f"_STAN.to.alice.{inbox.decode()}"):
            await rogue.link.publish(subject, ack)
        await settled(rogue.link)
        assert await rogue.register() == ""  # answered behind the acks
        assert [subject for subject, data in rogue.heard if inbox in data or inbox.decode() == subject] == []
        await sub.close()
        again = await alice.subscribe("a.acked", durable="d", manual_acks=True)
        back = await anext(aiter(again))
        assert (back.sequence, back.redelivered) == (message.sequence, True)
        back.ack()
        await again.unsubscribe()

    play(server, scene)


def test_rogue_cannot_read_by_fetch(server):
    async def scene(alice, rogue):
        await alice.publish("a.fetched", SECRET)
        no = b'stan: no permission to read "a.fetched"'
        name = b"a.fetched"
        asked = ext.FetchRequest(channel=name, from_sequence=1)
        answer = await rogue.asks("fetch", asked, ext.FetchResponse)
        assert (answer.error, answer.records) == (no, b"")
        assert (await rogue.asks("seq_at_time", ext.SeqAtTimeRequest(channel=name))).error == no
        assert (await rogue.asks("cursor_set", ext.CursorSetRequest(channel=name, name=b"n", sequence=1))).error == no
        assert (await rogue.asks("info", ext.InfoRequest(channels=[b"m.x", name]))).error == no
        assert (await rogue.asks("info", ext.InfoRequest(pattern=b">"))).error == b'stan: no permission to read ">"'
        assert (await rogue.asks("info", ext.InfoRequest(pattern=b"m.>"))).error == b""
        assert (await rogue.asks("cursors", ext.CursorsRequest())).error == b'stan: no permission to read ">"'
        async with stan_client.Direct(url(server, "alice"), cluster_id=CLUSTER) as direct:
            assert (await direct.fetch("a.fetched"))[0].data == SECRET

    play(server, scene)


def test_rogue_cannot_administer(server):
    kinds = [
        kind.partition(".x.test-cluster.admin.")[2] for kind in CoreHarness().broker.frames.routes if ".admin." in kind
    ]
    assert len(kinds) > 15

    async def scene(alice, rogue):
        await alice.publish("a.admin", b"stays")
        for kind in [*kinds, "nodes", "options", "step_down", "add_node", "remove_node"]:
            name = "".join(word.capitalize() for word in kind.split("_")) + "Request"
            made = getattr(admin, name, admin.NodesRequest)()
            with contextlib.suppress(AttributeError):
                made.channel = b"a.admin"
            if hasattr(made, "which"):
                made.which.channel = b"a.admin"
            if hasattr(made, "pattern"):
                made.pattern = b"a.>"
            answer = await rogue.asks(f"admin.{kind}", made)
            assert answer is not None, kind
            assert answer.error.startswith(b"stan: no permission to "), kind
        assert (await rogue.asks("admin.channels", admin.ChannelsRequest(pattern=b"m.>"))).error == b""
        assert await last_of(server, "a.admin") == 1

    play(server, scene)


def test_rogue_cannot_end_what_is_not_his(server):
    async def scene(alice, rogue):
        assert await rogue.register("alice-1") == 'stan: no permission for client id "alice-1"'
        sub = await alice.subscribe("a.kept", durable="kept")
        close = wire.CloseRequest(client_id=b"alice-1")
        assert (await rogue.ask(f"_STAN.close.{CLUSTER}", close, wire.CloseResponse)).error == b"stan: unknown clientID"
        leave = wire.UnsubscribeRequest(client_id=b"alice-1", subject=b"a.kept", inbox=b"_INBOX.mallory.messages")
        for kind in ("unsub", "subclose"):
            answer = await rogue.ask(f"_STAN.{kind}.{CLUSTER}", leave, wire.SubscriptionResponse)
            assert answer.error == b"stan: invalid subscription"
        await alice.publish("a.kept", b"still there")
        assert (await anext(aiter(sub))).data == b"still there"
        await sub.unsubscribe()

    play(server, scene)


def test_operator_may_what_the_rules_say(server):
    async def scene(alice, rogue):
        await alice.publish("a.ops", b"x")
        async with stan_client.Direct(url(server, "ops"), cluster_id=CLUSTER) as direct:
            assert "a.ops" in [one.name for one in await direct.admin.channels()]
            assert "alice-1" in [one.client_id for one in await direct.admin.clients()]
            assert (await direct.admin.purge("a.ops")).changed == 1
            with pytest.raises(stan_client.ServerError, match=r'no permission to change "m\.ine"'):
                await direct.admin.purge("m.ine")
            with pytest.raises(stan_client.ServerError, match=r'no permission to read "a\.ops"'):
                await direct.fetch("a.ops")

    play(server, scene)


def test_operator_hears_what_happens_and_the_rogue_does_not(server):
    async def scene(alice, rogue):
        async with stan_client.Direct(url(server, "ops"), cluster_id=CLUSTER) as direct:
            events = direct.admin.events()
            waiting = asyncio.ensure_future(anext(events))
            async with asyncio.timeout(20):
                for number in itertools.count():  # until it listens
                    await alice.publish(f"a.event.{number}", b"x")
                    if (await asyncio.wait([waiting], timeout=0.1))[0]:
                        break
            assert waiting.result().kind
            await events.aclose()
        await settled(rogue.link)
        assert [subject for subject, _ in rogue.heard if "events" in subject] == []

    play(server, scene)


def test_no_password_is_shown(server):
    async def scene(alice, rogue):
        assert await rogue.register() == ""
        assert await rogue.publish("a.shown") == 'stan: no permission to publish to "a.shown"'

    play(server, scene)
    wanted = r'user "mallory" client "mallory-\d+": stan: no permission to publish to "a\.shown"'
    until(lambda: re.search(wanted, server.log()), why=server.log)
    log = server.log()
    for hidden in ('pa"', "password"):
        assert hidden not in log.replace("Plaintext passwords detected", "")
