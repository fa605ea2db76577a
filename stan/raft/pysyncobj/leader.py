"""A member of a group as the leader: its messages to followers, their answers, and its lease.

    append ─► journal ─► replicate ─► AppendEntries ─► on_append_answer ─► the library's commit index          (see safe_raft.py)

Promises: the leader counts itself only as far as its own log is durable; answers of another term, or older than an earlier one,
are dropped, and a newer term makes it step down (S3); a follower gets no more than a window (S15).
"""

from itertools import compress
from operator import attrgetter

from stan_protocol.scalars import Nanos, RaftIndex

from stan import limits
from stan.errors import Shortage
from stan.invariant import InvariantError
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.election import Candidacy
from stan.raft.pysyncobj.host import RaftHost
from stan.raft.pysyncobj.journal import Command, GroupJournal
from stan.raft.pysyncobj.lazy_followers import LazyFollowers
from stan.raft.pysyncobj.library import Library, LibraryClock
from stan.raft.pysyncobj.members import Members
from stan.raft.pysyncobj.patience import Patience
from stan.raft.pysyncobj.replication import Progress
from stan.raft.transport.codec import AppendAnswer, AppendEntries, Readmit

FOREVER = Nanos((1 << 63) - 1)
"""The lease of a leader that is the only voter."""
_ACKED, _IS_ASKED, _CONFIRMED = map(attrgetter, ("acked", "appends.is_asked", "appends.confirmed"))


class Leader:
    """A member of a group as the leader. Each member has one, also while it follows."""

    def __init__(
        self,
        members: Members,
        library: Library,
        journal: GroupJournal,
        host: RaftHost,
        patience: Patience,
        clock: LibraryClock,
        candidacy: Candidacy,
    ) -> None:
        self.progress: dict[Peer, Progress] = {}  # of each follower and observer; empty unless this member leads
        self.heartbeat_due = False
        self.awaited = RaftIndex(0)  # newest entry that the leader itself waits for
        self.lazy_followers = LazyFollowers(members.others)
        self._members = members
        self._library = library
        self._journal = journal
        self._host = host
        self._patience = patience
        self._clock = clock
        self._candidacy = candidacy

    # --- turns --------------------------------------------------------------------------------------------------------------

    def before_tick(self) -> None:
        """Prepare the library's tick of a leader. A leader that was stopped or busy has read no answers, which is
        no silence of others."""
        if self._members.others and self._clock.seconds >= self._library.silent_at:
            patience = Nanos(self._patience.factor * limits.RAFT_LEADER_PATIENCE)
            self._library.wait_for_answers(self._members.others.values(), self._host.listens_since(), patience)

    def after_tick(self, commit: RaftIndex) -> None:
        """Finish the library's tick of a leader; *commit* was committed before it. The library counts the leader at
        once, which matters if no other member counts."""
        if not self._members.others:
            self._library.commit = max(commit, min(self._library.commit, self._host.durable()))

    def append(self, commands: list[Command]) -> None:
        """Write the leader's own entries. Raises Shortage or Frozen: nothing was written."""
        journal, library = self._journal, self._library
        if not library.is_leader:
            raise InvariantError(f"only a leader appends (me={self._members.me})")
        size = 0
        for command in commands:
            journal.add(command, journal.end + 1, library.term)
            size += len(command.body)
        self.lazy_followers.wrote(size)
        journal.flush()

    def synced(self) -> None:
        """Count the entries that others have acknowledged up to the new durable index of this leader's log."""
        match = self._library.matches
        for node in self._members.others.values():
            progress = self.progress[node]
            if not progress.counts or match[node] != progress.acked:  # else all of its entries count already
                self._count(node, progress)

    @property
    def waits_for_disk(self) -> bool:
        """True if a commit may wait for more of this leader's log to become durable."""
        commit = self._library.commit
        return not self._members.others or max(map(_ACKED, self.progress.values()), default=0) > commit

    def on_role(self, *, leads: bool) -> None:
        """Note that the role was set, perhaps to the same one."""
        self.lazy_followers.forget()
        if not leads:
            self.progress = {}
        elif not self.progress:
            observers = sorted(self._library.linked_observers, key=lambda node: str(node.id))
            end = self._journal.end
            self.progress = {
                node: Progress(RaftIndex(end + 1)) for node in (*self._members.others.values(), *observers)
            }

    def on_link(self, node: Peer) -> None:
        """Note a new link to a follower or observer. A Progress of this term stays: its sequence numbers continue."""
        if node.id in self._members.observers and self._members.is_voter and self._library.is_leader:
            self.progress.setdefault(node, Progress(RaftIndex(self._journal.end + 1)))
        progress = self.progress.get(node)
        if progress is not None:
            progress.reset_for_new_link(self._journal.end)
            self._count(node, progress)
            self.heartbeat_due = True

    # --- hand-over and lease --------------------------------------------------------------------------------------------

    def hand_over(self, peer: str) -> None:
        """Ask a follower to campaign now (TimeoutNow), if it has the complete log and was not asked already."""
        node = self._members.others[peer]
        progress = self.progress[node]
        if progress.appends.is_asked or node not in self._library.linked:
            return
        if progress.acked == self._journal.end == self._library.match(node):
            self._library.ask_to_campaign(node)
            progress.appends.ask()
            self.heartbeat_due = True  # an answer to a message from now on is a refusal

    def counting(self) -> set[str]:
        """Names of the members whose acknowledgements count, this leader and observers included."""
        return {self._members.me} | {str(node.id) for node, progress in self.progress.items() if progress.counts}

    def acknowledged(self) -> dict[str, RaftIndex]:
        """Newest entry that each other member has acknowledged, by name."""
        return {str(node.id): progress.most for node, progress in self.progress.items()}

    def successor(self) -> str | None:
        """Of the other voters with a link whose answers count, the one with the newest durable log; None without one."""
        fit = [
            (not progress.needs_snapshot, progress.acked, name)
            for name, node in self._members.others.items()
            if node in self._library.linked and (progress := self.progress.get(node)) and progress.counts
        ]
        return max(fit)[-1] if fit else None

    @property
    def handing_over(self) -> bool:
        """True while a follower that was asked to campaign has not refused."""
        return any(map(_IS_ASKED, self.progress.values()))

    def lease_until(self) -> Nanos:
        """End of the lease: until then no other member can be elected; 0 if this member does not lead or hands over.

        Every follower that answers an AppendEntries promises not to vote for another member for RAFT_ELECTION_TIMEOUT_MIN. The
        lease counts from the time when the newest message that a majority answered was sent, less RAFT_CLOCK_MARGIN. There is no
        lease while a follower is asked to campaign: that follower, and the members that vote for it, are exempt from the promise.
        """
        if not self._library.is_leader or self.handing_over:
            return Nanos(0)
        if self._members.majority == 1:
            return FOREVER
        others = map(self.progress.__getitem__, self._members.others.values())
        since = sorted(map(_CONFIRMED, others), reverse=True)[self._members.majority - 2]
        return Nanos(since + limits.RAFT_ELECTION_TIMEOUT_MIN - limits.RAFT_CLOCK_MARGIN) if since else Nanos(0)

    # --- answers --------------------------------------------------------------------------------------------------------

    def on_append_answer(self, node: Peer, message: AppendAnswer) -> None:
        """Handle a follower's or observer's answer to an AppendEntries, perhaps of an earlier leadership."""
        if message.term > self._library.term:
            self._library.adopt(message.term)
            return
        progress = self.progress.get(node)
        if message.term < self._library.term or progress is None or message.next_index > self._journal.end + 1:  # S3
            return
        if node not in self._library.linked or not progress.appends.is_news(message.seq):
            return
        if message.success:
            progress.answered(RaftIndex(message.next_index - 1))
        elif message.reset and progress.reset(message.seq, message.next_index) and message.next_index <= progress.most:
            if node.id in self._members.others:  # an observer may have closed its copy, and starts again
                self._host.note(
                    f"{node.id} has lost entries {message.next_index} to {progress.most}, which it had acknowledged"
                )
            progress.acked_before = progress.acked = RaftIndex(message.next_index - 1)
        progress.counts, progress.amnesiac = message.counts, not message.counts
        progress.has_counted = progress.has_counted or message.counts
        self._count(node, progress)
        if not progress.counts:
            return
        progress.appends.confirm(message.seq)
        self._answered(node, self._clock.now)

    def _answered(self, node: Peer, now: Nanos) -> None:
        """Note that a follower has answered."""
        before = self._library.note_answer(node, now)
        if now - before >= limits.RAFT_LEADER_PATIENCE // 2 and node.id in self._members.others:
            silence = now - max(before, self._host.listens_since())
            self._patience.late(Nanos(silence), limits.RAFT_LEADER_PATIENCE)

    def _count(self, node: Peer, progress: Progress) -> None:
        """Set a member's match index: at most this leader's own durable index, and 0 if the member's answers do not count."""
        counted = min(progress.acked, self._host.durable()) if progress.counts else RaftIndex(0)
        self._library.set_match(node, counted)

    def take_answer_quickly(self, peer: str, answer: AppendAnswer, now: Nanos) -> bool:
        """Handle an answer after which nothing new can be committed or sent: it acknowledges only committed entries.

        Returns False if the answer has to go through `SafeRaft.receive`."""
        node = self._members.others.get(peer)
        progress = None if node is None else self.progress.get(node)
        if (
            node is None
            or progress is None
            or not (answer.success and answer.counts and progress.counts)
            or answer.term != self._library.term
            or not progress.acked < answer.next_index <= max(progress.acked, self._library.commit) + 1
            or progress.next_index <= self._journal.end
            or node not in self._library.linked
            or not progress.appends.is_news(answer.seq)
        ):
            return False
        progress.answered(RaftIndex(answer.next_index - 1))
        self._count(node, progress)
        progress.appends.confirm(answer.seq)
        self._answered(node, now)
        return True

    # --- sending --------------------------------------------------------------------------------------------------------

    def heartbeat_at_rest(self, now: Nanos) -> bool:
        """Send the heartbeats that are due, if there is nothing else to send: all is committed, and sent to every follower with a
        link. Returns False if a follower needs a turn."""
        if not self._library.is_heartbeat_due(now):
            return True
        end, up = self._journal.end, self._up()
        if self._library.commit != end or not all(
            progress.next_index == end + 1 and not progress.amnesiac for _, progress in up
        ):
            return False
        self._clock.set(now)
        self._library.plan_heartbeat()
        self.heartbeat_due = False
        for node, progress in up:
            self._send_append(node, progress, end, [])
        return True

    def _up(self) -> list[tuple[Peer, Progress]]:
        """Followers and observers with a link."""
        return list(compress(self.progress.items(), map(self._library.linked.__contains__, self.progress)))

    def _readmit(self) -> None:
        """Write the entry that readmits amnesiac members, and notify those that have it (see `Election.on_readmit`)."""
        amnesiac = [(node, progress) for node, progress in self._up() if progress.amnesiac]
        if self._candidacy.by_all:
            for node, progress in amnesiac:
                if not progress.has_counted:
                    self._host.send(node.id, Readmit(self._library.term, RaftIndex(0)))
        if any(progress.readmit_index is None for _, progress in amnesiac):
            try:
                self.append([Command(Kind.NOOP, b"")])
            except Shortage as error:
                self._host.note(str(error))
                return
            self.awaited = self._journal.end
        for node, progress in amnesiac:
            if progress.readmit_index is None:
                progress.readmit_index = self.awaited
            elif progress.readmit_index <= min(progress.acked, self._library.commit):
                self._host.send(node.id, Readmit(self._library.term, progress.readmit_index))

    def replicate(self) -> None:
        """End a leader's turn: send followers the entries that they lack, and due heartbeats."""
        if self.heartbeat_due:
            self._readmit()
        heartbeat, self.heartbeat_due = self.heartbeat_due, False
        end = self._journal.end
        for node, progress in self.lazy_followers.to_send_to(self._up(), end, self._clock.now, heartbeat=heartbeat):
            if heartbeat or progress.next_index <= end or progress.needs_snapshot:
                self._send_entries(node, progress, heartbeat=heartbeat)

    def _send_entries(self, node: Peer, progress: Progress, *, heartbeat: bool) -> None:
        """Send a follower the entries that it lacks, as far as its window has room; if there are none, a due heartbeat."""
        journal = self._journal
        first_index, end = journal.first_index, journal.end
        while first_index <= progress.next_index <= end and progress.window.has_room:
            first = progress.next_index
            entries = journal.entries(first, end, limits.RAFT_APPEND_BYTES_MAX)
            self._send_append(node, progress, RaftIndex(first - 1), entries)
            heartbeat = False
        needs = progress.next_index < first_index
        if needs and not progress.needs_snapshot:
            self._host.on_snapshot_needed(node.id)
        progress.needs_snapshot = needs
        if heartbeat:
            self._send_append(node, progress, RaftIndex(max(first_index, progress.next_index) - 1), [])

    def _send_append(self, node: Peer, progress: Progress, prev_index: RaftIndex, entries: list[Entry]) -> None:
        prev_term = self._journal.term_at(prev_index)
        seq = progress.sent(entries, self._clock.now)
        self._host.send(
            node.id, AppendEntries(self._library.term, self._library.commit, prev_index, prev_term, seq, entries)
        )
