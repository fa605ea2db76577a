"""Runs that relocate stored messages: what fails in one, and when it ends."""

import pytest
from stan_protocol.refusals import CHANNEL_MOVING
from stan_protocol.scalars import SECOND

from stan.core.features.dead_letters.redriving import Redriving
from stan.core.publishing.relocating import StepError
from tests.kit.core_harness import Node
from tests.kit.everywhere import MANY, Everywhere

GROUP = 1
STEPS = {
    "a channel is opened": lambda part: part.open(b"sick"),
    "messages are read": lambda part: part.read(1, ((1, 1),)),
    "a pause is over": lambda part: part.pause(SECOND),
}


def broken(*_arguments):
    raise RuntimeError("what never happens has happened")


@pytest.fixture
def node():
    node = Everywhere(config=MANY)
    node.lead(0, 1, 2)
    node.connect("me", conn_id="conn-me")
    node.feed_channel("sick", GROUP)
    node.feed_channel("well", 2)
    node.publish("sick", b"1")
    node.faults = {}
    return node


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_fails_behind_a_step_freezes_its_group_alone(node, step):
    part = node.leader_part(Redriving, GROUP)

    def steps():
        yield from part.pause(1)
        yield from STEPS[step](part)
        broken()

    part.begin(step, steps())
    node.pass_time(2)
    assert node.faults.keys() == {GROUP}
    assert node.publish("well", b"1") == [""]


def test_a_step_that_is_refused_raises_in_the_run(node):
    part, errors = node.leader_part(Redriving, GROUP), []
    node.hold_channel(b"sick")

    def steps():
        try:
            yield from part.open(b"sick")
        except StepError as error:
            errors.append((str(error), error.retry))

    part.begin("key", steps())
    assert errors == [(CHANNEL_MOVING, True)]
    assert not part.running


def test_a_run_is_dropped_with_the_leadership():
    node = Node()
    node.lead()
    part, done = node.leader_part(Redriving), []

    def steps():
        yield from part.pause(SECOND)
        done.append("gone on")

    part.begin("key", steps())
    node.follow()
    node.lead()
    node.pass_time(2)
    assert done == []
