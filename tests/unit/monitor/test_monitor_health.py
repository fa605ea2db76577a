"""Health of a node in its states, and the metrics over a broker on a harness, read back by Prometheus's own parser."""

import asyncio
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stan import limits, troubles
from stan.config import ClusterConfig, Config, StoreConfig, StoreLimits
from stan.core.base.compaction import CompactionTotals
from stan.edge.group_faults import LastingRefusal
from stan.edge.histogram import Histogram
from stan.log.types import BatchRef, DecompressedTotals
from stan.monitor import health
from stan.monitor.metrics import metrics
from stan.monitor.view import NodeView
from stan.raft.group import RaftGroup
from tests.kit.core_harness import CoreHarness
from tests.raft.rigs import Safe

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


class FakeGroup(RaftGroup):
    """A replicated group that says what it is told to."""

    leader, leads = "b", False

    def __init__(self, **told):
        self.log = SimpleNamespace(last_index=7, durable_index=5, compaction=CompactionTotals(2, 300))
        self.log.decompression = DecompressedTotals(7, 7000, 3, SECOND // 2)
        for name, value in told.items():
            setattr(self, name, value)

    def lag(self):
        return {"b": 3, "c": 0}


class FakeChannel:
    """A channel of the log: each message is a batch, a second younger than the one before."""

    def refs(self, first, _last, _bytes_max, _batches_max):
        return [BatchRef(first, 1, NOW - (100 - first) * SECOND, 0, 0, 0)]


def fake_driver(*, stopped=False, frozen=None, refusals=None, groups=None, voteless=()):
    """What the pages read of a driver."""
    return SimpleNamespace(
        turns=SimpleNamespace(stopped=stopped),
        faults=SimpleNamespace(frozen=frozen or {}, refusals=refusals or {}, voteless=set(voteless)),
        groups=groups or {},
    )


def node(harness, **told):
    standard = {
        "broker": harness.broker,
        "config": harness.config,
        "crash": SimpleNamespace(done=lambda: False),
        "serving": True,
        "connection": SimpleNamespace(up=True, unsent=11),
        "driver": fake_driver(),
        "storage": SimpleNamespace(
            differs={},
            node_id="a",
            is_intact=lambda _: True,
            logs={1: SimpleNamespace(channel=lambda _uid: FakeChannel())},
        ),
        "runtime": SimpleNamespace(now=lambda: 100, syncs=Histogram((10, 20))),
        "tracing": None,
    }
    return SimpleNamespace(**standard | told)


def view(made=None, config=None):
    found = NodeView(config or Config(), "SERVER", None, NOW - SECOND)
    found.node = made
    return found


# --- health -------------------------------------------------------------------------------------------------------------


def test_before_the_store_is_open_it_lives_and_has_not_started():
    assert health.live(view()) == []
    assert health.startup(view()) == health.ready(view()) == ["the store is not open yet"]


def test_node_that_serves_is_ready():
    found = view(node(CoreHarness()))
    assert (health.live(found), health.startup(found), health.ready(found)) == ([], [], [])


def test_node_that_waits_says_for_what():
    harness = CoreHarness()
    harness.broker.states.reset(0)
    found = view(node(harness, serving=False, connection=None))
    waits = ["clients are not served yet", "there is no connection to NATS", "the metadata is not known yet"]
    assert health.startup(found) == health.ready(found) == waits
    assert health.live(found) == []


def test_lost_connection_ends_readiness_and_nothing_else():
    found = view(node(CoreHarness(), connection=SimpleNamespace(up=False)))
    assert health.ready(found) == ["there is no connection to NATS"]
    assert (health.live(found), health.startup(found)) == ([], [])


def test_broken_broker_does_not_live():
    found = view(node(CoreHarness(), crash=SimpleNamespace(done=lambda: True)))
    assert health.live(found) == health.ready(found) == ["the broker has failed, and ends"]


def test_node_that_stops_is_not_ready():
    found = view(node(CoreHarness(), driver=fake_driver(stopped=True)))
    assert health.ready(found) == ["it is shutting down"]


@pytest.mark.parametrize(
    ("group", "frozen", "whole", "reasons"),
    [
        (FakeGroup(), {}, True, []),
        (FakeGroup(leads=True, leader="a"), {}, True, []),
        (FakeGroup(leader=None), {}, True, ["group 2: it has no leader"]),
        (FakeGroup(), {}, False, ["group 2: this node's copy is not whole"]),
        (FakeGroup(), {2: "EIO"}, True, ["group 2: it is frozen until a restart: EIO"]),
        (SimpleNamespace(), {2: "EIO"}, True, ["group 2: it is frozen until a restart: EIO"]),
        (SimpleNamespace(), {}, True, []),
    ],
)
def test_groups(group, frozen, whole, reasons):
    driver = fake_driver(frozen=frozen, groups={2: group})
    storage = SimpleNamespace(is_intact={2: whole}.get, differs={})
    assert health.ready(view(node(CoreHarness(), driver=driver, storage=storage))) == reasons


def test_node_without_a_vote_says_so_while_there_is_no_leader():
    driver = fake_driver(groups={1: FakeGroup(leader=None), 2: FakeGroup()}, voteless=(1, 2))
    found = view(node(CoreHarness(), driver=driver))
    assert health.ready(found) == ["group 1: it has no leader, and this node no vote: its disk has lost what it had"]


def test_leader_whose_lease_ended_is_ready_until_its_patience_ends():
    rig = Safe(3).start_all()
    rig.elect()
    rig.run(0.5)
    group = rig.leader().group
    driver = fake_driver(groups={1: group})
    found = view(node(CoreHarness(), driver=driver, runtime=SimpleNamespace(now=lambda: rig.now)))
    rig.run(0.7, drop=lambda *_: True)
    assert group.lease_until() <= rig.now
    assert health.ready(found) == []
    rig.run(0.5, drop=lambda *_: True)
    assert health.ready(found) == ["group 1: it has no leader"]


FULL = LastingRefusal("no space left", short=True, since=7, newest=0, bytes=0, looked=0)
BUSY = LastingRefusal("too much waits", short=False, since=7, newest=0, bytes=0, looked=0)


@pytest.mark.parametrize(
    ("group", "refusal", "expected"),
    [
        (SimpleNamespace(), FULL, (troubles.FULL, "it takes nothing: no space left", 7)),
        (SimpleNamespace(), BUSY, (troubles.REFUSING, "it takes nothing: too much waits", 7)),
        (FakeGroup(leads=True, lease=101), FULL, (troubles.FULL, "it takes nothing: no space left", 7)),
        (FakeGroup(), FULL, None),
    ],
    ids=["full", "busy", "leader", "follower"],
)
def test_refusals_of_a_group_are_trouble_and_on_a_full_disk_the_node_is_not_ready(group, refusal, expected):
    running = node(CoreHarness(), driver=fake_driver(refusals={2: refusal}, groups={2: group}))
    running.storage = SimpleNamespace(is_intact=lambda _: True, differs={})
    assert health.trouble(running, 2, group) == expected
    ready = [f"group 2: {expected[1]}"] if expected and expected[0] is troubles.FULL else []
    assert health.ready(view(running)) == ready


# --- metrics ------------------------------------------------------------------------------------------------------------


def scrape(found, *names):
    """{(sample name, *label values in the order of the labels' names): value}."""
    text = asyncio.run(metrics(found, names, NOW)).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if family.name != "stan_server_info"
    }


def test_before_the_store_is_open_there_is_only_what_the_process_is():
    assert set(scrape(view())) == {("stan_start_time_seconds",)}


def test_metrics_tell_the_space_on_the_disk_of_the_store(tmp_path):
    found = scrape(view(config=Config(store=StoreConfig(kind="file", directory=tmp_path))))
    assert 0 < found["stan_disk_free_bytes",] <= found["stan_disk_bytes",]


def test_metrics_of_a_broker_alone():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 40)
    durable = harness.subscribe("foo", durable="dur", in_flight=10)
    harness.ack(durable.ack_inbox, 1, 2)
    for number in "12":
        harness.subscribe("foo", f"i{number}", queue="q", start=3, seq=36, in_flight=4)
    harness.subscribe("foo", "plain", start=0)
    made = node(harness)
    for took in (5, 10, 15, 99):
        made.runtime.syncs.add(took)
    made.driver.groups = {1: FakeGroup(leads=True, leader="a")}
    found = scrape(view(made))
    assert {name: found[f"stan_{name}",] for name in ("clients", "channels", "subscriptions", "nats_connected")} == {
        "clients": 1,
        "channels": 1,
        "subscriptions": 4,
        "nats_connected": 1,
    }
    assert (
        found["stan_in_messages_total",]
        == found["stan_stored_messages",]
        == found["stan_channel_messages", "foo"]
        == 40
    )
    assert found["stan_out_messages_total",] == 12 + 5
    assert found["stan_unanswered_messages_total",] == 0
    assert found["stan_out_bytes_total",] > 0
    assert found["stan_stored_bytes",] == found["stan_channel_bytes", "foo"] > 0
    assert (found["stan_channel_first_sequence", "foo"], found["stan_channel_last_sequence", "foo"]) == (1, 40)
    assert found["stan_unsent_bytes",] == 11
    buckets = {bound: found["stan_sync_seconds_bucket", bound] for bound in ("1e-08", "2e-08", "+Inf")}
    assert buckets == {"1e-08": 2, "2e-08": 3, "+Inf": 4}
    assert found["stan_sync_seconds_count",] == 4
    assert {name: found[f"stan_decompress{name}_total",] for name in ("ed_batches", "ed_clear_bytes")} == {
        "ed_batches": 7,
        "ed_clear_bytes": 7000,
    }
    assert found["stan_decompressed_again_batches_total",] == 3
    assert found["stan_decompression_cpu_seconds_total",] == 0.5
    assert found["stan_compressed_batches_total", "leader"] == 0
    assert ("stan_channel_kept_bytes", "foo") not in found

    of_durable, of_queue = ("foo", "me", "durable", "dur"), ("foo", "", "queue", "q")

    def of_cursor(name):
        return found[f"stan_durable_{name}", *of_durable], found[f"stan_durable_{name}", *of_queue]

    assert of_cursor("lag_messages") == (28, 0)
    assert of_cursor("pending_messages") == (10, 5)
    assert of_cursor("window_messages") == of_cursor("window_now_messages") == (10, 8)
    assert of_cursor("members") == (1, 2)
    assert of_cursor("oldest_unacked_seconds") == (97, 64)  # 3 and 36 are the oldest
    assert (found["stan_group_leads", "1"], found["stan_group_leader", "1", "a"], found["stan_group_frozen", "1"]) == (
        1,
        1,
        0,
    )
    assert (found["stan_replica_lag_entries", "1", "b"], found["stan_replica_lag_entries", "1", "c"]) == (3, 0)
    assert (found["stan_group_log_entries", "1"], found["stan_group_durable_entries", "1"]) == (7, 5)
    assert found["stan_group_state_differs", "1"] == 0
    assert (found["stan_left_out", "channels"], found["stan_left_out", "durables"]) == (0, 0)


def test_window_that_was_cut_is_told():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 20)
    harness.subscribe("foo", durable="dur", in_flight=10, wait=1, seq=1)
    harness.set_policy(adaptive_window=True)
    harness.pass_time(1.5)
    found = scrape(view(node(harness)))
    of = ("foo", "me", "durable", "dur")
    assert (found["stan_durable_window_messages", *of], found["stan_durable_window_now_messages", *of]) == (10, 5)


def test_offline_durable_is_told_of_too():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 5)
    harness.subscribe("foo", durable="dur", in_flight=2)
    harness.close()
    found = scrape(view(node(harness)))
    of = ("foo", "me", "durable", "dur")
    assert (found["stan_durable_members", *of], found["stan_durable_lag_messages", *of]) == (0, 3)
    assert (found["stan_durable_pending_messages", *of], found["stan_durable_window_messages", *of]) == (2, 0)


def test_what_another_node_leads_that_one_tells():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", b"x")
    harness.broker.roles.follow_group(1)
    config = Config(store=StoreConfig(kind="file"), cluster=ClusterConfig(node_id="a"))
    found = scrape(view(node(harness), config))
    assert ("stan_channel_messages", "foo") not in found
    assert (found["stan_stored_messages",], found["stan_channels",]) == (0, 1)


def test_many_channels_are_told_of_one_by_one_only_where_asked_for(monkeypatch):
    harness = CoreHarness(config=Config(limits=StoreLimits(channels=0)))
    harness.connect()
    for name in "abc":
        harness.publish(name, b"x")
        harness.subscribe(name, durable="d")
    found = view(node(harness))
    monkeypatch.setattr(limits, "METRICS_CHANNELS_MAX", 2)
    all_of_them = scrape(found)
    assert not [key for key in all_of_them if key[0].startswith(("stan_channel_", "stan_durable_"))]
    assert (all_of_them["stan_stored_messages",], all_of_them["stan_left_out", "channels"]) == (3, 1)
    asked = scrape(found, "b", "nope")
    assert [key[1:] for key in asked if key[0] in {"stan_channel_messages", "stan_durable_members"}] == [
        ("b",),
        ("b", "me", "durable", "d"),
    ]
    monkeypatch.setattr(limits, "METRICS_CHANNELS_MAX", 9)
    monkeypatch.setattr(limits, "METRICS_CURSORS_MAX", 2)
    without = scrape(found)
    assert not [key for key in without if key[0].startswith("stan_durable_")]
    assert (without["stan_channel_messages", "c"], without["stan_left_out", "durables"]) == (1, 1)
