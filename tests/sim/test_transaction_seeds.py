"""Simulated apps that stage and commit under faults: each version once, whole, in order; the rest is never seen."""

import os

import pytest

from stan.core.leader.dispatch import Dispatch
from stan.core.publishing.committing import Committing
from stan.core.state.transactions import Transactions
from tests.sim.transaction_worlds import ClusterTransactions, NodeTransactions
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_TRANSACTION_SEEDS", "4"))


@pytest.mark.parametrize(
    ("kind", "name"), [(NodeTransactions, "transactions"), (ClusterTransactions, "cluster-transactions")]
)
def test_transactions_leave_nothing_to_complain_about(kind, name):
    rows = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        rows += sum(len(values) for _, _, values in world.commits.values())

    assert rows > 20 * SEEDS, "the runs did something"


def shows_a_commit_under_way(monkeypatch):
    monkeypatch.setattr(Transactions, "visible", lambda self, uid, index: index)


def begins_a_commit_anew(monkeypatch):
    begin = Committing._begin

    def forgetful(self, group, channel, commit, before):
        done, commit.done = commit.done, 0
        made = begin(self, group, channel, commit, before)
        commit.done = done
        return made

    monkeypatch.setattr(Committing, "_begin", forgetful)


def forgets_versions(monkeypatch):
    monkeypatch.setattr(Transactions, "is_done", lambda *_: False)
    monkeypatch.setattr(Committing, "_decide", _decides_always)


def _decides_always(self, channel, group, found, decide=Committing._decide):
    group.machine.transactions.committed.pop((channel.info.uid, found.request.app), None)
    decide(self, channel, group, found)


def never_shows_it(monkeypatch):
    monkeypatch.setattr(Dispatch, "uncovered", lambda *_: None)


@pytest.mark.parametrize(
    ("mutate", "kind", "first"),
    [
        (shows_a_commit_under_way, ClusterTransactions, 31),
        (begins_a_commit_anew, NodeTransactions, 77),
        (forgets_versions, NodeTransactions, 0),
        (never_shows_it, NodeTransactions, 0),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, kind, first):
    """*first*: a seed that is known to."""
    mutate(monkeypatch)

    assert any(found_out(kind, seed) for seed in range(first, first + 6))
