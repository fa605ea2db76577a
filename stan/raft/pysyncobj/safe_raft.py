"""PySyncObj inside a safety shell: its election and commit logic, without its faults (S1 to S16).

    messages, turns ─► SafeRaft ─┬─► Election, Follower, Leader ─► Library ─► journal
                                 └◄───────── LibraryEvents ─────────┘

Every message passes a filter before the library's handler gets it, every answer is made by the shell, and the journal writes when
the handler has returned. tests/raft/test_hazards.py shows each fault on the bare library; the shell prevents these by its
handling of messages:

    S1 S5  entries that a follower has already are removed from a message; only an entry of another term is ever replaced
    S2     a message moves the commit index at most to the last entry that it has verified, and never back
    S3     answers carry term and number; old ones are dropped, and a newer term makes a leader step down
    S4     one vote per voter and term is counted
    S11    a conflict is answered with the first entry of the conflicting term
    S15    messages on the way to a follower are bounded by a window
    S16    a stale leader gets an answer with the newer term; before an election, a pre-vote asks whether it could be won

Promises: term and vote are durable before a message that shows them leaves; a follower's answer covers only entries durable
there; a leader counts itself only as far as its own log is durable. Never calls the library from inside one of its handlers.
"""

from collections.abc import Iterable
from random import Random

from stan_protocol.scalars import SECOND, Nanos

from stan import limits
from stan.alias import alias
from stan.errors import Shortage
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.election import Election
from stan.raft.pysyncobj.follower import Follower
from stan.raft.pysyncobj.host import RaftHost
from stan.raft.pysyncobj.journal import GroupJournal
from stan.raft.pysyncobj.leader import Leader
from stan.raft.pysyncobj.library import Library, LibraryClock
from stan.raft.pysyncobj.members import Members
from stan.raft.pysyncobj.patience import Patience
from stan.raft.transport.codec import AppendAnswer, AppendEntries, Message, Readmit, TimeoutNow, VoteAnswer, VoteRequest


class SafeRaft:
    """A member of a group. An observer (*me* is not among the voters) accepts entries and does not campaign.

    Callers read its parts: term, role and commit index from `library`, progress and lease from `as_leader`, and so on."""

    def __init__(
        self,
        me: str,
        voters: Iterable[str],
        observers: Iterable[str],
        journal: GroupJournal,
        host: RaftHost,
        random: Random,
        now: Nanos,
    ) -> None:
        clock = LibraryClock(now)
        self.journal = journal
        self.members = Members(me, voters, observers)
        self.patience = Patience(random, clock)
        self.library = Library(Peer(me), list(self.members.others.values()), clock, journal, self)
        self.election = Election(self.members, self.library, journal, host, self.patience, clock)
        self.as_follower = Follower(me, self.library, journal, host, self.election, clock)
        self.as_leader = Leader(
            self.members, self.library, journal, host, self.patience, clock, self.election.candidacy
        )
        self._host = host
        self._clock = clock

    # --- time, durability -----------------------------------------------------------------------------------------------

    def turn(self, now: Nanos) -> None:
        """Take a turn: campaign, commit, step down, send."""
        seconds, library = now / SECOND, self.library
        self._clock.now, self._clock.seconds = now, seconds
        if seconds >= library.due_at or (not library.is_leader and library.election_deadline < seconds):
            self._tick()
        if library.is_leader:
            self.as_leader.replicate()

    def _tick(self) -> None:
        """Run the library's tick."""
        library = self.library
        commit = library.commit
        if library.is_leader:
            self.as_leader.before_tick()
        else:
            self.election.before_tick()
        library.tick()
        if library.is_leader:
            self.as_leader.after_tick(commit)
        self._settle()

    def rest(self, now: Nanos) -> Nanos:
        """Time of the next turn if no message arrives before."""
        if self.library.is_leader:
            return Nanos(now + limits.RAFT_LOOK_INTERVAL)
        left = self.library.election_deadline - now / SECOND  # minus infinity if an election is due
        return Nanos(now + int(min(max(0.0, left * SECOND), limits.RAFT_REST_MAX)))

    def leader_gone(self, now: Nanos) -> None:
        """Campaign as soon as the others, too, can take the leader for gone: there is none, or it is silent."""
        self._clock.set(now)
        self.election.leader_gone()

    def synced(self) -> None:
        """Count the entries that are durable now, and send an answer that waited for them."""
        if self.library.is_leader:
            self.as_leader.synced()
        if self.as_follower.owes is not None:
            self.as_follower.answer(self.as_follower.owes)

    @property
    def waits_for_disk(self) -> bool:
        """True if an answer or a commit may wait for more of this member's log to become durable."""
        if self.library.is_leader:
            return self.as_leader.waits_for_disk
        return self.as_follower.owes is not None

    # --- peers ------------------------------------------------------------------------------------------------------------

    def peer_up(self, peer: str, now: Nanos) -> None:
        """Note that a link to the peer begins: messages that were on the way are lost."""
        self._clock.set(now)
        self.members.up.add(peer)
        self._greet(peer)

    def _greet(self, peer: str) -> None:
        """Tell the library and the leader of a link to a peer, which may be a voter or an observer."""
        members = self.members
        if peer in members.others:
            self.library.link(members.others[peer])
        elif peer in members.observers and members.is_voter:
            self.library.link_observer(members.observers[peer])
        self.as_leader.on_link(Peer(peer))

    def peer_down(self, peer: str, now: Nanos) -> None:
        """Note that the link to the peer is gone."""
        self._clock.set(now)
        members = self.members
        if peer == self.library.leader and not self.library.is_leader:
            self.election.leader_gone()
        members.up.discard(peer)
        if peer in members.others:
            self.library.unlink(members.others[peer])
        elif peer in members.observers and members.is_voter:
            self.library.unlink_observer(members.observers[peer])

    def observe(self, names: Iterable[str]) -> None:
        """Serve these observers from now on, and no others."""
        members = self.members
        observers = set(names) - members.others.keys() - {members.me}
        for name in sorted(members.observers.keys() - observers):
            node = members.observers.pop(name)
            if members.is_voter:
                self.library.unlink_observer(node)
            self.as_leader.progress.pop(node, None)
        for name in sorted(observers - members.observers.keys()):
            members.observers[name] = Peer(name)
            if name in members.up:
                self._greet(name)

    def receive(self, peer: str, message: Message, now: Nanos) -> None:
        """Handle one message. From a peer that is no voter here only AppendEntries, vote requests and Readmit are handled, and
        from an observer its answers."""
        self._clock.now, self._clock.seconds = now, now / SECOND
        node = self.members.others.get(peer)
        if node is None:
            if isinstance(message, AppendAnswer) and peer in self.members.observers:
                self.as_leader.on_append_answer(self.members.observers[peer], message)
                return
            if not isinstance(message, AppendEntries | VoteRequest | Readmit):
                return
            node = Peer(peer)  # a voter that this member's configuration does not have yet, or has removed
        match message:
            case AppendEntries():
                self.as_follower.on_append_entries(node, message)
            case AppendAnswer():
                self.as_leader.on_append_answer(node, message)
                return  # an answer adds no entry, and the next tick commits entries by it
            case VoteRequest():
                self.election.on_vote_request(node, message)
            case VoteAnswer():
                self.election.on_vote_answer(node, message)
            case TimeoutNow():
                self.election.on_timeout_now(node, message)
            case Readmit():
                self.election.on_readmit(node, message, self.as_follower.durably_equal())
                self.as_follower.answer(peer)
        self._settle()

    def _settle(self) -> None:
        """After a handler: write the entries that it added (a new leader's first entry), and note the commit index."""
        journal = self.journal
        if journal.differs:
            try:
                journal.flush()
            except Shortage as error:
                self._host.note(str(error))
                self.library.step_down()
        if self.library.is_leader and self.election.is_amnesiac:
            self.election.on_elected()
        commit = min(self.library.commit, journal.end)
        if commit > journal.hard_state.commit_hint:
            journal.hard_state.hint(commit)

    # --- calls of the library (LibraryEvents) -------------------------------------------------------------------------------

    election_timeout = alias("patience.election_timeout")
    on_role = alias("as_leader.on_role")
    on_equal = alias("as_follower.on_equal")
    on_conflict = alias("as_follower.on_conflict")
    on_message = alias("election.on_message")

    def on_new_term(self) -> None:
        """Prepare for a later term, which is about to be saved."""
        self.as_follower.on_new_term()
        self.election.candidacy.on_new_term()

    def on_heartbeat_due(self) -> None:
        """Note that a leader has to send entries and heartbeats, at the end of its turn."""
        self.as_leader.heartbeat_due = True
