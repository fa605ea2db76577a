"""Channels shared among servers: which are whose, who waits for a client, lists that are told and read (STAN-SPEC 11)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.frames import Frame
from stan_protocol.patterns import matches
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ChannelOverride, ClusterConfig, Config, StoreLimits
from stan.core.base.partition import Partition, conflict
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.subscriptions import ACK_SID, PUB_SID
from stan.edge.serving.partitioning import Partitioning, decode_list, encode_lists
from stan.errors import StartError
from tests.kit.core_harness import CoreHarness

INVALID_PUBLISH = "stan: invalid publish request"
TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


def config(*names, **more):
    limits_ = StoreLimits(per_channel={name: ChannelOverride() for name in names})
    return Config(partitioning=True, limits=limits_, **more)


@pytest.fixture
def harness():
    return CoreHarness(config("foo", "mine.*"))


# --- whose is it ------------------------------------------------------------------------------------------------------


def test_own_channels_are_served_and_others_get_no_answer(harness):
    harness.connect()
    assert harness.publish("foo", b"1") == [""]
    assert harness.publish("mine.x", b"1") == [""]
    assert harness.publish("bar", b"1") == []
    assert harness.subscribe("foo", "a").ack_inbox
    assert harness.subscribe("bar", "b") is None
    assert harness.leave("bar", b"x") is None
    assert set(harness.state.channels) == {b"foo", b"mine.x"}


def test_subscription_with_a_wildcard_is_still_invalid(harness):
    harness.connect()
    assert harness.subscribe("mine.*").error == b"stan: invalid subject"


def test_every_server_lets_clients_in_and_out(harness):
    assert not harness.connect().error
    assert not harness.close().error


@given(st.lists(PATTERNS, min_size=1, max_size=4, unique=True), NAMES)
def test_cover_covers_all_channels(patterns, name):
    partition = Partition(patterns)
    if partition[name.encode()]:
        assert matches(partition.cover(), name), (patterns, partition.cover())


@pytest.mark.parametrize(
    ("patterns", "cover"),
    [
        (["foo"], "foo"),
        (["foo", "bar"], "*"),
        (["a.b", "a.c"], "a.*"),
        (["a", "a.b"], ">"),
        (["a.b", "a.b.c"], "a.>"),
        (["a.b.c", "a.>"], "a.>"),
        (["foo.*"], "foo.*"),
    ],
)
def test_cover_is_narrow(patterns, cover):
    assert Partition(patterns).cover() == cover


def test_gateway_hears_publishes_of_its_channels_only():
    harness = CoreHarness(config("mine.a", "mine.b"))
    gateway = Gateway(harness.broker, "", lambda *_: None)
    assert gateway.subscriptions.subjects[PUB_SID] == "_STAN.pub.test-cluster.mine.*"
    assert gateway.scope.channel_filter is harness.broker.view.partition
    assert ACK_SID in gateway.subscriptions.subjects


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        (["foo"], ["bar"], None),
        (["foo"], ["bar", "foo"], "foo"),
        (["foo.*"], ["foo.bar"], "foo.bar"),
        (["foo.bar"], ["x", "foo.>"], "foo.>"),
        (["foo.*"], ["*.bar"], None),
        ([], ["a"], None),
    ],
)
def test_conflicts(mine, theirs, found):
    assert conflict(mine, theirs) == found


# --- clients that come later ------------------------------------------------------------------------------------------


def test_publish_of_a_client_that_is_let_in_meanwhile_is_taken(harness):
    assert harness.publish("foo", b"1", b"2") == []
    harness.pass_time(0.5)
    harness.connect()
    harness.turn()
    acks = [wire.PubAck.FromString(said.payload).error for said in harness.hear("_INBOX.acks")]
    assert acks == [b"", b""]


def test_publish_of_a_stranger_is_refused_after_a_second_and_the_next_at_once(harness):
    assert harness.publish("foo", b"1") == []
    harness.pass_time(1.01)
    assert [wire.PubAck.FromString(said.payload).error.decode() for said in harness.hear("_INBOX.acks")] == [
        INVALID_PUBLISH
    ]
    assert harness.publish("foo", b"2") == [INVALID_PUBLISH]
    harness.connect()
    assert harness.publish("foo", b"3") == [""]


def test_subscription_waits_for_its_client(harness):
    assert harness.subscribe("foo", "a") is None
    harness.connect()
    harness.turn()
    assert wire.SubscriptionResponse.FromString(harness.hear("reply.1")[0].payload).ack_inbox
    assert harness.subscribe("foo", "b", client_id="other") is None
    harness.pass_time(1.01)
    refused = wire.SubscriptionResponse.FromString(harness.hear("reply.3")[0].payload)
    assert refused.error == b"stan: invalid subscription request"
    assert harness.subscribe("foo", "b", client_id="other").error == b"stan: invalid subscription request"


def test_strangers_are_remembered_within_bounds(harness):
    for number in range(limits.PARTITION_STRANGERS_MAX + 50):
        harness.publish("foo", b"x", client_id=f"c{number}")
    harness.pass_time(1.1)
    failed = harness.broker.parts.read_index._pending_clients._failed
    assert len(failed) <= limits.PARTITION_STRANGERS_MAX
    assert len(harness.hear("_INBOX.acks")) == limits.PARTITION_STRANGERS_MAX + 50


# --- settings ---------------------------------------------------------------------------------------------------------


def test_partitioning_needs_channels():
    assert Config(partitioning=True).validate() == ["stan: no configured channel"]
    assert config("foo").validate() == []
    assert [text for text in config("foo..bar").validate() if "channel name" in text]


def test_partitioning_in_a_cluster_is_refused():
    found = config("foo", cluster=ClusterConfig(node_id="a", peers=("b",))).validate()
    assert "stan: channels partitioning in clustering mode is not supported" in found


# --- lists ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=20), max_size=30), st.integers(min_value=90, max_value=400))
def test_lists_are_read_as_they_were_written(names, room):
    lists = encode_lists(tuple(names), room)
    assert all(len(data) <= room for data in lists)
    assert [name for data in lists for name in decode_list(data)] == names


def test_name_that_fits_into_no_message_ends_the_start():
    assert encode_lists(("a", "b"), 3) == [b"\x01\x00a", b"\x01\x00b"]
    with pytest.raises(StartError, match="message payload too small to send channels list"):
        encode_lists(("abc",), 4)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_list_or_none(data):
    names = decode_list(data)
    assert names is None or b"".join(encode_lists(tuple(names), 10**6)) == data


class Wire:
    """A gateway that writes down what is said."""

    max_payload = 1 << 20

    def __init__(self):
        self.handlers, self.written, self.connection, self.on_info = {}, [], self, None

    def subscribe(self, subject, heard):
        self.handlers[subject] = heard

    def write(self, data):
        self.written.append(data)


def partitioning(*patterns):
    gateway, notes = Wire(), []
    made = Partitioning(gateway, "c", "ME", patterns, lambda level, text: notes.append((level, text)), notes.append)
    return made, gateway, notes


def request(server="OTHER", data=b"\x03\x00foo", kind=4, reply=b"r"):
    payload = wire.CtrlMsg(msg_type=kind, server_id=server.encode(), data=data).SerializeToString()
    return Frame(5, b"_STAN.part.c", reply, b"", payload)


async def test_request_is_answered_with_the_channel_in_conflict():
    _, gateway, _ = partitioning("foo", "x.>")
    ask = gateway.handlers["_STAN.part.c"]
    ask(request())
    ask(request(data=b"\x03\x00bar"))
    told = [wire.CtrlMsg.FromString(data.split(b"\r\n", 1)[1][:-2]) for data in gateway.written]
    assert [(one.msg_type, one.server_id, one.data) for one in told] == [(4, b"ME", b"foo"), (4, b"ME", b"")]


@pytest.mark.parametrize(
    "frame",
    [
        request(server="ME"),
        request(reply=b""),
        request(data=b""),
        request(data=b"\x09\x00foo"),
        request(kind=3),
        request(server=""),
        Frame(5, b"_STAN.part.c", b"r", b"", b"\xff\xff"),
        Frame(5, b"_STAN.part.c", b"r", b"", b""),
    ],
)
async def test_what_is_no_request_of_another_server_gets_no_reply(frame):
    _, gateway, _ = partitioning("foo")
    gateway.handlers["_STAN.part.c"](frame)
    assert gateway.written == []


async def test_conflict_in_a_reply_ends_the_start(monkeypatch):
    monkeypatch.setattr(limits, "PARTITION_REPLY_TIMEOUT", SECOND // 100)
    made, gateway, _ = partitioning("foo")
    checking = asyncio.ensure_future(made.check())
    await asyncio.sleep(0)
    gateway.handlers["_INBOX.ME-part"](request(data=b""))
    gateway.handlers["_INBOX.ME-part"](request(data=b"foo"))
    with pytest.raises(StartError, match='channel "foo" causes conflict with channels on server "OTHER"'):
        await checking
    await made.check()  # what was said then does not count now


async def test_servers_that_may_have_joined_are_asked_more_than_once(monkeypatch):
    """The routes between nats-servers may have gone again when the first question is asked."""
    monkeypatch.setattr(limits, "PARTITION_CHECK_DELAY", SECOND // 1000)
    monkeypatch.setattr(limits, "PARTITION_REPLY_TIMEOUT", SECOND // 5)
    _, gateway, ended = partitioning("foo")
    gateway.on_info({"connect_urls": ["127.0.0.1:1"]})
    heard = 1
    async with asyncio.timeout(20):
        while not ended:
            if len(gateway.written) > heard:
                heard = len(gateway.written)
                gateway.handlers["_INBOX.ME-part"](request(data=b"foo"))
            await asyncio.sleep(0.001)
    assert heard == 2
    assert 'Partitioning error: channel "foo" causes conflict' in str(ended[0])


async def test_news_begin_the_questions_anew_and_they_end(monkeypatch):
    monkeypatch.setattr(limits, "PARTITION_CHECK_DELAY", SECOND // 1000)
    monkeypatch.setattr(limits, "PARTITION_REPLY_TIMEOUT", SECOND // 1000)
    made, gateway, ended = partitioning("foo")
    for urls in (["a"], ["a", "b"], ["a", "b"]):
        gateway.on_info({"connect_urls": urls})
    async with asyncio.timeout(20):
        while made._checking is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert len(gateway.written) == limits.PARTITION_CHECKS
    gateway.on_info({"connect_urls": ["c"]})
    made.stop()
    assert not ended
