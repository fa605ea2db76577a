"""Calm worlds, in which no node fails but those that a test chooses: what they promise beyond other runs."""

from stan_protocol.scalars import MILLISECOND, SECOND

from tests.kit.broker_state import BrokerState
from tests.sim.growth_worlds import GrowthWorld
from tests.sim.parted_worlds import ClusterDoubled, ClusterMade
from tests.sim.removal_worlds import ClusterRemovals

AT_ONCE = 100 * MILLISECOND


def test_what_comes_while_a_channel_with_parts_is_made_is_answered_at_once_when_it_is_published_again():
    """Whoever leads a part may not know of it yet, when who was asked for the whole has just learned of its parts."""
    repeated = []
    for seed in range(6):
        world = ClusterMade(seed)
        assert world.run() == []
        repeated += [both for client in world.clients.values() for both in getattr(client, "repeated", ())]

    assert repeated, "some had no answer"
    assert [again for _, again in repeated if not 0 < again.ok_at - again.asked_at < AT_ONCE] == []


def test_while_no_node_fails_each_publish_is_answered_though_nodes_learn_of_a_doubling_at_different_times():
    """Who leads the old part leaves to the leader of the new one what that leaves to it, as it divides by the old number yet."""
    late = 0
    for seed in (1, 3, 5, 6, 7):
        world = ClusterDoubled(seed, calm=True)
        assert world.run() == []
        late += sum(one.ok_at - one.asked_at > SECOND for one in world.history.publishes.values())

    assert late, "some came in the moment of a doubling"


def test_a_pool_that_has_to_wait_for_a_node_that_is_away_grows_once_it_is_back(monkeypatch):
    """Groups that nobody could make yet need no leader meanwhile."""
    world = GrowthWorld(0, calm=True)
    with monkeypatch.context() as patch:
        patch.setattr(world, "_want", lambda: None)
        world.begin()
    world.run_for(2)
    away = world.nodes["n1"]
    away.kept_down = True
    away.crash(power=False)
    world.run_for(5)
    world._want()
    world.run_for(5)

    assert world.leader(0).broker.view.pool == world.raft_groups
    assert world.finish(away) == []
    assert world.growths == 1


def test_what_was_restored_is_looked_up_although_its_group_is_just_handed_over():
    world = next(one for one in (ClusterRemovals(seed, calm=True) for seed in range(50)) if len(one.names) == 3)
    world.begin()
    world.run_for(5)
    group = world.history.group_of["a"]
    world.leader(group).crash(power=False)
    assert world.leader(group) is None
    _, broker = world.look_up(b"a")
    assert BrokerState(broker).sequences(b"a")
    assert world.look_up(b"never made") is None
    assert world.problems == ["%.4f never made is not there" % (world.loop.now / SECOND)]
    assert world.finish()[1:] == []
