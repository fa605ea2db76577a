"""What fails in a group ends there; and whoever waits for a channel to be opened is answered."""

from dataclasses import replace

import pytest
from stan_protocol.patterns import ChannelLimits
from stan_protocol.refusals import CHANNEL_MOVING
from stan_protocol.scalars import SECOND

from stan.config import StoreLimits
from stan.core.base.timers import Timers
from stan.core.features.queries.long_poll import LongPoll
from stan.core.services.leading import LED_ELSEWHERE
from tests.kit.core_harness import Node, pub_frame
from tests.kit.everywhere import MANY, Everywhere

PREFIX = "_STAN.x.test-cluster.admin"


def broken(*_arguments, **_more):
    raise RuntimeError("what never happens has happened")


@pytest.fixture
def node():
    node = Everywhere(
        config=replace(MANY, limits=StoreLimits(default=ChannelLimits(age_ns=SECOND, inactivity_ns=SECOND)))
    )
    node.lead(0, 1, 2)
    node.connect("me", conn_id="conn-me")
    node.feed_channel("sick", 1)
    node.feed_channel("well", 2)
    node.faults = {}
    return node


def test_a_replay_that_fails_leaves_the_other_groups_their_requests(node, monkeypatch):
    monkeypatch.setattr(node.broker.parts.filters, "split_replayed", broken)
    node.follow(1)
    node.hears(pub_frame("sick", "guid"))
    node.lead(1)
    monkeypatch.undo()
    assert node.faults.keys() == {1}
    assert node.connect("other").error == b""
    assert node.subscribe("well", client_id="other").error == b""
    assert node.publish("well", b"1") == [""]


def test_a_timer_that_fails_is_its_groups_fault():
    timers, called, failed = Timers(), [], []
    timers.at(1, broken, 7)
    timers.of(5).at(2, broken)
    timers.at(3, called.append, 7)
    timers.run(3, lambda group, _error: failed.append(group))
    assert (failed, called) == ([7, 5], [3])


@pytest.mark.parametrize("name", ["_idle", "_expire"])
def test_a_channel_whose_timer_fails_freezes_its_group_and_not_the_metadata(node, monkeypatch, name):
    channels = node.broker.parts.channels
    part = channels.retention if name == "_expire" else channels.removal
    call = getattr(part, name)

    def fails(channel, *more):
        return broken() if channel.info.group == 1 else call(channel, *more)

    monkeypatch.setattr(part, name, fails)
    node.feed_channel("sick.too", 1)
    node.publish("sick", b"1")
    node.publish("well", b"1")
    node.pass_time(3)
    assert node.faults.keys() == {1}
    assert node.connect("other").error == b""


def test_a_long_poll_that_fails_at_a_new_channel_freezes_its_group_and_not_the_metadata(node, monkeypatch):
    monkeypatch.setattr(LongPoll, "registered", broken)
    node.feed_channel("sick.too", 1)
    monkeypatch.undo()
    node.turn()
    assert node.faults.keys() == {1}
    assert node.connect("other").error == b""


def opened(channels, *arguments):
    answers = []
    channels.openings.open(
        *arguments[:1], lambda channel, error: answers.append((channel is not None, error)), *arguments[1:]
    )
    return answers


def test_who_opens_a_channel_that_is_being_moved_is_answered(node):
    node.hold_channel(b"sick")
    channels = node.broker.parts.channels
    assert opened(channels, b"sick", 1) == [(False, CHANNEL_MOVING)]
    assert opened(channels, b"sick") == [(False, LED_ELSEWHERE)]


def test_who_waits_for_a_channel_to_be_made_is_answered_when_its_group_is_led_no_more():
    node = Node()
    node.lead()
    answers = opened(node.broker.parts.channels, b"new")
    assert answers == []
    node.follow()
    assert answers == [(False, LED_ELSEWHERE)]
