"""Reconfiguration: when a node is added or removed, or its labels change, groups move; each node does its part.

    metadata: nodes, version ─► placement ─► groups that this node leads: one step of the migration at a time
                                        └──► copies on this node: begun when placed here, closed when no longer needed

The decisions are those of stan.edge.cluster.reconfiguration_plan. Promises: a leader changes one voter of its group at a time; a
copy is closed only when no configuration names this node, the group's leader knows the same nodes and has ended the migration,
all for COPY_PATIENCE; the files of a closed copy are moved aside. A removed node ends when no group needs it.
"""

from functools import partial
from typing import TYPE_CHECKING

from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.config import ClusterConfig
from stan.core.services.node import META_GROUP
from stan.edge.cluster.growth import PoolGrowth
from stan.edge.cluster.host import Host
from stan.edge.cluster.membership import difference
from stan.edge.cluster.reconfiguration_plan import CopyView, ReconfigurationView, may_close, next_step, observers
from stan.edge.storage import manifest
from stan.errors import NotNow, fault
from stan.labels import places_of
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.group import RaftGroup

if TYPE_CHECKING:
    from stan.raft.placement import Placement

UNDER_WAY, UNTIL_RESTART = Nanos(1 << 62), Nanos(1 << 63)
"""Times at which nothing more is done: a copy is being begun or closed; it could not be closed."""


class Reconfiguration:
    """The reconfiguration on one node."""

    def __init__(self, node: Host, cluster: ClusterConfig, raft_groups: int) -> None:
        """Begin with the nodes of the settings *cluster*; *raft_groups*: number of groups of channels at the cluster's
        founding."""
        storage = node.storage
        self._node = node
        self._me = storage.node_id
        self._replicas = cluster.replicas
        self.names = cluster.voters(self._me)
        self.version = cluster.nodes_version  # 0: the names are those of the settings
        self.places = dict(cluster.places)  # labels of the nodes, as of that version
        self.placement: dict[GroupId, Placement] = {}
        self.pool = PoolGrowth(node, raft_groups)
        self._is_replica = cluster.replica  # a read replica: has copies, but is none of the cluster's nodes
        # Groups whose copy here is not to be begun or closed before a time: it is being begun or closed (UNDER_WAY), or one could
        # not be begun, and will be tried again, or could not be closed (UNTIL_RESTART).
        self._busy: dict[GroupId, Nanos] = {}
        self._idle_since: dict[GroupId, Nanos] = {}  # by group: the time since which its copy here is not needed
        recorded = storage.directory.manifest.nodes if storage.directory is not None else manifest.RecordedNodes()
        known = recorded.founders if self.version else self.names
        self._founders = tuple(known) or tuple(name for name in self.names if name != self._me)
        self._place()

    def _place(self) -> None:
        self.placement.clear()
        self.placement.update(self.pool.place(self.names, self._replicas, self.places))

    # --- state --------------------------------------------------------------------------------------------------------------

    @property
    def is_removed(self) -> bool:
        """True if this node was removed from the cluster's nodes."""
        return bool(self.version) and self._me not in self.names and not self._is_replica

    def first_voters(self, number: GroupId) -> tuple[str, ...]:
        """Voters of a group while its log names none: the founders' placement, without this node if it joined later; of groups
        of the grown pool, those named at the growth, without this node."""
        named = tuple(name for name in self.pool.first_voters(number) if name != self._me)
        return named or self.pool.place(self._founders, self._replicas)[number].voters

    def observers(self, number: GroupId, voters: frozenset[str]) -> list[str]:
        """Names of the nodes that get a copy of a group without a vote."""
        membership, now = self._node.membership, self._node.environment.runtime.now()
        holding = {*membership.hellos.read_replicas(now), *membership.hellos.holders(number, now)}
        return observers(number, voters, self.placement[number].voters, self.names, holding)

    def peers(self, now: Nanos) -> list[str]:
        """Nodes to have a link with, sorted: the cluster's, the groups' voters, and live nodes with the same settings."""
        membership = self._node.membership
        others = (membership.hellos.nodes[name].hello for name in membership.hellos.living(now))
        names = {hello.node for hello in others if not difference(membership.me, hello)}
        for group in self._node.groups.values():
            names.update(group.members)
        return sorted((names | set(self.names)) - {self._me})

    def under_way(self) -> str:
        """Return why another change of the nodes has to wait; "" if every group is where the last change placed it."""
        node, version = self._node, self._node.broker.view.meta.nodes_version
        now = node.environment.runtime.now()
        if self._rescue is not None:
            return "the cluster was rescued, and the nodes that were lost are being taken out of it"
        waiting = []
        for number in self.placement:
            leader = node.membership.hellos.led_by(number, now)
            if leader is None or leader.nodes_version != version or number in leader.walking:
                waiting.append(number)
        return f"groups not yet where the last change wants them: {self.pool.lacking(waiting)}" if waiting else ""

    @property
    def _rescue(self) -> manifest.RecordedRescue | None:
        """The rescue that the metadata does not know of yet; None without one."""
        directory = self._node.storage.directory
        rescue = directory.manifest.rescue if directory is not None else None
        known_version = self._node.broker.view.meta.nodes_version
        return rescue if rescue is not None and rescue.survivors and known_version <= rescue.nodes_version else None

    # --- actions ----------------------------------------------------------------------------------------------------------------

    def tick(self, now: Nanos) -> None:
        """Follow the metadata's nodes and migrate groups; call every MEMBER_TICK_INTERVAL."""
        node = self._node
        if self.pool.heed(now):
            self._place()
        self._heed_metadata(now)
        node.broker.cluster.follow_labels()
        node.broker.cluster.follow_pool()
        walking = [number for number in node.leaderships.led if self._is_migrating(number)]
        node.membership.update(now, held=node.groups, walking=walking)
        node.environment.runtime.soon(self._act)  # between two turns, so that no role changes amid a turn

    def _heed_metadata(self, now: Nanos) -> None:
        node, meta = self._node, self._node.broker.view.meta
        if meta.nodes_version > self.version:
            nodes = meta.nodes
            self.names, self.version, self.places = tuple(nodes.names), nodes.version, places_of(nodes.labels)
            self._is_replica = self._is_replica and self._me not in self.names
            node.environment.note(
                "INF", f"the nodes of the cluster are {', '.join(self.names)} (version {self.version})"
            )
            self._place()
            node.membership.set_nodes(self.names, self.version, now, replica=self._is_replica, places=self.places)
            self._idle_since.clear()
        kept_in = node.storage.directory
        recorded = kept_in.manifest.nodes if kept_in is not None else manifest.RecordedNodes()
        if kept_in is not None and (
            recorded.version != self.version or (not recorded.version and recorded.names != list(self.names))
        ):
            self._record_nodes(belongs=not self._is_replica)

    def _record_nodes(self, *, belongs: bool) -> bool:
        """Record the cluster's nodes in the manifest; False if that fails: the next tick tries again.

        Those of the settings are recorded for a rescue only (version 0): the next start uses its own settings."""
        nodes = manifest.RecordedNodes(
            list(self.names),
            self.version,
            list(self._founders) if self.version else [],
            self._replicas,
            belongs,
            {name: list(labels) for name, labels in self.places.items()},
        )
        directory = self._node.storage.directory
        if directory is None:
            return True
        try:
            directory.note_nodes(nodes)
        except OSError as error:
            self._node.environment.note("ERR", f"which nodes there are could not be written down: {error}")
            return False
        return True

    def _is_migrating(self, number: GroupId) -> bool:
        group = self._node.groups[number]
        return group.change_under_way or set(group.members) != set(self.placement[number].voters)

    def _act(self) -> None:
        node = self._node
        if node.driver.turns.stopped:
            return
        now, rescue = node.environment.runtime.now(), self._rescue
        if rescue is not None and META_GROUP in node.leaderships.led:
            node.broker.cluster.step_survivors(tuple(rescue.survivors), rescue.nodes_version)
            node.driver.turns.wake()
        for number in sorted(node.leaderships.led):
            node.driver.faults.within(number, self._migrate, number, now)
        for number, placed in self.placement.items():
            needed = self._me in placed.voters or number in self.pool.to_begin
            if needed and number not in node.storage.logs and self._busy.get(number, now) <= now:
                self._busy[number] = UNDER_WAY
                node.copies.begin(number, partial(self._begun, number))
        for number in [number for number in node.groups if self._is_useless(number, now)]:
            self._busy[number] = UNDER_WAY
            node.copies.end(number, partial(self._ended, number))
        self._leave()

    def growth(self, groups: int) -> pb.GrowPool | str:
        """Return the growth of the pool to *groups* on the current nodes; or the reason why it has to wait."""
        if self._node.broker.view.meta.nodes_version != self.version:
            return "the nodes have just been changed"
        return self.under_way() or self.pool.plan(groups, self.names, self._replicas, self.places)

    def _begun(self, number: GroupId, problem: Exception | None) -> None:
        if problem is None:
            del self._busy[number]
            self.pool.to_begin.discard(number)
        else:  # the other groups are not concerned
            self._busy[number] = Nanos(self._node.environment.runtime.now() + limits.FULL_DISK_RETRY)
            self._node.environment.note(
                "ERR", f"group {number}: it could not be begun, and is tried again: {fault(problem)}"
            )

    def _ended(self, number: GroupId, problem: Exception | None) -> None:
        if problem is None:
            del self._busy[number]
        else:  # its remains must not be taken for a new copy
            self._busy[number] = UNTIL_RESTART
            self._node.environment.note(
                "ERR", f"group {number}: it is not held any more, but its files are: {fault(problem)}"
            )

    # --- groups that this node leads ------------------------------------------------------------------------------------------

    def _migrate(self, number: GroupId, now: Nanos) -> None:
        node, group = self._node, self._node.groups[number]
        if group.change_under_way or group.transferring or group.failed or not self._is_migrating(number):
            return
        lag, alive = group.lag(), node.membership.hellos.alive_since(now)
        seen = ReconfigurationView(
            self._me,
            frozenset(group.members),
            self.placement[number].voters,
            frozenset(alive),
            frozenset(name for name, missing in lag.items() if missing <= limits.BALANCE_LAG_MAX),
            frozenset({self._me, *group.counting()}),
        )
        step = next_step(seen)
        if step is None:
            return
        if step.successor:
            node.handovers.hand_over(number, step.successor)
            return
        others = (step.voters & seen.voters & seen.alive) - {self._me}
        if others and all(now - alive[name] < limits.BALANCE_SETTLE for name in others):
            return  # all joined lately and would refuse, and this node stops leading once the voters change
        try:
            self._change(group, step.voters)
        except NotNow as error:
            node.environment.note("DBG", f"group {number}: {error}")

    def _change(self, group: RaftGroup, voters: frozenset[str]) -> None:
        group.change(sorted(voters))
        # The group is handed over once this is committed, and gets no progress entry before.
        self._node.broker.stops.step_handover(group.group, under_way=True)
        self._node.driver.turns.wake()
        self._node.environment.note("INF", f"group {group.group}: its voters become {', '.join(sorted(voters))}")

    # --- copies on this node --------------------------------------------------------------------------------------------------

    def _is_useless(self, number: GroupId, now: Nanos) -> bool:
        """True if this node's copy of a group may be closed, and has not been needed for a while."""
        node = self._node
        leader = node.membership.hellos.led_by(number, now)
        agreed = leader is not None and leader.nodes_version == self.version and number not in leader.walking
        placed = number == META_GROUP or self._is_replica or self._me in self.placement[number].voters
        copy = CopyView(placed=placed, votes=self._me in node.groups[number].members, agreed=agreed)
        if (
            not may_close(copy)
            or number in self._busy
            or node.group_sync.receives(number)
            or number in node.leaderships.led
        ):
            self._idle_since.pop(number, None)
            return False
        return now - self._idle_since.setdefault(number, now) >= limits.COPY_PATIENCE

    def _leave(self) -> None:
        """End, once this node was removed and no group needs it."""
        node = self._node
        if not self.is_removed or UNDER_WAY in self._busy.values() or set(node.storage.logs) != {META_GROUP}:
            return
        meta = node.groups.get(META_GROUP)
        if meta is None or self._me in meta.members or meta.change_under_way or not self._record_nodes(belongs=False):
            return
        node.environment.note(
            "INF", f"node {self._me} was removed from the cluster and is in no group any more: it ends"
        )
        node.environment.ended()
