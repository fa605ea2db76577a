"""Up to where limits have removed messages, whatever else has moved the beginning of a channel; on every node."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as extension
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.state.group import GroupMachine
from stan.core.state.moved_rows import moved_rows
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_core_channel_changes import ask

UID = ChannelUid(1)
FROM, TO = GroupId(1), GroupId(2)


def marks(harness, channel=b"foo"):
    """First sequence and mark as the answers have them; every node knows the same."""
    asked = extension.InfoRequest(channels=[channel])
    (info,) = CoreHarness.ask(harness, "_STAN.x.test-cluster.info", asked, extension.InfoResponse).channels
    assert harness.follower().lost_until(ChannelUid(info.uid)) == info.lost_until
    return info.first_sequence, info.lost_until


def test_limits_say_how_far_they_went_and_operators_do_not() -> None:
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 5)
    ask(harness, "edit_limits", limits=admin.Limits(max_msgs=5))
    assert marks(harness) == (1, 0)
    harness.publish("foo", *[b"x"] * 3)
    assert marks(harness) == (4, 3)
    ask(harness, "purge", up_to=6)
    assert marks(harness) == (7, 3)
    ask(harness, "delete_message", sequence=7)
    assert marks(harness) == (8, 3)
    harness.publish("foo", *[b"x"] * 4)
    assert marks(harness) == (8, 3), "five messages are there"
    harness.publish("foo", b"x")
    assert marks(harness) == (9, 8)
    harness.restart()
    assert marks(harness) == (9, 8)


def machine_with(*changes):
    machine = GroupMachine(FROM)
    for index, (kind, change) in enumerate(changes, 1):
        if kind == "batch":
            machine.begins(UID, change)
        else:
            machine.apply(pb.GroupChange(**{kind: change}), index)
    return machine


COMPACTED = ("compacted", pb.Compacted(channels=[pb.CompactedChannel(uid=UID, until=30)]))


def trim(first):
    return "trim", pb.Trim(first_sequences=[UID, first])


@pytest.mark.parametrize(
    ("changes", "first", "until"),
    [
        ([("batch", 1), ("batch", 8)], 8, 7),
        ([("batch", 8), ("batch", 8), ("batch", 3)], 8, 7),
        ([trim(9)], 9, 8),
        ([("batch", 4), ("removal", pb.Removal(uid=UID, first_sequence=9)), ("batch", 9)], 9, 3),
        ([("removal", pb.Removal(uid=UID, deleted=[1, 4])), ("batch", 5)], 5, 0),
        ([COMPACTED, ("batch", 20)], 20, 0),  # the leader's log begins there
        ([("batch", 5), COMPACTED, ("batch", 20), ("batch", 22)], 22, 4),
        ([COMPACTED, ("batch", 20), trim(20)], 20, 19),  # beside the batch: limits are the reason
        ([COMPACTED, ("batch", 20), trim(12)], 20, 11),
        ([("removal", pb.Removal(uid=UID, first_sequence=9)), ("batch", 12)], 12, 11),
    ],
)
def test_each_cause_that_moves_the_beginning_of_a_channel(changes, first, until) -> None:
    machine = machine_with(*changes)
    assert (machine.first_sequence(UID), machine.lost_until(UID)) == (first, until)
    snapshot, other = pb.Snapshot(), GroupMachine(FROM)
    machine.snapshot(snapshot)
    other.restore(snapshot)
    assert other.lost_until(UID) == until
    target = GroupMachine(TO)
    target.apply(pb.GroupChange(arriving=pb.Moving(move=9, uids=[UID])), 1)
    rows = list(moved_rows(machine, [UID], lambda _uid: 40))
    target.apply(pb.GroupChange(arrived=pb.Arrived(move=9, uids=[UID], rows=rows)), 2)
    assert (target.first_sequence(UID), target.lost_until(UID)) == (first, until)
    machine.apply(pb.GroupChange(drop_channel=pb.DropChannel(uid=UID)), 50)
    assert not machine.retention.by_channel


def test_a_restored_channel_has_lost_nothing_yet() -> None:
    restore = pb.Restore(uid=UID, name=b"b", first_sequence=1001)
    machine = machine_with(("restore", restore), ("batch", 1001))
    assert (machine.first_sequence(UID), machine.lost_until(UID)) == (1001, 0)
