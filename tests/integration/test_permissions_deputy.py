"""Nobody acts for another, and nobody has the broker act for him: what is known of others helps nobody, and the broker says
nothing on the subjects on which servers speak, wherever a client wants its answers.

With users of the permissions, over a NATS of somebody else with the accounts that are printed; with NATS's own permissions alone;
and on a NATS that is open to all. A spy hears everything in the broker's account.
"""

import asyncio
import contextlib
import urllib.request

import nats
import nats.errors
import pytest
import stan_client
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.fake_broker import eventually
from tests.kit.ports import free_port
from tests.kit.rogue import CLUSTER, Rogue, url, with_nats_of_somebody_else
from tests.kit.running import run_whole, settled
from tests.kit.server import NatsServer, StanServer, until

CONF = """
streaming {
  permissions {
    users: [
      { user: alice, password: pa, clients: "alice-*" }
      { user: mallory, password: pm, clients: "mallory-*" }
      { user: viewer, password: pv }
    ]
    allow: [
      { user: alice, publish: "a.>", subscribe: "a.>", durable: "a.>" }
      { user: mallory, publish: "m.>", subscribe: "m.>" }
      { user: viewer, admin_read: ">" }
      { subscribe: "public.>" }
    ]
  }
}
"""
PLAIN = """
authorization {{
  users: [
    {{ user: broker, password: pb }}
    {{ user: alice, password: pa }}
    {{ user: mallory, password: pm, permissions: {{
        publish: ["_STAN.pub.{0}.junk", "_STAN.discover.{0}", "_STAN.sub.{0}", "_STAN.x.{0}.>"], subscribe: "_INBOX.>" }} }}
  ]
}}
"""
MARK = b"mark-of-mallory"
VICTIM = "alice-1"
FORBIDDEN = {
    "closes a client": f"_STAN.close.{CLUSTER}",
    "closes a client as the broker": f"_STAN.from.stan-broker._STAN.close.{CLUSTER}",
    "closes a client as its user": f"_STAN.from.alice._STAN.close.{CLUSTER}",
    "forges an answer to a user": "_STAN.to.alice._INBOX.acks",
    "resets a link of a cluster": f"_STAN.raft.{CLUSTER}.n1.n2",
    "throws a group away": f"_STAN.node.{CLUSTER}.n1.transfer",
    "makes a rival of a node": f"_STAN.node.{CLUSTER}.hello",
    "asks as an operator": f"_STAN.x.{CLUSTER}.admin.purge",
    "publishes": f"_STAN.pub.{CLUSTER}.a.b",
    "keeps standbys away": "_STAN.ft.group.test-cluster",
    "answers a heartbeat": "_INBOX._STAN.0.1",
    "answers a heartbeat of a user": f"_STAN.reply.{CLUSTER}.0.1.alice",
    "acks": f"_STAN.ack.{CLUSTER}.1.1",
    "asks nats-server": "$SYS.REQ.SERVER.PING",
    "asks JetStream": "$JS.API.STREAM.LIST",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    pages = free_port()
    with with_nats_of_somebody_else(tmp_path_factory.mktemp("guarded"), CONF, "-m", str(pages)) as server:
        server.pages = f"127.0.0.1:{pages}/streaming"
        yield server


@pytest.fixture(scope="module")
def acls(tmp_path_factory):
    directory = tmp_path_factory.mktemp("acls")
    (directory / "nats.conf").write_text(PLAIN.format(CLUSTER))
    with (
        NatsServer(directory, "-c", str(directory / "nats.conf")) as theirs,
        StanServer(directory, "-user", "broker", "-pass", "pb", nats_url=theirs.url) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(params=["guarded", "acls", "unguarded"])
def server(request):
    """A server, and how much is permitted."""
    return request.getfixturevalue(request.param)


@contextlib.asynccontextmanager
async def rogue_of(server, user="mallory"):
    rogue = await Rogue.of(server, user)
    try:
        yield rogue
    finally:
        await rogue.link.close()


@contextlib.asynccontextmanager
async def alice_at(server, client_id=VICTIM):
    alice = await stan_client.connect(url(server, "alice"), client_id=client_id, cluster_id=CLUSTER)
    try:
        yield alice
    finally:
        await alice.close()


async def is_served(alice, channel="a.served"):
    """Whether a client is registered as it was, and gets what it publishes."""
    sub = await alice.subscribe(channel)
    await alice.publish(channel, b"x")
    await anext(aiter(sub))
    await sub.close()


# --- who publishes and acks ---------------------------------------------------------------------------------------------


def test_connection_id_that_everybody_knows_lets_nobody_publish_for_its_client(guarded):
    async def scene():
        async with rogue_of(guarded, "alice") as alice, rogue_of(guarded) as rogue:
            assert await alice.register("alice-known", "_INBOX.alice.hb") == ""
            assert await rogue.publish("a.known", "alice-known") == "stan: invalid publish request"
            assert await rogue.publish("a.known", "alice-known", b"") == "stan: invalid publish request"
            assert await alice.publish("a.known", "alice-known") == ""
            async with stan_client.Direct(url(guarded, "alice"), cluster_id=CLUSTER) as direct:
                assert (await direct.channels.info(["a.known"]))["a.known"].last == 1

    run_whole(scene())


def test_acks_of_publishes_reach_their_publisher_alone(guarded):
    async def scene():
        async with alice_at(guarded) as alice, rogue_of(guarded) as rogue, rogue_of(guarded, "viewer") as viewer:
            await alice.publish("a.acked", b"x")
            for other in (rogue, viewer):
                assert await other.asks("info", ext.InfoRequest(channels=[b"public.x"]), ext.InfoResponse) is not None
                assert [subject for subject, _ in other.heard if subject.startswith("_STAN.acks.")] == []

    run_whole(scene())


def test_ack_inbox_that_everybody_knows_lets_nobody_ack_for_another_user(guarded):
    async def scene():
        async with alice_at(guarded) as alice, rogue_of(guarded) as rogue:
            await alice.publish("a.durable", b"x")
            sub = await alice.subscribe("a.durable", durable="d", start=stan_client.everything(), manual_acks=True)
            message = await anext(aiter(sub))
            inbox = sub.inboxes[1].encode().decode()
            ack = wire.Ack(subject=b"a.durable", sequence=message.sequence)
            for subject in (inbox, inbox.replace("alice", "mallory"), inbox.removeprefix("_STAN.from.alice.")):
                await rogue.say(subject, ack)
            await rogue.asks("info", ext.InfoRequest(channels=[b"public.x"]), ext.InfoResponse)  # handled behind it
            await sub.close()
            again = await alice.subscribe("a.durable", durable="d", manual_acks=True)
            back = await anext(aiter(again))
            assert (back.sequence, back.redelivered) == (message.sequence, True)
            back.ack()
            await again.unsubscribe()

    run_whole(scene())


# --- on which subjects the broker speaks --------------------------------------------------------------------------------


async def spy_at(server, heard):
    """Hear everything that is said to, and by, the broker."""
    spy = await nats.connect(url(server, "broker"), allow_reconnect=False)

    async def hear(message):
        heard.append((message.subject, message.data))

    await spy.subscribe(">", cb=hear)
    await settled(spy)
    return spy


def messages(reply):
    """What the rogue says so that the answer goes to *reply*: subject, payload, reply subject."""
    publish = wire.PubMsg(client_id=b"mallory-1", guid=MARK, subject=b"junk", data=b"x", conn_id=b"conn-mallory-1")
    victim = wire.PubMsg(client_id=b"mallory-1", guid=VICTIM.encode(), subject=b"junk", data=b"x")
    connect = wire.ConnectRequest(
        client_id=b"mallory-" + b"2", heartbeat_inbox=reply.encode(), conn_id=MARK, protocol=1
    )
    subscribe = wire.SubscriptionRequest(
        client_id=b"mallory-1", subject=b"junk", inbox=reply.encode(), max_in_flight=1, ack_wait_s=30, start_position=4
    )
    yield f"_STAN.pub.{CLUSTER}.junk", publish.SerializeToString(), reply
    yield f"_STAN.pub.{CLUSTER}.junk", victim.SerializeToString(), reply
    yield f"_STAN.pub.{CLUSTER}.junk", wire.PubMsg(guid=MARK, subject=b"other").SerializeToString(), reply
    yield f"_STAN.pub.{CLUSTER}.junk", b"\xff" + MARK, reply
    yield f"_STAN.discover.{CLUSTER}", connect.SerializeToString(), "_INBOX.mallory.x"
    yield f"_STAN.discover.{CLUSTER}", wire.ConnectRequest(client_id=MARK).SerializeToString(), reply
    yield f"_STAN.sub.{CLUSTER}", subscribe.SerializeToString(), "_INBOX.mallory.x"
    yield f"_STAN.sub.{CLUSTER}", b"\xff", reply
    for kind in ("info", "fetch", "last_committed", "finish", "admin.channels", "admin.nodes", "batch"):
        yield f"_STAN.x.{CLUSTER}.{kind}", ext.LastCommittedRequest(app=b"m.x").SerializeToString(), reply


def by_the_broker(subject, payload, said):
    """Whether it is none of what the rogue has *said*."""
    plain = subject.partition("_STAN.from.mallory.")[2] or subject
    return (plain, payload) not in said


@pytest.mark.parametrize("reply", list(FORBIDDEN.values()), ids=list(FORBIDDEN))
def test_broker_says_nothing_where_servers_listen(server, reply):
    async def scene():
        heard, said = [], set()
        async with alice_at(server) as alice, rogue_of(server) as rogue:
            await rogue.register("mallory-1")
            spy = await spy_at(server, heard)
            for subject, payload, to in messages(reply):
                said.add((subject, payload))
                await rogue.say(subject, payload, to)
            await settled(rogue.link)
            await is_served(alice)  # what the rogue has said was handled before
            await spy.drain()
            assert [one for one in heard if one[0] == reply and by_the_broker(*one, said)] == []

    run_whole(scene())


def test_acks_go_where_their_publisher_hears_them_and_nobody_else(guarded):
    async def scene():
        heard = []
        async with rogue_of(guarded, "alice") as alice, rogue_of(guarded) as rogue:
            spy = await spy_at(guarded, heard)
            publish = wire.PubMsg(client_id=b"mallory-1", guid=MARK, subject=b"junk", data=b"x")
            await rogue.say(f"_STAN.pub.{CLUSTER}.junk", publish, "_INBOX.alice.acks")
            await rogue.asks("info", ext.InfoRequest(channels=[b"public.x"]), ext.InfoResponse)
            assert [subject for subject, data in rogue.heard if MARK in data] == ["_INBOX.alice.acks"]
            await alice.asks("info", ext.InfoRequest(channels=[b"a.x"]), ext.InfoResponse)
            # What two accounts hear has no common order, nor has what two clients hear.
            await eventually(lambda: sum(MARK in data for _, data in heard) >= 2)
            await spy.drain()
            assert sorted(subject for subject, data in heard if MARK in data) == [
                f"_STAN.from.mallory._STAN.pub.{CLUSTER}.junk",
                "_STAN.to.mallory._INBOX.alice.acks",
            ]
            assert not any(MARK in data for _, data in alice.heard)

    run_whole(scene())


def test_own_ack_inboxes_and_inboxes_of_a_server_without_users_are_no_place_for_acks(unguarded):
    async def scene():
        heard = []
        async with alice_at(unguarded) as alice, rogue_of(unguarded) as rogue:
            spy = await spy_at(unguarded, heard)
            sub = await alice.subscribe("a.own", manual_acks=True)
            inbox = sub.inboxes[1].encode().decode()
            asked = ext.InfoRequest(pattern=b"\xff")  # the answer to a mistake has fields like those of an ack
            await rogue.say(f"_STAN.x.{CLUSTER}.info", asked, inbox)
            publish = wire.PubMsg(client_id=b"nobody", guid=MARK, subject=b"junk", data=b"x")
            await rogue.say(f"_STAN.pub.{CLUSTER}.junk", publish, inbox)
            await settled(rogue.link)
            await is_served(alice)
            await spy.drain()
            assert [subject for subject, _ in heard if subject == inbox] == []
            await sub.close()
            until(
                lambda: (
                    f'"_STAN.pub.{CLUSTER}.junk" with the reply subject' in unguarded.log() or inbox in unguarded.log()
                )
            )

    run_whole(scene())


def test_further_prefixes_of_replies_are_an_option(tmp_path):
    async def scene(server):
        async with rogue_of(server) as rogue:
            assert await rogue.register("mallory-1") == ""
            got = asyncio.get_running_loop().create_future()

            async def ack(message):
                got.set_result(wire.PubAck.FromString(message.data).error)

            await rogue.link.subscribe("my.acks.1", cb=ack)
            publish = wire.PubMsg(
                client_id=b"mallory-1", guid=MARK, subject=b"m.x", data=b"x", conn_id=b"conn-mallory-1"
            )
            await rogue.say(f"_STAN.pub.{CLUSTER}.m.x", publish, "my.acks.1")
            assert await asyncio.wait_for(got, 20) == b""

    conf = tmp_path / "stan.conf"
    for text in (CONF, "streaming { }"):
        conf.write_text(text.replace("streaming {", 'streaming {\n reply_prefixes: ["my.acks.", "other."]', 1))
        with StanServer(tmp_path, "-c", str(conf), store="MEMORY") as server:
            run_whole(scene(server))


# --- what is shown ------------------------------------------------------------------------------------------------------


def read(page):
    with urllib.request.urlopen(f"http://{page}", timeout=20) as answer:
        return answer.read()


def test_lists_show_no_connection_id_and_no_ack_inbox(guarded):
    async def scene():
        async with alice_at(guarded) as alice, rogue_of(guarded, "viewer") as viewer:
            sub = await alice.subscribe("a.listed", durable="listed")
            hidden = [alice._sessions.current.conn_id, sub.inboxes[1].encode()]
            for kind, request in (
                ("clients", admin.ClientsRequest()),
                ("subscriptions", admin.SubscriptionsRequest(pattern=b">")),
            ):
                said = (await viewer.link.request(f"_STAN.x.{CLUSTER}.admin.{kind}", request.SerializeToString())).data
                assert b"alice-1" in said
                assert not [one for one in hidden if one in said], kind
            for page in ("channelsz?subs=1", "clientsz?subs=1", "channelsz?channel=a.listed&subs=1"):
                said = await asyncio.to_thread(read, f"{guarded.pages}/{page}")
                assert b"alice-1" in said
                assert not [one for one in hidden if one in said], page
            await sub.unsubscribe()

    run_whole(scene())


# --- whose a request is -------------------------------------------------------------------------------------------------


def test_connect_without_a_reply_registers_nobody(guarded):
    async def scene():
        connect = wire.ConnectRequest(
            client_id=b"alice-forged", heartbeat_inbox=b"_INBOX.mallory.hb", conn_id=b"c", protocol=1
        )
        async with rogue_of(guarded) as rogue, rogue_of(guarded, "viewer") as viewer:
            assert await rogue.register("alice-forged") == 'stan: no permission for client id "alice-forged"'
            await rogue.say(f"_STAN.discover.{CLUSTER}", connect)
            assert await rogue.register("mallory-after") == ""
            listed = await viewer.asks("admin.clients", admin.ClientsRequest(), admin.ClientsResponse)
            names = [one.client_id for one in listed.clients]
            assert b"mallory-after" in names
            assert b"alice-forged" not in names

    run_whole(scene())


def test_application_of_another_user_cannot_be_finished(guarded):
    async def scene():
        async with rogue_of(guarded, "alice") as alice, rogue_of(guarded) as rogue:
            app = b"alice-etl"
            mine = ext.FinishRequest(app=app, version=3)
            assert (await alice.asks("finish", mine, ext.FinishResponse)).error == b""
            for kind, request in (
                ("finish", ext.FinishRequest(app=app, version=10**15)),
                ("last_committed", ext.LastCommittedRequest(app=app)),
            ):
                refused = await rogue.asks(kind, request, ext.LastCommittedResponse)
                assert refused.error == b"stan: this application is another user's", kind
            asked = ext.LastCommittedRequest(app=app)
            assert (await alice.asks("last_committed", asked, ext.LastCommittedResponse)).version == 3

    run_whole(scene())
