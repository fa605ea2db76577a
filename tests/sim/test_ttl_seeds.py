"""Simulated times to live: nothing is sent after its time, nothing goes before it, and what is gone stays gone."""

import os
from array import array

import pytest

from stan.core.leader.dispatch import Dispatch
from stan.core.publishing import publishing
from stan.core.publishing.expiring import Expiring
from stan.core.state.expiries import Expiries
from tests.sim.ttl_worlds import ClusterTtl, NodeTtl
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_TTL_SEEDS", "3"))


@pytest.mark.parametrize(("kind", "name"), [(NodeTtl, "ttl"), (ClusterTtl, "cluster-ttl")])
def test_times_to_live_leave_nothing_to_complain_about(kind, name):
    expired = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        expired += len(world.history.expired)

    assert expired > 50, "the runs did something"


def removes_early(monkeypatch):
    look = Expiring._remove
    monkeypatch.setattr(
        Expiring, "_remove", lambda self, number, here, second, held: look(self, number, here, second + 2, held)
    )


def holds_nothing(monkeypatch):
    remove = Expiring._remove

    def wrong(self, number, here, second, held):
        remove(self, number, here, second, held)
        self.context.groups[number].dispatch.stops.expiring = frozenset()

    monkeypatch.setattr(Expiring, "_remove", wrong)


def never_looks(monkeypatch):
    monkeypatch.setattr(Expiring, "pump", lambda self: setattr(self, "next", self.next + 10**9))


def forgets_a_run(monkeypatch):
    apply, forgotten = Expiries.apply, []

    def forgetful(state, name, change, index):
        if not forgotten and change.runs:
            forgotten.append(1)
            del change.runs[:]
            del change.at[:]
        return apply(state, name, change, index)

    monkeypatch.setattr(Expiries, "apply", forgetful)


def tells_another_time(monkeypatch):
    stamped = publishing.stamped
    monkeypatch.setattr(
        publishing, "stamped", lambda bodies, times: stamped(bodies, array("q", (at and at - 1 for at in times)))
    )


def settles_nothing(monkeypatch):
    monkeypatch.setattr(Dispatch, "removed", lambda *_args: None)


@pytest.mark.parametrize("mutate", [removes_early, never_looks, forgets_a_run, tells_another_time, settles_nothing])
def test_a_broken_broker_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeTtl, seed) for seed in range(4))


def test_a_leader_that_holds_nothing_is_found_out(monkeypatch):
    holds_nothing(monkeypatch)
    assert any(ClusterTtl(seed).run() for seed in range(8))
