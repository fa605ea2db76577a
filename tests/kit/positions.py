"""Asking a desk to change cursors as operators do, and comparing what its nodes would know."""

from stan.core.state.group import GroupMachine
from stan.core.state.state_codec import restore_group, snapshot_group
from stan.protocol.entries import Kind
from stan.protocol.proto import admin_pb2 as admin
from stan.protocol.proto import entries_pb2 as pb
from stan.types import GroupId

PREFIX = "_STAN.x.test-cluster.admin."
KINDS = {
    "move": admin.MoveRequest,
    "skip": admin.SkipRequest,
    "redeliver": admin.RedeliverRequest,
    "pause": admin.PauseRequest,
    "resume": admin.ResumeRequest,
    "evict_member": admin.EvictMemberRequest,
    "delete_cursor": admin.DeleteCursorRequest,
}
WHICH = {"channel", "cursor_id", "durable_name", "client_id", "queue_group"}


def request(kind, channel="foo", version=1, **told):
    """The payload; what names the cursor goes where it belongs."""
    told = {name: value.encode() if isinstance(value, str) else value for name, value in told.items()}
    if kind == "evict_member":
        return KINDS[kind](version=version, channel=channel.encode(), **told).SerializeToString()
    named = {name: told.pop(name) for name in list(told) if name in WHICH}
    which = admin.Which(channel=channel.encode(), **named)
    return KINDS[kind](version=version, which=which, **told).SerializeToString()


def begin(desk, kind, reply="admin", **told):
    """Ask without waiting."""
    desk.broker.tick(desk.now, desk.wall)
    desk.asks(PREFIX + kind, request(kind, **told), reply)
    desk.turn()


def answer(desk, reply="admin"):
    """What came; None if nothing did."""
    heard = desk.hear(reply)
    return admin.ChangeResponse.FromString(heard[0].payload) if heard else None


def change(desk, kind, **told):
    """Ask; how many were changed. A refusal fails."""
    begin(desk, kind, **told)
    response = answer(desk)
    assert response is not None, "no answer"
    assert not response.error, response.error
    return response.changed


def refusal(desk, kind, **told):
    """Ask; why it was refused."""
    begin(desk, kind, **told)
    response = answer(desk)
    return response.error.decode() if response else None


def snapshot(machine):
    """The whole state."""
    taken = pb.Snapshot()
    snapshot_group(machine, taken)
    return taken


def replayed(desk, group=1):
    """The state of a node that applied what this one's log holds."""
    machine = GroupMachine(GroupId(group))
    held, desk.broker.context.groups[group].machine = desk.broker.context.groups[group].machine, machine
    try:
        for index, kind, body in desk.logs[group]:
            if kind != Kind.META:
                desk.broker.replay_entry(group, index, kind, body)
    finally:
        desk.broker.context.groups[group].machine = held
    return snapshot(machine)


def stored(machine):
    """The state of a node that has read it from rows."""
    again, rows = GroupMachine(machine.group), snapshot(machine)
    restore_group(again, rows)
    return snapshot(again)
