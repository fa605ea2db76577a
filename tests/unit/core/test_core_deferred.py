"""Deferred messages: stored and acknowledged at once, in their channel when they are due, once, whatever fails between."""

from array import array

import pytest
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND, RaftIndex

from stan import limits
from stan.config import Config, StoreConfig, StoreLimits
from stan.core.state.deferred import Deferred
from stan.policies import PolicyRule
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_core_delays import data, fault, stored


def send(harness, channel, *messages, client_id="me", numbered=True):
    """Publish (data, seconds from now) in one read; returns the acks."""
    frames = []
    for payload, after in messages:
        sent = wire.PubMsg(
            client_id=client_id.encode(),
            guid=next(harness.guids),
            subject=channel.encode(),
            data=payload,
            numbered=numbered,
            deliver_at=harness.wall + round(after * SECOND) if after else 0,
        ).SerializeToString()
        frames.append(b"MSG _STAN.pub.test-cluster.%b 1 _INBOX.acks %d\r\n%b\r\n" % (channel.encode(), len(sent), sent))
    harness.broker.frames.step_publishes(harness._scan(frames).publishes)
    harness.turn()
    return [wire.PubAck.FromString(said.payload) for said in harness.hear("_INBOX.acks")]


def started():
    harness = CoreHarness()
    harness.connect()
    return harness


def waiting(harness):
    return harness.follower().deferred.waiting


def test_deferred_messages_come_in_the_order_of_their_times(harness) -> None:
    acks = send(harness, "foo", (b"c", 3), (b"now", 0), (b"a", 1), (b"b", 2))
    assert [ack.error for ack in acks] == [b""] * 4
    assert data(harness, b"foo") == [b"now"]
    assert waiting(harness) == 3
    harness.pass_time(0.999)
    assert data(harness, b"foo") == [b"now"]
    harness.pass_time(0.002)
    assert data(harness, b"foo") == [b"now", b"a"]
    harness.pass_time(2)
    assert data(harness, b"foo") == [b"now", b"a", b"b", b"c"]
    assert [message.sequence for message in stored(harness, b"foo")] == [1, 2, 3, 4]
    assert waiting(harness) == 0
    assert harness.indexes[1, DEFERRED_UID].first_sequence == 4


def test_a_restart_forgets_nothing_and_moves_nothing_twice(harness) -> None:
    send(harness, "foo", *((b"%d" % n, 5 - n / 10) for n in range(10)))
    harness.restart()
    assert waiting(harness) == 10
    harness.pass_time(4.55)
    harness.restart()
    harness.pass_time(2)
    harness.restart()
    assert data(harness, b"foo") == [b"%d" % n for n in reversed(range(10))]
    send(harness, "foo", (b"more", 1))
    harness.pass_time(1.01)
    assert data(harness, b"foo")[-1] == b"more"


def test_what_is_late_goes_at_once_in_bounded_batches(monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELAY_MESSAGES_MAX", 4)
    harness = started()
    for n in range(10):
        send(harness, "foo", (b"%d" % n, 30 - n))
    harness.wall += 3600 * SECOND
    harness.restart()
    harness.pass_time(0.01)
    assert data(harness, b"foo") == [b"%d" % n for n in reversed(range(10))]
    uid = harness.state.channels[b"foo"].uid
    assert [batch[1] for batch in harness.indexes[1, uid].batches] == [4, 4, 2]


def test_a_clock_that_is_set_forward_makes_messages_due_and_one_set_back_only_delays_them(harness) -> None:
    send(harness, "foo", (b"x", 5))
    harness.wall -= 3600 * SECOND
    harness.pass_time(60)
    assert data(harness, b"foo") == []
    harness.wall += 3600 * SECOND
    harness.pass_time(limits.DELAY_LOOK / SECOND)
    assert data(harness, b"foo") == [b"x"]


def test_a_clock_that_is_set_back_while_messages_are_read_keeps_them_where_they_are(harness) -> None:
    send(harness, "foo", (b"1", 5))
    broker, real = harness.broker, harness.broker.reads.step_fetched

    def set_back(fetch, found):
        harness.wall -= 60 * SECOND
        broker.tick(harness.now, harness.wall)
        broker.reads.step_fetched = real
        real(fetch, found)

    broker.reads.step_fetched = set_back
    harness.pass_time(55)
    assert data(harness, b"foo") == []
    harness.pass_time(12)
    assert data(harness, b"foo") == [b"1"]


def test_the_ack_tells_the_place_where_a_message_waits(harness) -> None:
    assert [ack.sequence for ack in send(harness, "foo", (b"a", 5), (b"b", 6))] == [1, 2]
    assert [ack.sequence for ack in send(harness, "bar", (b"c", 5))] == [3]


def test_there_are_bounds(harness, monkeypatch) -> None:
    (ack,) = send(harness, "foo", (b"x", limits.DELAY_MAX / SECOND + 1))
    assert ack.error == b"stan: the message is delayed for too long"
    monkeypatch.setattr(limits, "DEFERRED_MAX", 3)
    assert [ack.error for ack in send(harness, "foo", (b"1", 5), (b"2", 5))] == [b"", b""]
    assert [ack.error for ack in send(harness, "foo", (b"3", 5), (b"4", 5))] == [
        b"stan: too many messages wait for their time"
    ] * 2
    assert [ack.error for ack in send(harness, "foo", (b"5", 5))] == [b""]


def test_a_full_disk_refuses_them_and_keeps_those_that_are_due(harness) -> None:
    send(harness, "foo", (b"1", 5))
    harness.full = True
    (ack,) = send(harness, "foo", (b"2", 5))
    assert ack.error
    harness.pass_time(6)
    assert data(harness, b"foo") == []
    assert fault(harness, "foo")
    harness.full = False
    harness.pass_time(2)
    assert data(harness, b"foo") == [b"1"]
    assert fault(harness, "foo") == ""


def ask(harness, kind, channel, **more):
    made = {"delayed": admin.DelayedRequest, "cancel_delayed": admin.CancelDelayedRequest}[kind]
    answer = {"delayed": admin.DelayedResponse, "cancel_delayed": admin.ChangeResponse}[kind]
    return harness.ask(f"_STAN.x.test-cluster.admin.{kind}", made(version=1, channel=channel, **more), answer)


def test_operators_list_and_cancel_what_waits(harness) -> None:
    send(harness, "foo", (b"1", 5), (b"2", 6), (b"3", 7))
    send(harness, "bar", (b"4", 5))
    told = ask(harness, "delayed", b"foo")
    assert [(one.id, one.due - harness.wall) for one in told.messages] == [(n, (4 + n) * SECOND) for n in (1, 2, 3)]
    assert (told.waiting, told.more) == (3, False)
    told = ask(harness, "delayed", b"foo", max=2)
    assert ([one.id for one in told.messages], told.more) == ([1, 2], True)
    told = ask(harness, "delayed", b"foo", max=2, after=2)
    assert ([one.id for one in told.messages], told.more) == ([3], False)
    assert ask(harness, "cancel_delayed", b"foo", ids=[2, 4, 9]).changed == 1
    assert ask(harness, "cancel_delayed", b"foo", ids=[2]).changed == 0
    assert ask(harness, "cancel_delayed", b"foo").error
    assert ask(harness, "cancel_delayed", b"nix", ids=[1]).error
    harness.pass_time(8)
    assert data(harness, b"foo") == [b"1", b"3"]
    assert data(harness, b"bar") == [b"4"]
    assert ask(harness, "delayed", b"foo").waiting == 0


def test_what_is_on_its_way_is_not_cancelled_and_what_is_being_cancelled_does_not_go(harness) -> None:
    send(harness, "foo", (b"1", 5))
    send(harness, "foo", (b"2", 6))
    harness.hold = True
    harness.pass_time(5.1)
    assert ask(harness, "cancel_delayed", b"foo", ids=[1]).changed == 0
    cancel = admin.CancelDelayedRequest(version=1, channel=b"foo", ids=[2])
    harness.asks("_STAN.x.test-cluster.admin.cancel_delayed", cancel, "cancelled")
    harness.pass_time(2)
    harness.hold = False
    harness.commit()
    harness.pass_time(2)
    (said,) = harness.hear("cancelled")
    assert admin.ChangeResponse.FromString(said.payload).changed == 1
    assert data(harness, b"foo") == [b"1"]


def test_what_waits_for_a_channel_goes_with_it(harness) -> None:
    send(harness, "foo", (b"1", 5))
    send(harness, "bar", (b"2", 5))
    channels = harness.broker.parts.channels
    channels.removal.delete(channels.by_name[b"foo"])
    harness.turn()
    assert waiting(harness) == 1
    harness.pass_time(6)
    assert data(harness, b"bar") == [b"2"]
    assert data(harness, b"foo") == []


@pytest.mark.parametrize("name", ["", ".dead"])
def test_what_is_too_late_is_given_up(name) -> None:
    harness = CoreHarness(Config(policies=(PolicyRule(pattern="foo", max_late=60 * SECOND, dead_letter=name),)))
    harness.connect()
    send(harness, "foo", (b"1", 5), (b"2", 40))
    send(harness, "bar", (b"3", 5))
    harness.wall += 90 * SECOND
    harness.restart()
    harness.pass_time(0.1)
    assert data(harness, b"foo") == [b"2"]
    assert data(harness, b"bar") == [b"3"]
    assert [event.kind for event in harness.events if event.kind == "late_messages"] == ["late_messages"]
    assert harness.broker.view.totals().late_messages == 1
    found = stored(harness, b"foo.dead")
    assert [message.data for message in found] == ([b"1"] if name else [])
    assert [header.key for message in found for header in message.headers] == (
        [b"stan-channel", b"stan-sequence", b"stan-reason", b"stan-published"] if name else []
    )
    assert waiting(harness) == 0


@pytest.mark.parametrize("policy", [{}, {"delay": 5 * SECOND, "target": "t"}])
def test_where_dead_letters_are_in_another_group_late_messages_are_delivered(policy) -> None:
    plain = CoreHarness(Config(store=StoreConfig(raft_groups=8)))
    group_of = plain.broker.view.group_number
    letters = next(name for name in map("d{}".format, range(99)) if group_of(name.encode()) != group_of(b"t"))
    channel = "in" if policy else "t"
    rule = PolicyRule(pattern=channel, max_late=60 * SECOND, dead_letter=letters, **policy)
    harness = CoreHarness(Config(policies=(rule,), store=StoreConfig(raft_groups=8)))
    harness.connect()
    send(harness, channel, (b"1", 0 if policy else 5))
    harness.wall += 90 * SECOND
    harness.restart()
    harness.pass_time(0.1)
    assert data(harness, b"t") == [b"1"]


def test_a_channel_for_which_messages_wait_is_not_deleted_as_idle() -> None:
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(inactivity_ns=SECOND))))
    harness.connect()
    send(harness, "foo", (b"1", 60))
    harness.pass_time(59)
    assert b"foo" in harness.state.channels
    harness.pass_time(1.01)
    assert data(harness, b"foo") == [b"1"]


def test_a_channel_that_takes_nothing_holds_up_its_own_messages_alone(harness) -> None:
    send(harness, "foo", (b"1", 5))
    send(harness, "bar", (b"2", 5))
    channel = harness.broker.parts.channels.by_name[b"foo"]
    channel.restoring = b"r"
    harness.pass_time(6)
    assert (data(harness, b"foo"), data(harness, b"bar"), waiting(harness)) == ([], [b"2"], 1)
    channel.restoring = b""
    harness.pass_time(3)
    assert (data(harness, b"foo"), waiting(harness)) == ([b"1"], 0)


def test_rows_give_the_same_state() -> None:
    state = Deferred()
    for first, dues in ((1, [5, 6]), (3, [9]), (4, [7, 8])):
        state.apply("deferred", pb.Deferred(uid=1, sequence=first, dues=dues, bytes=10), RaftIndex(1))
    assert state.apply("deferred_gone", pb.DeferredGone(places=[1, 1, 3, 3, 9, 9, 1, 1]), RaftIndex(1)) == 2
    loaded = Deferred()
    for key in reversed(list(state.keys())):
        loaded.load(key, state.row(key))
    assert loaded.batches == state.batches
    assert (list(loaded.batches), loaded.waiting, loaded.floor) == ([1, 4], 3, 1)
    assert loaded.batches[1].dues == array("q", [0, 6])
    assert (loaded.row(b"\0" * 7 + b"\3"), state.counts) == (None, {1: 3})
    state.drop_channel(1)
    assert (state.waiting, state.counts, state.floor) == (0, {}, 6)


# --- saved and put back ---------------------------------------------------------------------------------------------------


def put_back(harness, kind, channel=b"foo", **what):
    made = {
        "restore_channel": admin.RestoreChannelRequest,
        "restore_delayed": admin.RestoreDelayedRequest,
        "restore_end": admin.RestoreEndRequest,
    }[kind]
    request = made(version=1, channel=channel, restore=b"r1", **what)
    return harness.ask(f"_STAN.x.test-cluster.admin.{kind}", request, admin.ChangeResponse)


def fetched(harness, channel=b"foo", **more):
    request = admin.ReadDelayedRequest(version=1, channel=channel, **more)
    return harness.ask("_STAN.x.test-cluster.admin.read_delayed", request, admin.ReadDelayedResponse)


def ids(harness, channel=b"foo"):
    return [one.id for one in ask(harness, "delayed", channel).messages]


def test_what_waits_is_put_back_elsewhere_with_its_times_and_ids() -> None:
    origin, other = started(), started()
    send(origin, "bar", *((b"%d" % n, 5) for n in range(20)))
    send(origin, "foo", (b"1", 5), (b"2", 7), (b"3", 6))
    saved = fetched(origin)
    assert [one.id for one in saved.messages] == [21, 22, 23]
    assert (saved.more, saved.last_sequence, saved.now) == (False, 0, origin.wall)
    send(other, "bar", (b"mine", 3600))
    put_back(other, "restore_channel", first_sequence=1)
    told = put_back(other, "restore_delayed", messages=saved.messages, rows=saved.rows)
    assert (told.error, told.changed) == (b"", 3)
    assert put_back(other, "restore_delayed", messages=saved.messages, rows=saved.rows).changed == 0
    assert ask(other, "cancel_delayed", b"foo", ids=[22]).error == b"stan: channel is being restored"
    other.restart()
    other.pass_time(9)
    assert data(other, b"foo") == [], "the restore has not ended"
    assert put_back(other, "restore_delayed", messages=saved.messages, rows=saved.rows).changed == 0
    put_back(other, "restore_end")
    assert ids(other) == [21, 22, 23]
    assert ask(other, "cancel_delayed", b"foo", ids=[22, 2]).changed == 1
    other.connect("again")
    (ack,) = send(other, "foo", (b"4", 5), client_id="again")
    assert ack.sequence > 23, "no id is there twice"
    other.restart()
    other.pass_time(2)
    assert data(other, b"foo") == [b"1", b"3"]
    other.pass_time(5)
    assert data(other, b"foo") == [b"1", b"3", b"4"]
    assert ids(other, b"bar") == [1]
    assert put_back(other, "restore_delayed", messages=saved.messages, rows=saved.rows).changed == 0
    assert waiting(other) == 1


def test_what_waits_is_told_in_pages_and_what_is_due_soon_by_ids_alone(monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELAYED_PAGE_MAX", 2)
    harness = started()
    send(harness, "foo", (b"1", 5), (b"2", 60), (b"3", 6))
    page = fetched(harness)
    assert ([one.id for one in page.messages], page.more, page.after) == ([1, 2], True, 2)
    page = fetched(harness, after=page.after)
    assert ([one.id for one in page.messages], page.more) == ([3], False)
    assert [*fetched(harness, until=harness.wall + 10 * SECOND).ids] == [1, 3]
    harness.pass_time(5.5)
    told = fetched(harness, until=harness.wall + 10 * SECOND)
    assert ([*told.ids], told.last_sequence) == ([3], 1)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], b"stan: invalid batch request"),
        ([(2, 5), (2, 6)], b"stan: messages that are restored must come in order"),
        ([(0, 5)], b"stan: invalid restore request"),
        ([(1, 0)], b"stan: invalid restore request"),
        ([(1 << 40, 5)], b"stan: invalid restore request"),
    ],
)
def test_what_is_put_back_is_checked(harness, messages, error) -> None:
    put_back(harness, "restore_channel", first_sequence=1)
    row = wire.MsgProto(data=b"x").SerializeToString()
    told = [admin.DelayedMessage(id=number, due=due) for number, due in messages]
    rows = (len(row).to_bytes(4, "little") + row) * len(told)
    assert put_back(harness, "restore_delayed", messages=told, rows=rows).error == error
    assert waiting(harness) == 0


def test_a_channel_with_messages_that_wait_is_not_restored(harness) -> None:
    send(harness, "foo", (b"1", 5))
    assert put_back(harness, "restore_channel", first_sequence=1).error.startswith(b"stan: channel is in use")
