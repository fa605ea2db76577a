"""A replicated group on this node: the Consensus port over PySyncObj in its safety shell (`SafeRaft`).

    propose ─► log ─► followers ─► their fsync ─► answers ─► commit ─► take_committed        (leader)
                └──► own fsync ────────────────────────────────┘

Promises: an entry is handed out once, in order, when it is committed and durable here (S9); an entry that is never committed
counts as pending for a bounded time only (S10). A group whose disk failed, or in which the program failed, takes part in nothing
until a restart: its calls do nothing, and raise nothing but Frozen, so that the other groups go on. Never applies, never
forwards, never waits.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from functools import partial
from random import Random
from typing import Literal, NamedTuple, TypeVar, TypeVarTuple

from stan_protocol.scalars import GroupId, Nanos, RaftIndex, Term

from stan import limits
from stan.alias import alias
from stan.errors import Aborted, Frozen, InDoubt, NotNow, StartError, fault
from stan.invariant import InvariantError
from stan.log.types import Entry, GroupLog
from stan.protocol.entries import Kind
from stan.raft.configuration import encode, known_committed
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.pysyncobj.host import RaftHost
from stan.raft.pysyncobj.journal import Command, GroupJournal
from stan.raft.pysyncobj.safe_raft import SafeRaft
from stan.raft.replica.agenda import Agenda
from stan.raft.replica.applied import Applied
from stan.raft.replica.durability import Durability
from stan.raft.replica.handover import Handover
from stan.raft.replica.proposals import Proposals
from stan.raft.transport.codec import AppendAnswer, Message, heartbeat

Parts = TypeVarTuple("Parts")
Result = TypeVar("Result")

_COMMAND = partial(tuple.__new__, Command)
"""Makes a Command of (kind, body) without the constructor of the NamedTuple, which is a Python function."""


class GroupPorts(NamedTuple):
    """Callbacks of a group into its owner."""

    # Queue a message for a peer. It leaves at the end of the turn if the link to the peer is up, else it is lost.
    send: Callable[[GroupId, str, Message], None]
    now: Callable[[], Nanos]  # monotonic
    random: Random  # election timeouts
    wake: Callable[["RaftGroup"], None]  # run a turn of the group soon
    note: Callable[[str, str], None]  # level, text for the operator
    needs_snapshot: Callable[["RaftGroup", str], None]  # the peer needs entries that the log no longer has
    # Since when this node has listened to its peers without being stopped or busy for long (`Mux.listens_since`).
    listens_since: Callable[[], Nanos] = lambda: Nanos(0)


class RaftGroup:
    """This node's member of a replicated group: the `Consensus` port, and the parts that only a group with peers has.

    That is leadership, lease and hand-over, changes of the voters, observers, and the messages of peers."""

    def __init__(
        self,
        group: GroupId,
        me: str,
        voters: Seq[str],
        log: GroupLog,
        hard_state: HardState,
        ports: GroupPorts,
        *,
        observers: Seq[str] = (),
        applied: RaftIndex,
        configured: int = 0,
        sync: Literal["always", "interval", "never"],
        intact: bool = True,
    ) -> None:
        """Take part in a group.

        Args:
            group: its number, the same on all nodes.
            me: name of this node; if not among the voters, this node is an observer.
            voters: names of all voting members.
            log: opened, with all its entries durable.
            hard_state: opened.
            ports: callbacks into the owner.
            observers: names of nodes that take entries and neither vote nor count.
            applied: entries up to here are in the replicated state already; the first one handed out is the next.
            configured: index of the entry that set *voters*; changes of the voters up to this entry are ignored.
            sync: with other than "always" an entry counts as durable once it is written.
            intact: False if the log has lost entries to damage: this node must not lead.

        Raises:
            StartError: the state is ahead of the log.
        """
        if applied > log.last_index:
            raise StartError(f"group {group}: the state holds entry {applied}, the log ends with {log.last_index}")
        hard_state.hint(known_committed(log, applied))
        self.group = group
        self.log = log
        self.failed = ""  # the reason why this group takes part in nothing until a restart
        self._ports = ports
        self._applied = Applied(me, voters, configured, applied)
        self._proposals = Proposals()
        self._durability = Durability(always=sync == "always")
        # A member that has met a leader does not campaign before this time: a leader has received more of the clients' messages.
        self.not_before = Nanos(0)
        self._due = Nanos(0)  # when the next turn is due
        outside = RaftHost(
            partial(ports.send, group),
            partial(self._durability.index, log),
            self.may_campaign,
            ports.listens_since,
            partial(ports.needs_snapshot, self),
            lambda text: ports.note("WRN", f"group {group}: {text}"),
        )
        journal = GroupJournal(log, hard_state)
        self._raft = SafeRaft(me, voters, observers, journal, outside, ports.random, ports.now())
        self._raft.election.votes_for_others_only = not intact
        self._handover = Handover(self._raft)
        self._agenda = Agenda(self._raft, log, self._applied, self._durability)

    # --- its state ------------------------------------------------------------------------------------------------------

    term: Term = alias("_raft.library.term")
    """Current term."""
    commit_index: RaftIndex = alias("_raft.library.commit")
    """Newest entry known to be committed; not all of them may have been handed out."""

    leader: str | None = alias("_raft.library.leader")
    """Name of the leader, as far as this node knows."""
    leads: bool = alias("_agenda.leads")
    """True if this node leads and has handed out every entry of earlier terms."""

    amnesiac: bool = alias("_raft.journal.hard_state.amnesiac")
    """True if this node may have forgotten votes and acknowledgements, as its disk was replaced."""

    @property
    def votes(self) -> bool:
        """True if this node votes and counts for a majority: it is a voter and not amnesiac."""
        return self._raft.election.votes and not self.failed

    def bootstrap(self, *, first: bool = False) -> None:
        """Begin a group that is new on all nodes: no member can have forgotten a promise, so this one votes from now on.

        Does nothing if this member has a term or an entry: then the leader readmits it (Readmit).

        *first*: this member should lead, and campaigns before the others do."""
        if self.term == 0 and self.log.last_index == 0:
            self._guarded(self._raft.journal.hard_state.mark_readmitted)
            if first:
                self._guarded(self._raft.leader_gone, self._ports.now())
            self._ports.wake(self)

    def lease_until(self) -> Nanos:
        """End of the lease: until then no other node can lead, on this node's clock; 0 if this node does not lead.

        A lease may end early, when a hand-over begins: do not keep the value."""
        if not self._agenda.leads:
            return Nanos(0)
        try:
            return self._raft.as_leader.lease_until()
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._fail(error)
            return Nanos(0)

    has_room: bool = alias("_proposals.has_room")
    """True if a proposal would be sent at once; otherwise the caller should wait and batch more into it."""
    wants_sync: bool = alias("_agenda.wants_sync")
    """True if a sync is needed for entries that are written but not durable."""
    has_committed: bool = alias("_agenda.has_committed")
    """True if `take_committed` would return entries."""

    progress: Callable[[], dict[str, RaftIndex]] = alias("_raft.as_leader.acknowledged")
    """On the leader: returns the newest entry that each other member has acknowledged; for monitoring."""

    def lag(self) -> dict[str, int]:
        """On the leader: entries that each other member has not acknowledged."""
        return {peer: max(0, self.log.last_index - acked) for peer, acked in self.progress().items()}

    def followers_needing_snapshot(self) -> list[str]:
        """On the leader: members that need entries which the log no longer has."""
        return [str(node.id) for node, progress in self._raft.as_leader.progress.items() if progress.needs_snapshot]

    best_successor: Callable[[], str | None] = alias("_raft.as_leader.successor")
    """On the leader: returns the voter that should take over: of those with a link, the most up-to-date; None without one."""

    @property
    def transferring(self) -> bool:
        """True while leadership is handed over, or the voters have changed (`reconfigured`); proposals are refused meanwhile."""
        return self._handover.under_way is not None or self._applied.newer is not None

    # --- members ------------------------------------------------------------------------------------------------------------

    is_steady: bool = alias("_raft.patience.is_steady")
    """False if elections failed lately, or leaders were replaced that were only slow: leadership should not be moved then
    without need."""
    members: tuple[str, ...] = alias("_applied.voters")
    """Names of the voters, sorted."""
    reconfigured: tuple[RaftIndex, tuple[str, ...]] | None = alias("_applied.newer")
    """Entry and voters of a change that took effect: the owner has to replace this object. None: no change."""
    change_under_way: bool = alias("_applied.changes")
    """True if a change of the voters was proposed here and is not handed out yet, or this object is about to be replaced."""
    counting: Callable[[], set[str]] = alias("_raft.as_leader.counting")
    """On the leader: returns the members whose acknowledgements count, itself and observers included; not amnesiac members."""

    def change(self, voters: Seq[str]) -> RaftIndex:
        """Propose new voters that differ from the current ones by one member. `raft.configuration` explains why by one only.

        When the entry is handed out, `reconfigured` names the new voters: from then on this object neither campaigns nor takes
        proposals, and its owner replaces it.

        Returns:
            Index of the proposed entry.

        Raises:
            NotNow: the change must not be proposed now; the text has the reason.
        """
        self._applied.check(voters)
        if self.leads and 2 * len(self.counting() & set(voters)) <= len(voters):
            raise NotNow("the new voters could decide nothing: too few of them are there and whole")
        index = self._applied.proposed = self.propose([(Kind.CONFIG, encode(voters))], urgent=True)
        return index

    def may_campaign(self, commit: RaftIndex, *, met_leader: bool) -> bool:
        """True if this member may campaign: everything up to *commit* was handed out here, no change of the voters took effect,
        and, if it has met a leader, `not_before` has passed."""
        may = not met_leader or self._ports.now() >= self.not_before
        return self.reconfigured is None and self._applied.index >= commit and may

    def listen_until(self, moment: Nanos) -> None:
        """Do not campaign before *moment*: a leader, which has received more of the clients' messages, may still be there."""
        self.not_before, self._raft.election.contact.met = moment, True

    def set_observers(self, names: Seq[str]) -> None:
        """Replace the observers (read replicas): these nodes get entries from now on, and no others."""
        self._guarded(self._raft.observe, names)
        self._ports.wake(self)

    # --- Consensus --------------------------------------------------------------------------------------------------------

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) to the log; returns the index of the first. They are committed later, in order, or never.

        Raises:
            NotNow: nothing was written (Shortage, no leadership, a hand-over, a change of the voters, too much uncommitted).
            Frozen: the group takes part in nothing until a restart, which may find a part of the entries in the log.
            InDoubt: the write failed unexpectedly; the entries may be in the log after a restart.
        """
        self._refuse()
        for _, body in bodies:
            if len(body) > limits.RAFT_COMMAND_BYTES_MAX:
                raise InvariantError(f"a command is bounded (length={len(body)})")
        first = RaftIndex(self.log.last_index + 1)
        now = self._ports.now()
        try:
            self._raft.as_leader.append(list(map(_COMMAND, bodies)))
        except Frozen as error:
            self.freeze(str(error))
            raise
        except (NotNow, Aborted):
            raise
        except Exception as error:
            self.freeze(fault(error))
            raise InDoubt(self.failed) from error
        self._proposals.add(first, bodies, now)
        if urgent:
            self._durability.awaited = self.log.last_index
        self._agenda.look()
        self._ports.wake(self)
        return first

    def _refuse(self) -> None:
        """Raise NotNow or Frozen if nothing can be proposed now."""
        if self.failed:
            raise Frozen(self.failed)
        if not self.leads:
            raise NotNow("this node does not lead the group")
        if self._handover.under_way is not None:
            raise NotNow("leadership is being handed over")
        if self.reconfigured is not None:
            raise NotNow("the voters of the group change")
        if self._proposals.bytes > limits.RAFT_UNCOMMITTED_BYTES_MAX:
            raise NotNow("too much waits for a majority")

    def synced(self, durable: RaftIndex) -> None:  # noqa: ARG002 - a truncation may have lowered it since
        """Take a turn, which reads the durable index, if an answer or a commit waits for it."""
        if self._durability.seen == self.log.durable_index:
            return
        self._agenda.look()
        if self._handover.under_way is not None or self._raft.waits_for_disk:
            self._ports.wake(self)

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, at most TURN_BYTES_MAX bytes of them."""
        raft, applied = self._raft, self._applied
        first, last = RaftIndex(applied.index + 1), min(raft.library.commit, self._durability.index(self.log))
        if last < first or self.failed:
            return []
        try:
            entries = raft.journal.entries(first, last, limits.TURN_BYTES_MAX)
            applied.advance(entries)
            self._proposals.forget(range(first, entries[-1].index + 1))
            self._agenda.look()
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._fail(error)
            return []
        return entries

    # --- leadership -------------------------------------------------------------------------------------------------------

    def transfer(self, to: str, done: Callable[[bool], None], within: int = limits.RAFT_TRANSFER_TIMEOUT) -> None:
        """Hand leadership over to *to*, within *within* nanoseconds; until then proposals are refused.

        *done* is called exactly once, from a later turn, with True if this node does not lead anymore."""
        self._handover.begin(to, Nanos(self._ports.now() + within), done)
        self._durability.awaited = max(self._durability.awaited, self.log.last_index)
        self._agenda.look()
        self._ports.wake(self)

    def freeze(self, why: str) -> None:
        """Stop taking part in the group until a restart, because its disk failed or the program failed in it. The owner calls
        this too, when a sync or the application of an entry fails."""
        if not self.failed:
            self._ports.note("ERR", f"group {self.group}: {why}; this node takes no part in it until a restart")
            self._leave(why)
            self._ports.wake(self)

    def garbled(self, peer: str, why: str) -> None:
        """Freeze the group, as a peer keeps sending messages that cannot be decoded."""
        self.freeze(f"{peer} sends messages that cannot be decoded: {why}")

    def close(self) -> None:
        """Take no further part, and call back a hand-over that is under way. The log stays open."""
        self._leave(self.failed or "this node left the group")
        self._handover.give_up()

    def _leave(self, why: str) -> None:
        self.failed = why
        self._agenda.close()
        with suppress(Exception):  # the library may have failed itself; nothing calls it from now on
            self._raft.library.step_down()

    # --- turns -------------------------------------------------------------------------------------------------------------

    def turn(self) -> Nanos | None:
        """Do all due work; called soon after `wake`, and by the ticker. Messages queued here leave at the end of the turn.

        Returns the time of the next turn that lazy followers need, or None if there are none."""
        raft, durability, proposals, handover = self._raft, self._durability, self._proposals, self._handover
        if not self.failed:
            try:
                now = self._ports.now()
                if durability.seen != self.log.durable_index:  # sealing a segment makes its entries durable, too
                    durability.seen = self.log.durable_index
                    raft.synced()
                raft.turn(now)
                if proposals.pending and now >= proposals.expires_at:
                    proposals.expire(now)
                if handover.under_way is not None:
                    handover.advance(now)
                self._due = now if proposals.pending or handover.under_way is not None else raft.rest(now)
                self._agenda.look()
            except Exception as error:  # noqa: BLE001 - the border of the group
                self._fail(error)
        if self.failed:
            handover.give_up()
            return None
        return raft.as_leader.lazy_followers.due

    def tick(self, now: Nanos) -> bool:
        """A tick of the scheduler; returns True if a turn is due. A leader at rest only sends its heartbeats."""
        if self.failed:
            return False
        if now >= self._due or self._durability.seen != self.log.durable_index:
            return True
        return self._raft.library.is_leader and not self._guarded(self._raft.as_leader.heartbeat_at_rest, now)

    def take_news(self) -> bool:
        """Returns True if the owner has something to do: a sync, committed entries, room for proposals, a change of role, which
        is reported once."""
        agenda, library, expired = self._agenda, self._raft.library, self._proposals.expired
        role = library.term, library.leader, agenda.leads, self.failed
        changed = agenda.role != role
        agenda.role, self._proposals.expired = role, False
        return changed or expired or agenda.has_committed or agenda.wants_sync

    def receive(self, peer: str, message: Message) -> None:
        """Handle a message of a peer."""
        if not self.failed:
            try:
                self._raft.receive(peer, message, self._ports.now())
                if not isinstance(message, AppendAnswer) or not self._raft.library.is_leader:
                    self._agenda.look()  # what a leader commits by an answer, it commits in the turn
            except Exception as error:  # noqa: BLE001 - the border of the group
                self._fail(error)
        self._ports.wake(self)

    def on_heartbeat(self, peer: str, term: Term, commit: RaftIndex, prev_term: Term, seq: int) -> None:
        """Handle a leader's heartbeat in short form: quickly if it has no news, else as a full AppendEntries."""
        if not self.failed:
            try:
                if self._raft.as_follower.take_heartbeat_quickly(peer, term, commit, seq, self._ports.now()):
                    return
            except Exception as error:  # noqa: BLE001 - the border of the group
                self._fail(error)
        self.receive(peer, heartbeat(term, commit, prev_term, seq))

    def answered(self, peer: str, answer: AppendAnswer) -> None:
        """Handle a follower's answer to an AppendEntries, quickly if it changes nothing."""
        if not self.failed and self._handover.under_way is None:
            try:
                if self._raft.as_leader.take_answer_quickly(peer, answer, self._ports.now()):
                    return
            except Exception as error:  # noqa: BLE001 - the border of the group
                self._fail(error)
        self.receive(peer, answer)

    def peer_up(self, peer: str) -> None:
        """Note that a link to the peer begins."""
        self._guarded(self._raft.peer_up, peer, self._ports.now())
        self._ports.wake(self)

    def peer_down(self, peer: str) -> None:
        """Note that the link to the peer ended."""
        self._guarded(self._raft.peer_down, peer, self._ports.now())
        self._ports.wake(self)

    def _guarded(self, call: Callable[[*Parts], Result], *args: *Parts) -> Result | None:
        """Call *call* unless the group has failed. Returns None if the group had failed or fails now (`_fail`)."""
        if self.failed:
            return None
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        """Freeze this group, and no other, after an error of the disk or the program in it.

        Raises Aborted if *error* is one: it ends the process."""
        if isinstance(error, Aborted):
            raise error
        self.freeze(fault(error))
