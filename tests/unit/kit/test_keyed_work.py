"""What `tests.kit.key_order` complains of, and what it lets pass."""

import random
from types import SimpleNamespace

from tests.kit.key_order import KeyedWork


class Group:
    """Members whose work is done when the test says so."""

    def __init__(self):
        self.waiting = []
        self.dice = SimpleNamespace(random=lambda: 1.0)
        self.work = KeyedWork(self.dice, lambda _, *call: self.waiting.append(call), lambda message: message.sequence)
        self.handle = {name: self.work.joins(name) for name in ("one", "other")}

    def comes(self, sequence, member, key=b"k", *, failed=False):
        self.dice.random = lambda: 0.0 if failed else 1.0
        message = SimpleNamespace(sequence=sequence, key=key, ack=lambda: None, nak=lambda: None)
        self.handle[member](message)

    def works(self):
        for done, *told in self.waiting:
            done(*told)
        self.waiting.clear()

    @property
    def complaints(self):
        return list(self.work.complaints())


def test_one_message_of_a_key_after_the_other():
    group = Group()
    for sequence, member in ((1, "one"), (2, "other"), (3, "one")):
        group.comes(sequence, member)
        group.works()
    assert group.complaints == []
    assert group.work.acked == {1, 2, 3}


def test_a_message_before_the_one_before_it_is_done():
    group = Group()
    group.comes(1, "one")
    group.comes(2, "one")
    assert group.complaints == ["2 of b'k' came before [1] was done, or after 1"]


def test_a_message_behind_a_later_one():
    group = Group()
    for sequence in (2, 1):
        group.comes(sequence, "one")
        group.works()
    assert group.complaints == ["1 of b'k' came before [] was done, or after 2"]


def test_two_members_at_work_on_a_key():
    group = Group()
    group.comes(1, "one", failed=True)
    group.comes(1, "one")
    group.comes(2, "other", failed=True)
    assert "2 of b'k' came to other while one is at work on 1" in group.complaints


def test_keys_do_not_wait_for_each_other_and_what_failed_or_whose_member_died_comes_again():
    group = Group()
    group.comes(1, "one")
    group.comes(2, "other", b"another")
    group.works()
    group.comes(3, "one", failed=True)
    group.comes(3, "other")
    group.work.dies("other")
    group.works()
    group.comes(3, "one")
    group.works()
    assert group.complaints == []
    assert group.work.acked == {1, 2, 3}


def test_what_was_done_may_come_again():
    group = Group()
    group.comes(1, "one")
    group.works()
    group.comes(2, "one")
    group.comes(1, "other")
    group.works()
    assert group.complaints == []


def test_the_order_may_be_another_one_than_that_of_the_names():
    group = Group()
    for sequence in (2, 1):
        group.comes(sequence, "one")
        group.works()
    assert list(group.work.complaints(lambda place: -place)) == []


def test_some_work_fails():
    work = KeyedWork(random.Random(1), lambda *_: None, lambda message: message.sequence)
    naks = []
    handle = work.joins("one")
    for sequence in range(200):
        handle(SimpleNamespace(sequence=sequence, key=b"%d" % sequence, nak=lambda: naks.append(1)))
    assert 0 < len(naks) < 30
