"""Batches: many rows in one request, in one entry, each id once, whoever leads."""

from array import array

import pytest

from stan import errors, limits
from stan.config import Config, StoreLimits
from stan.core.publishing.batching import Batches
from stan.core.publishing.publishing import TOO_MUCH_WAITING
from stan.core.state import state_codec as state_rows
from stan.core.state.dedup import ProducerDedup
from stan.core.state.group import GroupMachine
from stan.protocol.entries import Kind, changes_of, decode_batches
from stan.protocol.kernel.rows import pack_rows
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import wire_pb2 as wire
from stan.protocol.proto.extension_pb2 import BatchRequest, BatchResponse
from tests.kit.desk import Desk, Node

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


def send(desk, *texts, **named):
    return desk.ask(SUBJECT, request(*texts, **named), BatchResponse)


def stored(first=0, last=0, duplicates=0):
    return BatchResponse(first_sequence=first, last_sequence=last, duplicates=duplicates)


def refused(error, *, retry=False):
    return BatchResponse(error=error.encode(), retry=retry)


def answer(desk, reply):
    return BatchResponse.FromString(desk.hear(reply)[0].payload)


def data_of(desk, channel="foo"):
    return Node.stored(desk, channel)


def entries_of(desk):
    """How many entries with messages there are, and the ids told in them."""
    bodies = [body for _, kind, body in desk.logs[1] if kind == Kind.RECORDS]
    return [[pb.GroupChange.FromString(told).remember_ids.ids for told in changes_of(body)] for body in bodies]


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_are_stored_in_order_and_delivered():
    desk = Desk()
    desk.connect()
    assert send(desk, b"one", b"", b"three") == stored(1, 3)
    desk.subscribe("foo", start=3, seq=1)
    assert [said.message.data for said in desk.hear("inbox")] == [b"one", b"", b"three"]
    assert send(desk, b"four") == stored(4, 4)
    assert [said.message.data for said in desk.hear("inbox")] == [b"four"]
    assert desk.broker.context.totals.in_messages == 4


def test_rows_and_publishes_go_into_one_entry_in_order_of_arrival():
    desk = Desk()
    desk.connect()
    send(desk, b"first")
    desk.hold = True
    desk.asks(SUBJECT, request(b"a", b"b"), "r.1")
    desk.asks(SUBJECT, request(b"c"), "r.2")
    desk.publish("foo", b"d")
    assert len(desk.uncommitted) == 1
    desk.hold = False
    desk.turn()
    assert [answer(desk, "r.1"), answer(desk, "r.2")] == [stored(2, 3), stored(4, 4)]
    assert data_of(desk) == [b"first", b"a", b"b", b"c", b"d"]
    assert desk.broker.publishing.uncommitted_bytes == desk.broker.publishing.unsealed_bytes == 0


def test_headers_and_replies_travel_with_the_rows():
    desk = Desk()
    desk.connect()
    rows = pack_rows(
        array("i", [0, 1]).tobytes(),
        b"x",
        0,
        1,
        replies=(array("i", [0, 2]).tobytes(), b"re", 0),
        headers=[[(b"k", b"v")]],
    )
    asked = BatchRequest(channel=b"foo", count=1, rows=rows)
    assert desk.ask(SUBJECT, asked, BatchResponse) == stored(1, 1)
    desk.subscribe("foo", start=3, seq=1)
    message = desk.hear("inbox")[0].message
    assert (message.reply, message.data, list(message.headers)) == (b"re", b"x", [wire.Header(key=b"k", value=b"v")])


BAD_ROW = packed(b"good") + b"\x02\0\0\0\x08\x01"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (b"\xff", errors.INVALID_BATCH),
        (BatchRequest(channel=b"foo"), errors.INVALID_BATCH),
        (BatchRequest(channel=b"foo", count=2, rows=BAD_ROW), errors.INVALID_ROWS.format(1)),
        (BatchRequest(channel=b"foo", count=1, rows=packed(b"a", b"b")), errors.INVALID_ROWS.format(1)),
        (BatchRequest(channel=b"foo.*", count=1, rows=packed(b"a")), errors.INVALID_SUBJECT),
        (BatchRequest(channel=b"", count=1, rows=packed(b"a")), errors.INVALID_SUBJECT),
        (BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 16), errors.INVALID_BATCH),
        (BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 15, producer=b"p"), errors.INVALID_BATCH),
        (
            BatchRequest(channel=b"foo", count=1, rows=packed(b"a"), ids=b"x" * 16, producer=b"p" * 256),
            errors.INVALID_BATCH,
        ),
        (request(b"a", ids=[1], version=-1), errors.INVALID_BATCH),
        (request(b"a", b"b" * (1 << 20)), errors.ROW_TOO_LARGE.format(1)),
        (BatchRequest(channel=b"f" * 200, count=200_000, rows=b"\0\0\0\0" * 200_000), errors.TOO_MANY_ROWS),
        (request(b"a", channel="FOO"), errors.case_conflict("FOO", "foo")),
        (request(b"a", channel="other"), errors.TOO_MANY_CHANNELS),
    ],
)
def test_what_cannot_be_stored_is_refused_for_good(asked, error):
    desk = Desk(Config(limits=StoreLimits(channels=1)))
    desk.connect()
    desk.publish("foo", b"there")
    assert desk.ask(SUBJECT, asked, BatchResponse) == refused(error)
    assert data_of(desk) == [b"there"]
    assert desk.broker.context.kept(1, Batches).waiting == 0


def test_a_full_disk_refuses_for_now():
    desk = Desk()
    send(desk, b"a", ids=[1])
    desk.full = True
    assert send(desk, b"b", ids=[2]) == refused("disk full", retry=True)
    assert send(desk, b"c") == refused("disk full", retry=True)
    desk.full = False
    assert send(desk, b"b", ids=[2]) == stored(2, 2)
    assert data_of(desk) == [b"a", b"b"]


def test_what_waits_is_bounded(monkeypatch):
    desk = Desk(hold=True)
    monkeypatch.setattr(limits, "BATCH_BYTES_WAITING_MAX", 50)
    assert send(desk, b"a" * 60, ids=[1]) is None  # waits for its channel, and nothing else does
    assert send(desk, b"b" * 30, ids=[2]) == refused(errors.BUSY, retry=True)
    assert send(desk, b"b" * 30) == refused(errors.BUSY, retry=True)
    desk.hold = False
    desk.turn()
    assert send(desk, b"b" * 30, ids=[2]) == stored(2, 2)
    assert desk.broker.context.kept(1, Batches).waiting == 0


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


def test_much_that_waits_goes_into_entries_of_a_sensible_size_and_no_request_into_two():
    desk = Desk()
    desk.connect()
    desk.broker.context.saturated = frozenset({1})
    for number in range(5):
        desk.asks(SUBJECT, request(*[b"x" * 400] * 1000), f"r.{number}")
    desk.publish("foo", b"last")
    assert not entries_of(desk)
    desk.broker.context.saturated = frozenset()
    desk.turn()
    assert [answer(desk, f"r.{number}") for number in range(5)] == [
        stored(1000 * number + 1, 1000 * number + 1000) for number in range(5)
    ]
    assert [count for _, count, _, _ in desk.indexes[1, 1].batches] == [3000, 2001]
    assert desk.broker.publishing.uncommitted_bytes == desk.broker.publishing.unsealed_bytes == 0


def test_a_channel_that_is_being_deleted_is_made_again_later():
    desk = Desk()
    send(desk, b"a", ids=[1])
    channel = desk.broker.channels.by_name[b"foo"]
    desk.hold = True
    desk.broker.channels.delete(channel)
    assert send(desk, b"b") == refused(errors.CHANNEL_DELETING, retry=True)
    desk.hold = False
    desk.turn()
    assert send(desk, b"a", ids=[1]) == stored(1, 1)  # another channel, in which nothing is known


# --- ids ----------------------------------------------------------------------------------------------------------


def test_rows_with_known_ids_are_left_out():
    desk = Desk()
    assert send(desk, b"a", b"b", ids=[1, 2]) == stored(1, 2)
    assert send(desk, b"a", b"b", ids=[1, 2]) == stored(duplicates=2)
    assert send(desk, b"b", b"c", b"a", b"d", b"c", ids=[2, 3, 1, 4, 3]) == stored(3, 4, duplicates=3)
    assert send(desk, b"a", ids=[1], producer=b"q") == stored(5, 5)
    assert send(desk, b"a", ids=[1], channel="bar") == stored(1, 1)
    assert data_of(desk) == [b"a", b"b", b"c", b"d", b"a"]
    assert len(entries_of(desk)) == 4


def test_ids_outlive_a_restart():
    desk = Desk()
    send(desk, b"a", b"b", ids=[1, 2], version=7)
    desk.restart()
    assert send(desk, b"b", b"c", ids=[2, 3], version=8) == stored(3, 3, duplicates=1)


def test_what_was_written_and_not_answered_is_stored_once():
    desk = Desk()
    send(desk, b"z")
    desk.hold = True
    assert send(desk, b"a", b"b", ids=[1, 2]) is None
    desk.hold = False
    group, _, _, body = desk.uncommitted[0]
    batch = next(decode_batches(body))  # it is in the log, and so it is committed at the next start
    desk.indexes[group, batch.uid].batches.append((batch.base_sequence, batch.count, batch.timestamp, batch.records))
    desk.restart()
    assert send(desk, b"b", b"a", ids=[2, 1]) == stored(duplicates=2)
    assert data_of(desk) == [b"z", b"a", b"b"]


def test_requests_wait_for_their_producers_entry_and_go_together():
    desk = Desk()
    send(desk, b"z", ids=[0])
    desk.hold = True
    asked = [
        request(b"a", b"b", ids=[1, 2]),
        request(b"b", b"c", ids=[2, 3]),  # waits, as all that follow
        request(b"c", b"d", ids=[3, 4]),
        request(b"a", ids=[1]),
        request(b"e", ids=[5], version=1),
    ]
    for number, one in enumerate(asked):
        desk.asks(SUBJECT, one, f"r.{number}")
        desk.turn()
    assert len(entries_of(desk)) == 2
    desk.hold = False
    desk.turn()
    answers = [answer(desk, f"r.{number}") for number in range(5)]
    assert answers == [
        stored(2, 3),
        stored(4, 4, duplicates=1),
        stored(5, 5, duplicates=1),
        stored(duplicates=1),
        stored(6, 6),
    ]
    assert data_of(desk) == [b"z", b"a", b"b", b"c", b"d", b"e"]
    assert len(entries_of(desk)) == 4
    assert desk.broker.context.kept(1, Batches).lines == {}
    assert desk.broker.context.kept(1, Batches).waiting == 0


def test_a_refused_entry_is_nobodys_and_those_behind_it_go_on():
    desk = Desk()
    send(desk, b"z", ids=[0])
    desk.hold = True
    desk.asks(SUBJECT, request(b"a", ids=[1]), "r.1")
    desk.asks(SUBJECT, request(b"a", b"b", ids=[1, 2]), "r.2")
    desk.full = True
    desk.turn()
    desk.full = desk.hold = False
    assert answer(desk, "r.1") == refused("disk full", retry=True)
    assert send(desk, b"a", b"b", ids=[1, 2]).error == b""
    assert data_of(desk) == [b"z", b"a", b"b"]


def test_the_ids_of_two_versions_are_known():
    desk = Desk()
    send(desk, b"a", ids=[1], version=5)
    send(desk, b"b", ids=[2], version=7)
    assert send(desk, b"a", ids=[1], version=4) == refused(errors.VERSION_PAST)
    send(desk, b"c", ids=[3], version=9)
    assert send(desk, b"b", ids=[2], version=7) == stored(duplicates=1)
    assert send(desk, b"a", ids=[1], version=5) == refused(errors.VERSION_PAST)
    assert send(desk, b"a", ids=[1], version=9) == stored(4, 4)  # forgotten with version 5


def test_an_id_is_known_as_long_as_the_last_version_in_which_it_was_sent():
    desk = Desk()
    send(desk, b"a", b"b", ids=[1, 2], version=5)
    assert send(desk, b"a", ids=[1], version=6) == stored(duplicates=1)
    assert send(desk, b"b", b"c", ids=[2, 3], version=6) == stored(3, 3, duplicates=1)
    send(desk, b"d", ids=[4], version=7)
    desk.restart()
    assert send(desk, b"a", b"b", b"c", ids=[1, 2, 3], version=6) == stored(duplicates=3)
    desk.full = True
    assert send(desk, b"a", ids=[1], version=7) == refused("disk full", retry=True)
    assert send(desk, b"a", ids=[1], version=6) == stored(duplicates=1)


def test_more_ids_than_are_remembered_are_refused(monkeypatch):
    desk = Desk()
    monkeypatch.setattr(limits, "WINDOW_IDS_MAX", 3)
    assert send(desk, b"a", b"b", ids=[1, 2]) == stored(1, 2)
    assert send(desk, b"c", b"d", ids=[3, 4]) == refused(errors.TOO_MANY_IDS)
    assert send(desk, b"a", b"c", ids=[1, 3]) == stored(3, 3, duplicates=1)
    assert send(desk, b"d", ids=[4], version=1) == stored(4, 4)
    monkeypatch.setattr(limits, "WINDOWS_MAX", 1)
    assert send(desk, b"e", ids=[1], producer=b"q") == refused(errors.TOO_MANY_IDS)
    monkeypatch.setattr(limits, "GROUP_IDS_MAX", 4)
    assert send(desk, b"e", ids=[5], version=1) == refused(errors.TOO_MANY_IDS)


def test_a_producer_that_is_not_heard_for_a_day_is_forgotten():
    desk = Desk()
    send(desk, b"a", ids=[1])
    send(desk, b"b", ids=[1], producer=b"q")
    desk.pass_time(12 * 3600)
    send(desk, b"c", ids=[2])
    desk.pass_time(13 * 3600)
    send(desk, b"d", ids=[1], channel="bar")
    windows = windows_of(desk)
    assert sorted(windows.windows) == [(1, b"p"), (2, b"p")]
    assert send(desk, b"b", ids=[1], producer=b"q") == stored(4, 4)


def windows_of(desk):
    return next(part for part in desk.broker.context.groups[1].machine.components if isinstance(part, ProducerDedup))


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
    assert node.broker.context.kept(1, Batches) == Batches()
    node.hold = False
    node.lead(1)
    assert send(node, b"b", b"c", ids=[2, 3]) == stored(2, 3)
    assert node.stored() == [b"a", b"b", b"c"]


def test_who_may_have_been_replaced_says_so_only_where_a_repetition_does_no_harm():
    node = leader()
    node.broker.context.groups[1].dispatch.lease_lapsed = True
    assert send(node, b"a", ids=[1]) == refused(errors.BUSY, retry=True)
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
    desk = Desk()
    send(desk, b"a", b"b", ids=[1, 2], version=3)
    send(desk, b"c", ids=[3], version=4)
    snapshot = pb.Snapshot()
    state_rows.snapshot_group(desk.broker.context.groups[1].machine, snapshot)
    machine = GroupMachine(1)
    state_rows.restore_group(machine, pb.Snapshot.FromString(snapshot.SerializeToString()))
    again = pb.Snapshot()
    state_rows.snapshot_group(machine, again)
    assert again == snapshot
    desk.broker.context.groups[1].machine.components[:] = machine.components
    assert send(desk, b"a", b"c", b"d", ids=[1, 3, 4], version=4) == stored(4, 4, duplicates=2)


def test_a_dropped_channel_takes_its_windows_along():
    desk = Desk()
    send(desk, b"a", ids=[1])
    send(desk, b"a", ids=[1], channel="bar")
    desk.broker.channels.delete(desk.broker.channels.by_name[b"foo"])
    desk.turn()
    windows = windows_of(desk)
    assert list(windows.windows) == [(2, b"p")]
    assert windows.ids == 1
