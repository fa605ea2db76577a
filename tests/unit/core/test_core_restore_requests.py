"""Channels restored on request: their messages with gaps and times, their durables, and what they are closed for meanwhile."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.boundary.loading import restored
from tests.kit.core_harness import START, CoreHarness, Node

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


def ask(harness, kind, channel=b"foo", restore=b"r1", **asked):
    if kind.startswith("restore"):
        asked["restore"] = restore
    request = KINDS[kind](version=1, channel=channel, **asked)
    return CoreHarness.ask(harness, f"{ADMIN}.{kind}", request, pb.ChangeResponse)


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


def cursor_of(harness, name=b"d", group=1):
    return next(cursor for cursor in harness.follower(group).cursors.values() if cursor.name == name)


def read(harness, inbox="reader", **options):
    """(sequence, data, timestamp) of what a new subscription gets."""
    harness.subscribe("foo", inbox, in_flight=100, **options)
    return [(s.message.sequence, s.message.data, s.message.timestamp) for s in harness.hear(inbox)]


def begin(harness, **options):
    answer = ask(harness, "restore_channel", **{"first_sequence": 5, **options})
    assert told(answer)[0] == ""
    return answer


def test_channel_comes_back_as_it_was(harness) -> None:
    assert told(begin(harness)) == ("", 1, 5, 4)
    assert told(ask(harness, "restore_rows", **runs_of((5, 7, START), (10, 10, START + 1)))) == ("", 4, 5, 10)
    assert told(ask(harness, "restore_rows", **runs_of((12, 13, START + 5)))) == ("", 2, 5, 13)
    position = pb.CursorStatus(
        kind="DURABLE",
        durable_name=b"d",
        client_id=b"me",
        last_sent=10,
        owed_runs=[6, 6],
        pending_runs=[8, 10],
        inbox=b"i",
    )
    assert told(ask(harness, "restore_cursor", cursor=position)) == ("", 1, 5, 13)
    assert told(ask(harness, "restore_end", last_sequence=20)) == ("", 0, 5, 20)
    assert harness.follower().tombstones.by_channel[1].flat() == [8, 9, 11, 11, 14, 20]

    messages = [(s, b"%d" % s, at) for s, at in ((5, START), (6, START), (7, START), (10, START + 1), (12, START + 5))]
    messages.append((13, b"13", START + 5))
    assert read(harness) == messages
    harness.subscribe("foo", "dur", durable="d", in_flight=10)
    assert harness.received("dur") == [(6, 1), (10, 1), (12, 0), (13, 0)]
    harness.publish("foo", b"new")
    assert harness.received("reader") == [(21, 0)]

    before = harness.state.snapshot()
    harness.restart()
    harness.connect("other")
    assert [one[0] for one in read(harness, "again", client_id="other")] == [5, 6, 7, 10, 12, 13, 21]
    assert restored(1, before, changed=False).restores.by_channel[1].ended


def test_numbers_of_redeliveries_come_back(harness) -> None:
    begin(harness)
    ask(harness, "restore_rows", **runs_of((5, 9, START)))
    position = pb.CursorStatus(
        kind="DURABLE",
        durable_name=b"d",
        client_id=b"me",
        last_sent=9,
        owed_runs=[5, 6],
        pending_runs=[8, 9],
        counted_runs=[6, 8],
        counts=[3],
    )
    assert told(ask(harness, "restore_cursor", cursor=position))[0] == ""
    cursor = harness.state.position()
    assert [(run.first, run.last, run.count) for run in cursor.to_redeliver] == [
        (5, 5, 0),
        (6, 6, 3),
        (8, 8, 3),
        (9, 9, 0),
    ]


def test_gap_that_no_batch_can_tell_is_refused_and_ends_nothing(harness) -> None:
    begin(harness)
    widest = limits.RESTORED_GAP_MAX
    assert told(ask(harness, "restore_end", last_sequence=5 + widest))[0] == refusals.INVALID_RESTORE
    assert told(ask(harness, "restore_end", last_sequence=(1 << 63) - 1))[0] == refusals.INVALID_RESTORE
    assert told(ask(harness, "restore_rows", **runs_of((6 + widest, 6 + widest, START))))[0] == refusals.INVALID_RESTORE
    assert (
        told(ask(harness, "restore_rows", **runs_of((5, 5, START), (7 + widest, 7 + widest, START))))[0]
        == refusals.INVALID_RESTORE
    )
    assert told(ask(harness, "restore_rows", **runs_of((7, 7, START)))) == ("", 1, 7, 7)
    assert told(ask(harness, "restore_end")) == ("", 1, 7, 7)


def test_channel_is_left_more_sequences_than_are_ever_published(harness) -> None:
    """The state's numbers are signed: with the last of them given out the node could not write its state any more."""
    end = 1 << 62
    for first in (end, (1 << 63) - 1, 1 << 63):
        assert told(ask(harness, "restore_channel", first_sequence=first))[0] == refusals.INVALID_RESTORE
    begin(harness, first_sequence=end - 3)
    assert told(ask(harness, "restore_rows", **runs_of((end, end, START))))[0] == refusals.INVALID_RESTORE
    assert told(ask(harness, "restore_end", last_sequence=end))[0] == refusals.INVALID_RESTORE
    assert told(ask(harness, "restore_rows", **runs_of((end - 3, end - 1, START)))) == ("", 3, end - 3, end - 1)
    assert told(ask(harness, "restore_end")) == ("", 1, end - 3, end - 1)
    harness.publish("foo", b"new")
    assert [one[0] for one in read(harness)] == [end - 3, end - 2, end - 1, end]


def test_messages_begin_where_the_backup_says(harness) -> None:
    begin(harness, first_sequence=1)
    assert told(ask(harness, "restore_rows", **runs_of((4, 5, START)))) == ("", 2, 4, 5)
    assert told(ask(harness, "restore_end")) == ("", 1, 4, 5)
    assert harness.follower().tombstones.by_channel == {}
    assert [one[0] for one in read(harness)] == [4, 5]


def test_channel_without_messages_goes_on_where_it_was(harness) -> None:
    begin(harness, first_sequence=8)
    ask(harness, "restore_end", last_sequence=11)
    harness.publish("foo", b"new")
    assert [one[0] for one in read(harness)] == [12]


def test_empty_channel_begins_with_its_first_sequence(harness) -> None:
    begin(harness, first_sequence=8)
    ask(harness, "restore_end")
    harness.publish("foo", b"new")
    assert [one[0] for one in read(harness)] == [8]


def test_repeated_requests_change_nothing(harness) -> None:
    begin(harness)
    assert told(begin(harness)) == ("", 0, 5, 4)
    rows = runs_of((5, 7, START), (9, 9, START))
    assert ask(harness, "restore_rows", **rows).changed == 4
    assert ask(harness, "restore_rows", **rows).changed == 0
    assert ask(harness, "restore_rows", **runs_of((7, 7, START), (9, 12, START))).changed == 3, (
        "what is there is left out"
    )
    position = pb.CursorStatus(kind="DURABLE_QUEUE", durable_name=b"d", queue_group=b"q", last_sent=6, owed_runs=[6, 6])
    ask(harness, "restore_cursor", cursor=position)
    position.last_sent = 7
    ask(harness, "restore_cursor", cursor=position)
    assert [(c.name, c.last_sent, c.to_redeliver.flat()) for c in harness.follower().cursors.values()] == [
        (b"d:q", 7, [6, 6])
    ]
    assert told(ask(harness, "restore_end")) == ("", 1, 5, 12)
    before = harness.state.snapshot()
    assert told(ask(harness, "restore_end")) == ("", 0, 5, 12)
    assert told(begin(harness)) == ("", 0, 5, 12)
    assert ask(harness, "restore_rows", **rows).changed == 0
    assert told(ask(harness, "restore_rows", **runs_of((13, 13, START))))[0] == refusals.UNKNOWN_RESTORE
    assert told(ask(harness, "restore_cursor", cursor=position)) == ("", 0, 5, 12)
    position.durable_name = b"other"
    assert told(ask(harness, "restore_cursor", cursor=position))[0] == refusals.UNKNOWN_RESTORE
    assert harness.state.snapshot() == before


def test_channel_is_closed_until_the_end(harness) -> None:
    begin(harness)
    assert harness.publish("foo", b"x") == [refusals.CHANNEL_RESTORING]
    assert harness.subscribe("foo", "sub").error.decode() == refusals.CHANNEL_RESTORING
    for kind, what in (("purge", {"keep": 0}), ("delete_message", {"sequence": 5})):
        answer = ask(harness, kind, **what)
        assert (answer.error.decode(), answer.retry) == (refusals.CHANNEL_RESTORING, True)
    assert told(ask(harness, "restore_channel", restore=b"r2"))[0] == refusals.CHANNEL_RESTORING
    assert told(ask(harness, "restore_rows", restore=b"r2", **runs_of((5, 5, START))))[0] == refusals.UNKNOWN_RESTORE
    harness.restart()
    harness.connect("other")
    assert harness.publish("foo", b"x", client_id="other") == [refusals.CHANNEL_RESTORING]
    ask(harness, "restore_end")
    assert harness.publish("foo", b"x", client_id="other") == [""]


def test_restore_that_is_given_up_goes_with_its_channel(harness) -> None:
    begin(harness)
    ask(harness, "restore_rows", **runs_of((5, 7, START)))
    assert ask(harness, "delete_channel").changed == 3
    assert harness.publish("foo", b"x") == [""]
    assert told(ask(harness, "restore_rows", **runs_of((8, 8, START))))[0] == refusals.UNKNOWN_RESTORE


@pytest.mark.parametrize("used", ["message", "subscription", "purged", "deleted"])
def test_channel_in_use_is_not_restored(harness, used) -> None:
    if used == "subscription":
        harness.subscribe("foo", "sub")
    else:
        harness.publish("foo", *[b"x"] * 6)
    if used == "purged":
        ask(harness, "purge", keep=0)
    if used == "deleted":
        ask(harness, "delete_channel")
        assert told(ask(harness, "restore_channel", first_sequence=5))[0] == ""
    else:
        assert told(ask(harness, "restore_channel", first_sequence=5))[0] == refusals.CHANNEL_IN_USE
        assert harness.publish("foo", b"x") == [""]


def test_purged_channel_takes_what_lies_behind(harness) -> None:
    harness.publish("foo", *[b"x"] * 6)
    ask(harness, "purge", keep=0)
    assert told(ask(harness, "restore_channel", first_sequence=9)) == ("", 1, 9, 8)


@pytest.mark.parametrize(
    ("kind", "what", "error"),
    [
        ("restore_channel", {"restore": b""}, refusals.INVALID_RESTORE),
        ("restore_channel", {"restore": b"x" * 65}, refusals.INVALID_RESTORE),
        ("restore_channel", {"channel": b"a..b"}, refusals.INVALID_SUBJECT),
        ("restore_channel", {"first_sequence": 1 << 63}, refusals.INVALID_RESTORE),
        ("restore_channel", {"limits": pb.Limits(max_age=-1)}, refusals.INVALID_RESTORE),
        ("restore_rows", {}, refusals.INVALID_BATCH),
        ("restore_rows", runs_of((6, 7, START), (5, 5, START)), refusals.RESTORED_OUT_OF_ORDER),
        ("restore_rows", runs_of((6, 7, START), (7, 7, START)), refusals.RESTORED_OUT_OF_ORDER),
        ("restore_rows", runs_of((6, 7, 0)), refusals.RESTORED_OUT_OF_ORDER),
        ("restore_rows", {**runs_of((6, 7, START)), "rows": b"\3\0\0\0xyz"}, refusals.INVALID_ROWS.format(0)),
        ("restore_cursor", {"cursor": pb.CursorStatus(kind="PLAIN")}, refusals.INVALID_RESTORE),
        ("restore_cursor", {"cursor": pb.CursorStatus(kind="DURABLE", durable_name=b"d")}, refusals.INVALID_RESTORE),
        (
            "restore_cursor",
            {"cursor": pb.CursorStatus(kind="DURABLE", durable_name=b"d", client_id=b"c", owed_runs=[5])},
            refusals.INVALID_RESTORE,
        ),
        ("restore_end", {"last_sequence": 1 << 63}, refusals.INVALID_RESTORE),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(harness, kind, what, error) -> None:
    if kind != "restore_channel":
        begin(harness)
    before = harness.state.snapshot()
    assert told(ask(harness, kind, **what))[0] == error
    assert harness.state.snapshot() == before


def test_limits_wait_for_the_end(harness) -> None:
    begin(harness, limits=pb.Limits(max_msgs=2, max_age=SECOND))
    ask(harness, "restore_rows", **runs_of((5, 7, START - 5 * SECOND), (8, 9, START)))
    harness.pass_time(3)
    assert harness.indexes[1, 1].first_sequence == 5
    ask(harness, "restore_end")
    harness.pass_time(0.1)
    (shown,) = CoreHarness.ask(harness, f"{ADMIN}.channels", pb.ChannelsRequest(), pb.ChannelsResponse).channels
    assert (shown.messages, shown.edited) == (0, pb.Limits(max_msgs=2, max_age=SECOND))


def test_too_many_gaps_are_refused(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    begin(harness)
    assert told(ask(harness, "restore_rows", **runs_of((5, 5, START), (7, 7, START), (9, 9, START))))[0] == (
        refusals.TOO_MANY_DELETED
    )
    assert ask(harness, "restore_rows", **runs_of((5, 5, START), (7, 8, START))).changed == 3


def test_position_of_which_not_all_is_known_gets_it_again(harness) -> None:
    begin(harness, first_sequence=1)
    ask(harness, "restore_rows", **runs_of((1, 9, START)))
    position = pb.CursorStatus(
        kind="DURABLE", durable_name=b"d", client_id=b"me", last_sent=6, acked_up_to=3, runs_cut=True, paused=True
    )
    ask(harness, "restore_cursor", cursor=position)
    assert (cursor_of(harness).to_redeliver.flat(), cursor_of(harness).paused) == ([4, 6], True)


def test_what_cannot_be_written_may_be_asked_again(harness) -> None:
    begin(harness)
    harness.full = True
    answer = ask(harness, "restore_rows", **runs_of((5, 7, START)))
    assert (answer.error, answer.retry) == (b"disk full", True)
    answer = ask(harness, "restore_end", last_sequence=9)
    assert (answer.error, answer.retry) == (b"disk full", True)
    harness.full = False
    assert ask(harness, "restore_rows", **runs_of((5, 7, START))).changed == 3
    ask(harness, "restore_end")
    assert [one[0] for one in read(harness)] == [5, 6, 7]


def test_beginning_that_cannot_be_written_leaves_the_channel_open(harness) -> None:
    harness.publish("bar", b"x")
    ask(harness, "delete_channel", b"bar")
    CoreHarness.ask(harness, f"{ADMIN}.create_channel", pb.CreateChannelRequest(channel=b"foo"), pb.ChangeResponse)
    harness.full = True
    assert ask(harness, "restore_channel").retry
    harness.full = False
    assert harness.publish("foo", b"x") == [""]


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
    assert other.state.snapshot() == node.state.snapshot()
    other.lead(1)
    assert other.publish("foo", b"x") == [refusals.CHANNEL_RESTORING]
    assert ask(other, "restore_rows", **runs_of((8, 11, START))).changed == 2
    assert told(ask(other, "restore_end", last_sequence=12))[0] == ""
    assert other.publish("foo", b"x") == [""]
    assert other.indexes[1, 1].last_sequence == 13
    assert other.follower().tombstones.by_channel[1].flat() == [7, 7, 12, 12]


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
