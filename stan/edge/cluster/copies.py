"""Copies of groups on a node of a cluster: they begin, are replaced, change their voters, and end.

    begin: an empty log ─────────────┐
    replace: another node's copy ────┼──► a Raft member ──► end: the files are moved aside
    configured: other voters ────────┘

A copy's Raft member is made from the log, the hard state and the voters in the storage. Where one of them changes other than by
the member itself, a new member takes its place. Promises: a new copy's member leads only after this node has listened to clients
for LISTEN_BEFORE_LEADING; while a copy is replaced or closed, no member of it runs; a copy that could not be replaced is
frozen until a restart, and the other groups go on.
"""

from functools import partial

from stan_protocol.scalars import GroupId, Nanos, RaftIndex

from stan import limits
from stan.core.services.node import META_GROUP
from stan.edge.cluster.agreement import Agreement
from stan.edge.cluster.host import Done, Host
from stan.edge.cluster.links import PeerLinks
from stan.edge.storage.raft_files import Voters
from stan.edge.storage.state_loader import StateLoader
from stan.errors import NotNow, StanError, fault
from stan.policies import REPLICATED
from stan.product import VERSION
from stan.raft.configuration import decode
from stan.raft.group import GroupPorts, RaftGroup

NEVER = Nanos(1 << 63)


class GroupCopies:
    """The copies on one node; `node.groups` has their Raft members."""

    def __init__(self, node: Host, links: PeerLinks) -> None:
        self._node = node
        self.links = links
        self.agreement = Agreement(node.storage, node.environment.note, VERSION)
        self._loader = StateLoader(node.storage, node.broker, replicated=True)
        self.founded = False  # the cluster is new, and its groups were founded
        self._incomplete: set[GroupId] = set()  # groups in which this node has no vote or cannot lead, as last logged
        self._replacing: set[GroupId] = set()

    def _make(self, number: GroupId) -> RaftGroup:
        """Make and store the Raft member of this node in a group, from the log, hard state and voters in the storage."""
        node = self._node
        environment, storage = node.environment, node.storage
        member = storage.members[number]
        node.broker.states.step_loaded(number, storage.logs[number].last_index)
        replicated = member.answers_unsynced or node.broker.view.meta.commit_of(number) == REPLICATED
        if replicated:
            member.mark_unsynced()
        group = node.groups[number] = RaftGroup(
            number,
            storage.node_id,
            member.voters.names or node.reconfiguration.first_voters(number),
            storage.logs[number],
            member.hard_state,
            GroupPorts(
                self.links.mux.send,
                environment.runtime.now,
                environment.random,
                node.leaderships.scheduler.wake,
                environment.note,
                node.group_sync.needs_snapshot,
                self.links.mux.listens_since,
            ),
            applied=storage.applied[number][0],
            sync="interval" if replicated else node.broker.view.config.store.sync,
            intact=member.intact,
            configured=member.voters.index,
        )
        return group

    # --- start ------------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the broker's state from the storage and make the members of all groups. Raises StanError, OSError."""
        await self._loader.load()
        for number in sorted(self._node.storage.logs):
            group = self._make(number)
            if not self._needs_no_clients(number):
                group.not_before = NEVER  # until this node listens to clients

    def _needs_no_clients(self, number: GroupId) -> bool:
        """True if the group may be led before this node listens to clients.

        Only the metadata group, as long as it lacks the cluster's identity: no node listens to clients before a leader has
        written the identity. A node with an empty disk waits until the cluster turns out to be new."""
        node = self._node
        return number == META_GROUP and not node.broker.view.meta.founded and not node.storage.fresh

    def bootstrap(self) -> None:
        """Let this node vote with its empty disk, as the cluster is new."""
        node = self._node
        self.founded = True
        node.environment.note("INF", "the cluster is new: every node begins with an empty disk")
        for number, group in node.groups.items():
            group.not_before = Nanos(0) if number == META_GROUP else NEVER  # holds only after a leader was met
            group.bootstrap(first=node.reconfiguration.placement[number].preferred == node.storage.node_id)

    def listen(self, now: Nanos) -> None:
        """Note that this node begins to listen to clients: it may lead soon; in a new cluster at once, as it had no leader."""
        for group in self._node.groups.values():
            group.not_before = Nanos(0 if self.founded else now + limits.LISTEN_BEFORE_LEADING)

    # --- copies that come and go --------------------------------------------------------------------------------------------

    def begin(self, number: GroupId, done: Done) -> None:
        """Begin a copy of a group, with an empty log. After an error nothing of it is there, and it may be begun again."""

        def begun(problem: Exception | None) -> None:
            try:
                if problem is not None:
                    raise problem
                self._run_new(number)
                self._node.environment.note("INF", f"group {number}: is held here from now on")
            except Exception as error:  # noqa: BLE001 - the border of the group
                problem = error
                self._node.broker.states.drop(number)
                self._node.storage.abandon_group(number)
            done(problem)

        self._node.environment.run(self._begin(number), begun)

    async def _begin(self, number: GroupId) -> None:
        node = self._node
        await node.storage.begin_group(number)
        others = [name for name in node.reconfiguration.first_voters(number) if name != node.storage.node_id]
        node.storage.members[number].set_voters(Voters(others))  # with an empty log this node must not vote
        await self._loader.load_group(number)

    def replace(self, number: GroupId, done: Done) -> None:
        """Replace this node's copy of a group by the copy that was received from another node."""
        old = self._node.groups[number]
        frozen = old.failed

        def put_in(problem: Exception | None) -> None:
            try:
                if problem is not None and (frozen or not isinstance(problem, NotNow)):
                    raise problem
                self._run_new(number)
            except Exception as error:  # noqa: BLE001 - the border of the group
                problem = error
                self._freeze(old, frozen or f"the copy that was received could not take its place: {fault(error)}")
            self._replacing.discard(number)
            done(problem)

        self._replacing.add(number)
        try:
            self._node.leaderships.leave(number)
            self._close(number)
        except Exception as error:  # noqa: BLE001 - the border of the group
            put_in(error)
            return
        self._node.environment.run(self._replace(number), put_in)

    async def _replace(self, number: GroupId) -> None:
        node = self._node
        node.storage.install(number)
        try:
            if number != META_GROUP:
                node.broker.states.reset(number)  # until it is loaded, nothing is served of a state whose log is gone
            await self._loader.load_group(number)
            node.broker.roles.was_reset(number)
            node.gateway.forget_replay(number)
        except NotNow as error:
            raise StanError(str(error)) from error  # the old copy is gone: it cannot go on

    def _freeze(self, old: RaftGroup, why: str) -> None:
        """Leave a member that could not be replaced: it takes part in nothing until a restart."""
        node = self._node
        node.groups[old.group] = old
        node.leaderships.scheduler.add(old)
        old.failed = why
        node.driver.faults.fail(old.group, StanError(why))

    def _run_new(self, number: GroupId) -> None:
        """Make the Raft member of a new copy, and let it run.

        Publishes received until now cannot be told from those in its log, so the member leads only after it has listened to
        clients for LISTEN_BEFORE_LEADING."""
        node = self._node
        group = self._make(number)
        hears_no_clients = number != META_GROUP and not node.gateway.listens
        group.listen_until(
            NEVER if hears_no_clients else Nanos(node.environment.runtime.now() + limits.LISTEN_BEFORE_LEADING)
        )
        node.leaderships.scheduler.add(group)
        node.driver.turns.wake()

    def end(self, number: GroupId, done: Done) -> None:
        """End the copy of a group, which this node must not lead; its files are moved aside."""
        self._close(number)
        self._node.environment.run(self._end(number), done)

    async def _end(self, number: GroupId) -> None:
        node = self._node
        node.broker.states.drop(number)
        aside = await node.storage.end_group(number)
        node.environment.note("INF", f"group {number}: is not held here any more, what it was is in {aside}")

    def _close(self, number: GroupId) -> None:
        self._node.leaderships.scheduler.remove(number)
        del self._node.groups[number]

    # --- voters -------------------------------------------------------------------------------------------------------------

    def configured(self, number: GroupId, index: RaftIndex, body: bytes) -> None:
        """A committed entry changes the voters of a group: store them, and make a new Raft member after this turn.

        A leader waits VOTERS_TOLD first, so that the followers learn of the commit, and then hands the leadership over: its new
        member would not be the leader.
        """
        node = self._node
        node.storage.members[number].set_voters(Voters(list(decode(body)), index))
        soon, within = node.environment.runtime.soon, node.driver.faults.within
        if not node.groups[number].leads:  # not `leaderships.led`: a newly elected leader is not in it yet
            soon(partial(within, number, self._reconfigure, number))
            return
        at = Nanos(node.environment.runtime.now() + limits.VOTERS_TOLD)
        node.broker.step_alarm(at, lambda _now: soon(partial(within, number, self._yield, number)), number)

    def _yield(self, number: GroupId, tried: frozenset[str] = frozenset()) -> None:
        """Ask the new voters one after the other to take over, until one does; then go on as a new member.

        *tried*: the voters that were asked already."""
        node = self._node
        group = node.groups.get(number)
        if group is None or group.reconfigured is None:
            return
        able = set(group.reconfigured[1]) - tried
        lag = {peer: missing for peer, missing in node.handovers.lag_of_voters(number).items() if peer in able}
        now, preferred = node.environment.runtime.now(), node.reconfiguration.placement[number].preferred
        since = node.membership.hellos.alive_since(now)
        if group.leads and lag:
            # Nodes that joined lately may refuse.
            lately = {peer for peer in lag if now - since.get(peer, now) < limits.BALANCE_SETTLE}
            to = min(lag, key=lambda peer: (peer in lately, lag[peer], peer != preferred))
            again = partial(node.driver.faults.within, number, self._yield, number, tried | {to})
            group.transfer(to, lambda _done: node.environment.runtime.soon(again), limits.VOTERS_SUCCESSION)
        else:
            self._reconfigure(number)

    def _reconfigure(self, number: GroupId) -> None:
        node = self._node
        old = node.groups.get(number)
        if old is None or old.reconfigured is None or old.failed or node.driver.turns.stopped:
            return
        node.leaderships.leave(number)
        node.leaderships.scheduler.remove(number)
        try:
            group = self._make(number)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._freeze(old, fault(error))
            return
        group.listen_until(old.not_before)
        node.leaderships.scheduler.add(group)
        self._set_observers(number)
        node.environment.note("INF", f"group {number}: its voters are {', '.join(group.members)}")
        node.driver.turns.wake()

    def _set_observers(self, number: GroupId) -> None:
        group = self._node.groups[number]
        group.set_observers(self._node.reconfiguration.observers(number, frozenset(group.members)))

    # --- the other nodes ------------------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Update links and observers to the nodes that belong to the cluster now."""
        node = self._node
        self.links.add(node.reconfiguration.peers(node.environment.runtime.now()))
        for number in node.groups:
            self._set_observers(number)

    def note_incomplete(self) -> None:
        """Note the groups in which this node has no vote or cannot lead, because it lost entries or votes; log when that begins
        and ends."""
        node = self._node
        me = node.storage.node_id
        mine = {number: group for number, group in node.groups.items() if me in group.members and not group.failed}
        lost = () if node.membership.is_new else (number for number, group in mine.items() if not group.votes)
        node.driver.faults.voteless = set(lost)
        lacking = {
            number
            for number, group in node.groups.items()
            if me in group.members and not (group.votes and node.storage.is_intact(number))
        }
        lacking |= self._replacing & self._incomplete
        if lacking != self._incomplete and not node.membership.is_new:
            for number in sorted(lacking - self._incomplete):
                node.environment.note("INF", f"group {number}: is not whole")
            for number in sorted(self._incomplete - lacking):
                node.environment.note("INF", f"group {number}: is whole again")
        self._incomplete = lacking
