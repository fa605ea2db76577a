"""Simulated ephemeral channels: one order and one epoch at a time, nothing missing in the last one, and the others as ever."""

import os

import pytest

from stan.core.broker.broker import Broker
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.publishing import Publishing
from stan.core.state.ephemeral import BLOCK_BITS, EphemeralEpochs, Epoch
from tests.sim.ephemeral_worlds import ClusterEphemeral, Heard, NodeEphemeral, Sent, ShortStops, check_ephemeral
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


# --- the check can fail -------------------------------------------------------------------------------------------------


def story():
    """Three messages of an epoch, acked one after the other, and a listener that heard them."""
    said = [Sent(f"e-{number}", 10 * number) for number in range(3)]
    for number, sent in enumerate(said):
        sent.ok_at, sent.sequence = 10 * number + 5, (1 << BLOCK_BITS) + 1 + number
    heard = Heard("l", "")
    heard.joined_at = -1
    heard.messages = [(sent.ok_at, sent.sequence, sent.value, False) for sent in said]
    return said, said[:], [heard]


def test_a_run_as_it_should_be_is_clean():
    assert list(check_ephemeral(*story())) == []


def test_what_must_not_be_is_found():
    def complaints(spoil):
        said, acks, subscriptions = story()
        spoil(said, acks, subscriptions[0].messages)
        return " ".join(check_ephemeral(said, acks, subscriptions))

    assert "never got e-1" in complaints(lambda _said, _acks, messages: messages.pop(1))
    assert "it is no repeat" in complaints(lambda _said, _acks, messages: messages.append(messages[0]))
    assert "was never published" in complaints(lambda said, _acks, _messages: said.pop())
    said, acks, (one, *_) = story()
    one.messages.append(one.messages[0])
    assert list(check_ephemeral(said, acks, [one], held_back=lambda *_: True)) == [], (
        "what an old leader sent comes late"
    )
    other = (99, (1 << BLOCK_BITS) + 1, "e-2", False)
    assert "is e-0 and, for l, e-2" in complaints(lambda _said, _acks, messages: messages.append(other))
    assert "acked before it was sent" in complaints(lambda _said, acks, _messages: acks.reverse() or _swap(acks))


def _swap(acks):
    for at, sent in enumerate(acks):
        sent.asked_at, sent.ok_at = 10 * at, 10 * at + 5
