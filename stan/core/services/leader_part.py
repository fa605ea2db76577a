"""The bases of everything that belongs to the leader of the metadata, or of one channel group."""

from collections.abc import Callable, Set
from typing import ClassVar

from stan_protocol.scalars import ChannelUid, Nanos

from stan.core.base.ready import Done, InDoubt
from stan.core.leader.local_group import LeaderParts, Leadership
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class _Part:
    """A part of a leader: made with its leadership, and dropped with it."""

    def __init__(self, services: Services, leadership: LeaderParts) -> None:
        self.node, self.nats, self.proposals = services.node, services.nats, services.proposals
        self.outgoing, self.reports = services.outgoing, services.reports
        self.leadership = leadership
        self.number = leadership.number
        self._timers = services.timers

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """Call `call(now)` in the first turn at or after *deadline* (Nanos), if this leadership lasts until then."""

        def alarm(now: Nanos) -> None:
            if not self.leadership.ended:
                call(now)

        self._timers.at(deadline, alarm, self.number)


class LeaderPart(_Part):
    """A part of the leader of one channel group."""

    follows: ClassVar[frozenset[str]] = frozenset()
    """Names of the changes of the group with which `followed` is called."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.stored = services.stored
        self.group = leadership.group

    def change(self, done: Done, in_doubt: InDoubt = nobody_waits, **change: object) -> None:
        """Propose one CHANGE of the group (see `ProposedChanges.change_group`)."""
        self.proposals.change_group(self.number, done, in_doubt, **change)

    def followed(self, change: pb.GroupChange) -> None:
        """A change in `follows` was applied."""

    def to_depart(self, uids: Set[ChannelUid], until: int) -> None:
        """Channels are about to be moved to another group: begin nothing in them that would hold them here, until *until*
        (Nanos)."""

    def took_over(self, uid: ChannelUid) -> None:
        """The group has taken a channel over from another one."""


class MetaPart(_Part):
    """A part of the leader of the metadata."""

    def __init__(self, services: Services, leadership: LeaderParts) -> None:
        super().__init__(services, leadership)
        self.leading = services.leading

    def restart_all(self) -> None:
        """The NATS connection is back: clients that could not be reached until now get their time once more."""
