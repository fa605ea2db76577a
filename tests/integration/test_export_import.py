"""`stan export` and `stan import` against a real server: what goes out comes in again, and what is wrong is told by its line."""

import base64
import json

import pytest
from stan_client.blocking import BlockingClient
from typer.testing import CliRunner

from stan.cli.main import app
from tests.kit.batches import rows_of
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
    with BlockingClient(server.url, server.cluster_id) as client:
        return [(m.sequence, m.data) for answer in client.read_range(channel, 1, 1 << 60) for m in answer.messages()]


def test_what_is_exported_is_imported(server, stan, tmp_path) -> None:
    with BlockingClient(server.url, server.cluster_id) as client:
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


def test_lines_are_imported_and_a_range_is_exported_to_stdout(server, stan) -> None:
    done = stan("import", "lines", "--as", "lines", input="a\nb\n\nc")
    assert done.exit_code == 0, done.output
    assert read(server, "lines") == [(1, b"a"), (2, b"b"), (3, b""), (4, b"c")]
    done = stan("export", "lines", "--as", "lines", "--from", "2", "--to", "3")
    assert done.stdout == "b\n\n"


WRONG = ("[1]", '{"data": 4}', '{"data": "x", "data_base64": ""}', "nonsense", "{}")


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
