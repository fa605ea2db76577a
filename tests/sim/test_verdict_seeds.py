"""Simulated clients that fail with messages, work on them and reject them: no message is delivered more often than allowed, and
none is forgotten."""

import os
from collections import Counter

import pytest

from stan.core.base.runs import Run, Runs
from stan.core.leader.retries import Retries
from stan.core.state import group
from tests.sim.history import Failed, Working
from tests.sim.verdict_worlds import ClusterVerdicts, NodeVerdicts
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_VERDICT_SEEDS", "3"))


@pytest.mark.parametrize(("kind", "name"), [(NodeVerdicts, "verdicts"), (ClusterVerdicts, "cluster-verdicts")])
def test_verdicts_leave_nothing_to_complain_about(kind, name):
    said = Counter()
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        said.update(type(event) for event in world.history.events)

    assert said[Failed] > 20, "the runs did something"
    assert said[Working] > 20, "the runs did something"


def test_a_member_with_one_message_at_a_time_has_the_time_to_fail_with_all():
    """Of 267 messages one in nine, five times each, with pauses of 0.4 s: that is longer than other worlds wait."""
    assert ClusterVerdicts(300086).run() == []


def test_a_member_that_is_dead_and_not_given_up_yet_may_get_the_last_delivery():
    assert NodeVerdicts(300106).run() == []


def forgets_counts(monkeypatch):
    monkeypatch.setattr(group, "counted_runs", lambda flat, _counts: iter(Runs(_uncounted(flat))))


def _uncounted(flat):
    return [Run(first, last) for first, last in group.pairs(flat)]


def knows_no_pause(monkeypatch):
    monkeypatch.setattr(
        Retries, "refused", lambda _self, run, _cursor, _policy, _sent, now, _delay: run._replace(deadline=now)
    )


def ignores_work(monkeypatch):
    monkeypatch.setattr(Retries, "worked_on", lambda _self, run, *_: run)


@pytest.mark.parametrize("mutate", [forgets_counts, knows_no_pause, ignores_work])
def test_a_broken_broker_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeVerdicts, seed) for seed in range(6))
