"""`stan bench --compare`, without servers: what its options mean, and what it tells of the runs of two servers."""

from pathlib import Path

import pytest
from stan_bench.bench.bench_compare import Comparison
from stan_bench.bench.bench_compare_report import ComparedServer, ComparisonReport
from stan_bench.bench.bench_report import BenchReport, Measurement

from stan.cli.support.common import Target

URL = "nats://b:4222"


def sample(rate: int, **more) -> Measurement:
    """1,000 messages at *rate* messages a second."""
    return Measurement(name="x", messages=1000, size=1024, began_ns=0, ended_ns=10**12 // rate, **more)


def report(ours: list[BenchReport], others: list[BenchReport], *, own: bool = False) -> ComparisonReport:
    channels = [
        [f"c.{letter}{number}" for number, _ in enumerate(runs, 1)] for letter, runs in (("a", ours), ("b", others))
    ]
    a = ComparedServer(
        letter="A", url="nats://a", facts={"cluster_id": "ca"}, kept=not own, channels=channels[0], runs=ours
    )
    return ComparisonReport(
        a, ComparedServer(letter="B", url="nats://b", facts={"cluster_id": "cb"}, channels=channels[1], runs=others)
    )


def publishing(*rates: int) -> list[BenchReport]:
    return [BenchReport(publishers=[sample(rate)]) for rate in rates]


# --- report --------------------------------------------------------------------------------------------------------


def test_rates_are_medians_and_the_ratio_has_the_spread_of_the_rounds():
    found = report(publishing(1000, 4000, 2000), publishing(1000, 1000, 500))

    assert found.lines() == [
        "Pub A: median 2,000 msgs/sec ~ 1.95 MB/sec",
        "Pub B: median 1,000 msgs/sec ~ 1000.00 KB/sec",
        "Pub A/B: 2.00 (rounds 1.00 to 4.00)",
        "Left behind at nats://a: 3 channels, c.a1 to c.a3",
        "Left behind at nats://b: 3 channels, c.b1 to c.b3",
    ]
    assert found.round_line() == " [3] Pub A 2,000 | B 500 msgs/sec | A/B 4.00"


def test_latencies_are_of_all_publishes_of_all_rounds():
    slow = [BenchReport(publishers=[sample(1000, latencies={1_000_000: 98})])]
    slow.append(BenchReport(publishers=[sample(1000, latencies={1_000_000: 100, 64_000_000: 2})]))
    found = report(slow, publishing(1000, 1000))

    assert found.lines()[0].endswith(" | p50 1.00 ms | p99 1.00 ms")
    assert found.to_json()["publishers"]["a"]["latency_ms"] == {"p50": 1.0, "p90": 1.0, "p99": 1.0, "p99.9": 64.0}
    assert "latency_ms" not in found.to_json()["publishers"]["b"]


def test_what_subscribers_should_not_have_got_is_told_of_the_server_that_sent_it():
    good = BenchReport(publishers=[sample(1000)], subscribers=[sample(500)])
    bad = BenchReport(publishers=[sample(1000)], subscribers=[sample(1000, redelivered=3, out_of_order=True)])

    lines = report([good, good], [good, bad], own=True).lines()

    assert lines[3:] == [
        "Sub A: median 500 msgs/sec ~ 500.00 KB/sec",
        "Sub B: median 750 msgs/sec ~ 750.00 KB/sec",
        "Sub A/B: 0.67 (rounds 0.50 to 1.00)",
        "B: 3 msgs redelivered",
        "B: out of order, some sequences did not go up",
        "Left behind at nats://b: 2 channels, c.b1 to c.b2",
    ]


def test_runs_that_are_too_short_are_told_and_small_ratios_are_kept():
    found = report(publishing(1000), publishing(100_000_000), own=True)

    assert "B: less than 0.1 s in some runs; measure more messages (-n)" in found.lines()
    assert not any(line.startswith("A:") for line in found.lines())
    assert found.to_json()["publishers"]["ratio"]["of_medians"] == 1e-05


def test_everything_is_in_the_json():
    found = report(publishing(1000), publishing(500), own=True).to_json()

    assert found["servers"] == {
        "a": {"url": "nats://a", "cluster_id": "ca"},
        "b": {"url": "nats://b", "cluster_id": "cb"},
    }
    assert found["publishers"] == {
        "a": {"msgs_per_s": 1000.0},
        "b": {"msgs_per_s": 500.0},
        "ratio": {"of_medians": 2.0, "min": 2.0, "max": 2.0},
    }
    assert "subscribers" not in found
    assert [one["b"]["publishers"]["msgs_per_s"] for one in found["rounds"]] == [500.0]
    assert found["left_behind"] == {"a": [], "b": ["c.b1"]}


def test_one_channel_that_is_left_is_named_and_none_is_not_told():
    assert report(publishing(1000), [], own=True).left_behind() == []
    assert report([], publishing(1000)).left_behind() == ["Left behind at nats://b: 1 channel, c.b1"]


def test_a_server_with_a_title_is_named_by_it_and_streams_are_streams():
    other = ComparedServer(letter="B", url="nats://b", title="JetStream, 1 replica", holders="stream", channels=["s1"])

    assert str(other) == "JetStream, 1 replica at nats://b"
    assert other.left_behind() == "Left behind at nats://b: 1 stream, s1"


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "complaints"),
    [
        (Comparison(), []),
        (Comparison(URL, "other", rounds=1), []),
        (
            Comparison(None, "other", rounds=3),
            [
                "--compare-cluster-id goes with --compare.",
                "--rounds goes with --compare or --compare-jetstream.",
            ],
        ),
        (
            Comparison("", rounds=0),
            ["--compare needs the NATS URL of the other server.", "--rounds is from 1 to 1000."],
        ),
        (Comparison(jetstream="default", rounds=1), []),
        (Comparison(jetstream="always"), []),
        (Comparison(jetstream=URL, replicas=5), []),
        (
            Comparison(jetstream="sometimes", cluster_id="other"),
            [
                "--compare-cluster-id goes with --compare.",
                "--compare-jetstream is default, always, or a NATS URL (nats://host:port).",
            ],
        ),
        (
            Comparison(URL, jetstream="always", replicas=6),
            [
                "--compare and --compare-jetstream do not go together: a comparison has two servers.",
                "--compare-replicas goes with the URL of --compare-jetstream.",
                "--compare-replicas is from 1 to 5.",
            ],
        ),
        (Comparison(replicas=1), ["--compare-replicas goes with the URL of --compare-jetstream."]),
    ],
)
def test_complaints_name_the_options(comparison, complaints):
    assert comparison.complaints() == complaints


def test_the_other_server_gets_the_same_cluster_id_and_credentials():
    target = Target(server="nats://a:4222", cluster_id="ours", user="u", password="p", tls_ca=Path("ca.pem"))  # noqa: S106

    other = Comparison(URL).server_b(target)

    assert (other.server, other.cluster_id) == (URL, "ours")
    assert other.nats_options() == target.nats_options()
    assert Comparison(URL, "theirs").server_b(target).cluster_id == "theirs"


def test_a_url_with_credentials_gets_no_others():
    target = Target(creds=Path("a.creds"), nkey=Path("a.nk"), user="u", password="p", token="t", tls_ca=Path("ca.pem"))  # noqa: S106

    for comparison in (Comparison("nats://me:mine@b:4222"), Comparison(jetstream="nats://me:mine@b:4222")):
        assert comparison.server_b(target).nats_options() == {"tls_ca": "ca.pem"}
