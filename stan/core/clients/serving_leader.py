"""Which node serves a plain subscription: the leader of its group gives it to a node with a copy, and takes it back.

    subscribed ─► Serve(node) ─► reports, each answered by a lease ─► silence ─► Serve(leader) ─► Serve(another node)

A node serves as long as it has a lease. The leader takes back what was served by a node that has been silent for longer than any
lease it may have, and goes on from what that has reported; whatever may have been sent beyond comes again, flagged. Promises: no
two nodes serve a subscription at a time; a lease is granted only to a node that has applied all that was taken from it before.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.clients.nodes import NodeRequests
from stan.core.context import BrokerContext, nobody_waits, shown
from stan.core.leader.leadership import Leadership
from stan.core.leader.local_group import ChannelGroup
from stan.core.state.group import Cursor, CursorKind, Subscription, kind_and_name
from stan.core.state.serving import ANY, willing
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingAnswer, ServingReport


@dataclass(slots=True)
class ServedNodes:
    """What the leader of a group knows of the nodes that serve subscriptions of it."""

    since: int = 0  # RaftIndex: what was taken back before, a node must have applied to be granted a lease
    until: dict[bytes, Nanos] = field(default_factory=dict)  # no lease of that node lasts longer
    avoided: dict[bytes, Nanos] = field(default_factory=dict)  # nodes that are given nothing until then
    taken_back: dict[bytes, int] = field(default_factory=dict)  # RaftIndex of the newest entry that did so
    unwanted: set[bytes] = field(default_factory=set)  # nodes that are granted no lease, so that theirs is taken back
    proposed: set[int] = field(default_factory=set)  # cursors of Serve entries that are on their way
    marks: deque[tuple[Nanos, int]] = field(default_factory=deque)  # what this leader had applied when
    watched: bool = False


class ServingLeader:
    """Gives subscriptions of groups that this node leads to other nodes."""

    def __init__(self, context: BrokerContext, nodes: NodeRequests) -> None:
        self.context = context
        self.nodes = nodes

    def wish(self, request: wire.SubscriptionRequest) -> bytes:
        """Which nodes may serve the subscription that is asked for: the request says so, or an operator's policy; b"": the leader
        does."""
        context = self.context
        kind, _ = kind_and_name(request.queue_group, request.durable_name)
        if not context.clustered or kind is not CursorKind.PLAIN:
            return b""
        return request.replica or (ANY if context.policies.of(request.subject, b"").from_replica else b"")

    # --- events ---------------------------------------------------------------------------------------------------------

    def lead(self, number: GroupId, unreported: Iterable[pb.GroupChange] = ()) -> None:
        """This node leads a group from now on. *unreported*: what it has served before, and the leader before may not know."""
        group = self.context.groups[number]
        for change in unreported:
            self.context.propose(number, Kind.CHANGE, change.SerializeToString(), nobody_waits)
        self.context.serving_changed()
        if any(sub.served.wish for sub in group.machine.subscriptions.by_id.values()):
            self._watch(number, group)

    def joined(self, number: GroupId, sub: Subscription) -> None:
        """A subscription with a wish has begun, and its client is answered."""
        group = self.context.groups[number]
        if group.leads:
            self._watch(number, group)
            self._give(number, group, [group.machine.cursors[sub.cursor_id]])

    def applied(self, number: GroupId, cursors: Iterable[Cursor]) -> None:
        """A Serve entry of a group that this node leads was applied."""
        context = self.context
        group, clock, known = context.groups[number], context.clock, context.kept(number, ServedNodes)
        for cursor in cursors:
            group.dispatch.release(cursor.cursor_id)
            if cursor.server:
                known.until[cursor.server] = max(
                    known.until.get(cursor.server, Nanos(0)), Nanos(clock.now + limits.SERVING_TAKEN_BACK)
                )
                continue
            group.dispatch.serve(cursor, clock.now, clock.wall, unconfirmed=True)
            client = context.meta.clients.get(cursor.client_id)
            if client is not None and client.failing:
                group.dispatch.set_failed_heartbeat(client.incarnation, failed=True)
        context.serving_changed()

    def heard(self, frame: Frame) -> None:
        """A node that serves subscriptions reports."""
        context = self.context
        try:
            report = ServingReport.FromString(frame.payload)
        except DecodeError:
            context.complain("WRN", "a report about served subscriptions cannot be read")
            return
        number = GroupId(report.group)
        group = context.groups.get(number)
        if group is not None and context.leading.replaying is None and context.holds((number,)):
            context.within(number, self._heard, report, frame.reply, number, group)

    def _heard(self, report: ServingReport, reply: bytes, number: GroupId, group: ChannelGroup) -> None:
        context = self.context
        known, node, now = context.kept(number, ServedNodes), report.node.encode(), context.clock.now
        served = [(cursor, cursor.members[0].served) for cursor in group.machine.served_by(node)]
        lost = [cursor for cursor, by in served if by.since <= report.begun or by.instance != report.instance]
        if lost:
            self._take_back(number, group, node, lost, "has started, or loaded its copy, anew")
        granted = self._may_serve(known, node, report.applied, now)
        if granted:
            known.until[node] = Nanos(now + limits.SERVING_TAKEN_BACK)
        if not report.progress:
            context.respond(reply, ServingAnswer(granted=granted).SerializeToString(), (number,))
        elif is_progress(report.progress):
            context.propose(number, Kind.CHANGE, report.progress, partial(self._reported, number, reply, granted))
        else:
            context.complain("WRN", f"a report of node {shown(node)} about served subscriptions is no progress")

    def _reported(self, number: GroupId, reply: bytes, granted: bool, result: object, _error: str) -> None:  # noqa: FBT001
        answer = ServingAnswer(granted=granted, taken=result is not None)
        self.context.respond(reply, answer.SerializeToString(), (number,))

    @staticmethod
    def _may_serve(known: ServedNodes, node: bytes, applied: int, now: Nanos) -> bool:
        """True if a node may be granted a lease: it has applied what was taken from it, is wanted, and does not lag."""
        while len(known.marks) > 1 and known.marks[1][0] <= now - limits.SERVING_LAG_MAX:
            known.marks.popleft()
        at_least = max(known.since, known.taken_back.get(node, 0))
        if known.marks and known.marks[0][0] <= now - limits.SERVING_LAG_MAX:
            at_least = max(at_least, known.marks[0][1])
        return node not in known.unwanted and applied >= at_least

    # --- who serves what ------------------------------------------------------------------------------------------------

    def _watch(self, number: GroupId, group: ChannelGroup) -> None:
        """Look now and then after the subscriptions with a wish."""
        known = self.context.kept(number, ServedNodes)
        if not known.watched and group.leadership is not None:
            known.watched, known.since = True, known.since or group.applied
            self._look(number, group.leadership, self.context.clock.now)

    def _look(self, number: GroupId, leadership: Leadership, now: Nanos) -> None:
        context = self.context
        group = context.groups.get(number)
        if group is None or group.leadership is not leadership:
            return
        known = leadership.kept(ServedNodes)
        by_node: dict[bytes, list[Cursor]] = {}
        for sub in group.machine.subscriptions.by_id.values():
            if sub.served.wish:
                by_node.setdefault(sub.served.node, []).append(group.machine.cursors[sub.cursor_id])
        if not by_node:
            known.watched = False
            return
        context.timers.at(now + limits.SERVING_REPORT_INTERVAL, partial(self._look, number, leadership), number)
        known.marks.append((now, group.applied))
        free = by_node.pop(b"", [])
        for node, cursors in by_node.items():
            until = known.until.setdefault(node, Nanos(now + limits.SERVING_TAKEN_BACK))
            if node == context.reports.events.node.encode():
                self._take_back(number, group, node, cursors, "leads the group now")
            elif until <= now:
                self._take_back(number, group, node, cursors, "has not reported in time")
            elif not all(serves_plainly(group.dispatch.policy_of(cursor)) for cursor in cursors):
                known.unwanted.add(node)  # a policy wants what only the leader can do
        if free:
            self._give(number, group, free)

    def _give(self, number: GroupId, group: ChannelGroup, cursors: Iterable[Cursor]) -> None:
        """Give subscriptions that the leader serves to other nodes, if there are any that they want. Of one that is in the middle
        of something the window runs empty first."""
        context, known = self.context, self.context.kept(number, ServedNodes)
        now, heard, me = context.clock.now, self.nodes.heard, context.reports.events.node
        copies = heard.holders(number)
        able = [name for name in copies if name != me and known.avoided.get(name.encode(), 0) <= now]
        replicas = [name for name in able if copies[name].replica]
        labels = heard.labels() if able else {}
        loads = dict.fromkeys(able, 0)
        for sub in group.machine.subscriptions.by_id.values():
            if (name := sub.served.node.decode()) in loads:
                loads[name] += 1
        given: dict[str, list[int]] = {}
        for cursor in cursors:
            live = group.dispatch.cursors.by_id.get(cursor.cursor_id)
            if live is None or not live.members or live.members[0].leaving or cursor.cursor_id in known.proposed:
                continue
            member, wish = live.members[0], cursor.members[0].served.wish
            wanted = willing(wish, replicas, labels) or willing(wish, able, labels)
            before, member.handed_over = member.handed_over, bool(wanted) and serves_plainly(live.policy)
            if before and not member.handed_over:
                group.dispatch.uncovered(cursor.uid)
            elif member.handed_over and not member.window.size:
                name = min(
                    wanted,
                    key=lambda name: (loads[name], crc32(b"%d %d %b" % (number, cursor.cursor_id, name.encode()))),
                )
                loads[name] += 1
                given.setdefault(name, []).append(cursor.cursor_id)
        for name, numbers in given.items():
            serve = pb.Serve(node=name.encode(), instance=copies[name].instance, cursor_ids=numbers)
            self._propose(number, group, serve)

    def _take_back(
        self, number: GroupId, group: ChannelGroup, node: bytes, cursors: Iterable[Cursor], why: str
    ) -> None:
        context, known = self.context, self.context.kept(number, ServedNodes)
        numbers = [cursor.cursor_id for cursor in cursors if cursor.cursor_id not in known.proposed]
        if not numbers:
            return
        known.unwanted.add(node)
        known.avoided[node] = Nanos(context.clock.now + limits.SERVING_RETRY)
        name = node.decode(errors="replace")
        context.note("WRN", f"group {number}: node {name} {why}: its {len(numbers)} subscriptions are taken back")
        context.emit(
            "served", f"{len(numbers)} subscriptions are taken back from node {name}, which {why}", group=number
        )
        self._propose(number, group, pb.Serve(cursor_ids=numbers), node)

    def _propose(self, number: GroupId, group: ChannelGroup, serve: pb.Serve, taken_from: bytes = b"") -> None:
        known, cursor_ids = self.context.kept(number, ServedNodes), list(serve.cursor_ids)
        known.proposed.update(cursor_ids)
        for at in range(0, len(cursor_ids), limits.SERVING_CURSORS_MAX):
            part = cursor_ids[at : at + limits.SERVING_CURSORS_MAX]
            done = partial(self._proposed, group, known, part, taken_from)
            change = pb.Serve(node=serve.node, instance=serve.instance, cursor_ids=part)
            self.context.change_group(number, done, nobody_waits, serve=change)

    def _proposed(
        self,
        group: ChannelGroup,
        known: ServedNodes,
        cursor_ids: list[int],
        taken_from: bytes,
        result: object,
        _error: str,
    ) -> None:
        """A Serve entry is applied, or was refused: then it is proposed again at the next look."""
        known.proposed.difference_update(cursor_ids)
        if taken_from and result is not None:
            known.taken_back[taken_from] = group.applied
            if not group.machine.served_by(taken_from):
                known.unwanted.discard(taken_from)
                known.until.pop(taken_from, None)


def is_progress(body: bytes) -> bool:
    """True if *body* is a change of a group that tells progress of served cursors, and nothing else."""
    try:
        change = pb.GroupChange.FromString(body)
    except DecodeError:
        return False
    return change.WhichOneof("change") is None and 0 < len(change.progress) == len(change.served_since)


def serves_plainly(policy: DeliveryPolicy) -> bool:
    """True if the messages of a plain subscription can be delivered by another node than the leader."""
    return policy is not NOT_KNOWN and not (
        policy.max_deliver or policy.backoff or policy.adaptive_window or policy.dead_letter
    )
