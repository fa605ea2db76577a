"""The epochs of ephemeral channels in the replicated state: what begins one, what it leaves of the channel; that it survives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.refusals import CHANNEL_MOVING, EPHEMERAL_USED_UP, UNKNOWN_CHANNEL
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.metadata.meta import MetaMachine
from stan.core.state.ephemeral import BLOCK_BITS, BLOCKS_MAX, Epoch
from stan.core.state.group import GroupMachine
from stan.core.state.moved_rows import moved_rows
from stan.policies import EPHEMERAL, REPLICATED, SYNCED
from stan.protocol.proto import entries_pb2 as pb
from stan.state.changes import add_rows
from stan.state.database import Changes, Database

UID, OTHER = ChannelUid(1), ChannelUid(2)
BLOCK = 1 << BLOCK_BITS
GROUP = GroupId(1)


def begin(uid=UID, more=0, block=0):
    return pb.GroupChange(ephemeral_epoch=pb.EphemeralEpoch(uid=uid, more=more, block=block, at=5))


def subscribe(client, uid=UID, start=1, queue=b""):
    told = {"inbox": b"to." + client, "max_in_flight": 8, "ack_wait_s": 30, "reply": b"reply." + client}
    return pb.GroupChange(
        subscribe=pb.Subscribe(uid=uid, client_id=client, queue_group=queue, start_sequence=start, nuid=b"N", **told)
    )


def sent(cursor_id, last, member, held):
    """A progress entry: messages up to *last* were sent, and the *member* has not acked what it has *held*; 0: nobody has it."""
    told = pb.Held(subscription_id=member, runs=held, counts=[1] * (len(held) // 2))
    return pb.GroupChange(progress=[pb.Progress(cursor_id=cursor_id, last_sent=last, held=[told])])


def snapshot(machine):
    made = pb.Snapshot()
    machine.snapshot(made)
    return made


def shape(machine):
    return snapshot(machine).SerializeToString(deterministic=True)


def epoch_of(machine, uid=UID):
    return machine.epochs.of(uid)


def owing():
    """Entries after which a plain subscription and a queue group of the channel own messages and owe some, in every way in which
    the state can say so; and those of another channel."""
    return [
        subscribe(b"plain"),
        subscribe(b"one", queue=b"q"),
        subscribe(b"two", queue=b"q"),
        subscribe(b"other", OTHER),
        sent(1, 9, 2, [3, 5]),
        sent(3, 9, 4, [1, 2]),
        sent(3, 9, 5, [4, 4]),
        sent(3, 9, 0, [6, 7]),
        pb.GroupChange(maybe_sent=pb.MaybeSent(until=[1, 12, 3, 12, 6, 12])),
        pb.GroupChange(skip_sequences=pb.SkipSequences(cursor_id=3, runs=[11, 14])),
        pb.GroupChange(pause_cursor=pb.PauseCursor(cursor_id=3, paused=True)),
        sent(6, 9, 7, [8, 9]),
        pb.GroupChange(removal=pb.Removal(uid=UID, deleted=[8, 8])),
    ]


def applied(changes, machine=None):
    machine = machine or GroupMachine(GROUP)
    for index, change in enumerate(changes, 1):
        assert not machine.apply(change, index).error
    return machine


def test_sequences_of_an_epoch_begin_above_all_that_the_one_before_may_have_given_out():
    machine = applied([begin(), begin(), begin(more=2, block=2), begin(), begin(OTHER)])
    assert epoch_of(machine) == Epoch(3, 4 * BLOCK + 1, 4, 5)
    assert epoch_of(machine).last == 5 * BLOCK
    assert machine.first_sequence(UID) == 4 * BLOCK + 1
    assert epoch_of(machine, OTHER) == Epoch(1, BLOCK + 1, 1, 5)


def test_more_sequences_leave_everything_as_it_is():
    machine = applied([begin(), subscribe(b"plain", start=BLOCK + 1), sent(1, BLOCK + 9, 2, [BLOCK + 3, BLOCK + 4])])
    before = snapshot(machine)
    assert not machine.apply(begin(more=1, block=1), 9).error
    assert not machine.apply(begin(more=1, block=1), 10).error, "two entries of one request"
    assert epoch_of(machine) == Epoch(1, BLOCK + 1, 2, 5)
    after = snapshot(machine)
    assert (after.cursors, after.subscriptions) == (before.cursors, before.subscriptions)
    assert after.first_sequences == before.first_sequences
    assert [list(run)[:2] for run in machine.subscriptions.by_id[2].pending] == [[BLOCK + 3, BLOCK + 4]]


def test_an_epoch_that_has_ended_gets_no_more():
    machine = applied([begin(), begin()])
    before = shape(machine)
    for late in (begin(more=1, block=1), begin(more=1, block=2), begin(more=3, block=2), begin(more=2, block=1)):
        assert not machine.apply(late, 9).error
        assert shape(machine) == before


def test_cursors_stand_before_the_epoch_and_own_and_owe_nothing():
    machine = applied(owing())
    plain, queue, other = (machine.cursors[number] for number in (1, 3, 6))
    assert plain.members[0].pending
    assert all(member.pending for member in queue.members)
    assert queue.to_redeliver
    assert queue.override.skipped
    assert machine.tombstones.by_channel

    assert not machine.apply(begin(), 50).error

    for cursor in (plain, queue):
        assert (cursor.last_sent, cursor.floor, cursor.maybe_sent_until) == (BLOCK, BLOCK, 0)
        assert not cursor.to_redeliver
        assert not any(member.pending for member in cursor.members)
    override = queue.override
    assert (override.paused, override.skipped.flat(), override.resend.flat(), override.epoch) == (True, [], [], 50)
    assert not machine.tombstones.by_channel
    assert (other.last_sent, other.members[0].pending.flat(), other.maybe_sent_until) == (9, [8, 9], 12)
    assert [len(cursor.members) for cursor in (plain, queue)] == [1, 2], "who subscribed listens on"


def test_a_late_report_about_a_cursor_that_an_operator_has_changed_is_about_nothing_that_is_left():
    machine = applied([*owing(), begin()])
    before = shape(machine)
    machine.apply(sent(3, 20, 4, [15, 19]), 60)
    assert shape(machine) == before


def test_a_subscription_whose_start_an_earlier_leader_has_chosen_starts_in_this_epoch():
    machine = applied([begin(), subscribe(b"early", start=7), subscribe(b"late", start=BLOCK + 5)])
    assert [machine.cursors[number].last_sent for number in (1, 3)] == [BLOCK, BLOCK + 4]


def test_a_channel_without_epochs_starts_where_it_always_did():
    machine = applied([subscribe(b"one", start=0), subscribe(b"two", start=7)])
    assert [machine.cursors[number].last_sent for number in (1, 3)] == [0, 6]
    assert not list(machine.epochs.keys())


def test_a_channel_that_is_gone_or_held_has_no_epochs():
    machine = applied([begin(), begin(OTHER), pb.GroupChange(drop_channel=pb.DropChannel(uid=UID))])
    assert epoch_of(machine) == Epoch()
    assert machine.apply(begin(), 9).error == UNKNOWN_CHANNEL
    assert epoch_of(machine) == Epoch()
    machine.apply(pb.GroupChange(depart=pb.Moving(move=9, uids=[OTHER])), 10)
    assert machine.apply(begin(OTHER), 11).error == CHANNEL_MOVING
    assert epoch_of(machine, OTHER).number == 1


def test_no_sequence_is_given_out_that_old_clients_cannot_tell_from_another():
    machine = GroupMachine(GROUP)
    machine.epochs.put(UID, Epoch(7, BLOCK + 1, BLOCKS_MAX - 1))
    assert not machine.apply(begin(more=7, block=BLOCKS_MAX - 1), 1).error
    assert float(epoch_of(machine).last) != float(epoch_of(machine).last - 1)
    before = shape(machine)
    for change in (begin(more=7, block=BLOCKS_MAX), begin()):
        assert machine.apply(change, 2).error == EPHEMERAL_USED_UP
        assert shape(machine) == before


def test_the_other_group_goes_on_with_the_epochs_of_the_one_that_a_channel_has_left():
    source, target = applied([*owing(), begin(), begin(more=1, block=1)]), GroupMachine(GroupId(2))
    source.apply(pb.GroupChange(depart=pb.Moving(move=9, uids=[UID])), 70)
    target.apply(pb.GroupChange(arriving=pb.Moving(move=9, uids=[UID])), 1)
    rows = list(moved_rows(source, [UID], lambda _uid: 0))
    target.apply(pb.GroupChange(arrived=pb.Arrived(move=9, uids=[UID], rows=rows)), 2)
    assert epoch_of(target) == epoch_of(source)
    assert not target.apply(begin(), 3).error
    assert epoch_of(target) == Epoch(2, 3 * BLOCK + 1, 3, 5)
    assert {cursor.last_sent for cursor in target.cursors.values()} == {3 * BLOCK}


STORY = [*owing(), begin(), subscribe(b"new", start=5), begin(more=1, block=1), begin(OTHER), begin()]


@pytest.mark.parametrize("cut", range(len(STORY) + 1))
def test_a_snapshot_at_any_entry_and_what_follows_give_the_same_state(cut):
    whole, early = applied(STORY), GroupMachine(GROUP)
    for index, change in enumerate(STORY[:cut], 1):
        early.apply(change, index)
    again = GroupMachine(GROUP)
    again.restore(pb.Snapshot.FromString(shape(early)))
    for index, change in enumerate(STORY[cut:], cut + 1):
        again.apply(change, index)
    assert shape(again) == shape(whole)


@pytest.fixture
async def database(tmp_path):
    opened = await Database.open(tmp_path / "state.db")
    yield opened
    await opened.close()


@pytest.mark.parametrize("step", [1, 3, len(STORY)])
async def test_rows_that_were_written_at_any_entry_and_what_follows_give_the_same_state(database, step):
    """Each time some entries are applied the changed rows are written, the process ends, and another one reads them."""
    machine = GroupMachine(GROUP)
    for first in range(0, len(STORY), step):
        for index, change in enumerate(STORY[first : first + step], first + 1):
            machine.apply(change, index)
        changes = Changes()
        add_rows(changes, GROUP, machine.take_changed_rows(), (first + step, 1))
        await database.flush(changes)
        written = machine
        machine = GroupMachine(GROUP)
        machine.restore(await database.snapshot(GROUP))
        assert shape(machine) == shape(written)
    assert shape(machine) == shape(applied(STORY))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 6)), max_size=40))
def test_no_sequence_belongs_to_two_epochs(asked):
    """Whatever leaders ask for, in whatever order it is committed, and however old what they know is."""
    machine, owners = GroupMachine(GROUP), {}
    for index, (more, number, block) in enumerate(asked, 1):
        before = epoch_of(machine)
        machine.apply(begin(more=number + 1, block=block) if more else begin(), index)
        epoch = epoch_of(machine)
        assert epoch.number == before.number + (not more)
        for owned in range((epoch.first - 1) >> BLOCK_BITS, epoch.block + 1) if epoch.number else ():
            assert owners.setdefault(owned, epoch.number) == epoch.number
        assert epoch.first > before.last or epoch.number == before.number


# --- the registry ---------------------------------------------------------------------------------------------------


def registry():
    machine = MetaMachine()
    info = pb.ClusterInfo(cluster_id=b"c", raft_groups=4)
    machine.apply(pb.MetaChange(cluster_info=info), 1)
    rows = [pb.Channel(name=b"kind%d" % commit, group=1, commit=commit) for commit in range(4)]
    machine.apply(pb.MetaChange(create_channels=pb.CreateChannels(channels=rows)), 2)
    return machine


def kinds(machine):
    return [machine.channels[b"kind%d" % commit].commit for commit in range(4)]


def test_the_registry_says_of_ephemeral_channels_that_they_are_and_of_others_nothing():
    assert REPLICATED < EPHEMERAL < 3
    assert kinds(registry()) == [SYNCED, SYNCED, EPHEMERAL, SYNCED]


def test_what_a_channel_is_outlives_snapshots_and_moves():
    machine = registry()
    uid = machine.channels[b"kind2"].uid
    machine.apply(pb.MetaChange(begin_move=pb.BeginMove(uids=[uid], to=2)), 3)
    assert (machine.by_uid[uid].moving_to, machine.by_uid[uid].commit) == (2, EPHEMERAL)
    machine.apply(pb.MetaChange(end_move=pb.EndMove(move=3, done=True)), 4)
    assert (machine.by_uid[uid].group, machine.by_uid[uid].commit) == (2, EPHEMERAL)
    taken = pb.Snapshot()
    machine.snapshot(taken)
    again = MetaMachine()
    again.restore(pb.Snapshot.FromString(taken.SerializeToString()))
    assert again.by_uid == machine.by_uid


async def test_what_a_channel_is_is_in_its_row_on_the_disk(database):
    machine = registry()
    changes = Changes()
    add_rows(changes, 0, machine.take_changed_rows(), (2, 1))
    await database.flush(changes)
    again = MetaMachine()
    again.restore(await database.snapshot(0))
    assert kinds(again) == kinds(machine)
