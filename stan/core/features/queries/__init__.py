"""Questions of clients about channels, also those that wait for news."""

from collections.abc import Mapping

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.queries.channels import ChannelQueries
from stan.core.features.queries.long_poll import LongPoll
from stan.core.metadata.meta import MetaResult
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.proto import entries_pb2 as pb


class QueriesFeature(BrokerFeature):
    """Questions about channels and positions."""

    follows = frozenset({"depart"})

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self._long_poll = LongPoll(services)

    def handlers(self) -> Mapping[str, Handler]:
        """Questions of clients."""
        parts = self.parts
        return ChannelQueries(self.services, parts.channels, parts.lookup, self._long_poll).handlers()

    def follow_group(self, number: GroupId) -> None:
        """Answer the requests that wait for the group's channels."""
        self._long_poll.follow(number)

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Watch channels that were made; answer the requests that wait for a deleted one."""
        self.services.faults.each(self._long_poll.registered, result.created)
        if result.deleted is not None:
            self.services.faults.within(result.deleted.group, self._long_poll.unregistered, result.deleted)

    def meta_loaded(self) -> None:
        """Answer all requests that wait."""
        self._long_poll.reset()

    def applied(self, number: GroupId, name: str, change: pb.GroupChange, result: GroupResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Answer the requests that wait for channels that go to another group."""
        self._long_poll.left(map(ChannelUid, change.depart.uids))

    def due(self) -> None:
        """Answer the requests that wait for news."""
        if self.services.outgoing.news:
            self.services.faults.within(META_GROUP, self._long_poll.tell)
