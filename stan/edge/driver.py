"""The loop that carries out the broker's decisions, in the one order that keeps its promises.

    read → step → committed → Ready → trims → write proposals → send → fetch        (a turn)
                      ▲                          │
                      └── sync, off the loop ────┘

A turn never awaits. It runs after an arrival, the end of a sync, or a deadline (see stan.edge.turns); everything
that arrived since the last turn is handled in one, in a server alone as much as its gateway takes in at once. A failure in one
group ends there (see stan.edge.group_faults).
"""

from collections.abc import Callable, Mapping, Set
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from stan_protocol.refusals import NOT_NOW
from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan import limits
from stan.core.base.ready import Delivery, Fetch, Proposal, ReadResult, Ready
from stan.core.broker.broker import Broker
from stan.edge.batch_lookup import LOOKUP_ATTEMPTS, from_memory, refs_of_runs
from stan.edge.group_faults import GroupFaults
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.leaf import LeafNews, LeafPort
from stan.edge.runtime import Runtime
from stan.edge.turns import Turns
from stan.errors import Aborted, Frozen, InDoubt, NotNow, Shortage
from stan.log.types import Entry, StaleRef
from stan.protocol.entries import Kind
from stan.raft.consensus import Consensus

if TYPE_CHECKING:
    from stan.edge.leadership import Leaderships

ROUNDS_PER_TURN = 8
"""Rounds of commit and Ready inside one turn; the rest follows in the next, after a look at the sockets."""

LEFT = "the group has left this node"
"""Reason for not writing a proposal whose group left this node in the same turn; the group's leader has its request too."""


KIND_AND_BODY: Callable[[Proposal], tuple[int, bytes]] = attrgetter("kind", "body")


class Driver:
    """The turns of one node: their steps, in order."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        gateway: Gateway,
        runtime: Runtime,
        turns: Turns,
        *,
        applied: dict[GroupId, tuple[RaftIndex, Term]],
        note: Callable[[str, str], None],
        leaderships: "Leaderships | None" = None,
    ) -> None:
        """Run in *turns* from now on.

        Args:
            broker: decides the steps.
            groups: the groups on this node; the mapping may change between two turns.
            gateway: reads and writes NATS frames.
            runtime: clock, alarm and worker threads.
            turns: the times at which this driver runs.
            applied: gets (index, term) of the newest applied entry of each group.
            note: called with level and text to write a line to the log.
            leaderships: the groups that this node leads; None outside of a cluster, where it leads all.
        """
        self.broker = broker
        self.groups = groups
        self.gateway = gateway
        self.runtime = runtime
        self.turns = turns
        self.applied = applied
        self._note = note
        self.leaderships = leaderships
        self.faults = GroupFaults(broker, groups, leaderships, applied, note, runtime)
        self._down_since = 0  # monotonic ns; 0 while there is a connection to NATS
        self.hash_state: Callable[[GroupId], None] | None = None  # called at the same entries on all nodes
        self.fence: Callable[[], None] | None = None  # raises Aborted if another server may have the store
        turns.turn = self.turn

    # --- the turn -------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Handle all arrivals."""
        broker, gateway, runtime, leaderships = self.broker, self.gateway, self.runtime, self.leaderships
        turns, now = self.turns, runtime.now()
        needed, turns.needed = turns.needed, False
        broker.tick(now, runtime.wall())
        if leaderships is not None:
            needed |= leaderships.check_leases(now)
        if gateway.read_buffer.went_down or gateway.read_buffer.went_up:
            self._connection_changed()
            needed = True
        needed |= bool(gateway.connection.leaves) and self._look_at_leaves(gateway.connection.leaves)
        needed |= gateway.take_in()
        if leaderships is not None:
            scheduler = leaderships.scheduler
            if scheduler.dirty or scheduler.speaks:  # links have periodic work even when no group does
                self._run_woken(leaderships)
            if not needed and leaderships.is_at_rest(now):
                return
        ready = self._rounds()
        if leaderships is not None:
            leaderships.scheduler.run()
            if leaderships.settle(synced=self._sync_touched()):
                turns.wake()
        else:  # a node of a cluster reads on: the followers' answers come over the same connection
            backlog, full = gateway.read_buffer.backlog, broker.view.uncommitted_bytes > limits.UNCOMMITTED_BYTES_MAX
            gateway.connection.hold_reading(full or backlog.size > limits.BACKLOG_BYTES_MAX)
            if backlog.size and not full:
                turns.wake()
        if ready.deadline is not None:
            runtime.alarm(ready.deadline, turns.wake)

    def _rounds(self) -> Ready:
        """Apply committed entries and carry out the broker's decisions, until neither brings more; returns the last Ready.

        A node alone syncs its logs between two rounds, as no other node waits for them: the next round applies durable entries
        at once."""
        broker, runtime, leaderships, touched = self.broker, self.runtime, self.leaderships, self.turns.touched
        for _ in range(ROUNDS_PER_TURN):
            if touched and leaderships is not None:
                leaderships.before_commit()
            if touched:
                self._commit()
            now = runtime.now()
            if touched and leaderships is not None:
                leaderships.after_commit(now)
            room = limits.OUTBOUND_BYTES_HIGH - self.gateway.connection.unsent
            ready = broker.ready(now, runtime.wall(), room)
            self._carry_out(ready)
            if room > 0 and broker.has_work:
                continue
            if not touched or not ((leaderships is None and self._sync_touched()) or self._has_committed()):
                return ready
        self.turns.wake()
        if leaderships is None:
            self._sync_touched()
        else:
            leaderships.scheduler.owner.has_news = True  # the last round may have left work
        return ready

    def _run_woken(self, leaderships: "Leaderships") -> None:
        """Run the groups that have work. A follower answers its leader only after its own sync: that comes first."""
        for number in sorted(leaderships.scheduler.dirty - leaderships.led.keys()):
            group = self.groups.get(number)
            if group is not None and group.wants_sync and not group.leads:
                self.runtime.sync_now(group)
        leaderships.scheduler.run()

    def _has_committed(self) -> bool:
        """True if a group has entries to apply."""
        for number in self.turns.touched:
            group = self.groups.get(number)
            if group is not None and group.has_committed:
                return True
        return False

    def _connection_changed(self) -> None:
        connection, read = self.gateway.connection, self.gateway.read_buffer
        if read.went_down:
            read.went_down = False
            if not self._down_since:
                self._down_since = self.runtime.now()
                self._note("WRN", "Connection to NATS lost")
                self.broker.step_disconnected()
        if read.went_up and connection.up:
            read.went_up = False
            self.broker.step_payload_limit(connection.max_payload)
            if self._down_since:
                away = self.runtime.now() - self._down_since
                self._down_since = 0
                self._note("INF", f"Connection to NATS is back after {away / 1e9:.3f}s")
                self.broker.step_reconnected(away)

    def _look_at_leaves(self, leaves: Mapping[bytes, LeafPort]) -> bool:
        """Step what the leafnode connections have to tell; returns True if there was anything."""
        stepped = False
        for user, leaf in leaves.items():
            if leaf.news.any:
                news, leaf.news, stepped = leaf.news, LeafNews(), True
                self.broker.stops.step_leaf(news.interest, up=leaf.up, forgotten=news.forgotten, user=user)
        return stepped

    def _commit(self) -> None:
        for number in sorted(self.turns.touched):
            group = self.groups.get(number)
            if group is None:
                continue
            entries = group.take_committed()
            if group.failed:
                self.faults.freeze(number, group.failed)
            if not entries:
                continue
            if self.fence is not None:  # after the entries became durable, before any client gets an answer
                self.fence()
            try:
                self._apply(number, group, entries)
            except Aborted:
                raise
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(number, error)

    def _apply(self, number: GroupId, group: Consensus, entries: list[Entry]) -> None:
        group.log.commit(entries[-1].index)
        for entry in entries:
            if entry.kind == Kind.CONFIG and not self._configured(number, entry):
                break
            self.broker.entries.step_committed(number, entry.index, entry.kind, entry.body)
            self.applied[number] = (entry.index, entry.term)
            if not entry.index % limits.STATE_HASH_ENTRIES and self.hash_state is not None:
                self.hash_state(number)

    def _configured(self, number: GroupId, entry: Entry) -> bool:
        """Store a committed change of the group's voters; False if the disk failed.

        The group is then frozen: this entry and the later ones are applied after the restart."""
        if self.leaderships is None:
            return True
        try:
            self.leaderships.events.configured(number, entry.index, entry.body)
        except OSError as error:
            self.faults.freeze(number, str(error))
            return False
        return True

    def _carry_out(self, ready: Ready) -> None:
        for level, text in ready.notes:
            self._note(level, text)
        for number, error in ready.faults:
            self.faults.fail(number, error)
        if ready.trims or ready.drops:
            self._let_go(ready)
        if ready.proposals:
            self._propose_all(ready.proposals)
        if ready.sends:
            if blocked := self.broker.stops.without_room:
                self.broker.not_sent(
                    [send for send in ready.sends if isinstance(send, Delivery) and send.group in blocked]
                )
                ready.sends = [
                    send for send in ready.sends if not isinstance(send, Delivery) or send.group not in blocked
                ]
            lost = self.gateway.send(ready.sends, self._silent)
            if lost:
                self.broker.not_sent(lost)
        if ready.fetches or ready.replays:
            self._read(ready)

    def _read(self, ready: Ready) -> None:
        """Read messages, and replay frames for channels that this node has taken over."""
        for fetch in ready.fetches:
            self._fetch(fetch)
        if self.leaderships is None:
            return  # a server alone has no frames that others should have handled
        for replay in ready.replays:
            if self.broker.view.leads(replay.group):
                beat = self.leaderships.scheduler.heartbeat_if_due
                self.faults.within(replay.group, self.gateway.replay_channels, replay, beat)
                self.turns.wake()

    def _let_go(self, ready: Ready) -> None:
        """Trim and drop channels in the logs of the groups that are still on this node."""
        for number, uid, first in ready.trims:
            if number in self.groups:
                self.faults.within(number, self.groups[number].log.trim, uid, first)
        for number, uid in ready.drops:
            if number in self.groups:
                self.faults.within(number, self.groups[number].log.drop, uid)

    def _silent(self, groups: Set[GroupId]) -> Set[GroupId]:
        """Groups of *groups* whose deliveries and answers must not leave in this turn: the group is frozen, or its lease expired
        while the turn ran (for example after SIGSTOP and SIGCONT).

        The next leader treats the deliveries as sent. If this node still leads, it redelivers them, and its answers, which could
        be outdated now, leave when it has the lease again.
        """
        if self.fence is not None:
            self.fence()
        if not groups:
            return groups
        silent = self.faults.still_frozen()
        if self.leaderships is None:
            return silent
        scope = self.broker.view.scope
        if scope.serves_others:
            silent = silent | scope.lapsed(groups - self.leaderships.led.keys(), self.runtime.now())
        return silent | self.leaderships.lapsed(groups)

    def _propose_all(self, proposals: list[Proposal]) -> None:
        """Write the proposals to their groups' logs.

        A change must not be in the log without the progress entry before it: a subscription that ends, for example, moves its
        messages to another member, which would get them without the redelivered flag. After a refused progress entry the later
        proposals of the group are therefore refused too."""
        untold: dict[GroupId, NotNow] = {}
        at = 0
        while at < len(proposals):
            number, urgent, end = proposals[at].group, proposals[at].urgent, at + 1
            while end < len(proposals) and proposals[end].group == number and proposals[end].urgent == urgent:
                end += 1
            together, at = proposals[at:end], end
            refusal = untold.get(number) or self._propose(number, together, urgent=urgent)
            if refusal is None:
                continue
            if not urgent:
                untold[number] = refusal
            self.faults.within(number, self._not_written, number, together, refusal)
        for number, refusal in untold.items():
            if isinstance(refusal, Shortage):
                self.broker.stops.step_no_room(number)
                self.turns.wake()

    def _propose(self, number: GroupId, proposals: list[Proposal], *, urgent: bool) -> NotNow | None:
        """Write proposals of one group in one go; returns None, or the refusal if nothing was written."""
        group = self.groups.get(number)
        if group is None:
            return NotNow(LEFT)
        led = self.leaderships.led.get(number) if self.leaderships is not None else None
        if led is not None and led.left_open is not None:
            return led.left_open  # written now it would follow sequences that no entry has
        try:
            index = group.propose(list(map(KIND_AND_BODY, proposals)), urgent=urgent)
        except NotNow as error:
            return error
        self.faults.note_written(number)
        try:
            for proposal in proposals:
                self.broker.entries.step_written(proposal, index)
                index = RaftIndex(index + 1)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.faults.fail(number, error)
        return None

    def _not_written(self, number: GroupId, proposals: list[Proposal], error: NotNow) -> None:
        why = str(error)
        if isinstance(error, Frozen):
            self.faults.freeze(number, why)
        group = self.groups.get(number)
        is_left_to_successor = (
            self.leaderships is not None and group is not None and self.leaderships.is_left_to_successor(number, error)
        )
        size = sum(len(proposal.body) for proposal in proposals)
        if is_left_to_successor and isinstance(error, Shortage):
            self.faults.note_refusal(number, error, size)
        if isinstance(error, InDoubt) or is_left_to_successor or group is None or not group.leads:
            # The entry may be in the log after a restart, or the next leader may accept the request: any answer could be wrong.
            for proposal in proposals:
                self.broker.entries.step_in_doubt(proposal)
            return
        self.faults.note_refusal(number, error, size)
        for proposal in proposals:
            self.broker.entries.step_refused(proposal, error.told or NOT_NOW.format(why))

    # --- reads ------------------------------------------------------------------------------------------------------------

    def _fetch(self, fetch: Fetch, attempt: int = 1) -> None:
        self.faults.within(fetch.group, self._look_up, fetch, attempt)

    def _look_up(self, fetch: Fetch, attempt: int) -> None:
        group = self.groups.get(fetch.group)
        if group is None:
            return  # it has left this node, and no caller waits for the answer
        log = group.log
        refs = refs_of_runs(log.channel(fetch.uid), fetch.runs, fetch.bytes_max)
        batches = from_memory(log, refs)
        if batches is not None:
            self.broker.reads.step_fetched(fetch, batches)
            return
        self.runtime.read(log, refs, lambda result: self._fetched(fetch, attempt, result))

    def _fetched(self, fetch: Fetch, attempt: int, result: list[ReadResult] | Exception) -> None:
        if self.turns.stopped:
            return
        if isinstance(result, list):
            self.broker.tick(self.runtime.now(), self.runtime.wall())
            self.faults.within(fetch.group, self.broker.reads.step_fetched, fetch, result)
        elif isinstance(result, StaleRef) and attempt < LOOKUP_ATTEMPTS:  # the segment was rewritten: look it up again
            self._fetch(fetch, attempt + 1)
        else:
            self.faults.within(fetch.group, self.broker.reads.step_fetch_failed, fetch, str(result))
        self.turns.wake()

    def apply_committed(self) -> None:
        """Apply the last sync's commits to the replicated state, without answering clients. For the end of the process."""
        self._commit()

    # --- syncs ------------------------------------------------------------------------------------------------------------

    def _sync_touched(self) -> bool:
        """Sync the logs with entries that are waited for; True if a sync was done at once, on the event loop."""
        at_once = False
        for number in sorted(self.turns.touched):
            group = self.groups.get(number)
            if group is None or not group.wants_sync:
                continue
            if self.runtime.sync_now(group):
                group.synced(group.log.durable_index)
                at_once = True
            else:
                self._sync(group)
        return at_once

    def _sync(self, group: Consensus) -> None:
        self.runtime.sync(group, partial(self._synced, group))

    def _synced(self, group: Consensus, durable: RaftIndex | None, why: str) -> None:
        if durable is None and self._is_fenced():
            return
        if self.groups.get(group.group) is not group:
            return  # its log was closed meanwhile: the group has left this node, or another copy has replaced it
        if durable is None:
            self.faults.freeze(group.group, why)
        else:
            group.synced(durable)
            if self.leaderships is not None:
                self.leaderships.scheduler.run()  # sends this follower's answer, which the leader waits for
            if group.wants_sync and not self.turns.stopped:
                self._sync(group)
        if self.leaderships is None or group.has_committed:  # a follower's answer is sent already
            self.turns.wake()

    def _is_fenced(self) -> bool:
        """True if another server may have the shared store. The failed sync is then no disk failure, and this process ends."""
        try:
            if self.fence is not None:
                self.fence()
        except Aborted as error:
            self.turns.crash(error)
            return True
        return False
