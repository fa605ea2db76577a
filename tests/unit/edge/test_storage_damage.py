"""Damage of the newest entries of a group: a node of a cluster doubts its votes, a server alone does not start without a word."""

import pytest
from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex

from stan.edge.storage.state_loader import StateLoader
from stan.errors import Damage, StartError
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.batches import change
from tests.kit.broker_state import BrokerState
from tests.kit.damage import written
from tests.kit.storage import StorageNode

ONE = GroupId(1)
UID = ChannelUid(7)


def begun(*, alone=False, named=True):
    node = StorageNode(segment_bytes=10**6)
    node.machine_boot, node.alone = "boot 1", alone
    node.boot()
    if alone:
        if named:
            channels = [pb.Channel(name=b"c%d" % uid, group=1) for uid in range(1, 8)]
            change = pb.MetaChange(create_channels=pb.CreateChannels(channels=channels))
            StateLoader(node.storage, node.broker).append(GroupId(0), Kind.META, change.SerializeToString())
    else:
        node.storage.members[ONE].hard_state.save(1, "a")
        node.storage.members[ONE].hard_state.mark_readmitted()
    return node


@pytest.fixture
def node():
    made = begun()
    yield made
    made.medium.close()


@pytest.fixture
def alone():
    made = begun(alone=True)
    yield made
    made.medium.close()


def log_path(node):
    return max(path for path in node.files.paths() if path.startswith("/a/groups/1/") and path.endswith(".log"))


def kill(node):
    """SIGKILL: what was written is there."""
    node.files.open_files.clear()
    node.notes.clear()
    return node


def flip(node):
    data = bytearray(written(node.files.content(log_path(node))))
    data[-1] ^= 1
    node.files.put(log_path(node), bytes(data))


def cut(node, entries=1):
    """The log ends at the border of an entry."""
    data, at, found = written(node.files.content(log_path(node))), 48, []
    while at < len(data):
        found.append(at)
        at += 24 + int.from_bytes(data[at + 4 : at + 8], "little")
    node.files.put(log_path(node), data[: found[-entries]])


def lose_the_file(node):
    path = log_path(node)
    node.files.unlink(path)


HARM = {"flipped": flip, "cut": cut, "removed": lose_the_file}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
@pytest.mark.parametrize("power_lost", [False, True])
def test_node_whose_newest_entries_are_damaged_doubts_its_votes_and_says_so(node, harm, power_lost):
    node.publish(3)
    kill(node)
    harm(node)
    node.machine_boot = "boot 2" if power_lost else "boot 1"
    node.boot()
    state = node.storage.members[ONE].hard_state
    assert state.amnesiac
    assert (state.term, state.voted_for) == (1, "a")
    assert node.storage.is_intact(ONE), "what is left is a beginning: the others add to it"
    (line,) = [line for line in node.notes if line.startswith("ERR")]
    assert "to 3 are lost; this node has no vote in the group until" in line
    assert "/a/groups/1" in line
    assert not node.storage.members[GroupId(2)].hard_state.amnesiac or node.storage.logs[GroupId(2)].last_index == 0

    state.mark_readmitted()
    node.apply(node.log.last_index)
    node.publish(3)
    node.flush()
    assert not kill(node).boot().storage.members[ONE].hard_state.amnesiac
    assert node.notes == []


def test_node_whose_log_ends_before_what_it_knows_to_be_committed_doubts_its_votes(node):
    node.publish(3)
    node.storage.members[ONE].hard_state.hint(3)
    node.storage.members[ONE].hard_state.write_hint()
    kill(node)
    cut(node)
    node.files.unlink("/a/groups/1/durable")
    node.boot()
    assert node.storage.members[ONE].hard_state.amnesiac
    assert [line for line in node.notes if "the log ends with entry 2, 3 was committed here" in line]


def test_committed_entries_that_a_loss_of_power_took_are_no_damage(node):
    """A commit index is heard of before the own log is synced."""
    node.publish(2)
    node.log.append([change(3)])
    node.storage.members[ONE].hard_state.hint(3)
    node.storage.members[ONE].hard_state.write_hint()
    kill(node)
    cut(node)
    node.machine_boot = "boot 2"
    for _ in range(2):  # nor does the next start miss them, which is one after a kill
        node.boot()
        assert node.log.last_index == 2
        assert not node.storage.members[ONE].hard_state.amnesiac
        assert node.notes == []
        kill(node)


def test_start_that_is_cut_short_after_a_loss_of_power_does_not_make_the_next_one_forget_it(node):
    node.publish(2)
    node.log.append([change(3, b"x" * 90)])
    kill(node)
    data = written(node.files.content(log_path(node)))
    node.files.put(log_path(node), data[:-50] + bytes(50))
    node.machine_boot = "boot 2"
    node.files.fail("fdatasync", 4, 5)
    with pytest.raises(StartError):
        node.boot()
    node.files.faults.clear()
    kill(node).boot()
    assert node.storage.unconfirmed
    assert not node.storage.members[ONE].hard_state.amnesiac
    assert not kill(node).boot().storage.unconfirmed


# --- a server alone ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
@pytest.mark.parametrize("flushed", [False, True])
def test_server_alone_refuses_to_start_and_changes_nothing(alone, harm, flushed):
    alone.publish(3)
    if flushed:
        alone.flush()
    kill(alone)
    harm(alone)
    before = {path: alone.files.content(path) for path in alone.files.paths() if path.endswith((".log", "durable"))}
    for _ in range(2):
        with pytest.raises(
            StartError, match="to 3 are lost; nothing was changed: restore the directory from a backup, or start once"
        ):
            alone.boot()
        kill(alone)
    assert {path: alone.files.content(path) for path in before} == before


@pytest.mark.parametrize("harm", [flip, cut])
def test_server_alone_goes_on_without_what_is_lost_if_it_is_told_to(alone, harm):
    alone.publish(3)
    kill(alone)
    whole = written(alone.files.content(log_path(alone)))
    harm(alone)
    damaged = alone.files.content(log_path(alone))
    alone.accepts_loss = True
    alone.boot()
    assert [base for base, *_ in alone.messages()] == [1, 3]
    assert alone.storage.unconfirmed, "more was sent than the log tells"
    aside = [path for path in alone.files.paths() if path.startswith("/a/lost+found/")]
    assert [alone.files.content(path) for path in aside] == ([damaged] if len(damaged) == len(whole) else [])
    assert any("sequences of messages that are lost may be given out again" in line for line in alone.notes)
    alone.accepts_loss = False
    assert alone.machine_boot
    kill(alone).boot()
    assert alone.notes == []


def test_positions_that_are_ahead_of_what_is_left_are_kept_and_their_sequences_stay_unused(alone):
    """A channel that counted anew from below a durable would hide messages from it."""
    alone.publish(2)
    alone.subscribe("d")
    alone.publish(3)
    alone.change(progress=[pb.Progress(cursor_id=BrokerState(alone.broker).position().cursor_id, last_sent=9)])
    alone.flush()
    kill(alone)
    cut(alone, 3)
    alone.accepts_loss = True
    alone.boot()
    index = alone.log.channel(7)
    assert index.last_sequence == 9
    assert [base for base, *_ in alone.messages()] == [1, 3, 5]
    alone.publish(1)
    assert [base for base, *_ in alone.messages()] == [1, 3, 5, 10]
    before = alone.messages()
    alone.flush()
    alone.accepts_loss = False
    kill(alone).boot()
    assert alone.messages() == before


def test_server_alone_whose_state_is_ahead_of_its_log_is_told_how_to_go_on(alone):
    alone.publish(3)
    alone.flush()
    kill(alone)
    cut(alone)
    alone.files.unlink("/a/groups/1/durable")
    with pytest.raises(Damage, match=r"the state stands at entry 3.*start once with --file_truncate_bad_eof"):
        alone.boot()


def test_messages_of_a_channel_whose_name_is_lost_stop_the_start():
    """Its number would be given to the next channel, which would have its messages."""
    alone = begun(alone=True, named=False)
    alone.publish(1)
    kill(alone)
    alone.accepts_loss = True
    with pytest.raises(Damage, match="has messages of channel number 7, of which the metadata has lost its name"):
        alone.boot()
    alone.medium.close()


# --- what readers are told of ------------------------------------------------------------------------------------------------


def lost_until(node):
    """The mark of the channel, and its first sequence."""
    view = node.broker.view
    return view.removed_until(ONE, UID).lost, view.groups[ONE].first_sequences().get(UID, 0)


def test_messages_that_a_position_knows_are_lost_for_readers(alone):
    alone.publish(2)
    alone.subscribe("d")
    alone.publish(3)
    alone.change(progress=[pb.Progress(cursor_id=BrokerState(alone.broker).position().cursor_id, last_sent=9)])
    alone.flush()
    kill(alone)
    cut(alone, 3)
    alone.accepts_loss = True
    alone.boot()
    assert lost_until(alone) == (9, 0)
    assert any("messages 7 to 9 of b'c7' are lost" in line for line in alone.notes)
    alone.flush()
    alone.accepts_loss = False
    kill(alone).boot()
    assert lost_until(alone) == (9, 0)


def test_messages_that_a_consumer_group_has_behind_it_are_not_given_out_again(alone):
    alone.publish(3)
    alone.change(bookmark=pb.Bookmark(uid=7, name=b"crew", sequence=7, generation=2))
    alone.change(bookmark=pb.Bookmark(uid=7, name=b"report", sequence=1 << 40))
    alone.flush()
    kill(alone)
    cut(alone, 3)
    alone.accepts_loss = True
    alone.boot()
    assert alone.log.channel(7).last_sequence == 6
    assert lost_until(alone) == (6, 0)


@pytest.mark.parametrize(("trimmed", "mark"), [(0, 4), (2, 4), (5, 4)])
def test_messages_amid_a_channel_are_lost_for_readers(trimmed, mark):
    """Of three segments, each with an entry, the second one is damaged."""
    node = begun(alone=True)
    for _ in range(3):
        node.publish(1)
        node.log.skip(RaftIndex(node.log.last_index + 1))
    if trimmed:
        node.trim(trimmed)
    node.flush()
    kill(node)
    path = sorted(path for path in node.files.paths() if path.startswith("/a/groups/1/") and path.endswith(".log"))[1]
    data = bytearray(written(node.files.content(path)))
    data[-1] ^= 1
    node.files.put(path, bytes(data))
    node.files.unlink(path.replace(".log", ".idx"))  # the file is read at a start only without one
    node.accepts_loss = True
    node.boot()
    assert lost_until(node) == (mark, trimmed)
    assert any("messages up to 4 of b'c7' are lost" in line for line in node.notes) == (trimmed <= mark)
    node.medium.close()
