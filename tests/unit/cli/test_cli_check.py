"""`stan check` and `stan doctor`: exit codes, thresholds, and the next step for what is wrong."""

import json

import pytest
import stan_client
from stan_client.requests.admin import Nodes
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND
from typer.testing import CliRunner

from stan.cli.commands.check import Bounds, Findings, judge_nodes
from stan.cli.commands.doctor import of_groups, of_nodes
from stan.cli.main import app
from stan.cli.support import session
from stan.errors import NO_LEADER, NO_VOTE
from stan.monitor.dashboard.health_summary import HealthInputs, problems
from stan.troubles import VOTELESS
from tests.kit.fake_operator import FakeDirect, channel, durable, member


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = FakeDirect()
    fake.admin.all_channels = [channel()]
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


def stan(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_all_is_well():
    done = stan("check", "--nodes", "1")
    assert done.exit_code == 0
    assert done.stdout.startswith("STAN OK - all is well | nodes=1")
    assert stan("doctor").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--lag", "11,20"), 0),
        (("--lag", "5,20"), 1),
        (("--lag", "5,10"), 2),
        (("--lag", "10"), 2),
        (("--lag", "5,"), 1),
        (("--pending", "2,9"), 1),
        (("--oldest", "5m,1h"), 2),
        (("--stuck",), 2),
        (("--nodes", "2"), 2),
        (("--channel", "other", "--lag", "1"), 0),
        (("--lag", "many"), 3),
        (("--lag", "20,10"), 3),
        (("--disk", "5,15"), 3),
        (("--name", "gone"), 2),
    ],
)
def test_thresholds(servers, options, code):
    servers.admin.all_cursors = [durable(pending=3, waiting=7, oldest_pending=1)]
    assert stan("check", *options).exit_code == code


@pytest.mark.parametrize(
    ("emptied", "away", "told", "step"),
    [
        ("bc", "", "Nodes b and c run and have no vote: their disks have lost what they had.", "stan cluster rescue"),
        ("b", "c", "Node b runs and has no vote: its disk has lost what it had.", "Start nodes until a majority"),
    ],
)
def test_where_disks_are_empty_no_start_is_advised_that_cannot_help(servers, emptied, away, told, step):
    def status(name):
        kind, text = ("voteless", NO_VOTE) if name in emptied else ("leaderless", NO_LEADER)
        group = pb.GroupStatus(group=1, role="follower", voters=["a", "b", "c"], trouble=text, trouble_kind=kind)
        return pb.NodeStatus(node=name, nodes=["a", "b", "c"], groups=[group], not_ready=[f"group 1: {text}"])

    servers.admin.all_nodes = Nodes([status(name) for name in "abc" if name not in away], list(away))
    page = stan("doctor").stdout
    assert f"Group 1 has no leader: its channels take and deliver nothing. {told}" in page
    assert f"-> {VOTELESS.step if step.startswith('stan') else step}" in page
    assert page.count("has lost what it had") == told.count("has lost what it had"), "each node is told once"
    groups = stan("group", "list").stdout
    assert told in groups
    assert step in groups
    assert "1 group has no leader: its channels" in groups
    assert NO_VOTE in stan("node", "show", "b").stdout
    assert told.rstrip(".") in stan("check").stdout
    servers.admin.failure = stan_client.RequestTimeoutError("late")
    assert f"{told} " in stan("channel", "list").output.replace("\n", " ")


def test_disks(servers):
    servers.admin.all_nodes = Nodes([pb.NodeStatus(disk_free=10, disk_total=100)], [])
    assert stan("check").exit_code == 1
    assert stan("check", "--disk", "9,5").exit_code == 0
    assert stan("check", "--disk", "20,10").exit_code == 2


def test_groups_without_leader_and_nodes_that_are_away_are_critical(servers):
    groups = [pb.GroupStatus(group=1, role="follower", term=4)]
    servers.admin.all_nodes = Nodes([pb.NodeStatus(node="a", groups=groups, nodes=["a", "b"])], ["b"])
    done = stan("check", "--json")
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert {one["what"] for one in found["found"]} == {"nodes", "groups"}
    assert found["figures"]["groups_without_leader"] == 1
    page = stan("doctor")
    assert page.exit_code == 1
    assert "Group 1 has no leader" in page.stdout
    assert "-> Start nodes until a majority" in page.stdout


def test_copies_that_differ_are_critical(servers):
    def node(name, digest):
        group = pb.GroupStatus(
            group=1, role="leader" if name == "a" else "follower", applied=9, hashed=7, state_hash=digest
        )
        return pb.NodeStatus(node=name, groups=[group])

    servers.admin.all_nodes = Nodes([node("a", b"x"), node("b", b"y")], [])
    assert stan("check").exit_code == 2
    assert "copies that have applied the same differ" in stan("doctor").stdout


def test_silence_is_critical_and_no_nats_unknown(servers, monkeypatch):
    servers.admin.failure = stan_client.RequestTimeoutError("late")
    assert stan("check").exit_code == 2

    def refused(*_):
        raise OSError("refused")

    monkeypatch.setattr(session, "open_direct", refused)
    done = stan("check")
    assert done.exit_code == 3
    assert done.stdout.startswith("STAN UNKNOWN")


def test_the_doctor_names_delays_that_cannot_be_moved(servers):
    servers.admin.all_channels = [channel(delay_fault=b'channel "orders" has a delay, and no target')]
    done = stan("doctor")
    assert done.exit_code == 1
    assert "Delayed messages of channel orders that are due cannot be moved" in done.stdout
    assert "-> stan policy show orders" in done.stdout


def test_the_doctor_tells_of_a_tier_that_is_away(servers):
    servers.admin.all_channels = [channel(tier=b"lake", tier_next=5, tier_kept=7)]
    done = stan("doctor")
    assert done.exit_code == 0
    assert "Channel orders keeps 7 messages more than its limits allow, for its tier lake" in done.stdout
    servers.admin.all_channels = [channel(tier=b"lake", tier_kept=7)]
    assert stan("doctor").exit_code == 1
    assert "no tierer has come yet" in stan("channel", "show", "orders").stdout
    servers.admin.all_channels = [channel(tier=b"lake", tier_next=5, tier_kept=7, tier_lost=3)]
    done = stan("doctor")
    assert done.exit_code == 1
    assert "its limits have removed 3 messages that its tier lake has not passed" in done.stdout
    assert (
        "has to pass 5; 7 messages over the limits wait for it; 3 messages" in stan("channel", "show", "orders").stdout
    )


def test_the_doctor_names_the_next_step(servers):
    servers.admin.all_cursors = [
        durable(members=[member(stalled=True, pending=5)], pending=5, oldest_pending=1),
        *(durable(f"d{number}", cursor_id=number) for number in range(9)),
    ]
    servers.admin.all_clients = [pb.ClientStatus(client_id=b"gone", failing=True)]
    servers.admin.all_nodes = Nodes([pb.NodeStatus(sync="never", store="FILE", kernel="python")], [])
    done = stan("doctor")
    assert done.exit_code == 1
    for text in (
        "3 things need attention.",
        "-> stan durable why orders acct/billing",
        "-> stan client show gone",
        "a loss of power may lose acknowledged messages",
        "and 4 more: offline",
    ):
        assert text in done.stdout
    assert json.loads(stan("doctor", "--json").stdout)["well"] is False


def test_a_state_that_a_node_has_seen_to_differ_is_critical(servers):
    group = pb.GroupStatus(group=1, role="leader", differs="the state here as of entry 7 is not that of node b")
    servers.admin.all_nodes = Nodes([pb.NodeStatus(node="a", groups=[group])], [])
    assert stan("check").exit_code == 2
    assert "a: the state here as of entry 7 is not that of node b" in stan("doctor").stdout
    servers.admin.all_channels = []
    done = stan("channel", "verify", "--all")
    assert done.exit_code == 1
    assert "Group 1: a: the state here as of entry 7 is not that of node b." in done.stdout


def test_states_of_different_versions_are_not_compared(servers):
    nodes = [
        pb.NodeStatus(node=name, product=name, groups=[pb.GroupStatus(group=1, role=role, hashed=7, state_hash=digest)])
        for name, role, digest in (("a", "leader", b"x"), ("b", "follower", b"y"))
    ]
    servers.admin.all_nodes = Nodes(nodes, [])
    assert "differ" not in stan("doctor").stdout.replace("different versions", "")


def test_the_doctor_tells_what_compaction_waits_for(servers):
    servers.admin.all_channels = [channel(compact=1, compacted_until=8, compacted_here=6)]
    done = stan("doctor")
    assert done.exit_code == 0
    assert "Channel orders is compacted up to 6 of 8" in done.stdout
    servers.admin.all_channels = [channel(compact=1, compacted_until=8, compacted_here=8, tombstone_held=5)]
    done = stan("doctor")
    assert done.exit_code == 0
    assert "compacted up to" not in done.stdout
    assert "Channel orders keeps tombstones up to 5 for a subscription without a durable name" in done.stdout


def test_the_doctor_tells_where_compression_does_not_pay(servers):
    told = {"bytes": 3 << 20, "clear_bytes": 2_100_000, "compress": 1}
    servers.admin.all_channels = [channel(**told, kept_bytes=2_000_000)]
    done = stan("doctor")
    assert done.exit_code == 0
    assert "Channel orders is compressed, and only 1.05 times smaller" in done.stdout
    servers.admin.all_channels = [channel(**told)]
    assert "Channel orders is to be compressed, and nothing of its 3 MiB is" in stan("doctor").stdout
    assert "by its policy; nothing is smaller yet" in stan("channel", "show", "orders").stdout
    for well in ({**told, "kept_bytes": 700_000}, {**told, "bytes": 1000}, {**told, "compress": 0}):
        servers.admin.all_channels = [channel(**well)]
        assert "compress" not in stan("doctor").stdout
    servers.admin.all_channels = [channel(**told, kept_bytes=700_000)]
    assert "to 684 KiB, 3.0 times smaller" in stan("channel", "show", "orders").stdout


def test_the_doctor_tells_of_batches_that_are_decompressed_again_and_again(servers):
    (node,) = servers.admin.all_nodes.answers
    node.decompressed_batches, node.decompressed_again = 3000, 1600
    done = stan("doctor")
    assert done.exit_code == 0
    assert "has decompressed 1,600 batches again, of 3,000" in done.stdout
    for batches, again in ((3000, 1400), (900, 800)):
        node.decompressed_batches, node.decompressed_again = batches, again
        assert "decompressed" not in stan("doctor").stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("--no-such-option",),
        ("--nodes", "many"),
        ("--lag", "x"),
        ("--channel", "a..b"),
        ("--context", "nowhere"),
        ("--creds", "no.creds"),
        ("--json", "--names"),
    ],
)
def test_wrong_usage_of_check_is_unknown_and_not_critical(wrong):
    assert stan("check", *wrong).exit_code == 3


def test_an_unexpected_error_of_check_is_a_line_and_unknown(servers, monkeypatch):
    async def broken(*_arguments, **_named):
        raise LookupError("no such thing")

    monkeypatch.setattr(servers.admin, "nodes", broken)
    done = stan("check")
    assert done.exit_code == 3
    assert done.stdout.startswith("STAN UNKNOWN - it could not be looked: LookupError: no such thing")


def test_a_url_that_is_none_is_one_sentence(monkeypatch):
    monkeypatch.undo()
    done = stan("check", "--server", "::::")
    assert done.exit_code == 3
    assert "'::::' is no NATS URL" in done.stdout
    listed = stan("channel", "list", "--server", "nats://127.0.0.1:notaport")
    assert listed.exit_code == 2
    assert "is no NATS URL" in listed.stderr
    assert len(listed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "doctor", "check", "dashboard"),
    [
        *(
            (kind, "broken", "CRITICAL", "bad")
            for kind in ("frozen", "full", "unheard", "differs", "one of a newer node")
        ),
        *((kind, "attention", "WARNING", "warn") for kind in ("refusing", "incomplete")),
    ],
)
def test_trouble_of_a_group_is_equally_bad_in_doctor_check_and_dashboard(kind, doctor, check, dashboard):
    group = pb.GroupStatus(group=1, role="leader", trouble="what is wrong", trouble_kind=kind, trouble_since=SECOND)
    node = pb.NodeStatus(groups=[group], not_ready=["group 1: what is wrong"])
    nodes = Nodes([node], [])
    (found,) = of_groups(nodes, 8 * SECOND)
    assert (found.level, found.text) == (doctor, "Group 1 on node (alone): what is wrong (since 7s).")
    findings = Findings()
    judge_nodes(nodes, Bounds(), findings)
    assert findings.found == [{"level": check, "what": "groups", "text": "group 1 on (alone): what is wrong"}]
    inputs = HealthInputs([node], [node], [""], {}, 0, list(node.not_ready), 1, [], [], subscribed=True, missing=set())
    levels = {problem.level for problem in problems(inputs) if "what is wrong" in problem.text}
    assert levels == {dashboard}
    assert list(of_nodes(nodes)) == [], "it is not said twice"


def test_doctor_advises_other_steps_for_a_frozen_group_than_for_a_full_disk():
    def advice(kind):
        group = pb.GroupStatus(group=1, role="leader", trouble="x", trouble_kind=kind)
        return next(of_groups(Nodes([pb.NodeStatus(groups=[group])], []), 0)).step

    assert "restart the node" in advice("frozen")
    assert "without a restart" in advice("full")
