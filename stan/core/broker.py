"""The broker as a value: feed it events, take one `Ready`, carry it out, report the outcome back.

The broker never awaits, opens, sleeps, logs, or looks at a clock: time is an argument, and the same object runs in production
and in the simulator. Order inside one Ready is a promise: proposals are written before sends leave; the answer to a subscription
request leaves before its first message; a publisher's ack leaves after its message was offered to the subscribers.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from stan import limits
from stan.config import Config
from stan.core.admin.admin_listing import AdminListing
from stan.core.admin.admin_members import AdminMembers
from stan.core.admin.channel_changes import ChannelChanges
from stan.core.admin.channel_queries import ChannelQueries
from stan.core.admin.cursor_admin import CursorAdmin
from stan.core.admin.restore_requests import RestoreRequests
from stan.core.base.admin_events import Clock
from stan.core.base.ready import Delivery, Fetch, Indexes, Proposal, ReadResult, Ready
from stan.core.boundary import loading
from stan.core.boundary.view import BrokerView
from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests, Why
from stan.core.clients.subscribing import Subscribing
from stan.core.context import META_GROUP, nobody_waits, shown
from stan.core.leader.local_group import ChannelGroup
from stan.core.publishing.batching import Batching
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.committing import Committing
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.staging import Staging
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.read_index import ReadIndex
from stan.core.requests.request import Send
from stan.core.requests.request_order import ArrivalOrder
from stan.core.requests.router import Handler, RequestRouter
from stan.core.requests.table import FRAMES, REQUESTS, Scope
from stan.core.routes import of_clients, of_operators
from stan.core.state.group import GroupResult
from stan.core.state.meta import MetaResult
from stan.core.state.transactions import Ended
from stan.protocol.entries import STAGING_UID, Kind, changes_of
from stan.protocol.frames import Acks, Frame, Publishes
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import wire_pb2 as wire
from stan.protocol.requests import decode
from stan.types import SECOND, ChannelUid, GroupId, Nanos, RaftIndex, WallNanos

Numbers = Iterable[GroupId] | None


class Broker:
    """One node's broker: the metadata group and its channel groups."""

    def __init__(self, config: Config, indexes: Indexes, reply_prefix: bytes, groups: Numbers = None) -> None:
        """*groups*: the channel groups that this node holds; None: all of them."""
        self.context = loading.empty(config, indexes, reply_prefix)
        subjects = self.context.subjects
        for number in range(1, config.store.raft_groups + 1) if groups is None else groups:
            self.reset(GroupId(number))
        self.read_index = ReadIndex(self.context)
        self.router = RequestRouter(self.context)
        lookup = ChannelLookup(self.context, self.read_index)
        self.channels = LiveChannels(self.context)
        self.publishing = Publishing(self.context, self.channels, self.read_index)
        self.view = BrokerView(self.context, self.publishing)
        self.batching = Batching(self.context, self.channels, self.publishing)
        self.staging = Staging(self.context, self.channels, self.publishing)
        self.committing = Committing(self.context, self.channels, self.publishing)
        self.clients = Clients(self.context)
        self.arrival_order = ArrivalOrder(subjects.discover.encode(), subjects.sub.encode())
        self.subscribing = Subscribing(self.context, self.channels, self.clients, self.read_index, self.arrival_order)
        self.channel_queries = ChannelQueries(self.context, self.channels, lookup)
        self.long_poll = self.channel_queries.long_poll
        self.channel_changes = ChannelChanges(self.context, self.channels, lookup)
        self.restore_requests = RestoreRequests(self.context, self.channels, self.publishing, lookup)
        self.nodes = NodeRequests(self.context)
        self.cursor_admin = CursorAdmin(self.context, self.channels, lookup)
        self.progress_sent: dict[int, pb.GroupChange] = {}  # by ticket, until written
        self.pending_requests: deque[Frame] = deque(maxlen=limits.PENDING_REQUESTS_MAX)  # until the leader is known
        handlers = {
            **of_clients(self.batching, self.staging, self.committing, self.channel_queries),
            **of_operators(
                AdminListing(self.context, self.channels, lookup),
                AdminMembers(self.context, self.clients, self.nodes),
                self.channel_changes,
                self.cursor_admin,
                self.restore_requests,
            ),
        }
        self.routes = {
            REQUESTS[name].subject(subjects): self.receiver(name, handler) for name, handler in handlers.items()
        }
        self.placed_by_channel = {
            getattr(subjects, name).encode() for name, scope in FRAMES.items() if scope is Scope.CHANNEL
        }
        self.requests = {getattr(subjects, name).encode(): handle for name, handle in self._frame_handlers().items()}

    def _frame_handlers(self) -> dict[str, Callable[[Frame], None]]:
        """The handlers of the requests in `FRAMES`, by name."""
        handlers: dict[str, Callable[[Frame], None]] = {
            "discover": self.clients.connect,
            "pings": self.clients.ping,
            "close": self.clients.close,
            "sub": self.subscribing.subscribe,
            "unsub": partial(self.subscribing.leave, unsubscribe=True),
            "sub_close": partial(self.subscribing.leave, unsubscribe=False),
        }
        if self.context.config.cluster is not None:
            handlers["meta"] = self._asked_for_meta
            if self.context.config.cluster.allow_add_remove:
                handlers |= {"node_add": self.nodes.add, "node_remove": self.nodes.remove}
        return handlers

    def receiver(self, name: str, handler: Handler, send: Send | None = None) -> Callable[[Frame], None]:
        """Return the function that takes the frames of the request *name* for *handler*, which may be one outside the core."""
        return self.router.receiver(REQUESTS[name], handler, send)

    def join_cluster(self, node: str, founders: tuple[str, ...], under_way: Why) -> None:
        """Set this node's name in the cluster. *founders*: the nodes to assume while the metadata lists none; *under_way*:
        returns why a change of the nodes has to wait."""
        self.context.events.node = node
        self.nodes.founders, self.nodes.under_way = founders, under_way

    def reset(self, number: GroupId) -> None:
        """Forget a group's state, which is about to be loaded again; this node does not lead the group."""
        loading.reset(self.context, number)

    def drop(self, number: GroupId) -> None:
        """Forget a channel group that this node no longer holds; this node does not lead the group."""
        self.context.groups.pop(number, None)

    def was_reset(self, number: GroupId) -> None:
        """A group's state is loaded again after `reset` and may have changed: channels came and went, connections are gone."""
        if number != META_GROUP:
            return
        meta = self.context.meta
        for uid in [uid for uid in self.channels.by_uid if uid not in meta.by_uid]:
            self.channels.unregistered(uid)
        for info in [info for info in meta.channels.values() if info.uid not in self.channels.by_uid]:
            self.channels.registered(info)
        for led, _ in self.context.led():
            self.clients.lead_group(led)
        self.long_poll.reset()
        self.read_index.applied()

    def restore(self, number: GroupId, snapshot: pb.Snapshot, *, anew: bool) -> None:
        """Load a snapshot into a group that is new, or was reset. *anew*: all of the state counts as changed."""
        loading.restore(self.context, number, snapshot, anew=anew)

    def replay_entry(self, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """Apply one entry to the replicated state alone: no request is answered and nothing is delivered."""
        loading.replay(self.context, number, index, kind, body)

    def snapshot(self, number: GroupId, into: pb.Snapshot) -> None:
        """Write the whole replicated state of a group *into* a message."""
        loading.snapshot(self.context, number, into)

    # --- leadership -----------------------------------------------------------------------------------------------------

    def lead(self, now: Nanos, wall: WallNanos, *, unconfirmed: bool) -> None:
        """The state is loaded and replayed, and this node runs alone: start to lead every group."""
        self.start(now, wall)
        self.lead_meta(b"")
        for number in self.context.groups:
            if number not in self.context.faulty:
                self.lead_group(number, unconfirmed=unconfirmed)

    def start(self, now: Nanos, wall: WallNanos) -> None:
        """Set the clock for the first time and start the timers."""
        self.context.clock = Clock(now, wall)
        self.context.timers.at(now + limits.RETENTION_INTERVAL, self._retain)

    def lead_meta(self, nuid: bytes) -> None:
        """This node leads the metadata from now on; *nuid* is for a cluster that has no identity yet."""
        context = self.context
        context.leads_meta = True
        if context.meta.info is None:
            info = pb.ClusterInfo(
                cluster_id=context.config.cluster_id.encode(), raft_groups=context.config.store.raft_groups, nuid=nuid
            )
            context.change_meta(nobody_waits, cluster_info=info)
        self.clients.lead()
        self.read_index.applied()

    def lead_group(self, number: GroupId, *, unconfirmed: bool) -> None:
        """This node leads a group from now on, and has applied all earlier entries of it: make the live view, apply the
        current limits, finish what the previous leader left half done. *unconfirmed*: more may have been sent than the log
        records."""
        context = self.context
        group = context.groups[number]
        leadership = group.lead()
        self.channels.lead(number)
        self.staging.lead(number, leadership)
        group.dispatch.lead(context.clock.now, context.clock.wall)
        if unconfirmed:
            group.dispatch.mark_unconfirmed()
        self.clients.lead_group(number)
        self.subscribing.lead_group(number)
        self.channels.lead_live(number)

    def follow_meta(self) -> None:
        """This node no longer leads the metadata: requests whose entries are on their way stay unanswered."""
        self.context.leads_meta = False
        self.context.forget(META_GROUP)
        self.clients.follow()

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group: of this group, nothing that is on its way is answered or sent."""
        context = self.context
        context.groups[number].leadership = None
        context.forget(number)
        self.clients.follow_group(number)
        self.publishing.follow(number)
        self.channel_changes.follow(number)
        self.channels.follow(number)
        context.groups[number].dispatch.follow()
        self.long_poll.follow(number)

    def replay(self, group: GroupId, steps: list[Publishes | Acks | Frame], since: Nanos) -> None:
        """This node leads a group from now on: handle the buffered frames of the group since *since* that the previous leader
        has not handled."""
        context = self.context
        context.replaying = group
        for frame in [frame for frame in self.pending_requests if self._group_of(frame) == group]:
            self.pending_requests.remove(frame)  # it is among the steps
        done, followed = self.clients.done_before([step for step in steps if isinstance(step, Frame)])
        self.clients.refuse_followed(followed)
        heard = [step for step in steps if isinstance(step, Publishes)]
        left = iter(self.publishing.split_replayed(group, heard, since))
        for step in steps:
            if isinstance(step, Publishes):
                self.publishing.take_replayed(next(left))
            elif isinstance(step, Acks):
                if not context.groups[group].dispatch.is_outdated(step.key, context.clock.wall):
                    self.step_acks((step,))
            elif step not in done and step not in followed:
                self.step_frame(step)
        context.replaying = None

    def reconfigure(self, config: Config) -> None:
        """Apply changed settings: limits, heartbeats, how a second subscription to a durable is handled. Everything else stays
        as it is."""
        self.context.config = config
        self.channels.reconfigure()
        self.clients.reconfigure(config.heartbeat)
        self.context.rate_limiter.configure(config.requests)

    def _retain(self, now: Nanos) -> None:
        self.context.timers.at(now + limits.RETENTION_INTERVAL, self._retain)
        self.channels.expire()
        self.staging.expire()
        self.context.complaints.sum_up(now)

    # --- events -------------------------------------------------------------------------------------------------------

    def step_publishes(self, batches: Iterable[Publishes]) -> None:
        """Publishes read from NATS."""
        for batch in batches:
            self.context.within(self.context.group_number(batch.channel), self.publishing.publishes, batch)

    def step_acks(self, batches: Iterable[Acks]) -> None:
        """Acks read from NATS. An ack for a subscription that is gone, or of another user, changes nothing (STAN-SPEC 6.5)."""
        for acks in batches:
            group = self.context.groups.get(GroupId(acks.group))
            if group is None or not group.leads:
                continue
            found, authorizer = group.dispatch.by_ack_key.get(acks.key), self.context.authorizer
            if authorizer is None or (found is not None and authorizer.may_ack(acks.user, found[1].sub)):
                wall = self.context.clock.wall
                self.context.within(GroupId(acks.group), group.dispatch.ack, acks.key, acks.ranges, wall)

    def step_malformed(self, frames: Iterable[Frame], pub_sid: int) -> None:
        """Payloads on the publish and ack subjects that could not be taken."""
        for frame in frames:
            if frame.sid == pub_sid:
                self.publishing.malformed(frame)
            else:
                self.context.complain("ERR", f"Unable to process ack on {shown(frame.subject)}: not an ack")

    def step_frame(self, frame: Frame) -> None:
        """Any other frame: a request of a client or node, or the answer to a request of this broker."""
        if frame.subject in self.requests:
            if self.context.replaying is None and self.context.clustered:
                self.arrival_order.add(frame, self.context.clock.now)
            if self.context.replaying is None and (self.pending_requests or self._may_be_replaced()):
                self.pending_requests.append(frame)
            else:
                self._handle(frame)
        elif frame.subject.startswith(self.context.reply_prefix):
            answered = self.context.answered(frame.subject[len(self.context.reply_prefix) :])
            if answered is not None:
                self.context.within(META_GROUP, answered, None if frame.nobody else frame.payload)

    def _may_be_replaced(self) -> bool:
        """True if the lease of a group that this node leads has lapsed: another node may lead the group and answer instead."""
        context = self.context
        return (context.leads_meta and not context.meta_lease) or any(
            group.dispatch.lease_lapsed for _, group in context.led()
        )

    def _group_of(self, frame: Frame) -> GroupId:
        """The group whose leader handles a request."""
        if frame.subject in self.placed_by_channel:
            with contextlib.suppress(DecodeError):  # all of them name their channel in the same field
                return self.context.group_number(decode(wire.UnsubscribeRequest, frame.payload).subject)
        return META_GROUP

    def _decide(self) -> None:
        while self.pending_requests and not self._may_be_replaced():
            self._handle(self.pending_requests.popleft())

    def _handle(self, frame: Frame) -> None:
        try:
            self.requests[frame.subject](frame)
        except Exception as error:  # noqa: BLE001 - the border of the group, which is determined only on failure
            self.context.fail(self._group_of(frame), error)

    def _asked_for_meta(self, frame: Frame) -> None:
        """Another node asks for a change of the metadata, or for its read index."""
        if not self.context.concerns(META_GROUP):
            return
        try:
            change = pb.MetaChange.FromString(frame.payload)
        except DecodeError:
            return
        match change.WhichOneof("change"):
            case "create_channels":
                self.context.change_meta(nobody_waits, create_channels=change.create_channels)
            case "delete_channel":
                self.context.change_meta(nobody_waits, delete_channel=change.delete_channel)
            case None:
                self.read_index.answer(frame.reply)

    def step_committed(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """An entry is committed, and its record batches are indexed. On every node, in index order."""
        ticket = self.context.by_index.pop((group, index), None)
        result: object = None
        if kind == Kind.RECORDS:
            self.publishing.committed(group, index, body)
            changed = [
                self._apply_change(group, pb.GroupChange.FromString(change), index) for change in changes_of(body)
            ]
            result = changed or True
        elif kind == Kind.META:
            result = self._apply_meta(pb.MetaChange.FromString(body), index)
        elif kind == Kind.CHANGE:
            result = self._apply_change(group, pb.GroupChange.FromString(body), index)
        if ticket is not None:
            self._tell(ticket, result, "")

    def _apply_meta(self, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        applied = self.context.meta.apply(change, index)
        self.clients.applied(applied)
        for info in applied.created:
            self.channels.registered(info)
            self.long_poll.registered(info)
        if applied.deleted is not None:
            self.channels.unregistered(applied.deleted.uid)
            self.channel_changes.unregistered(applied.deleted.uid)
            self.long_poll.unregistered(applied.deleted)
        self.read_index.applied()
        return applied

    def _apply_change(self, number: GroupId, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        machine = self.context.groups[number].machine
        floor = machine.transactions.floor
        applied = machine.apply(change, index)
        self.subscribing.applied(number, applied)
        if applied.operator_change:
            self.cursor_admin.applied(number, applied)
        if machine.transactions.floor > floor:
            self.context.trims.append((number, STAGING_UID, machine.transactions.floor))
        if change.HasField("trim"):
            self.channels.trimmed(number, change.trim)
        if change.HasField("removal") and not applied.error:
            self.channels.removed(number, change.removal)
        if change.HasField("edit_limits"):
            self.channels.refresh(ChannelUid(change.edit_limits.uid))
        if change.HasField("restore") and not applied.error:
            self.channels.restored(number, ChannelUid(change.restore.uid))
        if change.HasField("drop_channel"):
            self.channels.drop_committed(number, ChannelUid(change.drop_channel.uid))
            self.committing.dropped(number, ChannelUid(change.drop_channel.uid))
        if change.HasField("commit_step") and isinstance(applied.of_part, Ended):
            self.committing.ended(number, applied.of_part)
        return applied

    def step_fetched(self, fetch: Fetch, batches: list[ReadResult]) -> None:
        """The answer to a Fetch."""
        if fetch.uid == STAGING_UID:
            self.committing.fetched(fetch, batches)
            return
        group = self.context.groups.get(fetch.group)
        if group is not None:
            self.context.redeliveries += group.dispatch.fetched(fetch, batches, self.context.clock.now)

    def step_fetch_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer a Fetch; it is retried a second later."""
        if fetch.uid == STAGING_UID:
            self.committing.read_failed(fetch, why)
            return
        info = self.context.meta.by_uid.get(fetch.uid)
        name = shown(info.name) if info else "?"
        self.context.note("ERR", f"Error looking up message {name}:{fetch.runs[0][0]} ({why})")
        group = self.context.groups.get(fetch.group)
        if group is not None:
            group.dispatch.read_failed(fetch, Nanos(self.context.clock.now + SECOND))

    def step_disconnected(self) -> None:
        """The connection to NATS is lost: nothing can be sent."""
        self.context.connected = False
        self.context.lose_requests()
        for group in self.context.groups.values():
            group.dispatch.pause()

    def step_reconnected(self, away_ns: int) -> None:
        """The connection is back after *away_ns*."""
        self.context.connected = True
        self.clients.restart_all()
        for group in self.context.groups.values():
            group.dispatch.resume(away_ns)

    def step_payload_limit(self, most: int) -> None:
        """NATS takes payloads of at most *most* bytes from us."""
        self.context.payload_bytes_max = most

    def step_heard_since(self, since: Nanos) -> None:
        """The replay buffer holds what was read from NATS since *since*, for when this node becomes leader."""
        self.context.heard_since = since

    def step_loaded(self, number: GroupId, last: RaftIndex) -> None:
        """*last* is the newest entry that the log of a group had when this node began to listen."""
        if number != META_GROUP:
            self.context.groups[number].loaded = last

    def step_lease(self, number: GroupId, *, holds: bool) -> None:
        """Report the lease of a group that this node leads. *holds*: no other node can lead the group; otherwise this node sends
        nothing of it. The group may have left this node meanwhile."""
        if number == META_GROUP:
            self.context.meta_lease = holds
        elif number in self.context.groups:
            self.context.groups[number].dispatch.lease_lapsed = not holds

    def step_room(self, number: GroupId, *, closed: bool, full: bool) -> None:
        """Report backpressure of a group that this node leads. *closed*: the group takes no proposals; *full*: entries wait, so
        new messages are collected into larger batches."""
        context = self.context
        if closed != (number in context.write_blocked):
            context.write_blocked = context.write_blocked ^ {number}
        if full != (number in context.saturated):
            context.saturated = context.saturated ^ {number}

    def step_fault(self, number: GroupId, error: Exception) -> None:
        """The program failed in a group, outside the broker: the next Ready reports the fault, which freezes the group."""
        self.context.fail(number, error)

    def step_alarm(self, at: int, call: Callable[[Nanos], None]) -> None:
        """Run *call* in the first `ready` at or after *at* (Nanos)."""
        self.context.timers.at(at, call)

    def catch_up(self, done: Callable[[bool], None]) -> None:
        """Call *done* once: with True when this node's copy of the metadata is as new as the leader's, with False if that cannot
        be found out now."""
        self.read_index.wait(done)

    def emit(self, kind: str, text: str, **about: Any) -> None:
        """Publish an admin event (stan.core.base.admin_events); *about*: channel=, client_id=, group=, cursor_id=."""
        self.context.emit(kind, text, **about)

    # --- output -------------------------------------------------------------------------------------------------------

    def ready(self, now: Nanos, wall: WallNanos, room: int) -> Ready:
        """Return everything to do now; deliveries stop at about *room* bytes. Call it again as long as `has_work`."""
        context = self.context
        context.clock = Clock(now, wall)
        context.timers.run(now, partial(context.fail, META_GROUP))
        self._decide()
        context.within(META_GROUP, self.long_poll.tell)
        ready = Ready()
        ready.proposals = self.publishing.seal()
        context.drain_into(ready)
        for number, group in context.led():
            try:
                room = group.dispatch.pump(ready, now, room)
            except Exception as error:  # noqa: BLE001 - the border of the group
                context.fail(number, error)
        changes = context.take_changes()
        changing = {change.group for change in changes}
        for number, group in context.led():
            context.within(number, self._report_progress, number, group, ready, changing)
        self.committing.pump(ready)
        ready.proposals += changes
        ready.sends += context.pub_acks
        context.pub_acks = []
        ready.faults += context.faults
        context.faults = []
        ready.deadline = context.timers.next
        return ready

    def tick(self, now: Nanos, wall: WallNanos) -> None:
        """Set the time before events are stepped."""
        self.context.clock = Clock(now, wall)

    @property
    def has_work(self) -> bool:
        """True if `ready` would find deliveries to make or proposals to write."""
        context = self.context
        return bool(
            any(change.group not in context.write_blocked for change in context.changes)
            or context.responses
            or context.redeliveries
            or context.pub_acks
            or self.publishing.can_seal
            or self.committing.has_work
            or any(group.dispatch.has_work for _, group in context.led())
        )

    def _is_time_to_report(self, number: GroupId, group: ChannelGroup, now: Nanos, changing: set[GroupId]) -> bool:
        """True if a progress entry of the group is due. A node that runs alone writes progress with every delivery; a replicated
        group writes it at intervals, and before any change that may move positions. If the log had no room for the last
        progress entry, a node alone retries at intervals, too."""
        context, dispatch = self.context, group.dispatch
        if not dispatch.has_progress or dispatch.frozen or number in context.write_blocked:
            dispatch.progress_blocked &= dispatch.has_progress  # the cursors to report may be gone
            return False
        if not context.clustered and not dispatch.progress_blocked:
            return True
        much = dispatch.out_messages - group.reported_deliveries >= limits.PROGRESS_MESSAGES_MAX
        if number in changing or now >= group.report_at > 0 or (much and number not in context.saturated):
            group.report_at = 0
            group.reported_deliveries = dispatch.out_messages
            return True
        if not group.report_at:
            self._tell_later(group)
        return False

    def _tell_later(self, group: ChannelGroup) -> None:
        group.report_at = self.context.clock.now + limits.PROGRESS_INTERVAL
        self.context.timers.at(group.report_at, lambda _now: None)  # only so that a turn runs then

    def _report_progress(self, number: GroupId, group: ChannelGroup, ready: Ready, changing: set[GroupId]) -> None:
        if not self._is_time_to_report(number, group, self.context.clock.now, changing):
            return
        for change in group.dispatch.progress():
            ticket = self.context.ticket(nobody_waits)
            self.progress_sent[ticket] = change
            ready.proposals.append(
                Proposal(number, Kind.CHANGE, change.SerializeToString(), urgent=False, ticket=ticket)
            )

    # --- outcome of proposals -----------------------------------------------------------------------------------------

    def written(self, proposal: Proposal, index: RaftIndex) -> None:
        """A proposal is in the log at *index*; its commit follows."""
        self.context.by_index[proposal.group, index] = proposal.ticket
        if self.progress_sent.pop(proposal.ticket, None) is not None:
            self.context.groups[proposal.group].dispatch.progress_blocked = False

    def refused(self, proposal: Proposal, why: str) -> None:
        """A proposal could not be written (a full disk, a frozen log): nothing of it happened."""
        self._progress_lost(proposal)
        self._tell(proposal.ticket, None, why)

    def in_doubt(self, proposal: Proposal) -> None:
        """It is unknown whether a proposal is in the log, or another leader has to take it: the request behind the proposal is
        not answered."""
        self._progress_lost(proposal)
        waiting = self.context.waiting.pop(proposal.ticket, None)
        if waiting is not None:
            waiting.in_doubt()

    def _progress_lost(self, proposal: Proposal) -> None:
        change = self.progress_sent.pop(proposal.ticket, None)
        if change is not None and self.context.leads(proposal.group):
            self.context.groups[proposal.group].dispatch.progress_lost(change)

    @property
    def progress_blocked(self) -> set[GroupId]:
        """Groups that may send nothing because their logs had no room for a progress entry."""
        return {number for number, group in self.context.led() if group.dispatch.progress_blocked}

    def no_room(self, number: GroupId) -> None:
        """The log of a group had no room for a progress entry: the group sends nothing until there is room. Call `ready` once
        more."""
        group = self.context.groups.get(number)
        if group is not None and group.leads:
            group.dispatch.progress_blocked = True
            self._tell_later(group)

    def not_sent(self, deliveries: list[Delivery]) -> None:
        """Deliveries of a Ready did not leave: the log could not record them, or another node may lead their groups."""
        for number, group in self.context.led():
            group.dispatch.not_sent([lost for lost in deliveries if lost.group == number])

    def freeze(self, number: GroupId) -> None:
        """A group's log failed and takes nothing until a restart: the group sends nothing either."""
        group = self.context.groups.get(number)
        if group is not None:
            group.dispatch.frozen = True

    def fail(self, number: GroupId, why: str) -> None:
        """The program failed in a group, perhaps amid an entry: until a restart this node neither leads the group nor delivers
        or answers anything of it."""
        self.context.faulty[number] = why
        self.freeze(number)
        if self.context.leads(number):
            with contextlib.suppress(Exception):  # the state that remains is not used again
                self.follow_meta() if number == META_GROUP else self.follow_group(number)

    def _tell(self, ticket: int, result: object, error: str) -> None:
        waiting = self.context.waiting.pop(ticket, None)
        if waiting is not None:
            waiting.done(result, error)
