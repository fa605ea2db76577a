"""A consumer is set back, or on, to a message: a move of its position, as operators have it too."""

from functools import partial
from typing import Final

from stan_protocol.scalars import WallNanos

from stan.core.base.names import raw
from stan.core.base.ready import Index
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries, LedConsumer
from stan.core.features.jetstream.consumers.descriptions import ack_floor
from stan.core.features.jetstream.consumers.showing import ShownConsumers
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.jetstream import consumer_errors as errors
from stan.protocol.jetstream import consumers as wanted
from stan.protocol.jetstream.api import OWNS, ApiRow
from stan.protocol.jetstream.consumers import ConsumerConfig
from stan.protocol.jetstream.errors import (
    ALONE,
    BAD_REQUEST,
    UNAVAILABLE,
    UNSUPPORTED_IN_CLUSTER,
    RequestError,
    invalid_json,
)
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.proto import entries_pb2 as pb

RESET: Final = ApiRow("CONSUMER.RESET.*.*", "consumer_reset", OWNS, refused=(("reset_seq", 0),))
UNPIN, STEP_DOWN = (
    ApiRow("CONSUMER.UNPIN.*.*", "consumer_unpin", OWNS),
    ApiRow("CONSUMER.LEADER.STEPDOWN.*.*", "consumer_leader_stepdown", OWNS),
)
"""Known, and not built."""


class ConsumerResets(ShownConsumers):
    """Shows consumers, and handles requests that reset them: messages from there on are delivered, those that wait for acks among
    them."""

    def __init__(self, services: Services, rights: JetStreamRights) -> None:
        super().__init__(services, rights)
        self.proposals, self.stored = services.proposals, services.stored

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of each kind of request."""
        return super().handlers() | {RESET: self._reset, UNPIN: self._unpin, STEP_DOWN: self._step_down}

    def _reset(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        asked = fields.number("seq")
        fields.end()
        cursor, consumer = self.existing(request, changes=True)
        led = request.part(ConsumerDeliveries).find(cursor.uid, cursor.name)
        if asked < 0:
            raise RequestError(BAD_REQUEST)
        if led is None:
            raise RequestError(UNAVAILABLE)
        index = self.stored.indexes(request.channel.group, request.channel.uid)
        if asked:
            _check(consumer.config, asked, index)
        sequence = min(asked or _floor(led) + 1, index.last_sequence + 1)
        move = pb.MoveCursor(cursor_id=cursor.cursor_id, at=self.node.clock.wall, sequence=max(sequence, 1))
        done = partial(self._moved, request, move.sequence)
        self.proposals.change_group(request.groups[0], done, partial(request.refuse, UNAVAILABLE), move_cursor=move)

    def _moved(self, request: ApiRequest, sequence: int, result: object, _error: str) -> None:
        there = self.named(request, raw(request.named[1]))
        if not isinstance(result, GroupResult) or result.error or there is None:
            request.refuse(UNAVAILABLE)
            return
        led = request.part(ConsumerDeliveries).find(there[0].uid, there[0].name)
        if led is not None:
            led[2].sent = 0  # the numbers of deliveries begin again
        self.describe(request, *there, reset_seq=sequence)

    def _unpin(self, request: ApiRequest) -> None:
        """Say that a consumer has no group whose client could be unpinned, as none has."""
        fields = Fields(request.document())
        group = fields.text("group")
        fields.end()
        if not group:
            raise RequestError(invalid_json("consumer group not specified"))
        self.existing(request, changes=True)
        raise RequestError(errors.NO_SUCH_GROUP)

    def _step_down(self, request: ApiRequest) -> None:
        """Say that a consumer has no leader of its own: it is that of its stream's channel."""
        self.existing(request, changes=True)
        raise RequestError(UNSUPPORTED_IN_CLUSTER if self.node.clustered else ALONE)


def _check(config: ConsumerConfig, sequence: int, index: Index) -> None:
    """Refuse a message at which a consumer cannot begin. Raises RequestError."""
    if config.deliver_policy == wanted.FROM_SEQUENCE:
        if sequence < config.start_sequence:
            raise RequestError(errors.invalid_reset("below start seq"))
    elif config.deliver_policy == wanted.FROM_TIME:
        if sequence < index.sequence_at(WallNanos(config.start_time or 0)):
            raise RequestError(errors.invalid_reset("below start time"))
    elif config.deliver_policy != wanted.ALL:
        raise RequestError(errors.invalid_reset("not allowed"))


def _floor(led: LedConsumer) -> int:
    """The message up to which everything is acked."""
    live, _, consumer = led
    return ack_floor(live) if consumer.config.acks else live.last_sent
