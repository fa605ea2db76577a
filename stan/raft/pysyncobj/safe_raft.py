"""PySyncObj inside a safety shell that keeps Raft's rules: its election and commit logic is used, its errors are kept out.

Every message passes a filter before the library's handler sees it, every answer is made here, and the journal writes when the
handler is done. The hazards S1 to S16 are those that tests/raft/test_hazards.py shows on the bare library:

    S1 S5  entries that a follower holds already are cut off a message; only an entry of another term is ever replaced
    S2     the commit index covers only what the message has verified, and never goes back
    S3     answers carry term and number; old ones are dropped, newer terms make a leader step down
    S4     one vote per voter and term
    S11    a conflict is answered with the first entry of the conflicting term
    S15    a window per follower
    S16    a stale leader gets an answer with the newer term; before an election, a pre-vote asks whether it could be won

Promises: term and vote are durable before a message that shows them leaves; a follower's answer covers only what is durable
there; a leader counts itself only as far as its own log is durable. Never calls the library from inside one of its handlers.
"""

from collections.abc import Iterable
from random import Random

from stan import limits
from stan.errors import Damage, DiskFull
from stan.invariant import InvariantError, invariant
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.compat import FOLLOWER, LEADER, Peer
from stan.raft.pysyncobj.election import Election, RaftHost
from stan.raft.pysyncobj.journal import Command, GroupJournal
from stan.raft.pysyncobj.lazy_followers import LazyFollowers
from stan.raft.pysyncobj.replication import Progress
from stan.raft.transport.codec import AppendAnswer, AppendEntries, Message, Readmit, TimeoutNow, VoteAnswer, VoteRequest
from stan.types import SECOND, Nanos, RaftIndex, Term

FOREVER = Nanos((1 << 63) - 1)
"""The lease of a leader that is the only voter."""


class SafeRaft(Election):
    """One member of one group. An observer (`me` is not among the voters) takes entries and does not campaign."""

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
        self.progress: dict[Peer, Progress] = {}  # of each follower and observer; empty unless this member leads
        self._verified = RaftIndex(0)  # equal to the log of this term's leader up to here
        self._seq = 0  # of the newest AppendEntries of this term
        self._owes: Peer | None = None  # the leader that gets an answer once this member's log is durable
        self._reset_to: RaftIndex | None = None  # what the running handler answers instead of success
        self._heartbeat_due = False  # a heartbeat is due
        self._up: set[str] = set()  # peers with a link
        self.wanted = RaftIndex(0)  # newest entry that the leader itself waits for
        self.lazy_followers = LazyFollowers(voters, me)
        super().__init__(me, voters, observers, journal, host, random, now)

    # --- time, proposals, durability ------------------------------------------------------------------------------------

    def turn(self, now: Nanos) -> None:
        """Do what is due: campaign, commit, step down, send."""
        self.tell_time(now)
        if not self.is_leader:
            self._gate()
        self._onTick(0.0)
        self._settle()
        if self.is_leader:
            if self._heartbeat_due:
                self._readmit()
            self._replicate()

    def append(self, commands: list[Command]) -> None:
        """Write the leader's own entries. Raises DiskFull or Frozen: nothing was written."""
        invariant(self.is_leader, "only a leader appends", me=self._me)
        for command in commands:
            self.journal.add(command, self.journal.end + 1, self.term)
            self.lazy_followers.wrote(len(command.body))
        self.journal.flush()

    def synced(self) -> None:
        """More of this member's log is durable than before: count it, and send an answer that waited for it."""
        for node in self._others.values() if self.is_leader else ():
            self._count(node, self.progress[node])
        if self._owes is not None:
            self._answer(self._owes)

    @property
    def waits_for_disk(self) -> bool:
        """True if an answer or a commit may wait for more of this member's log to become durable."""
        if not self.is_leader:
            return self._owes is not None
        commit = self.commit
        return not self._others or any(progress.acked > commit for progress in self.progress.values())

    def hand_over(self, peer: str) -> None:
        """Ask a follower to campaign now (TimeoutNow), if it holds the whole log and was not asked already."""
        node = self._others[peer]
        progress = self.progress[node]
        if progress.appends.is_asked or node not in self._SyncObj__connectedNodes:
            return
        if progress.acked == self.journal.end == self._SyncObj__raftMatchIndex[node]:
            self.transferLeadership(node)
            progress.appends.ask()
            self._heartbeat_due = True  # the answer to what is sent from now on is a refusal

    def counting(self) -> set[str]:
        """Leader: names of the members whose acknowledgements count, itself and observers included."""
        return {self._me} | {str(node.id) for node, progress in self.progress.items() if progress.counts}

    def successor(self) -> str | None:
        """Leader: of the voters with a link whose answers count, the one with the newest durable log; None without one."""
        fit = [
            (not progress.needs_snapshot, progress.acked, name)
            for name, node in self._others.items()
            if node in self._SyncObj__connectedNodes and (progress := self.progress.get(node)) and progress.counts
        ]
        return max(fit)[-1] if fit else None

    @property
    def handing_over(self) -> bool:
        """True while a follower that was asked to campaign has not refused."""
        return any(progress.appends.is_asked for progress in self.progress.values())

    def lease_until(self) -> Nanos:
        """End of the lease: until then no other member can be elected; 0 if this member does not lead or hands over.

        Every follower that answers an AppendEntries promises not to vote for another member for RAFT_ELECTION_TIMEOUT_MIN. The
        lease counts from the time when the newest message that a majority answered was sent, less RAFT_CLOCK_MARGIN. There is no
        lease while a follower is asked to campaign: that follower, and the members that vote for it, are exempt from the promise.
        """
        if not self.is_leader or self.handing_over:
            return Nanos(0)
        if self.majority == 1:
            return FOREVER
        confirmed = sorted((self.progress[node].appends.confirmed for node in self._others.values()), reverse=True)
        since = confirmed[self.majority - 2]
        return Nanos(since + limits.RAFT_ELECTION_TIMEOUT_MIN - limits.RAFT_CLOCK_MARGIN) if since else Nanos(0)

    # --- peers ------------------------------------------------------------------------------------------------------------

    def peer_up(self, peer: str, now: Nanos) -> None:
        """A link to the peer begins: messages that were on the way are lost."""
        self.tell_time(now)
        self._up.add(peer)
        self._greet(peer)

    def _greet(self, peer: str) -> None:
        if peer in self._others:
            self._SyncObj__onNodeConnected(self._others[peer])
        elif peer in self._observers and self._votes_at_all:
            node = self._observers[peer]
            self._SyncObj__onReadonlyNodeConnected(node)
            if self.is_leader:  # a Progress of this term is kept: its sequence numbers continue
                self.progress.setdefault(node, Progress(RaftIndex(self.journal.end + 1)))
        node = Peer(peer)
        progress = self.progress.get(node)
        if progress is not None:
            progress.reset_for_new_link(self.journal.end)
            self._count(node, progress)
            self._heartbeat_due = True

    def peer_down(self, peer: str, now: Nanos) -> None:
        """The link to the peer is gone."""
        self.tell_time(now)
        if peer == self.leader and not self.is_leader:
            self.leader_gone(now)
        self._up.discard(peer)
        if peer in self._others:
            self._SyncObj__onNodeDisconnected(self._others[peer])
        elif peer in self._observers and self._votes_at_all:
            self._SyncObj__onReadonlyNodeDisconnected(self._observers[peer])

    def observe(self, names: Iterable[str]) -> None:
        """Serve these observers from now on, and no others."""
        wanted = set(names) - self._others.keys() - {self._me}
        for name in sorted(self._observers.keys() - wanted):
            node = self._observers.pop(name)
            if self._votes_at_all:
                self._SyncObj__onReadonlyNodeDisconnected(node)
            self.progress.pop(node, None)
        for name in sorted(wanted - self._observers.keys()):
            self._observers[name] = Peer(name)
            if name in self._up:
                self._greet(name)

    def receive(self, peer: str, message: Message, now: Nanos) -> None:
        """Handle one message. From a peer that is no voter here only AppendEntries, vote requests and Readmit are handled, and
        from an observer its answers."""
        self.tell_time(now)
        node = self._others.get(peer)
        if node is None:
            if isinstance(message, AppendAnswer) and peer in self._observers:
                self._on_append_answer(self._observers[peer], message)
            if not isinstance(message, AppendEntries | VoteRequest | Readmit):
                return
            node = Peer(peer)  # a voter that this member's configuration does not have yet, or has removed
        match message:
            case AppendEntries():
                self._on_append_entries(node, message)
            case AppendAnswer():
                self._on_append_answer(node, message)
            case VoteRequest():
                self._on_vote_request(node, message)
            case VoteAnswer():
                self._on_vote_answer(node, message)
            case TimeoutNow():
                self._on_timeout_now(node, message)
            case Readmit():
                self._on_readmit(node, message, min(self._verified, self._host.durable()))
                self._answer(node)
        self._settle()

    # --- follower ---------------------------------------------------------------------------------------------------------

    def _on_append_entries(self, node: Peer, message: AppendEntries) -> None:
        if message.term < self.term:  # S16: the leader was only slow, or cut off
            self._was_wrong(self.term)
            self._host.send(node.id, AppendAnswer(self.term, message.seq, RaftIndex(0), success=False, reset=False))
            return
        invariant(
            message.term > self.term or not self.is_leader,
            "one leader per term",
            term=self.term,
            other=node.id,
            me=self._me,
        )
        commit, verified = self.commit, self._verified if message.term == self.term else RaftIndex(0)
        prev_index, prev_term, entries = self._without_known(message)
        self._heard, self.met_leader, self._asked, self._won_at = self._clock(), True, None, None
        self._reset_to = None
        self._SyncObj__onMessageReceived(
            node,
            {
                "type": "append_entries",
                "term": message.term,
                "commit_index": min(message.commit, prev_index + len(entries)),  # S2
                "prevLogIdx": prev_index,
                "prevLogTerm": prev_term,
                "entries": [(Command(entry.kind, entry.body), entry.index, entry.term) for entry in entries],
            },
        )
        try:
            written = self.journal.flush()
        except DiskFull as error:
            self._host.note(str(error))
            self._SyncObj__raftCommitIndex, self._verified, written = commit, verified, False
        invariant(self.commit >= commit, "the commit index never goes back", commit=self.commit, was=commit)
        self._seq = max(self._seq, message.seq)
        if self._reset_to is not None:
            answer = AppendAnswer(
                self.term, self._seq, self._reset_to, success=False, reset=True, counts=self.knows_its_votes
            )
            self._host.send(node.id, answer)
        elif written and self._host.durable() < self._verified:
            self._owes = node
        else:
            self._answer(node)

    def _without_known(self, message: AppendEntries) -> tuple[RaftIndex, Term, list[Entry]]:
        """S1, S5: previous index, previous term and entries of the message, without the entries that are here already."""
        journal, entries = self.journal, message.entries
        prev_index, prev_term = message.prev_index, message.prev_term
        floor = max(self.commit, journal.base)
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
        known = self.journal.term_at(index) if index >= self.journal.base else Term(0)
        if known and known != term:  # 0: the log does not have the entry anymore
            raise Damage(
                f"entry {index} of term {known} is committed here, for the leader it is of term {term}: "
                "another node has lost what it had acknowledged"
            )

    def _SyncObj__sendNextNodeIdx(  # noqa: N802
        self,
        node: Peer,  # noqa: ARG002 - the answer goes out when the journal has written
        reset: bool = False,  # noqa: FBT001, FBT002 - the library's signature
        nextNodeIdx: int | None = None,  # noqa: N803
        success: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Library: answer an AppendEntries. The answer is kept until the handler is done."""
        if success and nextNodeIdx is not None:
            self._verified = max(self._verified, RaftIndex(nextNodeIdx - 1))
        elif reset and nextNodeIdx is None:
            self._reset_to = RaftIndex(self.journal.end + 1)
        elif reset and nextNodeIdx is not None:  # S11
            conflict = self.journal.first_of_term_at(RaftIndex(nextNodeIdx))
            self._reset_to = max(conflict, RaftIndex(self.commit + 1))
        else:
            raise InvariantError("the library answers an AppendEntries in a way it never does")

    def _answer(self, node: Peer) -> None:
        """Acknowledge to the leader the entries that are durable here and equal to its log."""
        safe = min(self._verified, self._host.durable())
        if safe == self._verified:
            self._owes = None
        answer = AppendAnswer(
            self.term, self._seq, RaftIndex(safe + 1), success=True, reset=False, counts=self.knows_its_votes
        )
        self._host.send(node.id, answer)

    def take_heartbeat_quickly(self, peer: str, term: Term, commit: RaftIndex, seq: int, now: Nanos) -> bool:
        """Answer a heartbeat without news at once. Returns False if the heartbeat has to go through `receive`."""
        leader = self._SyncObj__raftLeader
        if (
            leader is None
            or leader.id != peer
            or term != self._SyncObj__raftCurrentTerm
            or commit != self._SyncObj__raftCommitIndex
            or not commit <= self._verified <= self._host.durable()
            or self._SyncObj__raftState != FOLLOWER
        ):
            return False
        self.tell_time(now)
        self._heard, self.met_leader = self._clock(), True
        self._SyncObj__raftElectionDeadline = self._heard + self._SyncObj__generateRaftTimeout()
        self._seq = max(self._seq, seq)
        self._answer(leader)
        return True

    # --- leader -----------------------------------------------------------------------------------------------------------

    def _on_append_answer(self, node: Peer, message: AppendAnswer) -> None:
        if message.term > self.term:
            self._adopt(message.term)
            return
        progress = self.progress.get(node)
        if message.term < self.term or progress is None or message.next_index > self.journal.end + 1:  # S3
            return
        if node not in self._SyncObj__connectedNodes or not progress.appends.is_news(message.seq):
            return
        if message.success:
            progress.answered(RaftIndex(message.next_index - 1))
        elif message.reset and progress.reset(message.seq, message.next_index) and message.next_index <= progress.most:
            if self.is_voter(str(node.id)):  # an observer may have closed its copy, and begins anew
                self._host.note(
                    f"{node.id} has lost entries {message.next_index} to {progress.most}, which it had acknowledged"
                )
            progress.held = progress.acked = RaftIndex(message.next_index - 1)
        progress.counts, progress.amnesiac = message.counts, not message.counts
        self._count(node, progress)
        if not progress.counts:
            return
        progress.appends.confirm(message.seq)
        self._SyncObj__onMessageReceived(
            node,
            {
                "type": "next_node_idx",
                "next_node_idx": min(progress.acked, self._host.durable()) + 1,
                "success": message.success,
                "reset": False,
            },
        )

    def _count(self, node: Peer, progress: Progress) -> None:
        """Set a member's match index: at most what is durable in this leader's own log, and 0 if the member does not count."""
        counted = min(progress.acked, self._host.durable()) if progress.counts else RaftIndex(0)
        self._SyncObj__raftMatchIndex[node] = counted

    def take_answer_quickly(self, peer: str, answer: AppendAnswer, now: Nanos) -> bool:
        """Take an answer that lets nothing new be committed or sent: it acknowledges only entries that are committed already.

        Returns False if the answer has to go through `receive`."""
        node = self._others.get(peer)
        progress = None if node is None else self.progress.get(node)
        if (
            node is None
            or progress is None
            or not (answer.success and answer.counts and progress.counts)
            or answer.term != self._SyncObj__raftCurrentTerm
            or not progress.acked < answer.next_index <= max(progress.acked, self._SyncObj__raftCommitIndex) + 1
            or progress.next_index <= self.journal.end
            or node not in self._SyncObj__connectedNodes
            or not progress.appends.is_news(answer.seq)
        ):
            return False
        progress.answered(RaftIndex(answer.next_index - 1))
        self._count(node, progress)
        progress.appends.confirm(answer.seq)
        self._SyncObj__lastResponseTime[node] = now / SECOND
        return True

    def heartbeat_at_rest(self, now: Nanos) -> bool:
        """Send the heartbeats that are due, if there is nothing else to send: all is committed, and sent to every follower with a
        link. Returns False if a turn has to look after a follower."""
        if now / SECOND <= self._SyncObj__newAppendEntriesTime:
            return True
        end = self.journal.end
        up = [(node, progress) for node, progress in self.progress.items() if node in self._SyncObj__connectedNodes]
        if self.commit != end or not all(
            progress.next_index == end + 1 and not progress.amnesiac for _, progress in up
        ):
            return False
        self.tell_time(now)
        self._SyncObj__sendAppendEntries()
        self._heartbeat_due = False
        for node, progress in up:
            self._send_append(node, progress, end, [])
        return True

    def rest(self, now: Nanos) -> Nanos:
        """Time of the next turn if no message arrives before."""
        if self.is_leader:
            return Nanos(now + limits.RAFT_LOOK_INTERVAL)
        left = self._SyncObj__raftElectionDeadline - now / SECOND  # minus infinity if an election is due
        return Nanos(now + int(min(max(0.0, left * SECOND), limits.RAFT_REST_MAX)))

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Library: send what followers lack, and heartbeats. Done at the end of the turn, after the journal has written.

        Heartbeats of all groups fall on the same instants, so that they leave in one frame."""
        period = limits.RAFT_HEARTBEAT_INTERVAL / SECOND
        self._SyncObj__newAppendEntriesTime = (self._clock() // period + 1) * period - period / 100
        self._heartbeat_due = True

    def _readmit(self) -> None:
        """Readmit amnesiac members: see Election._on_readmit."""
        amnesiac = [
            (node, progress)
            for node, progress in self.progress.items()
            if progress.amnesiac and node in self._SyncObj__connectedNodes
        ]
        if any(progress.readmit_index is None for _, progress in amnesiac):
            try:
                self.append([Command(Kind.NOOP, b"")])
            except DiskFull as error:
                self._host.note(str(error))
                return
            self.wanted = self.journal.end
        for node, progress in amnesiac:
            if progress.readmit_index is None:
                progress.readmit_index = self.wanted
            elif progress.readmit_index <= min(progress.acked, self.commit):
                self._host.send(node.id, Readmit(self.term, progress.readmit_index))

    def _replicate(self) -> None:
        heartbeat, self._heartbeat_due = self._heartbeat_due, False
        up = [(node, progress) for node, progress in self.progress.items() if node in self._SyncObj__connectedNodes]
        for node, progress in self.lazy_followers.to_send_to(up, self.journal.end, self._now, heartbeat=heartbeat):
            self._send_entries(node, progress, heartbeat=heartbeat)

    def _send_entries(self, node: Peer, progress: Progress, *, heartbeat: bool) -> None:
        """Send a follower the entries that it lacks, as far as its window has room; if there are none, a due heartbeat."""
        journal = self.journal
        while progress.next_index > journal.base and progress.next_index <= journal.end and progress.window.has_room:
            first = progress.next_index
            entries = journal.entries(first, journal.end, limits.RAFT_APPEND_BYTES_MAX)
            self._send_append(node, progress, RaftIndex(first - 1), entries)
            heartbeat = False
        needs = progress.next_index <= journal.base
        if needs and not progress.needs_snapshot:
            self._host.on_snapshot_needed(node.id)
        progress.needs_snapshot = needs
        if heartbeat:
            self._send_append(node, progress, max(journal.base, RaftIndex(progress.next_index - 1)), [])

    def _send_append(self, node: Peer, progress: Progress, prev_index: RaftIndex, entries: list[Entry]) -> None:
        prev_term = self.journal.term_at(prev_index)
        seq = progress.sent(entries, self._now)
        self._host.send(node.id, AppendEntries(self.term, self.commit, prev_index, prev_term, seq, entries))

    # --- changes of role --------------------------------------------------------------------------------------------------

    def _SyncObj__setCurrentTerm(self, term: Term, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Library: remember term and vote, before a message shows them."""
        if term > self.term:
            self._verified, self._seq, self._owes = RaftIndex(0), 0, None
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)

    def _SyncObj__setState(self, newState: int) -> None:  # noqa: N802, N803
        """Library: change the role."""
        super()._SyncObj__setState(newState)
        self.lazy_followers.forget()
        if newState != LEADER:
            self.progress = {}
        elif not self.progress:
            nodes = [*self._others.values(), *sorted(self._SyncObj__readonlyNodes, key=lambda node: str(node.id))]
            self.progress = {node: Progress(RaftIndex(self.journal.end + 1)) for node in nodes}

    def _settle(self) -> None:
        """After a handler: write the entries that it added (a new leader's first entry)."""
        try:
            self.journal.flush()
        except DiskFull as error:
            self._host.note(str(error))
            self.step_down()
        self.journal.hard_state.hint(min(self.commit, self.journal.end))
