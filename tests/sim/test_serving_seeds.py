"""Simulated clusters in which other nodes than the leaders serve plain subscriptions: no gap, and each repeat is explained."""

from stan import limits
from stan.core.clients.serving_leader import ServingLeader
from stan.core.clients.serving_node import ServingNode
from stan.core.context import ServingState
from stan.core.leader.dispatch import Dispatch
from tests.sim.serving_world import ReplicaPushWorld
from tests.sim.worlds import found_out

SEEDS = 6


def test_subscriptions_are_served_by_other_nodes_over_all_faults():
    given = taken_back = 0
    for seed in range(SEEDS):
        world = ReplicaPushWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world replica-push --seed {seed}"
        given, taken_back = given + len(world.given), taken_back + world.taken_back

    assert given > SEEDS
    assert taken_back


def test_a_leader_that_takes_back_and_does_not_flag_is_found_out(monkeypatch):
    serve = Dispatch.serve

    def certain(self, cursor, now, wall, *, unconfirmed):
        serve(self, cursor, now, wall, unconfirmed=False)

    monkeypatch.setattr(Dispatch, "serve", certain)

    assert any("came again unflagged" in text for seed in range(20) for text in found_out(ReplicaPushWorld, seed))


def test_a_leader_that_waits_for_no_lease_is_found_out(monkeypatch):
    monkeypatch.setattr(limits, "SERVING_TAKEN_BACK", 1)
    monkeypatch.setattr(ServingState, "lapsed", lambda _self, _groups, _now: set())
    monkeypatch.setattr(limits, "SERVING_LEASE", 1 << 60)

    assert any(found_out(ReplicaPushWorld, seed) for seed in range(20))


def test_a_node_that_serves_what_an_earlier_life_was_given_is_found_out(monkeypatch):
    applied = ServingNode.applied

    def forgetful(self, number, cursors):
        for cursor in cursors:
            member = cursor.members[0]
            member.served = member.served._replace(instance=self.nodes.heard.instance())
        applied(self, number, cursors)

    monkeypatch.setattr(ServingNode, "applied", forgetful)

    assert any(found_out(ReplicaPushWorld, seed) for seed in range(6, 26))


def test_a_leader_that_never_takes_back_is_found_out(monkeypatch):
    monkeypatch.setattr(ServingLeader, "_take_back", lambda *_args: None)

    assert any(
        "no progress" in text or "never delivered" in text
        for seed in range(5)
        for text in found_out(ReplicaPushWorld, seed)
    )
