"""Nodes that are stopped at the worst moment: amid a turn, and between an answer and the turn that acts on it."""

from types import SimpleNamespace

import pytest
from stan_protocol.scalars import SECOND

from stan.core.base.ready import Delivery, LeaseAnswer
from stan.protocol.kernel import server as kernel
from stan.testing.loop import Loop
from tests.sim.pauses import Pauses
from tests.sim.test_cluster_faults import group_with_messages, peaceful

ANSWER = LeaseAnswer(b"PUB _INBOX.asker 1\r\na\r\n", ())


class StoppedInTurn:
    """The leader's clock jumps while a turn runs that has something to say which only a leader may say."""

    def __init__(self, world, monkeypatch, at):
        self.world, self.number = world, group_with_messages(world)
        self.node = node = world.leader(self.number)
        self.at, self.sends, self.written = at, None, []
        ready, write, turn, frames = node.broker.ready, node.port.write, node.driver.turns.turn, kernel.frames

        def ready_and_stop(*arguments):
            made = ready(*arguments)
            if self.sends is None and any(isinstance(send, Delivery) for send in made.sends):
                made.sends.insert(0, ANSWER._replace(groups=(self.number,)))
                self.sends = list(made.sends)
                if at == "before it is rendered":
                    self.stop()
            return made

        def frames_and_stop(*arguments):
            rendered = frames(*arguments)
            if self.sends is not None and not self.written and self.at == "when it is rendered":
                self.stop()
                self.at = "stopped"
            return rendered

        def write_and_note(data):
            if self.sends is not None and self.written is not None:
                self.written.append(bytes(data))
            return write(data)

        def whole_turn():
            turn()
            if self.sends is not None and self.said is None:
                self.said, self.written = b"".join(self.written), None

        self.said = None
        node.broker.ready, node.port.write, node.driver.turns.turn = ready_and_stop, write_and_note, whole_turn
        monkeypatch.setattr(kernel, "frames", frames_and_stop)

    def stop(self):
        self.node.clock_starts += 2 * SECOND


@pytest.mark.parametrize("at", ["before it is rendered", "when it is rendered"])
def test_a_leader_that_was_stopped_amid_a_turn_says_nothing_of_the_past(monkeypatch, at):
    world = peaceful(lambda world: len(world.names) == 3 and world.raft_groups == 1)
    stopped = StoppedInTurn(world, monkeypatch, at)
    world.history.cause(world.loop.now, world.loop.now + 20 * SECOND, "stopped amid a turn")
    for _ in range(100):
        world.run_for(0.2)
        if stopped.said is not None:
            break
    inboxes = [send.inbox for send in stopped.sends if isinstance(send, Delivery) and send.group == stopped.number]
    assert inboxes
    assert ANSWER.data not in stopped.said
    assert not [inbox for inbox in inboxes if b"PUB %b " % inbox in stopped.said]
    assert world.finish() == [], "what did not leave came later"


def test_what_came_first_is_done_first_by_a_node_that_is_stopped_again_while_it_catches_up():
    loop, done = Loop(1), []
    node = SimpleNamespace(world=SimpleNamespace(loop=loop), alive=True, lives=1)
    pauses = Pauses(node)

    def run(call, *args):
        if not pauses.put_off(call, args):
            call(*args)

    def hear(number):
        if number == 2:
            pauses.arm(5)
            pauses.amid()
        done.append(number)

    node.run = run
    loop.after(1, pauses.begin, 5)
    for number in range(1, 10):
        loop.after(1 + number, run, hear, number)  # the second one stops it, and four more come meanwhile
    loop.run_until(loop.now + 20)
    assert done == list(range(1, 10))
