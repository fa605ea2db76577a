"""A member of a group as a voter and candidate: PySyncObj's election, held to Raft's rules (see safe_raft.py).

Promises: one vote per voter and term is counted (S4), no vote of a stranger; a term rises only for an election that a majority
says it would vote in, and not while it hears a leader, unless that leader itself asks for one (S16). What a leader's lease
rests on: for RAFT_ELECTION_TIMEOUT_MIN after it heard a leader, or after its start, for it may have heard one just before, this
member neither votes for another nor campaigns, unless the leader handed over. An amnesiac member, whose earlier life may have
promised anything, takes entries and is part of no majority, until it is readmitted (see `_on_readmit`). Who is a voter is for the
candidate and the leader to say: a member that has not applied its own promotion, or has applied that it was removed before
others did, votes and acknowledges for them. Never lets the library apply, compact, load or forward anything.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple, Protocol

from stan import limits
from stan.invariant import InvariantError
from stan.raft.backoff import Backoff
from stan.raft.pysyncobj.compat import CANDIDATE, FOLLOWER, LEADER, Library, LibraryClock, Peer, SyncObjConf, Transport
from stan.raft.pysyncobj.journal import GroupJournal
from stan.raft.transport.codec import Message, Readmit, TimeoutNow, VoteAnswer, VoteRequest
from stan.types import SECOND, Nanos, RaftIndex, Term


class MayCampaign(Protocol):
    """Callback that asks the group whether it may campaign."""

    def __call__(self, commit: RaftIndex, *, met_leader: bool) -> bool:
        """True if everything up to *commit*, which is known to be committed, took effect here, and nothing else is against it."""


class RaftHost(NamedTuple):
    """Callbacks of the shell into its group. Called inside the library's handlers: may only take notes and queue messages."""

    send: Callable[[str, Message], None]  # queue a message for a peer that is up
    durable: Callable[[], RaftIndex]  # newest entry of the own log that counts
    may_campaign: MayCampaign
    # Since when this node has read its peers' messages; the current time if it was stopped or busy until now.
    listens_since: Callable[[], Nanos]
    on_snapshot_needed: Callable[[str], None]  # the peer needs entries that the log no longer has: it wants a snapshot
    note: Callable[[str], None]  # for the operator


class Election(Library):
    """Election of one member of a group. A member that is not among the voters (an observer) never campaigns."""

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
        self._clock = LibraryClock(now)
        names = set(voters)
        self.journal = journal
        self.votes_for_others_only = False  # never campaigns: its log is incomplete
        self._me = me
        self._votes_at_all = me in names
        self._host = host
        self._random = random
        self._SyncObj__transferInProgress: bool
        self._now = now
        self._backoff = Backoff()
        self._replaced = Term(0)  # the newest term whose leader or candidate was counted as a setback
        self._others = {name: Peer(name) for name in sorted(names - {me})}
        self._observers = {name: Peer(name) for name in sorted(set(observers) - {me})}
        self._heard = self._clock()  # when a leader was heard last; an earlier life may just have heard one
        self.met_leader = False  # in this life
        self._asked: tuple[Term, set[str]] | None = None  # term of the pre-vote and who would vote for this member
        self._won_at: float | None = None  # when it won a pre-vote; it did not campaign yet
        self._by_transfer = False
        self._voters_counted: set[str] = set()
        self._conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=limits.RAFT_HEARTBEAT_INTERVAL / SECOND,
            raftMinTimeout=limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND,
            raftMaxTimeout=limits.RAFT_ELECTION_TIMEOUT_MAX / SECOND,
            leaderFallbackTimeout=limits.RAFT_LEADER_PATIENCE / SECOND,
            connectionTimeout=10 * limits.RAFT_ELECTION_TIMEOUT_MAX / SECOND,
            commandsWaitLeader=False,
            commandsQueueSize=0,
            dynamicMembershipChange=False,
            logCompactionMinEntries=1 << 62,
            logCompactionMinTime=1 << 62,
            useFork=False,
        )
        others = list(self._others.values())
        super().__init__(Peer(me), others, self._conf, _Facade(self), self._clock, journal)
        self._poller = _NoPoller()
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex

    # --- what it is -----------------------------------------------------------------------------------------------------

    @property
    def term(self) -> Term:
        """Current term."""
        return Term(self._SyncObj__raftCurrentTerm)

    @property
    def commit(self) -> RaftIndex:
        """Newest entry known to be committed."""
        return RaftIndex(self._SyncObj__raftCommitIndex)

    @property
    def is_leader(self) -> bool:
        """True if this member leads, as far as it knows."""
        return bool(self._SyncObj__raftState == LEADER)

    @property
    def leader(self) -> str | None:
        """Last known leader of the current term."""
        node = self._SyncObj__raftLeader
        return None if node is None else str(node.id)

    @property
    def term_begins(self) -> RaftIndex:
        """The leader's own first entry; everything before it is of earlier terms."""
        return RaftIndex(self._SyncObj__noopIDx)

    @property
    def majority(self) -> int:
        """Number of voters that form a quorum."""
        return (len(self._others) + 1) // 2 + 1

    @property
    def knows_its_votes(self) -> bool:
        """True if this member is not amnesiac: it knows all that it may have promised, so its votes and answers count."""
        return not self.journal.hard_state.amnesiac

    @property
    def votes(self) -> bool:
        """True if this member votes and counts for a majority, as far as it knows."""
        return self._votes_at_all and self.knows_its_votes

    def is_voter(self, peer: str) -> bool:
        """True if *peer* is another voter of the group."""
        return peer in self._others

    def step_down(self) -> None:
        """Become a follower, and wait an election timeout before campaigning again."""
        if self._SyncObj__raftState != FOLLOWER:
            self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None
        self._SyncObj__raftElectionDeadline = self._clock() + self._SyncObj__generateRaftTimeout()

    def tell_time(self, now: Nanos) -> None:
        """It is *now* for whatever follows."""
        self._now = now
        self._clock.tell(now)

    def leader_gone(self, now: Nanos) -> None:
        """There is no leader, or it is silent: campaign as soon as others can have lost their belief in it, too."""
        self.tell_time(now)
        soonest = max(self._clock(), self._heard + self.patience * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND)
        spread = self._random.uniform(0, self.patience * limits.RAFT_ELECTION_SPREAD / SECOND)
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soonest + spread)

    # --- voter and candidate ----------------------------------------------------------------------------------------------

    @property
    def _campaigns(self) -> bool:
        return (
            self.votes
            and not self.votes_for_others_only
            and self._host.may_campaign(self.commit, met_leader=self.met_leader)
        )

    @property
    def patience(self) -> int:
        """Factor by which this member waits longer than usual for a leader, a majority or votes."""
        return self._backoff.factor(self._now)

    def _believes(self) -> bool:
        """True if this member leads or believes in a live leader, against which it helps no candidate (S16).

        A member that was stopped or busy listens first: it may read a candidate's message before the leader's earlier ones."""
        silence = self._clock() - self._heard
        return (
            self.is_leader
            or silence < self.patience * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND
            or (self.met_leader and self._listens_still() > 0)
        )

    def _listens_still(self) -> Nanos:
        """Nanoseconds that this member, after it was stopped or busy, has yet to listen before it takes a leader for silent."""
        if self._clock() - self._heard >= limits.RAFT_SILENCE_MAX / SECOND:
            return Nanos(0)
        return Nanos(max(0, self._host.listens_since() + limits.RAFT_LISTEN - self._now))

    def _was_wrong(self, term: Term) -> None:
        """Count a setback: events in *term* show that elections come too soon. Each term counts once."""
        if term > self._replaced:
            self._replaced = term
            self._backoff.setback(self._now)

    def _reign_ended(self) -> None:
        """Another leader, or an election, takes the place of a leader: who was late itself may be the reason."""
        if self._now - self._host.listens_since() < limits.RAFT_LATE_MEMORY:
            self._was_wrong(self.term)

    def _on_vote_request(self, node: Peer, message: VoteRequest) -> None:
        if not self.knows_its_votes:
            return
        if message.transfer:
            self._replaced = max(self._replaced, message.term)  # the leader itself wanted it
        if message.term < self.term:
            self._host.send(node.id, VoteAnswer(self.term, message.pre, granted=False))
        elif message.pre:
            log = self.journal.log
            granted = (
                message.term > self.term
                and not self._believes()
                and (message.last_term, message.last_index) >= (log.last_term, log.last_index)
            )
            self._host.send(node.id, VoteAnswer(message.term if granted else self.term, pre=True, granted=granted))
        elif message.transfer or not self._believes():
            self._SyncObj__onMessageReceived(
                node,
                {
                    "type": "request_vote",
                    "term": message.term,
                    "last_log_index": message.last_index,
                    "last_log_term": message.last_term,
                },
            )

    def _on_vote_answer(self, node: Peer, message: VoteAnswer) -> None:
        if not message.granted:
            if message.term > self.term:
                self._adopt(message.term)
        elif message.pre:
            if self._asked is not None and self._asked[0] == message.term == self.term + 1:
                self._asked[1].add(node.id)
                self._count_asked()
        elif (
            message.term == self.term and self._SyncObj__raftState == CANDIDATE and node.id not in self._voters_counted
        ):
            self._voters_counted.add(node.id)  # S4
            self._SyncObj__onMessageReceived(node, {"type": "response_vote", "term": message.term})

    def _on_timeout_now(self, node: Peer, message: TimeoutNow) -> None:
        """Campaign at once or not at all: whatever this member answers later in this term tells the leader that it does not."""
        if not self._campaigns or message.term != self.term:
            return
        self._SyncObj__onMessageReceived(node, {"type": "timeout_now", "term": message.term})
        if self._SyncObj__transferInProgress:
            self._gate()
            self._onTick(0.0)
            self._SyncObj__transferInProgress = False
            if self._SyncObj__raftState == FOLLOWER:
                self._SyncObj__raftElectionDeadline = self._clock() + self._SyncObj__generateRaftTimeout()

    def _on_readmit(self, node: Peer, message: Readmit, equal: RaftIndex) -> None:
        """An amnesiac member is readmitted once it durably holds an entry that a leader made in its own term after it had met
        this life, and that was committed without it (*equal* is how far this log is that leader's).

        Why that is enough. Let C be the entry, T its term, Q the majority that committed it; each of Q was in T after this life
        began. What the earlier life acknowledged in T, the leader forgot when it met this one, and what was committed by it
        before precedes C; what it acknowledged in a term before T and was committed is in the log of T's leader, before C. An
        acknowledgement in a later term presumes a leader of that term, elected before this life by one of Q: but Q was in T after
        that. A vote that it gave in a later term, and forgot, can elect nobody any more: the candidate had left T before C was
        made, and without somebody of Q, who has C, it has no majority. Its vote in T itself counts as given. Neither Q nor an
        earlier life had to be of the voters in force now: what is used is that two majorities have a member in common, and those
        that meet here are of one configuration or of two that differ by one voter. So observers become whole in the same way, and
        count from the moment of their promotion. Less is not enough: acknowledgements of an amnesiac member could commit for a
        leader of the past, which it does not know for one; and a commit index says nothing of what is being committed by
        acknowledgements of the earlier life."""
        if self.knows_its_votes or message.term != self.term or message.index > equal:
            return
        if self.journal.hard_state.voted_for is None:
            self._SyncObj__setCurrentTerm(self.term, node.id)
        self.journal.hard_state.mark_readmitted()

    def _adopt(self, term: Term) -> None:
        """Somebody is in a later term."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def _gate(self) -> None:
        """S16: when the election timeout has passed, ask first; the library campaigns only if a majority would vote."""
        if self._SyncObj__raftElectionDeadline >= self._clock():
            return
        self._by_transfer = bool(self._SyncObj__transferInProgress)
        if self._by_transfer:
            self._replaced = Term(self.term + 1)
            return
        if self._takes_its_chance():
            self._reign_ended()
            return
        left = self._listens_still()
        if left > 0:
            self._SyncObj__raftElectionDeadline = self._clock() + left / SECOND
            return
        if self._SyncObj__raftState == CANDIDATE:  # nobody has won this term
            self._was_wrong(self.term)
        self._SyncObj__raftElectionDeadline = self._clock() + self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftLeader = None
        if not self._campaigns:
            return
        term = Term(self.term + 1)
        self._asked = (term, {self._me})
        log = self.journal.log
        question = VoteRequest(term, log.last_index, log.last_term, pre=True, transfer=False)
        for peer in self._others:
            self._host.send(peer, question)
        self._count_asked()

    def _count_asked(self) -> None:
        if self._asked is not None and len(self._asked[1]) >= self.majority:
            self._asked = None
            self._won_at = self._clock()
            self._SyncObj__raftElectionDeadline = float("-inf")

    def _takes_its_chance(self) -> bool:
        """True if this member has won a pre-vote that is still valid. Between the last answer and this turn, links may have
        ended, this process may have been stopped, and another configuration may have come into force."""
        won_at, self._won_at = self._won_at, None
        if won_at is None or self._clock() - won_at >= limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND:
            return False
        reached = 1 + sum(node in self._SyncObj__connectedNodes for node in self._others.values())
        return reached >= self.majority and self._campaigns

    def _SyncObj__setCurrentTerm(self, term: Term, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Library: remember term and vote, before a message shows them."""
        if term > self.term:
            self._asked = self._won_at = None
            self._voters_counted = set()
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)

    def _SyncObj__setState(self, newState: int) -> None:  # noqa: N802, N803
        """Library: change the role. Who has led waits like everybody else before it campaigns."""
        if newState != LEADER and self.is_leader:
            self._SyncObj__raftElectionDeadline = self._clock() + self._SyncObj__generateRaftTimeout()
        super()._SyncObj__setState(newState)

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Library: how long a follower waits for a leader, in seconds."""
        usual = self._random.uniform(limits.RAFT_ELECTION_TIMEOUT_MIN, limits.RAFT_ELECTION_TIMEOUT_MAX) / SECOND
        return self.patience * usual

    def _onTick(self, timeToWait: float) -> None:  # noqa: N802, N803
        """Library: campaign, commit, step down. It counts a leader at once; that tells when nobody else is counted.

        A leader that was stopped or busy itself has heard no answers, which is nobody's silence."""
        before = self.commit
        if self.is_leader and self._others:
            self._conf.leaderFallbackTimeout = self.patience * limits.RAFT_LEADER_PATIENCE / SECOND
            listens, answered = self._host.listens_since() / SECOND, self._SyncObj__lastResponseTime
            for node in self._others.values():
                answered[node] = max(answered[node], listens)
        self._library_tick(timeToWait)
        if self.is_leader and not self._others:
            self._SyncObj__raftCommitIndex = max(before, min(self.commit, self._host.durable()))

    # --- what is kept from the library --------------------------------------------------------------------------------------

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Library: apply what is committed. The group hands it out instead, once and in order (S9)."""
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

    def _SyncObj__doApplyCommand(self, command: object) -> None:  # noqa: N802
        """Library: run a pickled command. Never."""
        raise InvariantError(f"nothing is applied by the library, not even {command!r:.80}")

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Library: take a snapshot in, whatever it is (S7, S12). Never."""
        raise InvariantError(f"snapshots do not travel in band (clear the journal: {clearJournal})")

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Library: append or forward what was queued. A leader writes its own entries, and nobody queues any."""

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Library: pickle the state and cut the log. Retention does it."""

    def translate(self, peer: str, message: dict[str, Any]) -> None:
        """A message that the library itself sends."""
        match message["type"]:
            case "request_vote":
                sent: Message = VoteRequest(
                    message["term"],
                    message["last_log_index"],
                    message["last_log_term"],
                    pre=False,
                    transfer=self._by_transfer,
                )
            case "response_vote":
                sent = VoteAnswer(message["term"], pre=False, granted=True)
            case "timeout_now":
                sent = TimeoutNow(message["term"])
            case kind:
                raise InvariantError(f"the library sends {kind}")
        self._host.send(peer, sent)


class _Facade(Transport):  # type: ignore[misc] # the library is not typed
    """The library's transport: it only sends votes and requests for them through it."""

    def __init__(self, voter: Election) -> None:
        super().__init__(None, None, None)
        self._voter = voter

    def send(self, node: Peer, message: dict[str, Any]) -> bool:
        """See the library's Transport."""
        self._voter.translate(node.id, message)
        return True


class _NoPoller:
    """The library's poller: it has no sockets."""

    def poll(self, timeout: float) -> None:
        """Nothing to wait for."""
