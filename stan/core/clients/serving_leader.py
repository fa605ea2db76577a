"""Which node serves a plain subscription: the leader of its group gives it to a node with a copy, and takes it back.

    subscribed ─► Serve(node) ─► reports, each answered by a lease ─► silence ─► Serve(leader) ─► Serve(another node)

A node serves as long as it has a lease. The leader takes back what was served by a node that has been silent for longer than any
lease it may have, and goes on from what that has reported; whatever may have been sent beyond comes again, flagged. Promises: no
two nodes serve a subscription at a time; a lease is granted only to a node that has applied all that was taken from it before.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial
from zlib import crc32

from google.protobuf.message import DecodeError
from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.base.names import shown
from stan.core.clients.nodes import NodeRequests
from stan.core.leader.local_group import Leadership
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor, Subscription
from stan.core.state.serving import willing
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingAnswer, ServingReport


class ServingLeader(LeaderPart):
    """Gives subscriptions of one group to other nodes, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, nodes: NodeRequests) -> None:
        super().__init__(services, leadership)
        self.leading = services.leading
        self.nodes = nodes
        self._since = 0  # RaftIndex: what was taken back before, a node must have applied to be granted a lease
        self._until: dict[bytes, Nanos] = {}  # no lease of that node lasts longer
        self._avoided: dict[bytes, Nanos] = {}  # nodes that are given nothing until then
        self._taken_back: dict[bytes, int] = {}  # RaftIndex of the newest entry that did so
        self._unwanted: set[bytes] = set()  # nodes that are granted no lease, so that theirs is taken back
        self._proposed: set[int] = set()  # cursors of Serve entries that are on their way
        self._marks: deque[tuple[Nanos, int]] = deque()  # what this leader had applied when
        self._watched = False

    # --- events ---------------------------------------------------------------------------------------------------------

    def lead(self, unreported: Iterable[pb.GroupChange]) -> None:
        """This node leads the group from now on. *unreported*: what it has served before, and the leader before may not know."""
        for change in unreported:
            self.proposals.propose(self.number, Kind.CHANGE, change.SerializeToString(), nobody_waits)
        self.leading.serving_changed()
        if any(sub.served.wish for sub in self.group.machine.subscriptions.by_id.values()):
            self._watch()

    def joined(self, sub: Subscription) -> None:
        """A subscription with a wish has begun, and its client is answered."""
        self._watch()
        self._give([self.group.machine.cursors[sub.cursor_id]])

    def applied(self, cursors: Iterable[Cursor]) -> None:
        """A Serve entry was applied."""
        group, clock = self.group, self.node.clock
        for cursor in cursors:
            group.dispatch.members.release(cursor.cursor_id)
            if cursor.server:
                self._until[cursor.server] = max(
                    self._until.get(cursor.server, Nanos(0)), Nanos(clock.now + limits.SERVING_TAKEN_BACK)
                )
                continue
            group.dispatch.members.serve(cursor, clock.now, clock.wall, unconfirmed=True)
            client = self.node.meta.clients.get(cursor.client_id)
            if client is not None and client.failing:
                group.dispatch.members.set_failed_heartbeat(client.incarnation, failed=True)
        self.leading.serving_changed()

    def reported(self, report: ServingReport, reply: bytes) -> None:
        """A node that serves subscriptions reports."""
        node, now = report.node.encode(), self.node.clock.now
        served = [(cursor, cursor.members[0].served) for cursor in self.group.machine.served_by(node)]
        lost = [cursor for cursor, by in served if by.since <= report.begun or by.instance != report.instance]
        if lost:
            self._take_back(node, lost, "has started, or loaded its copy, anew")
        granted = self._may_serve(node, report.applied, now)
        if granted:
            self._until[node] = Nanos(now + limits.SERVING_TAKEN_BACK)
        if not report.progress:
            self.outgoing.respond(reply, ServingAnswer(granted=granted).SerializeToString(), (self.number,))
        elif is_progress(report.progress):
            self.proposals.propose(self.number, Kind.CHANGE, report.progress, partial(self._written, reply, granted))
        else:
            self.reports.complain("WRN", f"a report of node {shown(node)} about served subscriptions is no progress")

    def _written(self, reply: bytes, granted: bool, result: object, _error: str) -> None:  # noqa: FBT001
        answer = ServingAnswer(granted=granted, taken=result is not None)
        self.outgoing.respond(reply, answer.SerializeToString(), (self.number,))

    def _may_serve(self, node: bytes, applied: int, now: Nanos) -> bool:
        """True if a node may be granted a lease: it has applied what was taken from it, is wanted, and does not lag."""
        while len(self._marks) > 1 and self._marks[1][0] <= now - limits.SERVING_LAG_MAX:
            self._marks.popleft()
        at_least = max(self._since, self._taken_back.get(node, 0))
        if self._marks and self._marks[0][0] <= now - limits.SERVING_LAG_MAX:
            at_least = max(at_least, self._marks[0][1])
        return node not in self._unwanted and applied >= at_least

    # --- who serves what ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look now and then after the subscriptions with a wish."""
        if not self._watched:
            self._watched, self._since = True, self._since or self.group.applied
            self._look(self.node.clock.now)

    def _look(self, now: Nanos) -> None:
        group = self.group
        by_node: dict[bytes, list[Cursor]] = {}
        for sub in group.machine.subscriptions.by_id.values():
            if sub.served.wish:
                by_node.setdefault(sub.served.node, []).append(group.machine.cursors[sub.cursor_id])
        if not by_node:
            self._watched = False
            return
        self.at(now + limits.SERVING_REPORT_INTERVAL, self._look)
        self._marks.append((now, group.applied))
        free = by_node.pop(b"", [])
        for node, cursors in by_node.items():
            until = self._until.setdefault(node, Nanos(now + limits.SERVING_TAKEN_BACK))
            if node == self.node.name.encode():
                self._take_back(node, cursors, "leads the group now")
            elif until <= now:
                self._take_back(node, cursors, "has not reported in time")
            elif not all(serves_plainly(group.dispatch.members.policy_of(cursor)) for cursor in cursors):
                self._unwanted.add(node)  # a policy wants what only the leader can do
        if free:
            self._give(free)

    def _give(self, cursors: Iterable[Cursor]) -> None:
        """Give subscriptions that the leader serves to other nodes, if there are any that they want. Of one that is in the middle
        of something the window runs empty first."""
        group = self.group
        now, heard, me = self.node.clock.now, self.nodes.heard, self.node.name
        copies = heard.holders(self.number)
        able = [name for name in copies if name != me and self._avoided.get(name.encode(), 0) <= now]
        replicas = [name for name in able if copies[name].replica]
        labels = heard.labels() if able else {}
        loads = dict.fromkeys(able, 0)
        for sub in group.machine.subscriptions.by_id.values():
            if (name := sub.served.node.decode()) in loads:
                loads[name] += 1
        given: dict[str, list[int]] = {}
        for cursor in cursors:
            live = group.dispatch.cursors.by_id.get(cursor.cursor_id)
            if live is None or not live.members or live.members[0].leaving or cursor.cursor_id in self._proposed:
                continue
            member, wish = live.members[0], cursor.members[0].served.wish
            wanted = willing(wish, replicas, labels) or willing(wish, able, labels)
            before, member.handed_over = member.handed_over, bool(wanted) and serves_plainly(live.policy)
            if before and not member.handed_over:
                group.dispatch.uncovered(cursor.uid)
            elif member.handed_over and not member.window.size:
                name = min(
                    wanted,
                    key=lambda name: (loads[name], crc32(b"%d %d %b" % (self.number, cursor.cursor_id, name.encode()))),
                )
                loads[name] += 1
                given.setdefault(name, []).append(cursor.cursor_id)
        for name, numbers in given.items():
            serve = pb.Serve(node=name.encode(), instance=copies[name].instance, cursor_ids=numbers)
            self._propose(serve)

    def _take_back(self, node: bytes, cursors: Iterable[Cursor], why: str) -> None:
        numbers = [cursor.cursor_id for cursor in cursors if cursor.cursor_id not in self._proposed]
        if not numbers:
            return
        self._unwanted.add(node)
        self._avoided[node] = Nanos(self.node.clock.now + limits.SERVING_RETRY)
        name = node.decode(errors="replace")
        self.reports.note(
            "WRN", f"group {self.number}: node {name} {why}: its {len(numbers)} subscriptions are taken back"
        )
        self.reports.emit(
            "served", f"{len(numbers)} subscriptions are taken back from node {name}, which {why}", group=self.number
        )
        self._propose(pb.Serve(cursor_ids=numbers), node)

    def _propose(self, serve: pb.Serve, taken_from: bytes = b"") -> None:
        cursor_ids = list(serve.cursor_ids)
        self._proposed.update(cursor_ids)
        for at in range(0, len(cursor_ids), limits.SERVING_CURSORS_MAX):
            part = cursor_ids[at : at + limits.SERVING_CURSORS_MAX]
            done = partial(self._ended, part, taken_from)
            change = pb.Serve(node=serve.node, instance=serve.instance, cursor_ids=part)
            self.change(done, nobody_waits, serve=change)

    def _ended(
        self,
        cursor_ids: list[int],
        taken_from: bytes,
        result: object,
        _error: str,
    ) -> None:
        """A Serve entry is applied, or was refused: then it is proposed again at the next look."""
        self._proposed.difference_update(cursor_ids)
        if taken_from and result is not None:
            self._taken_back[taken_from] = self.group.applied
            if not self.group.machine.served_by(taken_from):
                self._unwanted.discard(taken_from)
                self._until.pop(taken_from, None)


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
