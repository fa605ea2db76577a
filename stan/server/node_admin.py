"""Administration requests that concern a single node: its status, its settings; and to a group's leader to transfer leadership.

    nodes, options: every node answers for itself      step_down: the leader of the group

Promises: the node answers for its status as soon as it is connected, before clients are served, and even if its disk hangs, then
with the disk space that was seen last. Part of docs/admin-api.md; the broker answers the requests in stan.core.broker.routes.
"""

import asyncio
import os
import resource
import sys
from functools import partial
from pathlib import Path
from typing import Final

from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import NOT_A_CLUSTER
from stan_protocol.scalars import GroupId

from stan import level, limits
from stan.core.requests.request import AcceptedRequest
from stan.core.services.node import META_GROUP
from stan.edge.cluster.node import ClusterNode
from stan.edge.process import BrokerProcess
from stan.labels import place_rows, places_of
from stan.monitor.disk_space import Space
from stan.monitor.health import ready, trouble
from stan.monitor.view import NodeView
from stan.product import VERSION
from stan.protocol.kernel import server as kernel
from stan.raft.consensus import Consensus
from stan.raft.group import RaftGroup
from stan.raft.solo import SOLO_TERM

OPTIONS_ROOM: Final = 256
"""Bytes of an answer that are left for everything besides its options."""


class NodeAdmin:
    """Answers administration requests about this node. Made before the node starts."""

    def __init__(self, view: NodeView, node: BrokerProcess, cluster_node: ClusterNode | None) -> None:
        """Subscribe to the requests. *cluster_node*: the node's part in its cluster; None: a standalone broker."""
        self._view = view
        self._node = node
        self._cluster_node = cluster_node
        self._state = node.broker.view
        self._me = node.storage.node_id if cluster_node is not None else ""
        self._waiting: list[AcceptedRequest] = []  # status requests without an answer yet
        self._answering: asyncio.Task[None] | None = None
        gateway = node.gateway
        gateway.serve_early("admin.nodes", self._nodes)  # also while clients are not served yet
        gateway.serve("admin.options", self._options)
        gateway.serve("admin.step_down", self._step_down)

    # --- status -------------------------------------------------------------------------------------------------------

    def _nodes(self, accepted: AcceptedRequest) -> None:
        """Handle a NodesRequest: first look at the disk's space, then answer."""
        if len(self._waiting) >= limits.NODE_ANSWERS_MAX:
            accepted.busy()
            return
        self._waiting.append(accepted)
        if len(self._waiting) == 1:
            self._answering = asyncio.create_task(self._answer_waiting())

    async def _answer_waiting(self) -> None:
        """Answer all waiting status requests."""
        space = await self._view.disk.look()
        waiting, self._waiting = self._waiting, []
        if waiting and not self._node.driver.turns.stopped:
            status = self._status(space)
            for accepted in waiting:
                accepted.answer_with(status)

    def _status(self, space: Space) -> pb.NodeStatus:
        node, state, config = self._node, self._state, self._node.config
        totals = state.totals()
        status = pb.NodeStatus(
            node=self._me,
            server_id=self._view.server_id,
            product=VERSION,
            level=state.meta.level,
            level_known=level.KNOWN,
            started=self._view.started,
            not_ready=ready(self._view),
            clients=state.meta.client_count,
            channels=len(state.meta.channels),
            pool_groups=state.pool,
            pool_open=state.pool_open,
            channels_to_move=state.channels_to_move,
            moves_paused=state.meta.moves_paused,
            monitor=self._view.pages,
            disk_free=space.free,
            disk_total=space.total,
            rss=_resident(),
            kernel=kernel.NAME,
            sync=config.store.sync,
            store=config.store.kind,
            now=node.runtime.wall(),
            messages_in=totals.in_messages,
            acked=[pb.AckedMessages(level=level, messages=count) for level, count in totals.acked_messages.items()],
            unanswered=totals.unanswered_messages,
            messages_out=totals.out_messages,
            bytes_in=totals.in_bytes,
            bytes_out=totals.out_bytes,
            groups=[self._group(number, group) for number, group in sorted(node.driver.groups.items())],
        )
        for group in node.driver.groups.values():
            status.decompressed_batches += group.log.decompression.batches
            status.decompressed_again += group.log.decompression.again
        if self._cluster_node is not None:
            membership = self._cluster_node.membership
            status.nodes.extend(self._cluster_node.reconfiguration.names)
            status.nodes_version = state.meta.nodes_version
            status.labels = str(places_of([membership.me.own_labels])[""])
            status.places.extend(place_rows(self._cluster_node.reconfiguration.places, pb.NodePlace))
            status.replica = membership.me.replica
            replicas = membership.hellos.read_replicas(node.runtime.now())
            status.read_replicas.extend(
                name for name in replicas if name not in self._cluster_node.reconfiguration.names
            )
        return status

    def _group(self, number: GroupId, group: Consensus) -> pb.GroupStatus:
        node = self._node
        fault = trouble(node, number, group)
        status = pb.GroupStatus(
            group=number,
            last_index=group.log.last_index,
            applied=node.storage.applied.get(number, (0, 0))[0],  # a frozen group may have none
            commit=self._state.meta.commit_of(number),
        )
        if fault is not None:
            status.trouble, status.trouble_kind, status.trouble_since = fault.text, fault.kind.name, fault.since
        hashes = node.storage.rows.hashes(number)
        if hashes:
            status.hashed, status.state_hash = hashes[-1][0], hashes[-1][1].to_bytes(8, "big", signed=True)
            status.differs = node.storage.differs.get(number, "")
        if not isinstance(group, RaftGroup) or self._cluster_node is None:
            status.role = "frozen" if number in self._state.faulty else "leader"
            status.term, status.committed = SOLO_TERM, status.applied
            return status
        now, membership = node.runtime.now(), self._cluster_node.membership
        status.leader, status.term, status.committed = group.leader or "", group.term, group.commit_index
        status.voters.extend(group.members)
        if group.leads:
            status.role = "leader"
            for peer, match in sorted(group.progress().items()):
                status.replicas.add(node=peer, match=match, connected=membership.hellos.alive(peer, now))
        elif self._me not in group.members:
            status.role = "observer"
        else:
            status.role = "candidate" if group.leader is None else "follower"
        return status

    # --- settings -----------------------------------------------------------------------------------------------------

    def _options(self, accepted: AcceptedRequest) -> None:
        """Handle an OptionsRequest; options that do not fit into the payload limit are left out and counted."""
        response = pb.OptionsResponse(node=self._me)
        room = self._state.payload_bytes_max - OPTIONS_ROOM
        settings = self._node.config.shown()
        for number, setting in enumerate(settings):
            option = pb.Option(name=setting.name, value=setting.value, source=setting.source)
            room -= option.ByteSize() + 8
            if room < 0:
                response.options.add(name="...", value=f"{len(settings) - number} more are left out")
                break
            response.options.append(option)
        accepted.answer_with(response)

    # --- leadership ---------------------------------------------------------------------------------------------------

    def _step_down(self, accepted: AcceptedRequest) -> None:
        """Handle a StepDownRequest."""
        cluster_node, request = self._cluster_node, accepted.request
        if cluster_node is None:
            accepted.refuse(NOT_A_CLUSTER)
            return
        number = GroupId(request.group)
        if number > self._state.pool or number not in cluster_node.groups:
            accepted.refuse(refusals.UNKNOWN_GROUP.format(number))
            return
        group = cluster_node.groups[number]
        to = request.to or group.best_successor()
        if to == self._me:
            accepted.answer()
        elif to is None:
            accepted.refuse(refusals.NOBODY_TO_LEAD, retry=True)
        elif to not in group.members:
            accepted.refuse(refusals.NO_VOTE_IN_GROUP.format(to, number, ", ".join(group.members)))
        elif group.transferring:
            accepted.busy()
        else:  # between two turns, so that no turn changes its role halfway
            handed_over = partial(self._handed_over, accepted, number, to)
            self._node.runtime.soon(partial(cluster_node.handovers.hand_over, number, to, handed_over))

    def _handed_over(self, accepted: AcceptedRequest, number: GroupId, to: str, done: bool) -> None:  # noqa: FBT001
        """A handover has ended; *done*: the other node leads."""
        if not done:
            accepted.refuse(refusals.NOT_TAKEN_OVER.format(to, number), retry=True)
            return
        if self._cluster_node is not None:
            self._cluster_node.handovers.start_transfer_cooldown(number)
        what = "the metadata" if number == META_GROUP else f"group {number}"
        self._node.broker.emit("admin", f"an operator had {what} handed over to node {to}", group=number)
        self._node.driver.turns.wake()
        accepted.answer(changed=1)


def _resident() -> int:
    """Return this process's resident memory in bytes; where the system does not report it, the maximum so far."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
