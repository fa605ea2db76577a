"""Messages on the command line, with a server: acks as JSON, templates, format strings, searches, copies."""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import zipfile

import pytest
import typer
from typer.testing import CliRunner

from stan.cli.commands.cheat import SHEETS
from stan.cli.main import app
from tests.kit.server import StanServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0") as server:
        yield server


@pytest.fixture
def stan(server, tmp_path):
    environment = {"STAN_SERVER": server.url, "XDG_CONFIG_HOME": str(tmp_path)}

    def run(*arguments, code=0):
        done = CliRunner().invoke(app, arguments, env=environment)
        assert done.exit_code == code, done.output
        return done

    return run


def test_pub_says_between_which_sequences_its_messages_are(stan):
    assert "to seen as #1 in" in stan("pub", "seen", "hello").stderr
    assert "to seen as #2 to #4 in" in stan("pub", "seen", "hello", "--count", "3").stderr


def test_pub_writes_acks_as_json(stan):
    acks = [json.loads(line) for line in stan("pub", "acked", "x", "--count", "3", "--json").stdout.splitlines()]
    assert [ack["sequence"] for ack in acks] == [1, 2, 3]
    assert len({ack["guid"] for ack in acks}) == 3
    assert {ack["acked_as"] for ack in acks} == {"synced"}
    (delayed,) = stan("pub", "acked", "x", "--delay", "1h", "--json").stdout.splitlines()
    assert (json.loads(delayed)["sequence"], json.loads(delayed)["delayed_id"] > 0) == (None, True)
    refused = stan("pub", "acked", "x", "--no-ack", "--json", code=2)
    assert "--json shows acks" in refused.stderr


def test_a_template_is_filled_in_for_each_message(stan):
    stan(
        "pub",
        "filled",
        '{"n": {count}, "at": "{time}", "id": "{id}"}',
        "--template",
        "--count",
        "2",
        "--key",
        "k{count}",
    )
    lines = stan("sub", "filled", "--from", "first", "--count", "2", "--format", "%k %d").stdout.splitlines()
    documents = [json.loads(line.split(" ", 1)[1]) for line in lines]
    assert [line.split(" ", 1)[0] for line in lines] == ["k1", "k2"]
    assert [one["n"] for one in documents] == [1, 2]
    assert documents[0]["id"] != documents[1]["id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", documents[0]["at"])
    stan("pub", "clear", "{count}")
    assert stan("channel", "get", "clear").stdout == "{count}\n"


def test_a_format_string_shows_all_fields(stan):
    stan("pub", "formed", "data", "--key", "k", "--header", "a=b", "--header", "c=d", "--reply", "re.ply")
    line = stan("channel", "get", "formed", "--format", r"%s\t%c\t%k\t%d\t%D\t%l\t%h\t%r\t%n\t%%\\").stdout
    assert line == "1\tformed\tk\tdata\tZGF0YQ==\t4\ta=b,c=d\tre.ply\t0\t%\\\n"
    times = stan("sub", "formed", "--from", "first", "--count", "1", "--format", "%t %T").stdout.split()
    assert times[0].endswith(f".{times[1][-9:]}Z")
    wrong = stan("sub", "formed", "--format", r"%z %s \q %", code=2).stderr
    assert [text in wrong for text in ("'%z' is none of", r"'\\q' is none of", "'%' is none of")] == [True] * 3


def test_sub_says_what_it_reads_and_if_it_made_the_channel(stan):
    stan("pub", "old", "x")
    assert stan("sub", "old", "--until-end", "--idle", "0.1").stderr == "Listening on old\n"
    assert stan("sub", "fresh", "--until-end", "--idle", "0.1").stderr == "Listening on fresh (a new channel)\n"
    assert stan("sub", "old", "--until-end", "--idle", "0.1", "-q").stderr == ""
    assert "without wildcards" in stan("sub", "old.*", code=2).stderr


def test_find_looks_into_data_keys_and_headers(stan):
    stan("pub", "shop.eu", "Invoice 17", "--key", "k1", "--header", "tenant=a")
    stan("pub", "shop.eu", "nothing", "--key", "k2", "--header", "tenant=b")
    stan("pub", "shop.us", "invoice 18", "--key", "k1")

    def sequences(*arguments, code=0):
        return stan("find", *arguments, "--format", "%c %s", code=code).stdout.splitlines()

    assert sequences("shop.*", "invoice", "-i") == ["shop.eu 1", "shop.us 1"]
    assert sequences("shop.*", "--regex", r"nvoice \d8$") == ["shop.us 1"]
    assert sequences("shop.>", "--key", "k1", "Invoice") == ["shop.eu 1"]
    assert sequences("shop.eu", "--header", "tenant=b") == ["shop.eu 2"]
    assert sequences("shop.eu", "--header", "tenant", "--seq", "2") == ["shop.eu 2"]
    assert sequences("shop.*", "o", "--since", "1h", "--until", "@4000000000") == [
        "shop.eu 1",
        "shop.eu 2",
        "shop.us 1",
    ]
    assert sequences("shop.eu", "o", "--until", "1h", code=1) == []
    assert sequences("shop.eu", "absent", code=1) == []
    assert "no channel 'shop'" in stan("find", "shop", "x", code=1).stderr
    assert "Say what to find" in stan("find", "shop.eu", code=2).stderr
    assert "--regex: '(' is none" in stan("find", "shop.eu", "--regex", "(", code=2).stderr


def test_a_search_is_bounded_and_says_where_to_go_on(stan):
    stan("pub", "long", "x", "--count", "10")
    ended = "the search ended in long, go on there with --seq 4."
    assert ended in stan("find", "long", "x", "--scan", "3").stderr
    assert ended in stan("find", "long", "x", "--limit", "3").stderr
    assert stan("find", "long", "x", "--seq", "4").stderr == "7 matches in 7 messages.\n"


def test_a_channel_is_copied_behind_another(stan):
    stan("pub", "from", "a", "--key", "k", "--header", "a=b", "--reply", "re")
    stan("pub", "from", "b", "--count", "4")
    stan("pub", "to", "first")
    assert stan("channel", "copy", "from", "to", "--last", "3").stderr == "3 messages of from in to.\n"
    shown = stan("channel", "get", "to", "--seq", "1-9", "--format", "%s %k %h %r %d").stdout
    assert shown == "1    first\n2 k a=b re a\n3    b\n4    b\n"
    assert "no channel 'absent'" in stan("channel", "copy", "absent", "to", code=1).stderr
    assert stan("channel", "copy", "to", "to", code=2).stderr == "A channel is not copied into itself.\n"


def test_the_next_messages_of_a_durable_are_taken_as_its_client_would(stan):
    stan("pub", "taken", "m{count}", "--template", "--count", "4")
    stan("durable", "create", "taken", "shop/ledger", "--at", "first")
    assert stan("durable", "next", "taken", "shop/ledger").stdout == "m1\n"
    assert stan("durable", "next", "taken", "ledger", "--no-ack", "--format", "%s %n").stdout == "2 0\n"
    assert stan("durable", "next", "taken", "ledger", "-n", "9", "--format", "%s %n").stdout == "2 1\n3 0\n4 0\n"
    assert stan("durable", "next", "taken", "ledger", "--wait", "0.1", code=1).stdout == ""
    stan("queue", "create", "taken", "shift:packers", "--at", "4")
    assert stan("queue", "next", "taken", "packers").stdout == "m4\n"


def test_rtt_measures_nats_and_the_nodes(stan):
    trips = json.loads(stan("rtt", "--count", "3", "--json").stdout)["round_trips"]
    assert [trip["count"] for trip in trips] == [3, 3]
    assert all(0 < trip["min_ms"] <= trip["mean_ms"] <= trip["max_ms"] for trip in trips)


def test_a_bug_report_has_answers_and_no_contents(stan, tmp_path):
    stan("pub", "reported", "secret contents", "--key", "secret key")
    file = tmp_path / "report.zip"
    assert "Written" in stan("doctor", "--bundle", str(file)).stderr
    with zipfile.ZipFile(file) as bundle:
        assert bundle.testzip() is None
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert {"nodes.json", "options.json", "channels.json", "positions.json", "doctor.json"} < texts.keys()
    assert not [name for name in texts if name.endswith("error.txt")]
    assert "reported" in [one["name"] for one in json.loads(texts["channels.json"])]
    assert not [name for name, text in texts.items() if "secret" in text]
    assert "exists" in stan("doctor", "--bundle", str(file), code=2).stderr


def test_commands_of_the_cheat_sheets_are_commands(stan):
    text = stan("cheat").stdout
    for topic, commands in SHEETS.items():
        assert topic in text
        for command, _ in commands:
            words = shlex.split(command)
            assert words[0] == "stan"
            assert command in stan("cheat", topic).stdout
            _read(words[1:])
    assert "no topic 'x'" in stan("cheat", "x", code=2).stderr


def _read(words):
    """Read a command line as the program does, without running it. Raises click's errors."""
    command = typer.main.get_command(app)
    context = command.make_context("stan", words)
    while hasattr(command, "resolve_command"):
        _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, words, parent=context)


def test_a_cluster_id_that_nobody_has_is_an_error_that_says_so(stan):
    assert "no server of cluster 'other' does" in stan("channel", "list", "-c", "other", code=4).stderr


def test_top_fits_a_narrow_terminal_and_ends_on_q(stan, server):
    stan("pub", "a.channel.with.a.long.name.that.does.not.fit", "x")
    terminal, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    before = termios.tcgetattr(there)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
        "STAN_SERVER": server.url,
        "TERM": "xterm",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-m", "stan.cli.main", "top", "--interval", "0.2"]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment) as process:
        shown = b""
        while shown.count(b"in/s") < 2:
            shown += os.read(terminal, 65536)
        os.write(terminal, b"q")
        while process.poll() is None:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)
        assert process.returncode == 0
    assert termios.tcgetattr(there) == before
    os.close(terminal)
    os.close(there)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).splitlines()
    (heading, *_) = [line for line in lines if "in/s" in line]
    assert "who" in heading
    assert max(map(len, lines)) <= 60
