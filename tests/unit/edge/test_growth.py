"""What one node does when the pool of groups grows: what its metadata's leader plans, what is made on each node, and when."""

from random import Random
from types import SimpleNamespace

import pytest
from stan_protocol.scalars import SECOND

from stan import level, limits
from stan.core.boundary.meta_view import MetaView
from stan.core.metadata.meta import MetaMachine
from stan.edge.cluster.growth import PoolGrowth
from stan.edge.cluster.membership import FOUNDED, Membership, difference
from stan.errors import StanError
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import NodeHello
from stan.testing.loop import run_now
from tests.kit.storage import STORE_IDS, StorageNode

ABC = ("a", "b", "c")
FOUNDED_WITH, POOL = 2, 5


def hello(name, **facts):
    facts = {
        "raft_groups": FOUNDED_WITH,
        "voters": ABC,
        "replicas": 3,
        "store": bytes.fromhex(STORE_IDS[name]),
        **facts,
    }
    return NodeHello(node=name, cluster_id="town", instance=ord(name), identity=b"X", **facts)


class Member:
    """Node a of a cluster of three, on a simulated disk."""

    def __init__(self):
        self.disk = StorageNode().boot(groups=range(FOUNDED_WITH + 1))
        self.storage = self.disk.storage
        self.now = 100 * SECOND
        self.notes = []
        self.meta = MetaMachine()
        self.meta.info = pb.ClusterInfo(raft_groups=FOUNDED_WITH, level=level.KNOWN)
        self.broker = SimpleNamespace(view=SimpleNamespace(meta=MetaView(SimpleNamespace(meta=self.meta))))
        self.environment = SimpleNamespace(
            runtime=SimpleNamespace(now=lambda: self.now), note=lambda *note: self.notes.append(note), run=self.run
        )
        self.membership = Membership(hello("a"), self.now, Random(1))
        self.pool = PoolGrowth(self, FOUNDED_WITH)

    def run(self, work, done):
        try:
            run_now(work)
        except (StanError, OSError) as error:
            done(error)
        else:
            done(None)

    def hear(self, name, **facts):
        self.membership.receive(hello(name, **facts).SerializeToString(), self.now)

    def grow(self, **stores):
        """Take a growth that names these store ids."""
        for name in "bc":
            self.hear(name)
        growth = self.pool.plan(POOL, ABC, 2, {})
        for row in growth.nodes:
            row.store = stores.get(row.node, row.store)
        self.meta.apply(pb.MetaChange(grow_pool=growth), 9)
        return growth


@pytest.fixture
def member():
    made = Member()
    yield made
    made.storage.directory.disk.files.full = False
    made.disk.close()


def test_a_plan_names_the_stores_of_all_nodes_and_the_placement_of_new_groups(member):
    assert "these do not: b, c" in member.pool.plan(POOL, ABC, 2, {})
    member.hear("b")
    member.hear("c", store=b"")
    assert "these do not: c" in member.pool.plan(POOL, ABC, 2, {})
    growth = member.grow()
    assert (growth.before, growth.groups) == (FOUNDED_WITH, POOL)
    assert {node.node: node.store.hex() for node in growth.nodes} == {name: STORE_IDS[name] for name in ABC}
    placed = {
        number: placement.voters for number, placement in PoolGrowth(member, POOL).place(ABC, 2).items() if number > 2
    }
    assert {number: member.pool.first_voters(number) for number in (3, 4, 5)} == placed
    assert member.pool.first_voters(2) == ()


def test_directories_are_made_and_counted_before_the_groups_are_placed(member):
    member.grow()
    assert not member.pool.heed(member.now)
    manifest = member.storage.directory.manifest
    assert (manifest.groups, member.pool.groups) == (POOL, FOUNDED_WITH)
    assert member.pool.heed(member.now), "they are there: the placement changes"
    assert (member.pool.groups, member.membership.me.pool) == (POOL, POOL)
    assert not member.pool.heed(member.now)
    mine = {number for number in (3, 4, 5) if "a" in member.pool.first_voters(number)}
    assert member.pool.to_begin == mine
    for number in mine:
        run_now(member.storage.begin_group(number))
        assert not member.storage.members[number].hard_state.amnesiac
        assert member.storage.members[number].voters.names == list(member.pool.first_voters(number))


def test_with_another_data_directory_than_the_one_that_was_named_it_has_no_vote(member):
    member.grow(a=b"x" * 16)
    member.pool.heed(member.now)
    assert any("began with another data directory" in text for _, text in member.notes)
    for number in member.pool.to_begin:
        run_now(member.storage.begin_group(number))
        assert member.storage.members[number].hard_state.amnesiac
        assert "a" in member.storage.members[number].voters.names


def test_a_full_disk_is_tried_again_after_a_while(member):
    member.grow()
    files = member.storage.directory.disk.files
    files.full = True
    for _ in range(3):
        member.pool.heed(member.now)
    assert [kind for kind, _ in member.notes] == ["ERR"]
    files.full = False
    member.pool.heed(member.now)
    assert member.pool.groups == member.storage.directory.manifest.groups == FOUNDED_WITH
    member.now += limits.FULL_DISK_RETRY
    member.pool.heed(member.now)
    assert member.pool.heed(member.now)
    assert member.pool.groups == POOL


def test_a_node_that_was_away_makes_what_several_growths_want(member):
    member.grow()
    meta = member.meta
    meta.apply(pb.MetaChange(open_pool=POOL), 10)
    more = pb.GrowPool(groups=6, before=POOL, nodes=[pb.FoundingNode(node="b", store=b"b" * 16)])
    more.voters.add(nodes=[0])
    assert not meta.apply(pb.MetaChange(grow_pool=more), 11).error
    assert [member.pool.heed(member.now) for _ in range(5)] == [False, True, False, True, False][:5]
    assert member.pool.groups == 6
    assert 6 not in member.pool.to_begin
    assert member.pool.first_voters(6) == ("b",)


def test_a_read_replica_begins_all_of_them(member):
    member.membership.me.replica = True
    member.grow(a=b"x" * 16)
    member.pool.heed(member.now)
    assert member.pool.to_begin == {3, 4, 5}


def test_all_have_leaders_when_nodes_that_count_them_say_so(member):
    member.grow()
    member.hear("b", led=[1, 2, 3], pool=POOL)
    member.hear("c", led=[4, 5], pool=POOL)
    assert "node a has not made" in member.pool.waits_for(), "not counted here yet"
    for _ in range(2):
        member.pool.heed(member.now)
    assert member.pool.waits_for() == ""
    member.hear("c", led=[4, 5], pool=3)
    assert member.pool.waits_for() == "the directories of new groups are not made on c"


def test_what_a_growth_waits_for_names_the_nodes_that_are_not_there(member):
    member.grow()
    for _ in range(2):
        member.pool.heed(member.now)
    member.reconfiguration = SimpleNamespace(placement=member.pool.place(ABC, 2))
    voters = member.reconfiguration.placement[5].voters
    member.hear("b", led=[1, 2, 3], pool=POOL)
    member.hear("c", led=[4], pool=POOL)
    assert member.pool.waits_for() == "groups without a leader: 5"
    member.now += limits.NODE_TIMEOUT + SECOND
    member.hear("b", led=[1, 2, 3, 4], pool=POOL)
    assert "c" in voters
    assert member.pool.waits_for() == "groups without a leader: 5 (not there: c)"


def test_nodes_agree_about_the_number_of_the_founding():
    assert difference(hello("a", pool=POOL), hello("b")) == ""
    told = difference(hello("a", pool=POOL), hello("b", raft_groups=POOL))
    assert told.endswith(f"give all nodes the same -raft_groups{FOUNDED}")
