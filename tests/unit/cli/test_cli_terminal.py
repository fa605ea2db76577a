"""Text of others on a terminal: it is shown, and commands nothing; in a pipe it is left as it is."""

import json
import re
from types import SimpleNamespace

import pytest
from rich.table import Table as RichTable
from rich.text import Text
from stan_protocol.admin_types import ChannelStatus, ClientStatus, CursorStatus, GroupStatus, MemberStatus, SchemaStatus
from stan_protocol.scalars import SECOND
from typer.testing import CliRunner

from stan.cli.commands import sub
from stan.cli.main import app
from stan.cli.support import session, terminal
from stan.cli.support.terminal import STDOUT, TextConsole, indented, write, write_json
from tests.kit.fake_operator import FakeDirect

HOSTILE = "\x1b[2J\x1b]0;pwn\x07\x9b31m\u202ered\r\x85\u2028\nFORGED line"
DANGER = re.compile("\x1b(?!\\[[0-9;]*m)|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")
"""What may not reach a terminal: everything that commands it, but for line ends and colours."""


@pytest.fixture
def on_terminal(monkeypatch):
    """Stdout and stderr are terminals."""
    for console in (terminal.out, terminal.err):
        monkeypatch.setattr(console, "_force_terminal", True)


@pytest.fixture
def servers(tmp_path, monkeypatch):
    """Servers on which everything that a client may name is hostile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake, name = FakeDirect(), HOSTILE
    admin = fake.admin
    admin.all_channels = [ChannelStatus(name=name, messages=9, last_sequence=9, tier=name, group=1)]
    admin.all_cursors = [
        CursorStatus(
            channel=name,
            durable_name=name,
            queue_group=name,
            client_id=name,
            pause_reason=name,
            exhausted=3,
            dead_letter_fault=name,
            waiting=9,
            members=[MemberStatus(client_id=name)],
        )
    ]
    admin.all_clients = [ClientStatus(client_id=name, failing=True)]
    admin.all_schemas = [
        SchemaStatus(pattern="foo", schema_version=1, text=json.dumps({"title": HOSTILE}).encode(), at=SECOND)
    ]
    groups = [GroupStatus(role="leader"), GroupStatus(group=1, role="leader", trouble=HOSTILE)]
    admin.tell_of_nodes(not_ready=[HOSTILE], groups=groups)
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


COMMANDS = [
    "channel list",
    "durable list",
    "queue list",
    "client list",
    "subscription list",
    "node list",
    "node show",
    "group list",
    "schema list",
    "schema show foo",
    "policy list",
    "doctor",
    "check",
]


@pytest.mark.parametrize("form", ["", " --json", " --names"])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_of_commands_on_a_terminal_commands_nothing(servers, on_terminal, command, form):
    done = CliRunner().invoke(app, (command + form).split())
    assert done.exit_code in (0, 1, 2), done.output
    assert not DANGER.findall(done.stdout + done.stderr)


@pytest.mark.parametrize("as_json", [False, True])
def test_messages_of_sub_on_a_terminal_command_nothing_and_no_line_passes_for_one_of_its_own(
    on_terminal, capfdbinary, as_json
):
    message = SimpleNamespace(
        data=HOSTILE.encode() + b"\xff\n#2 2026-01-01 00:00:00 forged",
        channel=HOSTILE,
        sequence=1,
        timestamp_ns=SECOND,
        redelivered=True,
        redelivery_count=2,
        reply=HOSTILE,
        key=HOSTILE.encode(),
        headers={HOSTILE: HOSTILE.encode()},
    )
    sub._write(message, as_json=as_json)
    shown = capfdbinary.readouterr().out.decode()
    assert not DANGER.findall(shown)
    others = shown.splitlines()[1:]
    assert all(line.startswith(terminal.INDENT) for line in others)
    assert len(others) == (0 if as_json else 2)
    if as_json:
        assert shown.isascii()
        assert json.loads(shown)["channel"] == HOSTILE


@pytest.mark.parametrize("shown", [HOSTILE, Text(HOSTILE), "table"], ids=["string", "text", "table"])
def test_console_escapes_whatever_it_is_given(shown, capsys):
    console = TextConsole(force_terminal=True, width=60)
    if shown == "table":
        shown = RichTable(title=HOSTILE)
        shown.add_column(HOSTILE)
        shown.add_row(HOSTILE)
    console.print(shown)
    console.print(HOSTILE, style="red", markup=False, highlight=False, soft_wrap=True)
    found = capsys.readouterr().out
    assert "\\x1b[2J" in found
    assert not DANGER.findall(found)


def test_lines_documents_and_bytes_are_escaped_on_a_terminal(on_terminal, capfdbinary):
    write(["\x1b[1mbold\x1b[0m", HOSTILE])
    write_json({"a": HOSTILE})
    STDOUT.write(HOSTILE.encode() + b"\xff")
    STDOUT.flush()
    found = capfdbinary.readouterr().out.decode()
    assert found.startswith("\x1b[1mbold\x1b[0m\n")
    assert not DANGER.findall(found)


def test_lines_documents_and_bytes_are_left_as_they_are_in_a_pipe(capfdbinary):
    write([HOSTILE])
    write_json({"a": "\u202e"})
    STDOUT.write(b"\x1b\xff")
    STDOUT.flush()
    assert capfdbinary.readouterr().out == HOSTILE.encode() + b"\n" + '{"a": "\u202e"}\n'.encode() + b"\x1b\xff"


def test_lines_of_a_payload_are_indented():
    assert indented("a\n\x1b[1mb") == [f"{terminal.INDENT}a", f"{terminal.INDENT}\\x1b[1mb"]
