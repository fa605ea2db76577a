"""SIGHUP: what changes at once, what waits for a restart, and what a running broker makes of other limits and heartbeats."""

from dataclasses import replace

from stan_protocol.scalars import SECOND

from stan.config import ChannelLimits, ChannelOverride, Config, HeartbeatConfig, LogConfig, StoreLimits
from stan.edge.log import ServerLog
from stan.edge.reloading import Reloading
from stan.server.reload import LIVE, plan
from stan.settings.settings import parse
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_core_channels import exists, kept
from tests.unit.settings.test_stream_conf import serve

# --- what changes ------------------------------------------------------------------------------------------------------


def test_limits_and_heartbeats_change_at_once_and_the_store_waits():
    running = serve("store: MEMORY\nlimits { mm: 5 }\nhbi: 5s")
    wanted = serve("store: FILE, dir: d\nlimits { mm: 6 }\nhbi: 6s\nsd: true")
    found = plan(running, wanted)
    assert found.changed == [
        "max_msgs = 6 (was 5, s.conf:2)",
        "hb_interval = 6s (was 5s, s.conf:3)",
        "stan_debug = true (was false, s.conf:4)",
    ]
    assert found.waiting == ["store = FILE (was MEMORY, s.conf:1)", "dir = d (was empty, s.conf:1)"]
    assert found.config == replace(
        running, limits=wanted.limits, heartbeat=wanted.heartbeat, log=replace(running.log, debug=True)
    )
    shown = {setting.name: setting for setting in found.config.shown()}
    assert shown["max_msgs"].value == "6"
    assert shown["store"].value == "MEMORY"


def test_limits_of_single_channels_come_and_go():
    running = serve('limits { channels { "a" { mm: 1 }, "b" { mm: 1 } } }')
    wanted = serve('limits { channels { "b" { mm: 2 }, "c" { mm: 1 } } }')
    found = plan(running, wanted)
    assert found.changed == [
        "channels.b.max_msgs = 2 (was 1, s.conf:1)",
        "channels.c.max_msgs = 1 (s.conf:1)",
        "channels.a.max_msgs is not set any more (was 1)",
    ]
    assert {setting.name for setting in found.config.shown() if "channels." in setting.name} == {
        "channels.b.max_msgs",
        "channels.c.max_msgs",
    }
    assert found.config.limits == wanted.limits


def test_policies_come_and_go_at_once():
    running = serve("policies { a { max_deliver: 1 } }")
    wanted = serve('policies { a { max_deliver: 2, durables { d { backoff: ["1s"] } } } }')
    found = plan(running, wanted)
    assert found.changed == [
        "policies.a.max_deliver = 2 (was 1, s.conf:1)",
        "policies.a.durables.d.backoff = 1s (s.conf:1)",
    ]
    assert (found.waiting, found.config.policies) == ([], wanted.policies)
    assert plan(wanted, serve("")).config.policies == ()


def test_nothing_changes_twice():
    running, wanted = serve("hbi: 5s"), serve("hbi: 6s, id: other")
    once = plan(running, wanted)
    assert (len(once.changed), len(once.waiting)) == (1, 1)
    again = plan(once.config, wanted)
    assert (again.changed, again.waiting) == ([], once.waiting)


def test_other_password_for_nats_elsewhere_waits_for_a_restart():
    text = "ns: 'nats://h:1', user: u, password: "
    found = plan(serve(text + "one"), serve(text + "two"))
    assert (found.changed, len(found.waiting)) == ([], 1)
    assert "two" not in found.waiting[0]
    assert plan(serve(text + "one"), serve(text + "one")).waiting == []


def test_what_is_live_is_what_a_config_takes_over():
    assert {setting.name for setting in parse([]).config.shown()} >= LIVE
    for name in LIVE:
        value = {"max_msgs": "7"}.get(name, "true" if name.startswith(("stan", "replace")) else "7")
        value += "s" if name in {"max_age", "max_inactivity", "hb_interval", "hb_timeout"} else ""
        wanted = parse([f"-{name}={value}"])
        assert not wanted.complaints
        assert Config().reloaded(wanted.config) == wanted.config, name


# --- who heeds it ------------------------------------------------------------------------------------------------------


def test_settings_wait_for_who_heeds_them():
    reloading, heard = Reloading(), []
    one, two = Config(cluster_id="one"), Config(cluster_id="two")
    reloading.update(one)
    reloading.attach(heard.append)
    reloading.update(two)
    reloading.detach()
    reloading.update(one)
    assert heard == [one, two]


def test_log_changes_its_levels(tmp_path):
    log = ServerLog(LogConfig(file=tmp_path / "log"))
    log.debug("unseen")
    log.set_levels(LogConfig(debug=True))
    log.debug("seen")
    log.close()
    assert "unseen" not in (tmp_path / "log").read_text()
    assert "[DBG] STREAM: seen" in (tmp_path / "log").read_text()


# --- a running broker --------------------------------------------------------------------------------------------------


def limits(*, channels=100, per_channel=None, **each):
    return Config(limits=StoreLimits(channels=channels, default=ChannelLimits(**each), per_channel=per_channel or {}))


def test_lower_limit_removes_what_is_kept_and_a_higher_one_keeps_more():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 10)
    harness.publish("bar", *[b"x"] * 10)

    harness.broker.reconfigure(limits(per_channel={"foo": ChannelOverride(msgs=3)}))
    harness.turn()
    assert (kept(harness), kept(harness, "bar")) == ((8, 10, 3), (1, 10, 10))

    harness.broker.reconfigure(limits(msgs=12))
    harness.publish("foo", *[b"x"] * 10)
    assert kept(harness) == (9, 20, 12)


def test_age_that_begins_to_count_removes_what_is_too_old_and_one_that_ends_keeps_it():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", b"1")
    harness.pass_time(10)
    harness.publish("foo", b"2")

    harness.broker.reconfigure(limits(age_ns=5 * SECOND))
    harness.turn()
    assert kept(harness) == (2, 2, 1)
    harness.broker.reconfigure(limits())
    harness.pass_time(10)
    assert kept(harness) == (2, 2, 1)


def test_number_of_channels_and_subscriptions_is_heeded_at_once():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", b"1")
    harness.subscribe("foo")
    harness.broker.reconfigure(limits(channels=1, subscriptions=1))
    assert harness.publish("bar", b"1") == ["too many channels"]
    assert harness.subscribe("foo", "other").error == b"too many subscriptions per channel"
    harness.broker.reconfigure(limits(channels=2, subscriptions=2))
    assert harness.publish("bar", b"1") == [""]
    assert harness.subscribe("foo", "other").error == b""


def test_idle_channels_go_by_the_newest_limit():
    harness = CoreHarness(limits(inactivity_ns=100 * SECOND))
    harness.connect()
    for channel in ("foo", "bar"):
        harness.publish(channel, b"1")
    harness.broker.reconfigure(limits(inactivity_ns=2 * SECOND, per_channel={"bar": ChannelOverride(inactivity_ns=-1)}))
    harness.pass_time(3)
    assert (exists(harness), exists(harness, "bar")) == (False, True)
    harness.pass_time(200)
    assert exists(harness, "bar")


def test_heartbeats_go_by_the_newest_settings():
    harness = CoreHarness(Config(heartbeat=HeartbeatConfig(interval_ns=1000 * SECOND)))
    harness.connect(alive=False)
    harness.broker.reconfigure(Config(heartbeat=HeartbeatConfig(interval_ns=SECOND, timeout_ns=SECOND, fail_count=1)))
    harness.pass_time(5)
    assert not harness.state.clients


def test_second_durable_is_refused_or_replaces_the_first_as_told_last():
    harness = CoreHarness()
    harness.connect()
    harness.subscribe("foo", durable="d")
    assert harness.subscribe("foo", "other", durable="d").error == b"stan: duplicate durable registration"
    harness.broker.reconfigure(Config(replace_durable=True))
    assert harness.subscribe("foo", "other", durable="d").error == b""
