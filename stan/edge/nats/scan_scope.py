"""The scope of a scan: the publishes and acks that this node handles; the scan skips the others unread.

Every node of a cluster receives all publishes and acks; the leader of a channel's group handles them. Servers that share their
channels by partitions each handle their own.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from stan_protocol.channels import whole_of
from stan_protocol.scalars import GroupId

from stan.core.boundary.view import BrokerView, ScopeView
from stan.protocol.user_subjects import rules
from stan.remembered import Remembered

if TYPE_CHECKING:
    from stan_protocol.frames import StreamSubject


class ScanScope:
    """Arguments of the kernel's scan. `rules` changes when the cluster's identity is known, the rest when leaderships do."""

    def __init__(self, view: BrokerView) -> None:
        self._view = view
        self._scope = view.scope
        self.pub_prefix = view.subjects.pub_prefix.encode() + b"."
        self.rules = rules(view.config)
        self.channel_filter: dict[bytes, bool] | None = ChannelFilter(view.scope) if view.clustered else view.partition
        self.streams: dict[int, StreamSubject] = {}  # by sid
        self.consumer_sid = 0  # of acks to consumers; 0: none
        self.led: frozenset[int] | None = frozenset() if view.clustered else None  # groups whose acks are handled
        if isinstance(self.channel_filter, ChannelFilter):
            view.scope.follow(self.roles_changed, self._acks_changed)

    def roles_changed(self) -> None:
        """Follow a change of the groups that this node leads, or of channels between groups."""
        if self.channel_filter is not None:
            self.channel_filter.clear()
            self._acks_changed()

    def _acks_changed(self) -> None:
        """Follow a change of the groups whose acks this node handles."""
        self.led = self._scope.acks()

    def subjects_changed(self, sids: Mapping[str, int]) -> None:
        """Follow a change of the subjects of other protocols. *sids*: the subscription to each."""
        self.streams = {sids[subject]: stream for subject, stream in self._scope.stream_subjects.items()}
        self.consumer_sid = sids.get(self._scope.consumer_acks, 0)

    def identity_known(self) -> None:
        """Note that the metadata has the identity of the cluster, which acks' inboxes begin with: no client may use it."""
        self.rules = rules(self._view.config, self._view.nuid)


class ChannelFilter(Remembered[bytes, bool]):
    """By channel: True if this node leads the channel's group, or that of a part, and takes publishes. `clear` when a leadership
    begins or ends; the broker clears it when channels may be in other groups."""

    def __init__(self, scope: ScopeView) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, channel: bytes) -> bool:
        return self.remember(channel, self._scope.takes(channel), len(channel))


class GroupFilter(dict[bytes, bool]):
    """By channel: True if the channel belongs to the given group, or a part of it does."""

    def __init__(self, group: GroupId, groups_of: Callable[[bytes], tuple[GroupId, ...]]) -> None:
        super().__init__()
        self._group = group
        self._groups_of = groups_of

    def __missing__(self, channel: bytes) -> bool:
        belongs = self[channel] = self._group in self._groups_of(channel)
        return belongs


class ChosenChannels(dict[bytes, bool]):
    """By channel: True if it is a chosen one, or one of them may be a part of it."""

    def __init__(self, channels: frozenset[bytes]) -> None:
        super().__init__(dict.fromkeys((*channels, *map(whole_of, channels)), True))

    def __missing__(self, channel: bytes) -> bool:
        return self.setdefault(channel, False)
