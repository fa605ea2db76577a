"""Messages that are given up become dead letters, each exactly once; and a broker that loses or doubles them is found out."""

import os
from collections import Counter

import pytest
from stan_protocol import dead_letters as letters

from stan.core.admin.redriving import Redriving
from stan.core.publishing.dead_letters import DeadLetters
from stan.core.state.group import GroupMachine
from stan.protocol.proto import entries_pb2 as pb
from tests.sim.dead_letter_worlds import ClusterDeadLetters, ClusterRedrives, NodeDeadLetters
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_DEAD_LETTER_SEEDS", "3"))


@pytest.mark.parametrize(
    ("kind", "name"), [(NodeDeadLetters, "dead-letters"), (ClusterDeadLetters, "cluster-dead-letters")]
)
def test_each_message_that_is_given_up_is_one_dead_letter(kind, name):
    reasons = Counter()
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        reasons.update(world.reasons)

    assert reasons[letters.EXHAUSTED] > 20, "the runs did something"
    assert reasons[letters.REJECTED] > 20, "the runs did something"


def test_a_dead_letter_that_is_put_back_is_at_one_place():
    put_back = 0
    for seed in range(SEEDS):
        world = ClusterRedrives(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world cluster-redrives --seed {seed}"
        put_back += world.put_back

    assert put_back > 20, "the runs did something"


def removes_nothing(monkeypatch):
    """A dead letter that was put back is still there."""
    change = Redriving._change
    monkeypatch.setattr(
        Redriving,
        "_change",
        lambda self, redrive, first: (
            pb.GroupChange().SerializeToString() if first % 3 == 0 else change(self, redrive, first)
        ),
    )


def test_a_broker_that_puts_back_twice_is_found_out(monkeypatch):
    removes_nothing(monkeypatch)

    assert any(ClusterRedrives(seed).run() for seed in range(3))


def settles_nothing(monkeypatch):
    """The copy is stored, and for whoever leads next the message is pending."""
    monkeypatch.setattr(GroupMachine, "_give_up", lambda *_: None)


def settles_before_it_is_stored(monkeypatch):
    """A crash in between loses messages."""
    read = DeadLetters._read

    def settled_first(self, number, info, cursor_id, into, moves, picked, batches, error):
        live = self._live(number, cursor_id, moves)
        for run in picked if live is not None else ():
            live.unreported.mark(run.first, run.last)
            live.holders(run.first, run.last)
            self.context.groups[number].dispatch.reports.mark(live)
        read(self, number, info, cursor_id, into, moves, picked, batches, error)

    monkeypatch.setattr(DeadLetters, "_read", settled_first)


def forgets_the_reason(monkeypatch):
    monkeypatch.setattr(letters, "REJECTED", letters.EXHAUSTED)


@pytest.mark.parametrize("mutate", [settles_nothing, settles_before_it_is_stored, forgets_the_reason])
def test_a_broken_broker_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeDeadLetters, seed) for seed in range(4))
