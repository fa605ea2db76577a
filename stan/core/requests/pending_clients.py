"""Frames of clients that this server has not registered yet wait until the clients are.

Servers that share the channels of one cluster id (stan.core.base.partition) each register clients by themselves: a client's
publishes may arrive at a server before that server has registered the client.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from stan_protocol.frames import Sender
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services


@dataclass(slots=True)
class _Awaiting:
    publishers: tuple[Sender, ...]
    call: Callable[[bool], object]


class PendingClients:
    """Callbacks that wait for clients to be registered here; bounded in time, and by what the callers hold."""

    def __init__(self, services: Services) -> None:
        self.faults, self.node, self.senders = services.faults, services.node, services.senders
        self.timers = services.timers
        self._waiting: list[_Awaiting] = []
        self._failed: dict[Sender, None] = {}  # did not come in time; oldest first

    def wait(self, publishers: Iterable[Sender], call: Callable[[bool], None], group: GroupId) -> None:
        """Call *call*, for *group*, with True once each of *publishers* is known or its time is over; at once if it is."""
        strangers = tuple(
            one for one in dict.fromkeys(publishers) if not self._is_known(one) and one not in self._failed
        )
        if not strangers:
            call(True)  # noqa: FBT003 - as stan.core.requests.metadata_read_index answers
            return
        awaiting = _Awaiting(strangers, self.faults.bound(group, call))
        self._waiting.append(awaiting)
        late = partial(self._late, awaiting)
        self.timers.at(self.node.clock.now + limits.PARTITION_CLIENT_PATIENCE, late, META_GROUP)

    def _is_known(self, publisher: Sender) -> bool:
        known = self.senders.sender(publisher) is not None
        if known:
            self._failed.pop(publisher, None)
        return known

    def applied(self) -> None:
        """A metadata entry was applied, which may have registered clients: run the callbacks that are due."""
        if not self._waiting:
            return
        there = [one for one in self._waiting if all(map(self._is_known, one.publishers))]
        self._waiting = [one for one in self._waiting if one not in there]
        for one in there:
            one.call(True)  # noqa: FBT003

    def _late(self, awaiting: _Awaiting, _now: Nanos) -> None:
        if awaiting not in self._waiting:
            return
        self._waiting.remove(awaiting)
        for publisher in awaiting.publishers:
            if not self._is_known(publisher):
                self._failed[publisher] = None
        if len(self._failed) > limits.PARTITION_STRANGERS_MAX:
            for publisher in list(self._failed)[: limits.PARTITION_STRANGERS_PRUNED]:
                del self._failed[publisher]
        awaiting.call(True)  # noqa: FBT003
