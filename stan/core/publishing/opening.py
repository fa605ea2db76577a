"""Channels are opened: found, or made with their first use, and who waits for that."""

from dataclasses import dataclass
from functools import partial

from stan_protocol.channels import folded
from stan_protocol.refusals import (
    CHANNEL_ELSEWHERE,
    CHANNEL_MOVING,
    HAS_PARTS,
    IN_ANOTHER_GROUP,
    NAME_OF_PART,
    NO_METADATA,
    TOO_MANY_CHANNELS,
    case_conflict,
    go_quote,
)
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.metadata.meta import MetaResult
from stan.core.publishing.live_channel import LiveChannel, Opened
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.services import Services
from stan.policies import EPHEMERAL
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Opening:
    """A channel that is being made, and who waits for it."""

    group: GroupId
    waiting: list[Opened]


class Openings(dict[bytes, Opening]):
    """Channels that are being made, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_lower: dict[bytes, bytes] = {}  # their names in lower case, of which no two are equal

    def begin(self, name: bytes, opening: Opening) -> None:
        """Add a channel."""
        self[name] = opening
        self.by_lower[folded(name)] = name

    def end(self, name: bytes) -> Opening | None:
        """Remove a channel; returns it, None if it is not there."""
        opening = self.pop(name, None)
        if opening is not None:
            del self.by_lower[folded(name)]
        return opening


class ChannelOpening:
    """Opens channels of the groups that this node leads."""

    def __init__(self, services: Services, by_name: dict[bytes, LiveChannel]) -> None:
        """*by_name*: the channels that are there."""
        self.faults, self.node, self.placement = services.faults, services.node, services.placement
        self.proposals, self.timers = services.proposals, services.timers
        self.by_name = by_name
        self.pending = Openings()

    def follow(self, number: GroupId) -> None:
        """This node no longer leads the group: nobody waits for its channels any more."""
        for name in [name for name, opening in self.pending.items() if opening.group == number]:
            self.answer(name, None, LED_ELSEWHERE)

    def parted_changed(self, name: bytes) -> None:
        """A channel has got parts, so that it is not made itself. What waits for a channel to be made that is called like a part
        came before it was known to be one, and may belong to another part."""
        parted = self.node.meta.channels.parted
        for asked in [one for one in self.pending if parted.reserves(one)]:
            self.answer(asked, None, self._refusal(asked))
        for asked in [one for one in self.pending if parted.whole(one) == name]:
            self.answer(asked, None, NO_METADATA)

    def open(self, name: bytes, opened: Opened, group: GroupId | None = None) -> None:
        """Find or create channel *name* (a valid name); *opened* is called at once, or once the creation is committed or has
        failed. *group*: the one in which the channel has to be, and which this node leads; None: wherever it belongs."""
        if self.placement.is_held(name):
            opened(None, CHANNEL_MOVING if group is not None else LED_ELSEWHERE)
            return
        if group is None and self.is_left_to_another(name):
            opened(None, LED_ELSEWHERE)
            return
        channel = self.by_name.get(name)
        where = self.placement.group_number(name) if group is None else group
        elsewhere = self._is_elsewhere(name, where) if group is not None else ""
        if elsewhere:
            opened(None, elsewhere)
        elif channel is not None:
            opened(None if channel.closed else channel, channel.closed)
        elif name in self.pending:
            self.pending[name].waiting.append(opened)
        elif error := self._refusal(name):
            opened(None, error)
        else:
            self.pending.begin(name, Opening(where, [opened]))
            self._create(name, Nanos(self.node.clock.now + limits.FORWARD_PATIENCE))

    def is_left_to_another(self, name: bytes) -> bool:
        """True if another node answers requests for a channel, which it has received, too: the one that takes over a channel
        that moves, or the leader of the group in which the channel was made meanwhile."""
        info = self.node.meta.channels.get(name)
        made_elsewhere = info is not None and name not in self.by_name and not self.node.leads(info.group)
        return made_elsewhere or self.placement.is_held(name)

    def _is_elsewhere(self, name: bytes, group: GroupId) -> str:
        """Why a channel cannot be in *group*; "" if it can."""
        partition, info = self.placement.partition, self.node.meta.channels.get(name)
        if partition is not None and not partition[name]:
            return CHANNEL_ELSEWHERE
        opening = self.pending.get(name)
        known = info.group if info is not None else opening.group if opening is not None else group
        return "" if known == group else IN_ANOTHER_GROUP.format(known, group)

    def _create(self, name: bytes, until: Nanos) -> None:
        """Propose to register the channel, or ask the metadata's leader to; `registered` is called once that is applied."""
        commit = EPHEMERAL if self.placement.wanted_commit(name) == EPHEMERAL else 0
        group = self.pending[name].group
        row = pb.Channel(name=name, group=group, commit=commit)
        exact = self.node.meta.pins.get(name, group) != group  # it belongs to a channel that is there
        create = pb.CreateChannels(channels=[row], channels_max=self.node.channels_max, exact=exact)
        self.proposals.ask_meta(partial(self._created, name), create_channels=create)
        if self.node.clustered:  # the proposal or the forwarded request may be lost with its leader
            self.timers.at(
                self.node.clock.now + limits.FORWARD_INTERVAL, partial(self._create_again, name, until), group
            )

    def _create_again(self, name: bytes, until: Nanos, now: Nanos) -> None:
        if name not in self.pending:
            return
        error = self._refusal(name) or (NO_METADATA if now >= until else "")
        if error:
            self.answer(name, None, error)
        else:
            self._create(name, until)

    def _refusal(self, name: bytes) -> str:
        meta = self.node.meta
        if name in meta.channels.parted.by_name:
            return self.parts_refusal(name)
        if (reserved := meta.channels.parted.reserves(name)) and folded(name) != folded(reserved):
            return NAME_OF_PART.format(go_quote(text(reserved)))
        if reserved:
            return case_conflict(text(name), text(reserved))
        lower = folded(name)
        other, asked = meta.channels.by_lower.get(lower), self.pending.by_lower.get(lower, name)
        if other is None and asked != name:
            other = asked
        if other is not None:
            return case_conflict(text(name), text(other))
        maximum = self.node.channels_max
        if maximum and len(meta.channels) + len(self.pending) - (name in self.pending) >= maximum:
            return TOO_MANY_CHANNELS
        return ""

    def parts_refusal(self, name: bytes) -> str:
        """Why a channel is not there that is asked for by its own name: it has parts; "" if it has none."""
        parted = self.node.meta.channels.parted.by_name.get(name)
        if parted is None:
            return ""
        first, *_, last = (go_quote(text(part)) for part in parted.names())
        return HAS_PARTS.format(first, last)

    def _created(self, name: bytes, result: object, error: str) -> None:
        if name in self.pending:  # not registered
            error = error or (result.error if isinstance(result, MetaResult) else "")
            self.answer(name, None, error or self._refusal(name) or TOO_MANY_CHANNELS)

    def answer(self, name: bytes, channel: LiveChannel | None, error: str) -> None:
        """Call who waits for a channel: it is there, or why it is not."""
        opening = self.pending.end(name)
        if opening is not None:
            for opened in opening.waiting:
                self.faults.within(opening.group, opened, channel, error)
