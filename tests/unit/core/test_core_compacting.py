"""Compaction by key, as the leader decides it: how far, which tombstones, and whom it waits for."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND, ChannelUid, GroupId

from stan.config import Config
from stan.core.base.compaction import Compaction, CompactionState
from stan.core.base.delivery_policy import KEEP_FIRST, KEEP_LAST
from stan.core.state.group import GroupMachine
from stan.policies import PolicyRule
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness

LOOK_S = 16
FIRST = 4
"""Start position: all messages."""


def started(**policy):
    given = {"compact": KEEP_LAST, "min_age": 60 * SECOND, "tombstone_max": 1000 * SECOND} | policy
    harness = CoreHarness(Config(policies=(PolicyRule(pattern=">", **given),)))
    harness.connect()
    return harness


def mark(harness, channel=b"foo"):
    return harness.follower().compactions.of(uid_of(harness, channel))


def uid_of(harness, channel=b"foo"):
    return harness.state.channels[channel].uid


def reached(harness, until, newest_tombstone):
    """The log of this node has got so far."""
    harness.broker.step_compacted(GroupId(1), {uid_of(harness): CompactionState(until, newest_tombstone)})


def test_what_is_old_enough_may_go() -> None:
    harness = started()
    harness.publish("foo", b"1", b"2")
    harness.pass_time(40)
    harness.publish("foo", b"3")
    assert mark(harness).until == 0
    harness.pass_time(40)
    assert mark(harness)[:3] == (2, 0, 0)
    index = mark(harness).index
    harness.pass_time(LOOK_S)
    assert mark(harness).index == index, "nothing new, no entry"
    harness.pass_time(40)
    assert mark(harness).until == 3


@pytest.mark.parametrize("policy", [{"compact": 0}, {"compact": KEEP_LAST, "delay": SECOND, "target": ".late"}])
def test_without_the_policy_and_with_a_delay_nothing_goes(policy) -> None:
    harness = started(**policy)
    harness.publish("foo", b"1")
    harness.pass_time(200)
    assert mark(harness).until == 0


def test_tombstones_wait_for_the_log_and_for_every_position() -> None:
    harness = started()
    joined = harness.subscribe("foo", durable="d", in_flight=2)
    harness.publish("foo", *(b"%d" % number for number in range(1, 9)))
    harness.pass_time(80)
    assert mark(harness)[:2] == (8, 0)
    reached(harness, 8, 6)
    harness.pass_time(LOOK_S)
    assert mark(harness).tombstones_until == 0, "nothing is acked"
    for sequence in (1, 2, 4):
        harness.ack(joined.ack_inbox, sequence)
    harness.pass_time(LOOK_S)
    assert mark(harness).tombstones_until == 2
    harness.pass_time(1000)
    assert mark(harness)[:3] == (8, 6, 6), "older than tombstone_max"


def test_tombstones_wait_for_nobody_where_there_is_nobody_and_stay_with_the_first_kept() -> None:
    for policy, gone in ((KEEP_LAST, 6), (KEEP_FIRST, 0)):
        harness = started(compact=policy)
        harness.publish("foo", *(b"%d" % number for number in range(1, 9)))
        harness.pass_time(80)
        reached(harness, 8, 6)
        harness.pass_time(LOOK_S)
        assert mark(harness).tombstones_until == gone
        assert mark(harness).keep_first is (policy == KEEP_FIRST)


def test_a_node_looks_at_positions_again() -> None:
    harness = started()
    harness.publish("foo", *(b"%d" % number for number in range(1, 9)))
    harness.pass_time(80)
    reached(harness, 8, 6)
    harness.pass_time(LOOK_S)
    index = mark(harness).index
    view = harness.broker.view
    assert view.compactions(GroupId(1), index - 1) == {}
    assert view.compactions(GroupId(1), index)[uid_of(harness)].tombstones_until == 6
    harness.subscribe("foo", durable="late", in_flight=1, start=FIRST)
    assert view.compactions(GroupId(1), index)[uid_of(harness)].tombstones_until == 0
    assert view.removed_until(GroupId(1), uid_of(harness)).tombstones == 6


def test_the_state_never_goes_back_and_survives_as_rows() -> None:
    machine, uid = GroupMachine(GroupId(1)), ChannelUid(7)
    for index, (until, tombstones, overdue) in enumerate([(10, 4, 2), (8, 20, 20), (12, 3, 1)], 5):
        one = pb.CompactedChannel(
            uid=uid, until=until, tombstones_until=tombstones, overdue_until=overdue, earlier=index - 5
        )
        machine.apply(pb.GroupChange(compacted=pb.Compacted(channels=[one])), index)
    assert machine.compactions.of(uid) == Compaction(12, 10, 10, keep_first=False, index=7, earlier=2)
    part = next(part for part in machine.components if part.KIND == "compaction")
    rows = {key: part.row(key) for key in list(part.keys())}
    other = type(part)()
    for key, row in rows.items():
        other.load(key, row)
    assert other.of(uid) == machine.compactions.of(uid)
    machine.apply(pb.GroupChange(drop_channel=pb.DropChannel(uid=uid)), 9)
    assert machine.compactions.of(uid).until == 0
    machine.apply(pb.GroupChange(compacted=pb.Compacted(channels=[pb.CompactedChannel(uid=uid, until=5)])), 10)
    assert machine.compactions.of(uid).until == 0, "the channel is gone"


def listed(harness):
    request = admin.ChannelsRequest(version=1)
    (channel,) = harness.ask("_STAN.x.test-cluster.admin.channels", request, admin.ChannelsResponse).channels
    return channel.compacted_here, channel.tombstone_held, channel.held_by


def test_operators_are_told_how_far_it_is_and_which_position_keeps_tombstones() -> None:
    harness = started()
    joined = harness.subscribe("foo", durable="slow", in_flight=9)
    other = harness.subscribe("foo", durable="quick", in_flight=9)
    harness.publish("foo", *(b"%d" % number for number in range(1, 9)))
    harness.pass_time(80)
    assert listed(harness) == (0, 0, b"")
    reached(harness, 8, 6)
    for sequence in range(1, 9):
        harness.ack(other.ack_inbox, sequence)
    harness.pass_time(LOOK_S)
    (_, held, by) = listed(harness)
    assert (held, b"slow" in by) == (6, True)
    for sequence in range(1, 9):
        harness.ack(joined.ack_inbox, sequence)
    harness.pass_time(LOOK_S)
    assert listed(harness) == (8, 0, b"")
