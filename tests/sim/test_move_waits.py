"""How long a publish waits at most for its ack while its channel is moved and a node dies, at each step of the move.

In virtual time: what is waited for are the limits of detection, election and moves, not this machine.
docs/features/moving-channels.md tells the sum.
"""

from functools import partial

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND, GroupId

from stan.core.services.node import META_GROUP
from stan.protocol.entries import Kind
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.broker_state import channel_moves
from tests.sim.clients import Publisher
from tests.sim.cluster_world import ClusterWorld
from tests.sim.move_world import Moved

CHANNEL = "moves"
GROUPS = 3
PACE = 20 * MILLISECOND
KNOWN_S = 9.5  # a leader must have heard publishers for a while before channels go from its group
BOUND_S = 1.5
DOWN = 1500 * MILLISECOND
STEPS = {
    Kind.META: ("begin_move", "end_move"),
    Kind.CHANGE: ("arriving", "depart", "arrived", "departed"),
}
MESSAGES = {Kind.META: pb.MetaChange, Kind.CHANGE: pb.GroupChange}
HURTS = [
    ("target", "arriving"),
    ("target", "depart"),
    ("target", "arrived"),
    ("target", "end_move"),
    ("source", "arriving"),
    ("source", "depart"),
    ("source", "departed"),
    ("meta", "arriving"),
    ("meta", "end_move"),
]


class Steady(Publisher):
    """Publishes one message after the other, and sends none again."""

    def _burst(self):
        if not self.world.quiet:
            self._publish(self.channels[0])
            self.later(PACE, self._burst)


class MovingWorld(Moved, ClusterWorld):
    """One channel, one publisher, no other fault than that of the test."""

    def __init__(self, seed):
        super().__init__(seed, calm=True)
        self.raft_groups, self.limit = GROUPS, 0
        self.source = channel_group(CHANNEL.encode(), GROUPS)
        self.target = GroupId(self.source % GROUPS + 1)
        self.history.group_of[CHANNEL] = self.source
        self.channels = (CHANNEL,)

    def make_clients(self, *_args, **_options):
        publisher = Steady(self, "steady", (CHANNEL,))
        publisher.one_by_one = False
        self.add(publisher)
        self.loop.after(2 * SECOND, publisher.start)

    def move(self):
        leader = self.leader(META_GROUP)
        broker = leader.cluster_node.broker
        info = broker.view.meta.channels[CHANNEL.encode()]
        leader.run(partial(channel_moves(broker).begin, info, self.target, lambda *_told: None))
        leader.run(leader.driver.turns.wake)

    def strike_at(self, victim, step):
        """It dies when it has applied the entry of that step."""
        broker, struck = victim.cluster_node.broker, []
        commit = broker.entries.step_committed

        def committed(group, index, kind, body):
            commit(group, index, kind, body)
            told = MESSAGES[kind].FromString(body) if kind in MESSAGES else None
            if told is not None and step in STEPS[kind] and told.HasField(step) and not struck:
                struck.append(self.loop.now)
                self.loop.after(0, partial(victim.crash, power=False, length=DOWN))

        broker.entries.step_committed = committed
        return struck


def world_of_three():
    return next(world for world in map(MovingWorld, range(50)) if len(world.names) == 3)


@pytest.mark.parametrize(("who", "step"), HURTS)
def test_publishes_wait_for_an_election_at_most_when_a_leader_dies_in_a_move(who, step):
    world = world_of_three()
    world.begin()
    world.run_for(3 + KNOWN_S)
    groups = {"source": world.source, "target": world.target, "meta": META_GROUP}
    struck = world.strike_at(world.leader(groups[who]), step)
    began = world.loop.now
    world.move()
    world.run_for(6)
    assert struck, "it died"
    asked = [one for one in world.history.publishes.values() if one.asked_at > began - SECOND]
    late = [one for one in asked if (one.ok_at or world.loop.now) - one.asked_at > BOUND_S * SECOND]
    assert not late, (
        f"of {len(asked)}, asked {[(one.asked_at - began) / SECOND for one in late]} s after the move began"
    )
    assert world.finish() == []
