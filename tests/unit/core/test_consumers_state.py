"""Consumers in the replicated state: made with a cursor, changed, gone with it, and the same from rows, snapshots and moves."""

from stan.core.base.runs import Run
from stan.core.state.consumers import CONSUMERS
from stan.core.state.consuming import CHANGED, GONE, TOO_MANY
from stan.core.state.cursors import Cursor, CursorKind
from stan.core.state.group import GroupMachine
from stan.core.state.moved_rows import moved_rows
from stan.protocol.jetstream.consumers import read_config
from stan.protocol.proto import entries_pb2 as pb

UID = 7


def config(**more):
    return read_config({"durable_name": "worker", "ack_policy": "explicit"} | more, "worker")


def made(machine, index=1, *, changed=0, most=5, start=3, **more):
    change = pb.SetConsumer(
        uid=UID,
        stream=b"ORDERS",
        name=b"worker",
        changed=changed,
        config=config(**more).encoded(),
        start_sequence=start,
        consumers_max=most,
        at=1_700_000_000,
        subject=b"orders",
    )
    return machine.apply(pb.GroupChange(set_consumer=change), index)


def dropped(machine, index, changed=0):
    return machine.apply(pb.GroupChange(drop_consumer=pb.DropConsumer(uid=UID, name=b"worker", changed=changed)), index)


def snapshot(machine):
    found = pb.Snapshot()
    machine.snapshot(found)
    return found


def test_a_consumer_is_a_durable_with_a_member_that_is_always_there():
    machine = GroupMachine(1)
    result = made(machine, max_ack_pending=9, ack_wait=1_500_000_000)
    cursor = result.cursor

    assert (cursor.kind, cursor.name, cursor.client_id, cursor.last_sent) == (
        CursorKind.DURABLE,
        b"worker",
        CONSUMERS,
        2,
    )
    assert [one.settings.max_in_flight for one in cursor.members] == [9]
    assert cursor.members[0].settings.ack_wait_s == 2
    assert machine.consumers.of(UID)[b"worker"].config == config(max_ack_pending=9, ack_wait=1_500_000_000)


def test_a_change_counts_only_for_the_consumer_that_it_was_made_for():
    machine = GroupMachine(1)
    made(machine, 1)
    assert made(machine, 2).error == CHANGED
    assert made(machine, 3, changed=9).error == CHANGED
    assert not made(machine, 4, changed=1, max_ack_pending=3).error
    assert machine.consumers.of(UID)[b"worker"].config.max_ack_pending == 3
    assert [one.settings.max_in_flight for one in machine.subscriptions.by_id.values()] == [3]
    assert dropped(machine, 5, changed=1).error == CHANGED
    assert not dropped(machine, 6, changed=4).error
    assert dropped(machine, 7).error == GONE
    assert not machine.cursors
    assert not machine.subscriptions.by_id


def test_a_channel_has_as_many_as_it_may():
    machine = GroupMachine(1)

    assert made(machine, most=0).error == TOO_MANY
    assert not machine.cursors


def test_whoever_removes_the_position_removes_the_consumer():
    machine = GroupMachine(1)
    cursor = made(machine).cursor
    machine.apply(pb.GroupChange(drop_cursor=pb.DropCursor(cursor_id=cursor.cursor_id)), 2)
    assert not machine.consumers.of(UID)
    made(machine, 3)
    machine.apply(pb.GroupChange(drop_channel=pb.DropChannel(uid=UID)), 4)
    assert not machine.consumers.of(UID)


def test_the_member_of_a_consumer_cannot_be_closed():
    machine = GroupMachine(1)
    member = made(machine).joined
    result = machine.apply(pb.GroupChange(leave=pb.Leave(subscription_id=member.subscription_id)), 2)

    assert result.error
    assert machine.subscriptions.by_id == {member.subscription_id: member}


def test_a_position_from_a_backup_is_taken_over():
    machine = GroupMachine(1)
    restored = Cursor(machine.new_id(), UID, CursorKind.DURABLE, b"worker", CONSUMERS, 40)
    restored.to_redeliver.add(Run(38, 39))
    machine.add_cursor(restored)
    result = made(machine)

    assert result.cursor is restored
    assert (result.cursor.last_sent, len(result.cursor.members)) == (40, 1)


def test_snapshots_and_rows_have_consumers():
    machine, again, by_rows = GroupMachine(1), GroupMachine(1), GroupMachine(1)
    made(machine, filter_subject="orders.new")
    again.restore(snapshot(machine))
    rows = machine.take_changed_rows()
    for kind, key, row in rows.parts:
        assert kind == "consumers"
        by_rows.consumers.load(key, row)

    assert again.consumers.by_channel == by_rows.consumers.by_channel == machine.consumers.by_channel
    dropped(machine, 2)
    assert [(kind, row) for kind, _, row in machine.take_changed_rows().parts] == [("consumers", None)]


def test_a_channel_that_moves_takes_its_consumers_along():
    source, target = GroupMachine(1), GroupMachine(2)
    made(source)
    rows = list(moved_rows(source, [UID], lambda _uid: 9))
    target.apply(pb.GroupChange(arriving=pb.Moving(move=5, uids=[UID])), 1)
    result = target.apply(pb.GroupChange(arrived=pb.Arrived(move=5, uids=[UID], rows=rows)), 2)

    assert not result.error
    assert target.consumers.by_channel == source.consumers.by_channel
    assert [one.client_id for one in target.cursors.values()] == [CONSUMERS]
