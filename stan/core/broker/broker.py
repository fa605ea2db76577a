"""The broker as a value: feed it events, take one `Ready`, carry it out, report the outcome back.

The broker never awaits, opens, sleeps, logs, or looks at a clock: time is an argument, and the same object runs in production
and in the simulator. Order inside one Ready is a promise: proposals are written before sends leave; the answer to a subscription
request leaves before its first message; a publisher's ack leaves after its message was offered to the subscribers.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError
from stan_protocol.frames import Acks, Frame, Publishes, Verdicts
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND, ChannelUid, GroupId, Nanos, RaftIndex, WallNanos

from stan import limits
from stan.config import Config
from stan.core.base.compaction import CompactionState
from stan.core.base.names import shown
from stan.core.base.ready import Delivery, Fetch, Indexes, LeaseAnswer, Proposal, ReadResult, Ready
from stan.core.boundary import loading
from stan.core.boundary.view import BrokerView
from stan.core.broker.committed import CommittedEntries
from stan.core.broker.parts import FEATURES, make_parts
from stan.core.broker.progress import ProgressWriter
from stan.core.broker.roles import GroupRoles
from stan.core.broker.routes import handlers, original_handlers
from stan.core.clients.authorization import PermissionAuthorizer
from stan.core.clients.nodes import HeardNodes
from stan.core.features import BrokerFeature, Features
from stan.core.requests.original_requests import OriginalRequests
from stan.core.requests.request import Send
from stan.core.requests.router import Handler, RequestRouter
from stan.core.requests.table import REQUESTS
from stan.core.services.node import META_GROUP
from stan.core.services.services import make_services

Numbers = Iterable[GroupId] | None
NOTHING: Final[frozenset[GroupId]] = frozenset()


class Broker:
    """One node's broker: the metadata group and its channel groups."""

    def __init__(
        self,
        config: Config,
        indexes: Indexes,
        reply_prefix: bytes,
        groups: Numbers = None,
        features: Iterable[type[BrokerFeature]] = FEATURES,
    ) -> None:
        """*groups*: the channel groups that this node holds; None: all of them."""
        self.services = make_services(config, indexes, reply_prefix)
        if config.permissions is not None:
            self.services.senders.authorizer = PermissionAuthorizer(self.services, config.permissions)
        for number in range(1, config.store.raft_groups + 1) if groups is None else groups:
            self.reset(GroupId(number))
        self.parts = make_parts(self.services)
        self.features = Features(self.services, self.parts, features)
        self.view = BrokerView(self.services, self.parts.publishing)
        self.roles = GroupRoles(self.services, self.parts, self.features.all)
        self.committed = CommittedEntries(self.services, self.parts, self.features)
        self.progress = ProgressWriter(self.services)
        self.router = RequestRouter(self.services)
        subjects = self.services.nats.subjects
        self.routes = {
            REQUESTS[name].subject(subjects): self.receiver(name, handler)
            for name, handler in handlers(self.features.all).items()
        }
        self.requests = {
            getattr(subjects, name).encode(): handle
            for name, handle in original_handlers(self.services, self.parts, self.features.all).items()
        }
        self.original_requests = OriginalRequests(self.services, self.parts.arrival_order, self.requests)

    def receiver(self, name: str, handler: Handler, send: Send | None = None) -> Callable[[Frame], None]:
        """Return the function that takes the frames of the request *name* for *handler*, which may be one outside the core."""
        return self.router.receiver(REQUESTS[name], handler, send)

    def join_cluster(self, node: str, founders: tuple[str, ...], heard: HeardNodes) -> None:
        """Set this node's name in the cluster. *founders*: the nodes to assume while the metadata lists none."""
        self.services.node.name = node
        self.parts.nodes.founders, self.parts.nodes.heard = founders, heard

    def follow_labels(self) -> None:
        """Take the labels of live nodes into the metadata if they are others; call now and then."""
        self.parts.nodes.follow_labels()

    def follow_pool(self) -> None:
        """Open the pool of groups if all of its new groups have leaders; call now and then."""
        for feature in self.features.all:
            feature.nodes_seen()

    def reset(self, number: GroupId, machine: loading.Machine | None = None) -> None:
        """Put *machine* in place of a group's state, or an empty one; this node does not lead the group."""
        loading.reset(self.services, number, machine)
        self.services.leading.stop_serving(number)

    restored = staticmethod(loading.restored)

    def drop(self, number: GroupId) -> None:
        """Forget a channel group that this node no longer holds; this node does not lead the group."""
        self.services.node.groups.pop(number, None)
        self.services.leading.groups_changed()
        self.services.leading.stop_serving(number)

    def replay_entry(self, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """Apply one entry to the replicated state alone: no request is answered and nothing is delivered."""
        loading.replay(self.services.node, number, index, kind, body)

    def touch_all(self, number: GroupId) -> None:
        """Mark all of a group's state as changed: the stored rows are lost."""
        loading.touch_all(self.services.node, number)

    def take_some_rows(self, number: GroupId, most: int) -> loading.SomeRows | None:
        """Return some of the changed rows of a group's state, to be encoded at once and written with the others; None: there are
        no more than *most*."""
        return loading.take_some_rows(self.services.node, number, most)

    def take_changed_rows(self, number: GroupId) -> loading.ChangedRows:
        """Return the rows of a group's state that have changed since the last call, to be encoded before the next event and
        written with the group's applied index."""
        return loading.take_changed_rows(self.services.node, number)

    # --- leadership -----------------------------------------------------------------------------------------------------

    def lead(self, now: Nanos, wall: WallNanos, *, unconfirmed: bool) -> None:
        """The state is loaded and replayed, and this node runs alone: start to lead every group."""
        self.start(now, wall)
        self.roles.lead_meta(b"")
        for number in self.services.node.groups:
            if number not in self.services.leading.faulty:
                self.services.faults.within(number, partial(self.roles.lead_group, number, unconfirmed=unconfirmed))

    def start(self, now: Nanos, wall: WallNanos) -> None:
        """Set the clock for the first time and start the timers."""
        self.tick(now, wall)
        for number, group in self.services.node.groups.items():
            group.replay_filter.begun(now, empty=not group.loaded)
            self.parts.serving.of_others.begin(number)
        self.services.timers.at(now + limits.RETENTION_INTERVAL, self._retain, META_GROUP)
        for feature in self.features.all:
            feature.start()

    def replay(
        self,
        group: GroupId,
        steps: list[Publishes | Acks | Verdicts | Frame],
        since: Nanos,
        channels: frozenset[bytes] | None = None,
    ) -> None:
        """This node leads a group from now on, or some *channels* that have come to it: handle the buffered frames of the group
        since *since* that the previous leader has not handled."""
        with self.services.leading.replay_of(group):
            self._replay(group, steps, since, channels)

    def _replay(
        self,
        group: GroupId,
        steps: list[Publishes | Acks | Verdicts | Frame],
        since: Nanos,
        channels: frozenset[bytes] | None,
    ) -> None:
        if channels is None:
            self.original_requests.forget_pending(group)  # they are among the steps
        frames = [step for step in steps if isinstance(step, Frame)]
        done, followed = self.parts.clients.done_before(frames)
        self.parts.clients.refuse_followed(followed)
        followed += self.parts.subscribing.refuse_overtaken(frames)
        skipped = {id(frame) for frame in (*done, *followed)}  # one that was sent again equals the first
        heard = [step for step in steps if isinstance(step, Publishes)]
        left = iter(self.parts.filters.split_replayed(group, heard, since, channels))
        parted = self.services.node.meta.channels.parted.by_name
        for step in steps:
            if isinstance(step, Publishes):
                parts = next(left)
                if parted:
                    parts = parts._replace(new=self.parts.routing.routed(parts.new))
                self.parts.filters.admit_replayed(parts)
            elif isinstance(step, Acks):
                found = self.services.leading.acked(step.group, step.key)
                if found is not None and not found[0].dispatch.is_outdated(found[1], self.services.node.clock.wall):
                    self.step_acks((step,))
            elif isinstance(step, Verdicts):
                self.step_verdicts(step.frames, replayed=True)
            elif id(step) not in skipped:
                self.step_frame(step)

    def is_about(self, frame: Frame, channels: frozenset[bytes]) -> bool:
        """True if a frame is a client's request about one of *channels*."""
        return self.original_requests.is_about(frame, channels)

    def reconfigure(self, config: Config) -> None:
        """Apply changed settings: limits, policies, heartbeats, how a second subscription to a durable is handled. Everything
        else stays as it is."""
        self.services.node.config = config
        self.committed.policies_changed()
        self.parts.clients.reconfigure(config.heartbeat)
        self.services.senders.rate_limiter.configure(config.requests)

    def _retain(self, now: Nanos) -> None:
        self.services.timers.at(now + limits.RETENTION_INTERVAL, self._retain, META_GROUP)
        self.parts.channels.retention.expire()
        for feature in self.features.all:
            feature.look(now)
        self.services.reports.complaints.sum_up(now)

    # --- events -------------------------------------------------------------------------------------------------------

    def step_epoch(self, epoch: int) -> None:
        """The epoch of the cluster, as clients are told it; 0: it was never rescued."""
        self.parts.clients.template.epoch = epoch

    def step_survivors(self, names: tuple[str, ...], version: int) -> None:
        """The cluster was rescued: *names* are its nodes, in place of those of *version* in the metadata or before."""
        if self.services.leading.concerns(META_GROUP):
            self.parts.nodes.keep_survivors(names, version)

    def step_compacted(self, number: GroupId, done: Mapping[ChannelUid, CompactionState]) -> None:
        """How far the log of a group has got with its channels that are compacted."""
        group = self.services.node.groups.get(number)
        if group is not None:
            group.note_compacted(done, self.services.node.clock.wall)

    def to_replay(self, group: GroupId, batches: Iterable[Publishes], at: Nanos) -> Iterator[Publishes]:
        """What of the publishes that came at *at* is to be replayed for a group: for a channel with parts those for each part."""
        held, parted = self.services.node.groups.get(group), self.services.node.meta.channels.parted.by_name
        if held is None:
            return
        for batch in batches:
            info = self.services.node.meta.channels.get(batch.channel)
            old = at < self.services.node.clock.now - limits.EPHEMERAL_REFUSED_AGE_MAX
            if old and info is not None and info.is_ephemeral:
                continue  # those that are younger are refused
            for one in self.parts.routing.divided(batch) if parted else (batch,):
                if held.replay_filter.replays(batch.channel, one.channel, at):
                    yield one

    def requests_to_replay(self, group: GroupId, frames: list[Frame], at: Nanos) -> list[Frame]:
        """Those of the requests that came at *at* which are to be replayed for a group: not those about channels that were
        deleted since, which would be made anew."""
        held = self.services.node.groups.get(group)
        deleted = (
            {name for name, since in held.replay_filter.deleted.items() if at <= since} if held is not None else ()
        )
        if not deleted:
            return frames
        return [frame for frame in frames if not self.original_requests.is_about(frame, deleted)]

    def unregistered(self, frames: Iterable[Frame]) -> list[Frame]:
        """See `Clients.unregistered`."""
        return self.parts.clients.unregistered(frames)

    def step_publishes(self, batches: Iterable[Publishes]) -> None:
        """Publishes read from NATS."""
        publishes = self.parts.filters.publishes
        if self.services.node.meta.channels.parted.by_name:
            batches = self.parts.routing.routed(batches)
        for batch in batches:
            try:
                publishes(batch)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.services.faults.fail(self.services.placement.group_number(batch.channel), error)

    def step_acks(self, batches: Iterable[Acks]) -> None:
        """Acks read from NATS. An ack for a subscription that is gone, or of another user, changes nothing (STAN-SPEC 6.5)."""
        authorizer, clock = self.services.senders.authorizer, self.services.node.clock
        for acks in batches:
            taker = self.services.leading.acked(acks.group, acks.key)
            if taker is None:
                continue
            group, place = taker
            dispatch = group.dispatch
            if authorizer is not None:
                found = dispatch.cursors.by_ack_key.get(place)
                if found is None or not authorizer.may_ack(acks.user, found[1].sub):
                    continue
            try:
                dispatch.ack(place, acks.ranges, clock.now, clock.wall)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.services.faults.fail(group.machine.group, error)

    def step_verdicts(self, frames: Iterable[Frame], *, replayed: bool = False) -> None:
        """Acks read from NATS that say something else than "done", or that ack more than one message. They are judged like acks.
        One that cannot be taken changes nothing, and the log says so. *replayed*: the previous leader may have handled them."""
        clock, inbox, taker = self.services.node.clock, b"", None
        for frame in frames:
            if frame.subject != inbox:
                inbox, taker = frame.subject, self.services.senders.judged(frame.subject)
            if taker is None:
                continue
            group, key = taker
            number, found = group.machine.group, group.dispatch.cursors.by_ack_key.get(key)
            if found is None or (replayed and group.dispatch.is_outdated(key, clock.wall)):
                continue
            try:
                refusal = group.dispatch.verdict(key, wire.Ack.FromString(frame.payload), clock.now, clock.wall)
            except DecodeError:
                refusal = "it is no Ack"
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.services.faults.fail(number, error)
                continue
            if refusal:
                client = shown(found[1].sub.client_id)
                self.services.reports.complain(
                    "WRN", f'A verdict of client "{client}" on a message was ignored: {refusal}'
                )

    def step_malformed(self, frames: Iterable[Frame], pub_sid: int) -> None:
        """Payloads on the publish and ack subjects that could not be taken."""
        for frame in frames:
            if frame.sid == pub_sid:
                self.parts.filters.malformed(frame)
            else:
                self.services.reports.complain("ERR", f"Unable to process ack on {shown(frame.subject)}: not an ack")

    def step_frame(self, frame: Frame) -> None:
        """Any other frame: a request of a client or node, or the answer to a request of this broker."""
        if frame.subject in self.requests:
            self.original_requests.receive(frame)
        elif frame.subject.startswith(self.services.nats.reply_prefix):
            answered = self.services.requests.answered(frame.subject[len(self.services.nats.reply_prefix) :])
            if answered is not None:
                answered(None if frame.no_responders else frame.payload)

    def step_committed(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """An entry is committed, and its record batches are indexed. On every node, in index order."""
        proposals = self.services.proposals
        held = self.services.node.groups.get(group)
        if held is not None:
            if not held.applied:
                held.begun = index - 1
                self.parts.serving.of_others.begin(group)
            held.applied = index
        ticket = proposals.by_index.pop((group, index), None)
        result = self.committed.apply(group, index, kind, body)
        waiting = proposals.waiting.pop(ticket, None) if ticket is not None else None
        if waiting is not None:
            done, _ = waiting
            done(result, "")

    def step_fetched(self, fetch: Fetch, batches: list[ReadResult]) -> None:
        """The answer to a Fetch."""
        if not fetch.cursor_id:
            self.roles.fetched(fetch, batches)
            return
        group = self.services.node.groups.get(fetch.group)
        if group is not None:
            self.services.outgoing.redeliveries += group.dispatch.fetched(fetch, batches, self.services.node.clock.now)

    def step_fetch_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer a Fetch; it is retried a second later."""
        if not fetch.cursor_id:
            self.roles.fetched(fetch, [], why)
            return
        info = self.services.node.meta.by_uid.get(fetch.uid)
        name = shown(info.name) if info else "?"
        self.services.reports.note("ERR", f"Error looking up message {name}:{fetch.runs[0][0]} ({why})")
        group = self.services.node.groups.get(fetch.group)
        if group is not None:
            group.dispatch.read_failed(fetch, Nanos(self.services.node.clock.now + SECOND))

    def step_disconnected(self) -> None:
        """The connection to NATS is lost: nothing can be sent."""
        self.services.nats.connected = False
        self.services.requests.lose_all()
        for number, group in self.services.node.groups.items():
            self.services.faults.within(number, group.dispatch.pause)

    def step_reconnected(self, away_ns: int) -> None:
        """The connection is back after *away_ns*."""
        self.services.nats.connected = True
        self.parts.arrival_order.gap()
        self.roles.reconnected()
        for number, group in self.services.node.groups.items():
            self.services.faults.within(number, group.dispatch.resume, away_ns)

    def step_payload_limit(self, most: int) -> None:
        """NATS takes payloads of at most *most* bytes from us."""
        self.services.nats.payload_bytes_max = most

    def step_heard_since(self, since: Nanos) -> None:
        """The replay buffer holds what was read from NATS since *since*, for when this node becomes leader."""
        self.services.leading.heard_since = since

    def step_loaded(self, number: GroupId, last: RaftIndex) -> None:
        """*last* is the newest entry that the log of a group had when this node began to listen."""
        if number != META_GROUP:
            group = self.services.node.groups[number]
            group.loaded = last
            if last:
                group.replay_filter.complete_since = self.services.node.clock.now

    def step_lease(self, number: GroupId, *, holds: bool) -> None:
        """Report the lease of a group that this node leads. *holds*: no other node can lead the group; otherwise this node sends
        nothing of it. The group may have left this node meanwhile."""
        if number == META_GROUP:
            self.services.leading.meta_lease = holds
        elif number in self.services.node.groups:
            self.services.node.groups[number].dispatch.stops.lease_lapsed = not holds

    def step_room(self, number: GroupId, *, closed: bool, full: bool) -> None:
        """Report backpressure of a group that this node leads. *closed*: the group takes no proposals; *full*: entries wait, so
        new messages are collected into larger batches."""
        if closed != (number in self.services.leading.write_blocked):
            self.services.leading.write_blocked = self.services.leading.write_blocked ^ {number}
        if full != (number in self.services.leading.saturated):
            self.services.leading.saturated = self.services.leading.saturated ^ {number}

    def step_handover(self, number: GroupId, *, under_way: bool) -> None:
        """This node is about to hand a group over that it leads, or that has come to nothing. The next `ready` writes the group's
        progress, and nothing more of it is sent meanwhile: the next leader knows of all that was sent."""
        if number in self.services.node.groups:
            self.services.node.groups[number].dispatch.stops.handed_over = under_way

    def step_fault(self, number: GroupId, error: Exception) -> None:
        """The program failed in a group, outside the broker: the next Ready reports the fault, which freezes the group."""
        self.services.faults.fail(number, error)

    def step_alarm(self, at: int, call: Callable[[Nanos], None], group: GroupId) -> None:
        """Run *call* for *group* in the first `ready` at or after *at* (Nanos)."""
        self.services.timers.at(at, call, group)

    def catch_up(self, done: Callable[[bool], None], group: GroupId) -> None:
        """Call *done* once for *group*: with True when this node's copy of the metadata is as new as the leader's, with False if
        that cannot be found out now."""
        self.parts.read_index.wait(done, group)

    def emit(self, kind: str, text: str, **about: Any) -> None:
        """Publish an admin event (stan.core.base.admin_events); *about*: channel=, client_id=, group=, cursor_id=."""
        self.services.reports.emit(kind, text, **about)

    # --- output -------------------------------------------------------------------------------------------------------

    def ready(self, now: Nanos, wall: WallNanos, room: int) -> Ready:
        """Return everything to do now; deliveries stop at about *room* bytes. Call it again as long as `has_work`."""
        parts = self.parts
        outgoing, timers, clock = self.services.outgoing, self.services.timers, self.services.node.clock
        clock.now, clock.wall = now, wall
        if (
            (timers.next is not None and timers.next <= now)
            or self.original_requests.pending
            or outgoing.news
            or parts.channels.policies.delayed
            or wall >= timers.wall_next
        ):
            self._run_due(now)
        ready = Ready()
        if parts.publishing.waiting:
            ready.proposals = parts.publishing.seal()
        said = outgoing.responses or outgoing.redeliveries or outgoing.waiting.queue
        if said or outgoing.trims or outgoing.drops:
            outgoing.drain_into(ready, self.services.leading.holds)
        progress: object = False  # true: a group that this node leads may have progress to write
        goes_on: object = False  # true: messages may have to be moved
        for number, group in self.services.leading.led:
            dispatch = group.dispatch
            if dispatch.scheduled:
                room = self._deliver(number, ready, room)
            unreported = dispatch.reports
            progress = (
                progress
                or unreported.cursors
                or unreported.unconfirmed
                or unreported.gone
                or dispatch.stops.progress_blocked
            )
            goes_on = goes_on or dispatch.cursors.given_up
        if progress or self.services.proposals.changes:
            self._propose_changes(ready)
        if goes_on or outgoing.fetches or self.services.leading.serving.groups:
            self._go_on(ready, room)
        if outgoing.pub_acks:
            ready.sends += outgoing.pub_acks
            outgoing.pub_acks = []
        if outgoing.replays or self.services.faults.new or self.services.reports.notes:
            self._report(ready)
        ready.deadline = timers.next
        return ready

    def _report(self, ready: Ready) -> None:
        """Move replays, faults and log lines into *ready*."""
        outgoing, faults, reports = self.services.outgoing, self.services.faults, self.services.reports
        ready.replays, outgoing.replays = outgoing.replays, []
        ready.faults, faults.new = faults.new, []
        ready.notes, reports.notes = reports.notes, []

    def _read_memory(self, ready: Ready) -> None:
        """Answer the reads of ephemeral channels: their messages are here."""
        stores, asked = self.parts.channels.stores.by_uid, ready.fetches
        ready.fetches = [fetch for fetch in asked if fetch.uid not in stores]
        for fetch in asked:
            if fetch.uid in stores:
                found = stores[fetch.uid].read(fetch.runs, fetch.bytes_max)
                self.services.faults.within(fetch.group, self.step_fetched, fetch, found)

    def _run_due(self, now: Nanos) -> None:
        """Call the timers that are due, and handle what waits for the end of a read: requests, and news for long polls."""
        if self.services.timers.next is not None and self.services.timers.next <= now:
            self.services.timers.run(now, self.services.faults.fail)
        if self.original_requests.pending:
            self.original_requests.handle_pending()
        for feature in self.features.punctual:
            feature.due()

    def _propose_changes(self, ready: Ready) -> None:
        """Add the progress entries that are due to *ready*, and behind them the changes of this turn."""
        changes = (
            self.services.proposals.take(self.services.leading.write_blocked) if self.services.proposals.changes else []
        )
        changing = {change.group for change in changes} if changes else NOTHING
        for number, group in self.services.leading.led:
            reports = group.dispatch.reports
            if reports.cursors or reports.unconfirmed or reports.gone or group.dispatch.stops.progress_blocked:
                try:
                    self.progress.report(number, group, ready, changing)
                except Exception as error:  # noqa: BLE001 - the border of the group
                    self.services.faults.fail(number, error)
        ready.proposals += changes

    def _go_on(self, ready: Ready, room: int) -> None:
        """Deliver what this node serves for other leaders; continue moves into dead letter channels."""
        self.parts.serving.of_others.deliver(ready, room)
        for feature in self.features.pumped:
            feature.pump()
        outgoing = self.services.outgoing
        ready.fetches += outgoing.fetches
        outgoing.fetches.clear()

    def _deliver(self, number: GroupId, ready: Ready, room: int) -> int:
        """Add the deliveries of a group to *ready*; returns the room left."""
        try:
            room = self.services.node.groups[number].dispatch.pump(ready, self.services.node.clock.now, room)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.services.faults.fail(number, error)
        if ready.fetches and self.parts.channels.stores.by_uid:
            self._read_memory(ready)
        return room

    def tick(self, now: Nanos, wall: WallNanos) -> None:
        """Set the time before events are stepped."""
        clock = self.services.node.clock
        clock.now, clock.wall = now, wall
        if wall >= self.services.timers.wall_next:  # before anything is sent
            for feature in self.features.punctual:
                feature.due()

    @property
    def has_work(self) -> bool:
        """True if `ready` would find deliveries to make or proposals to write."""
        outgoing = self.services.outgoing
        if outgoing.responses or outgoing.redeliveries or outgoing.pub_acks or outgoing.fetches:
            return True
        for change in self.services.proposals.changes:
            if change.group not in self.services.leading.write_blocked:
                return True
        for number, group in self.services.leading.serving.groups + self.services.leading.led:
            dispatch = group.dispatch
            try:
                if dispatch.scheduled and dispatch.has_work:
                    return True
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.services.faults.fail(number, error)
            if dispatch.cursors.given_up and not dispatch.stops.mute:
                return True
        return bool(self.parts.publishing.waiting) and self.parts.publishing.can_seal

    # --- outcome of proposals -----------------------------------------------------------------------------------------

    def written(self, proposal: Proposal, index: RaftIndex) -> None:
        """A proposal is in the log at *index*; its commit follows."""
        self.services.proposals.by_index[proposal.group, index] = proposal.ticket
        if self.progress.unwritten:
            self.progress.written(proposal)

    def refused(self, proposal: Proposal, why: str) -> None:
        """A proposal could not be written (a full disk, a frozen log): nothing of it happened."""
        self.progress.lost(proposal)
        waiting = self.services.proposals.waiting.pop(proposal.ticket, None)
        if waiting is not None:
            done, _ = waiting
            done(None, why)

    def in_doubt(self, proposal: Proposal) -> None:
        """It is unknown whether a proposal is in the log, or another leader has to take it: the request behind the proposal is
        not answered."""
        self.progress.lost(proposal)
        waiting = self.services.proposals.waiting.pop(proposal.ticket, None)
        if waiting is not None:
            _, in_doubt = waiting
            in_doubt()

    def not_sent(self, sends: list[Delivery | LeaseAnswer]) -> None:
        """Deliveries and answers of a Ready did not leave: the log could not record them, or another node may lead their groups.
        The answers wait for the leases of the groups that this node leads."""
        deliveries = [one for one in sends if isinstance(one, Delivery)]
        self._keep_answers([one for one in sends if isinstance(one, LeaseAnswer)])
        for number, group in (*self.services.leading.led, *self.services.leading.serving.groups):
            lost = [one for one in deliveries if one.group == number]
            self.services.faults.within(number, group.dispatch.not_sent, lost)

    def _keep_answers(self, answers: list[LeaseAnswer]) -> None:
        lost = self.services.outgoing.waiting.add(
            one for one in answers if all(map(self.services.node.leads, one.groups))
        )
        if lost:
            self.services.reports.complain("WRN", f"{lost} answers are not sent: too many wait for a lease")

    def freeze(self, number: GroupId) -> None:
        """A group's log failed and takes nothing until a restart: the group sends nothing either."""
        group = self.services.node.groups.get(number)
        if group is not None:
            group.dispatch.stops.frozen = True

    def fail(self, number: GroupId, why: str) -> None:
        """The program failed in a group, perhaps amid an entry: until a restart this node neither leads the group nor delivers
        or answers anything of it."""
        self.services.leading.faulty[number] = why
        self.freeze(number)
        if self.services.node.leads(number):
            with contextlib.suppress(Exception):  # the state that remains is not used again
                self.roles.follow_meta() if number == META_GROUP else self.roles.follow_group(number)
