"""Simulated delays, by policy and by publishers: no message goes early, none is lost, none goes twice, and the order is right."""

import os
from array import array
from dataclasses import replace

import pytest
from stan_protocol.frames import Times
from stan_protocol.scalars import SECOND

from stan.core.publishing import delaying, publishing
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.deferring import Deferring
from stan.core.state.deferred import Deferred
from stan.protocol.proto import entries_pb2 as pb
from tests.sim.delay_worlds import ClusterDeferred, ClusterDelays, NodeDeferred, NodeDelays
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_DELAY_SEEDS", "3"))


KINDS = [
    (NodeDelays, "delays"),
    (ClusterDelays, "cluster-delays"),
    (NodeDeferred, "deferred"),
    (ClusterDeferred, "cluster-deferred"),
]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_delays_leave_nothing_to_complain_about(kind, name):
    moved = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        moved += world.moved

    assert moved > 50, "the runs did something"


def forgets_what_it_moved(monkeypatch):
    trim, forgotten = delaying._trim, []

    def forgetful(uid, first):
        if forgotten:
            return trim(uid, first)
        forgotten.append(uid)
        return pb.GroupChange()

    monkeypatch.setattr(delaying, "_trim", forgetful)


def moves_early(monkeypatch):
    limits_of = LiveChannels._limits_of

    def wrong(channels, info):
        found = limits_of(channels, info)
        if info.uid in channels.delayed:
            channels.delayed[info.uid] = channels.delayed[info.uid]._replace(delay=1)
        return found

    monkeypatch.setattr(LiveChannels, "_limits_of", wrong)


def trims_one_too_many(monkeypatch):
    trim = delaying._trim
    monkeypatch.setattr(delaying, "_trim", lambda uid, first: trim(uid, first + 1))


@pytest.mark.parametrize("mutate", [forgets_what_it_moved, moves_early, trims_one_too_many])
def test_a_broken_broker_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeDelays, seed) for seed in range(4))


def counts_what_is_gone_as_waiting(monkeypatch):
    apply, forgotten = Deferred.apply, []

    def forgetful(state, name, change, index):
        if name == "deferred_gone" and not forgotten:
            forgotten.append(name)
            return 0
        return apply(state, name, change, index)

    monkeypatch.setattr(Deferred, "apply", forgetful)


def defers_less(monkeypatch):
    make = publishing.deferred_change

    def wrong(uid, batch, first):
        early = array("q", (due - SECOND // 2 for due in array("q", batch.times.dues))).tobytes()
        return make(uid, replace(batch, times=Times(early)), first)

    monkeypatch.setattr(publishing, "deferred_change", wrong)


def drops_one(monkeypatch):
    move = Deferring._move

    def careless(deferring, number, here, uid, places, read):
        move(deferring, number, here, uid, places, dict([*read.items()][1:]))

    monkeypatch.setattr(Deferring, "_move", careless)


@pytest.mark.parametrize("mutate", [counts_what_is_gone_as_waiting, defers_less, drops_one])
def test_a_broker_that_defers_wrongly_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeDeferred, seed) for seed in range(4))
