"""The state of a group as rows and back (STAN-SPEC 16 I 162, 183)."""

from stan.core.group import GroupMachine
from stan.core.rows import restore_group
from stan.state.changes import group_changes
from stan.state.database import Changes, Database
from stan.types import GroupId
from tests.kit.desk import Desk


async def test_rows_give_back_the_same_state_and_no_id_is_used_twice(tmp_path):
    desk = Desk()
    desk.connect()
    desk.publish("foo", b"1", b"2", b"3")
    kept = desk.subscribe("foo", "kept", durable="d", in_flight=2)
    desk.subscribe("foo", "member", queue="q")
    desk.ack(kept.ack_inbox, 1)
    offline = desk.subscribe("foo", "off", durable="off")
    desk.leave("foo", offline.ack_inbox)
    newest = desk.subscribe("foo", "newest")
    desk.leave("foo", newest.ack_inbox)
    machine = desk.broker.shared.groups[1].machine
    changes = Changes()
    group_changes(changes, machine, (7, 1))

    database = await Database.open(tmp_path / "state.db")
    await database.flush(changes)
    again = GroupMachine(GroupId(1))
    restore_group(again, await database.snapshot(1))
    await database.close()

    assert again.next_id == machine.next_id > max(*machine.cursors, *machine.subscriptions) + 1
    for id_, cursor in machine.cursors.items():
        found = again.cursors[id_]
        assert (found.key, found.last_sent, found.owed.flat()) == (cursor.key, cursor.last_sent, cursor.owed.flat())
    for id_, sub in machine.subscriptions.items():
        found = again.subscriptions[id_]
        assert (found.ack_inbox, found.inbox, found.pending.flat()) == (sub.ack_inbox, sub.inbox, sub.pending.flat())
    assert again.cursors.keys() == machine.cursors.keys()
    assert again.subscriptions.keys() == machine.subscriptions.keys()
