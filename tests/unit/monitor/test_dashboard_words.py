"""What the dashboard says: health in a sentence, lag trends, and what is known of nodes."""

from dataclasses import replace

import pytest
from stan_protocol.admin_types import CursorKind, CursorStatus, GroupStatus, MemberStatus, NodeStatus, ReplicaStatus
from stan_protocol.scalars import SECOND

from stan import limits
from stan.monitor.dashboard.formatting import key_of, name_of_key
from stan.monitor.dashboard.health_summary import FindingTimes, HealthInputs, problems, sentence
from stan.monitor.dashboard.lag_trend import LagTrends
from stan.monitor.dashboard.measured_history import COLUMNS
from stan.monitor.dashboard.node_history import NodeHistory
from stan.status.findings import listed
from stan.troubles import Severity

NOW = 1_700_000_000 * SECOND


def cursor(*, members=1, failing=0, **told):
    told = {"max_in_flight": 10, "ack_wait_s": 30, **told}
    wait = told["ack_wait_s"]
    found = [
        MemberStatus("c", max_in_flight=10, window_now=10, ack_wait_s=wait, failing=n < failing) for n in range(members)
    ]
    return CursorStatus(channel="orders", cursor_id=1, kind=CursorKind.DURABLE, members=found, **told)


# --- lag_trends -------------------------------------------------------------------------------------------------------------


def test_trend_tells_how_long_it_takes():
    lag_trends = LagTrends()
    for second, lag in ((0, 1000), (10, 900), (20, 800)):
        lag_trends.note([cursor(waiting=lag)], NOW + second * SECOND)
    assert lag_trends.left_s(cursor(waiting=800)) == pytest.approx(80)
    assert [lag for _, lag in lag_trends.points(cursor())] == [1000, 900, 800]
    assert lag_trends.windows(cursor())[-1] == (NOW + 20 * SECOND, 10)
    assert lag_trends.left_s(cursor()) is None
    lag_trends.note([cursor(waiting=5000)], NOW + 30 * SECOND)
    assert lag_trends.left_s(cursor(waiting=5000)) is None


def test_trends_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_LAG_TRENDS_MAX", 3)
    monkeypatch.setattr(limits, "DASHBOARD_SAMPLES_MAX", 4)
    lag_trends = LagTrends()
    for at in range(10):
        lag_trends.note([CursorStatus(channel="c", cursor_id=number) for number in range(5)], NOW + at)
    kept = [number for number in range(5) if lag_trends.points(CursorStatus(channel="c", cursor_id=number))]
    assert kept == [2, 3, 4]
    assert len(lag_trends.points(CursorStatus(channel="c", cursor_id=4))) <= 4


# --- health -------------------------------------------------------------------------------------------------------------


def node(name, *, groups=3, leads=(), **told):
    found = [GroupStatus(number, "leader" if number in leads else "follower") for number in range(groups)]
    return NodeStatus(node=name, nodes=["n1", "n2", "n3"] if name else [], groups=found, **told)


def inputs(**told):
    nodes = told.setdefault("nodes", [node("n1", leads=(0,)), node("n2", leads=(1,)), node("n3", leads=(2,))])
    usual = {
        "answers": [one for one in nodes if one.node not in told.get("missing", {})],
        "members": ["n1", "n2", "n3"],
        "missing": {},
        "deaf": 0,
        "own": [],
        "pool": 2,
        "stuck": [],
        "lagging": [],
        "subscribed": True,
        "unreported": set(),
        "now": NOW,
    }
    return HealthInputs(**{**usual, **told})


def said(shown):
    return sentence(shown, problems(shown))


def test_sentences_of_a_cluster_that_is_well():
    assert said(inputs()) == "Everything works: 3 of 3 nodes, all 3 groups have leaders, nobody lags behind."
    alone = inputs(nodes=[node("", groups=2, leads=(0, 1))], members=[""], pool=1, subscribed=False)
    assert said(alone) == "Everything works: this node is ready, nobody is subscribed."
    assert said(inputs(nodes=[], members=[])) == "Nothing is known yet of this cluster"


def test_what_is_wrong_is_told_worst_first():
    stuck = cursor(pending=10, oldest_pending=NOW - 100 * SECOND, durable_name="billing", client_id="c")
    stuck = replace(stuck, members=[replace(one, stalled=True) for one in stuck.members])
    shown = inputs(
        nodes=[node("n1", leads=(0,)), node("n2", leads=(1,), disk_free=5, disk_total=100)],
        missing={"n3": NOW - 9 * SECOND},
        stuck=[stuck],
    )
    found = problems(shown)
    assert [(problem.severity, problem.text) for problem in found] == [
        (Severity.BROKEN, "Node n3 does not answer."),
        (Severity.BROKEN, "Disk of node n2: 5.0% free, 5 B of 100 B."),
        (Severity.BROKEN, "Group 2 has no leader: its channels take and deliver nothing."),
        (Severity.ATTENTION, "Durable c/billing of channel orders is stuck; 10 messages wait."),
    ]
    assert said(shown) == "Node n3 does not answer (and 3 more problems)."
    assert found[-1].since == stuck.oldest_pending
    assert found[0].since == NOW - 9 * SECOND


def test_trouble_of_a_group_and_reasons_of_a_node_are_told_once():
    bad = node("n1", leads=(0, 1, 2), not_ready=["it is shutting down", "group 1: the disk failed: EIO"])
    bad.groups[1:] = [replace(group, trouble="the disk failed: EIO") for group in bad.groups[1:]]
    shown = inputs(nodes=[bad, node("n2"), node("n3")], own=list(bad.not_ready))
    texts = [problem.text for problem in problems(shown)]
    assert texts == [
        "The node you look at is not ready: it is shutting down.",
        "Groups 1 and 2 on n1: the disk failed: EIO.",
    ]
    texts = [problem.text for problem in problems(shown._replace(own=[]))]
    assert texts == ["Groups 1 and 2 on n1: the disk failed: EIO.", "Node n1 is not ready: it is shutting down."]
    (missing,) = problems(inputs(unreported={2}))
    assert missing.text == "The leader of group 2 does not answer, their channels are not shown."
    (own,) = problems(inputs(own=["there is no connection to NATS"]))
    assert own.text == "The node you look at is not ready: there is no connection to NATS."


def test_lost_majority_is_one_sentence_with_since_when():
    alone = node("n1", not_ready=[f"group {number}: it has no leader" for number in range(3)])
    alone.groups[:] = [replace(one, trouble="it has no leader", voters=["n1", "n2", "n3"]) for one in alone.groups]
    silent = {"n2": NOW - 90 * SECOND, "n3": NOW - 60 * SECOND}
    shown = inputs(nodes=[alone], missing=silent, own=list(alone.not_ready), unreported={1, 2})
    (problem,) = problems(shown)
    assert problem.text == "2 of 3 nodes do not answer (n2 and n3): nothing is accepted."
    assert problem.since == NOW - 60 * SECOND
    (one, *_) = problems(shown._replace(missing={"n3": NOW}))
    assert one.text == "Node n3 does not answer."


def test_since_when_stays_while_a_problem_does_and_begins_anew():
    since, rest = FindingTimes(), node("n3")
    found = problems(inputs(nodes=[node("n1", leads=(0,)), node("n2"), rest]))
    assert [one.text for one in found] == ["Groups 1 and 2 have no leader: their channels take and deliver nothing."]
    assert since.of(found, NOW)[0].since == NOW
    fewer = problems(inputs(nodes=[node("n1", leads=(0, 1)), node("n2"), rest]))
    assert [(one.keys, one.since) for one in since.of(fewer, NOW + 1)] == [(("leader:2",), NOW)]
    since.of([], NOW + 2)
    assert since.of(found, NOW + 3)[0].since == NOW + 3


# --- nodes --------------------------------------------------------------------------------------------------------------

NAMES = ("n1", "n2", "n3")


def asked(history, at, *names, refused=()):
    """A round of asking that begins at *at* s and is answered by *names*."""
    history.note([node(name, now=NOW + at * SECOND) for name in names], refused, at * SECOND, NOW + at * SECOND)


def test_node_is_silent_when_it_failed_to_answer_so_often_since_it_failed_first():
    history = NodeHistory("n1")
    asked(history, 1, *NAMES)
    for times in range(limits.DASHBOARD_FAILURES):
        assert not history.silent()
        assert history.doubted() == (times > 0)
        asked(history, 100 + times, "n1", "n2")
    assert history.silent() == {"n3": NOW + 100 * SECOND}
    assert [status.node for status in history.present()] == ["n1", "n2"]
    asked(history, 200, *NAMES)
    assert not history.silent()
    assert not history.doubted()


def test_node_that_nobody_asked_is_not_silent_however_long_ago_it_was_heard():
    history = NodeHistory("n1")
    asked(history, 1, *NAMES)
    asked(history, 4000, "n1", "n2")
    asked(history, 8000, "n1", "n3")
    asked(history, 12000, *NAMES)
    asked(history, 16000, "n1", "n2")
    assert not history.silent()
    assert [status.node for status in history.present()] == list(NAMES)
    assert [status.node for status in history.fresh()] == ["n1", "n2"]


def test_round_in_which_who_asks_is_not_heard_tells_of_nobody():
    history = NodeHistory("n1")
    asked(history, 1, *NAMES)
    for times in range(limits.DASHBOARD_FAILURES + 1):
        asked(history, 10 + times)
    assert not history.silent()
    assert history.deaf() == NOW + 10 * SECOND
    assert history.rates is None
    (problem,) = problems(inputs(nodes=history.present(), deaf=history.deaf(), own=[]))
    assert problem.text == "This node does not hear itself over NATS: nothing is known of the cluster."
    assert problem.since == NOW + 10 * SECOND
    asked(history, 20, *NAMES)
    assert not history.deaf()


def test_node_that_refuses_for_now_is_there():
    history = NodeHistory("n1")
    asked(history, 1, *NAMES)
    for times in range(limits.DASHBOARD_FAILURES + 1):
        asked(history, 2 + times, "n2", refused=["n1", "n3"])
    assert not history.silent()
    assert not history.deaf()
    assert [status.node for status in history.present()] == list(NAMES)


def test_node_that_never_answered_is_silent_after_as_many_asks():
    history = NodeHistory("n1")
    for times in range(limits.DASHBOARD_FAILURES):
        assert not history.silent()
        asked(history, 1 + times, "n1")
    assert history.silent() == {"n2": NOW + SECOND, "n3": NOW + SECOND}


def test_rates_are_those_between_two_answers_and_a_restart_is_no_burst():
    history = NodeHistory("n1")
    first = NodeStatus(node="n1", server_id="a", now=NOW, messages_in=1000)
    second = NodeStatus(node="n1", server_id="a", now=NOW + 2 * SECOND, messages_in=1500, bytes_in=10)
    again = NodeStatus(node="n1", server_id="b", now=NOW + 4 * SECOND, messages_in=5)
    for at, status in enumerate((first, second, again)):
        history.note([status], [], at + 1, status.now)
    (sample,) = history.measured.tiers["hour"].points
    figures = dict(zip(COLUMNS, sample.values, strict=True))
    assert (figures["messages_in"], figures["bytes_in"]) == (250, 5)


def test_figures_say_how_many_servers_are_silent_and_how_far_followers_are_behind():
    history = NodeHistory("n1")
    replicas = [
        ReplicaStatus(node="n1", match=90),
        ReplicaStatus(node="n2", match=70),
        ReplicaStatus(node="n3", match=95),
    ]
    leader = GroupStatus(group=1, role="leader", last_index=90, replicas=replicas)
    for times in range(limits.DASHBOARD_FAILURES + 2):
        at = NOW + 2 * times * SECOND
        status = NodeStatus(node="n1", server_id="a", now=at, nodes=["n1", "n2"], groups=[leader, GroupStatus(group=2)])
        history.note([status], [], at, at)
    figures = dict(zip(COLUMNS, history.measured.tiers["hour"].points[-1].values, strict=True))
    assert (figures["silent"], figures["behind"]) == (1, 20)


# --- words --------------------------------------------------------------------------------------------------------------


def test_names_in_a_sentence():
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize("name", [b"orders", b"\xff\x00%", "ü.ö".encode(), bytes(range(256))])
def test_keys_lead_back_to_names_and_are_ascii(name):
    key = key_of(name.decode("utf-8", "surrogateescape"))
    assert key.isascii()
    assert name_of_key(key) == name
