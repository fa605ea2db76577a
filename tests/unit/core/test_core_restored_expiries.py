"""Restored messages with a time to live: they expire when they would have, none before the restore has ended."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import BUSY
from stan_protocol.scalars import SECOND

from stan.core.features.restore import rows as restored_rows
from tests.kit.core_harness import START, Node
from tests.unit.core import test_core_deferred as deferred
from tests.unit.core.test_core_delays import data, stored
from tests.unit.core.test_core_expiring import fetched, left, listed, send, started
from tests.unit.core.test_core_restore_requests import ask, begin, runs_of, told

NOW = START // SECOND


def expiring(*runs, **times):
    """What a request carries: runs as of `runs_of`, and *times*: when the messages s5 or s5_7 expire, seconds from START."""
    flat = [[int(number) for number in name[1:].split("_")] for name in times]
    pairs = [number for numbers in flat for number in (numbers[0], numbers[-1])]
    return {**runs_of(*runs), "expiring_runs": pairs, "expire_at": [NOW + after for after in times.values()]}


def expiries(harness):
    return {one.sequence: one.expires_at for one in stored(harness, b"foo")}


def test_restored_messages_tell_when_they_expire_and_go_then(harness) -> None:
    begin(harness)
    rows = expiring((5, 8, START), (10, 12, START + 1), s6=5, s7_10=9, s12=5)
    assert told(ask(harness, "restore_rows", **rows)) == ("", 7, 5, 12)
    assert told(ask(harness, "restore_end"))[0] == ""
    at = {6: 5, 7: 9, 8: 9, 10: 9, 12: 5}
    assert expiries(harness) == {s: START + at[s] * SECOND if s in at else 0 for s in (5, 6, 7, 8, 10, 11, 12)}
    assert listed(harness) == {6: (6, NOW + 5), 7: (8, NOW + 9), 10: (10, NOW + 9), 12: (12, NOW + 5)}
    harness.pass_time(4.9)
    assert left(harness) == [5, 6, 7, 8, 10, 11, 12]
    harness.pass_time(0.2)
    assert left(harness) == [5, 7, 8, 10, 11]
    harness.restart()
    harness.pass_time(5)
    assert (left(harness), listed(harness)) == ([5, 11], {})
    harness.connect("other")
    assert harness.publish("foo", b"new", client_id="other") == [""]
    assert left(harness) == [5, 11, 13]


def test_a_message_is_stored_as_it_was_published(harness) -> None:
    (ack,) = send(harness, "foo", (b"1", 7))
    (origin,) = harness.indexes[1, 1].batches
    (message,) = stored(harness, b"foo")
    other = started()
    begin(other, first_sequence=1)
    rows = expiring((1, 1, message.timestamp))
    at = message.expires_at // SECOND
    assert told(ask(other, "restore_rows", **{**rows, "expiring_runs": [1, 1], "expire_at": [at]}))[0] == ""
    assert (ack.sequence, other.indexes[1, 1].batches) == (1, [origin])


@pytest.mark.parametrize("restarts", [False, True])
def test_what_has_expired_is_there_until_the_end_and_gone_then(harness, restarts) -> None:
    begin(harness)
    ask(harness, "restore_rows", **expiring((5, 7, START), s5=-9, s7=2))
    position = pb.CursorStatus(
        kind="DURABLE", durable_name=b"d", client_id=b"me", last_sent=7, owed_runs=[5, 7], inbox=b"i"
    )
    assert told(ask(harness, "restore_cursor", cursor=position))[0] == ""
    if restarts:
        harness.restart()
    harness.pass_time(5)
    assert left(harness) == [5, 6, 7]
    assert fetched(harness) == BUSY, "nobody sees what has expired"
    assert told(ask(harness, "restore_rows", **expiring((8, 9, START), s9=-1)))[:2] == ("", 2)
    harness.hold = True
    request = pb.RestoreEndRequest(version=1, channel=b"foo", restore=b"r1")
    harness.asks("_STAN.x.test-cluster.admin.restore_end", request, "end")
    harness.turn()
    assert left(harness) == [5, 6, 7, 8, 9]
    harness.hold = False
    harness.commit()
    harness.turn()
    assert (left(harness), listed(harness)) == ([6, 8], {})
    assert fetched(harness) == 6
    cursor = harness.state.position()
    assert cursor.pending == [6]
    assert harness.broker.view.totals().expired_messages == 3


def test_a_restore_that_is_given_up_leaves_nothing_listed(harness) -> None:
    begin(harness)
    ask(harness, "restore_rows", **expiring((5, 7, START), s5_7=-1))
    harness.pass_time(1)
    assert fetched(harness) == BUSY
    assert ask(harness, "delete_channel").changed == 3
    assert harness.publish("foo", b"x") == [""]
    harness.pass_time(2)
    assert (left(harness), listed(harness), fetched(harness)) == ([1], {}, 1)


def test_repeated_rows_are_left_out_and_the_others_keep_their_times(harness) -> None:
    begin(harness)
    rows = expiring((5, 6, START), (8, 11, START), s6=5, s8_9=6, s10=7)
    assert ask(harness, "restore_rows", **expiring((5, 6, START), (8, 8, START), s6=5, s8=6)).changed == 3
    assert ask(harness, "restore_rows", **rows).changed == 3
    before = harness.state.snapshot()
    assert ask(harness, "restore_rows", **rows).changed == 0
    assert harness.state.snapshot() == before
    assert listed(harness) == {6: (6, NOW + 5), 8: (9, NOW + 6), 10: (10, NOW + 7)}
    assert [at and at // SECOND - NOW for at in expiries(harness).values()] == [0, 5, 6, 6, 7, 0]


FIVE_TO_SEVEN = runs_of((5, 7, START))


@pytest.mark.parametrize(
    ("runs", "times", "error"),
    [
        ([5], [NOW], refusals.INVALID_RESTORE),
        ([], [NOW], refusals.INVALID_RESTORE),
        ([5, 5], [], refusals.INVALID_RESTORE),
        ([6, 5], [NOW], refusals.INVALID_RESTORE),
        ([0, 5], [NOW], refusals.INVALID_RESTORE),
        ([4, 5], [NOW], refusals.INVALID_RESTORE),
        ([7, 8], [NOW], refusals.INVALID_RESTORE),
        ([5, (1 << 64) - 1], [NOW], refusals.INVALID_RESTORE),
        ([5, 5], [0], refusals.INVALID_RESTORE),
        ([5, 5], [-NOW], refusals.INVALID_RESTORE),
        ([5, 5], [1 << 62], refusals.INVALID_RESTORE),
        ([5, 6, 6, 7], [NOW, NOW], refusals.RESTORED_OUT_OF_ORDER),
        ([6, 6, 5, 5], [NOW, NOW], refusals.RESTORED_OUT_OF_ORDER),
    ],
)
def test_expiries_that_are_none_are_refused_and_change_nothing(harness, runs, times, error) -> None:
    begin(harness)
    before = harness.state.snapshot()
    assert told(ask(harness, "restore_rows", **FIVE_TO_SEVEN, expiring_runs=runs, expire_at=times))[0] == error
    assert (harness.state.snapshot(), left(harness)) == (before, [])


def test_the_latest_expiry_is_taken(harness) -> None:
    begin(harness)
    ask(harness, "restore_rows", **FIVE_TO_SEVEN, expiring_runs=[5, 7], expire_at=[restored_rows.LATEST])
    ask(harness, "restore_end")
    assert listed(harness) == {5: (7, restored_rows.LATEST)}


def test_too_many_runs_are_refused(harness, monkeypatch) -> None:
    monkeypatch.setattr("stan.core.features.restore.rows.RUNS_MAX", 2)
    begin(harness)
    assert ask(harness, "restore_rows", **expiring((5, 7, START), s5=5)).changed == 3
    assert told(ask(harness, "restore_rows", **expiring((8, 11, START), s8=5, s10=6)))[0] == refusals.TOO_MANY_EXPIRING
    assert ask(harness, "restore_rows", **expiring((8, 11, START), s8_9=5)).changed == 4


def test_a_message_that_would_be_too_large_with_its_expiry_is_refused(harness) -> None:
    begin(harness)
    room = harness.broker.view.payload_bytes_max - len(b"foo") - 36
    row = wire.MsgProto(data=b"x" * (room - 5)).SerializeToString()
    rows = {"runs": [pb.RestoredRun(first_sequence=5, count=1, timestamp=START)]}
    rows["rows"] = len(row).to_bytes(4, "little") + row
    expire = {"expiring_runs": [5, 5], "expire_at": [NOW + 5]}
    assert told(ask(harness, "restore_rows", **rows, **expire))[0] == refusals.ROW_TOO_LARGE.format(0)
    assert ask(harness, "restore_rows", **rows).changed == 1


def test_a_follower_has_the_same_and_goes_on_with_it() -> None:
    node, other = Node(), Node()
    for one in (node, other):
        one.feed_client()
        one.feed_channel()
    node.lead(1)
    begin(node)
    ask(node, "restore_rows", **expiring((5, 6, START), (8, 9, START), s5=-1, s9=3))
    for _, kind, body in node.logs[1]:
        other.feed(1, kind, body)
    other.turn()
    assert other.state.snapshot() == node.state.snapshot()
    other.lead(1)
    assert fetched(other) == BUSY
    assert told(ask(other, "restore_end"))[0] == ""
    assert left(other) == [6, 8, 9]
    other.pass_time(4)
    assert left(other) == [6, 8]


def test_what_waits_for_its_time_is_put_back_with_its_expiry() -> None:
    origin, other = started(), started()
    send(origin, "foo", (b"1", 3), (b"2", 0), after=5)
    saved = deferred.fetched(origin)
    assert [one.expires_at for one in saved.messages] == [origin.wall + 8 * SECOND, 0]
    deferred.put_back(other, "restore_channel", first_sequence=1)
    told = deferred.put_back(other, "restore_delayed", messages=saved.messages, rows=saved.rows)
    assert (told.error, told.changed) == (b"", 2)
    again = deferred.fetched(other)
    assert (again.messages, again.rows) == (saved.messages, saved.rows)
    deferred.put_back(other, "restore_end")
    assert other.follower().expiries.by_channel == {}, "nothing expires in the hidden channel"
    other.pass_time(5.1)
    assert data(other, b"foo") == [b"1", b"2"]
    assert [one.expires_at for one in stored(other, b"foo")] == [START + 8 * SECOND, 0]
    other.pass_time(3)
    assert (left(other), deferred.waiting(other)) == ([2], 0)


def test_an_expiry_that_no_message_can_tell_is_not_put_back(harness) -> None:
    deferred.put_back(harness, "restore_channel", first_sequence=1)
    row = wire.MsgProto(data=b"x").SerializeToString()
    message = pb.DelayedMessage(id=1, due=5, expires_at=-1)
    rows = len(row).to_bytes(4, "little") + row
    told = deferred.put_back(harness, "restore_delayed", messages=[message], rows=rows)
    assert told.error.decode() == refusals.INVALID_RESTORE
