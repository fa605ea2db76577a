"""Channels restored on request: their messages with gaps and times, their durables, and what they are closed for meanwhile."""

import pytest

from stan import errors, limits
from stan.core.state.state_codec import restore_group, snapshot_group
from stan.protocol.proto import admin_pb2 as pb
from stan.protocol.proto import entries_pb2 as entries
from stan.protocol.proto import wire_pb2 as wire
from stan.types import SECOND
from tests.kit.desk import START, Desk, Node

ADMIN = "_STAN.x.test-cluster.admin"
KINDS = {
    "restore_channel": pb.RestoreChannelRequest,
    "restore_rows": pb.RestoreRowsRequest,
    "restore_cursor": pb.RestoreCursorRequest,
    "restore_end": pb.RestoreEndRequest,
    "delete_channel": pb.DeleteChannelRequest,
    "delete_message": pb.DeleteMessageRequest,
    "purge": pb.PurgeRequest,
}


def ask(desk, kind, channel=b"foo", restore=b"r1", **asked):
    if kind.startswith("restore"):
        asked["restore"] = restore
    request = KINDS[kind](version=1, channel=channel, **asked)
    return Desk.ask(desk, f"{ADMIN}.{kind}", request, pb.ChangeResponse)


def told(response):
    return response.error.decode(), response.changed, response.first_sequence, response.last_sequence


def runs_of(*runs):
    """What a request carries: runs of (first, last, time)."""
    rows = []
    for first, last, _ in runs:
        for sequence in range(first, last + 1):
            row = wire.MsgProto(data=b"%d" % sequence).SerializeToString()
            rows.append(len(row).to_bytes(4, "little") + row)
    told = [pb.RestoredRun(first_sequence=first, count=last - first + 1, timestamp=at) for first, last, at in runs]
    return {"runs": told, "rows": b"".join(rows)}


def cursor_of(desk, name=b"d", group=1):
    return next(cursor for cursor in machine(desk, group).cursors.values() if cursor.name == name)


def machine(desk, group=1):
    return desk.broker.context.groups[group].machine


def snapshot(desk, group=1):
    made = entries.Snapshot()
    snapshot_group(machine(desk, group), made)
    return made


def read(desk, inbox="reader", **options):
    """(sequence, data, timestamp) of what a new subscription gets."""
    desk.subscribe("foo", inbox, in_flight=100, **options)
    return [(s.message.sequence, s.message.data, s.message.timestamp) for s in desk.hear(inbox)]


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    return desk


def begin(desk, **options):
    answer = ask(desk, "restore_channel", **{"first_sequence": 5, **options})
    assert told(answer)[0] == ""
    return answer


def test_channel_comes_back_as_it_was(desk) -> None:
    assert told(begin(desk)) == ("", 1, 5, 4)
    assert told(ask(desk, "restore_rows", **runs_of((5, 7, START), (10, 10, START + 1)))) == ("", 4, 5, 10)
    assert told(ask(desk, "restore_rows", **runs_of((12, 13, START + 5)))) == ("", 2, 5, 13)
    position = pb.CursorStatus(
        kind="DURABLE",
        durable_name=b"d",
        client_id=b"me",
        last_sent=10,
        owed_runs=[6, 6],
        pending_runs=[8, 10],
        inbox=b"i",
    )
    assert told(ask(desk, "restore_cursor", cursor=position)) == ("", 1, 5, 13)
    assert told(ask(desk, "restore_end", last_sequence=20)) == ("", 0, 5, 20)
    assert machine(desk).tombstones.by_channel[1].flat() == [8, 9, 11, 11, 14, 20]

    messages = [(s, b"%d" % s, at) for s, at in ((5, START), (6, START), (7, START), (10, START + 1), (12, START + 5))]
    messages.append((13, b"13", START + 5))
    assert read(desk) == messages
    desk.subscribe("foo", "dur", durable="d", in_flight=10)
    assert desk.received("dur") == [(6, 1), (10, 1), (12, 0), (13, 0)]
    desk.publish("foo", b"new")
    assert desk.received("reader") == [(21, 0)]

    before = snapshot(desk)
    desk.restart()
    desk.connect("other")
    assert [one[0] for one in read(desk, "again", client_id="other")] == [5, 6, 7, 10, 12, 13, 21]
    made = type(machine(desk))(1)
    restore_group(made, before)
    assert made.restores.by_channel[1].ended


def test_gap_that_no_batch_can_tell_is_refused_and_ends_nothing(desk) -> None:
    begin(desk)
    widest = limits.RESTORED_GAP_MAX
    assert told(ask(desk, "restore_end", last_sequence=5 + widest))[0] == errors.INVALID_RESTORE
    assert told(ask(desk, "restore_end", last_sequence=(1 << 63) - 1))[0] == errors.INVALID_RESTORE
    assert told(ask(desk, "restore_rows", **runs_of((6 + widest, 6 + widest, START))))[0] == errors.INVALID_RESTORE
    assert (
        told(ask(desk, "restore_rows", **runs_of((5, 5, START), (7 + widest, 7 + widest, START))))[0]
        == errors.INVALID_RESTORE
    )
    assert told(ask(desk, "restore_rows", **runs_of((7, 7, START)))) == ("", 1, 7, 7)
    assert told(ask(desk, "restore_end")) == ("", 1, 7, 7)


def test_channel_is_left_more_sequences_than_are_ever_published(desk) -> None:
    """The state's numbers are signed: with the last of them given out the node could not write its state any more."""
    end = 1 << 62
    for first in (end, (1 << 63) - 1, 1 << 63):
        assert told(ask(desk, "restore_channel", first_sequence=first))[0] == errors.INVALID_RESTORE
    begin(desk, first_sequence=end - 3)
    assert told(ask(desk, "restore_rows", **runs_of((end, end, START))))[0] == errors.INVALID_RESTORE
    assert told(ask(desk, "restore_end", last_sequence=end))[0] == errors.INVALID_RESTORE
    assert told(ask(desk, "restore_rows", **runs_of((end - 3, end - 1, START)))) == ("", 3, end - 3, end - 1)
    assert told(ask(desk, "restore_end")) == ("", 1, end - 3, end - 1)
    desk.publish("foo", b"new")
    assert [one[0] for one in read(desk)] == [end - 3, end - 2, end - 1, end]


def test_messages_begin_where_the_backup_says(desk) -> None:
    begin(desk, first_sequence=1)
    assert told(ask(desk, "restore_rows", **runs_of((4, 5, START)))) == ("", 2, 4, 5)
    assert told(ask(desk, "restore_end")) == ("", 1, 4, 5)
    assert machine(desk).tombstones.by_channel == {}
    assert [one[0] for one in read(desk)] == [4, 5]


def test_channel_without_messages_goes_on_where_it_was(desk) -> None:
    begin(desk, first_sequence=8)
    ask(desk, "restore_end", last_sequence=11)
    desk.publish("foo", b"new")
    assert [one[0] for one in read(desk)] == [12]


def test_empty_channel_begins_with_its_first_sequence(desk) -> None:
    begin(desk, first_sequence=8)
    ask(desk, "restore_end")
    desk.publish("foo", b"new")
    assert [one[0] for one in read(desk)] == [8]


def test_repeated_requests_change_nothing(desk) -> None:
    begin(desk)
    assert told(begin(desk)) == ("", 0, 5, 4)
    rows = runs_of((5, 7, START), (9, 9, START))
    assert ask(desk, "restore_rows", **rows).changed == 4
    assert ask(desk, "restore_rows", **rows).changed == 0
    assert ask(desk, "restore_rows", **runs_of((7, 7, START), (9, 12, START))).changed == 3, "what is there is left out"
    position = pb.CursorStatus(kind="DURABLE_QUEUE", durable_name=b"d", queue_group=b"q", last_sent=6, owed_runs=[6, 6])
    ask(desk, "restore_cursor", cursor=position)
    position.last_sent = 7
    ask(desk, "restore_cursor", cursor=position)
    assert [(c.name, c.last_sent, c.to_redeliver.flat()) for c in machine(desk).cursors.values()] == [
        (b"d:q", 7, [6, 6])
    ]
    assert told(ask(desk, "restore_end")) == ("", 1, 5, 12)
    before = snapshot(desk)
    assert told(ask(desk, "restore_end")) == ("", 0, 5, 12)
    assert told(begin(desk)) == ("", 0, 5, 12)
    assert ask(desk, "restore_rows", **rows).changed == 0
    assert told(ask(desk, "restore_rows", **runs_of((13, 13, START))))[0] == errors.UNKNOWN_RESTORE
    assert told(ask(desk, "restore_cursor", cursor=position)) == ("", 0, 5, 12)
    position.durable_name = b"other"
    assert told(ask(desk, "restore_cursor", cursor=position))[0] == errors.UNKNOWN_RESTORE
    assert snapshot(desk) == before


def test_channel_is_closed_until_the_end(desk) -> None:
    begin(desk)
    assert desk.publish("foo", b"x") == [errors.CHANNEL_RESTORING]
    assert desk.subscribe("foo", "sub").error.decode() == errors.CHANNEL_RESTORING
    for kind, what in (("purge", {"keep": 0}), ("delete_message", {"sequence": 5})):
        answer = ask(desk, kind, **what)
        assert (answer.error.decode(), answer.retry) == (errors.CHANNEL_RESTORING, True)
    assert told(ask(desk, "restore_channel", restore=b"r2"))[0] == errors.CHANNEL_RESTORING
    assert told(ask(desk, "restore_rows", restore=b"r2", **runs_of((5, 5, START))))[0] == errors.UNKNOWN_RESTORE
    desk.restart()
    desk.connect("other")
    assert desk.publish("foo", b"x", client_id="other") == [errors.CHANNEL_RESTORING]
    ask(desk, "restore_end")
    assert desk.publish("foo", b"x", client_id="other") == [""]


def test_restore_that_is_given_up_goes_with_its_channel(desk) -> None:
    begin(desk)
    ask(desk, "restore_rows", **runs_of((5, 7, START)))
    assert ask(desk, "delete_channel").changed == 3
    assert desk.publish("foo", b"x") == [""]
    assert told(ask(desk, "restore_rows", **runs_of((8, 8, START))))[0] == errors.UNKNOWN_RESTORE


@pytest.mark.parametrize("used", ["message", "subscription", "purged", "deleted"])
def test_channel_in_use_is_not_restored(desk, used) -> None:
    if used == "subscription":
        desk.subscribe("foo", "sub")
    else:
        desk.publish("foo", *[b"x"] * 6)
    if used == "purged":
        ask(desk, "purge", keep=0)
    if used == "deleted":
        ask(desk, "delete_channel")
        assert told(ask(desk, "restore_channel", first_sequence=5))[0] == ""
    else:
        assert told(ask(desk, "restore_channel", first_sequence=5))[0] == errors.CHANNEL_IN_USE
        assert desk.publish("foo", b"x") == [""]


def test_purged_channel_takes_what_lies_behind(desk) -> None:
    desk.publish("foo", *[b"x"] * 6)
    ask(desk, "purge", keep=0)
    assert told(ask(desk, "restore_channel", first_sequence=9)) == ("", 1, 9, 8)


@pytest.mark.parametrize(
    ("kind", "what", "error"),
    [
        ("restore_channel", {"restore": b""}, errors.INVALID_RESTORE),
        ("restore_channel", {"restore": b"x" * 65}, errors.INVALID_RESTORE),
        ("restore_channel", {"channel": b"a..b"}, errors.INVALID_SUBJECT),
        ("restore_channel", {"first_sequence": 1 << 63}, errors.INVALID_RESTORE),
        ("restore_channel", {"limits": pb.Limits(max_age=-1)}, errors.INVALID_RESTORE),
        ("restore_rows", {}, errors.INVALID_BATCH),
        ("restore_rows", runs_of((6, 7, START), (5, 5, START)), errors.RESTORED_OUT_OF_ORDER),
        ("restore_rows", runs_of((6, 7, START), (7, 7, START)), errors.RESTORED_OUT_OF_ORDER),
        ("restore_rows", runs_of((6, 7, 0)), errors.RESTORED_OUT_OF_ORDER),
        ("restore_rows", {**runs_of((6, 7, START)), "rows": b"\3\0\0\0xyz"}, errors.INVALID_ROWS.format(0)),
        ("restore_cursor", {"cursor": pb.CursorStatus(kind="PLAIN")}, errors.INVALID_RESTORE),
        ("restore_cursor", {"cursor": pb.CursorStatus(kind="DURABLE", durable_name=b"d")}, errors.INVALID_RESTORE),
        (
            "restore_cursor",
            {"cursor": pb.CursorStatus(kind="DURABLE", durable_name=b"d", client_id=b"c", owed_runs=[5])},
            errors.INVALID_RESTORE,
        ),
        ("restore_end", {"last_sequence": 1 << 63}, errors.INVALID_RESTORE),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(desk, kind, what, error) -> None:
    if kind != "restore_channel":
        begin(desk)
    before = snapshot(desk)
    assert told(ask(desk, kind, **what))[0] == error
    assert snapshot(desk) == before


def test_limits_wait_for_the_end(desk) -> None:
    begin(desk, limits=pb.Limits(max_msgs=2, max_age=SECOND))
    ask(desk, "restore_rows", **runs_of((5, 7, START - 5 * SECOND), (8, 9, START)))
    desk.pass_time(3)
    assert desk.indexes[1, 1].first_sequence == 5
    ask(desk, "restore_end")
    desk.pass_time(0.1)
    (shown,) = Desk.ask(desk, f"{ADMIN}.channels", pb.ChannelsRequest(), pb.ChannelsResponse).channels
    assert (shown.messages, shown.edited) == (0, pb.Limits(max_msgs=2, max_age=SECOND))


def test_too_many_gaps_are_refused(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    begin(desk)
    assert told(ask(desk, "restore_rows", **runs_of((5, 5, START), (7, 7, START), (9, 9, START))))[0] == (
        errors.TOO_MANY_DELETED
    )
    assert ask(desk, "restore_rows", **runs_of((5, 5, START), (7, 8, START))).changed == 3


def test_position_of_which_not_all_is_known_gets_it_again(desk) -> None:
    begin(desk, first_sequence=1)
    ask(desk, "restore_rows", **runs_of((1, 9, START)))
    position = pb.CursorStatus(
        kind="DURABLE", durable_name=b"d", client_id=b"me", last_sent=6, acked_up_to=3, runs_cut=True, paused=True
    )
    ask(desk, "restore_cursor", cursor=position)
    assert (cursor_of(desk).to_redeliver.flat(), cursor_of(desk).paused) == ([4, 6], True)


def test_what_cannot_be_written_may_be_asked_again(desk) -> None:
    begin(desk)
    desk.full = True
    answer = ask(desk, "restore_rows", **runs_of((5, 7, START)))
    assert (answer.error, answer.retry) == (b"disk full", True)
    answer = ask(desk, "restore_end", last_sequence=9)
    assert (answer.error, answer.retry) == (b"disk full", True)
    desk.full = False
    assert ask(desk, "restore_rows", **runs_of((5, 7, START))).changed == 3
    ask(desk, "restore_end")
    assert [one[0] for one in read(desk)] == [5, 6, 7]


def test_beginning_that_cannot_be_written_leaves_the_channel_open(desk) -> None:
    desk.publish("bar", b"x")
    ask(desk, "delete_channel", b"bar")
    Desk.ask(desk, f"{ADMIN}.create_channel", pb.CreateChannelRequest(channel=b"foo"), pb.ChangeResponse)
    desk.full = True
    assert ask(desk, "restore_channel").retry
    desk.full = False
    assert desk.publish("foo", b"x") == [""]


# --- in a cluster -----------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead(1)
    return node


def test_follower_has_the_same_and_goes_on_with_it(node) -> None:
    begin(node)
    ask(node, "restore_rows", **runs_of((5, 6, START), (8, 9, START)))
    other = Node()
    other.feed_client()
    other.feed_channel()
    for _, kind, body in node.logs[1]:
        other.feed(1, kind, body)
    other.turn()
    assert snapshot(other) == snapshot(node)
    other.lead(1)
    assert other.publish("foo", b"x") == [errors.CHANNEL_RESTORING]
    assert ask(other, "restore_rows", **runs_of((8, 11, START))).changed == 2
    assert told(ask(other, "restore_end", last_sequence=12))[0] == ""
    assert other.publish("foo", b"x") == [""]
    assert other.indexes[1, 1].last_sequence == 13
    assert machine(other).tombstones.by_channel[1].flat() == [7, 7, 12, 12]


def test_request_on_its_way_when_the_leader_changes_is_not_answered(node) -> None:
    begin(node)
    node.hold = True
    request = pb.RestoreRowsRequest(channel=b"foo", restore=b"r1", **runs_of((5, 7, START)))
    node.asks(f"{ADMIN}.restore_rows", request, "first")
    node.turn()
    assert ask(node, "restore_rows", **runs_of((5, 7, START))).retry, "one at a time"
    node.follow(1)
    node.hold = False
    node.lead(1)
    assert node.hear("first") == []
    assert ask(node, "restore_rows", **runs_of((5, 7, START))).changed == 3
