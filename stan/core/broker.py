"""The broker as a value: feed it events, take one `Ready`, carry it out, tell it what became of it.

It never awaits, opens, sleeps, logs, or looks at a clock: time is an argument, and the same object runs in production and in
the simulator. Order inside one Ready is a promise: proposals are written before sends leave; the answer to a subscription
request leaves before its first message; a publisher's ack leaves after its message was offered to the subscribers.
"""

from collections.abc import Callable, Iterable

from stan import limits
from stan.config import Config
from stan.core.channels import Channels
from stan.core.clients import Clients
from stan.core.dispatch import Dispatch
from stan.core.group import GroupMachine
from stan.core.publishing import Publishing
from stan.core.ready import Fetch, Fetched, Indexes, Proposal, Ready
from stan.core.shared import Clock, Group, Shared, text
from stan.core.subscribing import Subscribing
from stan.errors import go_quote
from stan.protocol import entries_pb2 as pb
from stan.protocol.channels import Subjects
from stan.protocol.entries import Kind
from stan.protocol.frames import Acks, Frame, Publishes
from stan.types import SECOND, ChannelUid, GroupId, Nanos, RaftIndex, WallNanos

NUMBER_DIGITS_MAX = 19
"""Of the requests to clients; what has more is not ours, and int() would raise beyond a few thousand."""


class Broker:
    """One node's broker: the metadata group and its channel groups."""

    def __init__(self, config: Config, indexes: Indexes, reply_prefix: bytes) -> None:
        subjects = Subjects(config.cluster_id, config.discover_prefix)
        self.shared = Shared(config, subjects, indexes, reply_prefix)
        for number in range(1, config.store.raft_groups + 1):
            machine = GroupMachine(GroupId(number))
            self.shared.groups[machine.group] = Group(machine, Dispatch(machine, indexes, self.shared.timers))
        self.channels = Channels(self.shared)
        self.publishing = Publishing(self.shared, self.channels)
        self.clients = Clients(self.shared)
        self.subscribing = Subscribing(self.shared, self.channels)
        self.progress_sent: dict[int, list[pb.Progress]] = {}  # by ticket, until written
        self.requests: dict[bytes, Callable[[Frame], None]] = {
            subjects.discover.encode(): self.clients.connect,
            subjects.pings.encode(): self.clients.ping,
            subjects.close.encode(): self.clients.close,
            subjects.sub.encode(): self.subscribing.subscribe,
            subjects.unsub.encode(): lambda frame: self.subscribing.leave(frame, unsubscribe=True),
            subjects.sub_close.encode(): lambda frame: self.subscribing.leave(frame, unsubscribe=False),
        }

    # --- start --------------------------------------------------------------------------------------------------------

    def set_ack_prefix(self, nuid: bytes) -> None:
        """Ack inboxes are `_INBOX.<nuid>.<group>.<number>`; call before any entry is applied."""
        for number, group in self.shared.groups.items():
            group.machine.ack_prefix = b"_INBOX.%b.%d." % (nuid, number)

    def lead(self, now: Nanos, wall: WallNanos, *, doubt: bool) -> None:
        """The state is loaded and replayed, this node leads: make the live view, heed today's limits, mend what a crash left
        between two groups."""
        shared = self.shared
        shared.clock = Clock(now, wall)
        for info in shared.meta.channels.values():
            self.channels.add(info)
        for number, group in shared.groups.items():
            group.dispatch.lead(now, wall)
            doubts = group.dispatch.doubts() if doubt else []
            if doubts:
                shared.change_group(number, lambda _result, _error: None, doubt=pb.Doubt(until=doubts))
        for channel in self.channels.by_uid.values():  # the live view is there now
            self.channels.watch_idle(channel)
        known = {client.incarnation for client in shared.meta.clients.values()}
        for group in shared.groups.values():
            for incarnation in sorted(set(group.machine.by_incarnation) - known):
                self._note_ghosts(group, incarnation)
                if incarnation not in self.clients.closing:
                    self.clients.close_subscriptions(incarnation)
            for uid in sorted(group.machine.dropped & shared.meta.by_uid.keys()):
                self.channels.unregister(ChannelUid(uid))
        for client in shared.meta.clients.values():
            self.clients.watch(client)
        self.channels.retain_all()
        shared.timers.at(now + limits.RETENTION_INTERVAL, self._retain)

    def _note_ghosts(self, group: Group, incarnation: int) -> None:
        for subscription_id in sorted(group.machine.by_incarnation[incarnation]):
            sub = group.machine.subscriptions[subscription_id]
            if group.machine.cursors[sub.cursor_id].kind.shared:
                who = go_quote(text(sub.client_id))
                self.shared.note("WRN", f"ghost durable queue subscriber: client {who} is not connected any more")

    def _retain(self, now: Nanos) -> None:
        self.channels.expire()
        self.shared.timers.at(now + limits.RETENTION_INTERVAL, self._retain)

    # --- events -------------------------------------------------------------------------------------------------------

    def step_publishes(self, batches: Iterable[Publishes]) -> None:
        """Publishes read from NATS."""
        for batch in batches:
            self.publishing.publishes(batch)

    def step_acks(self, batches: Iterable[Acks]) -> None:
        """Acks read from NATS. One for a subscription that is gone changes nothing (STAN-SPEC 6.5)."""
        for acks in batches:
            group = self.shared.groups.get(GroupId(acks.group))
            if group is not None:
                group.dispatch.ack(acks.key, acks.ranges)

    def step_malformed(self, frames: Iterable[Frame], pub_sid: int) -> None:
        """Payloads on the publish and ack subjects that could not be taken."""
        for frame in frames:
            if frame.sid == pub_sid:
                self.publishing.malformed(frame)
            else:
                self.shared.note("ERR", f"Unable to process ack on {text(frame.subject)}: not an ack")

    def step_frame(self, frame: Frame) -> None:
        """Any other frame: a request of a client, or an answer to one of ours."""
        handle = self.requests.get(frame.subject)
        if handle is not None:
            handle(frame)
        elif frame.subject.startswith(self.shared.reply_prefix):
            number = frame.subject[len(self.shared.reply_prefix) :]
            ours = number.isdigit() and len(number) <= NUMBER_DIGITS_MAX
            answered = self.shared.awaited.pop(int(number), None) if ours else None
            if answered is not None:
                answered(not frame.header.startswith(b"NATS/1.0 503"))

    def step_committed(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """An entry is committed, and its record batches are indexed. On every node, in index order."""
        ticket = self.shared.by_index.pop((group, index), None)
        result: object = None
        if kind == Kind.RECORDS:
            self.publishing.committed(group, body)
            result = True
        elif kind == Kind.META:
            applied = self.shared.meta.apply(pb.MetaChange.FromString(body), index)
            self.clients.applied(applied)
            result = applied
        elif kind == Kind.CHANGE:
            change = pb.GroupChange.FromString(body)
            outcome = self.shared.groups[group].machine.apply(change, index)
            self.subscribing.applied(group, outcome)
            if change.HasField("drop_channel"):
                self.channels.drop_committed(group, ChannelUid(change.drop_channel.uid))
            result = outcome
        if ticket is not None:
            self._tell(ticket, result, "")

    def step_fetched(self, fetch: Fetch, batches: list[Fetched]) -> None:
        """The answer to a Fetch."""
        dispatch = self.shared.groups[fetch.group].dispatch
        self.shared.redeliveries += dispatch.fetched(fetch.cursor_id, fetch.runs, batches, self.shared.clock.now)

    def step_fetch_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer; tried again a second later."""
        info = self.shared.meta.by_uid.get(fetch.uid)
        name = text(info.name) if info else "?"
        self.shared.note("ERR", f"Error looking up message {name}:{fetch.runs[0][0]} ({why})")
        dispatch = self.shared.groups[fetch.group].dispatch
        dispatch.read_failed(fetch.cursor_id, Nanos(self.shared.clock.now + SECOND))

    def step_disconnected(self) -> None:
        """The connection to NATS is lost: nothing can be sent."""
        self.shared.connected = False
        self.shared.lose_requests()
        for group in self.shared.groups.values():
            group.dispatch.pause()

    def step_reconnected(self, away_ns: int) -> None:
        """The connection is back after *away_ns*."""
        self.shared.connected = True
        self.clients.restart_all()
        for group in self.shared.groups.values():
            group.dispatch.resume(away_ns)

    # --- output -------------------------------------------------------------------------------------------------------

    def ready(self, now: Nanos, wall: WallNanos, room: int) -> Ready:
        """Everything to do now; deliveries stop at about *room* bytes. Call until `idle`."""
        shared = self.shared
        shared.clock = Clock(now, wall)
        shared.timers.run(now)
        ready = Ready()
        ready.proposals = self.publishing.seal()
        shared.drain_into(ready)
        for group in shared.groups.values():
            room = group.dispatch.pump(ready, now, room)
        for number, group in shared.groups.items():
            self._tell_progress(number, group, ready)
        ready.proposals += shared.changes
        shared.changes = []
        ready.sends += shared.pub_acks
        shared.pub_acks = []
        ready.deadline = shared.timers.next
        return ready

    def tick(self, now: Nanos, wall: WallNanos) -> None:
        """Set the time before events are stepped."""
        self.shared.clock = Clock(now, wall)

    @property
    def hungry(self) -> bool:
        """Whether `ready` would find deliveries to make or proposals to write."""
        shared = self.shared
        return bool(
            shared.changes
            or shared.responses
            or shared.redeliveries
            or shared.pub_acks
            or self.publishing.waiting
            or any(group.dispatch.fed for group in shared.groups.values())
        )

    def _tell_progress(self, number: GroupId, group: Group, ready: Ready) -> None:
        while progress := group.dispatch.progress(limits.PROGRESS_RUNS_MAX):
            ticket = self.shared.ticket(lambda _result, _error: None)
            self.progress_sent[ticket] = progress
            body = pb.GroupChange(progress=progress).SerializeToString()
            ready.proposals.append(Proposal(number, Kind.CHANGE, body, urgent=False, ticket=ticket))

    # --- outcome of proposals -----------------------------------------------------------------------------------------

    def written(self, proposal: Proposal, index: RaftIndex) -> None:
        """A proposal is in the log at *index*; its commit will come."""
        self.shared.by_index[proposal.group, index] = proposal.ticket
        self.progress_sent.pop(proposal.ticket, None)

    def refused(self, proposal: Proposal, why: str) -> None:
        """A proposal could not be written (a full disk, a frozen log): nothing of it happened."""
        progress = self.progress_sent.pop(proposal.ticket, None)
        if progress is not None:
            self.shared.groups[proposal.group].dispatch.progress_lost(progress)
        self._tell(proposal.ticket, None, why)

    def freeze(self, number: GroupId) -> None:
        """A group's log failed and takes nothing until a restart: the group sends nothing either."""
        group = self.shared.groups.get(number)
        if group is not None:
            group.dispatch.frozen = True

    def in_doubt(self, proposal: Proposal) -> None:
        """Nobody knows whether a proposal is in the log, which takes nothing more: who waits for it is not answered."""
        self.shared.waiting.pop(proposal.ticket, None)
        self.progress_sent.pop(proposal.ticket, None)

    def _tell(self, ticket: int, result: object, error: str) -> None:
        waiting = self.shared.waiting.pop(ticket, None)
        if waiting is not None:
            waiting(result, error)
