"""Messages with a time to live: gone when it is over, settled everywhere, whatever fails between."""

import pytest
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.proto.extension_pb2 import FetchRequest
from stan_protocol.refusals import BUSY
from stan_protocol.scalars import SECOND, ChannelUid, GroupId

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.boundary.fetches import FetchRules, Refusal
from stan.core.features.queries.account import Account
from stan.core.state.expiries import Expiries
from stan.policies import PolicyRule
from stan.protocol.entries import Kind, decode_batches, decode_records
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness, Node, pub_frame
from tests.unit.core.test_core_delays import data, stored


def send(harness, channel, *messages, client_id="me", after=0):
    """Publish (data, ttl in seconds) in one read; returns the acks."""
    frames = []
    for payload, ttl in messages:
        sent = wire.PubMsg(
            client_id=client_id.encode(),
            guid=next(harness.guids),
            subject=channel.encode(),
            data=payload,
            numbered=True,
            ttl=round(ttl * SECOND),
            deliver_at=harness.wall + round(after * SECOND) if after else 0,
        ).SerializeToString()
        frames.append(b"MSG _STAN.pub.test-cluster.%b 1 _INBOX.acks %d\r\n%b\r\n" % (channel.encode(), len(sent), sent))
    harness.broker.frames.step_publishes(harness._scan(frames).publishes)
    harness.turn()
    return [wire.PubAck.FromString(said.payload) for said in harness.hear("_INBOX.acks")]


def started(**config):
    harness = CoreHarness(Config(**config)) if config else CoreHarness()
    harness.connect()
    return harness


def listed(harness, channel=b"foo"):
    here = harness.follower().expiries.by_channel
    found = here.get(harness.state.channels[channel].uid)
    return {} if found is None else found.runs


def left(harness, channel=b"foo"):
    """Sequences in a channel."""
    return harness.state.sequences(channel)


def test_messages_are_gone_when_their_time_is_over(harness) -> None:
    acks = send(harness, "foo", (b"a", 2), (b"b", 0), (b"c", 2), (b"d", 5))
    assert [(ack.error, ack.sequence) for ack in acks] == [(b"", 1), (b"", 2), (b"", 3), (b"", 4)]
    assert data(harness, b"foo") == [b"a", b"b", b"c", b"d"]
    expire = [message.expires_at for message in stored(harness, b"foo")]
    assert expire[1] == 0
    assert harness.wall + 2 * SECOND <= expire[0] == expire[2] <= harness.wall + 3 * SECOND
    harness.pass_time(1.9)
    assert left(harness) == [1, 2, 3, 4]
    harness.pass_time(1.2)
    assert left(harness) == [2, 4]
    harness.pass_time(3)
    assert left(harness) == [2]
    assert not listed(harness)
    assert harness.broker.view.totals().expired_messages == 3
    assert send(harness, "foo", (b"e", 1))[0].sequence == 5


def test_what_has_expired_is_neither_sent_nor_sent_again(harness) -> None:
    joined = harness.subscribe("foo", durable="d", in_flight=2, wait=5)
    send(harness, "foo", (b"1", 2), (b"2", 60), (b"3", 2), (b"4", 0))
    assert harness.received() == [(1, 0), (2, 0)]
    harness.pass_time(6)
    assert harness.received() == [(4, 0), (2, 1)]
    harness.ack(joined.ack_inbox, 2, 4)
    cursor = harness.state.position()
    assert (cursor.last_sent, cursor.pending) == (4, [])


def test_an_expired_message_is_pending_nowhere(harness) -> None:
    for name in ("d1", "d2"):
        joined = harness.subscribe("foo", name, durable=name)
    queue = harness.subscribe("foo", "q", queue="q", durable="q")
    send(harness, "foo", (b"1", 2), (b"2", 0), (b"3", 2))
    harness.leave("foo", joined.ack_inbox)
    harness.ack(queue.ack_inbox, 2)
    harness.pass_time(3.1)
    assert {position.name: position.pending for position in harness.state.positions()} == {
        b"d1": [2],
        b"d2": [2],
        b"q:q": [],
    }
    harness.restart()
    harness.pass_time(31)
    assert harness.received("d1") == [(1, 0), (2, 0), (3, 0), (2, 1)]


def test_a_restart_forgets_nothing_and_what_is_overdue_is_never_sent(harness) -> None:
    send(harness, "foo", (b"1", 5), (b"2", 60), (b"3", 5))
    harness.restart()
    assert len(listed(harness)) == 3
    harness.wall += 10 * SECOND
    harness.hold = True
    harness.restart()
    harness.subscribe("foo", durable="d")
    harness.hold = False
    harness.commit()
    harness.turn()
    assert harness.received() == [(2, 0)]
    harness.restart()
    assert left(harness) == [2]


def test_what_is_overdue_is_not_sent_by_a_leader_whose_metadata_do_not_know_the_channel_yet() -> None:
    first = Node()
    first.lead(0, 1)
    first.connect()
    first.hears(
        pub_frame("foo", "1" * 22, b"1", conn_id="", ttl=2 * SECOND), pub_frame("foo", "2" * 22, b"2", conn_id="")
    )
    assert first.pub_acks() == ["", ""]
    assert first.subscribe("foo", durable="d", in_flight=1).error == b""
    assert first.received() == [(1, 0)]

    node = Node()
    node.feed_client()
    for group, _, kind, body in [(1, *entry) for entry in first.logs[1]]:
        node.feed(group, kind, body)
    node.wall += 10 * SECOND
    node.hold = True
    node.lead(1)
    node.feed_channel()
    node.pass_time(0.1)
    assert node.received() == []
    assert node.broker.view.is_held(GroupId(1), ChannelUid(1))
    node.hold = False
    node.commit()
    node.pass_time(2)
    assert (left(node), [sequence for sequence, _ in node.received()]) == ([2], [2])


def test_nothing_of_a_channel_is_sent_while_its_removal_is_on_its_way(harness) -> None:
    harness.subscribe("foo", in_flight=1)
    joined = harness.subscribe("bar", "bar")
    send(harness, "foo", (b"1", 60))
    assert harness.received() == [(1, 0)]
    send(harness, "foo", (b"2", 2), (b"3", 0))
    assert joined.error == b""
    harness.hold = True
    harness.pass_time(3)
    assert harness.state.stops().expiring == {1}
    assert harness.broker.view.is_held(1, ChannelUid(1))
    assert left(harness) == [1, 2, 3]
    harness.pass_time(3)
    harness.hold = False
    harness.commit()
    harness.turn()
    assert not harness.state.stops().expiring
    assert left(harness) == [1, 3]


def test_a_full_disk_holds_a_channel_until_there_is_room(harness) -> None:
    send(harness, "foo", (b"1", 2), (b"2", 0))
    harness.full = True
    harness.pass_time(4)
    assert left(harness) == [1, 2]
    assert harness.broker.view.is_held(1, ChannelUid(1))
    harness.full = False
    harness.pass_time(1.1)
    assert left(harness) == [2]
    harness.subscribe("foo")
    assert harness.received() == [(2, 0)]


@pytest.mark.parametrize("by", [-3600, 3600])
def test_the_wall_clock_of_the_leader_counts_also_when_it_is_set(harness, by) -> None:
    send(harness, "foo", (b"1", 5), (b"2", 4000))
    harness.wall += by * SECOND
    harness.turn()
    assert left(harness) == ([1, 2] if by < 0 else [2])
    harness.pass_time(7)
    assert left(harness) == ([1, 2] if by < 0 else [2])
    if by < 0:
        harness.pass_time(3600)
    assert left(harness) == [2]


def test_a_policy_lets_the_messages_of_a_channel_expire() -> None:
    harness = started(policies=(PolicyRule(pattern="foo", ttl=5 * SECOND),))
    assert harness.publish("foo", *(b"%d" % n for n in range(100))) == [""] * 100
    assert len(listed(harness)) == 1
    harness.publish("bar", b"x")
    shown = harness.ask("_STAN.x.test-cluster.admin.channels", admin.ChannelsRequest(), admin.ChannelsResponse).channels
    assert {one.name: one.ttl for one in shown} == {b"foo": 5 * SECOND, b"bar": 0}
    send(harness, "foo", (b"sooner", 2), (b"no later", 60))
    harness.pass_time(3.1)
    assert left(harness) == [*range(1, 101), 102]
    harness.pass_time(3)
    assert left(harness) == []
    assert left(harness, b"bar") == [1]
    assert (harness.state.first_sequence(), harness.state.deleted()) == (103, [])
    assert send(harness, "foo", (b"next", 0))[0].sequence == 103


def test_of_a_long_time_to_live_the_unit_is_coarser() -> None:
    harness = started(policies=(PolicyRule(pattern="foo", ttl=10 * 3600 * SECOND),))
    for _ in range(30):
        harness.publish("foo", b"x")
        harness.pass_time(1)
    assert len(listed(harness)) in (3, 4)


def test_there_are_bounds(harness, monkeypatch) -> None:
    acks = send(harness, "foo", (b"1", -1), (b"2", limits.TTL_MAX / SECOND + 1), (b"3", 1), (b"4", -9e9))
    refused = b"stan: the time to live of the message is negative or too long"
    assert sorted(ack.error for ack in acks) == [b"", refused, refused, refused]
    monkeypatch.setattr(limits, "EXPIRING_RUNS_MAX", 3)
    (ack,) = send(harness, "foo", (b"5", 1))
    assert ack.error == b""
    acks = send(harness, "foo", (b"6", 60), (b"7", 0), (b"8", 60), (b"9", 0), (b"10", 60))
    assert {ack.error for ack in acks} == {
        b"stan: too many messages of the channel that expire lie between others that do not, or expire otherwise"
    }
    assert harness.publish("foo", b"plain") == [""]
    harness.pass_time(2.1)
    acks = send(harness, "foo", (b"6", 60), (b"7", 0), (b"8", 60))
    assert [ack.error for ack in acks] == [b""] * 3


def test_of_a_deferred_message_the_time_counts_from_when_it_is_due(harness) -> None:
    send(harness, "foo", (b"1", 3), (b"2", 0), after=10)
    harness.pass_time(10.1)
    assert data(harness, b"foo") == [b"1", b"2"]
    assert left(harness) == [1, 2]
    harness.pass_time(4)
    assert left(harness) == [2]


def test_messages_that_the_limits_remove_are_forgotten() -> None:
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(msgs=4))))
    harness.connect()
    for n in range(10):
        send(harness, "foo", (b"%d" % n, 60 + 10 * n))
    assert len(listed(harness)) <= 5
    harness.pass_time(160)
    assert left(harness) == []
    assert not listed(harness)


def test_the_expiries_of_a_channel_go_with_it(harness) -> None:
    send(harness, "foo", (b"1", 5))
    send(harness, "bar", (b"2", 5))
    channels = harness.broker.parts.channels
    channels.removal.delete(channels.by_name[b"foo"])
    harness.turn()
    here = harness.follower().expiries
    assert list(here.by_channel) == [2]
    harness.pass_time(7)
    assert (left(harness, b"bar"), harness.follower().expiries.by_channel) == ([], {})


def test_rows_give_the_same_state() -> None:
    state = Expiries()
    for runs, at in (((1, 2), 5), ((3, 4), 5), ((5, 5), 6), ((7, 9), 5)):
        state.add(pb.Expiring(uid=1, runs=runs, at=[at]))
    assert list(state.by_channel[1].runs.items()) == [(1, (4, 5)), (5, (5, 6)), (7, (9, 5))]
    loaded = Expiries()
    for key in reversed(list(state.keys())):
        loaded.load(key, state.row(key))
    assert loaded.by_channel == state.by_channel
    assert list(loaded.by_channel[1].runs) == [1, 5, 7]
    for machine in (state, loaded):
        machine.dirty.clear()
        assert machine.expire(ChannelUid(1), 5, 7) == [(1, 4), (7, 7)]
        assert machine.at(ChannelUid(1), 8) == 5
        assert {key: machine.row(key) for key in machine.dirty} == {
            key: machine.row(key) for key in (b"\0\0\0\1" + first.to_bytes(8) for first in (1, 7, 8))
        }
        machine.trim(ChannelUid(1), 6)
        assert list(machine.by_channel[1].runs) == [8]
        assert machine.expire(ChannelUid(1), 9, 1 << 60) == [(8, 9)]
        assert (machine.by_channel, machine.pieces(ChannelUid(1)), machine.at(ChannelUid(1), 8)) == ({}, 0, 0)


def fetched(harness, channel=b"foo"):
    """Why the leader may not answer a fetch now, or the sequence from which on it would."""
    rules = FetchRules(harness.broker.view, lambda _number: True)
    request = FetchRequest(channel=channel, from_sequence=1)
    (accepted,) = harness.accepted("fetch", request)
    place = rules.channel_of(accepted)
    if isinstance(place, Refusal):
        return place.error
    number, uid = place
    return rules.locate(accepted, number, uid, harness.indexes[number, uid]).first


def test_what_has_expired_is_not_fetched_and_while_it_goes_fetches_ask_again(harness) -> None:
    send(harness, "foo", (b"1", 2), (b"2", 0))
    assert fetched(harness) == 1
    harness.hold = True
    harness.pass_time(3)
    assert fetched(harness) == BUSY
    harness.hold = False
    harness.commit()
    harness.turn()
    assert fetched(harness) == 2


def test_an_account_tells_that_a_message_has_expired(harness) -> None:
    harness.subscribe("foo", durable="d", in_flight=1, wait=60)
    send(harness, "foo", (b"1", 2), (b"2", 2))
    harness.pass_time(3.1)
    (cursor,) = harness.follower().cursors.values()
    told = {}
    for sequence in (1, 2):
        account = Account(cursor, sequence)
        for index, kind, body in harness.logs[1]:
            changes = decode_records(body)[2] if kind == Kind.RECORDS else [body]
            for change in changes:
                account.take(index, 7, pb.GroupChange.FromString(change))
        told[sequence] = [step.what for step in account.steps]
    assert told == {1: ["delivered", "expired"], 2: ["expired"]}


def test_a_crash_behind_each_entry_loses_nothing_and_keeps_nothing_for_ever(harness) -> None:
    joined = harness.subscribe("foo", durable="d", in_flight=3, wait=5)
    for n in range(6):
        send(harness, "foo", (b"%d" % n, 1 + n % 3), (b"stays", 0), (b"more", 2))
        harness.ack(joined.ack_inbox, 3 * n + 1)
        harness.pass_time(0.7)
    entries = list(harness.logs[1])
    assert len(entries) > 15
    for cut in range(len(entries) + 1):
        other = CoreHarness()
        other.logs[0], other.logs[1] = list(harness.logs[0]), entries[:cut]
        stays = []
        for _, kind, body in entries[:cut]:
            for batch in decode_batches(body) if kind == Kind.RECORDS else ():
                records = bytes(batch.records)
                other.indexes[1, batch.uid].batches.append((batch.base_sequence, batch.count, batch.timestamp, records))
                for at in range(batch.count):
                    stays += [batch.base_sequence + at] * (at == 1)
        other.wall = harness.wall
        other.restart()
        other.pass_time(10)
        assert not cut or b"foo" in other.state.channels
        assert (left(other), listed(other)) == (stays, {})
        assert not cut or set(other.state.position().pending) <= set(stays)
