"""Growth of the pool of groups while the cluster runs: the part of each node.

    metadata: grow_pool ─► directories of the groups in which this node votes ─► stan.json counts them ─► the groups run
                                                        all have leaders that count them ─► open_pool in the metadata

Promises: a member of a new group votes only with the data directory that grow_pool names, as with another one it may
have voted already; a crash at any point is followed by the same steps, and no member of a new group runs before stan.json counts
it.
"""

from collections.abc import Sequence as Seq

from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.metadata.pool import first_voters
from stan.edge.cluster.host import Host
from stan.edge.storage.data_directory import DataDirectory
from stan.errors import fault
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.placement import NOWHERE, Placement, Places, place


class PoolGrowth:
    """The growth of the pool on one node."""

    def __init__(self, node: Host, founded: int) -> None:
        """*founded*: number of groups of channels of the cluster at its founding."""
        directory = node.storage.directory
        self._node = node
        self._founded = founded
        # Number of groups that the directory counts.
        self.groups = founded if directory is None else max(founded, directory.manifest.pool)
        # Groups that are new here and do not run yet, wherever they are placed by now.
        self.to_begin: set[GroupId] = set()
        self._making = False  # directories are being made
        self._again = Nanos(0)  # time of the next try after the disk has failed

    def place(self, nodes: Seq[str], replicas: int, labels: Places = NOWHERE) -> dict[GroupId, Placement]:
        """Placement of the metadata and of all groups that the directory counts."""
        return place(self.groups, nodes, replicas, labels)

    def first_voters(self, number: GroupId) -> tuple[str, ...]:
        """The first voters of a group of the grown pool; () for other groups, and while the metadata is unknown."""
        for growth in self._node.broker.view.meta.growths:
            if growth.before < number <= growth.groups:
                return first_voters(growth)[number]
        return ()

    # --- decisions of the metadata's leader -------------------------------------------------------------------------------

    def plan(self, groups: int, names: Seq[str], replicas: int, labels: Places) -> pb.GrowPool | str:
        """Return the growth of the pool to *groups*, placed on these nodes; or the reason why it has to wait."""
        node, meta = self._node, self._node.broker.view.meta
        membership, now = node.membership, node.environment.runtime.now()
        stores = {name: membership.hellos.store_of(name, now) for name in names}
        if silent := [name for name in names if not stores[name]]:
            return f"every node has to be there and tell its data directory, and these do not: {', '.join(silent)}"
        placed = place(groups, names, replicas, labels)
        at = {name: index for index, name in enumerate(names)}
        growth = pb.GrowPool(groups=groups, before=self.groups, nodes_version=meta.nodes_version)
        growth.nodes.extend(pb.FoundingNode(node=name, store=stores[name]) for name in names)
        for number in range(self.groups + 1, groups + 1):
            growth.voters.add(nodes=[at[name] for name in placed[GroupId(number)].voters])
        return growth

    def waits_for(self) -> str:
        """Why new groups are not opened yet, and the nodes they wait for; "" if every group has a leader whose node counts
        all groups of the metadata."""
        node, pool_groups = self._node, self._node.broker.view.meta.pool_groups
        now = node.environment.runtime.now()
        if self.groups != pool_groups:
            return f"node {node.storage.node_id} has not made the directories of its new groups"
        leaderless, behind = list[GroupId](), set[str]()
        for number in map(GroupId, range(1, pool_groups + 1)):
            leader = node.membership.hellos.led_by(number, now)
            if leader is None:
                leaderless.append(number)
            elif leader.pool < pool_groups:
                behind.add(leader.node)
        if behind:
            return f"the directories of new groups are not made on {', '.join(sorted(behind))}"
        return f"groups without a leader: {self.lacking(leaderless)}" if leaderless else ""

    def lacking(self, numbers: Seq[GroupId]) -> str:
        """Describe groups and those of their voters that are not there: `3, 5 (not there: n2)`."""
        node = self._node
        alive = node.membership.hellos.alive_since(node.environment.runtime.now())
        voters = {name for number in numbers for name in node.reconfiguration.placement[number].voters}
        absent = f" (not there: {', '.join(sorted(voters - alive.keys()))})" if voters - alive.keys() else ""
        return ", ".join(map(str, numbers)) + absent

    # --- work of each node ------------------------------------------------------------------------------------------------

    def heed(self, now: Nanos) -> bool:
        """Begin to make missing directories that the metadata requires; True if some have just been made."""
        directory, required = self._node.storage.directory, self._node.broker.view.meta.pool_groups
        if directory is None or self._making:
            return False
        if directory.manifest.groups > self.groups:
            self.groups = directory.manifest.groups
            self._node.membership.set_pool(self.groups, now)
            return True
        if required > self.groups and now >= self._again:
            self._making = True
            self._node.environment.run(self._make(directory), self._made)
        return False

    async def _make(self, directory: DataDirectory) -> None:
        """Make the directories of the oldest growth that the directory does not count."""
        node, me = self._node, self._node.storage.node_id
        growth = next(one for one in node.broker.view.meta.growths if one.groups > self.groups)
        named = next((one.store for one in growth.nodes if one.node == me), b"")
        votes = named == directory.manifest.store_bytes
        mine = {GroupId(number): names for number, names in first_voters(growth).items() if me in names}
        node.storage.found_groups(mine, growth.groups, votes=votes)
        self.to_begin.update(mine)
        if node.membership.me.replica:
            self.to_begin.update(map(GroupId, range(growth.before + 1, growth.groups + 1)))
        node.environment.note("INF", f"the pool grows: there are {growth.groups} groups of channels")
        if mine and not votes:
            node.environment.note(
                "WRN",
                f"groups {', '.join(map(str, mine))} began with another data directory of this node: it has no vote in them "
                "until others vouch for it",
            )

    def _made(self, problem: Exception | None) -> None:
        self._making = False
        if problem is not None:
            self._again = Nanos(self._node.environment.runtime.now() + limits.FULL_DISK_RETRY)
            self._node.environment.note("ERR", f"the directories of new groups could not be made: {fault(problem)}")
