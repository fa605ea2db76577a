"""Judges if messages may be stored in their stream: by the expectations in their headers, their size, the stream's limits.

The checks come in the order in which NATS's own server makes them, so that a message that fails several gets the same answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct
from typing import Final, NamedTuple

from stan_protocol.frames import Frame, StreamMessages
from stan_protocol.patterns import literal
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import TOO_MANY_DELETED, go_quote
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.base.names import raw, text
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.core.base.ready import Index
from stan.core.base.runs import Runs
from stan.core.features.jetstream.streams.batches import Arrived, BatchInFlight
from stan.core.features.jetstream.streams.subjects import SubjectIndex, digest, digests
from stan.core.metadata.streams import Stream
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.live_channel import LiveChannel
from stan.core.services.services import Services
from stan.core.state.schedules import ChannelSchedules
from stan.core.state.tombstones import below_newest
from stan.protocol.jetstream import headers, schedules
from stan.protocol.jetstream.errors import (
    EXPECTS_NUMBER,
    HEADER_TOO_LARGE,
    INVALID_TTL,
    MESSAGE_TOO_LARGE,
    NO_BATCHES,
    NO_COUNTERS,
    NO_FAST_BATCHES,
    NO_TTL,
    NOT_READY,
    NOT_THAT_STREAM,
    SEALED,
    TOO_MANY_SCHEDULES,
    ApiError,
    no_rollup,
    not_stored,
    wrong_last_id,
    wrong_last_sequence,
)

_LENGTH: Final = Struct("<I")
_SCHEDULE_ROOM: Final = 64
"""Bytes that a message which a schedule publishes takes more than the schedule, at most."""
_NOT_BUILT: Final = {
    headers.BATCH_ID: NO_BATCHES,
    headers.COUNTER: NO_COUNTERS,
}
_ASKING: Final = (headers.MSG_ID, headers.EXPECTED_LAST_ID, headers.EXPECTED_LAST_OF_SUBJECT)
_FAST_BATCH: Final = b".$FI"
"""The end of reply subjects by which clients publish batches that are not atomic."""


def asks_index(stream: Stream, arrived: Arrived) -> bool:
    """True if a message or a batch can be judged only with the stream's index."""
    if stream.config.counts_subjects:
        return True
    if isinstance(arrived, StreamMessages):
        return bool(arrived.ids)
    frame = arrived
    if not frame.header:
        return False
    rolls_up = stream.config.rolls_up and (headers.ROLLUP in frame.header or headers.SCHEDULE in frame.header)
    return rolls_up or any(name in frame.header for name in _ASKING)


NOT_SCHEDULED: Final = -1


@dataclass(slots=True)
class InFlight:
    """The messages of one stream that are not committed yet."""

    count: int = 0
    subjects: dict[bytes, int] = field(default_factory=dict)  # the sequence that the newest of each gets
    counts: Counter[bytes] = field(default_factory=Counter)  # messages of each subject, but for those of batches
    batches: list[BatchInFlight] = field(default_factory=list)  # whose subjects are not in `subjects`
    # And the reply subjects of messages with the same id; None: there was none.
    ids: dict[bytes, list[bytes] | None] = field(default_factory=dict)
    last_id: bytes = b""  # of the newest
    schedules: dict[bytes, int] = field(default_factory=dict)  # the sequence that the schedule of each subject gets

    def begin(self, subject: bytes, message_id: bytes, sequence: int, due: int = NOT_SCHEDULED) -> None:
        """Note a message; *due*: as of a Judgement."""
        if due > 0:
            self.schedules[subject] = sequence
        elif not due:
            self.schedules.pop(subject, None)
        self.subjects[subject] = sequence
        self.counts[subject] += 1
        self.last_id = message_id
        if message_id:
            self.ids[digest(message_id)] = None

    def begin_batch(self, first: int, messages: StreamMessages) -> BatchInFlight:
        """Note a batch; *first*: the sequence of its first message."""
        batch = BatchInFlight(first, messages)
        self.batches.append(batch)
        self.count += messages.count
        self.last_id = messages.ids[-1] if messages.ids else b""
        if messages.ids:
            self.ids.update(dict.fromkeys(digests(messages.ids)))
        return batch

    def end_batch(self, batch: BatchInFlight) -> list[tuple[int, bytes]]:
        """Forget a batch; returns the place of each message with an id that came once more, and the reply subject of that."""
        self.batches.remove(batch)
        self.count -= batch.messages.count
        if not batch.messages.ids:
            return []
        waiting = ((at, self.ids.pop(digest(one), None)) for at, one in enumerate(batch.messages.ids) if one)
        return [(at, reply) for at, replies in waiting for reply in replies or ()]

    def newest(self, subject: bytes) -> int:
        """The sequence that the newest message of a subject gets; 0: none is on its way. Cost: O(batches)."""
        of_batches = (batch.newest_of(subject) for batch in self.batches)
        return max(self.subjects.get(subject, 0), max(of_batches, default=0))

    def end(self, subject: bytes, message_id: bytes, sequence: int) -> list[bytes]:
        """Forget a message; returns the reply subjects of those with the same id."""
        self.counts[subject] -= 1
        if not self.counts[subject]:
            del self.counts[subject]
        if self.subjects.get(subject) == sequence:
            del self.subjects[subject]
        if self.schedules.get(subject) == sequence:
            del self.schedules[subject]
        return (self.ids.pop(digest(message_id), None) or []) if message_id else []


class Judgement(NamedTuple):
    """The result for a message that is not refused."""

    body: bytes = b""  # its row
    message_id: bytes = b""
    checked: bool = False  # against the sequence that it gets
    rollup: bool = False  # it takes the place of everything before it
    replaces: Sequence[int] = ()  # it takes the place of these messages
    duplicate_of: int = 0  # sequence of the message with its id
    waits: bool = False  # for the message with its id, which is on its way
    due: int = NOT_SCHEDULED  # Unix ns: of a schedule; 0: the message ends the schedule of its subject


class Judge:
    """Judges the messages of one stream that are stored together."""

    def __init__(
        self,
        services: Services,
        stream: Stream,
        channel: LiveChannel,
        policies: ChannelPolicies,
        index: SubjectIndex | None,
        in_flight: InFlight,
    ) -> None:
        """*policies*: know the limits of the channel, the stream's included."""
        self._policies = policies
        self.stream, self.channel, self.index, self.in_flight = stream, channel, index, in_flight
        self.nats, self.node, self.now = services.nats, services.node, services.node.clock.wall
        self._stored = services.stored
        self._since = self.now - stream.config.duplicate_window
        self._bytes = 0  # of the batch
        self._compared = 0  # subjects with which expectations with wildcards were compared
        if index is not None:
            index.forget_ids(self._since)

    @cached_property
    def _log(self) -> Index:
        """The index of the channel."""
        return self._stored.indexes(self.channel.info.group, self.channel.info.uid)

    @cached_property
    def _deleted(self) -> Runs | None:
        """Messages of the channel that were deleted one by one."""
        return self._stored.deleted(self.channel.info.group, self.channel.info.uid)

    def judge(self, frame: Frame, sequence: int, before: int) -> Judgement | ApiError:
        """Judge a message that gets *sequence*, *before* it so many others of the same batch; note it if it is to be stored."""
        if self.stream.config.sealed:
            return SEALED
        if headers.too_large(frame.header):
            return HEADER_TOO_LARGE
        if frame.reply.endswith(_FAST_BATCH):
            return NO_FAST_BATCHES
        listed = headers.parse(frame.header) if frame.header else []
        fields = dict(reversed(listed))  # of several with one name, the first counts
        if self.stream.config.allow_schedules and fields.get(headers.SCHEDULE) and not fields.get(headers.ROLLUP):
            listed.append((headers.ROLLUP, headers.OF_SUBJECT))
            fields[headers.ROLLUP] = headers.OF_SUBJECT
        for check in self._CHECKS if fields else ():
            found = check(self, frame, fields, sequence, before)
            if found is not None:
                return found
        body, expiry_error = self._body(frame, listed, fields)
        error = expiry_error or self._too_large(frame, body) or self._too_many(sequence, len(body))
        error = error or self._too_many_of_subject(frame.subject, fields, sequence, before)
        if error is not None:
            return error
        self._bytes += len(body)
        message_id = fields.get(headers.MSG_ID, b"")
        rollup = fields.get(headers.ROLLUP)
        replaces = self._replaced(frame.subject) if rollup == b"sub" and self.stream.config.rolls_up else ()
        due = self._due(frame.subject, fields)
        self.in_flight.begin(frame.subject, message_id, sequence, due)
        checked = headers.EXPECTED_LAST in fields or headers.EXPECTED_LAST_OF_SUBJECT in fields
        all_before = rollup == b"all" or (rollup == b"sub" and self.stream.config.is_literal)
        return Judgement(body, message_id, checked, all_before, replaces, due=due)

    def lets_through(self, messages: StreamMessages, sequence: int) -> bool:
        """True if nothing stands against a batch, of which the first message gets *sequence*; else some may be refused, or stored
        already."""
        config, name = self.stream.config, self.channel.info.name
        room = self.nats.message_payload_max(name) - MESSAGE_ROOM - len(name)
        return (
            bool(messages.subject) == config.is_literal
            and not config.sealed
            and _FAST_BATCH not in messages.replies
            and not config.discard_new_per_subject
            and not (config.allow_schedules and (self.in_flight.schedules or self._schedules is not None))
            and not 0 <= config.max_msg_size < messages.largest
            and _LENGTH.size + messages.largest_body <= room
            and self._too_many(sequence + messages.count - 1, len(messages.bodies)) is None
            and (not messages.ids or self._are_new(messages.ids))
        )

    def _are_new(self, ids: list[bytes]) -> bool:
        """True if no two of some messages have one id, and nobody else has it within the duplicate window."""
        if self.index is None or len(self.index.ids) + len(self.in_flight.ids) + len(ids) > limits.STREAM_IDS_MAX:
            return False
        known = digests(ids)
        new = set(known)
        return len(new) == len(known) and new.isdisjoint(self.in_flight.ids) and new.isdisjoint(self.index.ids)

    # --- headers --------------------------------------------------------------------------------------------------------

    def _expected_stream(self, _frame: Frame, fields: Mapping[bytes, bytes], *_: int) -> ApiError | None:
        wanted = fields.get(headers.EXPECTED_STREAM, b"")
        built = next((error for name, error in _NOT_BUILT.items() if name in fields), None)
        return NOT_THAT_STREAM if wanted and wanted != self.stream.name.encode() else built

    def _ttl(self, _frame: Frame, fields: Mapping[bytes, bytes], *_: int) -> ApiError | None:
        return NO_TTL if fields.get(headers.TTL) and not self.stream.config.allow_ttl else None

    def _last_of_subject(
        self, frame: Frame, fields: Mapping[bytes, bytes], sequence: int, before: int
    ) -> ApiError | None:
        wanted, other = fields.get(headers.EXPECTED_LAST_OF_SUBJECT), fields.get(headers.EXPECTED_LAST_SUBJECT)
        if wanted is None:
            return EXPECTS_NUMBER if other else None
        if self.index is None or self.index.overfull:
            return NOT_READY
        if self.index.by_key and self._others_come(sequence, before):
            return NOT_READY
        subject = text(other or frame.subject)
        if not self._may_compare(subject):
            return NOT_READY
        last = self._newest(subject, sequence)
        return None if wanted.isdigit() and int(wanted[:20]) == last else wrong_last_sequence(last)

    def _may_compare(self, subject: str) -> bool:
        """True unless messages that came together were compared with as many subjects already as one may."""
        if self.index is None or literal(subject):
            return True
        before, self._compared = self._compared, self._compared + len(self.index.newest)
        return not before or self._compared <= limits.STREAM_COMPARED_MAX

    def _others_come(self, sequence: int, before: int) -> bool:
        """True if messages of others are on their way, of which some may have a subject that is asked about."""
        return sequence - 1 - self._log.last_sequence > self.in_flight.count + before

    def _newest(self, subject: str, sequence: int) -> int:
        """The sequence of the newest message that a subject covers, those on their way included."""
        assert self.index is not None  # noqa: S101 - for mypy
        if not self.index.by_key:
            last = sequence - 1
            if last <= self._log.last_sequence:  # none is on its way
                last = min(last, below_newest(self._deleted, last, 1) + 1)
            return last if self._is_there(last) and self.stream.overlaps(subject) else 0
        on_its_way = self.in_flight.newest(raw(subject))
        return on_its_way or max(self.index.newest_there(subject, self._is_there), default=0)

    def _is_there(self, sequence: int) -> bool:
        return sequence >= self._log.first_sequence and (self._deleted is None or sequence not in self._deleted)

    def _last(self, _frame: Frame, fields: Mapping[bytes, bytes], sequence: int, _before: int) -> ApiError | None:
        wanted = fields.get(headers.EXPECTED_LAST)
        right = wanted is None or (wanted.isdigit() and int(wanted[:20]) == sequence - 1)
        return None if right else wrong_last_sequence(sequence - 1)

    def _duplicate(self, frame: Frame, fields: Mapping[bytes, bytes], *_: int) -> Judgement | ApiError | None:
        message_id = fields.get(headers.MSG_ID)
        if not message_id:
            return None
        known = digest(message_id)
        if known in self.in_flight.ids:
            self.in_flight.ids[known] = [*(self.in_flight.ids[known] or ()), frame.reply]
            return Judgement(waits=True)
        if self.index is None:
            return NOT_READY
        if len(self.index.ids) + len(self.in_flight.ids) >= limits.STREAM_IDS_MAX:
            return not_stored("too many message ids in the duplicate window")
        found = self.index.duplicate(message_id, self._since)
        return Judgement(duplicate_of=found) if found else None

    def _last_id(self, _frame: Frame, fields: Mapping[bytes, bytes], _sequence: int, before: int) -> ApiError | None:
        wanted = fields.get(headers.EXPECTED_LAST_ID)
        if not wanted:
            return None
        on_its_way = self.in_flight.count + before
        last = self.in_flight.last_id if on_its_way else self.index.last_id if self.index is not None else b""
        return None if wanted == last else wrong_last_id(text(last))

    @property
    def _schedules(self) -> ChannelSchedules | None:
        """The schedules of the stream; None: it has none."""
        return self.node.group_of(self.channel.info).machine.schedules.by_channel.get(self.channel.info.uid)

    def _schedule(self, frame: Frame, fields: Mapping[bytes, bytes], *_: int) -> ApiError | None:
        error = schedules.refusal(fields, frame.subject, self.stream.config, self.now)
        if error is not None or not fields.get(headers.SCHEDULE):
            return error
        known = self._schedules
        count = len(self.in_flight.schedules) + (0 if known is None else len(known.by_sequence))
        gaps = 0 if self._deleted is None else self._deleted.pieces
        return TOO_MANY_SCHEDULES if count + gaps >= limits.DELETED_RUNS_MAX else None

    def _due(self, subject: bytes, fields: Mapping[bytes, bytes]) -> int:
        """The time of a message that is to be stored, as of a Judgement."""
        if not self.stream.config.allow_schedules:
            return NOT_SCHEDULED
        wanted = schedules.of_fields(fields, self.now) if fields.get(headers.SCHEDULE) else None
        if wanted is not None:
            return wanted.due
        known = self._schedules
        ends = subject in self.in_flight.schedules or (known is not None and subject in known.by_subject)
        return 0 if ends else NOT_SCHEDULED

    def _rollup(self, frame: Frame, fields: Mapping[bytes, bytes], *_: int) -> ApiError | None:
        wanted, config = fields.get(headers.ROLLUP), self.stream.config
        if not wanted:
            return None
        if not config.allow_rollup or config.deny_purge:
            return no_rollup("rollup not permitted")
        if wanted not in (b"sub", b"all"):
            return no_rollup(f"rollup value invalid: {go_quote(text(wanted))}")
        return self._rollup_of_subject(frame.subject) if wanted == b"sub" and config.rolls_up else None

    def _rollup_of_subject(self, subject: bytes) -> ApiError | None:
        known = self.index.sequences(subject) if self.index is not None else None
        if known is None or self.in_flight.newest(subject):
            return NOT_READY
        if len(known) > limits.STREAM_REPLACED_MAX:
            return no_rollup(f"more than {limits.STREAM_REPLACED_MAX} messages have the subject")
        gaps = 0 if self._deleted is None else self._deleted.pieces
        return no_rollup(TOO_MANY_DELETED) if gaps + len(known) > limits.DELETED_RUNS_MAX else None

    def _replaced(self, subject: bytes) -> list[int]:
        """The messages of a subject that are there, for one that takes their place."""
        assert self.index is not None  # noqa: S101 - for mypy
        there = [*filter(self._is_there, self.index.sequences(subject) or ())]
        self.index.forget_gone(subject, there)
        return there

    _CHECKS: Final[tuple[Callable[..., Judgement | ApiError | None], ...]] = (
        _expected_stream,
        _ttl,
        _last_of_subject,
        _last,
        _duplicate,
        _last_id,
        _schedule,
        _rollup,
    )

    # --- the message ----------------------------------------------------------------------------------------------------

    def _body(
        self, frame: Frame, listed: list[tuple[bytes, bytes]], fields: Mapping[bytes, bytes]
    ) -> tuple[bytes, ApiError | None]:
        """The message as a row of `RowBatch.bodies`; or why it cannot be one."""
        message = wire.MsgProto(data=frame.payload)
        message.headers.extend(headers.stored(listed))
        if not self.stream.config.is_literal:
            message.key = frame.subject
        if fields.get(headers.TTL):
            length = headers.time_to_live(fields[headers.TTL])
            if length is None:
                return b"", INVALID_TTL
            length = self._at_least_of_marker(message, length)
            message.expires_at = self.now + length if length else 0
        body = message.SerializeToString()
        return _LENGTH.pack(len(body)) + body, None

    def _at_least_of_marker(self, message: wire.MsgProto, length: int) -> int:
        """The time to live of a message: as long as that of markers at least, as one of its subject may be there. A subject
        that has one message alone has no marker then."""
        config = self.stream.config
        if not 0 < length < config.marker_ttl or config.max_msgs_per_subject == 1:
            return length
        for header in message.headers:
            if header.key == headers.TTL:
                header.value = b"%d" % (config.marker_ttl // SECOND)
        return config.marker_ttl

    def _too_large(self, frame: Frame, body: bytes) -> ApiError | None:
        most, name = self.stream.config.max_msg_size, self.channel.info.name
        if 0 <= most < len(frame.payload) + len(frame.header):
            return MESSAGE_TOO_LARGE
        if len(frame.subject) > limits.KEY_BYTES_MAX:
            return not_stored("the subject is too long")
        room = self.nats.message_payload_max(name) - MESSAGE_ROOM - len(name)
        room -= _SCHEDULE_ROOM if headers.SCHEDULE in frame.header else 0
        return MESSAGE_TOO_LARGE if len(body) > room else None

    def _too_many(self, sequence: int, size: int) -> ApiError | None:
        """Why a stream that keeps what it has takes no more; None if it does."""
        why = self._policies.stream_full(self.channel, sequence, self._bytes + size)
        return not_stored(why) if why else None

    def _too_many_of_subject(
        self, subject: bytes, fields: Mapping[bytes, bytes], sequence: int, before: int
    ) -> ApiError | None:
        """Why a subject takes no more messages; None if it does, or if the message takes the place of the others."""
        config = self.stream.config
        if not config.discard_new_per_subject or headers.ROLLUP in fields:
            return None
        if config.is_literal:
            count = self._policies.count_below(self.channel.info, sequence)
        else:
            if self.index is None or self._others_come(sequence, before):
                return NOT_READY
            known = self.index.sequences(subject)
            if known is None:
                return not_stored("too many messages to be counted by subject")
            there = [*filter(self._is_there, known)]
            self.index.forget_gone(subject, there)
            count = len(there) + self.in_flight.counts[subject]
        return not_stored("maximum messages per subject exceeded") if count >= config.max_msgs_per_subject else None
