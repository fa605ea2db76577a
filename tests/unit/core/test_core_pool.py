"""The pool of groups grows: the state machine, the request, and where channels and what belongs to applications is kept then."""

from dataclasses import replace

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as extension
from stan_protocol.refusals import INVALID_ADMIN, NOT_A_CLUSTER, POOL_CHANGED, POOL_GROWS, POOL_ONLY_GROWS
from stan_protocol.scalars import SECOND

from stan.core.clients.nodes import HeardNodes
from stan.core.features.moves.pool import TOO_MANY_GROUPS
from stan.core.metadata.meta import MetaMachine
from stan.core.metadata.pool import first_voters
from stan.limits import RAFT_GROUPS_MAX
from stan.policies import REPLICATED, SYNCED
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node

REQUEST = "_STAN.x.test-cluster.admin.grow_pool"
GROUPS, MORE = 2, 5
MANY = replace(CLUSTERED, store=replace(CLUSTERED.store, raft_groups=GROUPS))
NEW = next(name for name in (b"c%d" % at for at in range(99)) if channel_group(name, MORE) > GROUPS)
STORES = {"n1": b"1" * 16, "n2": b"2" * 16, "n3": b"3" * 16}


def growth(groups=MORE, before=GROUPS, **more):
    nodes = [pb.FoundingNode(node=name, store=store) for name, store in STORES.items()]
    voters = [pb.FirstVoters(nodes=[(at + 1) % 3, at % 3]) for at in range(before, groups)]
    return pb.GrowPool(groups=groups, before=before, **{"nodes": nodes, "voters": voters, **more})


@pytest.fixture
def node():
    made = Node(config=MANY)
    made.feed_client()
    made.broker.parts.nodes.heard = HeardNodes(growth=growth, growth_waits_for=str)
    return made


def ask(node, groups):
    answer = node.ask(REQUEST, admin.GrowPoolRequest(version=1, groups=groups), admin.ChangeResponse)
    return answer and (answer.error.decode(), answer.changed)


def pool(node):
    view = node.broker.view
    return view.pool, view.pool_open


def test_a_new_group_gets_channels_once_the_pool_is_open(node) -> None:
    view = node.broker.view
    node.feed_channel("old", 1)
    before = view.group_number(NEW)
    looked_again = []
    node.broker.view.scope.follow(lambda: looked_again.append(view.group_number(NEW)), lambda: None)
    node.feed_meta(grow_pool=growth())
    assert (pool(node), view.group_number(NEW)) == ((MORE, GROUPS), before)
    node.feed_meta(open_pool=MORE)
    assert (pool(node), view.group_number(NEW)) == ((MORE, MORE), channel_group(NEW, MORE))
    assert looked_again == [channel_group(NEW, MORE)]
    assert view.group_number(b"old") == 1, "a channel stays where it is"


def test_names_move_to_new_groups_only() -> None:
    for at in range(200):
        name = b"name%d" % at
        assert channel_group(name, MORE) in (channel_group(name, GROUPS), *range(GROUPS + 1, MORE + 1))


def test_what_is_known_of_an_application_stays_where_it_is(node) -> None:
    app, group = NEW, channel_group(NEW, GROUPS)
    node.feed_meta(grow_pool=growth())
    node.feed_meta(open_pool=MORE)
    node.feed_channel(app.decode(), channel_group(app, MORE))
    asked = extension.LastCommittedRequest(app=app)
    node.lead(group)
    answer = node.ask("_STAN.x.test-cluster.last_committed", asked, extension.LastCommittedResponse)
    assert answer is not None
    assert not answer.error
    node.follow(group)
    assert node.ask("_STAN.x.test-cluster.last_committed", asked, extension.LastCommittedResponse) is None


@pytest.mark.parametrize(
    "other",
    [
        growth(before=GROUPS + 1),
        growth(groups=GROUPS),
        growth(groups=GROUPS + 1, voters=[]),
        growth(groups=GROUPS + 1, voters=[pb.FirstVoters()]),
        growth(groups=GROUPS + 1, voters=[pb.FirstVoters(nodes=[3])]),
        growth(nodes=[pb.FoundingNode(node=name, store=b"short") for name in STORES]),
        growth(nodes_version=1),
        growth(groups=RAFT_GROUPS_MAX + 1),
    ],
)
def test_a_growth_of_another_pool_or_other_nodes_is_not_taken(node, other) -> None:
    meta = node.follower(0)
    before = meta.pool
    assert meta.apply(pb.MetaChange(grow_pool=other), 90).error == POOL_CHANGED
    assert meta.pool == before


def test_one_growth_at_a_time_and_each_is_opened_once(node) -> None:
    meta = node.follower(0)
    assert not meta.apply(pb.MetaChange(grow_pool=growth()), 90).error
    assert meta.apply(pb.MetaChange(grow_pool=growth(8, MORE)), 91).error == POOL_GROWS
    assert not meta.apply(pb.MetaChange(open_pool=8), 92).pool_changed
    assert meta.apply(pb.MetaChange(open_pool=MORE), 93).pool_changed
    assert not meta.apply(pb.MetaChange(open_pool=MORE), 94).pool_changed
    assert not meta.apply(pb.MetaChange(grow_pool=growth(8, MORE)), 95).error
    assert (meta.pool.groups, meta.pool.open) == (8, MORE)
    assert [list(first_voters(one)) for one in meta.pool.growths] == [[3, 4, 5], [6, 7, 8]]
    assert first_voters(growth())[3] == ("n1", "n3")


def test_requests_grow_it(node) -> None:
    node.lead(0)
    assert ask(node, GROUPS) == (POOL_ONLY_GROWS.format(GROUPS), 0)
    assert ask(node, RAFT_GROUPS_MAX + 1) == (TOO_MANY_GROUPS, 0)
    assert ask(node, MORE) == ("", MORE - GROUPS)
    assert pool(node) == (MORE, GROUPS)
    assert ask(node, MORE) == ("", 0), "asked again"
    assert ask(node, MORE + 1) == (POOL_GROWS, 0)
    node.broker.cluster.follow_pool()
    node.turn()
    assert pool(node) == (MORE, MORE)
    node.broker.parts.nodes.heard = HeardNodes(growth=lambda _groups: "something is under way")
    assert ask(node, MORE + 1) == ("stan: pool: something is under way", 0)
    node.follow(0)
    assert ask(node, MORE + 1) is None


def test_it_is_opened_by_the_leader_of_the_metadata_once_all_groups_have_leaders(node) -> None:
    node.feed_meta(grow_pool=growth())
    node.broker.cluster.follow_pool()
    node.turn()
    assert pool(node) == (MORE, GROUPS), "another node leads the metadata"
    node.lead(0)
    node.broker.parts.nodes.heard = HeardNodes(growth=growth)
    node.broker.cluster.follow_pool()
    node.turn()
    assert pool(node) == (MORE, GROUPS)


def test_operators_are_told_once_for_which_node_a_growth_waits(node) -> None:
    node.feed_meta(grow_pool=growth())
    node.lead(0)
    told = ["groups without a leader: 5 (not there: n3)"]
    node.broker.parts.nodes.heard = HeardNodes(growth=growth, growth_waits_for=lambda: told[-1])
    for seconds in range(1, 30):
        node.now += SECOND
        node.turn()
        node.broker.cluster.follow_pool()
        node.turn()
        if seconds == 20:
            told.append("groups without a leader: 5 (not there: n2)")
    notes = [text for _, text in node.notes if "waits" in text]
    assert notes == [f"the pool grows to {MORE} groups and waits: {one}" for one in told]


def test_not_alone() -> None:
    alone = CoreHarness()
    asked = alone.ask(REQUEST, admin.GrowPoolRequest(version=1, groups=4), admin.ChangeResponse)
    assert asked.error.decode() == NOT_A_CLUSTER


def test_a_pool_outlives_a_restart_and_a_transfer(node) -> None:
    node.feed_meta(grow_pool=growth())
    snapshot, again = pb.Snapshot(), MetaMachine()
    node.follower(0).snapshot(snapshot)
    again.restore(pb.Snapshot.FromString(snapshot.SerializeToString()))
    assert again.pool == node.state.cluster.pool
    assert again.pool.groups == MORE


# --- kinds of groups ---------------------------------------------------------------------------------------------------


def replicated(node, **more):
    """A pool of which groups 3 to 5 are for channels whose acks do not wait for disks."""
    node.feed_meta(set_policy=pb.Policy(pattern=b"fast.>", commit=REPLICATED))
    node.feed_meta(grow_pool=growth(commit=REPLICATED, **more))
    node.feed_meta(open_pool=MORE)


def test_a_channel_is_made_in_a_group_of_the_kind_that_its_policy_says(node) -> None:
    view = node.broker.view
    before = {name: view.group_number(name) for name in (b"a%d" % at for at in range(50))}
    replicated(node)
    assert {name: view.group_number(name) for name in before} == before, "names of other channels stay where they are"
    fast = {view.group_number(b"fast.%d" % at) for at in range(50)}
    assert fast == {3, 4, 5}
    assert [view.meta.commit_of(group) for group in range(MORE + 1)] == [SYNCED] * 3 + [REPLICATED] * 3


def test_more_groups_of_a_kind_take_a_part_of_its_names_only(node) -> None:
    view = node.broker.view
    replicated(node)
    names = [b"fast.%d" % at for at in range(99)] + [b"a%d" % at for at in range(99)]
    before = {name: view.group_number(name) for name in names}
    node.feed_meta(grow_pool=growth(8, MORE))
    node.feed_meta(open_pool=8)
    now = {name: view.group_number(name) for name in names}
    assert all(now[name] == before[name] for name in names[:99])
    moved = {now[name] for name in names[99:] if now[name] != before[name]}
    assert moved == {6, 7, 8}


def test_without_groups_for_it_a_channel_promises_more_than_was_asked_for(node) -> None:
    node.feed_meta(set_policy=pb.Policy(pattern=b"fast.>", commit=REPLICATED))
    assert node.broker.view.group_number(b"fast.a") == channel_group(b"fast.a", GROUPS)


def test_a_channel_that_exists_stays_what_it_is(node) -> None:
    node.feed_channel("fast.old", 1)
    replicated(node)
    assert node.broker.view.group_number(b"fast.old") == 1
    assert node.broker.view.channels_to_move == 0


@pytest.mark.parametrize(("channel", "group", "kind"), [("a", 3, "replicated"), ("fast.a", 1, "synced")])
def test_a_channel_is_not_pinned_to_a_group_of_another_kind(node, channel, group, kind) -> None:
    replicated(node)
    node.lead(0)
    request = admin.PinChannelRequest(version=1, channel=channel.encode(), group=group)
    answer = node.ask("_STAN.x.test-cluster.admin.pin_channel", request, admin.ChangeResponse)
    assert f"group {group} is for channels with commit {kind}" in answer.error.decode()


def test_a_kind_that_there_is_not_is_refused(node) -> None:
    node.lead(0)
    answer = node.ask(REQUEST, admin.GrowPoolRequest(version=1, groups=MORE, commit=7), admin.ChangeResponse)
    assert answer.error.decode() == INVALID_ADMIN
    assert node.follower(0).apply(pb.MetaChange(grow_pool=growth(commit=7)), 90).error == POOL_CHANGED


def test_a_growth_is_of_the_kind_that_was_asked_for(node) -> None:
    node.lead(0)
    node.ask(REQUEST, admin.GrowPoolRequest(version=1, groups=MORE, commit=REPLICATED), admin.ChangeResponse)
    assert node.broker.view.meta.commit_of(MORE) == REPLICATED
