"""Requests about messages of streams: one is got, as JSON or as it is, one is deleted, many are purged.

Promises: the messages in answers were committed, and an answer leaves only while no other node can lead the channel; a removal is
answered once it is applied.
"""

from base64 import b64encode
from collections.abc import Callable
from functools import partial
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from stan_protocol.patterns import literal, matches
from stan_protocol.scalars import WallNanos

from stan import limits
from stan.core.base.names import raw, text
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.streams.batch_reads import NOT_FOUND, BatchReads, described
from stan.core.features.jetstream.streams.choices import MessageChoice, Wish, read_wish
from stan.core.features.jetstream.streams.reading import Found, StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex, runs_of
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.relocating import StepError, Steps
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.tombstones import behind, below_newest, deleted_from
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import CHANGES, READS, ApiRow
from stan.protocol.jetstream.errors import (
    BAD_REQUEST,
    INSUFFICIENT,
    NO_MESSAGE,
    SEALED,
    UNAVAILABLE,
    ApiError,
    RequestError,
    no_such_sequence,
    not_deleted,
    not_purged,
)
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.jetstream.moments import shown_moment
from stan.protocol.jetstream.streams import is_subject
from stan.protocol.proto import entries_pb2 as pb

GET, DELETE = (
    ApiRow("STREAM.MSG.GET.*", "stream_msg_get", READS),
    ApiRow("STREAM.MSG.DELETE.*", "stream_msg_delete", CHANGES),
)
PURGE: Final = ApiRow("STREAM.PURGE.*", "stream_purge", CHANGES, refused=(("purged", 0),), rated=True)
DIRECT, DIRECT_LAST = ApiRow("DIRECT.GET.*", "", READS), ApiRow("DIRECT.GET.*.>", "", READS)
EMPTY, BAD = b"408 Empty Request", b"408 Bad Request"
"""Answers to direct requests, as NATS's own server gives them."""

Done = Callable[[Found | None, ApiError | None], None]


class _Purge(NamedTuple):
    """The messages that a purge is to remove."""

    filter: str  # of subjects; "": all
    below: int  # this sequence; 0: any
    keep: int  # so many of the newest stay

    @property
    def valid(self) -> bool:
        """True if it can be done."""
        numbers = self.below >= 0 and self.keep >= 0 and not (self.below and self.keep)
        return numbers and (not self.filter or is_subject(self.filter))

    def of(self, sequences: list[int]) -> list[int]:
        """The messages that are to go, of all *sequences* in their order."""
        if self.below:
            return [one for one in sequences if one < self.below]
        return sequences[: -self.keep or None]


class MessageRequests:
    """Handles requests about single messages of streams."""

    def __init__(self, services: Services, channels: LiveChannels) -> None:
        self._services = services
        self.outgoing, self.proposals, self.stored = services.outgoing, services.proposals, services.stored
        self.channels = channels
        self.batches = BatchReads(services)

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of each kind of request."""
        return {
            GET: self._get,
            DELETE: self._delete,
            PURGE: self._purge,
            DIRECT: self._direct,
            DIRECT_LAST: self._direct_last,
        }

    # --- getting --------------------------------------------------------------------------------------------------------

    def _get(self, request: ApiRequest) -> None:
        wish = read_wish(Fields(request.document()))
        if wish.empty or wish.many or not wish.valid:
            raise RequestError(BAD_REQUEST)
        if wish.matches_none:
            raise RequestError(NO_MESSAGE)
        choice = self._choice(request, wish)

        def done(message: Found | None, error: ApiError | None) -> None:
            if message is None:
                request.refuse(error or NO_MESSAGE)
                return
            document: dict[str, object] = {"subject": text(message.subject), "seq": message.sequence}
            fields = headers.of_message(message.stored)
            if fields and not choice.bare:
                document["hdrs"] = b64encode(headers.render(fields)).decode()
            if message.stored.data:
                document["data"] = b64encode(message.stored.data).decode()
            request.answer(message=document | {"time": shown_moment(message.stored.timestamp)})

        self._find(request, choice, done)

    def _direct(self, request: ApiRequest) -> None:
        try:
            wish = read_wish(Fields(request.document()))
        except RequestError:
            self._answer_status(request, BAD)
            return
        if wish.empty or not wish.valid:
            self._answer_status(request, EMPTY if wish.empty else BAD)
        elif wish.matches_none:
            self._answer_status(request, NOT_FOUND)
        elif wish.many and request.known.config.allow_direct:
            self.batches.begin(request, wish)
        else:
            self._answer_directly(request, self._choice(request, wish))

    def _direct_last(self, request: ApiRequest) -> None:
        self._answer_directly(request, MessageChoice(subject=request.named[1]))

    def _answer_directly(self, request: ApiRequest, choice: MessageChoice) -> None:
        stream = request.known
        if not stream.config.allow_direct:
            self._answer_status(request, headers.NO_RESPONDERS)
            return

        def done(message: Found | None, error: ApiError | None) -> None:
            if message is None:
                self._answer_status(request, NOT_FOUND if error in (None, NO_MESSAGE) else BAD)
                return
            block = headers.render(described(stream, message, bare=choice.bare))
            self._send(request, headers.publication(request.frame.reply, message.stored.data, block))

        self._find(request, choice, done)

    def _answer_status(self, request: ApiRequest, status: bytes) -> None:
        self._send(request, headers.publication(request.frame.reply, b"", headers.render((), status)))

    def _send(self, request: ApiRequest, answer: bytes) -> None:
        self.outgoing.answer_as_leader(request.groups[0], answer)

    def _choice(self, request: ApiRequest, wish: Wish) -> MessageChoice:
        """The one message that a request asks for."""
        if wish.last:
            return MessageChoice(0, wish.last, wish.bare)
        if wish.since:
            index = self.stored.indexes(request.channel.group, request.channel.uid)
            sequence = max(1, index.sequence_at(WallNanos(wish.since)))
            return MessageChoice(sequence, wish.after or ">", wish.bare)
        return MessageChoice(max(wish.sequence, 1), wish.after, wish.bare)

    # --- finding --------------------------------------------------------------------------------------------------------

    def _find(self, request: ApiRequest, choice: MessageChoice, done: Done) -> None:
        """Look for a message; *done* is called once."""
        reading, stream = request.part(StreamReading), request.known
        if stream.config.is_literal:
            if not choice.sequence:
                last = self._last(request) if matches(choice.subject, text(stream.channel)) else 0
                choice = MessageChoice(last)
            self._begin(reading, request, choice, self._read(reading, stream, choice, done, None), done)
        elif choice.sequence and not stream.config.history:
            self._begin(reading, request, choice, self._read(reading, stream, choice, done, None), done)
        else:
            reading.with_index(stream, partial(self._look_up, reading, request, choice, done), request.user)

    def _look_up(
        self, reading: StreamReading, request: ApiRequest, choice: MessageChoice, done: Done, index: SubjectIndex | None
    ) -> None:
        """Look for a message of a stream whose index is needed for that."""
        stream = request.known
        if index is None or index.overfull:
            done(None, UNAVAILABLE if index is None else INSUFFICIENT)
        elif choice.sequence:
            self._begin(reading, request, choice, self._read(reading, stream, choice, done, index), done)
        else:
            self._begin(reading, request, choice, self._read_newest(reading, stream, index, choice.subject, done), done)

    @staticmethod
    def _begin(
        reading: StreamReading, request: ApiRequest, choice: MessageChoice, steps: Steps[None], done: Done
    ) -> None:
        if reading.is_busy(request.user, of_one=choice.is_one):
            done(None, INSUFFICIENT)
        else:
            reading.run(steps, request.user, of_one=choice.is_one)

    def _last(self, request: ApiRequest) -> int:
        """The newest message that is there; 0: there is none."""
        info = request.channel
        index, deleted = self.stored.indexes(info.group, info.uid), self.stored.deleted(info.group, info.uid)
        last = below_newest(deleted, index.last_sequence, 1) + 1
        return last if index.first_sequence <= last <= index.last_sequence else 0

    @staticmethod
    def _read(
        reading: StreamReading, stream: Stream, choice: MessageChoice, done: Done, index: SubjectIndex | None
    ) -> Steps[None]:
        """Read the message with a sequence, or the first one from there on with a subject. *index*: of a stream of which only
        the newest messages of each subject are shown."""

        def stays(message: Found) -> bool:
            return index is None or index.oldest(message.subject) <= message.sequence

        try:
            if not choice.subject:
                found = yield from reading.message_at(stream, choice.sequence)
                done(found if found is not None and stays(found) else None, None)
                return
            at = choice.sequence
            while at <= reading.last(stream):
                some, end = yield from reading.some(stream, at, reading.last(stream))
                right = next((one for one in some if matches(choice.subject, text(one.subject)) and stays(one)), None)
                if right is not None:
                    done(right, None)
                    return
                at = end + 1
        except StepError:
            done(None, UNAVAILABLE)
            return
        done(None, NO_MESSAGE)

    @staticmethod
    def _read_newest(
        reading: StreamReading, stream: Stream, index: SubjectIndex, subject: str, done: Done
    ) -> Steps[None]:
        """Read the newest message of the subjects that a pattern covers. If the newest one of the only subject was deleted, the
        one before it is looked for."""
        found: list[int] = []
        is_there = reading.is_there(stream)

        def look(covered: bytes) -> None:
            newest = index.newest_of(covered, is_there)
            if newest:
                (heappush if len(found) < limits.STREAM_TRIED_MAX else heappushpop)(found, newest)

        try:
            yield from reading.look_at_subjects(index, subject, look)
            for sequence in sorted(found, reverse=True):
                message = yield from reading.message_at(stream, sequence)
                if message is None and literal(subject) and not stream.config.history:
                    message = yield from reading.before(stream, sequence, subject)
                if message is not None:
                    done(message, None)
                    return
        except StepError:
            done(None, UNAVAILABLE)
            return
        done(None, NO_MESSAGE)

    # --- removing -------------------------------------------------------------------------------------------------------

    def _delete(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        sequence = fields.number("seq")
        fields.switch("no_erase")
        fields.end()
        info, config = request.channel, request.known.config
        index, deleted = self.stored.indexes(info.group, info.uid), self.stored.deleted(info.group, info.uid)
        if sequence <= 0:
            raise RequestError(BAD_REQUEST)
        if config.sealed:
            raise RequestError(SEALED)
        if config.deny_delete:
            raise RequestError(not_deleted("message delete not permitted"))
        gone = deleted is not None and sequence in deleted
        if not max(1, index.first_sequence) <= sequence <= index.last_sequence or gone:
            raise RequestError(no_such_sequence(sequence))
        if config.history:
            reading = request.part(StreamReading)
            reading.with_index(request.known, partial(self._delete_shown, reading, request, sequence), request.user)
        else:
            self._delete_one(request, sequence)

    def _delete_shown(
        self, reading: StreamReading, request: ApiRequest, sequence: int, index: SubjectIndex | None
    ) -> None:
        """Remove a message of a stream of which the newest messages of each subject are shown, if it is one of these."""
        if index is None or reading.is_busy(request.user, of_one=True):
            request.refuse(UNAVAILABLE if index is None else INSUFFICIENT)
            return

        def done(message: Found | None, error: ApiError | None) -> None:
            if message is None:
                request.refuse(error or no_such_sequence(sequence))
            else:
                self._delete_one(request, sequence)

        reading.run(self._read(reading, request.known, MessageChoice(sequence), done, index), request.user, of_one=True)

    def _delete_one(self, request: ApiRequest, sequence: int) -> None:
        removal = pb.Removal(uid=request.known.uid, deleted=(sequence, sequence))
        self._remove(request, removal, not_deleted, lambda: request.answer(success=True))

    def _purge(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        purge = _Purge(fields.text("filter"), fields.number("seq"), fields.number("keep"))
        fields.end()
        if not purge.valid:
            raise RequestError(BAD_REQUEST)
        stream, reading = request.known, request.part(StreamReading)
        if stream.config.sealed:
            raise RequestError(SEALED)
        if stream.config.deny_purge:
            raise RequestError(not_purged("stream purge not permitted"))
        if stream.config.history:
            reading.with_index(stream, partial(self._purge_shown, reading, request, purge), request.user)
            return
        if purge.filter and not _covers_all(stream, purge.filter):
            if reading.is_busy(request.user):
                raise RequestError(INSUFFICIENT)
            if stream.config.rolls_up and literal(purge.filter):
                reading.with_index(stream, partial(self._purge_subject, reading, request, purge), request.user)
            else:
                reading.run(self._collect(reading, request, purge), request.user)
            return
        info = request.channel
        index, deleted = self.stored.indexes(info.group, info.uid), self.stored.deleted(info.group, info.uid)
        last: int = index.last_sequence
        to = last
        if purge.below or purge.keep:
            to = min(purge.below - 1, last) if purge.below else below_newest(deleted, last, purge.keep)
        oldest = behind(deleted, max(index.first_sequence, 1))
        if to < oldest:
            request.answer(success=True, purged=0)
            return
        count = to - oldest + 1 - deleted_from(deleted, oldest, to)
        removal = self.channels.policies.tiers.purge(info.uid, oldest, to)
        self._remove(request, removal, not_purged, lambda: request.answer(success=True, purged=count))

    def _purge_shown(
        self, reading: StreamReading, request: ApiRequest, purge: _Purge, index: SubjectIndex | None
    ) -> None:
        """Remove messages of a stream of which the newest messages of each subject are shown; only these count."""
        if index is None or index.overfull:
            request.refuse(UNAVAILABLE if index is None else INSUFFICIENT)
            return
        found = index.there(purge.filter or ">", reading.is_there(request.known))
        shown = sorted(sequence for _, there in found for sequence in there)
        gone = purge.of(shown)
        if not gone or (purge.filter and not _covers_all(request.known, purge.filter)):
            self._remove_each(request, gone, len(gone))
            return
        to = gone[-1] if len(gone) < len(shown) else reading.last(request.known)
        removal = self.channels.policies.tiers.purge(request.known.uid, gone[0], to)
        self._remove(request, removal, not_purged, lambda: request.answer(success=True, purged=len(gone)))

    def _purge_subject(
        self, reading: StreamReading, request: ApiRequest, purge: _Purge, index: SubjectIndex | None
    ) -> None:
        """Remove messages of one subject, which the index of the stream knows; or else look for them."""
        known = index.sequences(raw(purge.filter)) if index is not None else None
        if known is None and reading.is_busy(request.user):
            request.refuse(INSUFFICIENT)
            return
        if known is None:
            reading.run(self._collect(reading, request, purge), request.user)
            return
        gone = purge.of([*filter(reading.is_there(request.known), known)])
        self._remove_each(request, gone, len(gone))

    def _collect(self, reading: StreamReading, request: ApiRequest, purge: _Purge) -> Steps[None]:
        """Find the messages that are to go, and remove them."""
        stream, at = request.known, 1
        found: list[int] = []
        try:
            while at <= reading.last(stream):
                messages, end = yield from reading.some(stream, at, reading.last(stream))
                found += [one.sequence for one in messages if matches(purge.filter or ">", text(one.subject))]
                at = end + 1
        except StepError:
            request.refuse(UNAVAILABLE)
            return
        gone = purge.of(found)
        self._remove_each(request, gone, len(gone))

    def _remove_each(self, request: ApiRequest, sequences: list[int], count: int) -> None:
        """Remove single messages, and answer with *count*."""
        if not sequences:
            request.answer(success=True, purged=0)
            return
        removal = pb.Removal(uid=request.known.uid, deleted=[end for run in runs_of(sequences) for end in run])
        self._remove(request, removal, not_purged, lambda: request.answer(success=True, purged=count))

    def _remove(
        self,
        request: ApiRequest,
        removal: pb.Removal,
        refusal: Callable[[str], ApiError],
        answer: Callable[[], None],
    ) -> None:
        def done(result: object, _error: str) -> None:
            if not isinstance(result, GroupResult):
                request.refuse(UNAVAILABLE)
            elif result.error:
                request.refuse(refusal(result.error))
            else:
                answer()

        told = self.channels.policies.tiers.tell(removal)
        self.proposals.change_group(request.groups[0], done, removal=told)


def _covers_all(stream: Stream, filtered: str) -> bool:
    """True if all messages of a stream have a subject that a filter covers."""
    return filtered == ">" or (stream.config.is_literal and matches(filtered, text(stream.channel)))
