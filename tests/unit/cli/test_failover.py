"""`stan bench failover` without a cluster: what is read from logs, pauses, and the report."""

import pytest
from stan_bench.bench.bench_failover import FailoverReport, spread_of
from stan_bench.bench.failover import Pauses, Round
from stan_bench.demo_tally import Figure
from stan_bench.local_cluster import group_of, leads

MS = 1_000_000


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("", {}),
        ("[1] [INF] STREAM: group 3: leads in term 7\n", {3: 7}),
        ("group 3: leads in term 7\ngroup 3: leads no more\n", {}),
        (
            "group 3: leads in term 7\ngroup 3: leads no more\ngroup 3: leads in term 9\ngroup 0: leads in term 1\n",
            {3: 9, 0: 1},
        ),
        ("group 3: leads in term 1", {}),  # the line may go on
        ("group 13: leads in term 12\n", {13: 12}),
    ],
)
def test_leaderships_are_read_from_a_log(log, found):
    assert leads(log) == found


def test_channel_is_in_one_of_eight_groups():
    assert {group_of(f"channel-{number}") for number in range(1000)} == set(range(1, 9))


def test_pause_counts_from_the_last_event_before_the_measurement():
    pauses = Pauses()
    pauses.note(10 * MS)
    pauses.begin()
    pauses.note(500 * MS)
    pauses.note(501 * MS)
    assert pauses.longest_ns == 490 * MS
    pauses.begin()
    pauses.note(503 * MS)
    assert pauses.longest_ns == 2 * MS


def test_first_event_ends_no_pause():
    pauses = Pauses()
    pauses.note(10 * MS)
    assert pauses.longest_ns == 0


@pytest.mark.parametrize(
    ("values", "median", "p90", "most"),
    [
        ([5.0], 5, 5, 5),
        ([1.0, 3.0], 2, 3, 3),
        ([9.0, 1.0, 5.0, 7.0, 3.0], 5, 9, 9),
        ([float(number) for number in range(1, 11)], 5.5, 9, 10),
        ([float(number) for number in range(1, 12)], 6, 10, 11),
    ],
)
def test_spread_is_median_ninetieth_percentile_and_maximum(values, median, p90, most):
    assert spread_of(values) == {"median": median, "p90": p90, "max": most}


def test_spread_of_nothing_is_nothing():
    assert spread_of([]) == {}


def a_round(gap: float) -> Round:
    return Round(
        killed="n1",
        led=True,
        leader="n2",
        gap_ms=gap,
        latency_ms=gap + 1,
        delivery_gap_ms=gap + 2,
        back_ms=900,
        back_gap_ms=3,
    )


def report(*figures: Figure) -> FailoverReport:
    return FailoverReport(
        settings={"nodes": 3},
        rounds=[a_round(800), a_round(1000)],
        figures=list(figures),
        errors={"stan: publish ack timeout": 2},
    )


GOOD = (Figure("acknowledged", 10, holds=True), Figure("lost", 0, holds=True))


def test_report_tells_times_errors_and_counts():
    assert report(*GOOD).lines() == [
        "Without ack: median 900 ms | p90 1,000 ms | max 1,000 ms",
        "Longest publish: median 901 ms | p90 1,001 ms | max 1,001 ms",
        "Without delivery: median 902 ms | p90 1,002 ms | max 1,002 ms",
        "Without ack while the node returns: median 3 ms | p90 3 ms | max 3 ms",
        "Publishes that failed: 2",
        "  stan: publish ack timeout: 2",
        "Acknowledged: 10",
        "Lost: 0",
    ]


def test_report_as_json_has_the_same_numbers():
    shown = report(*GOOD, Figure("durable: unexplained repeats", 0, holds=True)).to_json()
    assert shown["nodes"] == 3
    assert shown["gap_ms"] == {"median": 900.0, "p90": 1000.0, "max": 1000.0}
    assert shown["publish_latency_ms"]["max"] == 1001.0
    assert (shown["errors"], shown["lost"], shown["unexplained_repeats"], shown["holds"]) == (2, 0, 0, True)
    assert [each["gap_ms"] for each in shown["rounds"]] == [800, 1000]


def test_report_holds_only_if_every_figure_does():
    assert report(*GOOD).holds
    assert not report(*GOOD, Figure("lost", 1, holds=False)).holds
    assert not report().holds
    assert report(Figure("lost", 1, holds=False)).lines()[-1] == "Lost: 1   NOT AS PROMISED"
