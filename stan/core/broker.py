"""The broker as a value: feed it events, take one `Ready`, carry it out, tell it what became of it.

It never awaits, opens, sleeps, logs, or looks at a clock: time is an argument, and the same object runs in production and in
the simulator. Order inside one Ready is a promise: proposals are written before sends leave; the answer to a subscription
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
from stan.core.admin.channel_changes import ChannelChanges
from stan.core.admin.inquiries import Inquiries
from stan.core.admin.managing import Managing
from stan.core.admin.positions import Positions
from stan.core.admin.reporting import Reporting
from stan.core.admin.restoring import Restoring
from stan.core.base.events import Clock
from stan.core.base.ready import Delivery, Fetch, Fetched, Indexes, Proposal, Ready
from stan.core.boundary import loading
from stan.core.boundary.view import BrokerView
from stan.core.clients.clients import Clients
from stan.core.clients.nodes import Nodes, Why
from stan.core.clients.subscribing import Subscribing
from stan.core.extensions import of_clients, of_operators
from stan.core.leader.local_group import Group
from stan.core.publishing.batching import Batching
from stan.core.publishing.channels import Channels
from stan.core.publishing.committing import Committing
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.staging import Staging
from stan.core.requests.read_index import ReadIndex
from stan.core.requests.request_order import ArrivalOrder
from stan.core.requests.responder import Responder
from stan.core.shared import META_GROUP, nobody_waits, shown
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
        """*groups*: of channels that this node holds; None: all."""
        self.shared = loading.empty(config, indexes, reply_prefix)
        subjects = self.shared.subjects
        for number in range(1, config.store.raft_groups + 1) if groups is None else groups:
            self.reset(GroupId(number))
        self.read_index = ReadIndex(self.shared)
        self.responder = Responder(self.shared, self.read_index)
        self.channels = Channels(self.shared)
        self.publishing = Publishing(self.shared, self.channels, self.read_index)
        self.view = BrokerView(self.shared, self.publishing)
        self.batching = Batching(self.shared, self.channels, self.publishing)
        self.staging = Staging(self.shared, self.channels, self.publishing)
        self.committing = Committing(self.shared, self.channels, self.publishing)
        self.clients = Clients(self.shared)
        self.arrival_order = ArrivalOrder(subjects.discover.encode(), subjects.sub.encode())
        self.subscribing = Subscribing(self.shared, self.channels, self.clients, self.read_index, self.arrival_order)
        self.inquiries = Inquiries(self.shared, self.channels, self.responder)
        self.watching = self.inquiries.watching
        self.channel_changes = ChannelChanges(self.shared, self.channels, self.responder)
        self.restoring = Restoring(self.shared, self.channels, self.publishing, self.responder)
        self.nodes = Nodes(self.shared)
        self.positions = Positions(self.shared, self.channels, self.responder)
        self.progress_sent: dict[int, pb.GroupChange] = {}  # by ticket, until written
        self.undecided: deque[Frame] = deque(maxlen=limits.UNDECIDED_REQUESTS_MAX)  # until it is known who leads
        self.requests: dict[bytes, Callable[[Frame], None]] = {
            subjects.discover.encode(): self.clients.connect,
            subjects.pings.encode(): self.clients.ping,
            subjects.close.encode(): self.clients.close,
            subjects.sub.encode(): self.subscribing.subscribe,
            subjects.unsub.encode(): lambda frame: self.subscribing.leave(frame, unsubscribe=True),
            subjects.sub_close.encode(): lambda frame: self.subscribing.leave(frame, unsubscribe=False),
        }
        self.admin_requests = {
            **of_operators(
                Reporting(self.shared, self.channels, self.responder),
                Managing(self.shared, self.responder, self.clients, self.nodes),
                self.positions,
            ),
            **self.channel_changes.requests(),
            **self.restoring.requests(),
        }
        asked = {
            **of_clients(self.batching, self.staging, self.committing, self.inquiries),
            **{f"admin.{kind}": handle for kind, handle in self.admin_requests.items()},
        }
        self.extensions = {f"{subjects.extension}.{kind}": handle for kind, handle in asked.items()}
        if self.shared.clustered:
            self.requests[subjects.meta.encode()] = self._asked_for_meta
        if config.cluster is not None and config.cluster.allow_add_remove:
            self.requests[subjects.node_add.encode()] = self.nodes.add
            self.requests[subjects.node_remove.encode()] = self.nodes.remove

    def join_cluster(self, node: str, founders: tuple[str, ...], under_way: Why) -> None:
        """Which node this is; the nodes while the metadata tells of none; what says why a change of them has to wait."""
        self.shared.events.node = node
        self.nodes.founders, self.nodes.under_way = founders, under_way

    def reset(self, number: GroupId) -> None:
        """Forget what is known of a group, which is about to be told anew; this node does not lead it."""
        loading.reset(self.shared, number)

    def drop(self, number: GroupId) -> None:
        """This node does not hold a group of channels any more, which it does not lead."""
        self.shared.groups.pop(number, None)

    def was_reset(self, number: GroupId) -> None:
        """What was forgotten is known again, and may have changed: channels came and went, connections are gone."""
        if number != META_GROUP:
            return
        meta = self.shared.meta
        for uid in [uid for uid in self.channels.by_uid if uid not in meta.by_uid]:
            self.channels.unregistered(uid)
        for info in [info for info in meta.channels.values() if info.uid not in self.channels.by_uid]:
            self.channels.registered(info)
        for led, _ in self.shared.led():
            self.clients.lead_group(led)
        self.watching.reset()
        self.read_index.applied()

    def restore(self, number: GroupId, snapshot: pb.Snapshot, *, anew: bool) -> None:
        """Bring a group that is new, or was reset, to a state that was kept. *anew*: all of it counts as changed."""
        loading.restore(self.shared, number, snapshot, anew=anew)

    def replay_entry(self, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """Apply one entry to the replicated state alone: nobody is answered and nothing is delivered."""
        loading.replay(self.shared, number, index, kind, body)

    def snapshot(self, number: GroupId, into: pb.Snapshot) -> None:
        """Write the whole replicated state of a group *into* a message."""
        loading.snapshot(self.shared, number, into)

    # --- leadership -----------------------------------------------------------------------------------------------------

    def lead(self, now: Nanos, wall: WallNanos, *, doubt: bool) -> None:
        """The state is loaded and replayed, and this node is alone: it leads everything."""
        self.start(now, wall)
        self.lead_meta(b"")
        for number in self.shared.groups:
            if number not in self.shared.faulty:
                self.lead_group(number, doubt=doubt)

    def start(self, now: Nanos, wall: WallNanos) -> None:
        """Time begins."""
        self.shared.clock = Clock(now, wall)
        self.shared.timers.at(now + limits.RETENTION_INTERVAL, self._retain)

    def lead_meta(self, nuid: bytes) -> None:
        """This node leads the metadata from now on; *nuid* is for a cluster that has no identity yet."""
        shared = self.shared
        shared.leads_meta = True
        if shared.meta.info is None:
            info = pb.ClusterInfo(
                cluster_id=shared.config.cluster_id.encode(), raft_groups=shared.config.store.raft_groups, nuid=nuid
            )
            shared.change_meta(nobody_waits, cluster_info=info)
        self.clients.lead()
        self.read_index.applied()

    def lead_group(self, number: GroupId, *, doubt: bool) -> None:
        """This node leads a group, all earlier entries of which are applied: make the live view, heed today's limits, mend what
        the last leader has left half done. *doubt*: more may have been sent than the log tells."""
        shared = self.shared
        group = shared.groups[number]
        leadership = group.lead()
        self.channels.lead(number)
        self.staging.lead(number, leadership)
        group.dispatch.lead(shared.clock.now, shared.clock.wall)
        if doubt:
            group.dispatch.doubt()
        self.clients.lead_group(number)
        self.subscribing.lead_group(number)
        self.channels.lead_live(number)

    def follow_meta(self) -> None:
        """This node leads the metadata no more: it answers nothing that is on its way."""
        self.shared.leads_meta = False
        self.shared.forget(META_GROUP)
        self.clients.follow()

    def follow_group(self, number: GroupId) -> None:
        """This node leads a group no more: it answers and sends nothing that is on its way."""
        shared = self.shared
        shared.groups[number].leadership = None
        shared.forget(number)
        self.clients.follow_group(number)
        self.publishing.follow(number)
        self.channel_changes.follow(number)
        self.channels.follow(number)
        shared.groups[number].dispatch.follow()
        self.watching.follow(number)

    def replay(self, group: GroupId, steps: list[Publishes | Acks | Frame], since: Nanos) -> None:
        """Handle what was heard of a group since *since*, as far as the last leader has not: this one leads it from now on."""
        shared = self.shared
        shared.replaying = group
        for frame in [frame for frame in self.undecided if self._group_of(frame) == group]:
            self.undecided.remove(frame)  # it is among the steps
        done, followed = self.clients.done_before([step for step in steps if isinstance(step, Frame)])
        self.clients.refuse_followed(followed)
        heard = [step for step in steps if isinstance(step, Publishes)]
        left = iter(self.publishing.split_replayed(group, heard, since))
        for step in steps:
            if isinstance(step, Publishes):
                self.publishing.take_replayed(next(left))
            elif isinstance(step, Acks):
                if not shared.groups[group].dispatch.is_outdated(step.key, shared.clock.wall):
                    self.step_acks((step,))
            elif step not in done and step not in followed:
                self.step_frame(step)
        shared.replaying = None

    def reconfigure(self, config: Config) -> None:
        """Other settings from now on: limits, heartbeats, what becomes of a second durable. Everything else stays as it is."""
        self.shared.config = config
        self.channels.reconfigure()
        self.clients.reconfigure(config.heartbeat)
        self.shared.rates.configure(config.requests)

    def _retain(self, now: Nanos) -> None:
        self.shared.timers.at(now + limits.RETENTION_INTERVAL, self._retain)
        self.channels.expire()
        self.staging.expire()
        self.shared.complaints.sum_up(now)

    # --- events -------------------------------------------------------------------------------------------------------

    def step_publishes(self, batches: Iterable[Publishes]) -> None:
        """Publishes read from NATS."""
        for batch in batches:
            self.shared.within(self.shared.group_number(batch.channel), self.publishing.publishes, batch)

    def step_acks(self, batches: Iterable[Acks]) -> None:
        """Acks read from NATS. One for a subscription that is gone, or of another user, changes nothing (STAN-SPEC 6.5)."""
        for acks in batches:
            group = self.shared.groups.get(GroupId(acks.group))
            if group is None or not group.leads:
                continue
            found, authorizer = group.dispatch.by_ack_key.get(acks.key), self.shared.authorizer
            if authorizer is None or (found is not None and authorizer.may_ack(acks.user, found[1].sub)):
                wall = self.shared.clock.wall
                self.shared.within(GroupId(acks.group), group.dispatch.ack, acks.key, acks.ranges, wall)

    def step_malformed(self, frames: Iterable[Frame], pub_sid: int) -> None:
        """Payloads on the publish and ack subjects that could not be taken."""
        for frame in frames:
            if frame.sid == pub_sid:
                self.publishing.malformed(frame)
            else:
                self.shared.complain("ERR", f"Unable to process ack on {shown(frame.subject)}: not an ack")

    def step_frame(self, frame: Frame) -> None:
        """Any other frame: a request of a client, or an answer to one of ours."""
        if frame.subject in self.requests:
            if self.shared.replaying is None and self.shared.clustered:
                self.arrival_order.add(frame, self.shared.clock.now)
            if self.shared.replaying is None and (self.undecided or self._may_be_replaced()):
                self.undecided.append(frame)
            else:
                self._handle(frame)
        elif frame.subject.startswith(self.shared.reply_prefix):
            answered = self.shared.answered(frame.subject[len(self.shared.reply_prefix) :])
            if answered is not None:
                self.shared.within(META_GROUP, answered, None if frame.nobody else frame.payload)

    def _may_be_replaced(self) -> bool:
        """Whether another node may lead what this one believes to lead, and know better what to answer."""
        shared = self.shared
        return (shared.leads_meta and not shared.meta_lease) or any(group.dispatch.held for _, group in shared.led())

    def _group_of(self, frame: Frame) -> GroupId:
        """The group whose leader handles a request."""
        subjects = self.shared.subjects
        if frame.subject in (subjects.sub.encode(), subjects.unsub.encode(), subjects.sub_close.encode()):
            with contextlib.suppress(DecodeError):  # all of them name their channel in the same field
                return self.shared.group_number(decode(wire.UnsubscribeRequest, frame.payload).subject)
        return META_GROUP

    def _decide(self) -> None:
        while self.undecided and not self._may_be_replaced():
            self._handle(self.undecided.popleft())

    def _handle(self, frame: Frame) -> None:
        try:
            self.requests[frame.subject](frame)
        except Exception as error:  # noqa: BLE001 - the border of the group, which is looked for only then
            self.shared.fail(self._group_of(frame), error)

    def _asked_for_meta(self, frame: Frame) -> None:
        """Another node asks for a change of the metadata, or how far it is."""
        if not self.shared.concerns(META_GROUP):
            return
        try:
            change = pb.MetaChange.FromString(frame.payload)
        except DecodeError:
            return
        match change.WhichOneof("change"):
            case "create_channels":
                self.shared.change_meta(nobody_waits, create_channels=change.create_channels)
            case "delete_channel":
                self.shared.change_meta(nobody_waits, delete_channel=change.delete_channel)
            case None:
                self.read_index.answer(frame.reply)

    def step_committed(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """An entry is committed, and its record batches are indexed. On every node, in index order."""
        ticket = self.shared.by_index.pop((group, index), None)
        result: object = None
        if kind == Kind.RECORDS:
            self.publishing.committed(group, index, body)
            changed = [self._apply_change(group, pb.GroupChange.FromString(told), index) for told in changes_of(body)]
            result = changed or True
        elif kind == Kind.META:
            result = self._apply_meta(pb.MetaChange.FromString(body), index)
        elif kind == Kind.CHANGE:
            result = self._apply_change(group, pb.GroupChange.FromString(body), index)
        if ticket is not None:
            self._tell(ticket, result, "")

    def _apply_meta(self, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        applied = self.shared.meta.apply(change, index)
        self.clients.applied(applied)
        for info in applied.created:
            self.channels.registered(info)
            self.watching.registered(info)
        if applied.deleted is not None:
            self.channels.unregistered(applied.deleted.uid)
            self.channel_changes.unregistered(applied.deleted.uid)
            self.watching.unregistered(applied.deleted)
        self.read_index.applied()
        return applied

    def _apply_change(self, number: GroupId, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        machine = self.shared.groups[number].machine
        floor = machine.transactions.floor
        applied = machine.apply(change, index)
        self.subscribing.applied(number, applied)
        if applied.steered:
            self.positions.applied(number, applied)
        if machine.transactions.floor > floor:
            self.shared.trims.append((number, STAGING_UID, machine.transactions.floor))
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

    def step_fetched(self, fetch: Fetch, batches: list[Fetched]) -> None:
        """The answer to a Fetch."""
        if fetch.uid == STAGING_UID:
            self.committing.fetched(fetch, batches)
            return
        group = self.shared.groups.get(fetch.group)
        if group is not None:
            self.shared.redeliveries += group.dispatch.fetched(fetch, batches, self.shared.clock.now)

    def step_fetch_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer; tried again a second later."""
        if fetch.uid == STAGING_UID:
            self.committing.read_failed(fetch, why)
            return
        info = self.shared.meta.by_uid.get(fetch.uid)
        name = shown(info.name) if info else "?"
        self.shared.note("ERR", f"Error looking up message {name}:{fetch.runs[0][0]} ({why})")
        group = self.shared.groups.get(fetch.group)
        if group is not None:
            group.dispatch.read_failed(fetch, Nanos(self.shared.clock.now + SECOND))

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

    def step_payload_limit(self, most: int) -> None:
        """NATS takes payloads of at most *most* bytes from us."""
        self.shared.payload_bytes_max = most

    def step_heard_since(self, since: Nanos) -> None:
        """What was read from NATS since then is kept for a new leader."""
        self.shared.heard_since = since

    def step_loaded(self, number: GroupId, last: RaftIndex) -> None:
        """*last* is the newest entry that the log of a group had when this node began to listen."""
        if number != META_GROUP:
            self.shared.groups[number].loaded = last

    def step_lease(self, number: GroupId, *, holds: bool) -> None:
        """Whether no other node can lead a group that this one leads: without that it sends nothing of it. It may have left
        this node."""
        if number == META_GROUP:
            self.shared.meta_lease = holds
        elif number in self.shared.groups:
            self.shared.groups[number].dispatch.held = not holds

    def step_room(self, number: GroupId, *, closed: bool, full: bool) -> None:
        """Whether a group that is led takes proposals: none while it is *closed*; *full*: what comes had better grow."""
        shared = self.shared
        if closed != (number in shared.closed):
            shared.closed = shared.closed ^ {number}
        if full != (number in shared.full):
            shared.full = shared.full ^ {number}

    def step_fault(self, number: GroupId, error: Exception) -> None:
        """The program failed in a group, outside the broker: the next Ready has it frozen."""
        self.shared.fail(number, error)

    def step_alarm(self, at: int, call: Callable[[Nanos], None]) -> None:
        """Have the first `ready` at or after *at* (Nanos) call."""
        self.shared.timers.at(at, call)

    def admit_request(self, now: Nanos) -> bool:
        """Whether one more request of operators may be answered now, by the configured rate; it counts."""
        return self.shared.rates.admit(now)

    def catch_up(self, done: Callable[[bool], None]) -> None:
        """Call once this node's copy of the metadata is as new as the leader's; with False if that cannot be known now."""
        self.read_index.wait(done)

    def say(self, kind: str, text: str, **about: Any) -> None:
        """Tell whoever listens what happens, see stan.core.base.events; *about*: channel=, client_id=, group=, cursor_id=."""
        self.shared.say(kind, text, **about)

    # --- output -------------------------------------------------------------------------------------------------------

    def ready(self, now: Nanos, wall: WallNanos, room: int) -> Ready:
        """Everything to do now; deliveries stop at about *room* bytes. Call until `idle`."""
        shared = self.shared
        shared.clock = Clock(now, wall)
        shared.timers.run(now, partial(shared.fail, META_GROUP))
        self._decide()
        shared.within(META_GROUP, self.watching.tell)
        ready = Ready()
        ready.proposals = self.publishing.seal()
        shared.drain_into(ready)
        for number, group in shared.led():
            try:
                room = group.dispatch.pump(ready, now, room)
            except Exception as error:  # noqa: BLE001 - the border of the group
                shared.fail(number, error)
        changes = shared.take_changes()
        changing = {change.group for change in changes}
        for number, group in shared.led():
            shared.within(number, self._tell_progress, number, group, ready, changing)
        self.committing.pump(ready)
        ready.proposals += changes
        ready.sends += shared.pub_acks
        shared.pub_acks = []
        ready.faults += shared.faults
        shared.faults = []
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
            any(change.group not in shared.closed for change in shared.changes)
            or shared.responses
            or shared.redeliveries
            or shared.pub_acks
            or self.publishing.can_seal
            or self.committing.hungry
            or any(group.dispatch.fed for _, group in shared.led())
        )

    def _is_time_to_tell(self, number: GroupId, group: Group, now: Nanos, changing: set[GroupId]) -> bool:
        """A node alone tells its positions with what it sends; a replicated group now and then, and before any change that may
        move them elsewhere. Where there was no room for it, it is tried now and then."""
        shared, dispatch = self.shared, group.dispatch
        if not dispatch.has_progress or dispatch.frozen or number in shared.closed:
            dispatch.untold &= dispatch.has_progress  # what it was about may have ended
            return False
        if not shared.clustered and not dispatch.untold:
            return True
        much = dispatch.out_messages - group.told >= limits.PROGRESS_MESSAGES_MAX
        if number in changing or now >= group.tell_at > 0 or (much and number not in shared.full):
            group.tell_at = 0
            group.told = dispatch.out_messages
            return True
        if not group.tell_at:
            self._tell_later(group)
        return False

    def _tell_later(self, group: Group) -> None:
        group.tell_at = self.shared.clock.now + limits.PROGRESS_INTERVAL
        self.shared.timers.at(group.tell_at, lambda _now: None)  # a turn then

    def _tell_progress(self, number: GroupId, group: Group, ready: Ready, changing: set[GroupId]) -> None:
        if not self._is_time_to_tell(number, group, self.shared.clock.now, changing):
            return
        for change in group.dispatch.progress():
            ticket = self.shared.ticket(nobody_waits)
            self.progress_sent[ticket] = change
            ready.proposals.append(
                Proposal(number, Kind.CHANGE, change.SerializeToString(), urgent=False, ticket=ticket)
            )

    # --- outcome of proposals -----------------------------------------------------------------------------------------

    def written(self, proposal: Proposal, index: RaftIndex) -> None:
        """A proposal is in the log at *index*; its commit will come."""
        self.shared.by_index[proposal.group, index] = proposal.ticket
        if self.progress_sent.pop(proposal.ticket, None) is not None:
            self.shared.groups[proposal.group].dispatch.untold = False

    def refused(self, proposal: Proposal, why: str) -> None:
        """A proposal could not be written (a full disk, a frozen log): nothing of it happened."""
        self._progress_lost(proposal)
        self._tell(proposal.ticket, None, why)

    def in_doubt(self, proposal: Proposal) -> None:
        """Nobody knows whether a proposal is in the log, or somebody else is to take it: who waits for it is not answered."""
        self._progress_lost(proposal)
        waiting = self.shared.waiting.pop(proposal.ticket, None)
        if waiting is not None:
            waiting.in_doubt()

    def _progress_lost(self, proposal: Proposal) -> None:
        change = self.progress_sent.pop(proposal.ticket, None)
        if change is not None and self.shared.leads(proposal.group):
            self.shared.groups[proposal.group].dispatch.progress_lost(change)

    @property
    def untold(self) -> set[GroupId]:
        """Groups of which nothing may leave, as their logs had no room for what was sent and acked."""
        return {number for number, group in self.shared.led() if group.dispatch.untold}

    def no_room(self, number: GroupId) -> None:
        """The log of a group had no room for its progress: it sends nothing until there is. Call `ready` once more."""
        group = self.shared.groups.get(number)
        if group is not None and group.leads:
            group.dispatch.untold = True
            self._tell_later(group)

    def not_sent(self, deliveries: list[Delivery]) -> None:
        """Deliveries of a Ready did not leave: the log could not be told of them, or another node may lead their groups."""
        for number, group in self.shared.led():
            group.dispatch.not_sent([lost for lost in deliveries if lost.group == number])

    def freeze(self, number: GroupId) -> None:
        """A group's log failed and takes nothing until a restart: the group sends nothing either."""
        group = self.shared.groups.get(number)
        if group is not None:
            group.dispatch.frozen = True

    def fail(self, number: GroupId, why: str) -> None:
        """The program failed in a group, perhaps amid an entry: nothing of it is led, delivered or answered any more."""
        self.shared.faulty[number] = why
        self.freeze(number)
        if self.shared.leads(number):
            with contextlib.suppress(Exception):  # what is left of it is asked for nothing any more
                self.follow_meta() if number == META_GROUP else self.follow_group(number)

    def _tell(self, ticket: int, result: object, error: str) -> None:
        waiting = self.shared.waiting.pop(ticket, None)
        if waiting is not None:
            waiting.done(result, error)
