"""Simulated operators who change positions under faults: what was answered stays so; repeats are flagged all the time."""

import os
from collections import Counter

import pytest

from stan.core.leader import cursor_override_live
from stan.core.leader.cursors import MessagesAhead
from stan.core.state.group import Cursor
from tests.sim.operators import ClusterOperator, NodeOperator
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_OPERATOR_SEEDS", "4"))


@pytest.mark.parametrize(("kind", "name"), [(NodeOperator, "operator"), (ClusterOperator, "cluster-operator")])
def test_operators_leave_nothing_to_complain_about(kind, name):
    done = Counter()
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        done.update(one.kind for of_one in world.history.operations.values() for one in of_one if one.done_at)

    assert {"move", "skip", "redeliver", "pause", "resume"} <= done.keys(), "the runs did something"


def forgets_what_was_sent_before(monkeypatch):
    monkeypatch.setattr(MessagesAhead, "sent_before", lambda _self, run, flagged: run._replace(count=int(flagged)))


def sends_to_the_paused(monkeypatch):
    monkeypatch.setattr(Cursor, "paused", property(lambda self: False))


def keeps_what_it_holds(monkeypatch):
    monkeypatch.setattr(cursor_override_live, "_moved", lambda *_: None)


def skips_nothing(monkeypatch):
    monkeypatch.setattr(cursor_override_live, "_skipped", lambda *_: None)


@pytest.mark.parametrize(
    ("mutate", "first"),
    [
        (forgets_what_was_sent_before, 0),
        (sends_to_the_paused, 0),
        (keeps_what_it_holds, 0),
        (skips_nothing, 0),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, first):
    """*first*: a seed that is known to."""
    mutate(monkeypatch)

    assert any(found_out(NodeOperator, seed) for seed in range(first, first + 6))
