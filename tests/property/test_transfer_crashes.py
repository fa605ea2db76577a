"""Power goes at every single call to the disk while a group is received and installed: the old state or the new one is found."""

import pytest
from stan_protocol.scalars import GroupId

from stan.testing.loop import run_now
from tests.kit.batches import batch, entry
from tests.kit.files import PowerCut
from tests.kit.storage import StorageNode, carry

ONE = GroupId(1)
CALLS_MAX = 2000


def sender():
    """A node with holes in its log and a state; what every run receives."""
    node = StorageNode("a").boot()
    node.subscribe("d")
    node.publish(12)
    node.write([entry(node.log.last_index + 1, batch(9, 1, 1, size=10))])
    node.publish(12)
    node.trim(40)
    node.publish(4)
    for _ in range(4):
        node.flush()
        node.release()
        node.log.commit(node.log.last_index)
    return node


def empty(node, source):
    """Nothing was there before."""


def lagging(node, source):
    """The first entries were there, and rows of them."""
    node.subscribe("old")
    node.write([one for one in source.old if one.index > 1])
    node.flush()


def damaged(node, source):
    """The same, with entries lost."""
    lagging(node, source)
    node.storage.files.raft.mark_damaged(ONE)
    node.storage.members[1].intact = False


def ahead(node, source):
    """All of it is there, and entries that nobody knows to be committed."""
    node.receive(source.sender(), session=9)
    node.flush()
    last = node.log.last_index
    node.log.append([entry(last + 1, batch(7, 57, 2), term=2), entry(last + 2, term=2)])
    node.log.sync()


def look(node):
    """Everything that tells one state from another."""
    return (
        node.log.first_index,
        node.entries(),
        node.storage.applied[1],
        node.state(),
        node.messages(),
        node.storage.is_intact(1),
    )


@pytest.fixture(scope="module")
def source():
    node = sender()
    whole = StorageNode("c").boot()
    whole.subscribe("d")
    whole.publish(5)
    node.old = whole.entries()
    yield node
    node.medium.close()
    whole.medium.close()


def transfer(node, source):
    receiver = node.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 700
    sending = source.sender()
    try:
        carry(receiver, sending)
    finally:
        sending.close()
    receiver.finish()
    node.install()
    node.flush()


def prepared(before, source):
    node = StorageNode("b").boot()
    before(node, source)
    node.storage.members[ONE].hard_state.save(3, "a")
    return node


@pytest.mark.parametrize("before", [empty, lagging, damaged, ahead])
def test_power_may_go_at_any_call(before, source):
    node = prepared(before, source)
    old = look(node)
    transfer(node, source)
    new = look(node)
    assert new[2] == source.storage.applied[1]
    assert new[3] == source.state()
    assert new[5]
    node.medium.close()
    seen = []
    for calls in range(CALLS_MAX):
        node = prepared(before, source)
        node.files.cut_power_after(calls)
        try:
            transfer(node, source)
        except PowerCut:
            node.power_cut(calls).boot()
        else:
            node.files.cut_at = None
            node.medium.close()
            break
        found = look(node)
        if found[:5] == new[:5] and not found[5]:
            found = new  # it has everything and does not know it yet
        assert found in (old, new), calls
        assert node.storage.members[ONE].hard_state.term == 3
        left = [path for path in node.files.paths() if ".incoming" in path or ".ready" in path or ".old" in path]
        assert left == []
        assert node.storage.is_intact(2)
        seen.append(found == new)

        transfer(node, source)  # and from there it can be done again
        assert look(node) == new
        node.flush()
        rows = run_now(node.medium.open().snapshot(1))
        assert rows == source.state()
        node.medium.close()
    if before is not ahead:
        assert {True, False} == set(seen)
    assert len(seen) > 30


def test_power_may_go_at_any_call_of_the_sender(source):
    old = look(source)
    for calls in range(CALLS_MAX):
        node = StorageNode("b").boot()
        source.files.cut_power_after(calls)
        try:
            transfer(node, source)
        except PowerCut:
            source.power_cut(calls).boot()
            assert look(source) == old
            assert not [path for path in source.files.paths() if "outgoing" in path]
        else:
            assert calls > 10
            source.files.cut_at = None
            return
        finally:
            node.medium.close()
    raise AssertionError("it never ended")
