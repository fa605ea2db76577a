"""State and messages of a group from another node: what becomes of them when they are there."""

from types import SimpleNamespace

import pytest

from stan.edge.cluster.group_sync import GroupSync
from stan.errors import Damage, NotNow


class Rig:
    """A node that has received all of group 1."""

    def __init__(self):
        self.notes, self.crashes, self.replacing = [], [], []
        environment = SimpleNamespace(
            note=lambda level, _text: self.notes.append(level),
            crashed=self.crashes.append,
            runtime=SimpleNamespace(now=lambda: 0, work=lambda _call, done: done(None)),
        )
        self.member = SimpleNamespace(
            environment=environment,
            storage=SimpleNamespace(node_id="n1"),
            broker=SimpleNamespace(view=SimpleNamespace(subjects=SimpleNamespace(node="node"))),
            gateway=SimpleNamespace(subscribe=lambda _subject, _heard: None, complain=environment.note),
            copies=SimpleNamespace(replace=lambda number, done: self.replacing.append((number, done))),
            within=lambda _number, call, *args: call(*args),
        )
        self.group_sync = GroupSync(self.member)
        receiver = SimpleNamespace(group=1, finish=lambda: None)
        self.group_sync._receiver = receiver
        self.group_sync._verified(receiver, None)
        ((_, self.done),) = self.replacing


def test_a_group_that_is_in_place_is_told_of():
    rig = Rig()
    rig.done(None)
    assert (rig.notes, rig.crashes) == (["INF"], [])
    assert not rig.group_sync.receives(1)


def test_a_group_that_cannot_take_it_now_goes_on_as_it_was():
    rig = Rig()
    rig.done(NotNow("the log here holds more"))
    assert (rig.notes, rig.crashes) == (["WRN"], [])


@pytest.mark.parametrize("problem", [OSError("broken"), Damage("not what was written")])
def test_a_group_that_is_neither_what_it_was_nor_what_came_is_not_received_again(problem):
    rig = Rig()
    rig.done(problem)
    assert rig.crashes == []
    node = rig.member
    node.storage.members = {1: SimpleNamespace(intact=False)}
    node.groups = {1: SimpleNamespace(followers_needing_snapshot=list, failed="its disk")}
    heard = {"n2": SimpleNamespace(hello=SimpleNamespace(led=[1]))}
    node.membership = SimpleNamespace(hellos=SimpleNamespace(nodes=heard))
    rig.group_sync.tick(1 << 40)
    assert not rig.group_sync.receives(1)
