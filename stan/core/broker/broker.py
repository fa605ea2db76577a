"""The broker as a value: feed it events, take one `Ready`, carry it out, report the outcome back.

The broker never awaits, opens, sleeps, logs, or looks at a clock: time is an argument, and the same object runs in production
and in the simulator. Order inside one Ready is a promise: proposals are written before sends leave; the answer to a subscription
request leaves before its first message; a publisher's ack leaves after its message was offered to the subscribers.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from stan_protocol.scalars import ChannelUid, GroupId, Nanos, WallNanos

from stan import limits
from stan.config import Config
from stan.core.base.compaction import CompactionState
from stan.core.base.ready import Delivery, Indexes, LeaseAnswer, Ready
from stan.core.boundary.loading import GroupStates
from stan.core.boundary.view import BrokerView
from stan.core.broker.cluster import ClusterPlace
from stan.core.broker.entries import LogEntries
from stan.core.broker.frames import ReceivedFrames
from stan.core.broker.parts import FEATURES, make_parts
from stan.core.broker.progress import ProgressWriter
from stan.core.broker.reads import FetchedMessages
from stan.core.broker.replay import FrameReplay
from stan.core.broker.roles import GroupRoles
from stan.core.broker.stops import GroupStops
from stan.core.clients.authorization import PermissionAuthorizer
from stan.core.features import BrokerFeature, Features
from stan.core.services.node import META_GROUP
from stan.core.services.services import make_services

Numbers = Iterable[GroupId] | None


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
        self.states = GroupStates(self.services)
        for number in range(1, config.store.raft_groups + 1) if groups is None else groups:
            self.states.reset(GroupId(number))
        self.parts = make_parts(self.services)
        self.features = Features(self.services, self.parts, features)
        progress = ProgressWriter(self.services)
        self.view = BrokerView(self.services, self.parts.publishing)
        self.roles = GroupRoles(self.services, self.parts, self.features.all)
        self.stops = GroupStops(self.services, self.roles, progress)
        self.entries = LogEntries(self.services, self.parts, self.features, progress)
        self.frames = ReceivedFrames(self.services, self.parts, self.features.all)
        self.replay = FrameReplay(self.services, self.parts, self.frames)
        self.reads = FetchedMessages(self.services, self.parts)
        self.cluster = ClusterPlace(self.services, self.parts, self.features.all)

    def lead(self, now: Nanos, wall: WallNanos, *, unconfirmed: bool) -> None:
        """The state is loaded and replayed, and this node runs alone: start to lead every group."""
        self.start(now, wall)
        self.roles.lead_meta(b"")
        for number in self.services.node.groups:
            if number not in self.services.faults.faulty:
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

    def reconfigure(self, config: Config) -> None:
        """Apply changed settings: limits, policies, heartbeats, how a second subscription to a durable is handled. Everything
        else stays as it is."""
        self.services.node.config = config
        self.entries.policies_changed()
        self.parts.clients.reconfigure(config.heartbeat)
        self.services.senders.rate_limiter.configure(config.requests)

    def _retain(self, now: Nanos) -> None:
        self.services.timers.at(now + limits.RETENTION_INTERVAL, self._retain, META_GROUP)
        self.parts.channels.retention.expire()
        for feature in self.features.all:
            feature.look(now)
        self.services.reports.complaints.sum_up(now)

    # --- events -------------------------------------------------------------------------------------------------------

    def step_compacted(self, number: GroupId, done: Mapping[ChannelUid, CompactionState]) -> None:
        """How far the log of a group has got with its channels that are compacted."""
        group = self.services.node.groups.get(number)
        if group is not None:
            group.note_compacted(done, self.services.node.clock.wall)

    def step_disconnected(self) -> None:
        """The connection to NATS is lost: nothing can be sent."""
        self.services.nats.connected = False
        self.services.requests.lose_all()
        self.services.leading.each_dispatch(
            self.services.node.groups.items(), lambda dispatch: dispatch.redelivery.pause()
        )

    def step_reconnected(self, away_ns: int) -> None:
        """The connection is back after *away_ns*."""
        self.services.nats.connected = True
        self.parts.arrival_order.gap()
        self.roles.reconnected()
        groups = self.services.node.groups.items()
        self.services.leading.each_dispatch(groups, lambda dispatch: dispatch.redelivery.resume(away_ns))

    def step_payload_limit(self, most: int) -> None:
        """NATS takes payloads of at most *most* bytes from us."""
        self.services.nats.payload_bytes_max = most

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
            or self.frames.original_requests.pending
            or outgoing.news
            or parts.channels.policies.delayed
            or wall >= timers.wall_next
        ):
            self._run_due(now)
        ready = Ready()
        if parts.publishing.waiting:
            ready.proposals = parts.publishing.seal()
        if outgoing.responses or outgoing.waiting.queue or outgoing.trims or outgoing.drops:
            outgoing.drain_into(ready, self.services.leading.holds)
        progress: object = False  # true: a group that this node leads may have progress to write
        goes_on: object = False  # true: messages may have to be moved
        for number, group in self.services.leading.led:
            dispatch = group.dispatch
            if dispatch.cursors.scheduled:
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
            self.entries.propose(ready)
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

    def _run_due(self, now: Nanos) -> None:
        """Call the timers that are due, and handle what waits for the end of a read: requests, and news for long polls."""
        if self.services.timers.next is not None and self.services.timers.next <= now:
            self.services.timers.run(now, self.services.faults.fail)
        if self.frames.original_requests.pending:
            self.frames.original_requests.handle_pending()
        for feature in self.features.punctual:
            feature.due()

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
            self.reads.from_memory(ready)
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
        if outgoing.responses or outgoing.pub_acks or outgoing.fetches:
            return True
        for change in self.services.proposals.changes:
            if change.group not in self.services.leading.write_blocked:
                return True
        for number, group in self.services.leading.serving.groups + self.services.leading.led:
            dispatch = group.dispatch
            try:
                if dispatch.cursors.scheduled and dispatch.has_work:
                    return True
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.services.faults.fail(number, error)
            if dispatch.cursors.given_up and not dispatch.stops.mute:
                return True
        return bool(self.parts.publishing.waiting) and self.parts.publishing.can_seal

    def not_sent(self, sends: list[Delivery | LeaseAnswer]) -> None:
        """Deliveries and answers of a Ready did not leave: the log could not record them, or another node may lead their groups.
        The answers wait for the leases of the groups that this node leads."""
        deliveries = [one for one in sends if isinstance(one, Delivery)]
        self._keep_answers([one for one in sends if isinstance(one, LeaseAnswer)])
        for number, group in (*self.services.leading.led, *self.services.leading.serving.groups):
            lost = [one for one in deliveries if one.group == number]
            self.services.faults.within(number, group.dispatch.redelivery.not_sent, lost)

    def _keep_answers(self, answers: list[LeaseAnswer]) -> None:
        leaders = ((one, [*map(self.services.node.leader, one.groups)]) for one in answers)
        lost = self.services.outgoing.waiting.add((one, [*filter(None, led)]) for one, led in leaders if all(led))
        if lost:
            self.services.reports.complain("WRN", f"{lost} answers are not sent: too many wait for a lease")
