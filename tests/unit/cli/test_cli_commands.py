"""The operator's commands against a fake of the servers: what they show, what they ask before a change, and how they fail."""

import json
import re
from dataclasses import replace

import pytest
import stan_client
import typer
from stan_client.requests.admin import Explanation, Nodes
from stan_protocol.ack_levels import AckLevel
from stan_protocol.admin_types import (
    ChangeResponse,
    ChannelStatus,
    ClientStatus,
    ConsumerGroupStatus,
    CursorKind,
    DelayedMessage,
    DeliveryPolicy,
    ExplainStep,
    GroupStatus,
    Limits,
    NodePlace,
    NodeStatus,
    PartedStatus,
    PartOf,
    PinStatus,
    PolicyStatus,
)
from typer.testing import CliRunner

from stan.cli.commands import channel_messages
from stan.cli.commands.consumer_group import groups_table
from stan.cli.main import ENTRIES, app, loaded, watch_alone
from stan.cli.support import args, session
from stan.cli.support.options import Confirmation, View
from stan.cli.support.output import Table, present
from stan.product import VERSION
from tests.kit.fake_operator import FakeDirect, channel, durable, member


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = FakeDirect()
    fake.admin.all_channels = [channel(), channel("payments", uid=8)]
    fake.admin.all_cursors = [durable()]
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


def stan(*arguments, **more):
    return CliRunner().invoke(app, list(arguments), **more)


def test_help_groups_commands_and_loads_none():
    done = stan("--help")
    assert done.exit_code == 0
    for word in ("Look and mend", "The cluster", "Watch", "Set up", "durable", "doctor"):
        assert word in done.output


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_command_that_is_listed_has_its_help(entry):
    assert loaded(entry).name == entry.name
    assert stan(*entry.name.split(), "--help").exit_code == 0


def test_a_wrong_command_is_answered_with_one_that_is_like_it():
    done = stan("chanel", "list")
    assert done.exit_code == 2
    assert "channel" in done.output


def test_watch_stands_alone_or_with_seconds():
    assert watch_alone(["channel", "list", "--watch"]) == ["channel", "list", "--watch", "2"]
    assert watch_alone(["--watch", "--json"]) == ["--watch", "2", "--json"]
    assert watch_alone(["--watch", "0.5", "x"]) == ["--watch", "0.5", "x"]


@pytest.mark.parametrize("command", [("channel", "list"), ("durable", "list"), ("node", "list"), ("group", "list")])
def test_lists_for_people_scripts_and_programs(command):
    assert stan(*command).exit_code == 0
    assert stan(*command, "--names").stdout.splitlines()
    assert isinstance(json.loads(stan(*command, "--json").stdout), dict)
    assert stan(*command, "--json", "--names").exit_code == 2


def test_names_of_channels():
    assert stan("channel", "list", "--names").stdout == "orders\npayments\n"
    assert stan("channel", "list", "payments", "--names").stdout == "payments\n"
    assert stan("channel", "list", "--empty", "--names").stdout == ""


def test_a_channel_that_is_not_there_is_answered_with_one_that_is_like_it():
    done = stan("channel", "show", "order")
    assert done.exit_code == 1
    assert "Did you mean orders?" in done.output


def test_purge_says_what_will_happen_and_does_nothing_without_an_answer(servers):
    done = stan("channel", "purge", "orders", "--keep", "3")
    assert done.exit_code == 2
    assert "Removes the 7 oldest messages of channel orders for good, of 10 messages (1 to 10)" in done.output
    assert "--yes" in done.output
    assert stan("channel", "purge", "orders", "--all", "--dry-run").exit_code == 0
    assert servers.admin.asked == []

    assert stan("channel", "purge", "orders", "--keep", "3", "--yes").exit_code == 0
    assert servers.admin.asked == [("purge", "orders", ("keep", 3))]


def test_purge_before_the_beginning_of_time_is_no_purge_of_everything(servers):
    servers.at_time = 1
    for before in ("@0", "1970-01-01T00:00:00Z"):
        done = stan("channel", "purge", "orders", "--before", before, "--yes")
        assert (done.exit_code, servers.admin.asked) == (0, [])


@pytest.mark.parametrize(
    "wrong",
    [
        ("channel", "purge", "orders", "--keep", "-1", "--yes"),
        ("channel", "purge", "orders", "--seq", "9" * 20, "--yes"),
        ("channel", "purge", "orders", "--before", "1", "--yes"),
        ("channel", "get", "orders", "--seq", "9" * 20),
        ("channel", "get", "orders", "--time", "2999-01-01T00:00:00Z"),
        ("channel", "limits", "orders", "--max-msgs", "9" * 20),
        ("channel", "limits", "orders", "--max-subs", "9" * 12),
        ("channel", "limits", "orders", "--max-age", "9" * 12 + "d"),
        ("client", "show", ""),
    ],
)
def test_values_that_no_request_can_tell_are_wrong_usage_and_change_nothing(servers, wrong):
    done = stan(*wrong)
    assert (done.exit_code, servers.admin.asked) == (2, [])
    assert "Traceback" not in done.output
    assert not done.exception or isinstance(done.exception, SystemExit)


def test_purge_takes_a_sequence_a_time_or_everything(servers):
    servers.at_time = 5
    assert stan("channel", "purge", "orders", "--before", "1h", "--yes").exit_code == 0
    assert stan("channel", "purge", "orders", "--seq", "2", "--yes").exit_code == 0
    assert stan("channel", "purge", "orders", "--all", "--yes").exit_code == 0
    assert [asked[2] for asked in servers.admin.asked] == [("up_to", 4), ("up_to", 2), ("keep", 0)]
    assert stan("channel", "purge", "orders").exit_code == 2
    assert stan("channel", "purge", "orders", "--all", "--keep", "1").exit_code == 2


def test_a_question_is_answered_with_yes_or_no(monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda *_args, **_more: False)

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setattr("stan.cli.support.options.sys.stdin", Terminal())
    with pytest.raises(typer.Exit) as left:
        Confirmation().require("Removes it.")
    assert left.value.exit_code == 0
    monkeypatch.setattr("typer.confirm", lambda *_args, **_more: True)
    assert Confirmation().require("Removes it.") is None


def test_delete_is_for_the_channel_that_was_shown(servers):
    assert stan("channel", "delete", "orders", "-y").exit_code == 0
    assert servers.admin.asked == [("delete_channel", "orders", ("uid", 7))]


def test_limits_take_sizes_and_durations_and_tell_all_mistakes(servers):
    done = stan("channel", "limits", "orders", "--max-bytes", "ten", "--max-age", "old")
    assert done.exit_code == 2
    assert "--max-bytes" in done.output
    assert "--max-age" in done.output
    assert stan("channel", "limits", "orders").exit_code == 0
    assert stan("channel", "limits", "orders", "--max-bytes", "1MiB", "--max-age", "1h", "--yes").exit_code == 0
    limits = Limits(max_bytes=1 << 20, max_age=3600 * 10**9)
    assert servers.admin.asked[-1] == ("edit_limits", "orders", limits)


def test_get_shows_a_message_as_asked():
    assert stan("channel", "get", "orders", "--seq", "3").stdout == '{"a": 1}\n'
    assert stan("channel", "get", "orders", "--seq", "3", "--as", "json").stdout == '{\n  "a": 1\n}\n'
    assert stan("channel", "get", "orders", "--seq", "3", "--as", "base64").stdout == "eyJhIjogMX0=\n"
    assert stan("channel", "get", "orders", "--seq", "3", "--as", "raw").stdout == '{"a": 1}'
    told = json.loads(stan("channel", "get", "orders", "--seq", "3", "--json").stdout)
    assert (told["sequence"], told["key"]) == (3, "k\x1b[2J")
    assert told["headers"] == [["trace", "1"], ["raw", {"base64": "/w=="}]]
    wrong_newest = (("--newest", "0"), ("--newest", "-1"), ("--newest", "some"), ("--seq", "1", "--newest", "1"))
    for wrong in (("--seq", "0"), ("--seq", "5-3"), *wrong_newest, ("--as", "xml")):
        assert stan("channel", "get", "orders", *wrong).exit_code == 2


def test_get_tells_key_and_headers_to_people(monkeypatch):
    monkeypatch.setattr(type(channel_messages.out), "is_terminal", True)
    assert (
        stan("channel", "get", "orders", "--seq", "3")
        .stdout.splitlines()[0]
        .endswith("8 bytes, key k\\x1b[2J, 2 headers")
    )


def test_durable_moves_back_an_hour(servers):
    servers.admin.all_cursors = [durable(last_sent=10, waiting=0)]
    servers.at_time = 4
    done = stan("durable", "move", "orders", "billing", "--back", "1h", "--yes")
    assert done.exit_code == 0
    assert "message 4 comes next, instead of 11" in done.output
    assert "7 messages that it got come again" in done.output
    name, which, to = servers.admin.asked[-1]
    assert (name, which.channel, which.cursor_id, to) == ("move", "orders", 5, ("sequence", 4))


def test_durable_commands_ask_for_what_they_say(servers):
    for command in (("pause",), ("resume",), ("redeliver",), ("skip", "3", "5-6", "--yes"), ("delete", "--yes")):
        done = stan("durable", command[0], "orders", "acct/billing", *command[1:])
        assert done.exit_code == 0, done.output
    assert [asked[0] for asked in servers.admin.asked] == ["pause", "resume", "redeliver", "skip", "delete_cursor"]
    assert servers.admin.asked[3][2] == [(3, 3), (5, 6)]
    assert stan("durable", "skip", "orders", "billing", "x", "0").output.count("SEQ:") == 2


def test_a_durable_is_found_by_client_or_refused_if_there_are_several(servers):
    servers.admin.all_cursors.append(durable(client="other", cursor_id=6))
    assert stan("durable", "why", "orders", "billing").exit_code == 2
    assert stan("durable", "why", "orders", "billing", "--client", "other").exit_code == 0
    assert stan("durable", "why", "orders", "other/billing").exit_code == 0


def test_why_of_a_wrong_name_suggests_the_right_one(servers):
    servers.admin.all_cursors.append(durable(kind=CursorKind.QUEUE, name="", queue_group="workers", client=""))
    assert "Did you mean billing?" in stan("durable", "why", "orders", "biling").output
    assert "use `stan queue`" in stan("durable", "why", "orders", "workers").output
    assert "There is one of channel orders" in stan("durable", "why", "payments", "billing").output
    assert "There is no channel 'nothing'" in stan("durable", "why", "nothing", "billing").output
    done = stan("queue", "why", "orders", "workers", "--json")
    assert json.loads(done.stdout)["state"] == "offline"


def test_clients_and_subscriptions_are_closed_after_a_question(servers):
    servers.admin.all_clients = [ClientStatus(client_id="acct", failing=True)]
    servers.admin.all_cursors = [durable(members=[member()])]
    assert "not answering" in stan("client", "list", "--failing").stdout
    assert "billing" in stan("client", "show", "acct").stdout
    assert stan("client", "evict", "acct").exit_code == 2
    assert stan("client", "evict", "acct", "--yes").exit_code == 0
    assert stan("client", "evict", "act", "--yes").exit_code == 1
    assert stan("subscription", "list").exit_code == 0
    assert stan("subscription", "evict", "orders", "9", "--yes").exit_code == 0
    assert stan("subscription", "evict", "orders", "8", "--yes").exit_code == 1
    assert servers.admin.asked == [("evict_client", "acct"), ("evict_member", "orders", 9)]


def cluster(*, leader="a"):
    def group(node, number):
        role = "leader" if node == leader else "follower"
        return GroupStatus(group=number, role=role, leader=leader, term=3, committed=10, applied=9, voters=["a", "b"])

    return Nodes(
        [NodeStatus(node=node, nodes=["a", "b", "c"], groups=[group(node, n) for n in (0, 1)]) for node in ("a", "b")],
        ["c"],
    )


def test_labels_of_nodes_are_shown_and_doctor_finds_two_copies_in_one_zone(servers):
    servers.admin.all_nodes = cluster()
    assert "labels" not in stan("node", "list").stdout
    places = [NodePlace(node=name, zone=zone) for name, zone in zip("abd", ("east", "east", "west"), strict=True)]
    servers.admin.tell_of_nodes(labels="zone=east", places=places)
    assert "zone=east" in stan("node", "list").stdout
    assert "zone=east" in stan("node", "show", "a").stdout
    assert "Group 0 has two copies in zone east and none in zone west." in stan("doctor").stdout


def test_channels_are_pinned_and_pins_listed(servers):
    assert "No channel is pinned" in stan("channel", "pins").stdout
    assert "pinned to group 5" in stan("channel", "pin", "orders", "--group", "5").stdout
    assert "no longer pinned" in stan("channel", "unpin", "orders").stdout
    assert stan("channel", "pin", "orders", "--group", "0").exit_code == 2
    assert stan("channel", "pin", "a.*", "--group", "5").exit_code == 2
    assert servers.admin.asked == [("pin_channel", "orders", 5), ("unpin_channel", "orders")]
    servers.admin.all_pins = [PinStatus(channel="hot", group=3)]
    assert "not made yet" in stan("channel", "pins").stdout
    assert json.loads(stan("channel", "pins", "--json").stdout)["pins"][0]["group"] == 3


def test_what_acks_of_a_channel_mean_is_changed(servers):
    servers.admin.all_channels = [ChannelStatus(name="orders", commit=1)]
    assert "is replicated already" in stan("channel", "commit", "orders", "replicated", "--yes").stdout
    assert servers.admin.asked == []
    servers.admin.all_channels = [ChannelStatus(name="orders")]
    assert "is replicated." in stan("channel", "commit", "orders", "replicated", "--yes").stdout
    assert servers.admin.asked == [("change_commit", "orders", 1)]
    wrong = stan("channel", "commit", "orders", "fast", "--yes")
    assert (wrong.exit_code, "COMMIT is synced or replicated" in wrong.stderr) == (2, True)
    early = stan("channel", "commit", "orders", "ephemeral", "--yes")
    assert (early.exit_code, "by a policy that is there before it" in early.stderr) == (2, True)
    assert servers.admin.asked == [("change_commit", "orders", 1)]


def parted(servers, counts=(3000, 10, 20, 30), groups=(1, 2, 3, 3)):
    """Channel sales with parts, and a durable in three of them."""
    told = [PartOf(channel="sales", number=number, parts=len(counts)) for number in range(len(counts))]
    servers.admin.all_channels += [
        channel(f"sales.~{of.number}", uid=20 + of.number, messages=count, last_sequence=count, group=group, part_of=of)
        for of, count, group in zip(told, counts, groups, strict=True)
    ]
    servers.admin.all_cursors += [
        durable("ledger", channel=f"sales.~{of.number}", cursor_id=30 + of.number, waiting=5, pending=1, part_of=of)
        for of in told[:3]
    ]


def test_parts_of_a_channel_are_one_row_until_they_are_asked_for(servers):
    parted(servers)
    lines = stan("channel", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["orders", "payments", "sales"]
    row = next(line for line in lines if line.startswith("sales (4 parts)"))
    assert "3,060" in row
    assert row.endswith("1, 2, 3")
    assert "~0" not in "".join(lines)
    below = stan("channel", "list", "--parts").stdout
    assert [f"sales.~{number} " in below for number in range(4)] == [True] * 4
    assert stan("channel", "list", "sales", "--names").stdout.split() == [f"sales.~{number}" for number in range(4)]
    document = json.loads(stan("channel", "list", "--json").stdout)["channels"]
    assert [one["name"] for one in document] == ["orders", "payments", *(f"sales.~{number}" for number in range(4))]
    assert document[0]["part_of"] is None
    assert document[3]["part_of"]["number"] == 1
    assert "sales.~2" in stan("channel", "list", "sales.~2").stdout


def test_a_channel_with_parts_is_shown_with_where_they_are_and_who_reads_them(servers):
    parted(servers)
    shown = stan("channel", "show", "sales").stdout
    assert "3,060 (3.91 KiB)" in shown
    assert "group 1, leader (alone): 3,000 messages (0.977 KiB, 98 %)" in shown
    assert "acct/ledger in 3 of 4 parts: offline, 15 waiting, 3 unacked" in shown
    document = json.loads(stan("channel", "show", "sales", "--json").stdout)
    assert [one["leader"] for one in document["parts"]] == ["(alone)", "", "", ""]


def test_a_durable_of_several_parts_is_told_with_its_sums(servers):
    parted(servers)
    row = next(line for line in stan("durable", "list").stdout.splitlines() if "ledger" in line)
    assert row.startswith("sales (3 of 4 parts)")
    assert row.split()[-5:] == ["15", "3/15", "-", "0", "0"]
    assert "sales.~1" in stan("durable", "list", "sales", "--parts").stdout
    assert len(json.loads(stan("durable", "list", "sales", "--json").stdout)["cursors"]) == 3
    why = stan("durable", "why", "sales", "ledger").stdout
    assert "Durable acct/ledger of channel sales (3 of 4 parts): offline, 15 waiting, 3 unacked in all." in why
    assert why.count("It is offline") == 3
    document = json.loads(stan("durable", "why", "sales", "ledger", "--json").stdout)
    assert (document["waiting"], [one["channel"] for one in document["parts"]]) == (
        15,
        ["sales.~0", "sales.~1", "sales.~2"],
    )
    refused = stan("durable", "show", "sales", "ledger")
    assert refused.exit_code == 1
    assert "name one of sales.~0 to sales.~2" in refused.output
    assert "of channel sales.~1" in stan("durable", "why", "sales.~1", "ledger").stdout


def test_a_durable_of_several_parts_is_moved_held_and_deleted_in_all_of_them(servers):
    parted(servers)
    moved = stan("durable", "move", "sales", "ledger", "--all", "--yes")
    assert (moved.exit_code, moved.stdout.count("comes next.")) == (0, 3)
    assert "of channel sales.~2: message" in moved.stdout
    assert [(asked[0], asked[1].channel, asked[2]) for asked in servers.admin.asked] == [
        ("move", f"sales.~{number}", ("all", True)) for number in range(3)
    ]
    del servers.admin.asked[:]
    stan("durable", "move", "sales", "ledger", "--back", "1h", "--yes")
    assert [asked[2][0] for asked in servers.admin.asked] == ["sequence"] * 3
    del servers.admin.asked[:]
    for one in ("--seq", "3"), ("--new",):
        refused = stan("durable", "move", "sales", "ledger", *one, input="no\n")
        assert (refused.exit_code != 0, servers.admin.asked) == (True, [])
    assert "name one of sales.~0 to sales.~2" in stan("durable", "move", "sales", "ledger", "--seq", "3").output
    assert "Paused in 3 parts. Go on: stan durable resume sales" in stan("durable", "pause", "sales", "ledger").stdout
    assert "It goes on in 3 parts: 15 messages wait." in stan("durable", "resume", "sales", "ledger").stdout
    assert stan("durable", "redeliver", "sales", "ledger").exit_code == 0
    assert "SEQ is a message of one part" in stan("durable", "redeliver", "sales", "ledger", "3").output
    gone = stan("durable", "delete", "sales", "ledger", "--yes")
    assert gone.output.count("for good") == 3
    assert "is deleted in 3 parts." in gone.stdout
    kinds = [asked[0] for asked in servers.admin.asked]
    assert kinds == [kind for kind in ("pause", "resume", "redeliver", "delete_cursor") for _ in range(3)]


def test_doctor_tells_what_is_wrong_with_parts(servers):
    parted(servers)
    told = stan("doctor").stdout
    assert "Part ~0 of channel sales has 3,000 of 3,060 messages" in told
    assert "Durable acct/ledger reads 3 of the 4 parts of channel sales, not ~3." in told


def test_channels_are_made_with_parts_and_deleted_with_them(servers):
    assert "No channel has parts" in stan("channel", "parts").stdout
    assert "with 4 parts, sales.~0 to sales.~3, is made" in stan("channel", "create", "sales", "--parts", "4").stdout
    stan("channel", "create", "clicks", "--parts", "2", "--key", "$.user.id")
    for wrong in (("--parts", "1"), ("--key", "$.a"), ("--parts", "3", "--key", "a"), ("--parts", "257")):
        assert stan("channel", "create", "orders", *wrong).exit_code == 2, wrong
    assert servers.admin.asked == [("create_parts", "sales", 4, ""), ("create_parts", "clicks", 2, "$.user.id")]
    servers.admin.all_parts = [PartedStatus(channel="sales", parts=4, key="$.id")]
    assert "$.id" in stan("channel", "parts").stdout
    assert json.loads(stan("channel", "parts", "--json").stdout)["channels"][0]["parts"] == 4
    assert "sales has 8 parts" in stan("channel", "double", "sales", "--yes").stdout
    assert servers.admin.asked[-1] == ("double_parts", "sales", 4)
    assert stan("channel", "double", "orders", "--yes").exit_code == 1
    asked = stan("channel", "delete", "sales", "--yes")
    assert "deleted, with its parts" in asked.stdout
    assert servers.admin.asked[-1] == ("delete_parts", "sales")


def test_the_pool_of_groups_grows(servers):
    servers.admin.all_nodes = cluster()._replace(missing=[])
    servers.admin.tell_of_nodes(pool_groups=8, pool_open=8)
    assert stan("cluster", "grow", "--groups", "8", "--yes").exit_code == 2
    assert "only grows" in stan("cluster", "grow", "--groups", "4", "--yes").output
    assert stan("cluster", "grow", "--groups", "0", "--yes").exit_code == 2
    assert "no terminal" in stan("cluster", "grow", "--groups", "16").output
    assert servers.admin.asked == []
    shown = stan("cluster", "grow", "--groups", "16", "--yes")
    assert "Makes 8 new groups" in shown.output
    assert "There are 16 groups" in shown.stdout
    assert servers.admin.asked == [("grow_pool", 16, 0)]
    told = servers.admin.all_nodes
    groups = [*told.answers[0].groups, GroupStatus(group=20, role="candidate")]
    told.answers[0] = replace(told.answers[0], pool_groups=32, groups=groups)
    assert "The pool grows to 32 groups" in stan("group", "list").stdout
    assert json.loads(stan("group", "list", "--json").stdout)["pool_open"] == 16
    told.missing.append("d")
    assert "It waits for d (does not answer), " in stan("group", "list").stdout
    assert "These do not: d" in stan("cluster", "grow", "--groups", "64", "--yes").output


def test_channels_that_have_to_move_are_told_of_and_paused(servers):
    servers.admin.all_nodes = cluster()._replace(missing=[])
    servers.admin.tell_of_nodes(pool_groups=8, pool_open=8)
    assert "to move" not in stan("group", "list").stdout
    servers.admin.all_nodes.answers[1] = replace(
        servers.admin.all_nodes.answers[1], channels_to_move=12
    )  # it leads the metadata
    assert "12 channels have still to move" in stan("group", "list").stdout
    assert json.loads(stan("group", "list", "--json").stdout)["channels_to_move"] == 12
    assert stan("cluster", "spread").exit_code == 2, "one of the two has to be said"
    assert "12 channels to move" in stan("cluster", "spread", "--pause").stdout
    assert "moves are paused" in stan("group", "list").stdout
    assert json.loads(stan("group", "list", "--json").stdout)["moves_paused"]
    assert "stay where they are" in stan("cluster", "grow", "--groups", "16", "--yes").output
    assert "by themselves" in stan("cluster", "spread", "--resume").stdout
    assert "move there one by one" in stan("cluster", "grow", "--groups", "24", "--yes").output
    assert [one for one in servers.admin.asked if one[0].endswith("_moves")] == [
        ("pause_moves",),
        ("resume_moves",),
    ]


def test_nodes_and_groups(servers):
    servers.admin.all_nodes = cluster()
    assert "does not answer" in stan("node", "list").stdout
    assert "group 1" in stan("node", "show", "a").stdout
    assert "There are: a, b, c" in stan("node", "show", "z").output
    listed = json.loads(stan("group", "list", "--json").stdout)
    assert [(group["group"], group["leader"], group["lag"]) for group in listed["groups"]] == [(0, "a", 1), (1, "a", 1)]
    assert stan("group", "step-down", "1", "--to", "b", "--yes").exit_code == 0
    assert stan("group", "step-down", "1", "--to", "z", "--yes").exit_code == 2
    assert stan("group", "step-down", "9", "--yes").exit_code == 2
    assert stan("node", "add", "d", "--yes").exit_code == 0
    assert stan("node", "remove", "c", "--yes").exit_code == 0
    assert stan("node", "remove", "z", "--yes").exit_code == 1
    assert servers.admin.asked == [("step_down", 1, "b"), ("add_node", "d"), ("remove_node", "c")]


def test_the_level_is_shown_and_raised_when_all_answer(servers):
    nodes = [NodeStatus(node=name, nodes=["a", "b"], level=1, level_known=2) for name in ("a", "b")]
    servers.admin.all_nodes = Nodes(nodes, [])
    assert "The cluster is at level 1. All nodes know level 2: stan node level --raise" in stan("node", "level").output
    assert json.loads(stan("node", "level", "--json").stdout)["level"] == 1
    assert "all nodes know level 2" in stan("doctor").stdout
    assert stan("node", "level", "--raise", "--yes").exit_code == 0
    assert servers.admin.asked == [("raise_level", 2)]
    servers.admin.all_nodes = Nodes(nodes[:1], ["b"])
    refused = stan("node", "level", "--raise", "--yes")
    assert refused.exit_code == 1
    assert "These do not: b." in refused.output


def test_the_level_is_not_raised_while_a_node_does_not_know_the_next_one(servers):
    known = {"a": 3, "b": 4, "c": 3}
    nodes = [NodeStatus(node=name, nodes=list(known), level=3, level_known=known[name]) for name in known]
    servers.admin.all_nodes = Nodes(nodes, [])
    refused = stan("node", "level", "--raise", "--yes")
    assert refused.exit_code == 1
    assert "The cluster stays at level 3: level 4 is not known to a, c." in " ".join(refused.output.split())
    assert not servers.admin.asked


def test_silence_is_explained_by_groups_without_leader(servers):
    servers.admin.failure = stan_client.RequestTimeoutError("late")
    servers.admin.all_nodes = cluster(leader="")
    done = stan("channel", "list")
    assert done.exit_code == 4
    explained = "Groups 0 (metadata) and 1 have no leader: their channels take and deliver nothing. These nodes do not answer: c."
    assert explained in done.output.replace("\n", " ")


def test_a_refusal_is_told(servers):
    servers.admin.failure = stan_client.ServerError("stan: no permission")
    done = stan("channel", "create", "orders.new")
    assert done.exit_code == 1
    assert "The server refuses: stan: no permission" in done.output


@pytest.mark.parametrize(
    "wrong", [("channel", "list", "a..b"), ("channel", "create", "a.*"), ("durable", "list", "x.>.y")]
)
def test_names_that_can_be_none_are_refused_here(wrong):
    assert stan(*wrong).exit_code == 2


def test_top_measures_between_two_looks(servers):
    done = stan("top", "--interval", "0.2", "--json")
    found = json.loads(done.stdout)["channels"]
    assert (found[0]["name"], found[0]["rate"], found[0]["lag"]) == ("orders", 0, 10)
    assert "acct/billing: offline" in stan("top", "--interval", "0.2", "--sort", "lag").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    done = stan("completion", shell)
    assert done.exit_code == 0
    assert "_STAN_COMPLETE" in done.stdout
    assert stan("completion", "cmd").exit_code == 2


def test_channels_are_completed(servers, monkeypatch):
    monkeypatch.setattr(args, "open_direct", lambda *_: servers)
    assert args.channel_names("pay") == ["payments"]
    servers.admin.failure = RuntimeError("no")
    assert args.channel_names("pay") == []


async def test_who_watches_goes_on_when_a_leader_is_slow_to_answer(capsysbinary):
    answers = [stan_client.RequestTimeoutError("late"), Table(names=["a"]), Table(names=["b"]), RuntimeError("enough")]

    async def fetch():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(RuntimeError):
        await present(fetch, View(names=True, watch=0.001))()
    assert capsysbinary.readouterr().out == b"a\nb\n"


@pytest.mark.parametrize(
    ("options", "node", "told"),
    [
        (("--compact", "last"), {"store": "SQL"}, "Without effect now: compact: only the store FILE compacts."),
        (("--compact", "last"), {"store": "MEMORY"}, "Without effect now: compact: only the store FILE compacts."),
        (("--compress", "zstd"), {"store": "SQL"}, "compress: the store SQL has each message in clear."),
        (("--commit", "replicated"), {"store": "FILE"}, "channels are synced. A server alone has none."),
        (("--commit", "replicated"), {"node": "a"}, "Make some: stan cluster grow --commit replicated."),
        (("--served-by", "replica"), {"store": "FILE"}, "served by replica: a server alone has no replica."),
        (("--compact", "last"), {"store": "FILE"}, ""),
        (("--compress", "zstd"), {"store": "MEMORY"}, ""),
        (("--commit", "replicated"), {"node": "a", "groups": [GroupStatus(group=9, commit=1)]}, ""),
        (("--served-by", "replica"), {"node": "a"}, ""),
        (("--max-deliver", "3"), {"store": "SQL"}, ""),
    ],
)
def test_what_a_policy_sets_that_does_nothing_here_is_told(servers, options, node, told):
    servers.admin.all_nodes = Nodes([NodeStatus(**node)], [])
    done = stan("policy", "set", "orders", *options, "--yes")
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    assert told in said
    assert told or "Without effect" not in said
    assert "replica served by" not in said


def test_a_policy_is_set_by_somebody_who_may_not_ask_for_the_nodes(servers, monkeypatch):
    async def refused(**_options):
        raise stan_client.ServerError("stan: no permission")

    monkeypatch.setattr(servers.admin, "nodes", refused)
    done = stan("policy", "set", "orders", "--commit", "replicated", "--yes")
    assert done.exit_code == 0
    assert "Without effect" not in done.output


@pytest.mark.parametrize(
    ("commit", "level", "told"),
    [
        (0, AckLevel.SYNCED, "synced: acked once it is on disk, in a cluster on the disks of a majority"),
        (0, AckLevel.MEMORY, "synced: acked once the server has it in memory, as the store does not sync it"),
        (0, AckLevel.REPLICATED, "synced: acked once a majority has it in memory, as the store does not sync it"),
        (1, AckLevel.REPLICATED, "replicated: acked once a majority has it in memory"),
        (2, AckLevel.MEMORY, "ephemeral: acked once its leader has it in memory, and gone with it"),
    ],
)
def test_where_a_message_is_when_it_is_acked_is_told_by_the_store(servers, commit, level, told):
    servers.admin.all_channels = [channel(commit=commit, ack_level=level)]
    assert told in " ".join(stan("channel", "show", "orders").output.split())


def test_delayed_messages_are_listed_and_cancelled(servers, monkeypatch):
    assert "No delayed messages." in stan("delayed", "list", "orders").output
    servers.admin.all_delayed = [DelayedMessage(id=7, due=1_800_000_000 * 10**9), DelayedMessage(id=9, due=1)]
    shown = stan("delayed", "list", "orders").output
    assert "2027-01-15" in shown
    assert "2 delayed messages." in shown
    assert json.loads(stan("delayed", "list", "orders", "--json").stdout)["messages"][0] == {
        "id": 7,
        "due": 1_800_000_000 * 10**9,
    }
    assert stan("delayed", "list", "orders", "--names").stdout.split() == ["7", "9"]
    assert "1 of 2 delayed messages of channel orders cancelled." in stan(
        "delayed", "cancel", "orders", "7", "9", "--yes"
    ).output.replace("\n", " ")
    assert servers.admin.asked.pop() == ("cancel_delayed", "orders", [7, 9])
    assert stan("delayed", "cancel", "orders", "x", "--yes").exit_code == 2

    async def none(*_asked):
        return ChangeResponse()

    monkeypatch.setattr(servers.admin, "cancel_delayed", none)
    refused = stan("delayed", "cancel", "orders", "99", "--yes")
    assert refused.exit_code == 1
    assert "Nothing was cancelled: channel orders has no such delayed messages" in refused.output
    servers.admin.all_channels = [channel(delayed=3)]
    assert "3: stan delayed list" in stan("channel", "show", "orders").output.replace("\n", " ")


def test_a_channel_tells_how_long_its_messages_live(servers):
    assert "time to live" not in stan("channel", "show", "orders").output
    servers.admin.all_channels = [channel(ttl=90 * 10**9)]
    assert "time to live     1m 30s\n" in stan("channel", "show", "orders").output


def test_a_compacted_channel_says_so(servers):
    servers.admin.all_channels = [channel(compact=1, compacted_until=8, compacted_here=6, tombstones_until=3)]
    shown = " ".join(stan("channel", "show", "orders").output.split())
    assert "at most 10" in shown
    assert "the newest message of a key stays; done up to 6 of 8, tombstones up to 3" in shown
    assert "tombstones kept" not in shown
    held = channel(compact=1, compacted_until=8, compacted_here=8, tombstone_held=5, held_by="billing")
    servers.admin.all_channels = [held]
    shown = " ".join(stan("channel", "show", "orders").output.split())
    assert "tombstones kept up to 5, until billing has passed them" in shown
    assert stan("policy", "set", "orders", "--compact", "first", "--min-age", "1m", "--yes").exit_code == 0
    policy = DeliveryPolicy(compact=2, min_age=60 * 10**9)
    assert servers.admin.asked.pop() == ("set_policy", "orders", policy, ("name", ""))
    assert stan("policy", "set", "orders", "--compact", "second", "--yes").exit_code == 2
    for wrong in (("--delete",), ("--delete", "--key", "k", "data")):
        assert stan("pub", "orders", *wrong).exit_code == 2


def test_durables_and_consumer_groups_are_shown_with_their_user(servers):
    servers.admin.all_cursors = [durable(user="alice")]
    shown = stan("durable", "show", "orders", "billing").output
    assert re.search(r"^ *user +alice$", shown, re.MULTILINE), shown
    (row,) = groups_table([ConsumerGroupStatus(group="ledger", user="alice", members=1)]).rows
    assert row[:3] == ("ledger", "alice", "1")


def test_policies_are_listed_shown_set_and_removed(servers):
    policy = DeliveryPolicy(max_deliver=5, backoff=(10**9, 60 * 10**9), adaptive_window=True)
    listed = "max deliver 5, back-off 1s 1m0s, adaptive window"
    assert "No policies." in stan("policy", "list").output
    options = ("--max-deliver", "5", "--backoff", "1s,1m", "--window", "adaptive")
    assert stan("policy", "set", "orders.>", *options, "--durable", "billing", "--yes").exit_code == 0
    assert servers.admin.asked.pop() == ("set_policy", "orders.>", policy, ("name", "billing"))
    servers.admin.all_policies = [
        PolicyStatus(pattern=">", policy=DeliveryPolicy(max_hold=0), configured=True, where="stan.conf:7"),
        PolicyStatus(pattern="orders", name="billing", policy=policy),
    ]
    assert [one["pattern"] for one in json.loads(stan("policy", "list", "--json").stdout)["policies"]] == [
        ">",
        "orders",
    ]
    shown = stan("policy", "show", "orders", "--durable", "billing").output
    assert f"orders billing: {listed} (stan policy set)" in shown
    assert ">: no max hold (configuration, stan.conf:7)" in shown
    assert stan("policy", "unset", "orders", "--durable", "billing", "--yes").exit_code == 0
    assert servers.admin.asked.pop() == ("set_policy", "orders", None, ("name", "billing"))
    assert "Nobody has set a policy of >." in stan("policy", "unset", ">", "--yes").output  # it is configured
    servers.admin.all_cursors = [durable(policy=policy)]
    assert listed in stan("durable", "show", "orders", "billing").output.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "Nothing is set"),
        (("--max-deliver", "1000001"), "--max-deliver must be between 0 and 1000000, not 1000001."),
        (("--backoff", "1s,soon"), "--backoff: 'soon' is no duration"),
        (("--backoff", ",".join(["1s"] * 33)), "--backoff has at most 32 pauses, not 33."),
        (("--backoff", "8d"), "--backoff: a pause must be between 0 and 168h0m0s, not 192h0m0s."),
        (("--window", "wide"), "--window: 'wide' is neither adaptive nor fixed."),
        (("--dead-letter", ".a..b"), '--dead-letter: invalid channel name ".a..b".'),
        (("--dead-letter-rate", "1000001"), "--dead-letter-rate must be between 0 and 1000000, not 1000001."),
        (("--order", "all"), "--order: 'all' is neither key nor any."),
        (("--commit", "fast"), "--commit: 'fast' is none of synced, replicated, ephemeral."),
        (("--delay", "1s", "--durable", "x"), "--delay is for whole channels, not for one durable."),
    ],
)
def test_a_wrong_policy_is_refused_by_the_name_of_its_option(servers, options, complaint):
    done = stan("policy", "set", "orders", *options, "--yes")
    assert done.exit_code == 2
    assert complaint in done.output
    assert not servers.admin.asked


def test_explain_tells_each_delivery_in_a_sentence(servers):
    at = 1_700_000_000_123_000_000
    steps = [
        ExplainStep(what="delivered", cause="new", client_id="me\x1b", subscription_id=4, at=at, until=at, node="n1"),
        ExplainStep(what="left", subscription_id=4),
        ExplainStep(what="delivered", cause="member gone", client_id="you", subscription_id=5, count=1, at=at),
        ExplainStep(what="moved", sequence=1000),
        ExplainStep(what="something new"),
    ]
    servers.admin.explanation = Explanation(at, "exhausted", begins_late=True, steps=steps)
    done = stan("explain", "orders", "billing", "17")
    assert done.exit_code == 0
    for told in (
        "Message 17 of channel orders",
        "sent to me\\x1b (subscription 4) for the first time",
        "the member that had it (subscription 4) left",
        "sent to you (subscription 5) again, as the member that had it has left; redelivery 1",
        "message 1,000 came next",
        "something new",
        "It was delivered as often as the policy allows",
        "may be missing",
        ".123",
    ):
        assert told in done.output
    document = json.loads(stan("explain", "orders", "billing", "17", "--json").output)
    assert (document["state"], document["begins_late"], len(document["steps"])) == ("exhausted", True, 5)
    assert document["steps"][2]["cause"] == "member gone"
    assert {asked[0] for asked in servers.admin.asked} == {"explain"}

    servers.admin.explanation = Explanation(0, "not sent", begins_late=False, steps=[])
    told = stan("explain", "orders", "billing", "18").output
    assert "The log goes on" not in told
    assert "The log tells of no delivery." in told
    assert "gone from the channel" in told
    assert stan("explain", "orders", "billing", "0").exit_code == 2

    servers.admin.explanation = Explanation(at, "pending", begins_late=False, steps=steps[:1], goes_on=True)
    servers.admin.asked.clear()
    assert "The log goes on" in stan("explain", "orders", "billing", "17").output
    assert json.loads(stan("explain", "orders", "billing", "17", "--json", "--all").output)["goes_on"]
    assert [answers for _, _, _, answers in servers.admin.asked] == [20, 0]
    assert "no durable or queue group 'other'" in stan("explain", "orders", "other", "1").output


def test_the_version_is_told():
    done = stan("--version")
    assert (done.exit_code, done.stdout) == (0, f"stan {VERSION}\n")
