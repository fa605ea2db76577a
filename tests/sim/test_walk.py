"""The walk of one publish through a cluster, as docs/architecture tells it: each step is called, in that order."""

import re
import sys
from pathlib import Path

from stan_protocol.scalars import SECOND

from tests.sim.clients import Publisher, Subscriber
from tests.sim.test_cluster_faults import calm_world

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| (\d+) [^|]*\| `([\w/]+\.py)` `(\w+)` \|", re.MULTILINE)
STEPS_MAX = 12
FUNCTIONS_MAX = 22
"""Of the core, from the read to the proposal of the entry."""


def walk_of_a_publish():
    """[(file below stan/, function)] of the steps in the page."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("### 12.1 ")[2].partition("\n### ")[0]
    steps = STEP.findall(section)
    assert [int(number) for number, _, _ in steps] == [*range(1, len(steps) + 1)]
    return [(file, function) for _, file, function in steps]


def quiet_world():
    """Three nodes, led, with a publisher that says nothing by itself and a subscriber that has nothing to read."""
    world = calm_world(lambda world: len(world.names) == 3)
    publisher = Publisher(world, "writer", ("a",), pace=3600 * SECOND)

    def clients(**_choices):
        world.add(publisher)
        world.add(Subscriber(world, "reader", "a", "durable"))
        for client in world.clients.values():
            world.loop.after(0, client.start)

    world.make_clients = clients
    world.begin()
    world.run_for(10)
    assert world.leader(world.history.group_of["a"])
    return world, publisher


def called_until_acknowledged(world, publisher):
    """(file below stan/, function) of each call, in order, from the publish of a message until its ack is there."""
    package, calls, acknowledged = f"{ROOT}/stan/", [], []
    world.acknowledged = acknowledged.append

    def note(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            calls.append((code.co_filename[len(package) :], code.co_name))

    sys.setprofile(note)
    try:
        publisher._publish("a")
        until = world.loop.now + 2 * SECOND
        while not acknowledged and world.loop.now < until:
            world.run_for(0.001)
    finally:
        sys.setprofile(None)
    assert acknowledged
    return calls


def test_one_publish_goes_the_way_that_the_page_tells():
    steps = walk_of_a_publish()
    assert 0 < len(steps) <= STEPS_MAX
    world, publisher = quiet_world()
    left = called_until_acknowledged(world, publisher)
    for number, step in enumerate(steps, 1):
        assert step in left, f"step {number}, {step}, was not called after those before it"
        left = left[left.index(step) + 1 :]


def test_few_functions_of_the_core_lie_between_a_read_and_its_entry():
    calls = called_until_acknowledged(*quiet_world())
    start, end = calls.index(("core/broker/frames.py", "step_publishes")), calls.index(("edge/driver.py", "_propose"))
    passed = {call for call in calls[start:end] if call[0].startswith("core/")}
    assert len(passed) <= FUNCTIONS_MAX, sorted(passed)


def test_a_quiet_cluster_goes_no_part_of_that_way_by_itself():
    """So the calls of the other test are those of its publish."""
    world, publisher = quiet_world()
    publisher._publish = lambda _channel: world.loop.after(SECOND, lambda: world.acknowledged(None))
    idle = {function for _file, function in called_until_acknowledged(world, publisher)}
    assert not idle & {"publishes", "_propose", "append", "on_append_answer"}
