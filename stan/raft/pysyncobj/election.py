"""A member of a group as a voter and candidate: PySyncObj's election, held to Raft's rules (see safe_raft.py).

Promises: one vote per voter and term is counted (S4), no vote of a stranger; a term rises only for an election that a majority
would vote in, and not while a leader is alive, unless that leader itself asks for one (S16). The base of a leader's
lease: for RAFT_ELECTION_TIMEOUT_MIN after a leader's message, or after its start, as one may have come just before, this
member neither votes for another nor campaigns, unless the leader handed over. An amnesiac member, whose earlier life may have
promised anything, takes entries and is part of no majority, until it is readmitted (see `Election.on_readmit`). The candidate
and the leader decide who is a voter: a member that has not applied its own promotion, or has applied that it was removed
before others did, votes and acknowledges for them.
"""

from typing import Any

from stan_protocol.scalars import SECOND, RaftIndex, Term

from stan import limits
from stan.alias import alias
from stan.invariant import InvariantError
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.hard_state import Amnesia
from stan.raft.pysyncobj.host import RaftHost
from stan.raft.pysyncobj.journal import GroupJournal
from stan.raft.pysyncobj.library import Library, LibraryClock
from stan.raft.pysyncobj.members import Members
from stan.raft.pysyncobj.patience import LeaderContact, Patience
from stan.raft.transport.codec import Message, Readmit, TimeoutNow, VoteAnswer, VoteRequest


class Votes:
    """The votes of others for one member (S4), the *partial* ones apart: of voters that may have lost entries. Pure.

    A majority of whole votes elects, as always. Partial ones elect only if all members vote: a committed entry may
    be missing on each of their members, so a majority of them proves nothing, but all together have every entry
    that still exists."""

    def __init__(self) -> None:
        self._whole: set[str] = set()
        self._partial: set[str] = set()

    @property
    def count(self) -> int:
        """Number of votes."""
        return len(self._whole) + len(self._partial)

    def add(self, peer: str, *, partial: bool) -> bool:
        """Add a vote; False if that voter's is counted already."""
        if peer in self._whole or peer in self._partial:
            return False
        (self._partial if partial else self._whole).add(peer)
        return True

    def whole_majority(self, peers: int, *, partial: bool) -> bool:
        """True if, with the candidate's own vote, a majority of whole votes is there, in a group with so many *peers*."""
        return 2 * (len(self._whole) + (not partial)) > peers + 1

    def elect(self, peers: int, *, partial: bool) -> bool:
        """True if, with the candidate's own vote, which may be *partial*, the votes elect it in a group with so many *peers*."""
        return self.count == peers or self.whole_majority(peers, partial=partial)


class Candidacy:
    """The answers to a member's pre-vote, and the votes of its term, for its next election (S4). Pure."""

    def __init__(self, clock: LibraryClock) -> None:
        self.by_transfer = False  # the leader asked for this member's newest election
        self._clock = clock
        self.by_all = False  # the newest election was won by the votes of all, as too few of them were whole
        self._pre_vote: tuple[Term, Votes] | None = None  # its term, and the votes that this member would get
        self._won_at: float | None = None  # when it won a pre-vote, in seconds; it has not campaigned yet
        self._votes = Votes()  # of the current term

    def begin_pre_vote(self, term: Term) -> None:
        """Begin a pre-vote for *term*."""
        self._pre_vote = (term, Votes())

    def grant(self, term: Term, peer: str, *, partial: bool) -> None:
        """Note that a peer would vote for this member in *term*."""
        if self._pre_vote is not None and self._pre_vote[0] == term:
            self._pre_vote[1].add(peer, partial=partial)

    def wins_pre_vote(self, peers: int, *, partial: bool) -> bool:
        """True, once, when this member, with an own vote that may be *partial*, would be elected in a group with so many *peers*;
        then `take_win` has a win."""
        if self._pre_vote is None or not self._pre_vote[1].elect(peers, partial=partial):
            return False
        self._pre_vote = None
        self._won_at = self._clock.seconds
        return True

    def take_win(self) -> bool:
        """True, once, if a pre-vote was won lately enough to campaign."""
        won_at, self._won_at = self._won_at, None
        return won_at is not None and self._clock.seconds - won_at < limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND

    def withdraw(self) -> None:
        """Drop the pre-vote and a win, as there is a leader."""
        self._pre_vote = self._won_at = None

    def count(self, peer: str, peers: int, *, partial: bool, own_partial: bool) -> int:
        """Count a vote of the current term; returns the number of votes if they elect this member, else 0."""
        votes = self._votes
        if not votes.add(peer, partial=partial) or not votes.elect(peers, partial=own_partial):
            return 0
        self.by_all = not votes.whole_majority(peers, partial=own_partial)
        return votes.count

    def on_new_term(self) -> None:
        """Drop all votes, as a later term begins."""
        self.withdraw()
        self._votes, self.by_all = Votes(), False


class Election:
    """Election of one member of a group. A member that is not among the voters (an observer) never campaigns."""

    def __init__(
        self,
        members: Members,
        library: Library,
        journal: GroupJournal,
        host: RaftHost,
        patience: Patience,
        clock: LibraryClock,
    ) -> None:
        self.votes_for_others_only = False  # never campaigns: its log is incomplete
        self.contact = LeaderContact(clock, patience, host.listens_since)
        self.candidacy = Candidacy(clock)
        self._members = members
        self._library = library
        self._journal = journal
        self._host = host
        self._patience = patience
        self._clock = clock

    is_amnesiac: bool = alias("_journal.hard_state.amnesiac")
    """True if this member may have made promises that it does not know of: its answers do not count, and its votes do only if
    it can have forgotten entries only, and all others vote, too."""

    @property
    def votes(self) -> bool:
        """True if this member votes and counts for a majority, as far as it knows."""
        return self._members.is_voter and not self.is_amnesiac

    @property
    def _knows_votes(self) -> bool:
        return self._journal.hard_state.amnesia is not Amnesia.ALL

    def leader_gone(self) -> None:
        """Campaign as soon as the others, too, can take the leader for gone: there is none, or it is silent."""
        soonest = self.contact.doubted_from()
        spread = self._patience.election_spread()
        self._library.election_deadline = min(self._library.election_deadline, soonest + spread)

    def leader_was_slow(self) -> None:
        """Note that a leader of an earlier term is alive: it was replaced because it was slow."""
        self._patience.setback(self._library.term)

    # --- voter ------------------------------------------------------------------------------------------------------------

    def _believes(self) -> bool:
        """True if this member leads or takes a leader for alive, against which it helps no candidate (S16)."""
        return self._library.is_leader or self.contact.is_alive()

    def on_vote_request(self, node: Peer, message: VoteRequest) -> None:
        """Answer a candidate's request for a vote, or its pre-vote."""
        if not self._knows_votes:
            return
        if message.transfer:
            self._patience.excuse(message.term)  # the leader itself requested it
        term = self._library.term
        if message.term < term:
            self._host.send(node.id, VoteAnswer(term, message.pre, granted=False))
        elif message.pre:
            log = self._journal.log
            granted = (
                message.term > term
                and not self._believes()
                and (message.last_term, message.last_index) >= (log.last_term, log.last_index)
            )
            answer = VoteAnswer(message.term if granted else term, pre=True, granted=granted, partial=self.is_amnesiac)
            self._host.send(node.id, answer)
        elif message.transfer or not self._believes():
            self._library.handle(
                node,
                {
                    "type": "request_vote",
                    "term": message.term,
                    "last_log_index": message.last_index,
                    "last_log_term": message.last_term,
                },
            )

    def on_readmit(self, node: Peer, message: Readmit, equal: RaftIndex) -> None:
        """An amnesiac member is readmitted once it durably holds an entry that a leader made in its own term after it had met
        this life, and that was committed without it (*equal* is how far this log is that leader's).

        Why that is enough. Let C be the entry, T its term, Q the majority that committed it; each of Q was in T after this life
        began. The leader dropped the earlier life's acknowledgements in T when it met this one, and entries committed by them
        before precede C; one that it acknowledged in a term before T and that was committed is in T's leader's log, before C. An
        acknowledgement in a later term presumes a leader of that term, elected before this life by one of Q: but Q was in T after
        that. A vote that it gave in a later term, and forgot, elects no leader any more: the candidate had left T before C was
        made, and without a member of Q, which has C, it has no majority. Its vote in T itself counts as given. Neither Q nor an
        earlier life had to be of the voters in force now: this uses only that two majorities have a member in common, and those
        that meet here are of one configuration or of two that differ by one voter. So observers become whole in the same way, and
        count from the moment of their promotion. Less is not enough: acknowledgements of an amnesiac member could commit for a
        leader of the past, which it does not know for one; and a commit index covers no entries that are being committed by
        acknowledgements of the earlier life.

        Entry 0: the leader was elected by the votes of all, this member's in this life among them. Then nothing can be
        committed in an earlier term any more, all that was committed and is left anywhere is in the leader's log, and the leader
        has counted nothing of this member. A member that has forgotten its votes cannot know that its vote was one of these."""
        term, hard_state = self._library.term, self._journal.hard_state
        if not self.is_amnesiac or message.term != term or message.index > equal:
            return
        if not message.index and not (self._knows_votes and hard_state.voted_for == node.id):
            return
        if hard_state.voted_for is None:
            self._library.vote(node.id)
        hard_state.mark_readmitted()

    def on_elected(self) -> None:
        """Readmit this leader: a majority of whole members has voted for it, or all have. Either have all entries that were
        committed in earlier terms, as far as they are left, in none of which anything can be committed any more: so all that this
        member had forgotten is in its log, or lost for good."""
        if self.is_amnesiac:
            self._journal.hard_state.mark_readmitted()

    # --- candidate ----------------------------------------------------------------------------------------------------------

    @property
    def _campaigns(self) -> bool:
        return (
            self._members.is_voter
            and self._knows_votes
            and not self.votes_for_others_only
            and self._host.may_campaign(self._library.commit, met_leader=self.contact.met)
        )

    def on_vote_answer(self, node: Peer, message: VoteAnswer) -> None:
        """Handle the answer of a voter: it votes for this member, would do so, or refuses."""
        term = self._library.term
        if not message.granted:
            if message.term > term:
                self._library.adopt(message.term)
        elif message.pre:
            if message.term == term + 1:
                self.candidacy.grant(message.term, node.id, partial=message.partial)
                self._count_pre_vote()
        elif message.term == term and self._library.is_candidate:
            others, mine = len(self._members.others), self.is_amnesiac
            for _ in range(self.candidacy.count(node.id, others, partial=message.partial, own_partial=mine)):
                if self._library.is_candidate:
                    self._library.handle(node, {"type": "response_vote", "term": message.term})

    def on_timeout_now(self, node: Peer, message: TimeoutNow) -> None:
        """Campaign at once or not at all: any later answer of this member in this term shows the leader that it does not."""
        library = self._library
        if not self._campaigns or message.term != library.term:
            return
        library.handle(node, {"type": "timeout_now", "term": message.term})
        if library.transfer_pending:
            self.before_tick()
            library.tick()
            library.transfer_pending = False
            if library.is_follower:
                library.restart_election_timer()

    def before_tick(self) -> None:
        """Prepare the library's tick of a member that does not lead (S16): after the election timeout, begin with a pre-vote;
        the library campaigns only if a majority would vote."""
        library = self._library
        if library.election_deadline >= self._clock.seconds:
            return
        self.candidacy.by_transfer = library.transfer_pending
        if self.candidacy.by_transfer:
            self._patience.excuse(Term(library.term + 1))
            return
        if self._takes_its_chance():
            self._leader_replaced()
            return
        left = self.contact.left_to_listen()
        if left > 0:
            library.election_deadline = self._clock.seconds + left / SECOND
            return
        if library.is_candidate:  # no member has won this term
            self._patience.setback(library.term)
        library.restart_election_timer()
        library.forget_leader()
        if self._campaigns:
            self._ask()

    def _ask(self) -> None:
        """Begin a pre-vote."""
        term, log = Term(self._library.term + 1), self._journal.log
        self.candidacy.begin_pre_vote(term)
        question = VoteRequest(term, log.last_index, log.last_term, pre=True, transfer=False)
        for peer in self._members.others:
            self._host.send(peer, question)
        self._count_pre_vote()

    def _count_pre_vote(self) -> None:
        if self.candidacy.wins_pre_vote(len(self._members.others), partial=self.is_amnesiac):
            self._library.election_deadline = float("-inf")

    def _takes_its_chance(self) -> bool:
        """True if this member has won a pre-vote that is still valid. Between the last answer and this turn, links may have
        ended, this process may have been stopped, and another configuration may have come into force."""
        if not self.candidacy.take_win():
            return False
        reached = 1 + sum(node in self._library.linked for node in self._members.others.values())
        return reached >= self._members.majority and self._campaigns

    def _leader_replaced(self) -> None:
        """Note that another leader, or an election, replaces a leader: a reason may be that this node was late itself."""
        if self.contact.was_late():
            self._patience.setback(self._library.term)

    # --- calls of the library -----------------------------------------------------------------------------------------------

    def on_message(self, peer: str, message: dict[str, Any]) -> None:
        """Handle a message that the library itself sends."""
        match message["type"]:
            case "request_vote":
                sent: Message = VoteRequest(
                    message["term"],
                    message["last_log_index"],
                    message["last_log_term"],
                    pre=False,
                    transfer=self.candidacy.by_transfer,
                )
            case "response_vote":
                sent = VoteAnswer(message["term"], pre=False, granted=True, partial=self.is_amnesiac)
            case "timeout_now":
                sent = TimeoutNow(message["term"])
            case kind:
                raise InvariantError(f"the library sends {kind}")
        self._host.send(peer, sent)
