"""The monitoring pages over a broker on a harness: fields, their order and types as the original's, values, parts of lists."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stan import limits
from stan.config import ChannelLimits, ChannelOverride, ClusterConfig, Config, StoreConfig, StoreLimits
from stan.monitor.page_format import array, extended, flat, moment, pretty, uptime
from stan.monitor.pages import Pages, UnknownNameError
from stan.monitor.view import NodeView
from tests.kit.core_harness import CoreHarness

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
FIXTURES = Path(__file__).parents[2] / "fixtures" / "stan-monitoring"
ADDED = {"subs_count", "in_msgs", "in_bytes", "out_msgs", "out_bytes"}  # the fixtures are of version 0.16.2
OF_SUBSCRIPTION = [
    *(("client_id", str), ("inbox", str), ("ack_inbox", str), ("is_durable", bool), ("is_offline", bool)),
    *(("max_inflight", int), ("ack_wait", int), ("last_sent", int), ("pending_count", int), ("is_stalled", bool)),
]
OF_CHANNEL = [("name", str), ("msgs", int), ("bytes", int), ("first_seq", int), ("last_seq", int), ("subs_count", int)]
OF_LIST = [
    *(("cluster_id", str), ("server_id", str), ("now", str)),
    *(("offset", int), ("limit", int), ("count", int), ("total", int)),
]


def shape(found: dict) -> list[tuple[str, type]]:
    return [(name, type(value)) for name, value in found.items()]


def with_name(name: str) -> list[tuple[str, type]]:
    return [*OF_SUBSCRIPTION[:3], (name, str), *OF_SUBSCRIPTION[3:]]


class Scene:
    """A broker and its pages."""

    def __init__(self, config: Config | None = None) -> None:
        self.harness = CoreHarness(config=config or Config())
        self.view = NodeView(self.harness.config, "SERVER", None, NOW - 75 * SECOND)
        self.view.node = SimpleNamespace(
            broker=self.harness.broker,
            config=self.harness.config,
            crash=SimpleNamespace(done=lambda: False),
            driver=SimpleNamespace(turns=SimpleNamespace(stopped=False), groups={}),
            storage=SimpleNamespace(node_id="a"),
        )
        self.pages = Pages(self.view)

    def get(self, name: str, **query: str):
        return json.loads(self.text(name, **query))

    def text(self, name: str, **query: str) -> str:
        return asyncio.run(getattr(self.pages, name)(query, NOW))


@pytest.fixture
def scene():
    """As when the fixtures were made: a durable with a full window, another that is offline, a durable queue group."""
    scene = Scene()
    harness = scene.harness
    for client in ("billing", "loader", "reader", "worker-1", "worker-2"):
        harness.connect(client)
    harness.publish("orders", *[b"x" * 10] * 50, client_id="loader")
    harness.publish("notes", *[b"x"] * 7, client_id="loader")
    ledger = harness.subscribe("orders", "i.ledger", client_id="billing", durable="ledger", in_flight=20)
    harness.ack(ledger.ack_inbox, *range(1, 20, 2), channel=b"orders")
    mark = harness.subscribe("notes", "i.bookmark", client_id="reader", durable="bookmark", in_flight=1, start=3, seq=3)
    harness.ack(mark.ack_inbox, 3, channel=b"notes")
    harness.ack(mark.ack_inbox, 4, channel=b"notes")
    harness.leave("notes", mark.ack_inbox, client_id="reader")
    for number in "12":
        harness.subscribe(
            "sensors.room-1.temp", f"i.{number}", client_id=f"worker-{number}", queue="pool", durable="crew"
        )
    harness.publish("sensors.room-1.temp", b"one", client_id="loader")
    return scene


def like(found, theirs) -> bool:
    """Whether JSON has the same fields in the same order and of the same types, beside those that later versions added."""
    if isinstance(theirs, dict):
        kept = {name: value for name, value in found.items() if name not in ADDED or name in theirs}
        return list(kept) == list(theirs) and all(like(kept[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(found) == len(theirs) and all(map(like, found, theirs))
    return type(found) is type(theirs)


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("*z*.http")), ids=lambda file: file.stem)
def test_pages_are_like_those_of_a_real_server(scene, fixture):
    head, _, body = fixture.read_text().replace("\r\n", "\n").partition("\n\n")
    name, *words = fixture.stem.split("_")
    query = dict(zip(words[::2], words[1::2], strict=True))
    if " 404 " in head.splitlines()[0]:
        with pytest.raises(UnknownNameError) as error:
            scene.get(name, **query)
        assert f"{error.value}\n" == body
        return
    theirs = json.loads(body)
    text = scene.text(name, **query)
    assert like(json.loads(text), theirs)
    assert text.splitlines()[:2] == body.splitlines()[:2]  # the same indentation
    assert json.dumps(json.loads(text), indent=2) == text


def test_server_page_has_the_fields_of_the_original_in_its_order(scene):
    found = scene.get("serverz")
    texts = ("cluster_id", "server_id", "version", "go", "state", "now", "start_time", "uptime")
    numbers = ("clients", "subscriptions", "channels", "total_msgs", "total_bytes")
    traffic = ("in_msgs", "in_bytes", "out_msgs", "out_bytes", "open_fds", "max_fds")
    assert shape(found) == [(name, str) for name in texts] + [(name, int) for name in (*numbers, *traffic)]
    assert (found["version"], found["state"], found["uptime"]) == ("0.25.6", "STANDALONE", "1m15s")
    assert [found[name] for name in numbers[:4]] == [5, 4, 3, 58]
    assert (found["in_msgs"], found["out_msgs"]) == (58, 30 + 3 + 1)
    assert found["in_bytes"] > 0
    assert found["out_bytes"] > 0


def test_server_page_in_a_cluster_tells_role_and_node():
    scene = Scene()
    scene.view.config = Config(store=StoreConfig(kind="file"), cluster=ClusterConfig(node_id="a"))
    found = scene.get("serverz")
    assert list(found)[4:8] == ["state", "role", "node_id", "now"]
    assert (found["state"], found["role"], found["node_id"]) == ("CLUSTERED", "Leader", "a")
    scene.harness.broker.roles.follow_meta()
    assert scene.get("serverz")["role"] == "Candidate"
    assert scene.get("storez")["type"] == "RAFT_FILE"


def test_store_page_has_limits_as_inherited():
    limited = StoreLimits(default=ChannelLimits(msgs=9, age_ns=SECOND), per_channel={"a.>": ChannelOverride(msgs=5)})
    found = Scene(Config(limits=limited)).get("storez")
    assert list(found) == ["cluster_id", "server_id", "now", "type", "limits", "total_msgs", "total_bytes"]
    assert found["type"] == "MEMORY"
    of_channel = ["max_msgs", "max_bytes", "max_age", "max_subscriptions", "max_inactivity"]
    assert list(found["limits"]) == ["max_channels", *of_channel, "channels"]
    assert list(found["limits"]["channels"]["a.>"]) == of_channel
    assert (found["limits"]["max_msgs"], found["limits"]["channels"]["a.>"]["max_msgs"]) == (9, 5)
    assert found["limits"]["channels"]["a.>"]["max_age"] == SECOND


def test_store_page_has_the_limits_of_a_pattern_and_not_of_a_narrower_one():
    overrides = {"*": ChannelOverride(msgs=5, bytes=-1), ">": ChannelOverride(msgs=7)}
    channels = Scene(Config(limits=StoreLimits(per_channel=overrides))).get("storez")["limits"]["channels"]
    assert [(name, each["max_msgs"]) for name, each in channels.items()] == [("*", 5), (">", 7)]
    assert channels[">"]["max_bytes"] == ChannelLimits().bytes


def test_client_page(scene):
    found = scene.get("clientsz", subs="1")
    assert shape(found) == [*OF_LIST, ("clients", list)]
    assert [client["id"] for client in found["clients"]] == ["billing", "loader", "reader", "worker-1", "worker-2"]
    billing, _, reader, worker, _ = found["clients"]
    assert shape(billing) == [("id", str), ("hb_inbox", str), ("subs_count", int), ("subscriptions", dict)]
    assert shape(billing["subscriptions"]["orders"][0]) == with_name("durable_name")
    assert shape(reader) == [("id", str), ("hb_inbox", str), ("subs_count", int)]  # its durable is offline
    assert worker["subscriptions"]["sensors.room-1.temp"][0]["queue_name"] == "crew:pool"
    assert scene.get("clientsz", client="billing", subs="1") == billing
    assert "subscriptions" not in scene.get("clientsz", client="billing")
    with pytest.raises(UnknownNameError, match=r"^Client nope not found$"):
        scene.get("clientsz", client="nope")


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"offset": "1", "limit": "2"}, ["loader", "reader"]),
        ({"offset": "-1", "limit": "1"}, ["billing"]),
        ({"offset": "x", "limit": "0"}, ["billing", "loader", "reader", "worker-1", "worker-2"]),
        ({"offset": "5"}, []),
    ],
)
def test_parts_of_lists(scene, query, ids):
    found = scene.get("clientsz", **query)
    assert [client["id"] for client in found["clients"]] == ids
    assert (found["count"], found["total"]) == (len(ids), 5)
    assert found["limit"] == (int(query["limit"]) if query.get("limit", "0") > "0" else limits.PAGE_ITEMS)


def test_channel_page(scene):
    scene.harness.subscribe("orders", "i.plain", client_id="loader", start=0, in_flight=5)
    names = scene.get("channelsz")
    assert shape(names) == [*OF_LIST, ("names", list)]
    assert names["names"] == ["notes", "orders", "sensors.room-1.temp"]
    found = scene.get("channelsz", subs="1")
    assert shape(found) == [*OF_LIST, ("channels", list)]
    notes, orders, room = found["channels"]
    assert shape(orders) == [*OF_CHANNEL, ("subscriptions", list)]
    assert [orders[name] for name in ("msgs", "first_seq", "last_seq", "subs_count")] == [50, 1, 50, 2]
    ledger, plain = orders["subscriptions"]
    assert shape(ledger) == with_name("durable_name")
    assert (ledger["last_sent"], ledger["pending_count"], ledger["is_stalled"], ledger["is_offline"]) == (
        30,
        20,
        True,
        False,
    )
    assert shape(plain) == OF_SUBSCRIPTION
    assert (plain["last_sent"], plain["pending_count"], plain["is_stalled"]) == (50, 0, False)
    (mark,) = notes["subscriptions"]
    assert (mark["client_id"], mark["last_sent"], mark["pending_count"], mark["max_inflight"]) == ("reader", 5, 1, 1)
    assert (mark["is_stalled"], mark["is_offline"]) == (True, True)
    assert [shape(member) for member in room["subscriptions"]] == [with_name("queue_name")] * 2
    assert sorted(member["last_sent"] for member in room["subscriptions"]) == [0, 1]
    assert scene.get("channelsz", channel="orders", subs="1") == orders
    assert "subscriptions" not in scene.get("channelsz", channel="orders")
    with pytest.raises(UnknownNameError, match=r"^Channel nope not found$"):
        scene.get("channelsz", channel="nope")


def test_beyond_the_end_there_is_no_list_of_channels(scene):
    assert shape(scene.get("channelsz", offset="9")) == OF_LIST


def test_copy_shows_what_the_leader_has_told_the_log_of(scene):
    before = scene.get("channelsz", channel="orders", subs="1")
    scene.harness.broker.roles.follow_group(1)
    assert scene.get("channelsz", channel="orders", subs="1") == before


def test_240_traffic_counts_redeliveries():
    scene = Scene()
    scene.harness.connect()
    acking = scene.harness.subscribe("foo", "i.1", wait=5)
    scene.harness.subscribe("foo", "i.2", wait=5)
    scene.harness.publish("foo", *[b"x"] * 5)
    scene.harness.ack(acking.ack_inbox, *range(1, 6))
    found = scene.get("serverz")
    assert (found["in_msgs"], found["out_msgs"]) == (5, 10)
    scene.harness.pass_time(6)
    again = scene.get("serverz")
    assert (again["in_msgs"], again["out_msgs"]) == (5, 15)
    assert again["out_bytes"] == found["out_bytes"] * 15 // 10


def test_241_244_counts_after_a_restart_and_an_unsubscribe(scene):
    def counts():
        return [scene.get("serverz")[name] for name in ("clients", "subscriptions", "channels", "total_msgs")]

    before = scene.get("channelsz", subs="1")["channels"]
    scene.harness.restart()
    scene.view.node.broker = scene.harness.broker
    assert counts() == [5, 4, 3, 58]
    assert scene.get("channelsz", subs="1")["channels"] == before
    again = scene.harness.subscribe("notes", client_id="reader", durable="bookmark", in_flight=1)
    scene.harness.leave("notes", again.ack_inbox, client_id="reader", unsubscribe=True)
    assert counts() == [5, 3, 3, 58]
    assert "subscriptions" not in scene.get("channelsz", channel="notes", subs="1")


def test_245_members_of_a_durable_group_are_counted(scene):
    def count():
        return scene.get("serverz")["subscriptions"], scene.get("channelsz", channel="foo")["subs_count"]

    def member(number):
        return scene.harness.subscribe("foo", f"m.{number}", client_id="loader", queue="q", durable="d").ack_inbox

    one, two = member(1), member(2)
    assert count() == (6, 2)
    scene.harness.leave("foo", one, client_id="loader")
    assert count() == (5, 1)
    scene.harness.leave("foo", two, client_id="loader")
    assert count() == (5, 1)  # offline, kept
    (kept,) = scene.get("channelsz", channel="foo", subs="1")["subscriptions"]
    assert (kept["is_offline"], kept["queue_name"], kept["client_id"]) == (True, "d:q", "loader")
    scene.harness.leave("foo", member(3), client_id="loader", unsubscribe=True)
    assert count() == (4, 0)


def test_client_of_many_members_of_one_group(scene):
    for number in range(20):
        scene.harness.subscribe("orders", f"q.{number}", client_id="loader", queue="q")
    found = scene.get("clientsz", client="loader", subs="1")
    assert found["subs_count"] == 20
    assert [sub["inbox"] for sub in found["subscriptions"]["orders"]] == [f"q.{number}" for number in range(20)]


def test_what_was_sent_and_has_to_be_sent_again_is_pending(scene):
    scene.harness.broker.stops.step_lease(1, holds=False)
    scene.harness.pass_time(31)
    assert any(live.name == b"ledger" and live.owed for live in scene.harness.state.live_positions())
    assert scene.get("channelsz", channel="orders", subs="1")["subscriptions"][0]["pending_count"] == 20


def test_groups_that_this_node_does_not_hold_are_left_out(scene):
    scene.harness.broker.states.drop(1)
    assert scene.get("channelsz")["total"] == 0
    assert (scene.get("serverz")["total_msgs"], scene.get("serverz")["channels"]) == (0, 3)
    with pytest.raises(UnknownNameError):
        scene.get("channelsz", channel="orders")


def test_before_the_store_is_open_pages_are_empty():
    scene = Scene()
    scene.view.node = None
    assert (scene.get("serverz")["clients"], scene.get("clientsz")["clients"], scene.get("channelsz")["total"]) == (
        0,
        [],
        0,
    )


def test_other_work_goes_on_between_the_slices_of_a_long_page(monkeypatch):
    scene = Scene(Config(limits=StoreLimits(channels=0)))
    scene.harness.connect()
    for number in range(50):
        scene.harness.publish(f"c{number:02}", b"x")
    monkeypatch.setattr(limits, "PAGE_SLICE", 0)
    turns = []

    async def count():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def both():
        other = asyncio.create_task(count())
        text = await scene.pages.channelsz({"subs": "1"}, NOW)
        other.cancel()
        return text

    assert len(json.loads(asyncio.run(both()))["channels"]) == 50
    assert len(turns) >= 50


def test_json_is_written_as_go_writes_it():
    value = {"a": "<&>", "b": {"c": [{"d": 1, "e": "\u00fc"}, {"d": True}], "f": []}, "g": "\n"}
    lists = {"c": array([flat({"d": 1, "e": "\u00fc"}, 3), flat({"d": True}, 3)], 2), "f": array([], 2)}
    text = extended(flat({"a": "<&>"}), {"b": extended("{}", lists, 1), "g": pretty("\n")})
    escaped = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
    assert text == pretty(value) == json.dumps(value, indent=2, ensure_ascii=False).translate(escaped)
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (61, "1m1s"),
        (3600, "1h0m0s"),
        (86400 + 2, "1d0h0m2s"),
        (365 * 86400 + 2 * 86400 + 3 * 3600 + 245, "1y2d3h4m5s"),
    ],
)
def test_uptime(seconds, text):
    assert uptime(seconds * SECOND + 999) == text


def test_moments():
    assert moment(1_700_000_000 * SECOND) == "2023-11-14T22:13:20Z"
    assert moment(1_700_000_000 * SECOND + 120_000_000) == "2023-11-14T22:13:20.12Z"
    assert moment(1_700_000_000 * SECOND + 1) == "2023-11-14T22:13:20.000000001Z"
