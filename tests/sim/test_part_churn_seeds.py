"""10,000 keys in a channel with parts that is doubled, under a key-ordered group whose members join, leave and die each second:
no key is out of order, none is at two members at once, nothing is lost."""

import os

import pytest

from stan.core.leader.key_order import KeyOrder
from tests.sim.history import Failed
from tests.sim.part_churn_worlds import FEW, KEYS, ClusterPartChurn, PartReader

SEEDS = int(os.environ.get("STAN_PART_CHURN_SEEDS", "3"))
BUSY = (1, 5, 7, 9, 10)
"""The first seeds of runs in which members come, go and fail often enough."""


def world_of(seed, keys):
    world = ClusterPartChurn(seed)
    world.key_count = keys
    return world


def assert_keeps_keys_in_order(seed, keys):
    world = world_of(seed, keys)

    assert world.run() == [], f"replay with: python -m tests.sim --world part-churn --seed {seed}, of {keys} keys"

    acked = world.history.acknowledged
    assert len({world.keys[publish.value] for publish in acked}) == keys, "each key was written"
    assert world.parts == 2 * world.before, "the parts were doubled once"
    assert any(world.splits[world.before]), "parts had messages when they were doubled"
    assert world.churned > 1, "members came and went"
    assert sum(isinstance(event, Failed) for event in world.history.events) > len(acked) // 50, "members failed"


@pytest.mark.timeout(300)  # 40 s on a machine that does nothing else
def test_10_000_keys_keep_their_order_while_members_churn_and_the_parts_are_doubled():
    assert_keeps_keys_in_order(0, KEYS)


@pytest.mark.parametrize("seed", [*BUSY, *range(11, 11 + SEEDS)][:SEEDS])
def test_keys_keep_their_order_over_faults_while_members_churn_and_the_parts_are_doubled(seed):
    assert_keeps_keys_in_order(seed, FEW)


def found_by(check):
    """Whether one of some runs complains."""
    return any(check in text for seed in range(1, 4) for text in world_of(seed, FEW).run())


def test_a_member_that_begins_the_new_part_before_the_old_one_is_done_is_found_out(monkeypatch):
    monkeypatch.setattr(PartReader, "waits_for", lambda *_: False)

    assert found_by("check_over_parts")


def test_parts_whose_groups_break_the_order_are_found_out(monkeypatch):
    monkeypatch.setattr(KeyOrder, "is_first", lambda *_: True)

    assert found_by("check_key_order")
