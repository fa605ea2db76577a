"""The state of a group as rows and back (STAN-SPEC 16 I 162, 183)."""

from stan_protocol.scalars import GroupId

from stan.core.state.group import GroupMachine
from stan.state.changes import add_rows
from stan.state.database import Changes, Database
from tests.kit.cursor_admin import change


async def test_rows_give_back_the_same_state_and_no_id_is_used_twice(harness, tmp_path):
    harness.publish("foo", b"1", b"2", b"3")
    kept = harness.subscribe("foo", "kept", durable="d", in_flight=2)
    harness.subscribe("foo", "member", queue="q")
    harness.ack(kept.ack_inbox, 1)
    offline = harness.subscribe("foo", "off", durable="off")
    harness.leave("foo", offline.ack_inbox)
    newest = harness.subscribe("foo", "newest")
    harness.leave("foo", newest.ack_inbox)
    machine, changes = harness.follower(), Changes()
    add_rows(changes, 1, harness.broker.states.take_changed_rows(1), (7, 1))

    database = await Database.open(tmp_path / "state.db")
    await database.flush(changes)
    again = GroupMachine(GroupId(1))
    again.restore(await database.snapshot(1))
    await database.close()

    assert again.next_id == machine.next_id > max(*machine.cursors, *machine.subscriptions.by_id) + 1
    for id_, cursor in machine.cursors.items():
        found = again.cursors[id_]
        assert (found.key, found.last_sent, found.to_redeliver.flat()) == (
            cursor.key,
            cursor.last_sent,
            cursor.to_redeliver.flat(),
        )
    for id_, sub in machine.subscriptions.by_id.items():
        found = again.subscriptions.by_id[id_]
        assert (found.settings, found.pending.flat()) == (sub.settings, sub.pending.flat())
    assert again.cursors.keys() == machine.cursors.keys()
    assert again.subscriptions.by_id.keys() == machine.subscriptions.by_id.keys()


async def test_what_operators_have_changed_is_in_the_rows(harness, tmp_path):
    harness.publish("foo", *[b"x"] * 9)
    harness.subscribe("foo", durable="d", in_flight=3, start=3, seq=4)
    for kind, told in (("move", {"sequence": 2}), ("skip", {"runs": [7, 8]}), ("pause", {})):
        change(harness, kind, durable_name="d", **told)
    machine, changes = harness.follower(), Changes()
    add_rows(changes, 1, harness.broker.states.take_changed_rows(1), (7, 1))

    database = await Database.open(tmp_path / "state.db")
    await database.flush(changes)
    again = GroupMachine(GroupId(1))
    again.restore(await database.snapshot(1))
    await database.close()

    (cursor,) = again.cursors.values()
    override = cursor.override
    assert (cursor.past.start_sequence, override.paused, override.epoch) == (4, True, machine.cursors[1].override.epoch)
    assert (override.resend.flat(), override.skipped.flat(), override.unsent.flat()) == ([5, 6], [7, 8], [1, 1])
