"""Simulated clusters with a synced and a replicated channel: what each promises when power is lost; broken rules are found."""

import os
from collections import defaultdict

import pytest
from stan_protocol.scalars import SECOND

from stan.edge.cluster import copies
from stan.raft.group import RaftGroup
from stan.raft.pysyncobj.election import Election
from stan.raft.pysyncobj.hard_state import HardState
from tests.sim.commit_worlds import FAST, SAFE, CommitWorld, PartedCommit, PowerWorld, check_replicated
from tests.sim.history import Acked, Delivered, History, Publish, Sub
from tests.sim.worlds import play

SEEDS = int(os.environ.get("STAN_COMMIT_SEEDS", "4"))


def test_nothing_acked_is_lost_in_either_channel_while_a_minority_loses_power():
    losses, acked = 0, defaultdict(int)
    for seed in range(SEEDS):
        world = CommitWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-kinds --seed {seed}"
        losses += world.losses
        for publish in world.history.acknowledged:
            acked[publish.channel] += 1
    assert losses > SEEDS / 2
    assert min(acked[SAFE], acked[FAST]) > 10 * SEEDS


def test_nothing_acked_is_lost_in_parts_that_are_replicated():
    acked = 0
    for seed in range(2):
        world = PartedCommit(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-parts --seed {seed}"
        acked += len(world.history.acknowledged)
        assert min(world.history.group_of[channel] for channel in world.channels) > world.raft_groups
    assert acked > 40


def test_an_outage_costs_the_replicated_channel_its_newest_messages_and_the_synced_one_nothing():
    outages = forgotten = 0
    for seed in range(SEEDS):
        world = PowerWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-outage --seed {seed}"
        outages += len(world.outages)
        forgotten += len(world.forgotten)
    assert outages > SEEDS / 2
    assert forgotten, "the worst case is among the runs"


# --- the worlds can fail: each part of the rule taken out is found ------------------------------------------------------


def votes_on(monkeypatch):
    """Who has lost power votes as if nothing had happened."""
    monkeypatch.setattr(HardState, "mark_entries_forgotten", lambda _self: None)


def counts_at_once(monkeypatch):
    """Votes and answers of who has lost power count."""
    monkeypatch.setattr(Election, "is_amnesiac", property(lambda _self: False))


@pytest.mark.parametrize(("broken", "seeds"), [(votes_on, (5, 27)), (counts_at_once, range(60))])
def test_a_member_that_has_lost_power_and_votes_all_the_same_is_found(broken, seeds, monkeypatch):
    broken(monkeypatch)
    assert any(play("commit-kinds", seed)[2] for seed in seeds)


def test_a_synced_channel_that_is_acked_before_its_disks_is_found(monkeypatch):
    """All groups answer what they have written: only the replicated channel may do so."""

    def unsynced(*arguments, sync, **more):
        return RaftGroup(*arguments, sync="interval", **more)

    monkeypatch.setattr(copies, "RaftGroup", unsynced)
    assert any(text.startswith(f"check_lost: {SAFE}:") for seed in range(12) for text in play("commit-outage", seed)[2])


# --- the check can fail -------------------------------------------------------------------------------------------------


class Story:
    """Three messages of the replicated channel, acked at 10, 11 and 12 s, and read by a durable."""

    def __init__(self):
        self.history = History()
        self.sub = Sub("durable", "me", FAST, "durable", 5, SECOND)
        self.history.must_finish["durable"] = FAST
        for number in (1, 2, 3):
            at = (9 + number) * SECOND
            self.history.publishes[f"m{number}"] = Publish("w", number, FAST, f"m{number}", at - SECOND, ok_at=at)
            self.got(at, number, f"m{number}")
            self.history.final[FAST].append((number, f"m{number}"))

    def got(self, at, sequence, value):
        self.history.events.append(Delivered(at, self.sub, sequence, value, redelivered=False, count=0))

    def loses(self, number):
        """A message is gone, and another one is at its sequence."""
        self.history.publishes["new"] = Publish("w", 9, FAST, "new", 30 * SECOND, ok_at=31 * SECOND)
        self.history.final[FAST][number - 1] = (number, "new")
        self.got(31 * SECOND, number, "new")

    def complaints(self, *outages):
        return [*check_replicated(self.history, FAST, [at * SECOND for at in outages], [])]


def test_a_run_without_loss_is_clean():
    assert Story().complaints() == []


def test_what_was_acked_just_before_an_outage_may_be_gone():
    story = Story()
    story.loses(3)
    assert story.complaints(13) == []


@pytest.mark.parametrize(("number", "outages"), [(3, ()), (3, (5,)), (1, (15,)), (3, (40,))])
def test_a_loss_without_an_outage_in_the_seconds_after_is_found(number, outages):
    story = Story()
    story.loses(number)
    assert any("was acknowledged, and is not there" in text for text in story.complaints(*outages))


def test_another_message_at_a_sequence_without_an_outage_between_is_found():
    story = Story()
    story.loses(3)
    assert any("no outage was between" in text for text in story.complaints(50))


@pytest.mark.parametrize(("outages", "found"), [((), True), ((8,), True), ((10,), False), ((14,), True)])
def test_who_gets_nothing_is_found_unless_it_subscribed_just_before_an_outage(outages, found):
    story = Story()
    story.history.joined(9 * SECOND, story.sub)
    del story.history.events[0]  # what it got
    assert any("durable: never got [1]" in text for text in story.complaints(*outages)) == found


@pytest.mark.parametrize(("outages", "found"), [((), True), ((13,), False)])
def test_who_acks_what_is_gone_acks_what_has_its_sequence(outages, found):
    story = Story()
    story.loses(3)
    del story.history.events[-1]  # it never gets the new one
    story.history.events.append(Acked(14 * SECOND, story.sub, 3))
    assert any("durable: never got [3]" in text for text in story.complaints(*outages)) == found


def test_gaps_repeats_phantoms_and_what_nobody_got_are_found():
    story = Story()
    story.history.final[FAST][:] = [(1, "m1"), (3, "m3"), (4, "m3"), (5, "nobody's")]
    found = " ".join(story.complaints())
    for text in ("is there twice", "a gap", "never published", "durable: never got [4, 5]"):
        assert text in found
