"""Batches: many rows in one request, in one entry, each id once, whoever leads."""

from array import array

import pytest
from stan_protocol import refusals
from stan_protocol.kernel.rows import pack_rows
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.proto.extension_pb2 import BatchRequest, BatchResponse
from stan_protocol.refusals import TOO_MUCH_WAITING

from stan import limits
from stan.config import Config, StoreLimits
from stan.protocol.entries import Kind, decode_batches, decode_records
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness, Node

SUBJECT = "_STAN.x.test-cluster.batch"


def packed(*texts):
    places = array("i", [0])
    for text in texts:
        places.append(places[-1] + len(text))
    return pack_rows(places.tobytes(), b"".join(texts), 0, len(texts))


def request(*texts, channel="foo", ids=None, producer=b"", version=0):
    """A batch; *ids*: one small number for each row."""
    return BatchRequest(
        channel=channel.encode(),
        count=len(texts),
        producer=producer or (b"" if ids is None else b"p"),
        version=version,
        ids=b"".join(number.to_bytes(16, "big") for number in ids or ()),
        rows=packed(*texts),
    )


def send(harness, *texts, **named):
    return harness.ask(SUBJECT, request(*texts, **named), BatchResponse)


def stored(first=0, last=0, duplicates=0):
    return BatchResponse(first_sequence=first, last_sequence=last, duplicates=duplicates)


def refused(error, *, retry=False):
    return refusals.refused(BatchResponse(retry=retry), error)


def answer(harness, reply):
    return BatchResponse.FromString(harness.hear(reply)[0].payload)


def data_of(harness, channel="foo"):
    return Node.stored(harness, channel)


def entries_of(harness):
    """How many entries with messages there are, and the ids told in them."""
    bodies = [body for _, kind, body in harness.logs[1] if kind == Kind.RECORDS]
    return [[pb.GroupChange.FromString(told).remember_ids.ids for told in decode_records(body)[2]] for body in bodies]


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_are_stored_in_order_and_delivered(harness):
    assert send(harness, b"one", b"", b"three") == stored(1, 3)
    harness.subscribe("foo", start=3, seq=1)
    assert [said.message.data for said in harness.hear("inbox")] == [b"one", b"", b"three"]
    assert send(harness, b"four") == stored(4, 4)
    assert [said.message.data for said in harness.hear("inbox")] == [b"four"]
    assert harness.broker.view.totals().in_messages == 4


def test_rows_and_publishes_go_into_one_entry_in_order_of_arrival(harness):
    send(harness, b"first")
    harness.hold = True
    harness.asks(SUBJECT, request(b"a", b"b"), "r.1")
    harness.asks(SUBJECT, request(b"c"), "r.2")
    harness.publish("foo", b"d")
    assert len(harness.uncommitted) == 1
    harness.hold = False
    harness.turn()
    assert [answer(harness, "r.1"), answer(harness, "r.2")] == [stored(2, 3), stored(4, 4)]
    assert data_of(harness) == [b"first", b"a", b"b", b"c", b"d"]
    assert harness.broker.view.uncommitted_bytes == harness.broker.view.totals().unsealed_bytes == 0


def test_headers_and_replies_travel_with_the_rows(harness):
    rows = pack_rows(
        array("i", [0, 1]).tobytes(),
        b"x",
        0,
        1,
        replies=(array("i", [0, 2]).tobytes(), b"re", 0),
        headers=[[(b"k", b"v")]],
    )
    asked = BatchRequest(channel=b"foo", count=1, rows=rows)
    assert harness.ask(SUBJECT, asked, BatchResponse) == stored(1, 1)
    harness.subscribe("foo", start=3, seq=1)
    message = harness.hear("inbox")[0].message
    assert (message.reply, message.data, list(message.headers)) == (b"re", b"x", [wire.Header(key=b"k", value=b"v")])


BAD_ROW = packed(b"good") + b"\x02\0\0\0\x08\x01"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (b"\xff", refusals.INVALID_BATCH),
        (BatchRequest(channel=b"foo"), refusals.INVALID_BATCH),
        (BatchRequest(channel=b"foo", count=2, rows=BAD_ROW), refusals.INVALID_ROWS.format(1)),
        (BatchRequest(channel=b"foo", count=1, rows=packed(b"a", b"b")), refusals.INVALID_ROWS.format(1)),
        (BatchRequest(channel=b"foo.*", count=1, rows=packed(b"a")), refusals.INVALID_SUBJECT),
        (BatchRequest(channel=b"", count=1, rows=packed(b"a")), refusals.INVALID_SUBJECT),
        (BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 16), refusals.INVALID_BATCH),
        (
            BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 15, producer=b"p"),
            refusals.INVALID_BATCH,
        ),
        (
            BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 16, producer=b"p" * 256),
            refusals.INVALID_BATCH,
        ),
        (request(b"a", ids=[1], version=-1), refusals.INVALID_BATCH),
        (request(b"a", b"b" * (1 << 20)), refusals.ROW_TOO_LARGE.format(1)),
        (BatchRequest(channel=b"f" * 200, count=200_000, rows=b"\0\0\0\0" * 200_000), refusals.TOO_MANY_ROWS),
        (request(b"a", channel="FOO"), refusals.case_conflict("FOO", "foo")),
        (request(b"a", channel="other"), refusals.TOO_MANY_CHANNELS),
    ],
)
def test_what_cannot_be_stored_is_refused_for_good(asked, error):
    harness = CoreHarness(Config(limits=StoreLimits(channels=1)))
    harness.connect()
    harness.publish("foo", b"there")
    assert harness.ask(SUBJECT, asked, BatchResponse) == refused(error)
    assert data_of(harness) == [b"there"]
    assert harness.state.waiting().batches == 0


def test_a_full_disk_refuses_for_now():
    harness = CoreHarness()
    send(harness, b"a", ids=[1])
    harness.full = True
    assert send(harness, b"b", ids=[2]) == refused("disk full", retry=True)
    assert send(harness, b"c") == refused("disk full", retry=True)
    harness.full = False
    assert send(harness, b"b", ids=[2]) == stored(2, 2)
    assert data_of(harness) == [b"a", b"b"]


def test_what_waits_is_bounded(monkeypatch):
    harness = CoreHarness(hold=True)
    monkeypatch.setattr(limits, "BATCH_BYTES_WAITING_MAX", 50)
    assert send(harness, b"a" * 60, ids=[1]) is None  # waits for its channel, and nothing else does
    assert send(harness, b"b" * 30, ids=[2]) == refused(refusals.BUSY, retry=True)
    assert send(harness, b"b" * 30) == refused(refusals.BUSY, retry=True)
    harness.hold = False
    harness.turn()
    assert send(harness, b"b" * 30, ids=[2]) == stored(2, 2)
    assert harness.state.waiting().batches == 0


def test_what_waits_for_a_majority_is_bounded(monkeypatch):
    node = leader()
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 100)
    node.hold = True
    assert send(node, b"a" * 100) is None
    assert send(node, b"b", ids=[1]) == refused(TOO_MUCH_WAITING, retry=True)
    assert send(node, b"b") == refused(TOO_MUCH_WAITING, retry=True)
    node.hold = False
    node.turn()
    assert send(node, b"b", ids=[1]) == stored(2, 2)


def test_much_that_waits_goes_into_entries_of_a_sensible_size_and_no_request_into_two(harness):
    harness.broker.stops.step_room(1, closed=False, full=True)
    for number in range(5):
        harness.asks(SUBJECT, request(*[b"x" * 400] * 1000), f"r.{number}")
    harness.publish("foo", b"last")
    assert not entries_of(harness)
    harness.broker.stops.step_room(1, closed=False, full=False)
    harness.turn()
    assert [answer(harness, f"r.{number}") for number in range(5)] == [
        stored(1000 * number + 1, 1000 * number + 1000) for number in range(5)
    ]
    assert [count for _, count, _, _ in harness.indexes[1, 1].batches] == [3000, 2001]
    assert harness.broker.view.uncommitted_bytes == harness.broker.view.totals().unsealed_bytes == 0


def test_a_channel_that_is_being_deleted_is_made_again_later():
    harness = CoreHarness()
    send(harness, b"a", ids=[1])
    channel = harness.broker.parts.channels.by_name[b"foo"]
    harness.hold = True
    harness.broker.parts.channels.removal.delete(channel)
    assert send(harness, b"b") == refused(refusals.CHANNEL_DELETING, retry=True)
    harness.hold = False
    harness.turn()
    assert send(harness, b"a", ids=[1]) == stored(1, 1)  # another channel, in which nothing is known


# --- ids ----------------------------------------------------------------------------------------------------------


def test_rows_with_known_ids_are_left_out():
    harness = CoreHarness()
    assert send(harness, b"a", b"b", ids=[1, 2]) == stored(1, 2)
    assert send(harness, b"a", b"b", ids=[1, 2]) == stored(duplicates=2)
    assert send(harness, b"b", b"c", b"a", b"d", b"c", ids=[2, 3, 1, 4, 3]) == stored(3, 4, duplicates=3)
    assert send(harness, b"a", ids=[1], producer=b"q") == stored(5, 5)
    assert send(harness, b"a", ids=[1], channel="bar") == stored(1, 1)
    assert data_of(harness) == [b"a", b"b", b"c", b"d", b"a"]
    assert len(entries_of(harness)) == 4


def test_ids_outlive_a_restart():
    harness = CoreHarness()
    send(harness, b"a", b"b", ids=[1, 2], version=7)
    harness.restart()
    assert send(harness, b"b", b"c", ids=[2, 3], version=8) == stored(3, 3, duplicates=1)


def test_what_was_written_and_not_answered_is_stored_once():
    harness = CoreHarness()
    send(harness, b"z")
    harness.hold = True
    assert send(harness, b"a", b"b", ids=[1, 2]) is None
    harness.hold = False
    group, _, _, body = harness.uncommitted[0]
    batch = decode_batches(body)[0]  # it is in the log, and so it is committed at the next start
    harness.indexes[group, batch.uid].batches.append((batch.base_sequence, batch.count, batch.timestamp, batch.records))
    harness.restart()
    assert send(harness, b"b", b"a", ids=[2, 1]) == stored(duplicates=2)
    assert data_of(harness) == [b"z", b"a", b"b"]


def test_requests_wait_for_their_producers_entry_and_go_together():
    harness = CoreHarness()
    send(harness, b"z", ids=[0])
    harness.hold = True
    asked = [
        request(b"a", b"b", ids=[1, 2]),
        request(b"b", b"c", ids=[2, 3]),  # waits, as all that follow
        request(b"c", b"d", ids=[3, 4]),
        request(b"a", ids=[1]),
        request(b"e", ids=[5], version=1),
    ]
    for number, one in enumerate(asked):
        harness.asks(SUBJECT, one, f"r.{number}")
        harness.turn()
    assert len(entries_of(harness)) == 2
    harness.hold = False
    harness.turn()
    answers = [answer(harness, f"r.{number}") for number in range(5)]
    assert answers == [
        stored(2, 3),
        stored(4, 4, duplicates=1),
        stored(5, 5, duplicates=1),
        stored(duplicates=1),
        stored(6, 6),
    ]
    assert data_of(harness) == [b"z", b"a", b"b", b"c", b"d", b"e"]
    assert len(entries_of(harness)) == 4
    assert harness.state.waiting().batches == 0


def test_a_refused_entry_is_nobodys_and_those_behind_it_go_on():
    harness = CoreHarness()
    send(harness, b"z", ids=[0])
    harness.hold = True
    harness.asks(SUBJECT, request(b"a", ids=[1]), "r.1")
    harness.asks(SUBJECT, request(b"a", b"b", ids=[1, 2]), "r.2")
    harness.full = True
    harness.turn()
    harness.full = harness.hold = False
    assert answer(harness, "r.1") == refused("disk full", retry=True)
    assert send(harness, b"a", b"b", ids=[1, 2]).error == b""
    assert data_of(harness) == [b"z", b"a", b"b"]


def test_the_ids_of_two_versions_are_known():
    harness = CoreHarness()
    send(harness, b"a", ids=[1], version=5)
    send(harness, b"b", ids=[2], version=7)
    assert send(harness, b"a", ids=[1], version=4) == refused(refusals.IDS_FORGOTTEN)
    send(harness, b"c", ids=[3], version=9)
    assert send(harness, b"b", ids=[2], version=7) == stored(duplicates=1)
    assert send(harness, b"a", ids=[1], version=5) == refused(refusals.IDS_FORGOTTEN)
    assert send(harness, b"a", ids=[1], version=9) == stored(4, 4)  # forgotten with version 5


def test_an_id_is_known_as_long_as_the_last_version_in_which_it_was_sent():
    harness = CoreHarness()
    send(harness, b"a", b"b", ids=[1, 2], version=5)
    assert send(harness, b"a", ids=[1], version=6) == stored(duplicates=1)
    assert send(harness, b"b", b"c", ids=[2, 3], version=6) == stored(3, 3, duplicates=1)
    send(harness, b"d", ids=[4], version=7)
    harness.restart()
    assert send(harness, b"a", b"b", b"c", ids=[1, 2, 3], version=6) == stored(duplicates=3)
    harness.full = True
    assert send(harness, b"a", ids=[1], version=7) == refused("disk full", retry=True)
    assert send(harness, b"a", ids=[1], version=6) == stored(duplicates=1)


def test_more_ids_than_are_remembered_are_refused(monkeypatch):
    harness = CoreHarness()
    monkeypatch.setattr(limits, "WINDOW_IDS_MAX", 3)
    assert send(harness, b"a", b"b", ids=[1, 2]) == stored(1, 2)
    assert send(harness, b"c", b"d", ids=[3, 4]) == refused(refusals.TOO_MANY_IDS)
    assert send(harness, b"a", b"c", ids=[1, 3]) == stored(3, 3, duplicates=1)
    assert send(harness, b"d", ids=[4], version=1) == stored(4, 4)
    monkeypatch.setattr(limits, "WINDOWS_MAX", 1)
    assert send(harness, b"e", ids=[1], producer=b"q") == refused(refusals.TOO_MANY_IDS)
    monkeypatch.setattr(limits, "GROUP_IDS_MAX", 4)
    assert send(harness, b"e", ids=[5], version=1) == refused(refusals.TOO_MANY_IDS)


def test_a_producer_that_is_not_heard_for_a_day_is_forgotten():
    harness = CoreHarness()
    send(harness, b"a", ids=[1])
    send(harness, b"b", ids=[1], producer=b"q")
    harness.pass_time(12 * 3600)
    send(harness, b"c", ids=[2])
    harness.pass_time(13 * 3600)
    send(harness, b"d", ids=[1], channel="bar")
    windows = windows_of(harness)
    assert sorted(windows.producers) == [(1, b"p"), (2, b"p")]
    assert send(harness, b"b", ids=[1], producer=b"q") == stored(4, 4)


def windows_of(harness):
    return harness.follower().dedup


# --- in a cluster ---------------------------------------------------------------------------------------------------


def leader():
    node = Node()
    node.feed_channel("foo")
    node.lead(1)
    return node


def test_only_the_leader_answers():
    node = leader()
    assert send(node, b"a", ids=[1]) == stored(1, 1)
    node.follow(1)
    assert send(node, b"b", ids=[2]) is None


def test_the_next_leader_knows_what_the_last_one_has_stored():
    first, second = leader(), Node()
    second.feed_channel("foo")
    send(first, b"a", b"b", ids=[1, 2])
    first.hold = True
    assert send(first, b"b", b"c", ids=[2, 3]) is None
    first.commit()
    for entry in first.committed:
        second.feed(*entry)
    second.lead(1)
    assert send(second, b"b", b"c", b"d", ids=[2, 3, 4]) == stored(4, 4, duplicates=2)
    assert second.stored() == [b"a", b"b", b"c", b"d"]


def test_who_leads_no_more_answers_nothing_and_begins_anew():
    node = leader()
    send(node, b"a", ids=[1])
    node.hold = True
    assert send(node, b"b", ids=[2]) is None
    assert send(node, b"c", ids=[3]) is None  # behind it
    node.follow(1)
    assert node.state.waiting().batches == 0
    node.hold = False
    node.lead(1)
    assert send(node, b"b", b"c", ids=[2, 3]) == stored(2, 3)
    assert node.stored() == [b"a", b"b", b"c"]


def test_who_may_have_been_replaced_says_so_only_where_a_repetition_does_no_harm():
    node = leader()
    node.broker.stops.step_lease(1, holds=False)
    assert send(node, b"a", ids=[1]) == refused(refusals.BUSY, retry=True)
    assert send(node, b"a") is None
    assert node.stored() == []


def test_a_channel_that_does_not_exist_yet_is_made_by_the_leader_of_the_metadata():
    node = Node()
    node.lead(1)
    assert send(node, b"a", ids=[1]) is None
    assert node.forwarded() == ["create_channels"]
    node.feed_channel("foo")
    node.turn()
    assert [BatchResponse.FromString(said.payload) for said in node.hear() if said.subject.startswith("reply")] == [
        stored(1, 1)
    ]


# --- state --------------------------------------------------------------------------------------------------------


def test_a_snapshot_holds_the_windows():
    harness = CoreHarness()
    send(harness, b"a", b"b", ids=[1, 2], version=3)
    send(harness, b"c", ids=[3], version=4)
    snapshot = harness.state.snapshot()
    harness.broker.states.reset(1, harness.state.copy())
    assert harness.state.snapshot() == snapshot
    harness.broker.roles.lead_group(1, unconfirmed=False)
    assert send(harness, b"a", b"c", b"d", ids=[1, 3, 4], version=4) == stored(4, 4, duplicates=2)


def test_a_dropped_channel_takes_its_windows_along():
    harness = CoreHarness()
    send(harness, b"a", ids=[1])
    send(harness, b"a", ids=[1], channel="bar")
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo"])
    harness.turn()
    windows = windows_of(harness)
    assert list(windows.producers) == [(2, b"p")]
    assert windows.ids == 1
