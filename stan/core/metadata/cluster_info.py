"""Facts about the cluster as a whole: changes of its nodes, level and pins. Others: policies.py, pool.py.

Each change returns another object, so that what depends on it looks again; the same one if it is no news; or why it is refused.
Pure.
"""

from stan_protocol import refusals
from stan_protocol.scalars import GroupId

from stan.limits import PINS_MAX
from stan.protocol.proto import entries_pb2 as pb

NODES_CHANGED = "the nodes were changed meanwhile"
TOO_MANY_PINS = refusals.TOO_MANY_PINS.format(PINS_MAX)


def with_nodes(info: pb.ClusterInfo, nodes: pb.Nodes) -> pb.ClusterInfo | str:
    """The cluster with other nodes that keep groups; refused unless they are the next version of those that are known."""
    if nodes.version != info.nodes.version + 1 or not nodes.names:
        return NODES_CHANGED
    changed = _copy(info)
    changed.nodes.CopyFrom(nodes)
    return changed


def with_level(info: pb.ClusterInfo, level: int) -> pb.ClusterInfo:
    """The cluster at a higher level (stan.level)."""
    if level <= info.level:
        return info
    changed = _copy(info)
    changed.level = level
    return changed


def with_pin(info: pb.ClusterInfo, pin: pb.Pin) -> pb.ClusterInfo | str:
    """The cluster with a channel pinned to a group, or to none if the pin names none."""
    if pin.group == next((row.group for row in info.pins if row.channel == pin.channel), 0):
        return info
    kept = [row for row in info.pins if row.channel != pin.channel]
    if pin.group:
        if len(kept) >= PINS_MAX:
            return TOO_MANY_PINS
        kept.append(pin)
    changed = _copy(info)
    del changed.pins[:]
    changed.pins.extend(sorted(kept, key=lambda row: row.channel))
    return changed


def with_moves_paused(info: pb.ClusterInfo, paused: bool) -> pb.ClusterInfo:  # noqa: FBT001 - the value of the entry
    """The cluster in which no channel moves by itself to the group where it belongs, or does again."""
    if paused == info.moves_paused:
        return info
    changed = _copy(info)
    changed.moves_paused = paused
    return changed


def pins_of(info: pb.ClusterInfo | None) -> dict[bytes, GroupId]:
    """The group of each channel that is pinned to one, by name."""
    return {} if info is None else {row.channel: GroupId(row.group) for row in info.pins}


def _copy(info: pb.ClusterInfo) -> pb.ClusterInfo:
    copied = pb.ClusterInfo()
    copied.CopyFrom(info)
    return copied
