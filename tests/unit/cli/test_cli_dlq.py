"""`stan dlq` against a fake of the servers, and what `durable why` and `doctor` say of messages that were given up."""

import json

import pytest
import stan_client
from stan_client.dead_letters import dead_letter
from stan_protocol.admin_types import ChangeResponse, DeliveryPolicy, PolicyStatus, Redriven
from typer.testing import CliRunner

from stan.cli.commands import dlq
from stan.cli.main import app
from stan.cli.support import session
from tests.kit.fake_operator import FakeDirect, channel

NOW = 1_700_000_000_000_000_000


def letter(sequence, source="orders", durable="billing", redriven=0, data=b"{}"):
    headers = [
        (b"stan-channel", source.encode()),
        (b"stan-sequence", b"%d" % (10 * sequence)),
        (b"stan-durable", durable.encode()),
        (b"stan-count", b"5"),
        (b"stan-reason", b"exhausted"),
        (b"stan-error", b"no \x1bdatabase"),
        (b"stan-published", b"%d" % (NOW - 60 * 10**9)),
    ]
    headers += [(b"stan-redriven", b"%d" % redriven)] if redriven else []
    return stan_client.Message(sequence, "orders.dlq", "", data, NOW, headers=tuple(headers))


class Letters(FakeDirect):
    """With a dead letter channel; each request puts two back."""

    def __init__(self):
        super().__init__()
        self.letters = [letter(n, "orders" if n < 4 else "mail", redriven=3 * (n == 5)) for n in range(1, 6)]
        self.letters.append(stan_client.Message(6, "orders.dlq", "", b"published there", NOW))
        self.admin.all_channels = [channel(), channel("orders.dlq", uid=8, messages=6, last_sequence=6)]
        policy = DeliveryPolicy(max_deliver=5, dead_letter=".dlq")
        self.admin.all_policies = [PolicyStatus(pattern=">", policy=policy)]
        self.admin.redrive = self.redrive

    async def read(self, _channel, *, start):
        for message in self.letters:
            if message.sequence >= start.sequence:
                yield message

    async def redrive(self, channel, runs, *, to=""):
        self.admin.asked.append(("redrive", channel, list(runs), to))
        named = [number for first, last in runs for number in range(first, last + 1)]
        done = named[:2]
        return ChangeResponse(changed=len(done), redriven=Redriven(next_sequence=done[-1] + 1))


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = Letters()
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


def stan(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_headers_tell_where_a_dead_letter_comes_from():
    told = dead_letter(letter(2, redriven=1))
    assert told[1:] == ("orders", 20, "billing", 5, "exhausted", "no \x1bdatabase", NOW - 60 * 10**9, 1)
    assert dead_letter(stan_client.Message(1, "orders.dlq", "", b"", NOW)) is None
    odd = stan_client.Message(1, "x", "", b"", NOW, headers=((b"stan-channel", b"o"), (b"stan-count", b"9" * 30)))
    assert dead_letter(odd).deliveries == 0


def test_dead_letter_channels_are_listed_with_their_sources():
    shown = json.loads(stan("dlq", "list", "--json").stdout)
    assert shown == {"channels": [{"channel": "orders.dlq", "messages": 6, "sources": {"orders": 3, "mail": 2, "": 1}}]}
    assert "orders 3, mail 2, published there 1" in stan("dlq", "list").stdout


def test_without_any_it_says_how_they_come(servers):
    servers.admin.all_policies = []
    assert "stan policy set PATTERN --dead-letter .dlq" in stan("dlq", "list").output


@pytest.mark.parametrize(
    ("name", "named", "is_one"),
    [
        ("orders.dlq", [".dlq"], True),
        ("failed", ["", "failed"], True),
        ("orders", [".dlq", "failed", ""], False),
        ("failed.x", ["failed"], False),
    ],
)
def test_which_channels_are_dead_letter_channels(name, named, is_one):
    assert dlq.is_dead_letter_channel(name, named) is is_one


def test_dead_letters_are_shown_with_reason_and_error():
    done = stan("dlq", "show", "orders.dlq", "--durable", "billing", "-n", "2")
    assert done.exit_code == 0
    assert "mail 50" in done.stdout
    assert "orders 10" not in done.stdout, "only the newest two"
    assert "\x1b" not in done.stdout
    found = json.loads(stan("dlq", "show", "orders.dlq", "--sequence", "2-3", "--json").stdout)["letters"]
    assert [(one["sequence"], one["source"], one["source_sequence"], one["deliveries"]) for one in found] == [
        (2, "orders", 20, 5),
        (3, "orders", 30, 5),
    ]


def test_the_age_of_a_dead_letter_is_its_own():
    """Not the time from the publish of its message until it was given up."""
    at = NOW - 3600 * 10**9
    published = (b"stan-published", b"%d" % (at - 10**9))
    message = stan_client.Message(1, "orders.dlq", "", b"", at, headers=((b"stan-channel", b"orders"), published))
    shown = dlq.letters_table("orders.dlq", [dead_letter(message)], NOW)
    assert dict(zip(shown.columns, shown.rows[0], strict=True))["age"] == "1h"


def test_dead_letters_are_put_back_by_source_until_all_are_looked_at(servers):
    dry = stan("dlq", "redrive", "orders.dlq", "--dry-run")
    assert (
        "Puts 4 dead letters of orders.dlq back: 3 to orders, 1 to mail. 1 message put back 3 times already"
        in " ".join(dry.output.split())
    )
    assert not servers.admin.asked

    done = stan("dlq", "redrive", "orders.dlq", "--yes", "--rate", "1000")

    assert servers.admin.asked == [
        ("redrive", "orders.dlq", [(1, 3)], ""),
        ("redrive", "orders.dlq", [(3, 3)], ""),
        ("redrive", "orders.dlq", [(4, 4)], ""),
    ]
    assert "4 dead letters put back." in done.output


def test_dead_letters_may_go_elsewhere(servers):
    assert stan("dlq", "redrive", "orders.dlq", "--sequence", "2", "--to", "again", "--yes").exit_code == 0
    assert servers.admin.asked == [("redrive", "orders.dlq", [(2, 2)], "again")]


def test_dead_letters_are_dropped(servers):
    assert stan("dlq", "drop", "orders.dlq").exit_code == 2
    assert stan("dlq", "drop", "orders.dlq", "--all", "--sequence", "1").exit_code == 2
    assert stan("dlq", "drop", "orders.dlq", "--sequence", "4-9", "--yes").exit_code == 0
    assert stan("dlq", "drop", "orders.dlq", "--all", "--yes").exit_code == 0
    assert servers.admin.asked == [
        ("delete_message", "orders.dlq", 4),
        ("delete_message", "orders.dlq", 5),
        ("purge", "orders.dlq", ("up_to", 6)),
    ]


@pytest.mark.parametrize("wrong", ["0", "x", "5-2", "-3"])
def test_a_wrong_range_is_told(wrong):
    assert stan("dlq", "show", "orders.dlq", f"--sequence={wrong}").exit_code == 2
