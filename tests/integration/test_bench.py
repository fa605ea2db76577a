"""`stan bench`: its report as pure functions; whole runs with load processes against a fake broker, NATS and the real broker."""

import asyncio
import csv
import json
import os
import sys

import nats
import pytest
from stan_bench.bench.bench_report import BenchReport, Measurement, add_latency, human_bytes, percentile
from stan_bench.bench.bench_run import shares

from tests.kit.fake_broker import free_port
from tests.kit.running import settled
from tests.kit.server import NatsServer, StanServer


async def bench(*arguments: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stan.cli.main", "bench", *arguments, stdout=pipe, stderr=pipe, env=environment
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 90)
    finally:
        if process.returncode is None:
            process.terminate()  # it takes along what it has started
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def sample(name: str, messages: int, began_s: float, ended_s: float, **more) -> Measurement:
    return Measurement(
        name=name, messages=messages, size=128, began_ns=int(began_s * 1e9), ended_ns=int(ended_s * 1e9), **more
    )


# --- report --------------------------------------------------------------------------------------------------------


def test_report_of_publishers_and_subscribers_has_the_form_of_stan_bench() -> None:
    latencies: dict[int, int] = {}
    add_latency(latencies, 1_000_000, 99)
    add_latency(latencies, 64_000_000, 1)
    report = BenchReport(
        publishers=[sample("p1", 1000, 10, 11, latencies=latencies), sample("p2", 1000, 10, 12)],
        subscribers=[sample("s1", 2000, 10, 14)],
    )

    assert report.lines() == [
        "NATS Streaming Pub/Sub stats: 1,000 msgs/sec ~ 125.00 KB/sec",
        " Pub stats: 1,000 msgs/sec ~ 125.00 KB/sec",
        "  [1] 1,000 msgs/sec ~ 125.00 KB/sec (1000 msgs)",
        "  [2] 500 msgs/sec ~ 62.50 KB/sec (1000 msgs)",
        "  min 500 | avg 750 | max 1,000 | stddev 250 msgs",
        " Sub stats: 500 msgs/sec ~ 62.50 KB/sec",
        " Pub latency: p50 1.00 ms | p99 1.00 ms",
    ]


def test_report_of_publishers_alone_is_not_indented() -> None:
    assert BenchReport(publishers=[sample("p1", 1000, 0, 1)]).lines() == [
        "NATS Streaming Pub stats: 1,000 msgs/sec ~ 125.00 KB/sec"
    ]


def test_report_tells_oddities_and_the_share_of_raw_nats() -> None:
    subscribers = [sample("s1", 1000, 0, 1, redelivered=3, out_of_order=True)]

    lines = BenchReport(subscribers=subscribers, raw=[sample("r", 4000, 0, 1)]).lines()

    assert lines[1:] == [
        "Redelivered: 3 msgs",
        "Out of order: some sequences did not go up",
        "Raw NATS pub->sub: 4,000 msgs/sec ~ 500.00 KB/sec",
        "Sub / raw NATS: 0.25",
    ]


def test_latencies_keep_two_digits_and_percentiles_weigh_messages() -> None:
    latencies: dict[int, int] = {}
    for nanos, messages in ((1_234_567, 98), (9_876_543_210, 2)):
        add_latency(latencies, nanos, messages)

    assert percentile(latencies, 0.5) == pytest.approx(1_234_567, rel=0.016)
    assert percentile(latencies, 0.98) == percentile(latencies, 0.5)
    assert percentile(latencies, 0.981) == pytest.approx(9_876_543_210, rel=0.016)
    assert percentile({}, 0.5) == 0


def test_samples_survive_json() -> None:
    before = sample("p", 3, 1, 2, latencies={1000: 3})

    assert Measurement.from_json(json.loads(json.dumps(before.to_json()))) == before


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.00 B"), (1023, "1023.00 B"), (1024, "1.00 KB"), (21632000, "20.63 MB")]
)
def test_bytes_are_told_in_powers_of_1024(count, text) -> None:
    assert human_bytes(count) == text


def test_shares_differ_by_one_at_most_and_lose_nothing() -> None:
    assert shares(10, 3) == [4, 3, 3]
    assert shares(2, 3) == [1, 1, 0]
    assert shares(5, 0) == []


# --- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["kernel", "python"])
async def test_publishers_and_subscribers_move_all_messages(nats_url, broker, tmp_path, client) -> None:
    file = tmp_path / "bench.csv"
    code, out, err = await bench(
        *["ch", "-n", "300", "-np", "2", "-ns", "2", "-ms", "16", "-mpa", "50", "-s", nats_url],
        *["--processes", "2", "--client", client, "-csv", str(file), "-id", "load"],
    )

    assert (code, err) == (0, "")
    assert [len(message.data) for message in broker.channels["ch"]] == [16] * 300
    assert len(broker.acks) == 600
    assert broker.clients == {}
    lines = out.splitlines()
    assert lines[0] == "Starting benchmark [msgs=300, msgsize=16, pubs=2, subs=2]"
    assert lines[1].startswith("NATS Streaming Pub/Sub stats: ")
    assert sum("(150 msgs)" in line for line in lines) == 2
    assert sum("(300 msgs)" in line for line in lines) == 2
    with file.open() as rows:
        assert [row["MsgCount"] for row in csv.DictReader(rows)] == ["150", "150", "300", "300"]


async def test_replay_publishes_first_and_reads_from_the_beginning(nats_url, broker) -> None:
    code, out, _ = await bench("ch", "-n", "200", "-ns", "1", "--replay", "--json", "-s", nats_url)

    shown = json.loads(out)
    assert code == 0
    assert shown["publishers"]["messages"] == shown["subscribers"]["messages"] == 200
    assert shown["subscribers"]["in_order"] is True
    assert shown["publishers"]["latency_ms"]["p50"] > 0
    kinds = [kind for kind, _ in broker.requests]
    assert kinds == ["connect", "close", "connect", "close", "connect", "sub", "close"]


async def test_sync_waits_for_each_ack(nats_url, broker) -> None:
    broker.mute.add("pub")

    for seconds in (3, 6, 12, 24):  # on a busy machine the load process may start late
        code, _, err = await bench("ch", "-n", "10", "-sync", "--timeout", str(seconds), "-s", nats_url)
        assert code == 1
        assert f"Not done after {seconds} s" in err
        if broker.publishes:
            break
    assert len(broker.publishes) == 1
    assert broker.clients == {}


async def test_ignore_old_counts_new_messages_only(nats_url, broker) -> None:
    await bench("ch", "-n", "50", "-s", nats_url)

    code, _, _ = await bench("ch", "-n", "60", "-ns", "1", "-io", "-s", nats_url)

    assert code == 0
    assert [sequence for _, sequence in broker.acks] == list(range(51, 111))


async def test_refused_publishes_fail_the_run_with_the_servers_answer(nats_url, broker) -> None:
    broker.refuse["pub"] = "too many channels"

    code, _, err = await bench("ch", "-n", "10", "-s", nats_url)

    assert code == 1
    assert "refused" in err


async def test_raw_measures_nats_and_prints_ratios(nats_url, broker) -> None:
    code, out, _ = await bench("ch", "-n", "100", "--raw", "-s", nats_url)

    assert code == 0
    assert "Raw NATS pub->sub: " in out
    assert "Pub / raw NATS: " in out


async def test_server_that_does_not_run_is_told() -> None:
    code, _, err = await bench("ch", "-n", "1", "-s", f"nats://127.0.0.1:{free_port()}")

    assert code == 3
    assert "Cannot connect" in err


async def test_own_broker_is_started_measured_and_stopped() -> None:
    code, out, err = await bench("ch", "-n", "2000", "-np", "2", "-ns", "1", "--start", "--json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["publishers"]["messages"] == shown["subscribers"]["messages"] == 2000
    assert shown["subscribers"]["in_order"] is True


async def test_own_cluster_is_started_measured_and_stopped() -> None:
    code, out, err = await bench("ch", "-n", "2000", "-np", "2", "-ns", "1", "--cluster", "3", "--json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["publishers"]["messages"] == shown["subscribers"]["messages"] == 2000
    assert shown["subscribers"]["in_order"] is True


async def test_read_replicas_serve_the_subscribers_and_the_servers_cpu_is_told() -> None:
    code, out, err = await bench("ch", "-n", "500", "-ns", "4", "--cluster", "1", "--replicas", "1", "--json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["subscribers"]["messages"] == 4 * 500
    assert shown["subscribers"]["in_order"] is True
    assert set(shown.get("cpu_s", ())) in ({"n1", "r1"}, set())


async def test_read_replicas_need_a_cluster_of_their_own() -> None:
    code, _, err = await bench("ch", "-ns", "4", "--replicas", "1", "--no-file-sync")

    assert code
    assert "--replicas needs --cluster" in err
    assert "--no-file-sync needs --start or --cluster" in err


async def test_two_servers_are_compared_in_turns(tmp_path) -> None:
    directories = [tmp_path / "ours", tmp_path / "other"]
    for directory in directories:
        directory.mkdir()
    with StanServer(directories[0]) as ours, StanServer(directories[1], "-cid", "other", store="MEMORY") as other:
        # more messages than a subscriber gets before its acks: one read with all of them would take no time
        code, out, err = await bench(
            *["ch", "-n", "3000", "-np", "2", "-ns", "1", "--replay", "--rounds", "2", "--json", "-s", ours.url],
            *["-c", ours.cluster_id, "--compare", other.url, "--compare-cluster-id", "other"],
        )

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["servers"] == {
        "a": {"url": ours.url, "cluster_id": ours.cluster_id},
        "b": {"url": other.url, "cluster_id": "other"},
    }
    for role in ("publishers", "subscribers"):
        ratio = shown[role]["ratio"]
        assert 0 < ratio["min"] <= ratio["of_medians"] <= ratio["max"]
        assert [one[letter][role]["messages"] for one in shown["rounds"] for letter in "ab"] == [3000] * 4
    assert all(shown["publishers"][letter]["latency_ms"]["p99"] > 0 for letter in "ab")
    assert [len(shown["left_behind"][letter]) for letter in "ab"] == [2, 2]


async def test_comparison_needs_the_plain_protocol_only_and_a_fresh_channel_for_each_run(nats_url, broker) -> None:
    broker.protocol = 0  # as old servers have it
    heard: set[str] = set()
    listener = await nats.connect(nats_url)

    async def hear(message) -> None:
        heard.add(".".join(message.subject.split(".")[:2]))

    await listener.subscribe("_STAN.>", cb=hear)
    await settled(listener)
    code, out, err = await bench("ch", "-n", "20", "-ns", "1", "--rounds", "3", "-s", nats_url, "--compare", nats_url)
    await listener.close()

    assert (code, err) == (0, "")
    assert heard == {f"_STAN.{kind}" for kind in ("discover", "pub", "sub", "close", "acks")}
    assert [channel.rpartition("-")[2] for channel in broker.channels] == ["a1", "b1", "b2", "a2", "a3", "b3"]
    assert {len(messages) for messages in broker.channels.values()} == {20}
    assert broker.clients == {}
    lines = out.splitlines()
    assert lines[0] == (f"Comparing A, {nats_url}, with B, {nats_url} [msgs=20, msgsize=128, pubs=1, subs=1, rounds=3]")
    assert [line[:4] for line in lines[1:4]] == [" [1]", " [2]", " [3]"]
    left = {title: [channel for channel in broker.channels if f"-{title}" in channel] for title in "ab"}
    assert lines[-2:] == [
        f"Left behind at {nats_url}: 3 channels, {left[title][0]} to {left[title][-1]}" for title in "ab"
    ]


async def test_own_broker_is_compared_with_one_that_runs_and_leaves_nothing(nats_url, broker) -> None:
    code, out, err = await bench(
        "ch", "-n", "50", "--sync", "--start", "--rounds", "1", "--json", "--compare", nats_url
    )

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["servers"]["b"]["url"] == nats_url
    assert shown["left_behind"] == {"a": [], "b": list(broker.channels)}
    assert shown["rounds"][0]["a"]["publishers"]["messages"] == 50


async def test_compared_servers_that_do_not_answer_are_all_named(nats_url) -> None:
    nobody = f"nats://127.0.0.1:{free_port()}"
    code, out, err = await bench("ch", "-n", "1", "-s", nobody, "--compare", nats_url, "--compare-cluster-id", "other")

    assert (code, out) == (3, "")
    ours, other = err.splitlines()
    assert ours.startswith(f"Cannot connect to {nobody}")
    assert other.startswith(f"--compare: NATS answers at {nats_url}, but no server of cluster 'other' does.")
    _, _, err = await bench("ch", "-n", "1", "-s", nats_url, "--compare", nobody.replace("//", "//me:mine@"))
    assert err.splitlines()[-1].startswith(f"--compare: cannot connect to {nobody.replace('//', '//******@')}")


async def test_compared_server_that_refuses_is_named_with_what_is_left_there(nats_url, broker) -> None:
    broker.refuse["pub"] = "too many channels"
    code, _, err = await bench("ch", "-n", "10", "--start", "--compare", nats_url)

    assert code == 1
    left, why = err.splitlines()
    assert left.startswith(f"Left behind at {nats_url}: 1 channel, ch.")
    assert why.startswith(f"{nats_url}: pub: the server refused")
    broker.refuse.clear()
    broker.refuse["connect"] = "not now"
    code, _, err = await bench("ch", "-n", "10", "--start", "--compare", nats_url)
    assert (code, err.strip()) == (1, f"--compare: the server at {nats_url} refuses: not now.")


async def test_compared_server_that_is_too_slow_is_named(nats_url, broker) -> None:
    broker.mute.add("pub")
    code, _, err = await bench("ch", "-n", "10", "--start", "--compare", nats_url, "--timeout", "5")

    assert code == 1
    assert f"{nats_url}: a run was not done after 5 s" in err
    assert broker.clients == {}


async def test_all_that_is_wrong_with_the_options_of_a_comparison_is_told_at_once() -> None:
    code, _, err = await bench("ch", "--compare", "", "--rounds", "0", "--raw", "-csv", "x", "-np", "0", "-ns", "1")

    assert code == 2
    for option in ("--compare needs the", "--rounds is", "--raw does", "--csv does", "A comparison needs pub"):
        assert option in err


# --- beside JetStream ----------------------------------------------------------------------------------------------


async def streams(url) -> list[str]:
    """The names of all streams."""
    connection = await nats.connect(url)
    try:
        return [info.config.name for info in await connection.jetstream().streams_info()]
    finally:
        await connection.close()


@pytest.fixture
def jetstream(tmp_path):
    """JetStream with room for 200,000 bytes of messages."""
    configuration = tmp_path / "jetstream.conf"
    configuration.write_text(f'jetstream {{ store_dir: "{tmp_path / "jetstream"}", max_file_store: 200000 }}')
    with NatsServer(tmp_path, "-c", str(configuration)) as server:
        yield server


@pytest.mark.parametrize("sync", ["default", "always"])
async def test_own_broker_is_compared_with_jetstream_and_leaves_nothing(tmp_path, monkeypatch, sync) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code, out, err = await bench(
        *["ch", "-n", "2500", "-np", "2", "-ns", "1", "--replay", "--rounds", "2", "--json", "--start"],
        *["--compare-jetstream", sync, "--processes", "2"],
    )

    assert (code, err) == (0, "")
    shown = json.loads(out)
    other = shown["servers"]["b"]
    assert other["jetstream"].startswith("nats-server 2.")
    assert (other["sync_interval"], other["nodes"], other["replicas"]) == (sync, 1, 1)
    for role in ("publishers", "subscribers"):
        assert [one[letter][role]["messages"] for one in shown["rounds"] for letter in "ab"] == [2500] * 4
    assert all(one["b"]["subscribers"]["in_order"] for one in shown["rounds"])
    assert all(one["b"]["subscribers"]["redelivered"] == 0 for one in shown["rounds"])
    assert shown["publishers"]["b"]["latency_ms"]["p99"] > 0
    assert shown["left_behind"] == {"a": [], "b": []}
    assert list(tmp_path.iterdir()) == []


async def test_cluster_is_compared_with_a_cluster_and_three_replicas() -> None:
    code, out, err = await bench(
        *["ch", "-n", "200", "-ns", "2", "--rounds", "1", "--cluster", "3", "--compare-jetstream", "default"],
        "--no-file-sync",
    )

    assert (code, err) == (0, "")
    first, rates, *_ = out.splitlines()
    assert first.startswith("Comparing A, this broker with -file_sync=false at nats://")
    assert "with B, JetStream of nats-server 2." in first
    assert ", sync_interval default, 3 replicas at nats://127.0.0.1:" in first
    assert rates.startswith(" [1] Pub A ")


async def test_jetstream_that_runs_is_compared_and_keeps_no_stream(jetstream) -> None:
    code, out, err = await bench(
        *["ch", "-n", "60", "-ns", "1", "-io", "--sync", "--start", "--rounds", "1"],
        *["--compare-jetstream", jetstream.url],
    )

    assert (code, err) == (0, "")
    assert f"with B, JetStream, sync_interval as configured there, 1 replica at {jetstream.url} [" in out
    assert "Left behind" not in out
    assert await streams(jetstream.url) == []


async def test_a_refusal_of_jetstream_ends_the_run_with_its_reason_and_without_the_stream(jetstream) -> None:
    code, _, err = await bench(
        *["ch", "-n", "1000", "-ms", "1024", "--start", "--rounds", "1", "--compare-jetstream", jetstream.url]
    )

    assert code == 1
    assert f"{jetstream.url}: jetstream-pub: JetStream refused publishes of stan-bench-" in err
    assert "resources exceeded" in err or "bytes exceeded" in err or "insufficient" in err
    assert await streams(jetstream.url) == []


async def test_a_nats_without_jetstream_and_one_without_replicas_are_named(nats_url, jetstream) -> None:
    code, _, err = await bench("ch", "-n", "1", "--start", "--compare-jetstream", nats_url)
    assert (code, err.strip()) == (
        1,
        f"--compare-jetstream: {nats_url}: no JetStream answers there: enable it, for this account, too.",
    )
    code, _, err = await bench(
        "ch", "-n", "1", "--start", "--compare-jetstream", jetstream.url, "--compare-replicas", "3"
    )
    assert code == 1
    assert f"--compare-jetstream: {jetstream.url}: JetStream refuses stream.create." in err
    nobody = f"nats://127.0.0.1:{free_port()}"
    code, _, err = await bench("ch", "-n", "1", "--start", "--compare-jetstream", nobody)
    assert (code, err[: len(nobody) + 38]) == (
        3,
        f"--compare-jetstream: cannot connect to {nobody}"[: len(nobody) + 38],
    )


async def test_all_that_does_not_go_with_jetstream_is_told_at_once() -> None:
    code, _, err = await bench(
        *[
            "ch",
            "--compare-jetstream",
            "often",
            "--compare",
            "nats://b",
            "--client",
            "python",
            "--compare-replicas",
            "9",
        ],
        *["--raw", "--compare-cluster-id", "x", "--rounds", "0"],
    )

    assert code == 2
    for option in ("--compare-jetstream is", "do not go together", "--client python", "--compare-replicas is", "--raw"):
        assert option in err


async def test_death_of_a_leader_costs_a_pause_and_no_message() -> None:
    code, out, err = await bench("failover", "--rounds", "1", "--rate", "500", "--json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["rounds"][0]["led"] is True
    assert shown["rounds"][0]["killed"] != shown["rounds"][0]["leader"]
    assert shown["lost"] == shown["unexplained_repeats"] == 0
    assert shown["figures"]["found"] >= shown["figures"]["acknowledged"] > 500
