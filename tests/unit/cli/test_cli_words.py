"""Tables of positions, and tables that are safe to print."""

from stan_protocol.admin_types import GroupStatus, Limits

from stan.cli.commands.cursor_tables import cursor_table, cursors_table, format_runs, why_table
from stan.cli.support.output import FITTED_MAX, Table, table_lines
from stan.cli.support.proto_json import document_of
from stan.cli.support.terminal import clean
from tests.kit.fake_operator import channel, durable, member

S = 1_000_000_000
NOW = 1_800_000_000 * S


def test_a_position_is_shown_with_its_window_and_members():
    cut = durable(members=[member(window_now=2, pending=2, stalled=True)], pending=2, waiting=3, held_back=2)
    rows = dict(cursor_table(cut, NOW).rows)
    assert (rows["state"], rows["window now"]) == ("window full", "2 of 5")
    assert rows["member 9"] == "acct: 2 of 5 unacked, window full, window cut to 2"
    assert rows["waiting"] == "3 not sent yet, 2 of them held back by the order by key"
    rows = dict(cursor_table(durable(members=[member()]), NOW).rows)
    assert (rows["window now"], rows["member 9"]) == ("5 of 5", "acct: 0 of 5 unacked")
    active = cursor_table(durable(members=[member("a", active=True, pending=5, stalled=True)]), NOW)
    assert dict(active.rows)["member 9"] == "a: 5 of 5 unacked, active, window full"


def test_why_has_its_sentences_in_json_too():
    table = why_table(durable(), NOW)
    assert table.head == "Durable acct/billing of channel orders: offline."
    assert (table.document["state"], table.document["reasons"]) == ("offline", [text for (text,) in table.rows])


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
    assert format_runs([(3, 3), (5, 9)]) == "3, 5-9"
    assert format_runs([(number, number) for number in range(20)]).endswith("and 8 more")


def test_json_has_every_field_under_its_name_whether_set_or_not():
    found = document_of(channel(limits=Limits(max_msgs=0)))
    assert found["name"] == "orders"
    assert found["limits"]["max_msgs"] == 0
    assert found["limits"]["max_age"] is None
    assert (found["first_timestamp"], found["first_timestamp_ns"]) == (None, None)
    stored = document_of(channel(last_timestamp=1_796_046_042_007_148_479))
    assert stored["last_timestamp"] == "2026-11-30T13:40:42.007148479Z"
    assert stored["last_timestamp_ns"] == 1_796_046_042_007_148_479
    assert document_of(durable(members=[member()]))["members"][0]["client_id"] == "acct"
    assert document_of(durable())["kind"] == "durable"
    assert document_of(GroupStatus(state_hash=b"\x01\xff"))["state_hash"] == "01ff"


def test_a_table_of_many_names_worst_lag():
    table = cursors_table([durable(), durable("other", waiting=3)], "durable", NOW)
    assert table.foot == "2 durables, worst lag 10"
    assert table.names == ["acct/billing", "acct/other"]
