"""Problems that have just begun, and the nodes that come and go: what the dashboard makes of them."""

from stan_protocol.admin_types import NodeStatus

from stan import limits
from stan.monitor.dashboard.health_summary import FindingTimes
from stan.monitor.dashboard.node_history import NodeHistory, NodeNews
from stan.status.findings import Finding
from stan.troubles import Severity

SECOND = 1_000_000_000
NOW = 10**18


def test_a_problem_is_a_warning_until_it_has_lasted():
    times = FindingTimes()
    lost, stuck = Finding(Severity.BROKEN, "group", "lost"), Finding(Severity.ATTENTION, "stuck", "stuck")
    young = times.of([lost, stuck], NOW)
    assert [one.severity for one in young] == [Severity.ATTENTION, Severity.ATTENTION]
    later = times.of([stuck, lost], NOW + limits.DASHBOARD_RED_AFTER)
    assert [(one.text, one.severity, one.since) for one in later] == [
        ("lost", Severity.BROKEN, NOW),
        ("stuck", Severity.ATTENTION, NOW),
    ]


def test_a_problem_that_is_reported_with_its_beginning_is_red_at_once_if_it_has_lasted():
    begun = NOW - limits.DASHBOARD_RED_AFTER
    (found,) = FindingTimes().of([Finding(Severity.BROKEN, "node", "gone", since=begun)], NOW)
    assert (found.severity, found.since) == (Severity.BROKEN, begun)


def test_nodes_that_stop_to_answer_and_answer_again_are_news_once_each():
    history = NodeHistory("n1")
    nodes = ("n1", "n2")

    def asked(second, *there):
        answers = [NodeStatus(node=name, nodes=nodes, server_id=name) for name in there]
        history.note(answers, [], second * SECOND + 1, NOW + second * SECOND)

    asked(0, *nodes)
    for second in range(1, 6):
        asked(second, "n1")
    asked(6, *nodes)
    asked(7, *nodes)
    assert list(history.news) == [
        NodeNews(NOW + SECOND, "n2", answers=False),
        NodeNews(NOW + 6 * SECOND, "n2", answers=True),
    ]
