"""One replicated group on this node: the Consensus port over PySyncObj in its shell.

    propose ─► log ─► followers ─► their fsync ─► answers ─► commit ─► take_committed        (leader)
                └──► own fsync ────────────────────────────────┘

Promises: an entry is handed out once, in order, when it is committed and durable here (S9); nobody waits for one that is not
(S10). A group whose disk failed, or in which the program failed, takes part in nothing until a restart: its calls do
nothing, and raise nothing but Frozen, so that the other groups go on. Never applies, never forwards, never waits.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from functools import partial
from random import Random
from typing import Literal, NamedTuple, TypeVar, TypeVarTuple

from stan import limits
from stan.errors import Aborted, Frozen, InDoubt, NotNow, StartError, fault
from stan.invariant import invariant
from stan.log.types import Entry, GroupLog
from stan.protocol.entries import Kind
from stan.raft.configuration import decode, encode, known_committed, objection
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.pysyncobj.journal import Command, GroupJournal
from stan.raft.pysyncobj.shell import Shell
from stan.raft.pysyncobj.voter import Outside
from stan.raft.transport.codec import AppendAnswer, Message, heartbeat
from stan.types import GroupId, Nanos, RaftIndex, Term

Parts = TypeVarTuple("Parts")
Result = TypeVar("Result")


class Surroundings(NamedTuple):
    """What a group asks its owner for, and tells it."""

    send: Callable[
        [GroupId, str, Message], None
    ]  # queue for a peer; it leaves with the turn if the peer is up, else it is lost
    now: Callable[[], Nanos]  # monotonic
    random: Random  # election timeouts
    wake: Callable[["RaftGroup"], None]  # run a turn of the group soon
    note: Callable[[str, str], None]  # level, text for the operator
    needs_snapshot: Callable[["RaftGroup", str], None]  # the peer lacks entries that the log no longer has
    listens_since: Callable[[], Nanos] = lambda: Nanos(0)  # see Mux


class _Proposal(NamedTuple):
    size: int
    deadline: Nanos


class _Transfer(NamedTuple):
    to: str
    deadline: Nanos
    done: Callable[[bool], None]


class RaftGroup:
    """See raft.consensus.Consensus; beyond it, what a group with peers knows of them."""

    def __init__(
        self,
        group: GroupId,
        me: str,
        voters: Seq[str],
        log: GroupLog,
        hard_state: HardState,
        around: Surroundings,
        *,
        observers: Seq[str] = (),
        applied: RaftIndex,
        configured: int = 0,
        sync: Literal["always", "interval", "never"],
        whole: bool = True,
    ) -> None:
        """Take part in a group.

        Args:
            group: its number, the same on all nodes.
            me: name of this node; one that is not among the voters observes.
            voters: names of all voting members.
            log: opened, and with everything durable that it has.
            hard_state: opened.
            around: see there.
            observers: names of nodes that take entries and neither vote nor count.
            applied: entries up to here are in the replicated state already; the first one handed out is the next.
            configured: entry that made these the voters; changes up to there are none.
            sync: with other than "always" an entry counts as durable once it is written.
            whole: False if the log has lost entries to damage: this node must not lead.

        Raises:
            StartError: the state is ahead of the log.
        """
        if applied > log.last_index:
            raise StartError(f"group {group}: the state holds entry {applied}, the log ends with {log.last_index}")
        hard_state.hint(known_committed(log, applied))
        self.group = group
        self.log = log
        self.failed = ""  # why this group takes part in nothing any more
        self._around = around
        self._always = sync == "always"
        self._wanted = RaftIndex(0)  # newest entry that somebody waits for
        self._handed = applied
        self._proposals: dict[RaftIndex, list[_Proposal]] = {}
        self._in_flight = 0  # proposals not handed out, and their bytes
        self._in_flight_bytes = 0
        self._expired = False  # proposals, so that there is room for others
        self._transfer: _Transfer | None = None
        self._told: object = None
        self.members = tuple(sorted(voters))
        self.reconfigured: tuple[RaftIndex, tuple[str, ...]] | None = None  # entry and voters of a change in force
        self._configured = configured
        self._changing = RaftIndex(0)  # the change that this leader has proposed
        self.not_before = Nanos(0)  # nor campaigns earlier, once it met a leader, which has heard more
        self._me = me
        self._seen_durable = RaftIndex(-1)
        self._due = Nanos(0)  # when something has to be looked at
        self._journal = GroupJournal(log, hard_state)
        outside = Outside(
            partial(around.send, group),
            self.durable,
            self.may_campaign,
            around.listens_since,
            partial(around.needs_snapshot, self),
            self._warn,
        )
        self._shell = Shell(me, voters, observers, self._journal, outside, around.random, around.now())
        self._shell.votes_for_others_only = not whole

    # --- what it is -----------------------------------------------------------------------------------------------------

    @property
    def term(self) -> Term:
        """Current term."""
        return self._shell.term

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this node knows."""
        return self._shell.leader

    @property
    def leads(self) -> bool:
        """Whether this node leads and every entry of earlier terms was handed out."""
        return not self.failed and self._shell.is_leader and self._handed >= self._shell.term_begins

    @property
    def fresh(self) -> bool:
        """Whether this node does not know what it may have promised: see hard_state."""
        return self._journal.hard_state.fresh

    @property
    def votes(self) -> bool:
        """Whether this node votes, and counts for a majority: a voter that is not fresh."""
        return self._shell.votes and not self.failed

    def found(self, *, first: bool = False) -> None:
        """The group is new on all nodes: nobody can have forgotten anything. Once a leader was heard, it decides (Vouch).

        *first*: this member had better lead, and campaigns before the others do."""
        if self.term == 0 and self.log.last_index == 0:
            self._guarded(self._journal.hard_state.settle)
            if first:
                self._guarded(self._shell.leader_gone, self._around.now())
            self._around.wake(self)

    @property
    def commit_index(self) -> RaftIndex:
        """Newest entry known to be committed; not all of them may have been handed out."""
        return self._shell.commit

    def lease_until(self) -> Nanos:
        """Until when no other node can lead, on this node's clock; 0 if it does not lead. It may end early: ask again."""
        return self._guarded(self._shell.lease_until) or Nanos(0) if self.leads else Nanos(0)

    @property
    def has_room(self) -> bool:
        """Whether a proposal would travel at once; if not it had better wait and grow."""
        few = self._in_flight < limits.RAFT_PROPOSALS_IN_FLIGHT
        return few and self._in_flight_bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT

    @property
    def wants_sync(self) -> bool:
        """Whether somebody waits for entries that are written but not durable."""
        wanted = min(self._wanted, self.log.last_index)  # it may have been truncated since
        return self._always and not self.failed and wanted > self.log.durable_index

    @property
    def has_committed(self) -> bool:
        """Whether `take_committed` would give something."""
        return not self.failed and min(self._shell.commit, self.durable()) > self._handed

    @property
    def has_news(self) -> bool:
        """Whether the owner has something to do: a sync, entries, room for proposals, another role."""
        return self.has_committed or self.wants_sync or self._expired or self._told != self._role()

    def _role(self) -> object:
        return self.term, self.leader, self.leads, self.failed

    def progress(self) -> dict[str, RaftIndex]:
        """Leader: newest entry that each other member has acknowledged; for monitoring."""
        return {str(node.id): progress.most for node, progress in self._shell.progress.items()}

    def lag(self) -> dict[str, int]:
        """Leader: entries that each other member has not acknowledged."""
        return {peer: max(0, self.log.last_index - acked) for peer, acked in self.progress().items()}

    def lacking(self) -> list[str]:
        """Leader: members that need entries which the log no longer has."""
        return [str(node.id) for node, progress in self._shell.progress.items() if progress.lacking]

    def best_successor(self) -> str | None:
        """Leader: who had better take over: the voter with a link that is furthest; None if there is none."""
        return self._shell.successor()

    @property
    def transferring(self) -> bool:
        """Whether leadership is being handed over; proposals are refused meanwhile."""
        return self._transfer is not None or self.reconfigured is not None

    # --- members ------------------------------------------------------------------------------------------------------------

    @property
    def is_steady(self) -> bool:
        """Whether elections have not failed lately, nor leaders that were only slow been replaced: then it is no time to move
        a leadership without need."""
        return self._shell.patience == 1

    @property
    def change_under_way(self) -> bool:
        """Whether a change of the voters was proposed here and did not take effect yet."""
        return self._changing > self._handed or self.reconfigured is not None

    def change(self, voters: Seq[str]) -> RaftIndex:
        """Propose other voters, one more or one less; see raft.configuration. Raises NotNow with the reason why not.

        When the entry is handed out, `reconfigured` names them: from then on this object neither campaigns nor takes proposals,
        and its owner puts a new one in its place."""
        if self.change_under_way:
            raise NotNow("another change of the voters is under way")
        if why := objection(self.members, voters, self._me):
            raise NotNow(why)
        if self.leads and 2 * len(self.counting() & set(voters)) <= len(voters):
            raise NotNow("the new voters could decide nothing: too few of them are there and whole")
        self._changing = self.propose([(Kind.CONFIG, encode(voters))], urgent=True)
        return self._changing

    def counting(self) -> set[str]:
        """Leader: members, itself and observers included, whose answers are good: a new disk's are not before it is whole."""
        return self._shell.counting()

    def may_campaign(self, commit: RaftIndex, *, met_leader: bool) -> bool:
        """See shell.Outside."""
        hears = not met_leader or self._around.now() >= self.not_before
        return self.reconfigured is None and self._handed >= commit and hears

    def listen_until(self, moment: Nanos) -> None:
        """There was a leader, which has heard more: do not campaign earlier."""
        self.not_before, self._shell.met_leader = moment, True

    def set_observers(self, names: Seq[str]) -> None:
        """Read replicas come and go: these take entries from now on, and no others."""
        self._guarded(self._shell.observe, names)
        self._around.wake(self)

    # --- Consensus --------------------------------------------------------------------------------------------------------

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries; see raft.consensus."""
        self._refuse()
        for _, body in bodies:
            invariant(len(body) <= limits.RAFT_COMMAND_BYTES_MAX, "a command is bounded", length=len(body))
        first = RaftIndex(self.log.last_index + 1)
        now = self._around.now()
        try:
            self._shell.append([Command(kind, body) for kind, body in bodies])
        except Frozen as error:
            self.freeze(str(error))
            raise
        except (NotNow, Aborted):
            raise
        except Exception as error:
            self.freeze(fault(error))
            raise InDoubt(self.failed) from error
        deadline = Nanos(now + limits.RAFT_PROPOSAL_TIMEOUT)
        for at, (_, body) in enumerate(bodies):
            pending = self._proposals.setdefault(RaftIndex(first + at), [])
            pending.append(_Proposal(len(body), deadline))
            self._in_flight += 1
            self._in_flight_bytes += len(body)
        if urgent:
            self._wanted = self.log.last_index
        self._around.wake(self)
        return first

    def _refuse(self) -> None:
        """Raise why nothing can be proposed, if so."""
        if self.failed:
            raise Frozen(self.failed)
        if not self.leads:
            raise NotNow("this node does not lead the group")
        if self._transfer is not None:
            raise NotNow("leadership is being handed over")
        if self.reconfigured is not None:
            raise NotNow("the voters of the group change")
        if self._in_flight_bytes > limits.RAFT_UNCOMMITTED_BYTES_MAX:
            raise NotNow("too much waits for a majority")

    def synced(self, durable: RaftIndex) -> None:  # noqa: ARG002 - a truncation since may have made less of it
        """The log may be durable further than before; the next turn looks how far."""
        if self._seen_durable != self.log.durable_index and (self._transfer is not None or self._shell.waits_for_disk):
            self._around.wake(self)

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, at most a turn's worth of bytes."""
        return self._guarded(self._take_committed) or [] if self.has_committed else []

    def _take_committed(self) -> list[Entry]:
        first = RaftIndex(self._handed + 1)
        last = min(self._shell.commit, self.durable())
        entries = self._journal.entries(first, last, limits.TURN_BYTES_MAX)
        invariant(entries[0].index == first, "entries are handed out in order", first=first, found=entries[0].index)
        self._handed = entries[-1].index
        if self._proposals:
            for entry in entries:
                self._forget(entry.index)
        for entry in entries:
            if entry.kind == Kind.CONFIG and entry.index > self._configured:
                self.reconfigured = entry.index, decode(entry.body)
        return entries

    def _forget(self, index: RaftIndex) -> None:
        for proposal in self._proposals.pop(index, ()):
            self._in_flight -= 1
            self._in_flight_bytes -= proposal.size

    # --- leadership -------------------------------------------------------------------------------------------------------

    def transfer(self, to: str, done: Callable[[bool], None], within: int = limits.RAFT_TRANSFER_TIMEOUT) -> None:
        """Hand leadership over to *to* within that many ns; proposals are refused meanwhile.

        *done* gets whether this node leads no more; called from a later turn, exactly once."""
        if self._transfer is not None:
            self._transfer.done(False)  # noqa: FBT003 - the answer to the question
        self._transfer = _Transfer(to, Nanos(self._around.now() + within), done)
        self._wanted = max(self._wanted, self.log.last_index)
        self._around.wake(self)

    def freeze(self, why: str) -> None:
        """The group's disk failed, or the program did in it: take part in nothing any more. Also for the owner, when a sync or
        the application of an entry fails."""
        if not self.failed:
            self._around.note("ERR", f"group {self.group}: {why}; this node takes no part in it until a restart")
            self._leave(why)
            self._around.wake(self)

    def garbled(self, peer: str, why: str) -> None:
        """A peer goes on saying what cannot be understood."""
        self.freeze(f"{peer} says what cannot be understood: {why}")

    def close(self) -> None:
        """Take part no more; whoever waits for a hand-over is told. The log stays open."""
        self._leave(self.failed or "this node left the group")
        self._give_up()

    def _leave(self, why: str) -> None:
        self.failed = why
        with suppress(Exception):  # it may be what failed; nobody asks it any more
            self._shell.step_down()

    def _give_up(self) -> None:
        """Whoever waits for a hand-over is told."""
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.done(True)  # noqa: FBT003 - it leads no more

    # --- what drives it -----------------------------------------------------------------------------------------------------

    def turn(self) -> Nanos | None:
        """Do what is due; called soon after `wake`, and by the ticker. Messages queued here leave at the end of the turn. Returns
        when followers that were passed over need the next turn, if there are any."""
        self._guarded(self._turn, self._around.now())
        if self.failed:
            self._give_up()
            return None
        return self._shell.spares.due

    def _turn(self, now: Nanos) -> None:
        if self._seen_durable != self.log.durable_index:  # sealing a segment makes durable, too
            self._seen_durable = self.log.durable_index
            self._shell.synced()
        self._shell.turn(now)
        self._want()
        self._expire(now)
        if self._transfer is not None:
            self._advance_transfer(self._transfer, now)
        waits = self._proposals or self._transfer is not None
        self._due = now if waits else self._shell.rest(now)

    def tick(self, now: Nanos) -> bool:
        """Whether a turn is due. A leader at rest only sends its heartbeats."""
        if self.failed:
            return False
        if now >= self._due or self._seen_durable != self.log.durable_index:
            return True
        return self._shell.is_leader and not self._guarded(self._shell.beat_at_rest, now)

    def take_news(self) -> bool:
        """Whether the owner has something to do; a change of role is told once."""
        news, self._told, self._expired = self.has_news, self._role(), False
        return news

    def receive(self, peer: str, message: Message) -> None:
        """A message of a peer."""
        self._guarded(self._shell.receive, peer, message, self._around.now())
        self._guarded(self._want)
        self._around.wake(self)

    def beat(self, peer: str, term: Term, commit: RaftIndex, prev_term: Term, seq: int) -> None:
        """A heartbeat of a leader: see codec."""
        if not self._guarded(self._shell.beat_heard, peer, term, commit, seq, self._around.now()):
            self.receive(peer, heartbeat(term, commit, prev_term, seq))

    def answered(self, peer: str, answer: AppendAnswer) -> None:
        """An answer of a follower."""
        if self._transfer is not None or not self._guarded(self._shell.answer_heard, peer, answer, self._around.now()):
            self.receive(peer, answer)

    def peer_up(self, peer: str) -> None:
        """A link to the peer begins."""
        self._guarded(self._shell.peer_up, peer, self._around.now())
        self._around.wake(self)

    def peer_down(self, peer: str) -> None:
        """The link to the peer ended."""
        self._guarded(self._shell.peer_down, peer, self._around.now())
        self._around.wake(self)

    def _want(self) -> None:
        """Somebody waits for what a follower has, and for the first entry of a leader."""
        leads = self._shell.is_leader
        wanted = max(self._shell.term_begins, self._shell.wanted) if leads else self.log.last_index
        self._wanted = max(self._wanted, wanted)

    def _expire(self, now: Nanos) -> None:
        for index in [index for index, pending in self._proposals.items() if pending[0].deadline <= now]:
            self._forget(index)
            self._expired = True

    def _advance_transfer(self, transfer: _Transfer, now: Nanos) -> None:
        asks, is_asked = now < transfer.deadline - limits.RAFT_REFUSAL_TIMEOUT, self._shell.handing_over
        over = now >= transfer.deadline or not (asks or is_asked)
        if not self._shell.is_leader or over or not self._shell.is_voter(transfer.to):
            self._transfer = None
            if is_asked:  # nobody knows whether it was refused: only an election brings a lease back
                self._shell.step_down()
            transfer.done(not self._shell.is_leader)
        elif asks:
            self._shell.hand_over(transfer.to)

    def _guarded(self, call: Callable[[*Parts], Result], *args: *Parts) -> Result | None:
        """Nothing happens in a group that failed; whatever fails in it, its disk or the program, fails the group alone."""
        if self.failed:
            return None
        try:
            return call(*args)
        except Aborted:  # the whole process must end
            raise
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.freeze(fault(error))
            return None

    # --- for the shell -----------------------------------------------------------------------------------------------------

    def durable(self) -> RaftIndex:
        """See shell.Outside."""
        return self.log.durable_index if self._always else self.log.last_index

    def _warn(self, text: str) -> None:
        self._around.note("WRN", f"group {self.group}: {text}")
