"""Consumers of JetStream with nats-py, side by side with a nats-server that has JetStream: both keep the same promises."""

import asyncio
import contextlib
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial

import nats
import pytest
import stan_client
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig
from psutil import Process
from stan_protocol.admin_types import RestoredRun

from stan.cli.commands.exchange import ImportRow, packed_rows
from stan.edge.nats.nats_process import find_binary
from tests.kit.cluster import StanCluster
from tests.kit.jetstream import asked
from tests.kit.ports import accepts, free_port
from tests.kit.server import NatsServer, StanServer, until


@pytest.fixture
def broker(tmp_path):
    with StanServer(tmp_path, "-jetstream_api") as server:
        yield server


@pytest.fixture
def original(tmp_path):
    """A nats-server with JetStream of its own."""
    with NatsServer(tmp_path, "-js", "-sd", str(tmp_path / "original")) as server:
        yield server.url


@pytest.fixture(params=["broker", "original"])
def url(request):
    """Each test runs with both."""
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, str) else found.url


@asynccontextmanager
async def connected(url, **stream):
    client = await nats.connect(url)
    try:
        js = client.jetstream(timeout=10)
        await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.*"], **stream))
        yield client, js
    finally:
        with contextlib.suppress(nats.errors.Error):
            await client.close()


async def fill(js, count, first=1):
    for number in range(first, first + count):
        await js.publish(f"orders.{number % 3}", b"%d" % number)


async def fetched(sub, count):
    """Messages until so many are there."""
    found = []
    while len(found) < count:
        found += await sub.fetch(count - len(found), timeout=5)
    return found


async def test_a_durable_is_pulled_and_acked(url):
    async with connected(url) as (_, js):
        await fill(js, 10)
        sub = await js.pull_subscribe("orders.*", durable="worker")
        found = await fetched(sub, 10)
        assert [one.data for one in found] == [b"%d" % number for number in range(1, 11)]
        assert [one.subject for one in found[:3]] == ["orders.1", "orders.2", "orders.0"]
        assert [one.metadata.num_pending for one in found] == list(range(9, -1, -1))
        for one in found:
            await one.ack_sync(timeout=5)
        info = await sub.consumer_info()
        assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 0, 10)
        with pytest.raises(NothingCame):
            await sub.fetch(1, timeout=0.5)


async def test_an_unacked_message_comes_again(url):
    async with connected(url) as (_, js):
        await fill(js, 2)
        sub = await js.pull_subscribe("orders.*", durable="worker", config=ConsumerConfig(ack_wait=1))
        one, two = await fetched(sub, 2)
        await one.ack_sync(timeout=5)
        (again,) = await fetched(sub, 1)
        assert (again.data, again.metadata.num_delivered) == (two.data, 2)
        await again.nak()
        (third,) = await fetched(sub, 1)
        assert third.metadata.num_delivered == 3
        await third.term()
        with pytest.raises(NothingCame):
            await sub.fetch(1, timeout=1.5)


async def test_messages_are_pushed_to_a_subscription(url):
    async with connected(url) as (client, js):
        await fill(js, 5)
        sub = await js.subscribe("orders.*", durable="pushed", manual_ack=True)
        for number in range(1, 6):
            one = await sub.next_msg(timeout=5)
            assert one.data == b"%d" % number
            await one.ack()
        await fill(js, 5, 6)
        for number in range(6, 11):
            one = await sub.next_msg(timeout=5)
            assert one.data == b"%d" % number
            await one.ack_sync(timeout=5)
        assert (await js.consumer_info("ORDERS", "pushed")).push_bound
        await sub.unsubscribe()
        await client.flush()


async def test_a_queue_group_shares_what_is_pushed(url):
    async with connected(url) as (_, js):
        got, all_came = [], asyncio.Event()

        async def take(message):
            got.append(message.data)
            await message.ack()
            if len(got) == 20:
                all_came.set()

        members = [await js.subscribe("orders.*", queue="workers", durable="workers", cb=take) for _ in range(2)]
        await fill(js, 20)
        async with asyncio.timeout(10):
            await all_came.wait()
        assert sorted(got, key=int) == [b"%d" % number for number in range(1, 21)]
        for one in members:
            await one.unsubscribe()


async def test_an_ordered_consumer_gets_everything_in_order(url):
    async with connected(url) as (_, js):
        await fill(js, 200)
        sub = await js.subscribe("orders.*", ordered_consumer=True)
        for number in range(1, 201):
            assert (await sub.next_msg(timeout=5)).data == b"%d" % number
        await fill(js, 50, 201)
        for number in range(201, 251):
            assert (await sub.next_msg(timeout=5)).data == b"%d" % number
        await sub.unsubscribe()


async def test_a_filter_and_headers_alone(url):
    async with connected(url) as (_, js):
        await fill(js, 9)
        config = ConsumerConfig(filter_subject="orders.1", headers_only=True, ack_policy=AckPolicy.EXPLICIT)
        sub = await js.pull_subscribe("orders.1", durable="some", config=config)
        found = await fetched(sub, 3)
        assert [(one.subject, one.data, one.headers["Nats-Msg-Size"]) for one in found] == [("orders.1", b"", "1")] * 3


async def test_flow_control_keeps_a_large_backlog_in_order(url):
    async with connected(url) as (_, js):
        for _ in range(300):
            await js.publish("orders.1", b"x" * 50_000)
        sub = await js.subscribe("orders.*", ordered_consumer=True)
        for number in range(1, 301):
            assert (await sub.next_msg(timeout=10)).metadata.sequence.stream == number
        await sub.unsubscribe()


@pytest.mark.parametrize("policy", [DeliverPolicy.ALL, DeliverPolicy.LAST, DeliverPolicy.NEW])
async def test_a_consumer_begins_where_its_policy_says(url, policy):
    async with connected(url) as (_, js):
        await fill(js, 3)
        sub = await js.pull_subscribe("orders.*", durable="worker", config=ConsumerConfig(deliver_policy=policy))
        await fill(js, 1, 4)
        first = {DeliverPolicy.ALL: b"1", DeliverPolicy.LAST: b"3", DeliverPolicy.NEW: b"4"}[policy]
        assert (await fetched(sub, 1))[0].data == first


async def keys_of(bucket):
    """The keys of a bucket that has some: nats-py now and then finds none, if all came before it looked at the consumer."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(nats.js.errors.NoKeysError):
                return sorted(await bucket.keys())


async def test_a_bucket_is_watched(url):
    client = await nats.connect(url)
    try:
        bucket = await client.jetstream(timeout=10).create_key_value(bucket="settings", history=1)
        await bucket.put("colour", b"red")
        await bucket.put("size", b"large")
        await bucket.put("colour", b"blue")
        watcher = await bucket.watchall()
        first, second, end = [await watcher.updates(timeout=5) for _ in range(3)]
        assert {(one.key, one.value) for one in (first, second)} == {("size", b"large"), ("colour", b"blue")}
        assert end is None
        await bucket.put("size", b"small")
        changed = await watcher.updates(timeout=5)
        assert (changed.key, changed.value) == ("size", b"small")
        await watcher.stop()
        assert await keys_of(bucket) == ["colour", "size"]
        await bucket.delete("size")
        assert await keys_of(bucket) == ["colour"]
    finally:
        await client.close()


async def test_a_consumer_survives_restarts_of_the_server(broker):
    async with connected(broker.url) as (_, js):
        await fill(js, 5)
        sub = await js.pull_subscribe("orders.*", durable="worker", config=ConsumerConfig(ack_wait=2))
        found = await fetched(sub, 4)
        for one in found[:3]:
            await one.ack_sync(timeout=5)
    await asyncio.to_thread(broker.kill9)
    await asyncio.to_thread(broker.start)
    async with connected(broker.url) as (_, js):
        sub = await js.pull_subscribe("orders.*", durable="worker")
        found = sorted(await fetched(sub, 2), key=lambda one: one.metadata.sequence.stream)
        assert [(one.data, one.metadata.num_delivered > 1) for one in found] == [(b"4", True), (b"5", False)]
        for one in found:
            await one.ack_sync(timeout=5)
        with pytest.raises(NothingCame):
            await sub.fetch(1, timeout=0.5)


# --- the same question to both ----------------------------------------------------------------------------------------------

QUESTIONS = [
    {"durable_name": "e", "ack_policy": "explicit"},
    {"durable_name": "e", "ack_policy": "all"},
    {"durable_name": "e", "ack_policy": "none"},
    {"durable_name": "e", "ack_policy": "none", "max_ack_pending": 7},
    {"durable_name": "e", "ack_policy": "bogus"},
    {"durable_name": "a.b", "ack_policy": "explicit"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "bogus"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "orders.1"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "a.*"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "dz", "max_batch": 5},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "dd", "max_waiting": 5},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_group": "g"},
    {"durable_name": "e", "ack_policy": "explicit", "flow_control": True},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "a", "flow_control": True},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_subject": "a", "idle_heartbeat": 1},
    {"durable_name": "e", "ack_policy": "explicit", "idle_heartbeat": 10**9},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "by_start_sequence"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "by_start_sequence", "opt_start_seq": 99},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "by_start_time"},
    {
        "durable_name": "e",
        "ack_policy": "explicit",
        "deliver_policy": "by_start_time",
        "opt_start_time": "2020-01-01T00:00:00Z",
    },
    {"durable_name": "e", "ack_policy": "explicit", "opt_start_seq": 3},
    {"durable_name": "e", "ack_policy": "explicit", "opt_start_time": "2020-01-01T00:00:00Z"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "last", "opt_start_seq": 3},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "new", "opt_start_seq": 3},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "new"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "last"},
    {"durable_name": "e", "ack_policy": "explicit", "deliver_policy": "last_per_subject"},
    {"durable_name": "e", "ack_policy": "explicit", "backoff": [1, 2]},
    {"durable_name": "e", "ack_policy": "explicit", "backoff": [10**9, 2 * 10**9], "max_deliver": 1},
    {"durable_name": "e", "ack_policy": "explicit", "max_deliver": -5},
    {"durable_name": "e", "ack_policy": "explicit", "max_deliver": 0},
    {"durable_name": "e", "ack_policy": "explicit", "filter_subject": "orders.1", "filter_subjects": ["orders.0"]},
    {"durable_name": "e", "ack_policy": "explicit", "filter_subjects": ["orders.1", "orders.1"]},
    {"durable_name": "e", "ack_policy": "explicit", "filter_subjects": ["orders.1", "orders.*"]},
    {"durable_name": "e", "ack_policy": "explicit", "filter_subjects": ["orders.1", ""]},
    {"durable_name": "e", "ack_policy": "explicit", "replay_policy": "bogus"},
    {"durable_name": "e", "ack_policy": "explicit", "ack_wait": -1},
    {"durable_name": "e", "ack_policy": "explicit", "max_ack_pending": -7},
    {"durable_name": "e", "ack_policy": "explicit", "max_waiting": -5},
    {"durable_name": "e", "ack_policy": "explicit", "num_replicas": 3},
    {"durable_name": "e", "ack_policy": "explicit", "bogus": 3},
    {"durable_name": "e", "ack_policy": "explicit", "inactive_threshold": -1},
    {"durable_name": "e", "name": "e", "ack_policy": "explicit", "metadata": {"a": "b"}, "description": "what for"},
    {"name": "e", "ack_policy": "explicit", "inactive_threshold": 60 * 10**9},
    {"name": "e", "ack_policy": "explicit"},
]


def same(answer):
    """An answer without what differs from server to server."""
    if "error" in answer:
        found = dict(answer["error"])
        if found["err_code"] == 10025:  # where in the text the mistake is, in the words of a JSON parser
            del found["description"]
        return {"error": found}
    for key in ("created", "ts"):
        answer.pop(key, None)
    answer.get("config", {}).get("metadata", {}).pop("", None)
    config = answer.get("config", {})
    told = {key: value for key, value in config.get("metadata", {}).items() if not key.startswith("_nats.")}
    config.pop("metadata", None)
    if told:
        config["metadata"] = told
    return answer


@asynccontextmanager
async def both(broker, original):
    async with connected(broker.url) as (ours, js), connected(original) as (theirs, their_js):
        await fill(js, 5)
        await fill(their_js, 5)

        async def ask(request, document=None):
            payload = (
                b"" if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
            )
            subject = f"$JS.API.{request}"
            answers = [await one.request(subject, payload, timeout=5) for one in (ours, theirs)]
            return [same(json.loads(answer.data)) for answer in answers]

        yield ask


async def test_both_answer_the_same_about_configurations(broker, original):
    differ = []
    async with both(broker, original) as ask:
        for config in QUESTIONS:
            mine, theirs = await ask("CONSUMER.CREATE.ORDERS.e", {"stream_name": "ORDERS", "config": config})
            if mine != theirs:
                differ.append((config, mine, theirs))
            await ask("CONSUMER.DELETE.ORDERS.e")
    assert not differ, "\n".join(map(str, differ))


async def test_both_answer_the_same_to_other_requests(broker, original):
    config = {"stream_name": "ORDERS", "config": {"durable_name": "e", "name": "e", "ack_policy": "explicit"}}
    changed = {"stream_name": "ORDERS", "config": config["config"] | {"description": "another"}}
    questions = [
        ("CONSUMER.CREATE.ORDERS.e", config),
        ("CONSUMER.CREATE.ORDERS.e", config),
        ("CONSUMER.INFO.ORDERS.e", None),
        ("CONSUMER.INFO.ORDERS.nobody", None),
        ("CONSUMER.INFO.NOWHERE.e", None),
        ("CONSUMER.CREATE.ORDERS.e", changed | {"action": "create"}),
        ("CONSUMER.CREATE.ORDERS.e", changed | {"action": "update"}),
        ("CONSUMER.CREATE.ORDERS.f", {"action": "update", "stream_name": "ORDERS", "config": {"durable_name": "f"}}),
        ("CONSUMER.CREATE.ORDERS.e", {"stream_name": "ORDERS", "config": {"durable_name": "e", "ack_policy": "all"}}),
        ("CONSUMER.CREATE.ORDERS.e", {"stream_name": "OTHER", "config": {"durable_name": "e"}}),
        ("CONSUMER.DURABLE.CREATE.ORDERS.e", {"stream_name": "ORDERS", "config": {"ack_policy": "explicit"}}),
        ("CONSUMER.DURABLE.CREATE.ORDERS.e", {"stream_name": "ORDERS", "config": {"durable_name": "f"}}),
        ("CONSUMER.CREATE.ORDERS", {"stream_name": "ORDERS", "config": {"durable_name": "f"}}),
        (
            "CONSUMER.CREATE.ORDERS.g.orders.0",
            {"stream_name": "ORDERS", "config": {"name": "g", "filter_subject": "x"}},
        ),
        ("CONSUMER.NAMES.ORDERS", None),
        ("CONSUMER.NAMES.ORDERS", {"offset": 5}),
        ("CONSUMER.LIST.ORDERS", None),
        ("CONSUMER.NAMES.NOWHERE", None),
        ("CONSUMER.LIST.NOWHERE", None),
        ("CONSUMER.PAUSE.ORDERS.nobody", {"pause_until": "2030-01-01T00:00:00Z"}),
        ("CONSUMER.PAUSE.ORDERS.e", None),
        ("CONSUMER.CREATE.ORDERS.e", b"{no json"),
        ("CONSUMER.DELETE.ORDERS.e", None),
        ("CONSUMER.DELETE.ORDERS.e", None),
    ]
    differ = []
    async with both(broker, original) as ask:
        for request, document in questions:
            mine, theirs = await ask(request, document)
            for one in (mine, theirs):
                for each in one.get("consumers") or []:
                    if isinstance(each, dict):
                        same(each)
            if mine != theirs:
                differ.append((request, mine, theirs))
    assert not differ, "\n".join(map(str, differ))


async def pulled(client, consumer, payload, until):
    """What comes to one request for messages, up to the first status or so many messages."""
    inbox = client.new_inbox()
    sub = await client.subscribe(inbox)
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.ORDERS.{consumer}", payload, reply=inbox)
    found = []
    while len(found) < until:
        try:
            message = await sub.next_msg(timeout=3)
        except NothingCame:
            break
        numbers = message.reply.split(".")
        headers = {str(getattr(key, "value", key)): value for key, value in (message.headers or {}).items()}
        place = [int(one) for one in (*numbers[4:7], numbers[8])] if message.reply else []
        found.append((message.subject if message.reply else "", place, headers, message.data))
        if headers.get("Status", "100") != "100":
            break
    await sub.unsubscribe()
    return found


PULLS = [
    ("a", b"", 1),
    ("a", b'{"batch": 2, "no_wait": true}', 3),
    ("a", b'{"batch": 9, "no_wait": true}', 9),
    ("a", b'{"batch": 9, "no_wait": true}', 9),
    ("a", b'{"batch": 5, "expires": 300000000}', 5),
    ("a", b'{"batch": 5, "expires": 500000000, "idle_heartbeat": 200000000}', 5),
    ("a", b'{"batch": 5, "expires": 300000000, "no_wait": true}', 5),
    ("a", b'{"batch": 5, "expires": 500000000, "idle_heartbeat": 400000000}', 5),
    ("a", b'{"batch": 1, "expires": -5}', 5),
    ("limited", b'{"batch": 3}', 5),
    ("limited", b'{"batch": 1, "max_bytes": 60}', 5),
    ("limited", b'{"batch": 1, "expires": 2000000000}', 5),
    ("limited", b'{"batch": 2, "no_wait": true}', 5),
    ("pushes", b'{"batch": 1}', 5),
    ("bytes", b'{"batch": 5, "max_bytes": 10, "no_wait": true}', 5),
    ("bytes", b'{"batch": 5, "max_bytes": 100000, "no_wait": true}', 9),
    ("sized", b'{"batch": 9, "no_wait": true}', 9),
    ("nobody", b'{"batch": 1}', 5),
]


async def test_both_answer_the_same_to_requests_for_messages(broker, original):
    consumers = {
        "a": {},
        "limited": {"max_batch": 2, "max_bytes": 50, "max_expires": 10**9},
        "pushes": {"deliver_subject": "to.nobody"},
        "bytes": {},
        "sized": {"headers_only": True, "filter_subject": "orders.1"},
    }
    told = []
    for url in (broker.url, original):
        async with connected(url) as (client, js):
            await fill(js, 5)
            for name, config in consumers.items():
                asked = {"durable_name": name, "name": name, "ack_policy": "explicit"} | config
                document = json.dumps({"stream_name": "ORDERS", "config": asked}).encode()
                answer = await client.request(f"$JS.API.CONSUMER.CREATE.ORDERS.{name}", document, timeout=5)
                assert b"error" not in answer.data
            told.append([await pulled(client, *one) for one in PULLS])
    for question, own, theirs in zip(PULLS, *told, strict=True):
        for one in (*own, *theirs):
            one[2].pop("Nats-Subject", None)
            if one[2].get("Status") == "503":
                one[2].pop("Description", None)
        assert own == theirs, question


# --- clusters, restarts of NATS, and STAN's clients beside --------------------------------------------------------------------


async def test_consumers_outlive_the_nodes_that_lead_them(tmp_path):
    with StanCluster(tmp_path, "-jetstream_api") as cluster:
        client = await nats.connect([node.url for node in cluster.nodes.values()])
        js = client.jetstream(timeout=10)
        await asked(lambda: js.add_stream(name="ORDERS", subjects=["orders.*"], num_replicas=3))
        got, acked = {}, set()
        config = ConsumerConfig(ack_wait=2, max_ack_pending=20)
        sub = await asked(lambda: js.pull_subscribe("orders.*", durable="worker", config=config))

        async def work(upto):
            async with asyncio.timeout(90):
                while len(acked) < upto:
                    found = []
                    with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
                        found = await sub.fetch(10, timeout=1)
                    for one in found:
                        sequence, delivered = one.metadata.sequence.stream, one.metadata.num_delivered
                        assert sequence not in acked, "an ack that was answered was forgotten"
                        assert sequence not in got or delivered > 1, "a repeat says that it is one"
                        got[sequence] = one.data
                        with contextlib.suppress(nats.errors.Error):
                            await one.ack_sync(timeout=2)
                            acked.add(sequence)

        sent = 0
        for victim in ("n1", "n2", "n3"):
            for _ in range(20):
                sent += 1
                value, named = b"%d" % sent, {"Nats-Msg-Id": str(sent)}
                await asked(lambda value=value, named=named: js.publish("orders.x", value, headers=named, timeout=2))
            cluster.nodes[victim].kill9()
            await work(sent)
            await asyncio.to_thread(cluster.nodes[victim].start)
        assert [got[number] for number in range(1, sent + 1)] == [b"%d" % number for number in range(1, sent + 1)]
        info = await asked(lambda: js.consumer_info("ORDERS", "worker"))
        assert (info.num_ack_pending, info.num_pending) == (0, 0)
        await client.close()


async def test_deliveries_go_on_when_nats_server_is_started_again(broker):
    async with connected(broker.url) as (client, js):
        await fill(js, 3)
        sub = await js.pull_subscribe("orders.*", durable="worker", config=ConsumerConfig(ack_wait=2))
        for one in await fetched(sub, 3):
            await one.ack_sync(timeout=5)
        for child in Process(broker.pid).children(recursive=True):
            if "nats-server" in child.name():
                child.kill()
        await asked(lambda: fill(js, 2, 4))

        async def next_one():
            (one,) = await sub.fetch(1, timeout=1)
            return one

        found = [await asked(next_one) for _ in range(2)]
        assert {one.data for one in found} == {b"4", b"5"}
        assert client.is_connected


async def test_a_consumer_and_a_durable_share_the_messages_of_a_channel(broker):
    stan = await stan_client.connect(broker.url, client_id="me", cluster_id=broker.cluster_id)
    await stan.publish("shared", b"from stan")
    client = await nats.connect(broker.url)
    js = client.jetstream(timeout=10)
    await js.add_stream(name="SHARED", subjects=["shared"])
    await js.publish("shared", b"from jetstream")
    sub = await js.pull_subscribe("shared", durable="worker")
    found = await fetched(sub, 2)
    assert [(one.subject, one.data) for one in found] == [("shared", b"from stan"), ("shared", b"from jetstream")]
    shown = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "stan.cli.main", "durable", "list", "-s", broker.url, "-c", broker.cluster_id],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "$JS/worker" in shown.stdout
    await client.close()
    await stan.close()


# --- where NATS is another one, or wants a password ---------------------------------------------------------------------------


@contextlib.contextmanager
def nats_with(tmp_path, text):
    """A nats-server with that configuration, and the port of its clients."""
    port = free_port()
    file = tmp_path / "nats.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\n{text}')
    process = subprocess.Popen([find_binary(), "-c", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: accepts(port))
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def consumes(url):
    """Whether a consumer's message comes."""
    client = await nats.connect(url)
    try:
        js = client.jetstream(timeout=10)
        await js.add_stream(name="ORDERS", subjects=["orders.*"])
        await fill(js, 1)
        sub = await js.pull_subscribe("orders.*", durable="worker")
        (one,) = await fetched(sub, 1)
        await one.ack_sync(timeout=5)
        return one.data == b"1"
    finally:
        await client.close()


async def test_a_nats_outside_is_reached_at_its_leafnode_listener(tmp_path):
    leaf = free_port()
    listener = f'leafnodes {{ listen: "127.0.0.1:{leaf}", authorization {{ user: them, password: theirs }} }}'
    with nats_with(tmp_path, listener) as url:
        flags = ("-jetstream_api", "-jetstream_leaf", f"them:theirs@127.0.0.1:{leaf}")
        with StanServer(tmp_path, *flags, nats_url=url):
            assert await consumes(url)


async def test_without_the_address_of_that_listener_the_log_says_what_is_missing(tmp_path):
    with nats_with(tmp_path, "") as url, StanServer(tmp_path, "-jetstream_api", nats_url=url) as server:
        assert "jetstream_leaf is not set: consumers of JetStream get no messages" in server.log()


async def test_an_embedded_nats_that_wants_a_password_takes_the_leafnode_connection(tmp_path):
    with StanServer(tmp_path, "-jetstream_api", "-user", "me", "-pass", "secret") as server:
        assert await consumes(server.url.replace("//", "//me:secret@"))


async def test_a_consumer_goes_on_at_the_position_that_a_backup_has(tmp_path):
    def stan(url, *arguments):
        command = [sys.executable, "-m", "stan.cli.main", *arguments, "-s", url, "-c", "test-cluster"]
        subprocess.run(command, capture_output=True, check=True)

    backup = str(tmp_path / "backup")
    for life in ("before", "after"):
        (tmp_path / life).mkdir()
        with StanServer(tmp_path / life, "-jetstream_api") as server:
            if life == "after":
                await asyncio.to_thread(stan, server.url, "restore", backup, "--yes")
            async with connected(server.url) as (_, js):
                if life == "before":
                    await fill(js, 5)
                sub = await js.pull_subscribe("orders.*", durable="worker")
                found = await fetched(sub, 3 if life == "before" else 2)
                for one in found:
                    await one.ack_sync(timeout=5)
            if life == "before":
                await asyncio.to_thread(stan, server.url, "backup", backup)

    assert [(one.data, one.metadata.num_delivered) for one in found] == [(b"4", 1), (b"5", 1)]


async def test_a_backup_has_streams_and_consumers(tmp_path):
    """A bucket and a consumer with pending messages come into a new server, and go on: nobody makes them again."""

    def stan(url, *arguments):
        command = [sys.executable, "-m", "stan.cli.main", *arguments, "-s", url, "-c", "test-cluster", "--json"]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    backup = str(tmp_path / "backup")
    for life in ("before", "off", "after"):
        (tmp_path / life).mkdir()
    with StanServer(tmp_path / "before", "-jetstream_api") as server:
        async with connected(server.url, max_msgs=1000, metadata={"of": "shop"}) as (_, js):
            await fill(js, 6)
            settings = ConsumerConfig(ack_wait=60, max_deliver=7, metadata={"a": "b"}, filter_subject="orders.*")
            sub = await js.pull_subscribe("orders.*", durable="worker", config=settings)
            pending = await fetched(sub, 4)
            await pending[0].ack_sync(timeout=5)
            bucket = await js.create_key_value(bucket="cfg")
            for value in (b"1", b"2"):
                await bucket.put("a", value)
            publisher = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
            await publisher.publish("plain", b"before its stream")
            await publisher.close()
            await js.add_stream(name="PLAIN", subjects=["plain"])
            saved = [(await js.stream_info(one)).config for one in ("ORDERS", "KV_cfg")]
            worker = (await js.consumer_info("ORDERS", "worker")).config
            await asyncio.to_thread(stan, server.url, "backup", backup)
    with StanServer(tmp_path / "off") as server:
        told = json.loads(await asyncio.to_thread(stan, server.url, "restore", backup, "--yes"))
        assert told["without_stream"] == ["KV_cfg", "ORDERS", "plain"]
    with StanServer(tmp_path / "after", "-jetstream_api") as server:
        for _ in range(2):  # again changes nothing
            told = json.loads(await asyncio.to_thread(stan, server.url, "restore", backup, "--yes"))
            assert told["without_stream"] == []
        client = await nats.connect(server.url)
        js = client.jetstream(timeout=10)
        assert [(await js.stream_info(one)).config for one in ("ORDERS", "KV_cfg")] == saved
        assert (await js.consumer_info("ORDERS", "worker")).config == worker
        bucket = await js.key_value("cfg")
        assert (await bucket.get("a")).value == b"2"
        assert await bucket.update("a", b"3", last=2) == 3
        sub = await js.pull_subscribe_bind("worker", "ORDERS")
        found = await fetched(sub, 5)
        assert sorted((one.metadata.sequence.stream, one.metadata.num_delivered) for one in found) == [
            (2, 2), (3, 2), (4, 2), (5, 1), (6, 1)
        ]  # fmt: skip
        await fill(js, 1, first=7)
        assert (await fetched(sub, 1))[0].metadata.sequence.stream == 7
        await js.delete_stream("ORDERS")  # which had made its channel
        await js.delete_stream("PLAIN")  # which had not
        left = await asyncio.to_thread(stan, server.url, "channel", "list")
        assert ("ORDERS" in left, "plain" in left) == (False, True)
        await client.close()
    (tmp_path / "cluster").mkdir()
    with StanCluster(tmp_path / "cluster", "-jetstream_api") as cluster:
        url = cluster.nodes["n1"].url
        told = json.loads(await asyncio.to_thread(stan, url, "restore", backup, "--yes"))
        assert told["without_stream"] == []
        client = await nats.connect(url)
        js = client.jetstream(timeout=10)
        assert (await js.stream_info("ORDERS")).config.metadata == {"of": "shop"}
        assert (await (await js.key_value("cfg")).get("a")).value == b"2"
        sub = await js.pull_subscribe_bind("worker", "ORDERS")
        assert len(await asked(lambda: fetched(sub, 5))) == 5
        await client.close()


async def test_a_bucket_of_which_many_values_were_replaced_is_restored(tmp_path):
    """Each replaced value is a gap: there are more than messages that can be deleted one by one."""
    values = 11_000
    with StanServer(tmp_path, "-jetstream_api") as server:
        client = await nats.connect(server.url)
        js = client.jetstream(timeout=10)
        bucket = await js.create_key_value(bucket="cfg")
        async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
            admin = direct.admin
            await admin.restore_channel("KV_cfg", "again", 2)
            for first in range(0, values, 1000):
                rows = [ImportRow(b"%d" % at, key=b"$KV.cfg.%d" % at) for at in range(first, first + 1000)]
                runs = [RestoredRun(2 * at + 2, 1, 1_700_000_000_000_000_000) for at in range(first, first + 1000)]
                await admin.restore_rows("KV_cfg", "again", runs, packed_rows(rows))
            await admin.restore_end("KV_cfg", "again")
        for _ in range(2):
            bucket = await asked(lambda: js.key_value("cfg"))
            for at in (0, 7, values - 1):
                entry = await asked(partial(bucket.get, str(at)))
                assert (entry.value, entry.revision) == (b"%d" % at, 2 * at + 2)
            async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
                answers = direct.batches.read_range("KV_cfg", 2, 2 * values)
                found = [one.sequence async for answer in answers for one in answer.messages()]
            assert found == list(range(2, 2 * values + 1, 2))
            state = (await js.stream_info("KV_cfg")).state
            assert (state.messages, state.last_seq) == (values, 2 * values)
            server.kill9()
            server.start()
        assert await asked(partial(bucket.put, "7", b"new")) == 2 * values + 1
        await client.close()
