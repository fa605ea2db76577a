"""Moves of channels from group to group: by hand, by pins, by growth of the pool."""

from collections.abc import Callable, Mapping

from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.features.moves.commit_kinds import CommitRequests
from stan.core.features.moves.pins import PinRequests
from stan.core.features.moves.pool import PoolRequests
from stan.core.features.moves.spreading import Spreading
from stan.core.leader.local_group import LeaderParts, Leadership
from stan.core.metadata.meta import MetaResult
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.proto import entries_pb2 as pb


class MovesFeature(BrokerFeature):
    """Moves of channels, and the pool of groups."""

    follows = frozenset({"arriving", "arrived", "depart", "departed", "returned", "arrival_dropped"})

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self.channel_moves = ChannelMoves(services, parts.channels, parts.publishing, parts.clients, parts.subscribing)
        self._pool = PoolRequests(services, parts.nodes)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests of operators about places of channels and the pool."""
        pins, commit_kinds = (
            PinRequests(self.services, self.channel_moves),
            CommitRequests(self.services, self.channel_moves),
        )
        return {**self._pool.handlers(), **pins.handlers(), **commit_kinds.handlers()}

    def node_handlers(self) -> Mapping[str, Callable[[Frame], None]]:
        """Questions of the leader to which a channel comes."""
        return {"moves": self.channel_moves.answer}

    def lead_meta(self, leader: LeaderParts) -> None:
        """Add the part that begins moves."""
        leader.keep(Spreading(self.services, leader, self.channel_moves))

    def lead_group(self, leadership: Leadership) -> None:
        """Add the part that carries moves out."""
        self.channel_moves.lead(leadership)

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Follow moves that have begun or ended, and look which channels are to move now."""
        self.channel_moves.meta_applied(result)
        spreading = self.services.leading.part(META_GROUP, Spreading)
        if spreading is not None:
            spreading.applied(result)

    def meta_loaded(self) -> None:
        """Follow moves that have ended meanwhile."""
        self.channel_moves.meta_loaded()

    def applied(self, number: GroupId, name: str, change: pb.GroupChange, result: GroupResult) -> None:
        """Follow a step of a move."""
        self.channel_moves.applied(number, name, change, result)

    def start(self) -> None:
        """Look at the moves at intervals."""
        if self.services.node.clustered:
            self.channel_moves.start()

    def nodes_seen(self) -> None:
        """Open the pool of groups if all of its new groups have leaders."""
        self._pool.follow()
