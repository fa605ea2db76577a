"""Members of a queue group that never ack: what they got comes to those that do, and they get nothing more."""

import pytest
from stan_protocol.proto import wire_pb2 as wire


class Group:
    """A queue group of one member that acks at once, and *silent* ones that never do; their ack wait is a second."""

    def __init__(self, harness, silent, *, in_flight=1024):
        self.harness = harness
        self.names = [f"silent-{at}" for at in range(silent)]
        self.acks = {
            name: harness.subscribe("foo", name, queue="g", wait=1, in_flight=1024).ack_inbox for name in self.names
        }
        self.live = harness.subscribe("foo", "live", queue="g", wait=1, in_flight=in_flight).ack_inbox
        self.handled, self.redeliveries, self.to_the_same = {}, 0, 0
        self.holder = {}
        self.waited = 0.0

    def look(self):
        """What each member has got since; the live one acks it."""
        for name in (*self.names, "live"):
            got = self.harness.received(name)
            for sequence, count in got:
                self.redeliveries += count > 0
                self.to_the_same += self.holder.get(sequence) == name
                self.holder[sequence] = name
                if name == "live":
                    self.handled[sequence] = self.waited
            if got and name == "live":
                self.harness.ack(self.live, *[sequence for sequence, _ in got])
                return self.look()
        return None

    def run(self, seconds):
        for _ in range(round(seconds * 20)):
            self.harness.pass_time(0.05)
            self.waited += 0.05
            self.look()

    def got(self, name):
        return [sequence for sequence, holder in self.holder.items() if holder == name]


@pytest.mark.parametrize("silent", [1, 4, 12])
def test_what_a_silent_member_got_comes_to_another_one_after_one_ack_wait(harness, silent):
    group = Group(harness, silent)
    harness.publish("foo", *[b"%d" % n for n in range(60)])
    group.look()
    assert all(map(group.got, group.names))
    group.run(3)
    assert set(group.handled) == set(range(1, 61))
    assert group.to_the_same == 0
    assert max(group.handled.values()) <= 1.1
    assert group.redeliveries <= 60


@pytest.mark.parametrize("silent", [1, 4])
def test_a_silent_member_gets_one_new_message_at_a_time_and_only_if_nobody_else_has_room(harness, silent):
    group = Group(harness, silent, in_flight=10)
    harness.publish("foo", *[b"%d" % n for n in range(4)])
    group.look()
    group.run(2)
    group.holder.clear()
    harness.publish("foo", *[b"%d" % n for n in range(10)])
    group.look()
    assert group.got("live") == list(range(5, 15))
    harness.publish("foo", *[b"%d" % n for n in range(10)], *[b"%d" % n for n in range(20)])
    assert len(harness.received("live")) == 10
    assert [len(harness.received(name)) for name in group.names] == [1] * silent


def test_a_member_that_acks_again_gets_its_share_again(harness):
    group = Group(harness, 1)
    harness.publish("foo", b"1", b"2")
    group.look()
    group.run(2)
    (late,) = [sequence for sequence, at in group.handled.items() if at]
    harness.ack(group.acks["silent-0"], late)
    group.holder.clear()
    harness.publish("foo", *[b"%d" % n for n in range(10)])
    group.look()
    assert len(group.got("silent-0")) == len(group.got("live")) == 5


def test_a_member_that_says_that_it_has_failed_is_not_silent(harness):
    acks = {name: harness.subscribe("foo", name, queue="g", wait=1).ack_inbox for name in ("one", "two")}
    harness.publish("foo", b"1")
    (name,) = [name for name in acks if harness.received(name)]
    harness.say(acks[name], 1, wire.NAK)
    harness.pass_time(0.5)
    live = harness.state.live_position()
    assert not any(member.silent for member in live.members)


def test_while_no_member_acks_all_get_messages(harness):
    for name in ("one", "two"):
        harness.subscribe("foo", name, queue="g", wait=1)
    harness.publish("foo", b"1")
    got = []
    for _ in range(5):
        got += [name for name in ("one", "two") if harness.received(name)]
        harness.pass_time(1)
    assert got[0::2] == got[:1] * 3
    assert got[1::2] == got[1:2] * 2
    assert set(got) == {"one", "two"}


def test_the_only_member_gets_all_again_although_it_is_silent(harness):
    harness.subscribe("foo", "only", queue="g", wait=1)
    harness.publish("foo", *[b"%d" % n for n in range(5)])
    assert len(harness.received("only")) == 5
    harness.pass_time(1.1)
    assert harness.received("only") == [(n, 1) for n in range(1, 6)]
