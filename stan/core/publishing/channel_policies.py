"""Policies and limits that are in force for the channels of the groups that this node leads."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stan_protocol.channels import whole_of
from stan_protocol.refusals import (
    DELAY_TARGET_DELAYED,
    DELAY_TARGET_ELSEWHERE,
    NO_DELAY_TARGET,
    TOO_MANY_DELAYED,
    go_quote,
)
from stan_protocol.scalars import ChannelUid

from stan.config import ChannelLimits
from stan.core.base.names import text
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.tiers import Tiers
from stan.core.services.services import Services
from stan.core.state.tombstones import deleted_from
from stan.policies import OFF
from stan.protocol.jetstream.streams import DISCARD_NEW, StreamConfig


@dataclass(slots=True)
class DelayFaults:
    """Why messages of a group that are due cannot be moved, while this node leads it."""

    by_channel: dict[ChannelUid, str] = field(default_factory=dict)


class Delay(NamedTuple):
    """The delay of a channel: its messages are stored in another channel so long after they were published."""

    delay: int  # ns
    target: bytes
    max_late: int  # ns; a message that is later is given up; 0: none is
    dead_letters: bytes  # channel of those that are given up; b"": none
    room: ChannelLimits  # of what waits: limits of such a channel refuse publishes, as what is removed would be lost


def _of_stream(room: ChannelLimits, config: StreamConfig) -> ChannelLimits:
    """The limits of a stream's channel where *room* is set for the channel; it does not go as it is idle. The number of messages
    is not limited where the newest of each subject stay, as compaction leaves gaps."""
    return replace(
        room,
        msgs=max(config.max_msgs, 0) or (0 if config.history else room.msgs),
        bytes=max(config.max_bytes, 0) or room.bytes,
        age_ns=0 if config.sealed or config.expires else config.max_age or room.age_ns,
        inactivity_ns=0,
    )


def _of_its_own(room: ChannelLimits, default: ChannelLimits) -> ChannelLimits:
    """The limits of a channel that a stream has made: those for all channels are for channels that publishers make, and do not
    take a stream's messages away that has asked for no limit."""
    return replace(
        room,
        msgs=0 if room.msgs == default.msgs else room.msgs,
        bytes=0 if room.bytes == default.bytes else room.bytes,
        age_ns=0 if room.age_ns == default.age_ns else room.age_ns,
    )


class Keeping(NamedTuple):
    """A stream that refuses messages when it is full; 0: no limit."""

    msgs: int
    bytes: int
    of_subject: int  # messages of its only subject
    sealed: bool  # it takes none at all


class ChannelPolicies:
    """Policies in force, by channel."""

    def __init__(self, services: Services) -> None:
        self.node, self.placement, self.stored = services.node, services.placement, services.stored
        self.delayed: dict[ChannelUid, Delay] = {}  # channels whose messages wait there for their time
        self.ttls: dict[ChannelUid, int] = {}  # ns: channels whose messages a policy lets expire
        # The check of messages that a policy wants, and the channel whose schema counts.
        self.schemas: dict[ChannelUid, tuple[int, bytes]] = {}
        self.compressed: set[ChannelUid] = set()  # channels of which a policy wants messages stored compressed
        self.keeping: dict[ChannelUid, Keeping] = {}  # channels whose streams refuse messages when they are full
        self.tiers = Tiers(services)

    def forget(self, uid: ChannelUid) -> None:
        """The channel is gone, or led elsewhere."""
        self.tiers.forget(uid)
        for noted in (self.delayed, self.ttls, self.schemas, self.keeping):
            noted.pop(uid, None)
        self.compressed.discard(uid)

    def limits_of(self, info: ChannelInfo, room: ChannelLimits) -> ChannelLimits:
        """The limits in force where *room* is set. A channel with a delay keeps its messages until they are due."""
        if info.is_ephemeral or not self.placement.policies.of(info.name, b"").delay:
            return self._removing(info, room)
        return replace(room, msgs=0, bytes=0, age_ns=0, inactivity_ns=0)

    def room_of(self, info: ChannelInfo) -> ChannelLimits:
        """The limits that the configuration, operators and a stream have set."""
        configured = self.node.config.limits.for_channel(text(whole_of(info.name)))
        if info.name in self.node.meta.channels.parted.by_part:
            configured = replace(configured, inactivity_ns=0)
        stream = self.node.meta.streams.by_uid.get(info.uid)
        if stream is not None and not stream.adopted:
            configured = _of_its_own(configured, self.node.config.limits.default)
        room = self.node.group_of(info).machine.limit_overrides.in_force(info.uid, configured)
        return room if stream is None else _of_stream(room, stream.config)

    def _removing(self, info: ChannelInfo, room: ChannelLimits) -> ChannelLimits:
        """Return the limits *room* without those at which a stream refuses new messages instead of removing old ones, and with
        that for the messages of its only subject."""
        stream = self.node.meta.streams.by_uid.get(info.uid)
        if stream is None:
            return room
        config = stream.config
        if config.discard == DISCARD_NEW:
            room = replace(room, msgs=0, bytes=0)
        removes = config.is_literal and not config.discard_new_per_subject
        most = config.max_msgs_per_subject if removes else 0
        return replace(room, msgs=min(room.msgs or most, most)) if most > 0 else room

    def note(self, info: ChannelInfo, room: ChannelLimits) -> None:
        """Note what the policy of a channel wants; of an ephemeral one no policy about stored messages is in force."""
        policy = self.placement.policies.of(info.name, b"")
        if info.is_ephemeral:
            self._note_schema(info, policy.schema, b"")
            return
        self._note_stream(info, room)
        target = policy.target_of(info.name) if policy.delay else b""
        self._note_schema(info, policy.schema, target)
        (self.compressed.add if policy.compress else self.compressed.discard)(info.uid)
        for noted in (self.ttls, self.delayed):
            noted.pop(info.uid, None)
        if policy.ttl:
            self.ttls[info.uid] = policy.ttl
        if policy.delay:
            self.delayed[info.uid] = Delay(policy.delay, target, policy.max_late, policy.dead_letters_of(target), room)
            self.tiers.forget(info.uid)
        else:
            self.tiers.note(info, policy, room)

    def _note_stream(self, info: ChannelInfo, room: ChannelLimits) -> None:
        """Note how much a stream takes that refuses new messages instead of removing old ones."""
        stream = self.node.meta.streams.by_uid.get(info.uid)
        if stream is None or stream.config.discard != DISCARD_NEW:
            self.keeping.pop(info.uid, None)
        else:
            of_subject = stream.config.is_literal and stream.config.discard_new_per_subject
            most = stream.config.max_msgs_per_subject if of_subject else 0
            self.keeping[info.uid] = Keeping(room.msgs, room.bytes, most, sealed=stream.config.sealed)

    def stream_full(self, channel: LiveChannel, sequence: int, size: int) -> str:
        """Why a stream that keeps what it has does not take messages, of which the last one would get *sequence*; "" if it does.

        *size*: their bytes, and those of messages that are to be stored before them.
        """
        keeping = self.keeping.get(channel.info.uid)
        if keeping is None:
            return ""
        if keeping.msgs and keeping.msgs <= self.count_below(channel.info, sequence):
            return "maximum messages exceeded"
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        full = 0 < keeping.bytes < index.bytes + channel.uncommitted_bytes + size
        return "maximum bytes exceeded" if full else ""

    def count_below(self, info: ChannelInfo, sequence: int) -> int:
        """The number of a channel's messages below *sequence*, those that are not committed yet included."""
        index = self.stored.indexes(info.group, info.uid)
        first = max(1, index.first_sequence)
        return sequence - first - deleted_from(self.stored.deleted(info.group, info.uid), first, index.last_sequence)

    def stream_takes(self, channel: LiveChannel, count: int, size: int) -> bool:
        """True if the channel's stream takes *count* messages more of STAN's clients, of *size* bytes together."""
        keeping = self.keeping.get(channel.info.uid)
        if keeping is None:
            return True
        last = channel.next_sequence + channel.unsealed.count + count - 1
        if keeping.of_subject and keeping.of_subject <= self.count_below(channel.info, last):
            return False
        return not self.stream_full(channel, last, size)

    def _note_schema(self, info: ChannelInfo, mode: int, target: bytes) -> None:
        """Note the check that policies want for messages of a channel; of one without a check but a delay, that of its target."""
        later = self.placement.policies.of(target, b"").schema if target and mode == OFF else OFF
        if mode == OFF and later == OFF:
            self.schemas.pop(info.uid, None)
        else:
            self.schemas[info.uid] = (mode, whole_of(info.name)) if mode != OFF else (later, target)

    def delay_refusal(self, channel: LiveChannel, count: int) -> str:
        """Why *count* messages more cannot be delayed in a channel; "" if they can, or if it has no delay."""
        delay = self.delayed.get(channel.info.uid)
        if delay is None:
            return ""
        error = self.delay_trouble(channel.info, delay)
        if error:
            return error
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        waiting = channel.next_sequence - (index.first_sequence or channel.next_sequence) + channel.unsealed.count
        full = delay.room.msgs and waiting + count > delay.room.msgs
        if full or (delay.room.bytes and index.bytes + channel.uncommitted_bytes >= delay.room.bytes):
            return TOO_MANY_DELAYED
        return ""

    def delay_trouble(self, info: ChannelInfo, delay: Delay) -> str:
        """The fault of a delay of a channel, so that its messages cannot be moved; "" if nothing is."""
        name, target = text(info.name), text(delay.target)
        if not delay.target:
            return NO_DELAY_TARGET.format(go_quote(name))
        if self.placement.policies.of(delay.target, b"").delay:
            return DELAY_TARGET_DELAYED.format(go_quote(name), go_quote(target))
        if self.placement.group_number(delay.target) != info.group:
            return DELAY_TARGET_ELSEWHERE.format(go_quote(name), go_quote(target))
        return ""
