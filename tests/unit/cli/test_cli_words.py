"""States of subscriptions and why they get nothing, in words; tables that are safe to print."""

import pytest
from stan_protocol.proto import admin_pb2 as pb

from stan.cli.commands import cursors
from stan.cli.commands.cursor_tables import cursor_table, cursors_table, format_runs, why_table
from stan.cli.support.output import FITTED_MAX, Table, table_lines
from stan.cli.support.proto_json import document_of
from stan.cli.support.terminal import clean
from stan.monitor.dashboard import cursor_state
from tests.kit.fake_operator import channel, durable, member

S = 1_000_000_000
NOW = 1_800_000_000 * S


def full(**told):
    given = {
        "members": [member(stalled=True, pending=5)],
        "pending": 5,
        "waiting": 5,
        "oldest_pending": NOW - 20 * S,
        "pending_runs": [3, 7],
    }
    return durable(**{**given, **told})


CASES = [
    (durable(), cursors.OFFLINE, "It is offline: client 'acct' is not subscribed", "--client-id acct"),
    (
        durable(paused=True, members=[member()]),
        cursors.PAUSED,
        "It is paused",
        "stan durable resume orders acct/billing",
    ),
    (durable(waiting=0), cursors.RESTING, "It is offline", "stan sub orders"),
    (full(), cursors.FULL, "Its window is full: 5 of 5", "stan durable skip orders acct/billing 3"),
    (full(oldest_pending=NOW - 1000 * S), cursors.STUCK, "the oldest since 16m 40s", "--seq 3"),
    (
        durable(members=[member(failing=True)]),
        cursors.SILENT,
        "does not answer heartbeats (acct)",
        "stan client evict acct",
    ),
    (durable(members=[member()]), cursors.BEHIND, "Messages are on their way", "--watch"),
    (durable(members=[member()], owed=2, pending=2), cursors.OWED, "2 messages wait to be sent again", "--watch"),
    (
        durable(members=[member()], waiting=0, owed=1, pending=1, exhausted=1),
        cursors.UNACKED,
        "1 message was given up (delivered as often as the policy allows, in vain), and will not be sent again",
        "stan durable redeliver orders acct/billing",
    ),
    (
        durable(members=[member(pending=2)], waiting=0, pending=2, delayed=1),
        cursors.UNACKED,
        "1 failed message waits until a pause is over.",
        "redeliver",
    ),
    (durable(members=[member(pending=2)], waiting=0, pending=2), cursors.UNACKED, "2 are not acked yet", "redeliver"),
    (durable(members=[member()], waiting=0), cursors.WELL, "It is caught up", "move orders acct/billing --back 1h"),
    (durable(waiting=0, last_sequence=0), cursors.RESTING, "has no messages: there never was one", "stan pub orders"),
]


@pytest.mark.parametrize(("cursor", "state", "said", "step"), CASES)
def test_state_and_why(cursor, state, said, step):
    assert cursors.state_of(cursor, NOW) == state
    reasons = cursors.why(cursor, "stan durable", NOW)
    assert said in reasons[0] or said in " ".join(reasons)
    assert step in reasons[-1] or step in " ".join(reasons)
    table = why_table(cursor, "stan durable", NOW)
    assert table.document["state"] == state
    assert table.document["reasons"] == reasons


def test_a_group_without_members_is_told_how_to_get_one():
    group = durable(kind=pb.DURABLE_QUEUE, queue_group=b"workers", client="")
    assert cursors.name_of(group) == "billing:workers"
    assert "--queue workers --durable billing" in cursors.why(group, "stan queue", NOW)[-1]


def test_an_ack_that_came_lately_means_not_stuck():
    assert cursors.state_of(full(oldest_pending=NOW - 1000 * S, last_ack=NOW - S), NOW) == cursors.FULL


@pytest.mark.parametrize("age_s", [59, 61, 75, 89, 91, 1000])
def test_command_line_and_dashboard_agree_on_what_is_stuck(age_s):
    for cursor in (full(oldest_pending=NOW - age_s * S), full(oldest_pending=NOW - 1000 * S, last_ack=NOW - age_s * S)):
        assert (cursors.state_of(cursor, NOW) == cursors.STUCK) == (cursor_state.state_of(cursor, NOW).word == "stuck")


def test_some_members_that_are_full_are_named():
    group = durable(kind=pb.QUEUE, queue_group=b"w", name="", members=[member("a", stalled=True), member("b")])
    assert "1 of 2 members have a full window: a." in cursors.why(group, "stan queue", NOW)


def test_a_window_that_was_cut_is_told_of():
    slow = durable(members=[member(window_now=2, pending=2, stalled=True)], pending=2)
    said = "Its window is adaptive, and 2 of 5 messages now: acks did not come within the ack wait of 30s."
    assert said in " ".join(cursors.why(slow, "stan durable", NOW))
    flowing = durable(members=[member(window_now=2, pending=1)], pending=1)
    assert said in " ".join(cursors.why(flowing, "stan durable", NOW))
    rows = dict(cursor_table(slow, NOW).rows)
    assert rows["window now"] == "2 of 5"
    assert rows["member 9"] == "acct: 2 of 5 unacked, window full, window cut to 2"


def test_what_the_order_by_key_holds_back_is_told():
    policy = pb.DeliveryPolicy(ordered_by_key=True)
    group = durable(kind=pb.QUEUE, queue_group=b"w", name="", members=[member()], policy=policy)
    group.waiting, group.held_back, group.exhausted, group.owed, group.pending = 3, 2, 1, 1, 1
    told = " ".join(cursors.why(group, "stan queue", NOW))
    assert "The order by key holds later messages of the same keys back until then" in told
    assert "2 messages are held back by the order by key" in told
    assert dict(cursor_table(group, NOW).rows)["waiting"] == "3 not sent yet, 2 of them held back by the order by key"


def test_of_a_failover_group_the_active_member_counts():
    members = [member("a", active=True, stalled=True, pending=5), member("b")]
    group = durable(kind=pb.QUEUE, queue_group=b"w", name="", members=members, pending=5, waiting=5)
    assert cursors.state_of(group, NOW) == cursors.FULL
    assert "5 of 5 messages are sent and not acked" in " ".join(cursors.why(group, "stan queue", NOW))
    assert "a: 5 of 5 unacked, active, window full" in [text for _, text in cursor_table(group, NOW).rows]
    members[0].failing = True
    silent = durable(kind=pb.QUEUE, queue_group=b"w", name="", members=members, pending=5, waiting=5)
    assert cursors.state_of(silent, NOW) == cursors.SILENT
    assert "Its active member does not answer heartbeats (a)" in cursors.why(silent, "stan queue", NOW)[0]


@pytest.mark.parametrize("told", [0, 5])
def test_a_window_that_was_not_cut_is_no_news_also_of_a_server_that_does_not_tell(told):
    well = durable(members=[member(window_now=told, pending=1)], pending=1)
    assert "adaptive" not in " ".join(cursors.why(well, "stan durable", NOW))
    rows = dict(cursor_table(well, NOW).rows)
    assert (rows["window now"], rows["member 9"]) == ("5 of 5", "acct: 1 of 5 unacked")


def test_names_of_the_network_cannot_speak_to_the_terminal():
    evil = "or\x1b[31mders\n\udcff"
    assert clean(evil) == "or\\x1b[31mders\\x0a\\xff"
    line = table_lines(Table(columns=("name",), rows=[(evil,)]))[1]
    assert "\x1b" not in line


def test_tables_are_aligned_and_fit_the_terminal():
    table = Table(columns=("name", ">n"), rows=[("a" * 60, "1"), ("b", "1,000")])
    lines = table_lines(table)
    assert {len(line) for line in lines} == {67}
    narrow = table_lines(table, 40)
    assert max(map(len, narrow)) == 40
    assert "…" in narrow[1]
    assert table_lines(Table(columns=("a",), empty="Nothing.")) == ["Nothing."]


def test_numbers_are_never_cut_and_names_share_the_room_that_is_left():
    table = Table(columns=("name", ">n", "who"), rows=[("a" * 60, "1,000,000", "b" * 60), ("c", "1", "d")])
    name, number, who = table_lines(table, 60)[1].split()
    assert number == "1,000,000"
    assert abs(len(name) - len(who)) < 5
    assert len(name) + len(number) + len(who) + 4 == 60
    assert "1,000,000" in table_lines(table, 20)[1]


def test_a_pipe_and_a_very_long_table_get_every_cell_whole():
    rows = [("a" * 90, str(number)) for number in range(FITTED_MAX + 1)]
    lines = table_lines(Table(columns=("name", ">n"), rows=rows), 40, bold=True)
    assert lines[0].startswith("\x1b[1mname ")
    assert lines[1:] == table_lines(Table(columns=("name", ">n"), rows=rows))[1:]
    assert lines[1] == f"{'a' * 90}    0"


def test_wide_characters_count_as_the_two_columns_they_take():
    table = Table(columns=("name", ">n"), rows=[("日本", "1"), ("abcd", "2")])
    assert table_lines(table, 40)[1:] == ["日本  1", "abcd  2"]


def test_rows_of_labels_wrap_on_a_terminal():
    lines = table_lines(Table(rows=[("label", "word " * 30)]), 40)
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40
    assert lines[1].startswith(" " * 7)


def test_runs_are_told_briefly():
    assert format_runs([]) == "-"
    assert format_runs([3, 3, 5, 9]) == "3, 5-9"
    assert format_runs([number for pair in range(20) for number in (pair, pair)]).endswith("and 8 more")


def test_json_has_every_field_under_its_name_whether_set_or_not():
    found = document_of(channel(limits=pb.Limits(max_msgs=0)))
    assert found["name"] == "orders"
    assert found["limits"]["max_msgs"] == 0
    assert found["limits"]["max_age"] is None
    assert found["first_timestamp"] == 0
    assert document_of(durable(members=[member()]))["members"][0]["client_id"] == "acct"
    assert document_of(durable())["kind"] == "durable"
    assert document_of(pb.GroupStatus(state_hash=b"\x01\xff"))["state_hash"] == "01ff"


def test_a_table_of_many_names_worst_lag():
    table = cursors_table([durable(), durable("other", waiting=3)], "durable", NOW)
    assert table.foot == "2 durables, worst lag 10"
    assert table.names == ["acct/billing", "acct/other"]
