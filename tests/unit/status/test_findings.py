"""Findings about nodes, groups and channels, their severity and next steps: one table for whoever shows them."""

import pytest
from stan_client.requests.admin import Nodes
from stan_protocol.admin_types import ClientStatus, GroupStatus, Limits, NodePlace, NodeStatus, PinStatus
from stan_protocol.scalars import SECOND

from stan.errors import NO_LEADER, NO_VOTE
from stan.status import findings
from stan.status.findings import REPLICA_LAG, Threshold
from stan.status.groups import groups_of, leaderless
from stan.troubles import FROZEN, FULL, LEADERLESS, VOTELESS, Severity
from tests.kit.fake_operator import channel

NOW = 1_700_000_000 * SECOND
NOTE, ATTENTION, BROKEN = Severity.NOTE, Severity.ATTENTION, Severity.BROKEN


def node(name="a", *groups, **fields):
    return NodeStatus(node=name, groups=groups, **fields)


def leads(number=1, **fields):
    return GroupStatus(group=number, role="leader", **fields)


def follows(number=1, **fields):
    return GroupStatus(group=number, role="follower", **fields)


def of(*nodes):
    """All findings about *nodes*, their groups and their settings; a name is that of a node that does not answer."""
    missing = [name for name in nodes if isinstance(name, str)]
    reports = Nodes([one for one in nodes if not isinstance(one, str)], missing)
    groups = groups_of(reports)
    cluster = [
        *findings.check_nodes(reports),
        *findings.check_settings(reports),
        *findings.check_groups(reports, groups),
    ]
    rest = (
        findings.check_replica_lag(groups),
        findings.check_places(reports, groups),
        findings.check_clocks(reports, NOW),
    )
    return cluster + [one for each in rest for one in each]


def voteless(name, *, emptied):
    kind, text = (VOTELESS, NO_VOTE) if emptied else (LEADERLESS, NO_LEADER)
    group = follows(voters=["a", "b", "c"], trouble=text, trouble_kind=kind.name)
    return node(name, group, not_ready=[f"group 1: {text}"])


def placed(*zones):
    places = [NodePlace(node=name, zone=zone) for name, zone in zip("abd", zones, strict=True)]
    return node("a", leads(voters=["a", "b"]), places=places)


def spread(**fields):
    return node("a", leads(), pool_open=1, **{"pool_groups": 1, **fields})


def trouble_of(kind):
    return leads(trouble="x", trouble_kind=kind)


STEPS = {"frozen": FROZEN.step, "full": FULL.step, "differs": "", "one of a newer node": ""}


EMPTIED = [voteless(name, emptied=name in "bc") for name in "abc"]
APART = node("a", leads(applied=9, hashed=7, state_hash=b"x")), node("b", follows(hashed=7, state_hash=b"y"))
BOTH = node("a", *(leads(one, trouble="x", trouble_since=SECOND) for one in (0, 2)))
CASES = [
    (BROKEN, "node", "Node b does not answer.", "Start its stan-server", node(), "b"),
    (ATTENTION, "node", "Node a is not ready: x; y.", "stan node show 'a'", node(not_ready=["x", "y"])),
    (ATTENTION, "node", "The server is not ready: x.", "", node("", not_ready=["x"])),
    (ATTENTION, "disk", "Disk of node a: 15.0% free, 15 B of 100 B.", "", node(disk_free=15, disk_total=100)),
    (BROKEN, "disk", "Disk: 5.0% free, 5 B of 100 B.", "more disk", node("", disk_free=5, disk_total=100)),
    (NOTE, "decompression", "1,600 batches again", "", node(decompressed_batches=3000, decompressed_again=1600)),
    (NOTE, "store", "a restart loses them", "-st FILE", node(store="MEMORY", sync="never")),
    (ATTENTION, "sync", "a loss of power may lose", "--sync always", node(store="FILE", sync="never")),
    (NOTE, "kernel", "plain Python", "C compiler", node(kernel="python")),
    (NOTE, "version", "different versions: 1, 2.", "Finish", node(product="1"), node("b", product="2")),
    (NOTE, "level", "all nodes know level 2", "stan node level --raise", node(level=1, level_known=2)),
    (ATTENTION, "clock", "The clock of node a differs", "NTP", node(now=NOW - 3 * SECOND)),
    (BROKEN, "leader", "Group 1 has no leader: its channels", LEADERLESS.step, node("a", follows())),
    (BROKEN, "leader", "Group 1 has no leader: its channels", "", node("a", follows(leader="a"))),
    (BROKEN, "leader", "Groups 0 (metadata) and 2 have no leader: their", "", node("a", follows(0), follows(2))),
    (BROKEN, "leader", "Nodes b and c run and have no vote: their disks have lost", VOTELESS.step, *EMPTIED),
    (BROKEN, "leader", "Node b runs and has no vote: its disk has lost", LEADERLESS.step, *EMPTIED[:2], "c"),
    (BROKEN, "copies", "copies that have applied the same differ (nodes that have", "Stop the node", *APART),
    (BROKEN, "copies", "differ (a: other than b).", "", node("a", leads(differs="other than b"))),
    (
        ATTENTION,
        "copies",
        "a copy is 20,000 entries behind.",
        "",
        node("a", leads(committed=20_000)),
        node("b", follows()),
    ),
    (ATTENTION, "zones", "two copies in zone east and none in zone west", "", placed("east", "east", "west")),
    (NOTE, "moves", "12 channels have still to move", "spread --pause", spread(channels_to_move=12)),
    (NOTE, "moves", "moves are paused", "spread --resume", spread(channels_to_move=1, moves_paused=True)),
    (NOTE, "pool", "It waits for d (does not answer); without a leader: 2.", "Start", spread(pool_groups=2), "d"),
    (BROKEN, "group", "Groups 0 (metadata) and 2 on a: x.", "", BOTH),
    *((BROKEN, "group", "Group 1: x.", step, node("", trouble_of(kind))) for kind, step in STEPS.items()),
    *((ATTENTION, "group", "Group 1: x.", "", node("", trouble_of(kind))) for kind in ("refusing", "incomplete")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2])
def test_findings_about_nodes_and_groups(case):
    severity, kind, said, step, *nodes = case
    everything = of(*nodes)
    (one,) = [one for one in everything if one.kind == kind and said in one.text]
    assert (one.severity, step in one.step) == (severity, True)
    assert all("group 1: " not in other.text for other in everything), "nothing is said twice"


WELL = [
    [node("a", leads(), disk_free=16, disk_total=100, sync="always", store="FILE", now=NOW)],
    [node(decompressed_batches=3000, decompressed_again=1400)],
    [node(decompressed_batches=900, decompressed_again=800)],
    [node("a", leads(leader="a", committed=9_999)), node("b", follows())],
    [node("a", follows(leader="b")), node("b", follows(leader="a"))],  # leadership went over between the answers
    [placed("east", "west", "west")],
    [node("a", leads(0), leads(), follows(2), pool_groups=2, pool_open=1)],  # a new group may wait for a leader
]


@pytest.mark.parametrize("nodes", WELL)
def test_no_findings_where_all_is_well(nodes):
    assert [one for one in of(*nodes) if one.kind != "pool"] == []


def test_states_of_different_versions_are_not_compared():
    nodes = [node("a", leads(hashed=7, state_hash=b"x"), product="1"), node("b", follows(hashed=7, state_hash=b"y"))]
    assert "copies" not in {one.kind for one in of(*nodes)}


def test_a_leader_that_does_not_answer_is_none():
    reports = Nodes([node("a", follows(leader="b"))], ["b"])
    assert [group.number for group in leaderless(groups_of(reports, 2))] == [0, 1, 2], (
        "also without a copy that reports"
    )


def test_thresholds():
    bounds = Threshold(5, 20)
    assert [bounds.severity(value) for value in (4, 5, 20)] == [Severity.FINE, ATTENTION, BROKEN]
    assert [bounds.severity(value, below=True) for value in (21, 20, 5)] == [Severity.FINE, BROKEN, BROKEN]
    assert REPLICA_LAG.severity(1 << 40) == ATTENTION


COMPRESSED = {"bytes": 3 << 20, "clear_bytes": 2_100_000, "compress": 1}
COMPACTED = {"compact": 1, "compacted_until": 8, "compacted_here": 8}
TIER = {"tier": "lake", "tier_next": 5, "tier_kept": 7}


@pytest.mark.parametrize(
    ("fields", "severity", "said"),
    [
        (
            {"delay_fault": "no target"},
            ATTENTION,
            "Delayed messages of channel orders that are due cannot be moved: no",
        ),
        (TIER, NOTE, "keeps 7 messages more than its limits allow, for its tier lake"),
        (TIER | {"tier_next": 0}, ATTENTION, "keeps 7 messages more"),
        (TIER | {"tier_lost": 3}, BROKEN, "have removed 3 messages that its tier lake has not passed"),
        (COMPACTED | {"compacted_here": 6}, NOTE, "Channel orders is compacted up to 6 of 8"),
        (COMPACTED | {"tombstone_held": 5}, NOTE, "keeps tombstones up to 5 for a subscription without a durable name"),
        (COMPRESSED | {"kept_bytes": 2_000_000}, NOTE, "Channel orders is compressed, and only 1.05 times smaller"),
        (COMPRESSED, NOTE, "Channel orders is to be compressed, and nothing of its 3 MiB is"),
        ({"limits": Limits(max_subs=3), "subscriptions": 2, "offline": 1}, ATTENTION, "has all 3 subscriptions"),
        (COMPRESSED | {"kept_bytes": 700_000}, None, ""),
        (COMPRESSED | {"bytes": 1000}, None, ""),
        (COMPRESSED | {"compress": 0}, None, ""),
        (COMPACTED, None, ""),
    ],
)
def test_findings_about_channels(fields, severity, said):
    found = list(findings.check_channels([channel(**fields)]))
    assert [(one.severity, said in one.text) for one in found] == ([(severity, True)] if severity else [])


def test_pins_and_clients():
    pins = [PinStatus(channel="c", exists=True, group=2, group_now=now, moving=now == 3) for now in (1, 2, 3)]
    assert [one.severity for one in findings.check_pins(pins)] == [ATTENTION, NOTE]
    (one,) = findings.check_clients([ClientStatus(client_id="gone", failing=True), ClientStatus(client_id="well")])
    assert (one.text, one.step) == ("Client gone does not answer heartbeats.", "stan client show gone")
