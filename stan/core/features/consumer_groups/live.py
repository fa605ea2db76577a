"""What the leader of the metadata knows of one consumer group beyond the metadata: leases, who waits, what is to be released.

Nothing of it is replicated. Who leads next works it out again: the same members and channels are divided in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.base.assignor import assign
from stan.core.metadata.consumer_groups import ChannelOwner, ConsumerGroup
from stan.core.metadata.meta import ChannelInfo
from stan.core.requests.channel_lookup import matcher
from stan.core.requests.request import AcceptedRequest
from stan.protocol.proto import entries_pb2 as entries

IsFor = Callable[[bytes], bool]
"""Tells if a member with a pattern may be given a channel, should the pattern match."""


class MemberPoll(NamedTuple):
    """A request of a member that waits for news."""

    accepted: AcceptedRequest
    until: int  # Nanos


class MemberViews:
    """What each member of a group is told about its channels, at one moment."""

    def __init__(
        self, known: ConsumerGroup, releasing: set[ChannelUid], by_uid: Mapping[ChannelUid, ChannelInfo]
    ) -> None:
        self._channels: dict[bytes, list[pb.OwnedChannel]] = {}
        self._digests: dict[bytes, int] = {}
        for uid, owner in sorted(known.owners.items()):
            info = by_uid.get(uid)
            if info is not None:
                shown = pb.OwnedChannel(
                    uid=uid, generation=owner.generation, channel=info.name, release=uid in releasing
                )
                self._channels.setdefault(owner.member, []).append(shown)

    def channels(self, member: bytes) -> list[pb.OwnedChannel]:
        """The channels that a member owns, by uid."""
        return self._channels.get(member, [])

    def digest(self, member: bytes) -> int:
        """A number that tells one list of channels from another; never 0."""
        found = self._digests.get(member)
        if found is None:
            told = b"".join(b"%d %d %d," % (one.uid, one.generation, one.release) for one in self.channels(member))
            found = int.from_bytes(blake2b(told, digest_size=8).digest(), "big") or 1
            self._digests[member] = found
        return found


class LiveConsumerGroup:
    """The live view of one group."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.deadlines: dict[bytes, int] = {}  # member -> Nanos when its lease is over
        self.joining: dict[bytes, entries.ConsumerMember] = {}  # not in the metadata yet, or otherwise
        self.polls: dict[bytes, MemberPoll] = {}  # by member
        self.released: set[tuple[ChannelUid, int]] = set()  # uid, generation
        self.releasing: set[ChannelUid] = set()  # their owners are told to release them
        self.matching: dict[bytes, set[ChannelUid]] = {}  # pattern -> channels that its members may be given
        self.proposed_at = 0  # Nanos; a change is on its way; 0: none is
        self.due = False  # the channels are divided at the end of this turn
        self.views: MemberViews | None = None  # None: to be made anew

    # --- members ------------------------------------------------------------------------------------------------------

    def leave(self, member: bytes) -> None:
        """A member says that it is done: who has no lease is not there."""
        self.joining.pop(member, None)
        self.deadlines.pop(member, None)

    def release(self, member: bytes, known: ConsumerGroup, released: Iterable[pb.OwnedChannel]) -> bool:
        """A member says that it has released channels; returns True if that is news. What it does not own, or under another
        generation, changes nothing."""
        news = {
            (uid, one.generation)
            for one in released
            if known.owners.get(uid := ChannelUid(one.uid)) == ChannelOwner(member, one.generation)
        } - self.released
        self.released |= news
        return bool(news)

    def put_off(self, by: int) -> None:
        """Prolong all leases by *by* nanoseconds, in which members could not be heard."""
        for member in self.deadlines:
            self.deadlines[member] += by

    def staying(self, known: ConsumerGroup, now: int) -> dict[bytes, entries.ConsumerMember]:
        """The members that are there now, with those that join, by id; those whose lease is over are forgotten."""
        for member in [member for member, deadline in self.deadlines.items() if deadline <= now]:
            del self.deadlines[member]
            self.joining.pop(member, None)
            self.polls.pop(member, None)
        rows = {member: row for member, row in known.members.items() if member in self.deadlines} | self.joining
        return {member: rows[member] for member in sorted(rows)}

    # --- channels -----------------------------------------------------------------------------------------------------

    def consider(self, pattern: bytes, info: ChannelInfo, is_for: IsFor) -> bool:
        """Remember a channel if *pattern* matches it; returns True if it does."""
        fits = is_for(pattern) and matcher(pattern)(info.name)
        if fits:
            self.matching[pattern].add(info.uid)
        return fits

    def channel_created(self, info: ChannelInfo, is_for: IsFor) -> bool:
        """A channel was made; returns True if it concerns the group."""
        return sum(self.consider(pattern, info, is_for) for pattern in self.matching) > 0  # each of them is asked

    def channel_deleted(self, uid: ChannelUid) -> None:
        """A channel is gone."""
        self.views = None
        for channels in self.matching.values():
            channels.discard(uid)

    def forget_patterns(self, used: Iterable[bytes]) -> None:
        """Forget the channels of patterns that no member has."""
        for pattern in self.matching.keys() - set(used):
            del self.matching[pattern]

    # --- dividing -----------------------------------------------------------------------------------------------------

    def divide(
        self, known: ConsumerGroup, staying: dict[bytes, entries.ConsumerMember]
    ) -> entries.ConsumerGroupChange | None:
        """Divide the channels among the members *staying*. Returns the change that can be made now; None: there is none. What is
        to move and has an owner that is there waits in `releasing`."""
        oldest = set(sorted(set().union(*self.matching.values()))[: limits.CONSUMER_CHANNELS_MAX])
        able = {pattern: channels & oldest for pattern, channels in self.matching.items()}
        wanted = assign(
            {member: able[row.pattern] for member, row in staying.items()},
            {uid: owner.member for uid, owner in known.owners.items()},
        )
        given: dict[bytes, list[int]] = {}
        taken: list[int] = []
        releasing: set[ChannelUid] = set()
        for uid in sorted(wanted.keys() | known.owners.keys()):
            owner, to = known.owners.get(ChannelUid(uid)), wanted.get(uid)
            if owner is not None and owner.member in staying:
                released = (uid, owner.generation) in self.released
                if released or owner.member != to:
                    releasing.add(ChannelUid(uid))  # if it is released, until the metadata tell so
                if not released:
                    continue
                if to is None:
                    taken.append(uid)
            if to is not None:
                given.setdefault(to, []).append(uid)
        if releasing != self.releasing:
            self.releasing, self.views = releasing, None
        joined = [row for member, row in staying.items() if known.members.get(member) != row]
        left = sorted(known.members.keys() - staying.keys())
        if not (given or taken or joined or left):
            return None
        return entries.ConsumerGroupChange(
            changed=known.changed,
            joined=joined,
            left=left,
            taken=taken,
            given=[entries.GivenChannels(member=member, uids=uids) for member, uids in sorted(given.items())],
        )

    def taken_in(self, known: ConsumerGroup) -> None:
        """A change is in the metadata: forget what it has settled."""
        self.joining = {member: row for member, row in self.joining.items() if known.members.get(member) != row}
        owned = {(uid, owner.generation) for uid, owner in known.owners.items()}
        self.released &= owned

    def view(self, known: ConsumerGroup, by_uid: Mapping[ChannelUid, ChannelInfo]) -> MemberViews:
        """What the members are told now."""
        if self.views is None:
            self.views = MemberViews(known, self.releasing, by_uid)
        return self.views
