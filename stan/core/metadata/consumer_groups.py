"""Consumer groups in the replicated metadata: who is a member, and which channel each member owns, under which generation.

Fed by committed entries alone, of the metadata. Promises: a channel has at most one owner in a group. Its generation is the
index of the entry that gave it the channel, so a later owner has a higher one, also after a group was empty and forgotten. What a
consumer group has read is told by its bookmarks (bookmarks.py), which lie with the messages and outlive the group.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stan_protocol.refusals import CONSUMER_GROUP_CHANGED, TOO_MANY_CONSUMER_GROUPS, TOO_MANY_CONSUMERS
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan import limits
from stan.protocol.proto import entries_pb2 as pb


class ChannelOwner(NamedTuple):
    """Who owns a channel in a group."""

    member: bytes
    generation: int


@dataclass(slots=True)
class ConsumerGroup:
    """One group that has members."""

    changed: int = 0  # RaftIndex of its newest change
    members: dict[bytes, pb.ConsumerMember] = field(default_factory=dict)  # by id
    owners: dict[ChannelUid, ChannelOwner] = field(default_factory=dict)

    def row(self) -> pb.ConsumerGroup:
        """The group as a row."""
        ids = sorted(self.members)
        places = {member: at for at, member in enumerate(ids)}
        return pb.ConsumerGroup(
            changed=self.changed,
            members=[self.members[member] for member in ids],
            owners=[
                pb.ChannelOwner(uid=uid, member=places[owner.member], generation=owner.generation)
                for uid, owner in sorted(self.owners.items())
            ],
        )


@dataclass(slots=True)
class ConsumerGroups:
    """All groups that have members, by name."""

    KIND: ClassVar[str] = "consumer_groups"
    by_name: dict[bytes, ConsumerGroup] = field(default_factory=dict)
    dirty: set[bytes] = field(default_factory=set)

    def apply(self, change: pb.ConsumerGroupChange, index: RaftIndex, channels: Container[int]) -> str:
        """Apply one committed change; *channels*: the uids that there are. Returns why nothing of it was applied, or ""."""
        found = self.by_name.get(change.group)
        group = ConsumerGroup() if found is None else found
        if group.changed != change.changed:
            return CONSUMER_GROUP_CHANGED
        if found is None and len(self.by_name) >= limits.CONSUMER_GROUPS_MAX:
            return TOO_MANY_CONSUMER_GROUPS
        staying = (group.members.keys() | {row.member for row in change.joined}).difference(change.left)
        if len(staying) > limits.CONSUMERS_MAX:
            return TOO_MANY_CONSUMERS
        group.members = {member: row for member, row in group.members.items() if member in staying}
        group.members |= {row.member: row for row in change.joined if row.member in staying}
        taken = set(change.taken)
        group.owners = {
            uid: owner for uid, owner in group.owners.items() if owner.member in staying and uid not in taken
        }
        for given in change.given:
            if given.member in staying:
                owner = ChannelOwner(given.member, index)
                group.owners |= {ChannelUid(uid): owner for uid in given.uids if uid in channels}
        group.changed = index
        self.dirty.add(change.group)
        if group.members:
            self.by_name[change.group] = group
        else:
            self.by_name.pop(change.group, None)
        return ""

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone: nobody owns it."""
        for name, group in self.by_name.items():
            if group.owners.pop(uid, None) is not None:
                self.dirty.add(name)

    # --- rows -----------------------------------------------------------------------------------------------------

    def take_changed_rows(self) -> list[tuple[str, bytes, bytes | None]]:
        """Return kind, key and row of the groups that have changed since the last call; None: the group is gone."""
        dirty, self.dirty = sorted(self.dirty), set()
        return [
            (self.KIND, name, group.row().SerializeToString() if (group := self.by_name.get(name)) else None)
            for name in dirty
        ]

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write all groups into *snapshot*, in an order that depends on the state alone."""
        for name, group in sorted(self.by_name.items(), key=lambda item: item[0]):
            snapshot.parts.add(kind=self.KIND, key=name, state=group.row().SerializeToString())

    def load(self, name: bytes, state: bytes) -> None:
        """Take in the row of one group; only before the first `apply`."""
        row = pb.ConsumerGroup.FromString(state)
        ids = [member.member for member in row.members]
        self.by_name[name] = ConsumerGroup(
            row.changed,
            {member.member: member for member in row.members},
            {ChannelUid(owner.uid): ChannelOwner(ids[owner.member], owner.generation) for owner in row.owners},
        )
