"""`stan pub` and `stan sub` as processes, against a protocol-level fake broker: data, exit codes, and the next step in errors."""

import asyncio
import json
import os
import signal
import sys

import pytest
import typer
from stan_protocol import refusals
from stan_protocol.features import Feature
from typer.testing import CliRunner

from stan.cli.commands.pub import parse_headers
from stan.cli.commands.sub import parse_start
from stan.cli.main import app
from tests.kit.fake_broker import eventually, free_port


async def spawn(*arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stan.cli.main", *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )


async def stan(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    process = await spawn(*arguments)
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


def stored(broker) -> list[bytes]:
    return [message.data for message in broker.channels.get("ch", [])]


async def test_pub_argument_is_published_and_told(nats_url, broker) -> None:
    code, _, err = await stan("pub", "ch", "hello", "-s", nats_url, "--reply", "answer")

    assert (code, stored(broker)) == (0, [b"hello"])
    assert broker.publishes[0].reply == b"answer"
    assert "Published 1 message (5 bytes) to ch" in err
    assert broker.clients == {}


async def test_pub_headers_and_key_are_published_and_told_by_sub(nats_url, broker) -> None:
    given = ("--header", "trace=a=b", "--header", "empty=", "--key", "größe")
    code, _, err = await stan("pub", "ch", "x", "-s", nats_url, "--count", "2", *given)

    assert code == 0, err
    for publish in broker.publishes:
        assert [(header.key, header.value) for header in publish.headers] == [(b"trace", b"a=b"), (b"empty", b"")]
        assert publish.key == "größe".encode()
    _, out, _ = await stan("sub", "ch", "-s", nats_url, "--from", "first", "--count", "1", "--json")
    told = json.loads(out)
    assert (told["headers"], told["key"]) == ([["trace", "a=b"], ["empty", ""]], "größe")


async def test_pub_headers_that_a_server_would_drop_are_not_sent(nats_url, broker) -> None:
    broker.features = Feature(0)
    code, _, err = await stan("pub", "ch", "x", "-s", nats_url, "--key", "k")

    assert (code, broker.publishes) == (1, [])
    assert "not supported by the server" in err
    assert (await stan("pub", "ch", "x", "-s", nats_url))[0] == 0


@pytest.mark.parametrize("wrong", [("trace",), ("=x",), ("a=1", "a=2")])
def test_headers_that_are_none_are_wrong_usage(wrong) -> None:
    with pytest.raises(typer.BadParameter, match="--header"):
        parse_headers(list(wrong))


async def test_pub_stdin_is_one_message_and_lines_are_many(nats_url, broker) -> None:
    await stan("pub", "ch", "-s", nats_url, stdin=b"a\nb\n")
    await stan("pub", "ch", "--lines", "--sync", "-q", "-s", nats_url, stdin=b"c\r\nd\n\ne")

    assert stored(broker) == [b"a\nb\n", b"c", b"d", b"", b"e"]


async def test_pub_of_a_dash_is_stdin(nats_url, broker) -> None:
    code, _, complaint = await stan("pub", "ch", "-", "-s", nats_url, stdin=b"from a pipe")
    assert code == 0, complaint
    assert stored(broker) == [b"from a pipe"]


async def test_pub_count_size_and_file(nats_url, broker, tmp_path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    await stan("pub", "ch", "--size", "3", "--count", "2", "--rate", "1000", "-s", nats_url)
    await stan("pub", "ch", "--file", str(file), "-s", nats_url)

    assert stored(broker) == [bytes(3), bytes(3), b"\x00\xff"]


async def test_pub_without_acks_sends_and_says_so(nats_url, broker) -> None:
    code, _, told = await stan("pub", "ch", "hello", "-s", nats_url, "--count", "3", "--no-ack")
    assert (code, told.startswith("Sent 3 messages (15 bytes) to ch")) == (0, True), told
    assert (stored(broker), broker.unanswered) == ([b"hello"] * 3, 3)
    code, _, told = await stan("pub", "ch", "hello", "-s", nats_url, "--no-ack", "--sync")
    assert (code, "--sync waits for acks" in told) == (2, True), told


async def test_pub_refused_fails_with_the_servers_text(nats_url, broker) -> None:
    broker.refuse["pub"] = refusals.TOO_MANY_CHANNELS

    code, _, err = await stan("pub", "ch", "hello", "-s", nats_url)

    assert code == 1
    assert "1 of 1 messages were not acked: too many channels" in err


async def test_nats_that_does_not_run_is_told_with_the_next_step() -> None:
    code, _, err = await stan("pub", "ch", "hello", "-s", f"nats://127.0.0.1:{free_port()}")

    assert code == 3
    assert "Cannot connect to nats://127.0.0.1:" in err
    assert "Is the server running" in err


async def test_unknown_cluster_is_told_with_the_next_step(nats_url, broker) -> None:
    code, _, err = await stan("sub", "ch", "-s", nats_url, "-c", "nobody")

    assert code == 4
    assert "no server of cluster 'nobody'" in err


async def test_client_id_in_use_is_told_with_the_next_step(nats_url, broker) -> None:
    broker.refuse["connect"] = refusals.CLIENT_REGISTERED

    code, _, err = await stan("sub", "ch", "-s", nats_url, "--client-id", "me")

    assert code == 1
    assert refusals.CLIENT_REGISTERED in err
    assert "Choose another --client-id" in err


async def test_sub_until_end_writes_payloads_and_acks_them(nats_url, broker) -> None:
    await stan("pub", "ch", "--lines", "-s", nats_url, stdin=b"one\ntwo\nthree")

    code, out, _ = await stan("sub", "ch", "--from", "seq:2", "--until-end", "-s", nats_url)

    assert (code, out) == (0, b"two\nthree\n")
    assert broker.acks == [("ch", 2), ("ch", 3)]
    assert broker.clients == {}


async def test_sub_until_end_of_an_empty_channel_ends(nats_url, broker) -> None:
    code, out, _ = await stan("sub", "ch", "--from", "first", "--until-end", "--idle", "0.2", "-s", nats_url)

    assert (code, out) == (0, b"")


async def test_sub_json_shows_all_fields(nats_url, broker) -> None:
    await stan("pub", "ch", "grüße", "--reply", "answer", "-s", nats_url)
    await stan("pub", "ch", "-s", nats_url, stdin=b"\xff")

    _, out, _ = await stan("sub", "ch", "--from", "first", "--count", "2", "--json", "-s", nats_url)

    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["sequence"], first["channel"], first["data"], first["reply"]) == (1, "ch", "grüße", "answer")
    assert first["timestamp_ns"] == broker.channels["ch"][0].timestamp
    assert first["redelivered"] is False
    assert (second["sequence"], second["data_base64"]) == (2, "/w==")


async def test_sub_durable_goes_on_where_it_was_and_unsubscribe_forgets(nats_url, broker) -> None:
    await stan("pub", "ch", "--lines", "-s", nats_url, stdin=b"one\ntwo\nthree")
    durable = [
        "sub",
        "ch",
        "--from",
        "first",
        "--durable",
        "d",
        "--client-id",
        "me",
        "--count",
        "1",
        "--in-flight",
        "1",
    ]

    outputs = [
        (await stan(*durable, "-s", nats_url))[1],
        (await stan(*durable, "--unsubscribe", "-s", nats_url))[1],
        (await stan(*durable, "-s", nats_url))[1],
    ]

    assert outputs == [b"one\n", b"two\n", b"one\n"]


async def test_sub_manual_does_not_ack(nats_url, broker) -> None:
    await stan("pub", "ch", "one", "-s", nats_url)

    code, out, _ = await stan("sub", "ch", "--from", "first", "--manual", "--count", "1", "-s", nats_url)

    assert (code, out, broker.acks) == (0, b"one\n", [])


async def test_sub_interrupted_closes_its_subscription_and_leaves(nats_url, broker) -> None:
    process = await spawn("sub", "ch", "-s", nats_url)
    await eventually(lambda: broker.subscriptions)

    process.send_signal(signal.SIGINT)

    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert broker.subscriptions == []
    assert broker.clients == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["pub", "ch", "hello", "--size", "3"],
        ["pub", "ch", "hello", "--count", "0"],
        ["sub", "ch", "--from", "yesterday"],
        ["sub", "ch", "--from", "seq:x"],
        ["sub", "ch", "--durable", "d"],
        ["bench", "ch", "-np", "0"],
        ["bench", "ch", "--replay"],
        ["bench", "ch", "--client", "go"],
    ],
)
def test_wrong_usage_exits_with_2(arguments) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_start_positions_are_read() -> None:
    assert parse_start("seq:7").sequence == 7
    assert parse_start("since:2h").delta_ns == 7200 * 10**9
    assert parse_start("at:1970-01-01T00:00:01+00:00").time_ns == 10**9
    assert [parse_start(word).position for word in ("new", "last", "first")] == [0, 1, 4]
    for wrong in ("seq:-1", "seq:" + "9" * 30, "since:" + "9" * 30 + "s", "seq:", "since:x", "at:x", "x"):
        with pytest.raises(typer.BadParameter):
            parse_start(wrong)
