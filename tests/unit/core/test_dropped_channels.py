"""The uids of channels that a group has dropped: none is forgotten, and there are few runs of them."""

from random import Random

from stan_protocol.refusals import UNKNOWN_CHANNEL

from stan import limits
from stan.core.metadata.meta import MetaMachine
from stan.core.state.group import GroupMachine
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness

GROUPS = 3


def drop(machine, uid):
    machine.apply(pb.GroupChange(drop_channel=pb.DropChannel(uid=uid)), 1)


def join(machine, meta):
    runs = [number for run in machine.dropped.gaps(meta.deleted_uids()) for number in run]
    machine.apply(pb.GroupChange(gone_channels=pb.GoneChannels(runs=runs)), 1)
    return runs


def test_thousands_of_channels_of_many_groups_that_come_and_go_leave_no_more_runs_than_channels():
    draw, meta = Random(7), MetaMachine()
    machines, rows = [GroupMachine(number) for number in range(1, GROUPS + 1)], [{} for _ in range(GROUPS)]
    dropped = [set() for _ in machines]
    for uid in range(1, 5001):
        meta.load_channel(pb.Channel(name=b"%d" % uid, uid=uid, group=draw.randint(1, GROUPS)))
        while len(meta.by_uid) > 5:
            gone = draw.choice(sorted(meta.by_uid))
            at = meta.by_uid[gone].group - 1
            drop(machines[at], gone)
            dropped[at].add(gone)
            meta.apply(pb.MetaChange(delete_channel=pb.DeleteChannel(uid=gone)), 1)
        if not uid % 100:
            for machine, kept in zip(machines, rows, strict=True):
                join(machine, meta)
                for kind, key, row in machine.take_changed_rows().parts:
                    kept[kind, key] = row
    for machine, kept, uids in zip(machines, rows, dropped, strict=True):
        assert machine.dropped.runs.pieces <= len(meta.by_uid) + 1
        written = [key for (_, key), row in kept.items() if row is not None]
        assert sorted(written) == list(machine.dropped.keys()), "rows as they are written one by one"
        assert all(uid in machine.dropped for uid in uids)
        assert not any(uid in machine.dropped for uid in meta.by_uid)
        snapshot, other = pb.Snapshot(), GroupMachine(machine.group)
        machine.snapshot(snapshot)
        other.restore(snapshot)
        assert other.dropped.runs.flat() == machine.dropped.runs.flat()
        assert snapshot.ByteSize() < 500


def test_nothing_is_told_to_be_gone_behind_the_newest_channel_that_the_group_has_dropped():
    meta, machine = MetaMachine(), GroupMachine(1)
    for uid in range(1, 20):
        meta.load_channel(pb.Channel(name=b"%d" % uid, uid=uid, group=1))
    for uid in (3, 4, 5, 9, 10, 15):
        meta.apply(pb.MetaChange(delete_channel=pb.DeleteChannel(uid=uid)), 1)
    for uid in (3, 5, 10):
        drop(machine, uid)
    assert join(machine, meta) == [4, 4, 9, 9]
    assert machine.dropped.runs.flat() == [3, 5, 9, 10]
    assert join(machine, meta) == []


def test_what_comes_late_about_a_dropped_channel_changes_nothing():
    machine = GroupMachine(1)
    drop(machine, 2)
    machine.take_changed_rows()
    late = pb.GroupChange(subscribe=pb.Subscribe(uid=2, client_id=b"me", inbox=b"in", durable_name=b"d"))
    assert machine.apply(late, 2).error == UNKNOWN_CHANNEL
    machine.apply(pb.GroupChange(trim=pb.Trim(first_sequences=[2, 9])), 3)
    rows = machine.take_changed_rows()
    assert not any((rows.cursors, rows.subscriptions, rows.first_sequences, rows.parts, machine.channels))


def test_the_leader_joins_the_runs(monkeypatch):
    monkeypatch.setattr(limits, "DROPPED_RUNS", 0)
    harness = CoreHarness()
    harness.connect()
    channels = harness.broker.parts.channels
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        harness.publish(name, b"1")
    for name in (b"a", b"c", b"e", b"f", b"g", b"b", b"d"):
        channels.removal.delete(channels.by_name[name])
        harness.turn()
    assert harness.follower().dropped.runs.flat() == [1, 7]
