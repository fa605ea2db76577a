"""ClusterClient a harness to change cursors as operators do, and comparing what its nodes would know."""

from stan_protocol.proto import admin_pb2 as admin

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


def agrees(harness, group=1):
    """A follower that applies what the log holds, and a restart that reads it from rows, know the same as the harness."""
    harness.follower(group)
    again = pb.Snapshot()
    harness.state.copy(group).snapshot(again)
    assert again == harness.state.snapshot(group)
