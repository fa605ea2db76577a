"""The pool of groups of channels in the metadata: how many groups there are, of which kind, and over how many names of channels
are hashed. A group's kind is what an ack of a publish to its channels means (`commit`); the groups of the founding are `synced`.

    grow_pool: the new groups and who votes in them first ─► every node makes its directories ─► all have leaders ─► open_pool

Promises: a growth is taken only for the pool and the nodes that it was made for; until it is opened, no name belongs to a new
group. Pure.
"""

from stan_protocol.refusals import POOL_CHANGED, POOL_GROWS
from stan_protocol.scalars import GroupId

from stan.limits import RAFT_GROUPS_MAX
from stan.policies import GROUP_COMMITS, SYNCED
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb

STORE_BYTES = 16


def with_growth(info: pb.ClusterInfo, growth: pb.GrowPool) -> pb.ClusterInfo | str:
    """The cluster with the new groups of *growth*, as another object; or why it is not taken."""
    pool = info.pool
    before = pool.groups or info.raft_groups
    if pool.open < pool.groups:
        return POOL_GROWS
    if growth.before != before or growth.nodes_version != info.nodes.version or not _is_sound(growth):
        return POOL_CHANGED
    grown = pb.ClusterInfo()
    grown.CopyFrom(info)
    grown.pool.groups, grown.pool.open = growth.groups, before
    grown.pool.growths.append(growth)
    return grown


def _is_sound(growth: pb.GrowPool) -> bool:
    """True if each new group has voters, and each of them a store."""
    return (
        growth.before < growth.groups <= RAFT_GROUPS_MAX
        and growth.commit < len(GROUP_COMMITS)
        and len(growth.voters) == growth.groups - growth.before
        and all(first.nodes and max(first.nodes) < len(growth.nodes) for first in growth.voters)
        and all(node.node and len(node.store) == STORE_BYTES for node in growth.nodes)
    )


def with_open_pool(info: pb.ClusterInfo, groups: int) -> pb.ClusterInfo:
    """The cluster in which names of channels are hashed over *groups*, as another object; the same one if that is no news."""
    if info.pool.groups != groups or info.pool.open >= groups:
        return info
    opened = pb.ClusterInfo()
    opened.CopyFrom(info)
    opened.pool.open = groups
    return opened


def commit_of(pool: pb.GrownPool, group: int) -> int:
    """What an ack means of the channels in a group: SYNCED or REPLICATED."""
    for growth in pool.growths:
        if growth.before < group <= growth.groups:
            return growth.commit
    return SYNCED


def home(pool: pb.GrownPool, opened: int, commit: int, channel: bytes) -> GroupId:
    """The group of a channel of that kind by the hash of its name, over those of groups 1 to *opened* that are for such channels.
    GroupId(0): there is none.

    A kind's groups are numbered in the order in which they came, so that more of them take a part of the names, and no name goes
    from one old group to another."""
    if not any(growth.commit for growth in pool.growths):
        return channel_group(channel, opened) if commit == SYNCED else GroupId(0)
    groups = [group for group in range(1, opened + 1) if commit_of(pool, group) == commit]
    return GroupId(groups[channel_group(channel, len(groups)) - 1]) if groups else GroupId(0)


def first_voters(growth: pb.GrowPool) -> dict[int, tuple[str, ...]]:
    """The voters with which each new group begins, by its number."""
    names = [node.node for node in growth.nodes]
    return {
        number: tuple(names[node] for node in first.nodes)
        for number, first in enumerate(growth.voters, growth.before + 1)
    }
