"""What was deleted one by one, beside a set with every sequence; as rows it is the same again."""

from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.state.group import GroupMachine
from stan.core.state.tombstones import Tombstones, behind, below_newest, deleted_from
from stan.protocol.proto import entries_pb2 as pb

UID = ChannelUid(7)
LAST = 40

runs = st.tuples(st.integers(1, LAST), st.integers(0, 6)).map(lambda run: (run[0], min(LAST, run[0] + run[1])))
steps = st.lists(st.one_of(runs, st.integers(1, LAST + 1)), max_size=40)


def apply(machine, model, first, step):
    """Delete a run, or purge below a sequence; returns the oldest sequence that is left."""
    if isinstance(step, tuple):
        machine.apply(pb.GroupChange(removal=pb.Removal(uid=UID, deleted=step)), 1)
        model.update(range(step[0], step[1] + 1))
    else:
        machine.apply(pb.GroupChange(removal=pb.Removal(uid=UID, first_sequence=step)), 1)
        first = max(first, step)
    while first in model:
        first += 1
    model.difference_update(range(first))
    return first


@given(steps, st.integers(1, LAST), st.integers(0, LAST))
def test_runs_are_those_of_the_set(changes, sequence, number):
    machine, model, first = GroupMachine(GroupId(1)), set(), 1
    machine.trim(UID, 1)
    for step in changes:
        first = apply(machine, model, first, step)
        assert machine.channel(UID).first_sequence == first
    deleted = machine.tombstones.by_channel.get(UID)
    assert {at for at in range(1, LAST + 1) if at in (deleted or ())} == model
    assert (deleted is None) == (not model)

    left = [at for at in range(1, LAST + 1) if at not in model]
    assert behind(deleted, sequence) == next(at for at in range(sequence, LAST + 2) if at not in model)
    assert deleted_from(deleted, sequence, LAST) == len([at for at in model if at >= sequence])
    above = below_newest(deleted, LAST, number)
    kept = [at for at in left if at > above]
    assert len(kept) == min(number, len(left))
    assert above == 0 or number == 0 or above + 1 in left

    again = Tombstones()
    for key in machine.tombstones.keys():  # noqa: SIM118 - not a mapping
        again.load(key, machine.tombstones.row(key) or b"")
    assert {uid: of.flat() for uid, of in again.by_channel.items()} == ({UID: deleted.flat()} if deleted else {})


@given(steps)
def test_dirty_rows_are_enough(changes):
    """Rows that are written whenever they are dirty give the state after any number of changes."""
    machine, model, first, rows = GroupMachine(GroupId(1)), set(), 1, {}
    machine.trim(UID, 1)
    for step in changes:
        first = apply(machine, model, first, step)
        for key in machine.tombstones.dirty:
            row = machine.tombstones.row(key)
            rows.pop(key, None) if row is None else rows.__setitem__(key, row)
        machine.tombstones.dirty.clear()
    again = Tombstones()
    for key, row in rows.items():
        again.load(key, row)
    assert {at for of in again.by_channel.values() for run in of for at in range(run.first, run.last + 1)} == model
