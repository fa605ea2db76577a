"""`stan export` and `stan import` against a real server: what goes out comes in again, and what is wrong is told by its line."""

import base64
import json

import pytest
from stan_client.blocking import BlockingClient
from stan_protocol.fetches import messages
from stan_protocol.proto import wire_pb2 as wire
from typer.testing import CliRunner

from stan.cli.main import app
from tests.kit.batches import full_messages, rows_of, rows_of_messages
from tests.kit.server import StanServer

PAYLOADS = [b"one", "zwei ü".encode(), b"\xff\x00binary", b"", b"x" * 5000] * 100


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def stan(server):
    def call(*arguments, **more):
        return CliRunner().invoke(app, [*arguments, "--server", server.url], **more)

    return call


def read(server, channel):
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        return [(m.sequence, m.data) for answer in client.read_range(channel, 1, 1 << 60) for m in answer.messages()]


def test_what_is_exported_is_imported(server, stan, tmp_path) -> None:
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        client.publish_batch("out", rows_of(PAYLOADS), len(PAYLOADS))
    done = stan("export", "out", str(tmp_path / "out.jsonl"))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, len(PAYLOADS) + 1))
    told = [line["data"].encode() if "data" in line else base64.b64decode(line["data_base64"]) for line in lines]
    assert told == PAYLOADS
    done = stan("import", "in", str(tmp_path / "out.jsonl"))
    assert done.exit_code == 0, done.output
    assert f"{len(PAYLOADS):,} messages stored" in done.output
    assert read(server, "in") == list(enumerate(PAYLOADS, 1))


def records_of(server, channel):
    """Messages as they are stored, without what an import makes new."""
    found = []
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        for answer in client.read_range(channel, 1, 1 << 60):
            found += [wire.MsgProto.FromString(body) for body in messages(answer.records, answer.runs)]
    for message in found:
        message.ClearField("timestamp")
        message.ClearField("subject")
    return found


def test_keys_and_headers_go_out_and_come_in_again(server, stan, tmp_path) -> None:
    sent = full_messages(50)
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        client.publish_batch("full", rows_of_messages(sent), len(sent))
    done = stan("export", "full", str(tmp_path / "full.jsonl"))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "full.jsonl").read_text("utf-8").splitlines()]
    assert "key" not in lines[0]
    assert "headers" not in lines[0]
    assert lines[7]["key"] == "customer 7"
    assert lines[7]["headers"] == [["trace", "tü"], ["trace", {"base64": "/wA="}], ["", ""]]
    assert (lines[8]["key_base64"], "key" in lines[8]) == ("AP4=", False)
    done = stan("import", "full.again", str(tmp_path / "full.jsonl"))
    assert done.exit_code == 0, done.output
    assert records_of(server, "full.again") == records_of(server, "full")


def test_what_sub_and_get_write_is_imported(server, stan, tmp_path) -> None:
    headers = [wire.Header(key=b"trace", value=b"\xff"), wire.Header(key=b"user", value=b"me")]
    sent = [wire.MsgProto(data=b"1", key=b"k", headers=headers), wire.MsgProto(data=b"2", key=b"\xff", reply=b"r")]
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        client.publish_batch("shown", rows_of_messages(sent), len(sent))
    for number, told in enumerate(
        (
            stan("sub", "shown", "--from", "first", "--count", "2", "--json"),
            stan("channel", "get", "shown", "--seq", "1-2", "--json"),
        )
    ):
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout.splitlines()[0])["headers"] == [["trace", {"base64": "/w=="}], ["user", "me"]]
        done = stan("import", f"shown.{number}", input=told.stdout)
        assert done.exit_code == 0, done.output
        assert records_of(server, f"shown.{number}") == records_of(server, "shown")


def test_lines_are_imported_and_a_range_is_exported_to_stdout(server, stan) -> None:
    done = stan("import", "lines", "--as", "lines", input="a\nb\n\nc")
    assert done.exit_code == 0, done.output
    assert read(server, "lines") == [(1, b"a"), (2, b"b"), (3, b""), (4, b"c")]
    done = stan("export", "lines", "--as", "lines", "--first", "2", "--last", "3")
    assert done.stdout == "b\n\n"


WRONG = (
    *("[1]", '{"data": 4}', '{"data": "x", "data_base64": ""}', '{"data_base64": null}', "nonsense", "{}"),
    *('{"data": "", "key": 7}', '{"data": "", "headers": [["k", {}]]}', json.dumps({"data": "", "key": "k" * 1025})),
)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_line_is_told_by_its_number_and_what_is_before_it_is_stored(server, stan, tmp_path, wrong) -> None:
    channel = f"wrong.{WRONG.index(wrong)}"
    file = tmp_path / "wrong.jsonl"
    file.write_text(f'{{"data": "first"}}\n{wrong}\n{{"data": "last"}}\n')
    done = stan("import", channel, str(file))
    assert done.exit_code == 1
    assert "wrong.jsonl:2:" in done.output
    assert read(server, channel) == [(1, b"first")]


def test_message_that_nats_does_not_take_is_told_by_its_line(stan, tmp_path) -> None:
    file = tmp_path / "large.jsonl"
    file.write_text(json.dumps({"data": "x" * (1 << 20)}) + "\n")
    done = stan("import", "large", str(file))
    assert done.exit_code == 1
    assert "large.jsonl:1:" in done.output


def test_channel_that_is_not_there_and_a_file_that_is_there_are_refused(stan, tmp_path) -> None:
    assert "no channel" in stan("export", "nowhere").output
    (tmp_path / "there").touch()
    done = stan("export", "out", str(tmp_path / "there"))
    assert done.exit_code == 2
