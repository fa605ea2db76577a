"""Simulated ephemeral channels: one order and one epoch at a time, nothing missing in the last one, and the others as ever."""

import os

import pytest

from stan.core.broker.broker import Broker
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.publishing import Publishing
from stan.core.state.ephemeral import BLOCK_BITS, EphemeralEpochs, Epoch
from tests.sim.ephemeral_worlds import ClusterEphemeral, NodeEphemeral, ShortStops
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_EPHEMERAL_SEEDS", "4"))


@pytest.mark.parametrize(("kind", "name"), [(NodeEphemeral, "ephemeral"), (ClusterEphemeral, "cluster-ephemeral")])
def test_an_ephemeral_channel_keeps_its_promises_and_so_do_the_others(kind, name):
    acked = epochs = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        acked += len(world.acks)
        epochs += len({sent.sequence - 1 >> BLOCK_BITS for sent in world.acks})
    assert acked > 20 * SEEDS, "the runs did something"
    assert epochs > SEEDS, "epochs ended"


def test_no_ack_is_lost_while_followers_stand_still_and_the_leader_stays():
    stops = 0
    for seed in range(SEEDS):
        world = ShortStops(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world ephemeral-stops --seed {seed}"
        stops += world.stops
    assert stops > SEEDS


def test_a_broker_that_loses_answers_with_the_lease_is_found_out(monkeypatch):
    monkeypatch.setattr(Broker, "_keep_answers", lambda *_: None)

    assert any(found_out(ShortStops, seed) for seed in (13, 15))


def begins_without_an_entry(monkeypatch):
    """The leader takes the next epoch for its own before the log has it."""

    def begin(self, channel):
        info = channel.info
        known = self.context.groups[info.group].machine.part(EphemeralEpochs).of(info.uid)
        block = known.block + 1
        self.channels.stores.begin(info.uid, Epoch(known.number + 1, (block << BLOCK_BITS) + 1, block))
        self.context.written = self.channels.stores
        channel.next_sequence = (block << BLOCK_BITS) + 1
        for opened in self._of(channel).epochs.pop(info.uid):
            opened("")

    monkeypatch.setattr(EphemeralChannels, "_begin", begin)


def takes_what_was_heard_before(monkeypatch):
    """What the last leader may have acknowledged is stored once more."""
    monkeypatch.setattr(Publishing, "_refuses_emptied", lambda *_: False)


@pytest.mark.parametrize(
    ("mutate", "seeds"),
    [
        (begins_without_an_entry, range(12)),
        (takes_what_was_heard_before, range(12)),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, seeds):
    mutate(monkeypatch)

    assert any(found_out(ClusterEphemeral, seed) for seed in seeds)
