"""The simulation has teeth: a broker that breaks a promise is found out within a few seeds."""

import pytest

from stan.core.base.causes import Cause
from stan.core.leader.cursors import LiveCursor, LiveMember, Unreported
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.retries import Retries
from stan.log.files.segment_writer import SegmentWriter
from stan.protocol.kernel import server as kernel
from stan.protocol.kernel import server_py
from stan.raft.solo import Solo
from tests.sim.cluster_world import ClusterWorld
from tests.sim.world import World

SEEDS_MAX = 20
"""Tried one after the other until one finds it; the first given is known to."""


def found(seed, world=World):
    """Names of the checks that complained; a broker that stops itself is found out as well."""
    try:
        return {text.split(":")[0] for text in world(seed).run()}
    except Exception as error:  # noqa: BLE001
        return {type(error).__name__}


def acks_before_the_sync(monkeypatch):
    monkeypatch.setattr(Solo, "wants_sync", property(lambda self: False, lambda self, _wants: None), raising=False)
    propose = Solo.propose

    def commits_at_once(self, bodies, *, urgent):
        first = propose(self, bodies, urgent=urgent)
        self.synced(self.log.last_index)
        return first

    monkeypatch.setattr(Solo, "propose", commits_at_once)


def forgets_the_flag(monkeypatch):
    send = Dispatch._send

    def unflagged(self, *args):
        return send(self, *args)._replace(redelivery_count=0)

    monkeypatch.setattr(Dispatch, "_send", unflagged)


def never_sends_again(monkeypatch):
    monkeypatch.setattr(Dispatch, "_arm", lambda self, live, member: None)


def forgets_acks(monkeypatch):
    report = LiveCursor.report

    def forgets(self, entry, moment=None):
        report(self, entry, moment)
        del entry.acked[:]
        return entry

    monkeypatch.setattr(LiveCursor, "report", forgets)


def overfills_windows(monkeypatch):
    slots = LiveMember.open_slots.fget
    monkeypatch.setattr(LiveMember, "open_slots", property(lambda self: slots(self) + 1))


def records_another_cause(monkeypatch):
    owe = Retries.owe

    def owes(self, first, last, cause):
        owe(self, first, last, Cause.NEGATIVE_ACK if cause is Cause.ACK_WAIT_OVER else cause)

    monkeypatch.setattr(Retries, "owe", owes)


def records_nothing(monkeypatch):
    monkeypatch.setattr(Unreported, "tell", lambda self, entry, moment: self.sent.clear())


def does_not_sync(monkeypatch):
    def pretends(self):
        self.durable_index = self._tip
        return self.durable_index

    monkeypatch.setattr(SegmentWriter, "sync", pretends)


@pytest.mark.parametrize(
    ("mutate", "first", "check"),
    [
        (acks_before_the_sync, 8, "check_lost"),
        (does_not_sync, 3, "Damage"),
        (forgets_the_flag, 0, "check_repeats"),
        (never_sends_again, 0, "check_at_least_once"),
        (overfills_windows, 0, "check_windows"),
        (forgets_acks, 3, "check_position"),
        (records_another_cause, 0, "check_causes"),
        (records_nothing, 0, "check_causes"),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, first, check):
    mutate(monkeypatch)
    assert any(check in found(seed) for seed in range(first, first + SEEDS_MAX))


def test_a_cluster_that_tells_publishes_by_the_ends_of_their_guids_is_found_out(monkeypatch):
    """A new leader takes what it heard for what is in the log: nobody stores it, and it is acknowledged."""
    monkeypatch.setattr(server_py, "_key", lambda guid: guid[-8:].rjust(8, b"\0"))
    monkeypatch.setattr(kernel, "scan", server_py.scan)
    assert any("check_lost" in found(seed, ClusterWorld) for seed in range(3, 3 + SEEDS_MAX))
