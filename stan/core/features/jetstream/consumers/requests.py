"""Requests that make, change, show, pause and delete consumers, and those for messages, on the leader of the stream's channel."""

from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from stan_protocol.scalars import WallNanos

from stan import limits
from stan.core.base.names import raw, text
from stan.core.features import BrokerParts
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.features.jetstream.consumers.resetting import ConsumerResets
from stan.core.features.jetstream.consumers.retention import WorkQueues
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.streams import Stream
from stan.core.services.services import Services
from stan.core.state.consumers import CONSUMERS, Consumer
from stan.core.state.consuming import CHANGED, GONE, TOO_MANY, consumers_max, cursor_of_consumer
from stan.core.state.cursors import Cursor, CursorKind
from stan.core.state.group_state import GroupResult
from stan.protocol.jetstream import consumer_errors as errors
from stan.protocol.jetstream import consumers as wanted
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import OWNS, READS, ApiRow
from stan.protocol.jetstream.consumers import ConsumerConfig, is_consumer_name, read_config, update_refusal
from stan.protocol.jetstream.errors import OTHER_STREAM, REPLICAS_ALONE, UNAVAILABLE, RequestError, invalid_json
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.jetstream.moments import NEVER, read_moment, shown_moment
from stan.protocol.proto import entries_pb2 as pb

CREATE_UNNAMED, CREATE, CREATE_FILTERED, CREATE_DURABLE = (
    ApiRow("CONSUMER.CREATE.*", "consumer_create", READS),
    ApiRow("CONSUMER.CREATE.*.*", "consumer_create", READS),
    ApiRow("CONSUMER.CREATE.*.*.>", "consumer_create", READS),
    ApiRow("CONSUMER.DURABLE.CREATE.*.*", "consumer_create", READS),
)
DELETE = ApiRow("CONSUMER.DELETE.*.*", "consumer_delete", OWNS)
PAUSE = ApiRow("CONSUMER.PAUSE.*.*", "consumer_pause", OWNS, refused=(("paused", False), ("pause_until", NEVER)))
NEXT = ApiRow("CONSUMER.MSG.NEXT.*.*", "", READS, outlasts=limits.PULL_OUTLASTS)
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NAME_LENGTH: Final = 8


class ConsumerRequests:
    """Handles requests about consumers."""

    def __init__(self, services: Services, parts: BrokerParts, rights: JetStreamRights) -> None:
        self.rights = rights
        self.node, self.stored, self.outgoing = services.node, services.stored, services.outgoing
        self.proposals = services.proposals
        self.channels = parts.channels
        self.shown = ConsumerResets(services, rights)
        self._made = 0  # names that this node has made up

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of each kind of request."""
        return {
            CREATE_UNNAMED: self._create,
            CREATE: self._create,
            CREATE_FILTERED: self._create,
            CREATE_DURABLE: self._create,
            DELETE: self._delete,
            PAUSE: self._pause,
            NEXT: self._next,
        } | self.shown.handlers()

    def _group(self, request: ApiRequest) -> ChannelGroup:
        return self.node.group_of(request.channel)

    # --- making and changing ------------------------------------------------------------------------------------------

    def _create(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        stream, action = fields.text("stream_name"), fields.text("action")
        document = fields.table("config")
        pedantic = fields.switch("pedantic")
        fields.end()
        if stream != request.named[0]:
            raise RequestError(OTHER_STREAM)
        if action not in ("", "create", "update"):
            raise RequestError(invalid_json(f"unknown action {action[: limits.API_SHOWN_CHARS]}"))
        config = read_config(document, self._name(request, document), request.known.config.consumers, pedantic=pedantic)
        config = replace(config, named=config.named or request.row is not CREATE_UNNAMED)
        self._check(request, config)
        there = self.shown.named(request, config.name.encode())
        cursor = self._cursor(request, config.name.encode())
        self.rights.check_consumer(request.user, request.known, config, cursor)
        if there is None:
            if action == "update":
                raise RequestError(errors.DOES_NOT_EXIST)
            self._begin(request, config)
            return
        cursor, known = there
        config = replace(config, newest_until=known.config.newest_until)
        same = replace(config, pause_until=known.config.pause_until) == known.config
        if same and self.rights.owner(cursor) == request.user:
            self.shown.describe(request, cursor, known)
            return
        if same:
            self._set(request, known, known.config)  # it was nobody's
            return
        if action == "create":
            raise RequestError(errors.EXISTS)
        self._update(request, cursor, known, config)

    def _cursor(self, request: ApiRequest, name: bytes) -> Cursor | None:
        """The position that a consumer of that name has, or would take over; None: there is none."""
        channel = self._group(request).machine.channels.get(request.known.uid)
        return None if channel is None else channel.by_key.get((CursorKind.DURABLE, name, CONSUMERS))

    def _name(self, request: ApiRequest, document: dict[str, Any]) -> str:
        """The name of the consumer that a request makes. Raises RequestError: subject and payload do not agree."""
        fields = Fields(document)
        durable, name = fields.text("durable_name"), fields.text("name")
        if request.row is CREATE_UNNAMED:
            if durable:
                raise RequestError(errors.EPHEMERAL_WITH_DURABLE)
            return name or self._new_name()
        if request.row is CREATE_DURABLE:
            if not durable:
                raise RequestError(errors.DURABLE_NOT_IN_REQUEST)
        elif request.row is CREATE_FILTERED and fields.text("filter_subject") != request.named[2]:
            raise RequestError(errors.OTHER_FILTER)
        if (durable or name or request.named[1]) != request.named[1]:
            raise RequestError(errors.DURABLE_IS_OTHER)
        if not is_consumer_name(request.named[1]):
            raise RequestError(errors.BAD_NAME)
        return request.named[1]

    def _new_name(self) -> str:
        """A name that no other consumer has: of this moment, on this node."""
        self._made += 1
        seed = f"{self.node.name} {self.node.clock.wall} {self.node.clock.now} {self._made}"
        number = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
        letters = []
        for _ in range(_NAME_LENGTH):
            number, at = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[at])
        return "".join(letters)

    def _check(self, request: ApiRequest, config: ConsumerConfig) -> None:
        """Refuse what does not fit the stream. Raises RequestError."""
        stream = request.known
        if config.pushes and stream.overlaps(config.deliver_subject):
            raise RequestError(errors.CYCLE)
        if config.replicas > 1 and config.replicas > stream.config.replicas:
            raise RequestError(REPLICAS_ALONE)

    def _begin(self, request: ApiRequest, config: ConsumerConfig) -> None:
        """Find out where a new consumer begins, and make it."""
        by_subject = config.deliver_policy == wanted.LAST_PER_SUBJECT or (
            config.deliver_policy == wanted.LAST and config.filters
        )
        if (by_subject or request.known.config.history) and not request.known.config.is_literal:
            with_index = partial(self._begin_by_subject, request, config)
            request.part(StreamReading).with_index(request.known, with_index, request.user)
        else:
            self._make(request, config, self._start(request, config))

    def _begin_by_subject(self, request: ApiRequest, config: ConsumerConfig, index: SubjectIndex | None) -> None:
        """The newest messages of the subjects are known: the consumer begins with the first of them, or the last."""
        if index is None or index.overfull:
            request.refuse(UNAVAILABLE)
            return
        newest = sorted(at for one in config.filters for _, at in index.matching(one))
        if config.deliver_policy not in (wanted.LAST, wanted.LAST_PER_SUBJECT) or not config.filters:
            self._make(request, config, self._start(request, config))
        elif config.deliver_policy == wanted.LAST:
            self._make(request, config, newest[-1] if newest else index.through + 1)
        else:
            start = newest[0] if newest else index.through + 1
            self._make(request, replace(config, newest_until=index.through), start)

    def _make(self, request: ApiRequest, config: ConsumerConfig, start: int) -> None:
        stream, queues = request.known, request.part(WorkQueues)
        refusal = queues.refusal(stream.uid, config) if stream.config.is_queue else None
        if refusal is not None:
            request.refuse(refusal)
            return
        if stream.config.by_interest and not self._group(request).machine.consumers.of(stream.uid):
            start = max(start, self._start(request, config))  # nobody was interested in what is there
        if stream.config.is_queue:
            queues.making.add(stream.uid)
        user = raw(request.user)
        change = change_for(stream, config, start, self.node.clock.wall, user)
        if user:
            change.consumers_max = consumers_max(self._group(request).machine, stream.uid, user, change.consumers_max)
        self._propose(request, change)

    def _update(self, request: ApiRequest, cursor: Cursor, known: Consumer, config: ConsumerConfig) -> None:
        refusal = update_refusal(known.config, config)
        if refusal is None and request.known.config.is_queue and config.filters != known.config.filters:
            refusal = errors.not_created("this server does not change the filters of a consumer of a work queue")
        if refusal is not None:
            raise RequestError(refusal)
        there = request.part(ConsumerDeliveries).find(cursor.uid, cursor.name)
        if config.deliver_subject != known.config.deliver_subject and there is not None and there[2].presence.active:
            raise RequestError(errors.NAME_IN_USE)
        self._set(request, known, config)

    def _set(self, request: ApiRequest, known: Consumer, config: ConsumerConfig) -> None:
        change = pb.SetConsumer(
            uid=request.known.uid,
            stream=known.stream,
            name=config.name.encode(),
            changed=known.changed,
            config=config.encoded(),
            at=self.node.clock.wall,
            user=raw(self._future_owner(request, config.name.encode())),
        )
        self._propose(request, change)

    def _future_owner(self, request: ApiRequest, name: bytes) -> str:
        """The user to whom a consumer belongs once a request has changed it: it stays its owner's, and nobody's goes to whoever
        may have it, unless an operator asks."""
        cursor = cursor_of_consumer(self._group(request).machine, request.known.uid, name)
        owner = self.rights.owner(cursor)
        if owner or request.row is PAUSE or not self.rights.with_users:
            return owner or text(cursor.user)
        return request.user

    def _propose(self, request: ApiRequest, change: pb.SetConsumer) -> None:
        done = partial(self._decided, request, change.name)
        in_doubt = partial(request.part(WorkQueues).making.discard, request.known.uid)
        self.proposals.change_group(request.groups[0], done, in_doubt, set_consumer=change)

    def _decided(self, request: ApiRequest, name: bytes, result: object, _error: str) -> None:
        request.part(WorkQueues).making.discard(request.known.uid)
        there = None
        if isinstance(result, GroupResult) and not result.error:
            there = self.shown.named(request, name)
        if there is not None and request.row is NEXT:
            self._next_again(request)
        elif there is not None and request.row is PAUSE:
            self._tell_pause(request, there[1].config)
        elif there is not None:
            self.shown.describe(request, *there)
        elif isinstance(result, GroupResult) and result.error == TOO_MANY:
            request.refuse(errors.TOO_MANY)
        elif isinstance(result, GroupResult) and result.error == CHANGED:
            request.refuse(errors.NAME_IN_USE)
        else:
            request.refuse(UNAVAILABLE)

    def _next_again(self, request: ApiRequest) -> None:
        """Go on with a request for messages of a consumer that was nobody's, and belongs to the asking user now."""
        try:
            self._next(request)
        except RequestError as error:  # another one was faster
            request.refuse(error.error)

    def _start(self, request: ApiRequest, config: ConsumerConfig) -> int:
        """The first message that a new consumer may get, perhaps one that is not there yet."""
        info = request.channel
        index = self.stored.indexes(info.group, info.uid)
        channel = self.channels.by_uid.get(info.uid)
        last = index.last_sequence if channel is None else channel.next_sequence - 1 + channel.unsealed.count
        machine = self._group(request).machine
        first = max(index.first_sequence or 1, machine.first_sequence(info.uid))
        if request.known.config.by_interest and not machine.consumers.of(info.uid):
            return last + 1
        match config.deliver_policy:
            case wanted.NEW:
                return last + 1
            case wanted.LAST | wanted.LAST_PER_SUBJECT:
                return max(last, first)
            case wanted.FROM_SEQUENCE:
                return max(config.start_sequence, first)
            case wanted.FROM_TIME:
                return index.sequence_at(WallNanos(config.start_time or 0)) or 1
        return first

    # --- pausing, deleting ----------------------------------------------------------------------------------------------

    def _pause(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        asked = fields.text("pause_until")
        fields.end()
        until = read_moment(asked) if asked else 0
        if until is None:
            raise RequestError(invalid_json(f"no time: {asked[: limits.API_SHOWN_CHARS]}"))
        _, known = self.shown.existing(request, changes=True)
        if until == known.config.pause_until:
            self._tell_pause(request, known.config)
        else:
            self._set(request, known, replace(known.config, pause_until=until))

    def _tell_pause(self, request: ApiRequest, config: ConsumerConfig) -> None:
        left = config.pause_until - self.node.clock.wall
        told: dict[str, object] = {
            "paused": left > 0,
            "pause_until": shown_moment(config.pause_until) if config.pause_until else NEVER,
        }
        request.answer(**told, **({"pause_remaining": left} if left > 0 else {}))

    def _delete(self, request: ApiRequest) -> None:
        _, known = self.shown.existing(request, changes=True)
        change = pb.DropConsumer(uid=request.known.uid, name=raw(request.named[1]), changed=known.changed)
        self.proposals.change_group(request.groups[0], partial(self._deleted, request), drop_consumer=change)

    def _deleted(self, request: ApiRequest, result: object, _error: str) -> None:
        if isinstance(result, GroupResult) and result.error in ("", GONE):
            request.answer(success=True)
        else:
            request.refuse(UNAVAILABLE)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _next(self, request: ApiRequest) -> None:
        frame, known = request.frame, request.known
        there = request.part(ConsumerDeliveries).find(known.uid, raw(request.named[1]))
        if there is None:  # as NATS answers where nobody listens
            self.outgoing.responses.append(headers.no_responders(frame.reply))
            return
        live, _, consumer = there
        self.rights.check_consumer(request.user, known, consumer.config, live.cursor)
        if self.rights.owner(live.cursor) == request.user:
            request.part(ConsumerDeliveries).pull(there, frame.reply, frame.payload)
        else:  # it was nobody's
            self._set(request, self._group(request).machine.consumers.of(known.uid)[live.cursor.name], consumer.config)


def change_for(stream: Stream, config: ConsumerConfig, start: int, at: WallNanos, user: bytes) -> pb.SetConsumer:
    """The change that makes a consumer of a stream at the time *at*. *start*: the first message that it may get, if no position
    of its name is there yet; *user*: its owner."""
    most = stream.config.max_consumers
    return pb.SetConsumer(
        uid=stream.uid,
        stream=stream.name.encode(),
        name=config.name.encode(),
        config=config.encoded(),
        start_sequence=start,
        consumers_max=min(most, limits.STREAM_CONSUMERS_MAX) if most > 0 else limits.STREAM_CONSUMERS_MAX,
        at=at,
        subject=stream.only_subject,
        user=user,
    )
