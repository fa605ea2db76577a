"""PySyncObj under plain names: the one object of the library in a group, on a clock and a journal of its own.

The rest of the shell reads and changes the library's state, and calls its handlers, through the properties and methods of
`Library` alone; the library calls back through `LibraryEvents`. Its own names (`_SyncObj__…`) appear here and in `compat` only.

Promises: the library never applies, compacts, loads or forwards anything (S7, S8, S9, S12). Never patches the library: its
functions read the time and make the journal by globals of their module, so an instance of `Library` runs those functions with
globals of its own. Decides nothing by Raft's rules: that is for its users.
"""

from collections.abc import Callable, Collection
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol

import pysyncobj.syncobj as library
from pysyncobj.syncobj import SyncObj
from stan_protocol.scalars import SECOND, Nanos, RaftIndex, Term

from stan import limits
from stan.alias import alias
from stan.invariant import InvariantError
from stan.raft.pysyncobj.compat import CANDIDATE, FOLLOWER, LEADER, Peer, SyncObjConf, Transport
from stan.raft.pysyncobj.journal import GroupJournal

NOW = float("-inf")
"""A time that has passed, in seconds."""


class LibraryClock:
    """The time that the library sees: the one set for the running call."""

    def __init__(self, now: Nanos) -> None:
        self.now = now
        self.seconds = now / SECOND

    def set(self, now: Nanos) -> None:
        """Set the time to *now*."""
        self.now = now
        self.seconds = now / SECOND


class LibraryEvents(Protocol):
    """The calls of the library inside its handlers: they may only take notes and queue messages."""

    def election_timeout(self) -> float:
        """Return the wait of a follower for a leader, in seconds. The constructor of `Library` calls it, too."""

    def on_new_term(self) -> None:
        """A later term is about to be saved."""

    def on_role(self, *, leads: bool) -> None:
        """The role was set, perhaps to the same one."""

    def on_equal(self, index: RaftIndex) -> None:
        """The running AppendEntries shows that the log is the leader's up to *index*; to be answered with success."""

    def on_conflict(self, index: RaftIndex | None) -> None:
        """The running AppendEntries follows an entry that the log does not have: at *index* is one of another term, or,
        with None, none at all. To be answered with a reset."""

    def on_heartbeat_due(self) -> None:
        """A leader has to send entries and heartbeats, after the handler."""

    def on_message(self, peer: str, message: dict[str, Any]) -> None:
        """A message of the library about votes leaves for a peer."""


class Library(SyncObj):  # type: ignore[misc] # the library is not typed
    """The library's state machine for one member of one group. Times are in seconds on its clock."""

    def __init__(
        self, me: Peer, peers: list[Peer], clock: LibraryClock, journal: GroupJournal, events: LibraryEvents
    ) -> None:
        names = {
            **vars(library),
            "monotonicTime": partial(getattr, clock, "seconds"),
            "createJournal": lambda _file: journal,
        }

        def bound(name: str) -> MethodType:
            published = SyncObj.__dict__[name]
            return MethodType(FunctionType(published.__code__, names, name, published.__defaults__), self)

        self._clock = clock
        self._events = events
        self._journal = journal
        self.is_leader = False  # as far as this member knows
        self.due_at = NOW  # when a tick has something to do, unless this member campaigns before that
        self.silent_at = NOW  # a leader: `wait_for_answers` has to precede a tick from then on
        self.handle: Callable[[Peer, dict[str, Any]], None] = bound("_SyncObj__onMessageReceived")
        """Handle a message, in the library's form."""
        self._SyncObj__getCurrentLogIndex = partial(getattr, journal, "end")
        self._SyncObj__onBecomeLeader = bound("_SyncObj__onBecomeLeader")
        self._library_tick = bound("_onTick")
        bound("__init__")(me, peers, _conf(), transport=_Facade(events))
        self._poller = _NoPoller()
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex

    # --- state --------------------------------------------------------------------------------------------------------------

    term: Term = alias("_SyncObj__raftCurrentTerm")
    """Current term."""
    commit: RaftIndex = alias("_SyncObj__raftCommitIndex")
    """Newest entry known to be committed; the shell corrects the library, which counts more as committed."""
    term_begins: RaftIndex = alias("_SyncObj__noopIDx")
    """The leader's own first entry; everything before it is of earlier terms."""
    linked: set[Peer] = alias("_SyncObj__connectedNodes")
    """Voters and observers to which there is a link. Not to be changed."""
    linked_observers: set[Peer] = alias("_SyncObj__readonlyNodes")
    """Observers to which there is a link. Not to be changed."""
    matches: dict[Peer, RaftIndex] = alias("_SyncObj__raftMatchIndex")
    """Of a leader: the match index of each other member (`set_match`). Not to be changed."""
    _conf: SyncObjConf = alias("_SyncObj__conf")
    election_deadline: float = alias("_SyncObj__raftElectionDeadline")
    """When this member campaigns if it does not lead; minus infinity if at once."""

    @property
    def is_candidate(self) -> bool:
        """True if this member has asked for votes and neither won nor given up."""
        return bool(self._SyncObj__raftState == CANDIDATE)

    @property
    def is_follower(self) -> bool:
        """True if this member neither leads nor is a candidate."""
        return bool(self._SyncObj__raftState == FOLLOWER)

    @property
    def leader(self) -> str | None:
        """Last known leader of the current term."""
        node: Peer | None = self._SyncObj__raftLeader
        return None if node is None else node.id

    @property
    def transfer_pending(self) -> bool:
        """True while this member was asked to campaign (TimeoutNow) and has not begun."""
        return bool(self._SyncObj__transferInProgress)

    @transfer_pending.setter
    def transfer_pending(self, pending: bool) -> None:
        """End, with False, a request to campaign without a result."""
        self._SyncObj__transferInProgress = pending

    # --- roles --------------------------------------------------------------------------------------------------------------

    def restart_election_timer(self) -> None:
        """Wait an election timeout, from now on, before campaigning."""
        self._SyncObj__raftElectionDeadline = self._clock.seconds + self._SyncObj__generateRaftTimeout()

    def forget_leader(self) -> None:
        """Forget the leader of the term."""
        self._SyncObj__raftLeader = None

    def step_down(self) -> None:
        """Become a follower, and wait an election timeout before campaigning again."""
        if self._SyncObj__raftState != FOLLOWER:
            self._SyncObj__setState(FOLLOWER)
        self.forget_leader()
        self.restart_election_timer()

    def adopt(self, term: Term) -> None:
        """Become a follower in a later *term*, that of another member."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self.forget_leader()

    def vote(self, peer: str) -> None:
        """Give the vote of the current term to a peer, durably, without a message."""
        self._SyncObj__setCurrentTerm(self.term, peer)

    # --- handlers -----------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Run the library's tick: campaign, commit, step down. `due_at` is the earliest time at which there is more to do."""
        self._library_tick(0.0)
        self.due_at = self._SyncObj__startTime + self._SyncObj__numOneSecondDumps
        if self.is_leader:
            self.due_at = min(self.due_at, self.silent_at, self._SyncObj__newAppendEntriesTime)

    link: Callable[[Peer], None] = alias("_SyncObj__onNodeConnected")
    """Note a link to another voter."""
    unlink: Callable[[Peer], None] = alias("_SyncObj__onNodeDisconnected")
    """Note that the link to another voter is gone."""
    link_observer: Callable[[Peer], None] = alias("_SyncObj__onReadonlyNodeConnected")
    """Note a link to an observer."""
    unlink_observer: Callable[[Peer], None] = alias("_SyncObj__onReadonlyNodeDisconnected")
    """Note that the link to an observer is gone."""
    ask_to_campaign: Callable[[Peer], None] = alias("transferLeadership")
    """Send TimeoutNow to a follower, if its match index is the end of the log."""

    # --- leader -------------------------------------------------------------------------------------------------------------

    def match(self, node: Peer) -> RaftIndex:
        """A member's match index: it counts for the majority up to here."""
        return RaftIndex(self._SyncObj__raftMatchIndex[node])

    def set_match(self, node: Peer, index: RaftIndex) -> None:
        """Set a member's match index. If it is beyond the commit index, the next tick may commit more."""
        matches = self._SyncObj__raftMatchIndex
        if index > self._SyncObj__raftCommitIndex and matches.get(node) != index:
            self.due_at = NOW
        matches[node] = index

    def note_answer(self, node: Peer, now: Nanos) -> Nanos:
        """Note an answer: a leader without answers of a majority steps down. Returns the time of its previous answer."""
        answered = self._SyncObj__lastResponseTime
        before = Nanos(int(answered.get(node, now / SECOND) * SECOND))
        answered[node] = now / SECOND
        return before

    def wait_for_answers(self, nodes: Collection[Peer], since: Nanos, patience: Nanos) -> None:
        """Before a leader's tick at `silent_at` or later: it steps down after *patience* without answers of a majority, which
        counts from *since* at the earliest. *nodes*: the other voters."""
        self._conf.leaderFallbackTimeout = patience / SECOND
        earliest, answered = since / SECOND, self._SyncObj__lastResponseTime
        for node in nodes:
            answered[node] = max(answered[node], earliest)
        newest_first = sorted(map(answered.__getitem__, nodes), reverse=True)
        self.silent_at = newest_first[(len(nodes) - 1) // 2] + limits.RAFT_LEADER_PATIENCE / SECOND

    def is_heartbeat_due(self, now: Nanos) -> bool:
        """True if the next heartbeat should have left."""
        return bool(now / SECOND > self._SyncObj__newAppendEntriesTime)

    def plan_heartbeat(self) -> None:
        """Set the time of the next heartbeat. Those of all groups fall on the same instants, so that they leave in one frame."""
        period = limits.RAFT_HEARTBEAT_INTERVAL / SECOND
        self._SyncObj__newAppendEntriesTime = (self._clock.seconds // period + 1) * period - period / 100

    # --- calls of the library -------------------------------------------------------------------------------------------------

    _SyncObj__generateRaftTimeout: Callable[[], float] = alias("_events.election_timeout")
    """Library: draw the wait of a follower for a leader, in seconds."""

    def _SyncObj__setCurrentTerm(self, term: Term, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Library: remember term and vote, before a message shows them."""
        if term > self.term:
            self._events.on_new_term()
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)

    def _SyncObj__setState(self, newState: int) -> None:  # noqa: N802, N803
        """Library: change the role. A former leader waits like all others before it campaigns."""
        if newState == FOLLOWER == self._SyncObj__raftState:  # with each AppendEntries
            return
        self.due_at = self.silent_at = NOW
        if newState != LEADER and self.is_leader:
            self.restart_election_timer()
        super()._SyncObj__setState(newState)
        self.is_leader = newState == LEADER
        self._events.on_role(leads=newState == LEADER)

    def _SyncObj__getEntries(  # noqa: N802
        self,
        fromIDx: int,  # noqa: N803
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: ARG002, N803 - for messages, which the shell makes
    ) -> list[tuple[None, RaftIndex, Term] | int]:
        """Library: the entry at an index, and the following ones unless *count* is 1. It reads one term, and counts the
        others: it would search them for changes of the voters that are none of this project's."""
        journal = self._journal
        index, end = RaftIndex(fromIDx), journal.end
        if index < journal.first_index - 1 or index > end:
            return []
        first = (None, index, journal.term_at(index))
        return [first] if count == 1 else [first, *range(index + 1, end + 1)]

    def _SyncObj__sendNextNodeIdx(  # noqa: N802
        self,
        node: Peer,  # noqa: ARG002 - the answer goes out after the journal's write
        reset: bool = False,  # noqa: FBT001, FBT002 - the library's signature
        nextNodeIdx: int | None = None,  # noqa: N803
        success: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Library: answer an AppendEntries. The shell answers when the handler is done."""
        if success and nextNodeIdx is not None:
            self._events.on_equal(RaftIndex(nextNodeIdx - 1))
        elif reset:
            self._events.on_conflict(None if nextNodeIdx is None else RaftIndex(nextNodeIdx))
        else:
            raise InvariantError("the library answers an AppendEntries in a way it never does")

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Library: send missing entries, and heartbeats. Done at the end of the turn, after the journal's write."""
        self.plan_heartbeat()
        self._events.on_heartbeat_due()

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Library: apply committed entries. The group hands them out instead, once and in order (S9)."""
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

    def _SyncObj__doApplyCommand(self, command: object) -> None:  # noqa: N802
        """Library: run a pickled command. Never called."""
        raise InvariantError(f"nothing is applied by the library, not even {command!r:.80}")

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803, FBT001
        """Library: load a snapshot, whatever it is (S7, S12). Never called."""
        raise InvariantError(f"snapshots do not travel in band (clear the journal: {clearJournal})")

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Library: append or forward queued commands. A leader writes its own entries, and none are queued."""

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Library: pickle the state and cut the log. Retention does it."""


def _conf() -> SyncObjConf:
    return SyncObjConf(
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


class _Facade(Transport):  # type: ignore[misc] # the library is not typed
    """The library's transport: it only sends votes and requests for them through it."""

    ready = True

    def __init__(self, events: LibraryEvents) -> None:
        super().__init__(None, None, None)
        self._events = events

    def send(self, node: Peer, message: dict[str, Any]) -> bool:
        """Pass a message on; it leaves, as far as the library knows."""
        self._events.on_message(node.id, message)
        return True


class _NoPoller:
    """The library's poller: it has no sockets."""

    def poll(self, timeout: float) -> None:
        """Return at once, as there is nothing to wait for."""
