"""A member of a group as a follower: the entries that it accepts from a leader, and its acknowledgements (see safe_raft.py).

Promises: entries that are already here are cut off a message, and only an entry of another term is ever replaced (S1, S5); the
commit index covers only verified entries, and never goes back (S2); an answer covers only entries durable here and
equal to the leader's log, and carries term and number (S3); a stale leader gets the newer term (S16).
"""

from stan_protocol.scalars import Nanos, RaftIndex, Term

from stan.errors import Damage, Shortage
from stan.invariant import InvariantError
from stan.log.types import Entry
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.election import Election
from stan.raft.pysyncobj.host import RaftHost
from stan.raft.pysyncobj.journal import GroupJournal
from stan.raft.pysyncobj.library import Library, LibraryClock
from stan.raft.transport.codec import AppendAnswer, AppendEntries


class Follower:
    """The state of a member as a follower of the current term's leader, and the answer that it owes that leader."""

    def __init__(
        self, me: str, library: Library, journal: GroupJournal, host: RaftHost, election: Election, clock: LibraryClock
    ) -> None:
        self.owes: str | None = None  # the leader that gets an answer once this member's log is durable
        self._me = me
        self._library = library
        self._journal = journal
        self._host = host
        self._election = election
        self._clock = clock
        self._verified = RaftIndex(0)  # equal to the log of this term's leader up to here
        self._seq = 0  # of the newest AppendEntries of this term
        self._reset_to: RaftIndex | None = None  # the answer of the running handler instead of success

    def on_append_entries(self, node: Peer, message: AppendEntries) -> None:
        """Handle a leader's entries or heartbeat. Raises Damage if it contradicts an entry that is committed here."""
        library = self._library
        if message.term < library.term:  # S16: the leader was only slow, or cut off
            self._election.leader_was_slow()
            self._host.send(node.id, AppendAnswer(library.term, message.seq, RaftIndex(0), success=False, reset=False))
            return
        if library.is_leader and message.term == library.term:
            raise InvariantError(f"one leader per term (term={library.term}, other={node.id!r}, me={self._me!r})")
        commit, verified = library.commit, self._verified if message.term == library.term else RaftIndex(0)
        prev_index, prev_term, entries = self._without_known(message)
        self._election.contact.receive(message.term)
        self._election.candidacy.withdraw()
        self._reset_to = None
        library.handle(
            node,
            {
                "type": "append_entries",
                "term": message.term,
                "commit_index": min(message.commit, prev_index + len(entries)),  # S2
                "prevLogIdx": prev_index,
                "prevLogTerm": prev_term,
                "entries": [(entry, entry.index, entry.term) for entry in entries],
            },
        )
        try:
            written = self._journal.flush()
        except Shortage as error:
            self._host.note(str(error))
            library.commit, self._verified, written = commit, verified, False
        if library.commit < commit:
            raise InvariantError(f"the commit index never goes back (commit={library.commit}, was={commit})")
        self._seq = max(self._seq, message.seq)
        if self._reset_to is not None:
            counts = not self._election.is_amnesiac
            answer = AppendAnswer(library.term, self._seq, self._reset_to, success=False, reset=True, counts=counts)
            self._host.send(node.id, answer)
        elif written and self._host.durable() < self._verified:
            self.owes = node.id
        else:
            self.answer(node.id)

    def _without_known(self, message: AppendEntries) -> tuple[RaftIndex, Term, list[Entry]]:
        """Return previous index, previous term and entries of the message, without the entries that are here already (S1, S5)."""
        journal, entries = self._journal, message.entries
        prev_index, prev_term = message.prev_index, message.prev_term
        floor = max(self._library.commit, RaftIndex(journal.first_index - 1))
        if prev_index <= floor:  # committed here, so every leader of this term or a later one has the same
            self._compare(RaftIndex(prev_index), prev_term)
            for entry in entries[: floor - prev_index]:
                self._compare(entry.index, entry.term)
            entries = entries[floor - prev_index :]
            prev_index, prev_term = floor, journal.term_at(floor)
        if journal.term_at(prev_index) != prev_term or prev_index > journal.end:
            return prev_index, prev_term, entries
        known_count = 0
        for entry in entries:
            if entry.index > journal.end or journal.term_at(entry.index) != entry.term:
                break
            known_count += 1
        if known_count:
            prev_index, prev_term = entries[known_count - 1].index, entries[known_count - 1].term
        return prev_index, prev_term, entries[known_count:]

    def _compare(self, index: RaftIndex, term: Term) -> None:
        """Compare the term of a committed entry with the leader's *term* for it. Raises Damage if they differ."""
        known = self._journal.term_at(index) if index >= self._journal.base else Term(0)
        if known and known != term:  # 0: the log does not have the entry anymore
            raise Damage(
                f"entry {index} of term {known} is committed here, for the leader it is of term {term}: "
                "another node has lost entries that it had acknowledged"
            )

    def on_equal(self, index: RaftIndex) -> None:
        """Note that the library has accepted the running message: the log is the leader's up to *index*."""
        self._verified = max(self._verified, index)

    def on_conflict(self, index: RaftIndex | None) -> None:
        """Note that the running message follows an entry that this log does not have; at *index* is one of another term."""
        if index is None:
            self._reset_to = RaftIndex(self._journal.end + 1)
        else:  # S11
            self._reset_to = max(self._journal.first_of_term_at(index), RaftIndex(self._library.commit + 1))

    def on_new_term(self) -> None:
        """Forget the leader's log, as a later term is about to be saved."""
        self._verified, self._seq, self.owes = RaftIndex(0), 0, None

    def durably_equal(self) -> RaftIndex:
        """Entries up to here are durable here and equal to the leader's log."""
        return min(self._verified, self._host.durable())

    def answer(self, leader: str) -> None:
        """Acknowledge to the leader the entries that are durable here and equal to its log."""
        safe = self.durably_equal()
        if safe == self._verified:
            self.owes = None
        counts = not self._election.is_amnesiac
        answer = AppendAnswer(
            self._library.term, self._seq, RaftIndex(safe + 1), success=True, reset=False, counts=counts
        )
        self._host.send(leader, answer)

    def take_heartbeat_quickly(self, peer: str, term: Term, commit: RaftIndex, seq: int, now: Nanos) -> bool:
        """Answer a heartbeat without news at once. Returns False if the heartbeat has to go through `SafeRaft.receive`."""
        library = self._library
        if (
            peer != library.leader
            or term != library.term
            or commit != library.commit
            or not commit <= self._verified <= self._host.durable()
            or not library.is_follower
        ):
            return False
        self._clock.set(now)
        self._election.contact.receive(term)
        library.restart_election_timer()
        self._seq = max(self._seq, seq)
        self.answer(peer)
        return True
