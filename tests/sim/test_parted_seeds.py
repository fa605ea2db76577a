"""Simulated channels with parts, alone and in a cluster: each message is stored once, in the part of its key, over crashes, cuts
and changes of leaders."""

import os

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.leader.publish_replay import ReplayFilter
from stan.core.publishing.part_doubling import PartDoubling
from stan.core.publishing.part_routing import PartRouting
from tests.sim.parted_worlds import ClusterDoubled, ClusterMade, ClusterParted, NodeDoubled, NodeParted

SEEDS = int(os.environ.get("STAN_PARTED_SEEDS", "3"))
AT_ONCE = 100 * MILLISECOND


@pytest.mark.parametrize(("kind", "name"), [(NodeParted, "partitioned"), (ClusterParted, "cluster-partitioned")])
def test_each_message_is_in_the_part_of_its_key(kind, name):
    stored = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        stored += sum(len(read) > 5 for read in world.history.final.values())

    assert stored > SEEDS, "several parts have messages"


def test_what_comes_while_a_channel_with_parts_is_made_is_answered_at_once_when_it_is_published_again():
    """Whoever leads a part may not know of it yet, when who was asked for the whole has just learned of its parts."""
    repeated = []
    for seed in range(3 + SEEDS):
        world = ClusterMade(seed)
        assert world.run() == []
        repeated += [both for client in world.clients.values() for both in getattr(client, "repeated", ())]

    assert repeated, "some had no answer"
    assert [again for _, again in repeated if not 0 < again.ok_at - again.asked_at < AT_ONCE] == []


def test_a_broker_that_divides_by_chance_is_found_out(monkeypatch):
    parts_of = PartRouting.parts_of

    def by_chance(routing, whole, batch):
        if batch.channel != whole.name:
            return parts_of(routing, whole, batch)
        return [(batch.count + at) % whole.parts for at in range(batch.count)]

    monkeypatch.setattr(PartRouting, "parts_of", by_chance)

    assert any("check" in text for seed in range(2) for text in NodeParted(seed).run())


def test_nodes_that_divide_differently_are_found_out(monkeypatch):
    """What the leader of one part skips, and that of another one does not take either, is never stored; or it is stored twice."""
    parts_of = PartRouting.parts_of

    def crooked(routing, whole, batch):
        shift = batch.channel == whole.name and routing.context.reports.events.node in ("n0", "n1")
        return [(number + shift) % whole.parts for number in parts_of(routing, whole, batch)]

    monkeypatch.setattr(PartRouting, "parts_of", crooked)

    assert any("check" in text for seed in range(4) for text in ClusterParted(seed).run())


@pytest.mark.parametrize(("kind", "name"), [(NodeDoubled, "doubled"), (ClusterDoubled, "cluster-doubled")])
def test_parts_are_doubled_and_each_message_is_in_one_of_them(kind, name):
    doubled = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        doubled += sum(any(last) for last in world.splits.values())

    assert doubled, "parts had messages when they were doubled"


def test_while_no_node_fails_each_publish_is_answered_though_nodes_learn_of_a_doubling_at_different_times():
    """Who leads the old part leaves to the leader of the new one what that leaves to it, as it divides by the old number yet."""
    late = 0
    for seed in (1, 3, *range(5, 5 + SEEDS)):
        world = ClusterDoubled(seed, calm=True)
        assert world.run() == []
        late += sum(one.ok_at - one.asked_at > SECOND for one in world.history.publishes.values())

    assert late, "some came in the moment of a doubling"


def found_by(mutant):
    """Whether one of some runs in which no node fails complains; *mutant*: of which check."""
    return any(mutant in text for seed in (1, 3, 5) for text in ClusterDoubled(seed, calm=True).run())


def test_parts_that_take_on_while_they_are_doubled_are_found_out(monkeypatch):
    """What the metadata are told as the end of a part is not its end."""
    look = PartDoubling._look

    def careless(doubling, channel, now=0):
        look(doubling, channel, now)
        channel.unsealed.halted = False

    monkeypatch.setattr(PartDoubling, "_look", careless)

    assert any("check_parts" in text for seed in range(8) for text in ClusterDoubled(seed).run())


def test_new_parts_that_take_again_what_is_in_the_old_ones_are_found_out(monkeypatch):
    monkeypatch.setattr(ReplayFilter, "adopt", lambda *_: None)

    assert found_by("check_parts")


def test_parts_that_forget_what_came_while_they_were_doubled_are_found_out(monkeypatch):
    monkeypatch.setattr(PartDoubling, "_take_heard", lambda *_: None)

    assert found_by("check_answers")


def test_parts_that_wait_for_what_now_comes_to_other_parts_are_found_out(monkeypatch):
    """A publisher's newest message of before may be for another part now: it is not missing."""
    begin = ReplayFilter.begin_channels

    def undivided(known, *args):
        known.divided.clear()
        return begin(known, *args)

    monkeypatch.setattr(ReplayFilter, "begin_channels", undivided)

    assert found_by("check_answers")
