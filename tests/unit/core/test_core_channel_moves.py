"""Moves of channels between groups: what is moved, and that crashes and changes of leaders after any entry lead to one end."""

import pytest
from stan_protocol.commits import commit_request
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import (
    CHANNEL_MOVING,
    CHANNELS_CHANGED,
    MOVE_UNDER_WAY,
    MOVE_WAITS_DELAYED,
    MOVE_WAITS_STAGED,
    MOVED_BACK,
)
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.features.moves.group_moves import GroupMoves
from stan.core.metadata.meta import MetaMachine
from stan.core.services.proposals import nobody_waits
from stan.core.state.cursors import cursor_row, subscription_row
from stan.core.state.group import GroupMachine
from stan.core.state.moved_rows import moved_rows
from stan.core.state.moves import Stage
from stan.protocol.proto import entries_pb2 as pb
from tests.kit import everywhere
from tests.kit.batches import rows_of
from tests.kit.core_harness import pub_frame

PREFIX = "_STAN.x.test-cluster.admin"
FROM, TO = 1, 2
TEXTS = [b"%d" % number for number in range(1, 31)]


class Everywhere(everywhere.Everywhere):
    """It has the channel foo."""

    @property
    def info(self):
        return self.broker.view.meta.channels[b"foo"]

    def pin(self, group, channel=b"foo"):
        request = admin.PinChannelRequest(version=1, channel=channel, group=group)
        answer = self.ask(f"{PREFIX}.pin_channel", request, admin.ChangeResponse)
        return answer.error.decode(), answer.changed


def used():
    """A channel with messages, a durable that has acked some of them, a queue group, a plain subscription; and what it got."""
    node = Everywhere()
    node.lead(0, FROM, TO)
    node.feed_client()
    node.feed_channel("foo", FROM)
    for text in TEXTS[:20]:
        assert node.publish("foo", text) == [""]
    durable = node.subscribe("foo", "dur", durable="d", in_flight=5).ack_inbox
    node.subscribe("foo", "one", queue="q", in_flight=3)
    node.subscribe("foo", "two", queue="q", in_flight=3)
    node.ack(durable, 1, 2, 4)
    node.pass_time(1)
    return node, durable


def test_a_channel_goes_on_and_is_moved_later_if_the_entry_that_holds_it_was_never_written(monkeypatch):
    """Its leader was about to hand the group over, and stayed."""
    node, durable = used()
    source, lost = node.leader_part(GroupMoves, FROM).source, []
    write = source.change

    def change(done, in_doubt=nobody_waits, **change):
        if "depart" in change and not lost:
            lost.append(change)
            in_doubt()
        else:
            write(done, in_doubt, **change)

    monkeypatch.setattr(source, "change", change)
    assert node.pin(TO) == ("", 1)
    node.pass_time(60)
    assert lost
    is_whole(node, durable)


def is_whole(node, durable):
    """All of the channel is in its new group, and goes on there."""
    assert (node.info.group, node.info.move) == (TO, 0)
    assert node.stored("foo", TO)[:20] == TEXTS[:20]
    assert not node.state.positions(FROM)
    assert not node.state.subscriptions(FROM)
    assert FROM not in {group for (group, _), index in node.indexes.items() if index.last_sequence}
    cursor, other = sorted(node.state.positions(TO), key=lambda position: position.name)
    assert (cursor.name, other.name) == (b"d", b"q")
    assert cursor.pending == [3, 5, 6, 7, 8]
    assert cursor.members[0].settings.ack_inbox == durable
    node.hear()
    node.ack(durable, 3, 5, 6, 7, 8)
    assert [number for number, _ in node.received("dur")] == [9, 10, 11, 12, 13]
    for text in TEXTS[20:]:
        assert node.publish("foo", text) == [""]
    assert node.stored("foo", TO) == TEXTS


@pytest.fixture(scope="module")
def entries():
    """The entries of a whole move, and how many there were before it."""
    node, _ = used()
    before = len(node.order)
    assert node.pin(TO) == ("", 1)
    node.pass_time(3)
    assert node.info.group == TO
    return node.order, before


def test_a_channel_moves_with_everything_that_it_has() -> None:
    node, durable = used()
    bytes_before = [records for *_, records in node.indexes[FROM, node.info.uid].batches]
    times = [at for _, _, at, _ in node.indexes[FROM, node.info.uid].batches]
    assert node.pin(TO) == ("", 1)
    node.pass_time(3)
    moved = node.indexes[TO, node.info.uid].batches
    assert [records for *_, records in moved] == bytes_before
    assert [at for _, _, at, _ in moved] == times
    is_whole(node, durable)


def test_a_channel_moves_although_a_busy_node_remembers_what_it_heard_for_a_moment_only(monkeypatch) -> None:
    """Another channel of its group is published to so much that the newest few publishes fill the replay buffer."""
    monkeypatch.setattr(limits, "REPLAY_BYTES_MAX", 500)
    node, _ = used()
    node.feed_channel("bar", FROM)

    def busy(seconds):
        for _ in range(2 * seconds):
            node.pass_time(0.5)
            assert set(node.publish("bar", b"more")) == {""}

    busy(15)
    assert node.pin(TO) == ("", 1)
    busy(3)
    assert (node.info.group, node.info.move) == (TO, 0)
    assert node.stored("foo", TO) == TEXTS[:20]


def test_every_entry_of_a_move_is_written(entries) -> None:
    order, before = entries
    names = []
    for group, kind, body in order[before:]:
        told = pb.MetaChange.FromString(body) if kind == 2 else pb.GroupChange.FromString(body) if kind == 3 else None
        name = told.WhichOneof("change") if told is not None else "records"
        names.append((group, name))
    steps = [one for one in names if one[1] not in (None, "records")]
    assert steps == [
        (0, "begin_move"),
        (TO, "arriving"),
        (FROM, "depart"),
        (TO, "arrived"),
        (0, "end_move"),
        (FROM, "departed"),
    ]


def cuts():
    return range(1, 12)


@pytest.mark.parametrize("cut", cuts())
def test_whoever_finds_the_logs_as_they_were_after_an_entry_ends_the_move(entries, cut) -> None:
    """All nodes die after any of the entries of a move; the next leaders find what is in the logs."""
    order, before = entries
    if cut > len(order) - before:
        return
    node = Everywhere(order[: before + cut])
    durable = (node.state.subscriptions(FROM) or node.state.subscriptions(TO))[0].settings.ack_inbox
    node.lead(0, FROM, TO)
    node.pass_time(20)
    is_whole(node, durable)


@pytest.mark.parametrize("cut", cuts())
@pytest.mark.parametrize("group", [0, FROM, TO])
def test_a_leader_changes_after_an_entry(entries, cut, group) -> None:
    """The leader of one of the three groups changes, and what it had proposed is lost."""
    order, before = entries
    if cut > len(order) - before:
        return
    node, durable = used()
    assert node.pin(TO) == ("", 1)
    for _ in range(3000):
        if len(node.order) - before >= cut:
            break
        node.pass_time(0.001)
    node.hold = True
    node.pass_time(0.05)
    node.follow(group)
    node.hold = False
    node.commit()
    node.lead(group)
    node.pass_time(20)
    is_whole(node, durable)


@pytest.mark.parametrize("cut", cuts())
def test_leaders_whose_metadata_are_behind_do_nothing_that_cannot_be_undone(entries, cut) -> None:
    """Leaders of both groups know of the metadata only what they were before some entry of the move."""
    order, before = entries
    if cut > len(order) - before:
        return
    late = [entry for entry in order[before + cut :] if entry[0] == 0]
    node = Everywhere([*order[: before + cut], *(entry for entry in order[before + cut :] if entry[0] != 0)])
    durable = node.state.subscriptions(TO)[0].settings.ack_inbox
    node.lead(FROM, TO)
    node.pass_time(1)
    assert set(node.forwarded()) <= {"end_move"}
    for entry in late:
        node.feed(*entry)
    node.lead(0)
    node.pass_time(20)
    is_whole(node, durable)


def test_publishes_while_it_is_held_are_stored_once_and_in_order() -> None:
    node, durable = used()
    assert node.pin(TO) == ("", 1)
    left = list(TEXTS[20:])
    while node.info.group == FROM or left:
        if left:
            node.publish("foo", left.pop(0))
        node.pass_time(0.01)
    node.pass_time(1)
    assert node.stored("foo", TO) == TEXTS
    assert not node.state.held_here
    del durable


def test_what_is_heard_while_nobody_leads_it_is_answered_after_the_move() -> None:
    node, _ = used()
    assert node.pin(TO) == ("", 1)
    while not node.state.held(FROM):
        node.pass_time(0.001)
    if node.info.group == FROM:
        node.hears(pub_frame("foo", b"guid-of-21" + b" " * 22, TEXTS[20]))
        assert node.pub_acks() == []
        assert node.subscribe("foo", "new", durable="late") is None
    node.pass_time(2)
    assert set(node.pub_acks()) == {""}  # those of before are acknowledged again, as by any next leader
    assert node.stored("foo", TO) == TEXTS[:21]
    replies = [said for said in node.said if said.subject.startswith("reply.")]
    assert wire.SubscriptionResponse.FromString(replies[-1].payload).error == b""


def test_a_move_that_takes_too_long_is_cancelled_and_begun_anew() -> None:
    node, durable = used()
    assert node.pin(TO) == ("", 1)
    while not node.state.held(FROM):
        node.pass_time(0.001)
    node.follow(TO)
    assert node.publish("foo", TEXTS[20]) == []
    node.pass_time(4)
    assert (node.info.group, node.info.move) == (FROM, 0)
    assert not node.state.held(FROM)
    assert set(node.pub_acks()) == {""}
    assert node.stored("foo", FROM) == TEXTS[:21]
    node.lead(TO)
    node.pass_time(20)
    assert (node.info.group, node.info.move) == (TO, 0)
    assert node.stored("foo", TO) == TEXTS[:21]
    del durable


def test_the_next_leader_of_a_held_channel_waits_no_longer_than_the_first_would_have() -> None:
    node, _ = used()
    assert node.pin(TO) == ("", 1)
    while not node.state.held(FROM):
        node.pass_time(0.001)
    node.follow(TO)
    node.pass_time(1)
    node.follow(FROM)
    node.lead(FROM)
    assert node.info.move, "it is still under way"
    node.pass_time(0.8)
    assert (node.info.group, node.info.move) == (FROM, 0)
    assert not node.state.held(FROM)


def test_unpinning_cancels_a_move() -> None:
    node, _ = used()
    node.follow(TO)
    assert node.pin(TO) == ("", 1)
    assert node.info.move
    assert node.pin(0) == ("", 1)
    assert (node.info.group, node.info.move) == (FROM, 0)


def test_a_move_waits_for_what_is_half_done() -> None:
    machine = GroupMachine(FROM)
    staged = pb.Staged(app=b"a", version=1, txn=b"t", parts=[pb.StagedPart(uid=1, sequence=1, count=1, bytes=1)])
    machine.apply(pb.GroupChange(staged=staged), 1)
    depart = pb.GroupChange(depart=pb.Moving(move=9, uids=[1]))
    assert machine.apply(depart, 2).error == MOVE_WAITS_STAGED
    machine.apply(pb.GroupChange(drop_staged=pb.DropStaged(uid=1, txns=[b"t"])), 3)
    machine.apply(pb.GroupChange(deferred=pb.Deferred(uid=1, sequence=1, dues=[7])), 4)
    assert machine.apply(depart, 5).error == MOVE_WAITS_DELAYED
    machine.apply(pb.GroupChange(deferred_gone=pb.DeferredGone(places=[1, 1])), 6)
    assert machine.apply(depart, 7).error == ""
    assert machine.apply(depart, 8).error == ""


def stage(node, version, txn):
    request = ext.StageRequest(app=b"app", version=version, txn=txn, channel=b"foo", count=1, rows=rows_of([b"row"]))
    answer = node.ask("_STAN.x.test-cluster.stage", request, ext.StageResponse)
    return answer and (answer.error.decode(), answer.retry)


def test_a_move_comes_between_transactions_that_follow_each_other() -> None:
    node, _ = used()
    node.pass_time(10)
    assert stage(node, 1, b"one") == ("", False)
    assert node.pin(TO) == ("", 1)
    node.pass_time(1)
    assert stage(node, 2, b"two") == (CHANNEL_MOVING, True), "the next one comes again"
    assert stage(node, 1, b"more") == ("", False), "what has begun goes on"
    txns = [(b"one", 1), (b"more", 1)]
    commit = commit_request(b"app", 1, {b"foo": txns})
    answer = node.ask("_STAN.x.test-cluster.commit", commit, ext.CommitResponse)
    assert answer.last_sequence - answer.first_sequence == 1
    node.pass_time(3)
    assert node.info.group == TO
    assert stage(node, 2, b"two") == ("", False)


def test_a_transaction_that_nobody_ends_keeps_others_out_for_a_moment_only() -> None:
    node, _ = used()
    node.pass_time(10)
    assert stage(node, 1, b"left behind") == ("", False)
    assert node.pin(TO) == ("", 1)
    node.pass_time(1)
    assert stage(node, 2, b"two") == (CHANNEL_MOVING, True)
    node.pass_time(limits.MOVE_STAGING_MAX / SECOND)
    assert node.info.move
    assert stage(node, 2, b"two") == ("", False)
    node.pass_time(limits.MOVE_PATIENCE / SECOND)
    assert (node.info.group, node.info.move) == (FROM, 0), "the move comes later"


def full():
    """The state of a group with one of everything in channel 1."""
    machine = GroupMachine(FROM)
    index = 0

    def apply(**change):
        nonlocal index
        index += 1
        return machine.apply(pb.GroupChange(**change), index)

    apply(trim=pb.Trim(first_sequences=[1, 3]))
    for name in (b"x", b"y"):
        apply(
            subscribe=pb.Subscribe(
                uid=1, client_id=name, inbox=name, queue_group=b"q", start_sequence=1, nuid=b"N", reply=name
            )
        )
    apply(subscribe=pb.Subscribe(uid=1, client_id=b"x", durable_name=b"d", inbox=b"d", start_sequence=3, nuid=b"N"))
    cursor = machine.subscriptions.by_id[2].cursor_id
    held = pb.Held(subscription_id=2, runs=[4, 6], counts=[2])
    machine.apply(pb.GroupChange(progress=[pb.Progress(cursor_id=cursor, last_sent=6, held=[held])]), 90)
    apply(pause_cursor=pb.PauseCursor(cursor_id=cursor, paused=True))
    apply(move_cursor=pb.MoveCursor(cursor_id=cursor, sequence=2, at=5))
    apply(removal=pb.Removal(uid=1, deleted=[8, 9]))
    apply(edit_limits=pb.EditLimits(uid=1, max_msgs=50))
    apply(bookmark=pb.Bookmark(uid=1, name=b"mark", sequence=7))
    apply(remember_ids=pb.RememberIds(uid=1, producer=b"p", version=1, ids=b"i" * 16, at=5))
    apply(expiring=pb.Expiring(uid=1, runs=[10, 12], at=[99]))
    apply(scheduled=pb.Scheduled(uid=1, sequences=[10, 11], dues=[99, 98], subjects=[b"s", b"t"]))
    part = pb.StagedPart(uid=1, sequence=1, count=1, bytes=1)
    apply(staged=pb.Staged(app=b"a", version=1, txn=b"t", parts=[part]))
    share = pb.CommitShare(uid=1, parts=[0, 1])
    apply(commit=pb.Commit(app=b"a", version=1, at=4, txns=[b"t"], channels=[share]))
    apply(
        commit_done=pb.CommitDone(decision=index, rows=[pb.CommittedRows(uid=1, first_sequence=12, last_sequence=12)])
    )
    apply(subscribe=pb.Subscribe(uid=2, client_id=b"z", inbox=b"z", start_sequence=1, nuid=b"N"))
    return machine


def shape(machine, uid):
    """What a group knows of a channel, with the numbers that groups give replaced."""
    cursors = {}
    for cursor in machine.channel(uid).cursors.values():
        row = cursor_row(cursor)
        row.cursor_id = row.subscription_id = row.override.epoch = 0
        members = []
        for member in sorted(cursor.members, key=lambda one: one.joined_at):
            told = subscription_row(member)
            told.subscription_id = told.cursor_id = told.joined = told.ack_group = 0
            members.append(told.SerializeToString())
        cursors[row.kind, row.name] = row.SerializeToString(), members
    parts = [
        (row.part.kind, row.part.key, row.part.state)
        for row in moved_rows(machine, [uid], lambda _uid: 12)
        if row.HasField("part")
    ]
    return machine.channel(uid).first_sequence, cursors, parts


def test_all_rows_of_a_channel_come_to_the_other_group() -> None:
    source, target = full(), GroupMachine(TO)
    before = shape(source, 1)
    assert len({kind for kind, *_ in before[2]}) == 7
    source.apply(pb.GroupChange(depart=pb.Moving(move=9, uids=[1])), 200)
    target.apply(pb.GroupChange(arriving=pb.Moving(move=9, uids=[1])), 1)
    rows = list(moved_rows(source, [1], lambda _uid: 12))
    target.apply(pb.GroupChange(arrived=pb.Arrived(move=9, uids=[1], rows=rows)), 2)
    assert shape(target, 1) == before
    assert all(member.ack_group == FROM for member in target.subscriptions.by_id.values())
    assert all(cursor.override.epoch == 2 for cursor in target.cursors.values() if cursor.override)
    snapshot = pb.Snapshot()
    target.snapshot(snapshot)
    loaded = GroupMachine(TO)
    loaded.restore(snapshot)
    assert shape(loaded, 1) == before
    assert loaded.moves.by_channel == target.moves.by_channel
    written = target.take_changed_rows()
    assert {kind for kind, *_ in written.parts} > {kind for kind, *_ in before[2]}
    source.apply(pb.GroupChange(departed=pb.Moving(move=9, uids=[1])), 201)
    assert shape(source, 1) == (0, {}, [])
    assert source.moves.by_channel[1].stage is Stage.GONE
    assert shape(source, 2)[1]


def test_nothing_of_a_held_channel_changes_until_it_returns() -> None:
    machine = full()
    machine.apply(pb.GroupChange(depart=pb.Moving(move=9, uids=[1])), 200)
    before = shape(machine, 1)
    cursor = machine.subscriptions.by_id[2].cursor_id
    for index, change in enumerate(
        (
            {"subscribe": pb.Subscribe(uid=1, client_id=b"n", inbox=b"n", start_sequence=1)},
            {"leave": pb.Leave(subscription_id=2)},
            {"drop_channel": pb.DropChannel(uid=1)},
            {"bookmark": pb.Bookmark(uid=1, name=b"mark", sequence=8)},
            {"pause_cursor": pb.PauseCursor(cursor_id=cursor, paused=False)},
            {"removal": pb.Removal(uid=1, first_sequence=9)},
            {"scheduled": pb.Scheduled(uid=1, sequences=[12], dues=[99], subjects=[b"s"])},
        ),
        201,
    ):
        assert machine.apply(pb.GroupChange(**change), index).error == CHANNEL_MOVING
    machine.apply(pb.GroupChange(trim=pb.Trim(first_sequences=[1, 9])), 250)
    machine.apply(pb.GroupChange(maybe_sent=pb.MaybeSent(until=[cursor, 12])), 251)
    machine.apply(pb.GroupChange(expired=pb.Expired(until=1000, channels=[1, 100])), 252)
    machine.apply(pb.GroupChange(progress=[pb.Progress(cursor_id=cursor, last_sent=12, acked=[1, 12])]), 253)
    assert shape(machine, 1) == before
    machine.apply(pb.GroupChange(returned=pb.Moving(move=8, uids=[1])), 254)
    assert machine.moves.held
    machine.apply(pb.GroupChange(returned=pb.Moving(move=9, uids=[1])), 255)
    assert not machine.moves.held
    assert machine.apply(pb.GroupChange(bookmark=pb.Bookmark(uid=1, name=b"mark", sequence=8)), 256).error == ""


def test_what_arrived_goes_when_the_move_is_cancelled() -> None:
    source, target = full(), GroupMachine(TO)
    source.apply(pb.GroupChange(ephemeral_epoch=pb.EphemeralEpoch(uid=1, at=5)), 300)
    target.apply(pb.GroupChange(arriving=pb.Moving(move=9, uids=[1])), 1)
    rows = list(moved_rows(source, [1], lambda _uid: 12))
    target.apply(pb.GroupChange(arrived=pb.Arrived(move=9, uids=[1], rows=rows)), 2)
    target.apply(pb.GroupChange(arrival_dropped=pb.Moving(move=9, uids=[1])), 3)
    assert shape(target, 1)[1:] == ({}, [])
    assert {type(part) for part in target.components if [*part.keys()]} == {type(target.moves)}
    assert not target.subscriptions.by_id
    assert target.apply(pb.GroupChange(arrived=pb.Arrived(move=9, uids=[1], rows=rows)), 4).error == ""
    assert target.apply(pb.GroupChange(arriving=pb.Moving(move=9, uids=[1])), 5).error == ""
    assert target.moves.by_channel[1].stage is Stage.ARRIVED


def metadata():
    meta = MetaMachine()
    meta.apply(pb.MetaChange(cluster_info=pb.ClusterInfo(raft_groups=3)), 1)
    rows = [pb.Channel(name=name, group=group) for name, group in ((b"a", 1), (b"b", 1), (b"c", 2))]
    meta.apply(pb.MetaChange(create_channels=pb.CreateChannels(channels=rows)), 2)
    return meta


def begin(meta, uids, to, index):
    return meta.apply(pb.MetaChange(begin_move=pb.BeginMove(uids=uids, to=to)), index).error


def end(meta, move, index, *, done=True):
    return meta.apply(pb.MetaChange(end_move=pb.EndMove(move=move, done=done)), index)


def test_the_metadata_decide_a_move_once() -> None:
    meta = metadata()
    assert begin(meta, [1, 2], 3, 5) == ""
    assert [info.name for info in meta.moves()[5]] == [b"a", b"b"]
    assert begin(meta, [1], 2, 6) == MOVE_UNDER_WAY
    assert begin(meta, [1, 3], 2, 6) == CHANNELS_CHANGED
    assert begin(meta, [3], 4, 6) == CHANNELS_CHANGED
    snapshot = pb.Snapshot()
    meta.snapshot(snapshot)
    loaded = MetaMachine()
    loaded.restore(snapshot)
    for one in (meta, loaded):
        assert len(end(one, 5, 7, done=False).moved.infos) == 2
        assert end(one, 5, 8).moved is None
        assert one.channels[b"a"].group == 1
        assert begin(one, [1], 3, 9) == ""
        assert end(one, 9, 10).moved.left == 1
        assert end(one, 9, 11, done=False).moved is None
        assert (one.channels[b"a"].group, one.channels[b"a"].left) == (3, (1,))
        assert begin(one, [1], 1, 12) == MOVED_BACK.format(1)
        assert one.moves() == {}


def test_a_channel_that_is_deleted_moves_no_more() -> None:
    meta = metadata()
    begin(meta, [1], 3, 5)
    meta.apply(pb.MetaChange(delete_channel=pb.DeleteChannel(uid=1)), 6)
    assert meta.moves() == {}
