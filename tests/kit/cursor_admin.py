"""ClusterClient a harness to change cursors as operators do, and comparing what its nodes would know."""

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import GroupId

from stan.core.state.group import GroupMachine
from stan.core.state.state_codec import restore_group, snapshot_group
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb

PREFIX = "_STAN.x.test-cluster.admin."
KINDS = {
    "create_cursor": admin.CreateCursorRequest,
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


def begin(harness, kind, reply="admin", **told):
    """Ask without waiting."""
    harness.broker.tick(harness.now, harness.wall)
    harness.asks(PREFIX + kind, request(kind, **told), reply)
    harness.turn()


def answer(harness, reply="admin"):
    """What came; None if nothing did."""
    heard = harness.hear(reply)
    return admin.ChangeResponse.FromString(heard[0].payload) if heard else None


def change(harness, kind, **told):
    """Ask; how many were changed. A refusal fails."""
    begin(harness, kind, **told)
    response = answer(harness)
    assert response is not None, "no answer"
    assert not response.error, response.error
    return response.changed


def refusal(harness, kind, **told):
    """Ask; why it was refused."""
    begin(harness, kind, **told)
    response = answer(harness)
    return response.error.decode() if response else None


def snapshot(machine):
    """The whole state."""
    taken = pb.Snapshot()
    snapshot_group(machine, taken)
    return taken


def replayed(harness, group=1):
    """The state of a node that applied what this one's log holds."""
    machine = GroupMachine(GroupId(group))
    held, harness.broker.context.groups[group].machine = harness.broker.context.groups[group].machine, machine
    try:
        for index, kind, body in harness.logs[group]:
            if kind != Kind.META:
                harness.broker.replay_entry(group, index, kind, body)
    finally:
        harness.broker.context.groups[group].machine = held
    return snapshot(machine)


def stored(machine):
    """The state of a node that has read it from rows."""
    again, rows = GroupMachine(machine.group), snapshot(machine)
    restore_group(again, rows)
    return snapshot(again)
