"""Subscriptions that this node serves although another one leads their group: delivery, and reports to the leader.

    Serve entry ─► live view ─► report ─► answer of the leader: a lease ─► deliveries ─► report with progress ─► ...

The live view is that of a leader (stan.core.leader.dispatch), over this node's copy of the group; what a leader writes into
progress entries, this node reports to it. Promises: nothing is sent without a lease, which counts from before its report was
sent; what was given to an earlier life of this node, or before it had loaded its copy, is not served, and the report says so.
"""

from collections.abc import Collection, Iterator
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.ready import Ready
from stan.core.clients.nodes import NodeRequests
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingAnswer, ServingReport


class ServingNode:
    """What this node serves of groups that other nodes lead."""

    def __init__(self, services: Services, nodes: NodeRequests) -> None:
        self.faults, self.leading = services.faults, services.leading
        self.nats, self.node = services.nats, services.node
        self.reports, self.requests, self.timers = services.reports, services.requests, services.timers
        self.nodes = nodes
        self._reporting: dict[GroupId, ChannelGroup] = {}  # of which reports are sent now and then
        # Progress in reports under way; None: they have none.
        self._unanswered: dict[GroupId, list[pb.GroupChange | None]] = {}
        # Progress that may not be in the log: it is told once more, as it is.
        self._again: dict[GroupId, list[pb.GroupChange]] = {}

    def begin(self, number: GroupId) -> None:
        """This node goes on from a copy of a group that it has loaded. What the log says of its earlier life is not served, and
        the leader hears of that before the lease would be over."""
        group = self.node.groups[number]
        if self.node.clustered and not group.leads and group.machine.served_by(self._me):
            self._report_from_now_on(number, group)

    def applied(self, number: GroupId, cursors: Collection[Cursor]) -> None:
        """A Serve entry of a group that another node leads was applied."""
        group, clock, me = self.node.groups[number], self.node.clock, self._me
        instance = self.nodes.heard.instance()
        for cursor in cursors:
            group.dispatch.members.release(cursor.cursor_id)
            if cursor.server != me or cursor.members[0].served.instance != instance:
                continue
            self.leading.serving.leases.setdefault(number, Nanos(0))
            group.dispatch.members.serve(cursor, clock.now, clock.wall, unconfirmed=False)
            client = self.node.meta.clients.get(cursor.client_id)
            if client is not None and client.failing:
                group.dispatch.members.set_failed_heartbeat(client.incarnation, failed=True)
        self.leading.serving_changed()
        if any(cursor.server == me for cursor in cursors):
            self._report_from_now_on(number, group)

    def deliver(self, ready: Ready, room: int) -> None:
        """Add deliveries to *ready*, of about *room* bytes."""
        now = self.node.clock.now
        for number, group in self.leading.serving.groups:
            dispatch = group.dispatch
            dispatch.stops.lease_lapsed = self.leading.serving.leases.get(number, 0) <= now
            if dispatch.cursors.scheduled:
                try:
                    room = dispatch.pump(ready, now, room)
                except Exception as error:  # noqa: BLE001 - the border of the group
                    self.faults.fail(number, error)

    def take_unreported(self, number: GroupId) -> list[pb.GroupChange]:
        """This node is to lead a group of which it has served subscriptions: what the leader before may not know."""
        group = self.node.groups[number]
        untold: list[pb.GroupChange] = []
        if self._reporting.pop(number, None) is group:
            under_way = [change for change in self._unanswered[number] if change is not None]
            untold = [*self._again[number], *under_way]
        return [*untold, *self._progress(group)]

    # --- reports --------------------------------------------------------------------------------------------------------

    @property
    def _me(self) -> bytes:
        return self.node.name.encode()

    def _report_from_now_on(self, number: GroupId, group: ChannelGroup) -> None:
        if self._reporting.get(number) is group:
            return
        self._reporting[number] = group
        self._unanswered[number], self._again[number] = [], []
        self._look(number, group, self.node.clock.now)

    def _look(self, number: GroupId, group: ChannelGroup, now: Nanos) -> None:
        """Report, and look again later, as long as something is served."""
        if self._reporting.get(number) is not group:
            return
        dispatch = group.dispatch
        serves = dispatch.cursors.by_id or group.machine.served_by(self._me)
        untold = dispatch.reports.waiting or self._again[number] or self._unanswered[number]  # of what has ended, too
        if self.node.groups.get(number) is not group or group.leads or not (serves or untold):
            del self._reporting[number]
            return
        self.timers.at(now + limits.SERVING_REPORT_INTERVAL, partial(self._look, number, group), number)
        stops = dispatch.stops
        if not (self._unanswered[number] or stops.frozen or stops.disconnected):
            self.faults.within(number, self._report, number, group)

    def _report(self, number: GroupId, group: ChannelGroup) -> None:
        again, self._again[number] = self._again[number], []
        changes: list[pb.GroupChange | None] = [*(again or self._progress(group))]
        for change in changes or [None]:
            report = ServingReport(
                node=self.node.name,
                group=number,
                begun=group.begun,
                instance=self.nodes.heard.instance(),
                applied=group.applied,
                progress=b"" if change is None else change.SerializeToString(),
            )
            answered = partial(self._answered, number, group, self.node.clock.now, change)
            self._unanswered[number].append(change)
            subject = self.nats.subjects.serving.encode()
            self.requests.send(number, subject, limits.SERVING_ANSWER_WAIT, answered, report.SerializeToString())

    def _progress(self, group: ChannelGroup) -> Iterator[pb.GroupChange]:
        """What changed since the last report, in parts of about SERVING_BYTES_MAX."""
        by_id = group.dispatch.cursors.by_id
        for taken in group.dispatch.reports.take(self.reports.moment):
            part, size = pb.GroupChange(at=taken.at, node=taken.node), 0
            for progress in taken.progress:
                live = by_id.get(progress.cursor_id)
                part.progress.append(progress)
                part.served_since.append(live.members[0].sub.served.since if live and live.members else 0)
                size += progress.ByteSize()
                if size >= limits.SERVING_BYTES_MAX:
                    yield part
                    part, size = pb.GroupChange(at=taken.at, node=taken.node), 0
            if part.progress:
                yield part

    def _answered(
        self, number: GroupId, group: ChannelGroup, sent_at: Nanos, change: pb.GroupChange | None, answer: bytes | None
    ) -> None:
        if self._reporting.get(number) is not group:
            return
        self._unanswered[number] = [one for one in self._unanswered[number] if one is not change]
        if self.node.groups.get(number) is not group or group.leads:
            return
        told = ServingAnswer()
        try:
            told = ServingAnswer.FromString(answer or b"")
        except DecodeError:
            self.reports.complain("WRN", f"group {number}: an answer about served subscriptions cannot be read")
        if told.granted:
            leases = self.leading.serving.leases
            leases[number] = max(leases.get(number, Nanos(0)), Nanos(sent_at + limits.SERVING_LEASE))
        if change is not None and not told.taken:  # it is not in the log, or that is unknown
            self._again[number].append(change)
