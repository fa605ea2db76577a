"""Channels whose limits wait for a tier: what a named position has not passed stays, up to a multiple of the limits.

Promises: the limits of a channel with a policy `tier` remove no message before the position of that name has passed it, unless
the channel would have more than `tier_stretch` times its limits: then the limits win, which is told and counted. What is purged
or deleted of such a channel is noted with the position, for the tier has it, too (see state/bookmarks.py).
"""

from dataclasses import dataclass, replace

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import ChannelUid

from stan.config import ChannelLimits
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.names import text
from stan.core.metadata.meta import ChannelInfo
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Tier:
    """What waits for a tier in one channel."""

    name: bytes  # of the position
    room: ChannelLimits  # what the channel has at most
    held_until: int = 0  # what the limits want to be the oldest sequence, once the position is there; 0: nothing waits
    lost: int = 0  # messages that they have removed all the same, since this node leads
    lost_until: int = 0  # sequence behind the last one of these


class Tiers:
    """The channels of the groups that this node leads whose limits wait for a tier."""

    def __init__(self, services: Services) -> None:
        self.node, self.reports = services.node, services.reports
        self.by_channel: dict[ChannelUid, Tier] = {}

    def note(self, info: ChannelInfo, policy: DeliveryPolicy, in_force: ChannelLimits) -> None:
        """What a policy says about a channel with these limits, now."""
        if not policy.tier:
            self.by_channel.pop(info.uid, None)
            return
        stretch = policy.tier_stretch
        room = replace(
            in_force,
            msgs=in_force.msgs * stretch,
            bytes=in_force.bytes * stretch,
            age_ns=in_force.age_ns * stretch,
            inactivity_ns=in_force.inactivity_ns * stretch,
        )
        name = policy.tier.encode("utf-8", "surrogateescape")
        known = self.by_channel.get(info.uid)
        if known is None or known.name != name:
            self.by_channel[info.uid] = Tier(name, room)
        else:
            known.room = room

    def forget(self, uid: ChannelUid) -> None:
        """The channel is gone, or another node leads it."""
        self.by_channel.pop(uid, None)

    def position(self, info: ChannelInfo, tier: Tier) -> int:
        """The sequence that the tier has to pass next; 0 if its position was never set."""
        places = self.node.group_of(info).machine.bookmarks.by_channel.get(info.uid, {})
        place = places.get(tier.name)
        return 0 if place is None else place.sequence

    def allowed(self, info: ChannelInfo, tier: Tier, wanted: int, most: int, oldest: int) -> int:
        """The oldest sequence that may stay where the limits want *wanted* to be the oldest, and the tier's room *most*; at
        present it is *oldest*."""
        position = self.position(info, tier)
        first = min(wanted, max(position, most, oldest))
        if first < wanted:
            self._hold(info, tier, wanted)
        elif position >= tier.held_until:
            tier.held_until = 0
        sure = max(position, oldest, tier.lost_until)
        if min(first, most) > sure:
            self._lose(info, tier, min(first, most), sure)
        return first

    def _hold(self, info: ChannelInfo, tier: Tier, wanted: int) -> None:
        if not tier.held_until:
            names = go_quote(text(info.name)), go_quote(text(tier.name))
            self.reports.note(
                "WRN", "Channel {} keeps more than its limits until position {} has passed it".format(*names)
            )
        tier.held_until = max(tier.held_until, wanted)

    def _lose(self, info: ChannelInfo, tier: Tier, first: int, sure: int) -> None:
        if not tier.lost:
            names = go_quote(text(info.name)), go_quote(text(tier.name))
            self.reports.note(
                "ERR", "Limits of channel {} remove messages that position {} has not passed".format(*names)
            )
        tier.lost += first - sure
        self.reports.totals.tier_lost_messages += first - sure
        tier.lost_until = first

    def waits(self, info: ChannelInfo, last: int) -> bool:
        """True if the channel has messages up to *last* that its tier has not passed."""
        tier = self.by_channel.get(info.uid)
        return tier is not None and self.position(info, tier) <= last

    def tell(self, removal: pb.Removal) -> pb.Removal:
        """*removal*, which the tier of its channel is to hear of, if it has one."""
        tier = self.by_channel.get(ChannelUid(removal.uid))
        if tier is not None:
            removal.tier = tier.name
        return removal

    def purge(self, uid: ChannelUid, oldest: int, to: int) -> pb.Removal:
        """The removal of all messages up to *to* of a channel whose oldest one is *oldest*. Where there is a tier it names the
        messages that are there: what limits have removed before them stays in the tier."""
        if uid in self.by_channel:
            return pb.Removal(uid=uid, deleted=(oldest, to))
        return pb.Removal(uid=uid, first_sequence=to + 1)
