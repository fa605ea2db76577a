"""Simulated runs of groups have teeth: each part of the shell taken out is found (R1 to R9)."""

from collections import Counter
from operator import attrgetter

from stan.raft.pysyncobj.election import Election
from stan.raft.pysyncobj.follower import Follower
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.pysyncobj.journal import GroupJournal
from stan.raft.pysyncobj.leader import Leader
from stan.raft.pysyncobj.patience import LeaderContact
from stan.raft.replica.durability import Durability
from stan.raft.transport.codec import Readmit
from tests.sim.raft_world import RaftWorld


def complaints(seeds, *faults):
    """The first words of what is found in the first run that finds anything. Another schedule may move it to another seed."""
    found = Counter()
    for seed in seeds:
        if found:
            break
        try:
            found.update(text.split()[1] for text in RaftWorld(seed, faults).run())
        except Exception as error:  # noqa: BLE001 - a group that notices by itself is as good
            found[type(error).__name__] += 1
    return found


def test_raft_seeds_find_answers_before_fsync(monkeypatch):
    made = Durability.__init__

    def writing_is_enough(durability, *, always):
        made(durability, always=always)
        durability.index = attrgetter("last_index")

    monkeypatch.setattr(Durability, "__init__", writing_is_enough)
    assert complaints(range(1))["R5:"]


def test_raft_seeds_find_votes_that_are_not_synced(monkeypatch):
    def save(self, term, voted_for, amnesia):
        self._write(term, voted_for, amnesia)
        self.term, self.voted_for, self.amnesia, self._synced_slot = term, voted_for, amnesia, 0

    monkeypatch.setattr(HardState, "_save", save)
    assert complaints((0, 1), "power", "power_all", "isolate")["R1:"]


def test_raft_seeds_find_matching_entries_truncated(monkeypatch):
    original = GroupJournal.deleteEntriesFrom

    def delete(self, position):
        original(self, position)
        if self.end < self.log.last_index:
            self._truncate(self.end)

    monkeypatch.setattr(GroupJournal, "deleteEntriesFrom", delete)
    monkeypatch.setattr(Follower, "_without_known", lambda self, m: (m.prev_index, m.prev_term, m.entries))
    assert complaints((30, 66, 80, *range(200)))


def test_raft_seeds_find_votes_against_a_lease(monkeypatch):
    monkeypatch.setattr(Election, "_believes", lambda self: self._library.is_leader)
    assert complaints((10, 11, 13), "desert", "desert", "cut")["R8:"]


def test_raft_seeds_find_a_restart_that_forgets_the_leader_that_was_heard(monkeypatch):
    original = LeaderContact.__init__

    def begin(self, *arguments):
        original(self, *arguments)
        self._last_contact = float("-inf")

    monkeypatch.setattr(LeaderContact, "__init__", begin)
    assert complaints((73, *range(200)), "desert")["R8:"]


def test_raft_seeds_find_a_lease_that_is_kept_while_leadership_is_handed_over(monkeypatch):
    monkeypatch.setattr(Leader, "handing_over", property(lambda self: False))
    assert complaints((219, *range(200)), "transfer", "transfer", "transfer", "cut")["R8:"]


def test_raft_seeds_find_fresh_members_that_vote(monkeypatch):
    monkeypatch.setattr(Election, "is_amnesiac", False)
    monkeypatch.setattr(Election, "_knows_votes", True)
    assert complaints((14, *range(200)), "replace", "replace", "power", "kill", "isolate", "split")


def test_raft_seeds_find_fresh_members_that_help_to_commit(monkeypatch):
    def count(self, node, progress):
        self._library.set_match(node, min(progress.acked, self._host.durable()))

    monkeypatch.setattr(Leader, "_count", count)
    assert complaints((0, 4), "usurp", "usurp", "usurp", "transfer")


def test_raft_seeds_find_fresh_members_that_are_whole_by_what_was_committed_before(monkeypatch):
    def readmit(self):
        commit = self._library.commit
        for node in self._members.others.values():
            progress = self.progress[node]
            if progress.amnesiac and 0 < commit <= progress.acked:
                self._host.send(node.id, Readmit(self._library.term, commit))

    monkeypatch.setattr(Leader, "_readmit", readmit)
    assert complaints((0, 2, 4), "usurp", "usurp", "usurp", "transfer")
