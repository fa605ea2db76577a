"""Clients of JetStream with permissions: each does what its user may, and nobody reaches what belongs to another user."""

import asyncio
import contextlib
import itertools
import json
from contextlib import asynccontextmanager

import nats
import pytest
import stan_client
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.jetstream import asked
from tests.kit.ports import free_port
from tests.kit.rogue import CLUSTER, url, with_nats_of_somebody_else
from tests.kit.server import StanServer

CONF = """
streaming {
  jetstream_api: true
  permissions {
    users: [
      { user: alice, password: pa }
      { user: bob, password: pb }
      { user: carol, password: pc }
      { user: ops, password: po }
    ]
    allow: [
      { user: alice, publish: ["orders.*", "jobs", "$KV.box.>"], subscribe: ["ORDERS", "jobs", "KV_box"],
        durable: ["ORDERS", "jobs"], admin_write: ["KV_box", "$KV.box.>"] }
      { user: bob, subscribe: ["ORDERS", "other"], durable: "ORDERS", publish: "other" }
      { user: carol, publish: "nothing" }
      { user: ops, admin_write: ">" }
    ]
  }
}
"""


@pytest.fixture(params=["embedded", "of somebody else"])
def server(request, tmp_path):
    if request.param == "embedded":
        (tmp_path / "stan.conf").write_text(CONF)
        with StanServer(tmp_path, "-c", str(tmp_path / "stan.conf")) as found:
            yield found
    else:
        port = free_port()
        flags = "-jetstream_leaf", f"127.0.0.1:{port}"
        with with_nats_of_somebody_else(tmp_path, CONF, *flags, leaf_port=port) as found:
            yield found


class Household:
    """Connections of all users."""

    def __init__(self, links):
        self.links = links
        self.js = {name: link.jetstream(timeout=10) for name, link in links.items()}
        self.heard = []  # by bob, who listens to everything
        self.advised = {name: [] for name in links}

    async def listen(self):
        async def hear(message):
            self.heard.append((message.subject, message.data))

        for subject in (">", "_INBOX.>", "$JS.ACK.>", "_STAN.>"):
            await self.links["bob"].subscribe(subject, cb=hear)
        await self.links["bob"].flush()

    async def watch(self):
        """Have all users listen to advisories, from now on."""
        for name, link in self.links.items():
            await link.subscribe("$JS.EVENT.ADVISORY.>", cb=_note_advice(self.advised[name]))
            await link.flush()

    async def until_advised(self, name, word, count=1):
        """Wait until so many advisories with a word in the subject have come to a user."""
        await eventually(lambda: sum(word in subject for subject in self.advised[name]) == count)


def _note_advice(told):
    async def note(message):
        told.append(message.subject.removeprefix("$JS.EVENT.ADVISORY."))

    return note


@asynccontextmanager
async def household(server):
    links = {name: await nats.connect(url(server, name)) for name in ("alice", "bob", "carol", "ops")}
    try:
        found = Household(links)
        await asked(found.js["ops"].account_info)
        orders = StreamConfig(name="ORDERS", subjects=["orders.*"])
        await asked(lambda: found.js["ops"].add_stream(orders))
        await found.listen()
        yield found
    finally:
        for link in links.values():
            with contextlib.suppress(nats.errors.Error):
                await link.close()


async def refused(call):
    """The text of the refusal."""
    with pytest.raises(APIError) as caught:
        await call
    assert caught.value.code == 403
    return caught.value.description


async def raw(link, subject, payload=b""):
    """A request as it is, and what it says."""
    answer = await link.request(subject, payload, timeout=10)
    return answer.headers or json.loads(answer.data)


async def fetched(sub, count):
    found = []
    while len(found) < count:
        found += await sub.fetch(count - len(found), timeout=10)
    return found


async def test_who_may_publishes_and_consumes_and_others_hear_nothing_of_it(server):
    async with household(server) as home:
        js = home.js["alice"]
        assert [(await js.publish("orders.new", b"secret %d" % one)).seq for one in range(3)] == [1, 2, 3]
        sub = await js.pull_subscribe("orders.*", durable="worker", stream="ORDERS")
        found = await fetched(sub, 3)
        assert [(one.subject, one.data) for one in found] == [("orders.new", b"secret %d" % one) for one in range(3)]
        for one in found:
            await one.ack_sync(timeout=10)
        assert (await sub.consumer_info()).ack_floor.stream_seq == 3
        await home.links["bob"].flush()
        assert not [data for _, data in home.heard if b"secret" in data]


async def test_a_listener_of_the_same_user_does_not_change_under_which_subject_messages_come(server):
    async with household(server) as home:
        js = home.js["alice"]
        curious = await nats.connect(url(server, "alice"))
        await curious.subscribe(">")
        await curious.flush()
        sub = await js.subscribe("orders.*", stream="ORDERS", ordered_consumer=True)
        for number in range(5):
            await js.publish(f"orders.{number}", b"")
        assert [(await sub.next_msg(timeout=10)).subject for _ in range(5)] == [f"orders.{one}" for one in range(5)]
        await curious.close()


async def test_a_bucket_is_used_by_who_may(server):
    async with household(server) as home:
        box = await home.js["alice"].create_key_value(bucket="box", history=1)
        revision = await box.put("colour", b"red")
        assert (await box.get("colour")).value == b"red"
        await box.update("colour", b"blue", revision)
        watcher = await box.watchall()
        assert (await watcher.updates(timeout=10)).value == b"blue"
        await watcher.stop()
        await box.delete("colour")
        assert await refused(home.js["bob"].key_value("box"))
        assert "publish to" in await refused(home.js["bob"].publish("$KV.box.colour", b"green"))


async def test_what_a_user_may_not_is_refused_and_says_why(server):
    async with household(server) as home:
        bob, carol = home.js["bob"], home.js["carol"]
        await home.js["alice"].publish("orders.new", b"1")
        assert await refused(bob.publish("orders.new", b"2")) == 'no permission to publish to "orders.new"'
        assert await refused(bob.add_stream(name="MINE", subjects=["mine"])) == 'no permission to change "mine"'
        assert await refused(bob.delete_stream("ORDERS")) == 'no permission to change "ORDERS"'
        assert await refused(bob.purge_stream("ORDERS")) == 'no permission to change "ORDERS"'
        assert await refused(bob.delete_msg("ORDERS", 1)) == 'no permission to change "ORDERS"'
        assert await refused(carol.get_msg("ORDERS", 1)) == 'no permission to read "ORDERS"'
        assert await refused(carol.stream_info("ORDERS")) == 'no permission to look into "ORDERS"'
        assert await refused(carol.add_consumer("ORDERS", ConsumerConfig(durable_name="c")))
        assert (await raw(home.links["carol"], "$JS.API.STREAM.LIST"))["total"] == 0
        assert [one.config.name for one in await bob.streams_info()] == ["ORDERS"]
        assert (await home.js["ops"].stream_info("ORDERS")).state.messages == 1


async def test_a_consumer_is_its_owners_alone(server):
    async with household(server) as home:
        alice, bob, link = home.js["alice"], home.js["bob"], home.links["bob"]
        await alice.publish("orders.new", b"1")
        sub = await alice.pull_subscribe("orders.*", durable="worker", stream="ORDERS")
        [message] = await fetched(sub, 1)
        assert await refused(bob.consumer_info("ORDERS", "worker")) == "the consumer belongs to another user"
        assert await refused(bob.delete_consumer("ORDERS", "worker"))
        assert await refused(bob.add_consumer("ORDERS", ConsumerConfig(durable_name="worker")))
        status = await raw(link, "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker", b'{"batch": 1, "no_wait": true}')
        assert status["Status"] == "403"
        assert not await bob.consumers_info("ORDERS")
        for forged in (message.reply, f"_STAN.from.alice.{message.reply}"):
            await link.publish(forged, b"")
            await link.publish(forged, b"-NAK")
        await link.flush()
        assert (await home.js["ops"].consumer_info("ORDERS", "worker")).num_ack_pending == 1
        assert (await alice.consumer_info("ORDERS", "worker")).num_ack_pending == 1
        await message.ack_sync(timeout=10)
        await home.js["ops"].delete_consumer("ORDERS", "worker")


async def test_nothing_can_be_forged(server):
    """No ack of a publish, no publish as another user, no delivery to one."""
    async with household(server) as home:
        alice, link = home.links["alice"], home.links["bob"]
        inbox = await alice.subscribe("_INBOX.known")
        await alice.flush()
        for subject in ("_INBOX.known", "_STAN.to.alice._INBOX.known", "_STAN.from.alice._INBOX.known"):
            await link.publish(subject, b'{"stream":"ORDERS","seq":7}')
        await link.publish("_STAN.from.alice.orders.new", b"forged", reply="_INBOX.known")
        await link.publish("orders.new", b"forged", reply="_STAN.to.alice._INBOX.known")
        await link.flush()
        await alice.publish("orders.new", b"right", reply="_INBOX.known")
        ack = json.loads((await inbox.next_msg(timeout=10)).data)
        assert (ack["stream"], ack["seq"]) == ("ORDERS", 1)
        stored = await home.js["alice"].get_msg("ORDERS", 1)
        assert stored.data == b"right"
        assert inbox.pending_msgs == 0


async def test_no_user_connects_a_leafnode(tmp_path):
    """It would name the subjects under which its messages are delivered, and so could pass for any user."""
    port = free_port()
    with with_nats_of_somebody_else(tmp_path, CONF, "-jetstream_leaf", f"127.0.0.1:{port}", leaf_port=port):
        for user, password in (("alice", "pa"), ("ops", "po"), ("stan-broker.alice", "pa"), ("stan-broker.bob", "")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            login = json.dumps({"user": user, "pass": password, "name": "rogue", "version": "2.10.0"})
            writer.write(f"CONNECT {login}\r\nPING\r\n".encode())
            said = await asyncio.wait_for(reader.read(), 20)  # until it hangs up
            assert b"Authorization Violation" in said
            writer.close()


async def test_messages_are_delivered_to_inboxes_alone(server):
    """Elsewhere the broker itself may listen, and would take them for what the user says."""
    async with household(server) as home:
        config = ConsumerConfig(deliver_subject="jobs.here", ack_policy=AckPolicy.NONE, inactive_threshold=60)
        assert "reply_prefixes" in await refused(home.js["alice"].add_consumer("ORDERS", config))


async def test_advisories_go_to_those_who_may_see_what_they_tell_of(server):
    async with household(server) as home:
        js = home.js
        await home.watch()
        await js["ops"].add_stream(StreamConfig(name="OTHER", subjects=["other"]))
        await js["ops"].add_stream(StreamConfig(name="JOBS", subjects=["jobs"]))
        await js["alice"].publish("jobs", b"odd")
        sub = await js["alice"].pull_subscribe("jobs", durable="worker", stream="JOBS")
        [message] = await fetched(sub, 1)
        await message.term()
        await home.until_advised("alice", "MSG_TERMINATED")
        await js["ops"].delete_stream("JOBS")
        await js["ops"].add_stream(StreamConfig(name="NOTHING", subjects=["nothing"]))
        last = {"carol": "STREAM.CREATED.NOTHING", "bob": "STREAM.DELETED.OTHER"}
        await js["ops"].delete_stream("OTHER")
        for name in ("alice", "ops"):
            await home.until_advised(name, "CONSUMER.DELETED.JOBS.worker")
        for name, subject in last.items():
            await home.until_advised(name, subject)
        of_jobs = {
            *("STREAM.CREATED.JOBS", "CONSUMER.CREATED.JOBS.worker", "CONSUMER.MSG_TERMINATED.JOBS.worker"),
            *("STREAM.DELETED.JOBS", "CONSUMER.DELETED.JOBS.worker"),
        }
        assert (set(home.advised["alice"]), len(home.advised["alice"])) == (of_jobs, 5)
        assert home.advised["bob"] == ["STREAM.CREATED.OTHER", "STREAM.DELETED.OTHER"]
        assert home.advised["carol"] == ["STREAM.CREATED.NOTHING"]
        everything = [*of_jobs, *home.advised["bob"], *home.advised["carol"]]
        await eventually(lambda: sorted(home.advised["ops"]) == sorted(everything))
        await home.links["bob"].flush()
        assert not [one for one in home.heard if b"JOBS" in one[1]]


async def test_clients_of_stan_share_the_channel(server):
    async with household(server) as home:
        await home.js["ops"].add_stream(StreamConfig(name="JOBS", subjects=["jobs"]))
        async with await stan_client.connect(url(server, "alice"), client_id="a", cluster_id=CLUSTER) as client:
            await client.publish("jobs", b"from STAN")
            await home.js["alice"].publish("jobs", b"from JetStream")
            heard = asyncio.Queue()
            await client.subscribe("jobs", heard.put, start=stan_client.everything())
            assert [(await asyncio.wait_for(heard.get(), 10)).data for _ in range(2)] == [
                b"from STAN",
                b"from JetStream",
            ]
            assert (await home.js["alice"].get_msg("JOBS", 1)).data == b"from STAN"


async def test_a_cluster_knows_who_speaks_at_each_of_its_nodes(tmp_path):
    (tmp_path / "stan.conf").write_text(CONF)
    with StanCluster(tmp_path, "-c", str(tmp_path / "stan.conf")) as cluster:
        nodes = list(cluster.nodes.values())
        async with household(nodes[0]) as home:
            bob = (await nats.connect(url(nodes[1], "bob"))).jetstream(timeout=10)
            alice = (await nats.connect(url(nodes[2], "alice"))).jetstream(timeout=10)
            for js in (bob, alice):  # its first answer may overtake, on its way to it, the interest in its inbox
                await asked(js.account_info)
            for number in range(20):
                await asked(lambda number=number: home.js["alice"].publish("orders.new", b"secret %d" % number))
            sub = await alice.pull_subscribe("orders.*", durable="worker", stream="ORDERS")
            found = await fetched(sub, 20)
            assert {one.subject for one in found} == {"orders.new"}
            assert await refused(bob.publish("orders.new", b"forged"))
            assert await refused(bob.consumer_info("ORDERS", "worker"))
            for one in found:
                await one.ack_sync(timeout=10)
            assert (await home.js["alice"].consumer_info("ORDERS", "worker")).num_ack_pending == 0
            assert not [data for _, data in home.heard if b"secret" in data]
            await home.watch()
            await alice.delete_consumer("ORDERS", "worker")
            await asked(lambda: home.js["ops"].add_stream(name="OTHER", subjects=["other"]))
            for name, about in (("alice", "CONSUMER.DELETED"), ("ops", "CONSUMER.DELETED"), ("bob", "STREAM.CREATED")):
                await home.until_advised(name, about)
            assert home.advised["bob"] == ["STREAM.CREATED.OTHER"]
            await bob._nc.close()
            await alice._nc.close()


REQUESTS = (
    *("STREAM.DELETE.ORDERS", "STREAM.PURGE.ORDERS", "STREAM.UPDATE.ORDERS", "STREAM.CREATE.ORDERS"),
    *("STREAM.MSG.DELETE.ORDERS", "CONSUMER.DELETE.ORDERS.worker", "CONSUMER.PAUSE.ORDERS.worker"),
    *("CONSUMER.CREATE.ORDERS.worker", "CONSUMER.DURABLE.CREATE.ORDERS.worker", "CONSUMER.MSG.NEXT.ORDERS.worker"),
    *("STREAM.MSG.GET.ORDERS", "DIRECT.GET.ORDERS", "DIRECT.GET.ORDERS.orders.new", "STREAM.INFO.ORDERS"),
    *("STREAM.CREATED.ORDERS", "STREAM.SNAPSHOT.ORDERS", "CONSUMER.CREATE.ORDERS", "CONSUMER.LIST.ORDERS"),
)
PAYLOADS = (
    *(b"", b"5", b'{"seq": 1}', b'{"batch": 10}', b'{"last_by_subj": "orders.new"}'),
    b'{"name": "ORDERS", "subjects": ["orders.*"], "max_msgs": 1}',
    b'{"pause_until": "2100-01-01T00:00:00Z"}',
    b'{"stream_name": "ORDERS", "config": {"durable_name": "worker", "deliver_subject": "_INBOX.carol"}}',
    b'{"stream_name": "ORDERS", "config": {"name": "worker", "ack_policy": "none", "inactive_threshold": 1000000000}}',
)
PRETENDING = ("", "_STAN.from.alice.", "_STAN.from.ops.", "_STAN.from.stan-broker.", "_STAN.to.alice.")
REPLIES = ("_INBOX.carol", "_INBOX.known", "_STAN.to.alice._INBOX.known", "$JS.API.STREAM.DELETE.ORDERS", "")


async def test_whatever_a_user_without_rights_says_changes_nothing_and_tells_nothing(server):
    async with household(server) as home:
        js, carol = home.js["alice"], home.links["carol"]
        known = await home.links["alice"].subscribe("_INBOX.known")
        told = []
        await carol.subscribe(">", cb=_note_answers(told))
        for number in range(3):
            await js.publish("orders.new", b"secret %d" % number)
        sub = await js.pull_subscribe("orders.*", durable="worker", stream="ORDERS")
        held = await fetched(sub, 2)
        before = await js.consumer_info("ORDERS", "worker")
        for pretending, request, payload, reply in itertools.product(PRETENDING, REQUESTS, PAYLOADS, REPLIES):
            await carol.publish(f"{pretending}$JS.API.{request}", payload, reply=reply)
        for pretending, one, payload in itertools.product(PRETENDING, held, (b"", b"+TERM", b"-NAK", b"+NXT 5")):
            await carol.publish(f"{pretending}{one.reply}", payload, reply="_INBOX.carol")
        await raw(carol, "$JS.API.STREAM.LIST")  # everything before it was handled
        after = await js.consumer_info("ORDERS", "worker")
        assert (after.num_ack_pending, after.delivered, after.config) == (2, before.delivered, before.config)
        assert (await home.js["ops"].stream_info("ORDERS")).state.messages == 3
        assert known.pending_msgs == 0
        assert told
        assert not [data for data in told if b"secret" in data or b"c2VjcmV0" in data or b"max_msgs" in data]


def _note_answers(told):
    """Notes what comes to an inbox."""

    async def note(message):
        if message.subject.startswith("_INBOX."):
            told.append(message.data or str(message.headers).encode())

    return note
