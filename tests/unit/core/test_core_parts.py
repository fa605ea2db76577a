"""Channels with parts: the state machine, the requests, and where what is published to them is stored."""

import json
from dataclasses import replace

import pytest
from stan_protocol import refusals
from stan_protocol.channels import part_name
from stan_protocol.parted import part_of
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as extension
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import (
    CHANNEL_EXISTS,
    DOUBLED_ALREADY,
    HAS_NO_PARTS,
    HAS_OTHER_PARTS,
    INVALID_KEY_PATH,
    NO_PARTS_POSSIBLE,
    NOT_SO_MANY_PARTS,
)
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ChannelLimits, Config, StoreLimits
from stan.core.base.faults import Faults
from stan.core.boundary.loading import restored
from stan.core.metadata.meta import MetaMachine
from stan.core.metadata.parted import NOT_THAT_MANY_PARTS
from stan.core.publishing.part_routing import PartRouting
from stan.invariant import InvariantError
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node, pub_frame

ADMIN = "_STAN.x.test-cluster.admin"
GROUPS = 3
MANY = replace(CLUSTERED, store=replace(CLUSTERED.store, raft_groups=GROUPS))
KEYS = [b"key %d" % number for number in range(40)]


@pytest.fixture
def node():
    made = Node(config=MANY)
    made.feed_client()
    made.feed_meta(create_parted=pb.CreateParted(name=b"orders", groups=[1, 2, 3, 1]))
    return made


def create(harness, channel=b"orders", parts=4, key=b""):
    request = admin.CreatePartsRequest(version=1, channel=channel, parts=parts, key=key)
    answer = harness.ask(f"{ADMIN}.create_parts", request, admin.ChangeResponse)
    return answer and (answer.error.decode(), answer.changed)


def delete(harness, channel=b"orders"):
    request = admin.DeletePartsRequest(version=1, channel=channel)
    answer = harness.ask(f"{ADMIN}.delete_parts", request, admin.ChangeResponse)
    harness.turn()
    return answer.error.decode(), answer.changed


def listed(harness, **asked):
    answer = harness.ask("_STAN.x.test-cluster.parts", admin.PartsRequest(**asked), admin.PartsResponse)
    return [(one.channel, one.parts, one.key, one.deleting) for one in answer.channels], answer.more


def test_each_message_is_stored_in_the_part_of_its_key(harness) -> None:
    assert create(harness) == ("", 4)
    assert create(harness) == ("", 0)
    data = [b"%b: %d" % (key, number) for number in range(3) for key in KEYS]
    assert harness.publish("orders", *data, key_of=lambda one: one.partition(b":")[0]) == [""] * len(data)
    for number in range(4):
        wanted = [one for one in data if part_of(one.partition(b":")[0], 4) == number]
        assert wanted
        assert harness.stored(f"orders.~{number}") == wanted, "in the order in which they came"
    assert b"orders" not in harness.state.channels


def test_who_gives_no_key_publishes_to_the_part_of_his_client_id(harness) -> None:
    create(harness)
    harness.connect("you")
    harness.publish("orders", b"1", b"2")
    harness.publish("orders", b"3", client_id="you")
    assert harness.stored(f"orders.~{part_of(b'me', 4)}")[:2] == [b"1", b"2"]
    assert harness.stored(f"orders.~{part_of(b'you', 4)}")[-1:] == [b"3"]


def test_the_key_is_read_from_json_where_it_is_told(harness) -> None:
    create(harness, key=b"$.customer.id")
    documents = [{"customer": {"id": f"c{n}"}, "n": n} for n in range(20)]
    odd = [
        b"[]",
        b"{",
        b'{"customer": 3}',
        b'{"customer": {"id": null}}',
        b'{"customer": {"id": true}}',
        b'{"a":' * 50_000,
        b'{"customer": {"id": "%b"}}' % (b"x" * (limits.KEY_BYTES_MAX + 1)),
        b'{"customer": {"id": "c1"}, "more": "%b"}' % (b"x" * limits.KEY_DATA_BYTES_MAX),
    ]
    harness.publish("orders", *(json.dumps(one).encode() for one in documents), b'{"customer": {"id": 17}}', *odd)
    stored = {number: harness.stored(f"orders.~{number}") for number in range(4)}
    for one in documents:
        assert json.dumps(one).encode() in stored[part_of(one["customer"]["id"].encode(), 4)]
    assert b'{"customer": {"id": 17}}' in stored[part_of(b"17", 4)]
    assert [one for one in stored[part_of(b"me", 4)] if one in odd] == odd, "by the client id"


def test_a_key_of_the_message_counts_more_than_its_data(harness) -> None:
    create(harness, key=b"$.id")
    key = next(key for key in KEYS if part_of(key, 4) != part_of(b"x", 4))
    harness.publish("orders", b'{"id": "x"}', key_of=lambda _data: key)
    assert harness.stored(f"orders.~{part_of(key, 4)}") == [b'{"id": "x"}']


def test_what_is_published_to_a_part_belongs_there(harness) -> None:
    create(harness)
    number = part_of(b"me", 4)
    other = f"orders.~{(number + 1) % 4}"
    assert harness.publish(f"orders.~{number}", b"x") == [""]
    assert harness.publish(other, b"x") == [refusals.WRONG_PART.format(f'"{other}"', '"orders"')]
    assert harness.stored(other) == []


def test_a_subscription_of_the_whole_is_told_the_parts(harness) -> None:
    create(harness)
    told = refusals.HAS_PARTS.format('"orders.~0"', '"orders.~3"')
    assert harness.subscribe("orders").error.decode() == told
    assert harness.subscribe("orders", durable="d").error.decode() == told
    request = admin.CreateChannelRequest(version=1, channel=b"orders")
    answer = harness.ask(f"{ADMIN}.create_channel", request, admin.ChangeResponse)
    assert (answer.error.decode(), answer.retry) == (told, False)
    assert not harness.subscribe("orders.~2", durable="d").error


def test_operators_are_told_which_channel_is_a_part_of_which(harness) -> None:
    create(harness, parts=2)
    harness.publish("plain", b"x")
    harness.subscribe("orders.~1", durable="ledger")
    harness.publish("orders", *(b"%d" % n for n in range(20)), key_of=lambda data: data)
    last = [len(harness.stored(f"orders.~{number}")) for number in range(2)]

    def parts_told():
        request = admin.ChannelsRequest(version=1)
        answer = harness.ask(f"{ADMIN}.channels", request, admin.ChannelsResponse)
        return {one.name: one.part_of for one in answer.channels if one.HasField("part_of")}

    assert parts_told() == {b"orders.~%d" % n: admin.PartOf(channel=b"orders", number=n, parts=2) for n in range(2)}
    asked = admin.SubscriptionsRequest(version=1)
    (cursor,) = harness.ask(f"{ADMIN}.subscriptions", asked, admin.SubscriptionsResponse).cursors
    assert cursor.part_of == admin.PartOf(channel=b"orders", number=1, parts=2)
    assert double(harness, parts=2)[0] == ""
    harness.pass_time(10)
    found = parts_told()
    assert [found[b"orders.~%d" % n].before for n in range(4)] == [*last, 0, 0]
    assert {(one.parts, one.doubling, one.closed) for one in found.values()} == {(4, 0, False)}


def test_operators_are_told_since_when_parts_are_doubled_and_which_are_closed(node) -> None:
    node.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=[1, 2, 3, 1], at=17))
    doubling = node.state.parted[b"orders"]
    node.feed_meta(part_closed=pb.PartClosed(name=b"orders", doubling=doubling, part=1, last=3))
    parted = node.follower(0).channels.parted
    told = [parted.part_of(b"orders.~%d" % number) for number in range(4)]
    assert [(one.doubling, one.closed) for one in told] == [(17, number == 1) for number in range(4)]
    node.feed_meta(doubling_ended=pb.DoublingEnded(name=b"orders", doubling=doubling))
    parted = node.follower(0).channels.parted
    assert parted.part_of(b"orders.~1") == admin.PartOf(channel=b"orders", number=1, parts=4)
    assert parted.part_of(b"orders") is None


def test_names_of_parts_belong_to_the_channel_with_parts(harness) -> None:
    create(harness)
    reserved = refusals.NAME_OF_PART.format('"orders"')
    assert harness.publish("orders.~4", b"x") == [reserved]
    assert harness.publish("Orders.~9", b"x") == [reserved]
    assert harness.publish("ORDERS", b"x") == [refusals.case_conflict("ORDERS", "orders")]
    assert harness.publish("orders.new", b"x") == [""]
    assert harness.publish("other.~4", b"x") == [""]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"parts": 1}, NOT_THAT_MANY_PARTS),
        ({"parts": limits.PARTS_MAX + 1}, NOT_THAT_MANY_PARTS),
        ({"parts": 1 << 31}, NOT_THAT_MANY_PARTS),
        ({"channel": b""}, NO_PARTS_POSSIBLE),
        ({"channel": b"a.*"}, NO_PARTS_POSSIBLE),
        ({"channel": b"a.~3"}, NO_PARTS_POSSIBLE),
        ({"channel": b"x" * (limits.CHANNEL_NAME_BYTES_MAX - 3)}, NO_PARTS_POSSIBLE),
        ({"key": b"customer"}, INVALID_KEY_PATH),
        ({"key": b"$"}, INVALID_KEY_PATH),
        ({"key": b"$.a[0]"}, INVALID_KEY_PATH),
        ({"key": b"$.\xff"}, INVALID_KEY_PATH),
        ({"key": b"$" + b".a" * (limits.KEY_PATH_NAMES_MAX + 1)}, INVALID_KEY_PATH),
        ({"channel": b"foo"}, CHANNEL_EXISTS.format('"foo"')),
        ({"channel": b"FOO"}, CHANNEL_EXISTS.format('"foo"')),
        ({"channel": b"bar"}, CHANNEL_EXISTS.format('"bar.~1"')),
        ({"channel": b"HAS"}, CHANNEL_EXISTS.format('"has"')),
        ({"channel": b"has", "parts": 3}, HAS_OTHER_PARTS.format('"has"', 2)),
        ({"channel": b"has", "parts": 2, "key": b"$.a"}, HAS_OTHER_PARTS.format('"has"', 2)),
    ],
)
def test_what_cannot_be_made_is_refused_and_nothing_is_made(harness, asked, error) -> None:
    for name in ("foo", "bar.~1"):
        harness.publish(name, b"x")
    assert create(harness, b"has", 2) == ("", 2)
    before = listed(harness), sorted(harness.state.channels)
    assert create(harness, **{"channel": b"orders", "parts": 4, **asked}) == (error, 0)
    assert (listed(harness), sorted(harness.state.channels)) == before


def test_the_most_channels_count_parts() -> None:
    harness = CoreHarness()
    harness.config = replace(harness.config, limits=replace(harness.config.limits, channels=3))
    harness._boot()
    assert create(harness, parts=4) == (refusals.TOO_MANY_CHANNELS, 0)
    assert create(harness, parts=3) == ("", 3)


def test_a_channel_goes_with_its_parts_and_can_be_made_again(harness) -> None:
    create(harness)
    harness.publish("orders", b"x")
    one = admin.DeleteChannelRequest(version=1, channel=b"orders.~1")
    answer = harness.ask(f"{ADMIN}.delete_channel", one, admin.ChangeResponse)
    assert answer.error.decode() == refusals.CHANNEL_IS_PART.format('"orders.~1"', '"orders"')
    assert delete(harness, b"other")[0] == HAS_NO_PARTS.format('"other"')
    assert delete(harness) == ("", 4)
    assert listed(harness) == ([], False)
    assert not harness.state.channels
    assert create(harness, parts=2) == ("", 2)
    assert harness.publish("orders", b"y") == [""]
    assert harness.stored(f"orders.~{part_of(b'me', 2)}") == [b"y"]


def test_parts_are_deleted_to_the_end_over_a_crash(harness) -> None:
    create(harness)
    harness.hold = True
    harness.asks(f"{ADMIN}.delete_parts", admin.DeletePartsRequest(version=1, channel=b"orders"), "reply")
    for _ in range(12):  # a crash behind each entry
        harness.turn()
        harness.restart()
    harness.hold = False
    harness.restart()
    assert not harness.state.channels
    assert not harness.state.parted


def test_a_part_is_not_deleted_because_nobody_uses_it() -> None:
    harness = CoreHarness()
    default = replace(harness.config.limits.default, inactivity_ns=10**9)
    harness.config = replace(harness.config, limits=StoreLimits(default=default))
    harness._boot()
    harness.connect()
    create(harness, parts=2)
    harness.publish("foo", b"x")
    harness.pass_time(5)
    assert sorted(harness.state.channels) == [b"orders.~0", b"orders.~1"]


def test_they_are_listed_page_by_page_and_kept_over_a_restart(harness) -> None:
    create(harness, b"b", 2, b"$.id")
    create(harness, b"a", 3)
    for _ in range(2):
        assert listed(harness) == ([(b"a", 3, b"", False), (b"b", 2, b"$.id", False)], False)
        assert listed(harness, max=1) == ([(b"a", 3, b"", False)], True)
        assert listed(harness, after=b"a") == ([(b"b", 2, b"$.id", False)], False)
        assert listed(harness, channel=b"b") == ([(b"b", 2, b"$.id", False)], False)
        harness.restart()
    snapshot = harness.state.snapshot(0)
    restored, again = MetaMachine(), pb.Snapshot()
    restored.restore(snapshot)
    restored.snapshot(again)
    assert snapshot == again
    assert restored.channels.parted.by_part.keys() == {b"a.~0", b"a.~1", b"a.~2", b"b.~0", b"b.~1"}
    kinds = [kind for kind, _, _ in restored.take_changed_rows().parts]
    assert kinds == []
    restored.touch_all()
    assert [(kind, key) for kind, key, _ in restored.take_changed_rows().parts] == [("parted", b"a"), ("parted", b"b")]


# --- in a cluster ---------------------------------------------------------------------------------------------------------


def keyed(key, data=b"x", channel="orders"):
    """The raw frame of a publish from a client of the name *key*, by which it is routed."""
    return pub_frame(channel, b"guid of " + data + key, data, client_id=key.decode(), conn_id=f"conn-{key.decode()}")


def test_a_node_takes_what_is_for_the_parts_that_it_leads(node) -> None:
    for key in KEYS:
        node.feed_client(key.decode())
    node.lead(1)
    node.hears(*(keyed(key, b"1") for key in KEYS))
    assert node.pub_acks() == [""] * sum(part_of(key, 4) in (0, 3) for key in KEYS)
    node.lead(2)  # takes what it has heard before
    node.turn()
    assert node.pub_acks() == [""] * sum(part_of(key, 4) == 1 for key in KEYS)
    for number, group in enumerate((1, 2, None, 1)):
        if group:
            wanted = sum(part_of(key, 4) == number for key in KEYS)
            assert node.stored(f"orders.~{number}", group) == [b"1"] * wanted
    node.follow(1)
    node.lead(1)
    node.turn()
    assert node.stored("orders.~0") == [b"1"] * sum(part_of(key, 4) == 0 for key in KEYS), "each once"


def test_what_cannot_be_divided_freezes_the_groups_of_its_parts_alone(node, monkeypatch) -> None:
    """All nodes hear the same: what one cannot divide may be more than any other can, and nobody would have the metadata."""

    def broken(*_arguments):
        raise InvariantError("what never happens has happened")

    failed = []
    node.feed_meta(create_parted=pb.CreateParted(name=b"sales", groups=[1, 2]))
    node.feed_client("me")
    node.lead(1, 2, 3)
    plain = next(name for name in map("plain{}".format, range(99)) if node.broker.view.group_number(name.encode()) == 3)
    monkeypatch.setattr(PartRouting, "parts_of", broken)
    monkeypatch.setattr(Faults, "fail", lambda _faults, number, _error: failed.append(number))

    node.hears(*(keyed(b"me", name.encode(), name) for name in ("sales", "sales.~1", plain)))
    assert failed == [1, 2, 2]
    node.feed_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=plain.encode(), group=3)]))
    node.turn()
    assert node.stored(plain, 3) == [plain.encode()], "the others go on"


def test_what_parts_had_does_not_come_back_when_they_are_deleted(node) -> None:
    """Whoever leads the group of the channel's name next has heard all of it, and finds it in no log."""
    for key in KEYS:
        node.feed_client(key.decode())
    node.lead(0, 1, 2, 3)
    node.hears(*(keyed(key, b"1", channel) for key in KEYS for channel in ("orders", "orders.~0")))
    assert "orders.~0" in node.subscribe("orders").error.decode()
    for channel in node.state.channels.values():
        node.feed_meta(delete_channel=pb.DeleteChannel(uid=channel.uid))
    node.follow(1, 2, 3)
    node.lead(1, 2, 3)
    node.pass_time(1)
    assert not node.state.channels
    node.publish("orders", b"new")
    node.pass_time(1)
    assert node.stored("orders", node.broker.view.group_number(b"orders")) == [b"new"]


def test_who_was_about_to_make_the_channel_itself_answers_nothing(node) -> None:
    """The leaders of the parts may have stored what it refuses."""
    home = node.broker.view.group_number(b"late")
    node.lead(home)
    assert node.publish("late", b"x") == []
    node.feed_meta(create_parted=pb.CreateParted(name=b"late", groups=[home % GROUPS + 1] * 2))
    node.pass_time(1)
    assert node.pub_acks() == []
    assert b"late" not in node.state.channels
    assert not node.broker.parts.channels.openings.pending


def test_parts_spread_over_the_groups() -> None:
    node = Node(config=MANY)
    node.lead(0)
    assert create(node, parts=6) == ("", 6)
    groups = [node.broker.view.group_number(part_name(b"orders", number)) for number in range(6)]
    assert groups[:3] == groups[3:]
    assert sorted(groups[:3]) == [1, 2, 3]


# --- doubling -------------------------------------------------------------------------------------------------------------


def double(harness, channel=b"orders", parts=4):
    request = admin.DoublePartsRequest(version=1, channel=channel, parts=parts)
    answer = harness.ask(f"{ADMIN}.double_parts", request, admin.ChangeResponse)
    harness.turn()
    return answer.error.decode(), answer.changed


def status(harness):
    answer = harness.ask("_STAN.x.test-cluster.parts", admin.PartsRequest(), admin.PartsResponse)
    return answer.channels[0]


def test_after_a_doubling_keys_are_in_their_part_or_in_the_one_beside_it(harness) -> None:
    create(harness)
    for text in (b"1", b"2"):
        harness.publish("orders", *(key + b":" + text for key in KEYS), key_of=lambda one: one.partition(b":")[0])
        if text == b"1":
            before = [len(harness.stored(f"orders.~{number}")) for number in range(4)]
            assert double(harness) == ("", 4)
            assert (status(harness).parts, status(harness).doubling) == (8, False)
            (split,) = status(harness).splits
            assert (split.parts, list(split.last)) == (4, before)
    for key in KEYS:
        for text, parts in ((b"1", 4), (b"2", 8)):
            assert key + b":" + text in harness.stored(f"orders.~{part_of(key, parts)}")
    for number in range(4):
        later = harness.stored(f"orders.~{number}")[before[number] :]
        assert all(part_of(one.partition(b":")[0], 8) == number for one in later)
    assert double(harness) == ("", 0), "a repetition, whose first answer was lost"
    assert double(harness, parts=2)[0] == NOT_SO_MANY_PARTS.format('"orders"', 8)
    assert double(harness, b"other")[0] == HAS_NO_PARTS.format('"other"')
    assert double(harness, parts=limits.PARTS_MAX + 1)[0] == NOT_THAT_MANY_PARTS


def test_no_channel_gets_more_parts_than_any_may_have(harness) -> None:
    harness.config = replace(harness.config, limits=StoreLimits(channels=0))
    harness._boot()
    create(harness, parts=129)
    assert double(harness, parts=129)[0] == NOT_THAT_MANY_PARTS


def test_a_doubling_goes_on_over_a_crash_behind_each_entry(harness) -> None:
    create(harness, parts=2)
    harness.publish("orders", *KEYS, key_of=lambda key: key)
    harness.hold = True
    harness.asks(f"{ADMIN}.double_parts", admin.DoublePartsRequest(version=1, channel=b"orders", parts=2), "reply")
    for _ in range(8):
        harness.turn()
        harness.restart()
    harness.hold = False
    harness.restart()
    harness.pass_time(1)
    assert (status(harness).parts, status(harness).doubling) == (4, False)
    harness.connect("again")
    assert harness.publish("orders", b"x", client_id="again") == [""]


def test_a_doubling_is_given_up_while_a_transaction_waits(harness) -> None:
    create(harness, parts=2)
    key = next(key for key in KEYS if part_of(key, 2) == 0)
    body = wire.MsgProto(data=b"x", key=key).SerializeToString()
    stage = extension.StageRequest(
        app=b"app", version=1, txn=b"t", channel=b"orders.~0", count=1, rows=len(body).to_bytes(4, "little") + body
    )
    assert not harness.ask("_STAN.x.test-cluster.stage", stage, extension.StageResponse).error
    assert double(harness, parts=2) == ("", 2)
    harness.pass_time(1)
    assert (status(harness).parts, status(harness).doubling) == (2, False)
    assert any(refusals.MOVE_WAITS_STAGED in text for _, text in harness.notes)
    assert harness.publish("orders", b"y", key_of=lambda _data: key) == [""]
    stage.channel = b"orders.~1"
    answer = harness.ask("_STAN.x.test-cluster.stage", stage, extension.StageResponse)
    assert answer.error.decode() == refusals.WRONG_PART.format('"orders.~1"', '"orders"')


def test_rows_of_a_batch_belong_to_their_part(harness) -> None:
    create(harness, parts=2, key=b"$.id")
    for message, key in ((wire.MsgProto(data=b"x", key=KEYS[0]), KEYS[0]), (wire.MsgProto(data=b'{"id": 7}'), b"7")):
        body, number = message.SerializeToString(), part_of(key, 2)
        rows = len(body).to_bytes(4, "little") + body
        for part in range(2):
            request = extension.BatchRequest(channel=b"orders.~%d" % part, count=1, rows=rows)
            answer = harness.ask("_STAN.x.test-cluster.batch", request, extension.BatchResponse)
            wanted = "" if part == number else refusals.WRONG_PART.format(f'"orders.~{part}"', '"orders"')
            assert (answer.error.decode(), answer.retry) == (wanted, False)
    request = extension.BatchRequest(channel=b"orders", count=1, rows=rows)
    answer = harness.ask("_STAN.x.test-cluster.batch", request, extension.BatchResponse)
    assert answer.error.decode() == refusals.HAS_PARTS.format('"orders.~0"', '"orders.~1"')
    assert not answer.retry


def keys_of(old, new, count=1):
    """Keys that are in part *old* of four, and in part *new* of eight."""
    return [key for key in KEYS if (part_of(key, 4), part_of(key, 8)) == (old, new)][:count]


def end_doubling(node, told=None):
    """All parts are closed, as the metadata say now; *told*: what some of them have said."""
    doubling = node.state.parted[b"orders"]
    for part in range(4):
        one = (told or {}).get(part, pb.PartClosed(name=b"orders", part=part, last=0, known_for=3600 * SECOND))
        one.doubling = doubling
        node.feed_meta(part_closed=one)
    node.turn()


def begin_doubling(node, groups=(1, 2, 3, 1)):
    node.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=groups))
    node.turn()


def test_what_comes_while_parts_are_doubled_is_taken_afterwards_and_each_once(node) -> None:
    """Group 1 has the parts 0 and 3, and then 4 and 7, too."""
    (stays,), (goes,) = keys_of(0, 0), keys_of(0, 4)
    for key in (stays, goes):
        node.feed_client(key.decode())
    node.lead(1)
    node.hears(keyed(stays, b"1"), keyed(goes, b"1"))
    assert node.pub_acks() == ["", ""]
    begin_doubling(node)
    assert "close_part" in node.entries(1)
    node.hears(keyed(stays, b"2"), keyed(goes, b"2"))
    node.pass_time(2)
    told = {one.part_closed.part: one.part_closed for one in asked_of_meta(node) if one.HasField("part_closed")}
    assert told.keys() == {0, 3}
    node.hears(keyed(stays, b"3"), keyed(goes, b"3"))
    assert node.pub_acks() == [], "nobody has decided yet"
    node.follow(1)
    node.lead(1)
    assert node.pub_acks() == ["", ""], "the first two, acknowledged again by the next leader"
    end_doubling(node, told)
    assert set(node.pub_acks()) == {""}
    assert node.stored("orders.~0") == [b"1", b"1", b"2", b"3"]
    assert node.stored("orders.~4") == [b"2", b"3"]
    node.hears(keyed(stays, b"4"), keyed(goes, b"4"))
    assert node.pub_acks() == ["", ""]
    node.follow(1)
    node.lead(1)
    assert node.stored("orders.~4") == [b"2", b"3", b"4"], "nothing is taken again"
    assert node.stored("orders.~0") == [b"1", b"1", b"2", b"3", b"4"]


def test_who_learns_late_that_there_are_more_parts_takes_what_was_for_them_before(node) -> None:
    """The leader of the old part divides by the new number already, and leaves to this node what this one leaves to it: once such
    a publish never had an answer."""
    (goes,) = keys_of(0, 4)
    node.feed_client(goes.decode())
    node.lead(2)
    begin_doubling(node, (2, 2, 3, 1))
    node.pass_time(1)
    node.hears(keyed(goes, b"1"))
    assert node.pub_acks() == []
    end_doubling(node)
    assert node.pub_acks() == [""]
    assert node.stored("orders.~4", 2) == [b"1"]


@pytest.mark.parametrize("hold", [False, True])
def test_a_doubling_that_is_given_up_leaves_nothing_unanswered_and_takes_nothing_twice(node, hold) -> None:
    """Also while what came before is on its way into the log."""
    (key,) = keys_of(0, 4)
    node.feed_client(key.decode())
    node.lead(1)
    node.hold = hold
    node.hears(keyed(key, b"1"))
    begin_doubling(node)
    node.hears(keyed(key, b"2"))
    doubling = node.state.parted[b"orders"]
    node.feed_meta(doubling_ended=pb.DoublingEnded(name=b"orders", doubling=doubling))
    node.turn()
    node.hears(keyed(key, b"3"))
    node.hold = False
    node.pass_time(1)
    assert set(node.pub_acks()) == {""}
    assert node.stored("orders.~0") == [b"1", b"2", b"3"]


def test_a_node_alone_refuses_what_comes_while_parts_are_doubled(harness) -> None:
    create(harness)
    harness.publish("orders", b"1", key_of=lambda _data: KEYS[0])
    harness.hold = True
    harness.asks(f"{ADMIN}.double_parts", admin.DoublePartsRequest(version=1, channel=b"orders", parts=4), "reply")
    harness.turn()
    harness.commit()
    assert harness.publish("orders", b"2", key_of=lambda _data: KEYS[0]) == [refusals.PARTS_DOUBLING]
    harness.hold = False
    harness.turn()
    harness.pass_time(1)
    assert harness.publish("orders", b"3", key_of=lambda _data: KEYS[0]) == [""]
    stored = [data for number in range(8) for data in harness.stored(f"orders.~{number}")]
    assert stored == [b"1", b"3"]


def test_what_is_older_than_what_an_old_part_knows_is_not_taken_by_the_new_one(node) -> None:
    """It may be in the old one's log."""
    (goes,) = keys_of(0, 4)
    node.feed_client(goes.decode())
    node.lead(2)
    node.hears(keyed(goes, b"1"))
    node.pass_time(3)
    node.hears(keyed(goes, b"2"))
    begin_doubling(node, (2, 2, 3, 1))
    node.pass_time(2)
    end_doubling(node, {0: pb.PartClosed(name=b"orders", part=0, known_for=3 * SECOND + limits.MOVE_KNOWN_MARGIN)})
    assert node.stored("orders.~4", 2) == [b"2"]
    node.follow(2)
    node.lead(2)
    node.turn()
    assert node.stored("orders.~4", 2) == [b"2"]


def test_what_was_published_to_a_part_by_name_before_it_was_there_is_not_taken(node) -> None:
    """It was refused: no channel may be called so."""
    (goes,) = keys_of(0, 4)
    node.feed_client(goes.decode())
    node.lead(2)
    begin_doubling(node, (2, 2, 3, 1))
    node.hears(keyed(goes, b"1", "orders.~4"))
    node.pass_time(1)
    end_doubling(node)
    assert node.stored("orders.~4", 2) == []
    node.follow(2)
    node.lead(2)
    node.hears(keyed(goes, b"2", "orders.~4"))
    assert node.stored("orders.~4", 2) == [b"2"]


def test_what_was_published_to_an_old_part_by_name_is_refused_afterwards_if_it_belongs_to_the_new_one(node) -> None:
    (stays,), (goes,) = keys_of(0, 0), keys_of(0, 4)
    for key in (stays, goes):
        node.feed_client(key.decode())
    node.lead(1)
    begin_doubling(node)
    node.hears(keyed(stays, b"1", "orders.~0"), keyed(goes, b"2", "orders.~0"))
    node.pass_time(1)
    assert node.pub_acks() == []
    node.leased.clear()
    end_doubling(node)
    wrong = refusals.WRONG_PART.format('"orders.~0"', '"orders"')
    assert sorted(node.pub_acks()) == ["", wrong]
    assert [one.groups for one in node.leased if wrong.encode() in one.data] == [(1,)], "only who leads may say so"
    assert node.stored("orders.~0") == [b"1"]


def test_who_was_started_a_moment_ago_knows_no_fingerprints_of_before(node) -> None:
    """Of what was in the log when it started: the clock of the broker stood still while that was loaded."""
    node.broker.states.step_loaded(1, 17)
    node.broker.start(node.now, node.wall)
    node.lead(1)
    begin_doubling(node)
    node.pass_time(2)
    told = [one.part_closed for one in asked_of_meta(node) if one.HasField("part_closed")]
    assert told[0].part == 0
    assert SECOND <= told[0].known_for <= 2 * SECOND


def test_who_was_started_a_moment_ago_without_messages_knows_the_fingerprints_of_all(node) -> None:
    """Also where the clock began a moment ago, as that of a machine that was just started."""
    node.broker.start(node.now, node.wall)
    node.lead(1)
    begin_doubling(node)
    node.pass_time(2)
    told = [one.part_closed for one in asked_of_meta(node) if one.HasField("part_closed")]
    assert told[0].known_for > limits.REPLAY_AGE_MAX + limits.MOVE_KNOWN_MARGIN


def miss_doubling(node, client):
    """The metadata come as a whole, with twice as many parts, and a client that may be new."""
    snapshot, other = pb.Snapshot(), Node(config=MANY)
    other.feed_client(client)
    other.feed_meta(create_parted=pb.CreateParted(name=b"orders", groups=[1, 2, 3, 1]))
    begin_doubling(other, (2, 2, 3, 1))
    end_doubling(other)
    other.follower(0).snapshot(snapshot)
    node.broker.states.reset(0, restored(0, snapshot, changed=True))
    node.broker.roles.was_reset(0)


def test_who_has_missed_a_doubling_takes_nothing_of_before_for_the_new_parts(node) -> None:
    """Its metadata come as a whole, with parts of whose messages it has not been told."""
    (goes,) = keys_of(0, 4)
    node.feed_client(goes.decode())
    node.hears(keyed(goes, b"1"))
    miss_doubling(node, goes.decode())
    node.lead(2)
    node.turn()
    assert node.stored("orders.~4", 2) == []
    node.hears(keyed(goes, b"2"))
    assert node.stored("orders.~4", 2) == [b"2"]


def asked_of_meta(node):
    """Changes of the metadata that were asked of its leader since the last call."""
    return [pb.MetaChange.FromString(said.payload) for said in node.hear("_STAN.node.test-cluster.meta")]


def test_what_is_in_the_old_part_is_not_taken_by_the_new_one_if_the_network_held_it_back(node) -> None:
    key = next(key for key in KEYS if part_of(key, 4) == 0 and part_of(key, 8) == 4)
    node.feed_client(key.decode())
    node.lead(1)
    node.hears(keyed(key, b"1"))
    assert node.pub_acks() == [""]
    node.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=[1, 2, 3, 1]))
    node.pass_time(2)
    told = {one.part_closed.part: one.part_closed for one in asked_of_meta(node) if one.HasField("part_closed")}
    assert told[0].last == 1
    other = Node(config=MANY)
    other.feed_client()
    other.feed_client(key.decode())
    other.feed_meta(create_parted=pb.CreateParted(name=b"orders", groups=[1, 2, 3, 1]))
    other.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=[2, 2, 3, 1]))
    other.lead(2)
    other.pass_time(1.5)
    end_doubling(other, told)
    other.hears(keyed(key, b"1"), keyed(key, b"2"))
    assert other.pub_acks() == ["", ""], "the first is acknowledged again"
    assert other.stored("orders.~4", 2) == [b"2"]


def test_no_part_moves_while_they_are_doubled(node) -> None:
    node.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=[1, 2, 3, 1]))
    meta = node.follower(0)
    begin = pb.MetaChange(begin_move=pb.BeginMove(uids=[meta.channels[b"orders.~0"].uid], to=2))
    assert meta.apply(begin, meta.applied + 1).error == DOUBLED_ALREADY
    again = pb.MetaChange(double_parted=pb.DoubleParted(name=b"orders", groups=[1] * 4))
    assert meta.apply(again, meta.applied + 1).error == DOUBLED_ALREADY
    assert (
        meta.apply(pb.MetaChange(drop_parted=pb.DropParted(name=b"orders")), meta.applied + 1).error == DOUBLED_ALREADY
    )


def test_what_is_in_the_log_is_not_refused_when_it_is_replayed_behind_a_doubling(node) -> None:
    """Its publisher has named the part, to which its key does not belong any more."""
    key = next(key for key in KEYS if part_of(key, 4) == 0 and part_of(key, 8) == 4)
    node.feed_client(key.decode())
    node.lead(1)
    node.hears(keyed(key, b"1", "orders.~0"))
    assert node.pub_acks() == [""]
    node.feed_meta(double_parted=pb.DoubleParted(name=b"orders", groups=[1, 2, 3, 1]))
    end_doubling(node)
    node.follow(1)
    node.lead(1)
    node.turn()
    assert set(node.pub_acks()) == {""}, "acknowledged again"
    node.hears(keyed(key, b"2", "orders.~0"))
    assert node.pub_acks() == [refusals.WRONG_PART.format('"orders.~0"', '"orders"')]


def test_what_waits_for_the_metadata_over_a_doubling_is_stored_where_it_belongs_now(node) -> None:
    (goes,) = keys_of(0, 4)
    node.lead(1)
    begin_doubling(node)
    node.hears(keyed(goes, b"1"))  # of a client that this node does not know yet
    end_doubling(node)
    node.feed_client(goes.decode())
    while node.meta_says(node.state.applied):
        node.turn()
    assert node.pub_acks() == [""]
    assert node.stored("orders.~0") == []
    assert node.stored("orders.~4") == [b"1"]
    assert not node.broker.parts.filters.waiting.publishers


def test_what_has_waited_for_the_metadata_since_long_before_a_doubling_is_taken_afterwards(node) -> None:
    """This node had not heard of the client for seconds when it heard of the doubling."""
    stays, goes = keys_of(0, 0) + keys_of(0, 4)
    node.lead(1)
    node.hears(keyed(stays, b"1"), keyed(goes, b"1"))
    node.pass_time(3)
    begin_doubling(node)
    node.feed_client(stays.decode())
    node.feed_client(goes.decode())
    end_doubling(node)
    while node.meta_says(node.state.applied):
        node.turn()
    assert node.pub_acks() == ["", ""]
    assert [node.stored(f"orders.~{part}") for part in (0, 4)] == [[b"1"], [b"1"]]


def test_who_led_before_the_metadata_came_as_a_whole_takes_what_comes_to_new_parts(node) -> None:
    """The leader before has stored a message of its publisher in a new part; this node heard it as the old part's, and took all
    that followed for what that leader had refused."""
    (goes,) = keys_of(0, 4)
    node.feed_client(goes.decode())
    stored = keyed(goes, b"1")
    node.hears(stored)
    other = Node(config=MANY)
    other.feed_client()
    other.feed_client(goes.decode())
    other.feed_meta(create_parted=pb.CreateParted(name=b"orders", groups=[1, 2, 3, 1]))
    other.lead(2)
    begin_doubling(other, (2, 2, 3, 1))
    end_doubling(other)
    other.hears(stored)
    assert other.pub_acks() == [""]
    node.pass_time(3)
    for _, kind, body in other.logs[2]:
        node.feed(2, kind, body)
    node.lead(2)
    snapshot = other.state.snapshot(0)
    node.broker.states.reset(0, restored(0, snapshot, changed=True))
    node.broker.roles.was_reset(0)
    node.turn()
    node.hears(keyed(goes, b"2"))
    assert node.pub_acks()[-1:] == [""]
    assert node.stored("orders.~4", 2) == [b"1", b"2"]


def test_what_waits_for_the_metadata_is_not_stored_in_a_part_that_it_left_before_they_came_as_a_whole(node) -> None:
    """Their publisher is unknown here, and the parts are doubled, when the metadata come."""
    (goes,) = keys_of(0, 4)
    node.lead(1)
    node.hears(keyed(goes, b"1"))
    miss_doubling(node, goes.decode())
    node.meta_says(node.state.applied)
    node.turn()
    assert node.stored("orders.~0", 1) == []
    assert node.pub_acks() == []


def test_what_came_to_a_part_before_it_was_known_to_be_one_is_not_taken_unseen(node) -> None:
    """This copy of the metadata is behind, and does not know the client either, or is about to make a channel of that name."""
    wrong = next(key for key in KEYS if part_of(key, 2) == 1)
    node.feed_client(wrong.decode())
    home = node.broker.view.group_number(b"late.~0")
    node.lead(home)
    node.hears(keyed(b"stranger", b"1", "late.~0"), keyed(wrong, b"2", "late.~0"))
    node.feed_meta(create_parted=pb.CreateParted(name=b"late", groups=[home, home]))
    node.feed_client("stranger")
    node.meta_says(node.state.applied)
    node.turn()
    assert node.pub_acks() == []
    assert node.stored("late.~0", home) == []
    assert not node.broker.parts.channels.openings.pending
    node.hears(keyed(wrong, b"3", "late.~0"))
    assert node.pub_acks() == [refusals.WRONG_PART.format('"late.~0"', '"late"')]


# --- servers that divide the channels among them -----------------------------------------------------------------------------


def owner(*patterns):
    """A server whose channels are these."""
    mine = replace(Config().limits, per_channel=dict.fromkeys(patterns, ChannelLimits()))
    made = CoreHarness(config=Config(partitioning=True, limits=mine))
    made.connect()
    return made


def test_parts_are_made_by_the_server_alone_whose_channel_it_is() -> None:
    assert create(owner("bills.>")) is None
    mine = owner("orders", "orders.*")
    assert create(mine) == ("", 4)
    assert mine.publish("orders", b"x", key_of=lambda one: one) == [""]
    for request in (admin.DoublePartsRequest, admin.DeletePartsRequest, admin.PinChannelRequest):
        name = {"DoubleParts": "double_parts", "DeleteParts": "delete_parts", "PinChannel": "pin_channel"}
        asked = request(version=1, channel=b"orders")
        subject = f"{ADMIN}.{name[request.DESCRIPTOR.name.removesuffix('Request')]}"
        assert owner("bills.>").ask(subject, asked, admin.ChangeResponse) is None


def test_parts_that_are_none_of_the_servers_channels_are_refused() -> None:
    assert create(owner("orders")) == (refusals.PARTS_ELSEWHERE.format("orders"), 0)
    assert create(owner("orders", "orders.~0", "orders.~1"), parts=2) == ("", 2)
    half = owner("orders", "orders.~0", "orders.~1")
    create(half, parts=2)
    request = admin.DoublePartsRequest(version=1, channel=b"orders", parts=2)
    answer = half.ask(f"{ADMIN}.double_parts", request, admin.ChangeResponse)
    assert answer.error.decode() == refusals.PARTS_ELSEWHERE.format("orders")
