"""Many messages for one direct request: those from a sequence on, or the newest ones of several subjects.

    the messages, each with the number of those that follow ─► status 204, with the numbers that a next request begins with

What is found is in memory until it leaves, DIRECT_BATCH_BYTES_MAX at most; a client that wants more asks again.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from stan_protocol.patterns import matches
from stan_protocol.scalars import WallNanos

from stan import limits
from stan.core.base.names import text
from stan.core.features.jetstream.requests import ApiRequest
from stan.core.features.jetstream.streams.choices import Wish
from stan.core.features.jetstream.streams.reading import Found, StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream
from stan.core.publishing.relocating import StepError, Steps
from stan.core.services.services import Services
from stan.core.state.tombstones import deleted_from
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.moments import shown_moment

NOT_FOUND, NO_RESULTS, TOO_MANY = b"404 Message Not Found", b"404 No Results", b"413 Too Many Results"
BUSY: Final = b"500 insufficient resources"
_END: Final = b"204 EOB"


def described(stream: Stream, message: Found, *, bare: bool) -> list[tuple[bytes, bytes]]:
    """The headers with which a message answers a direct request."""
    own = [] if bare else headers.of_message(message.stored)
    return [
        *own,
        (b"Nats-Stream", stream.name.encode()),
        (b"Nats-Subject", message.subject),
        (b"Nats-Sequence", b"%d" % message.sequence),
        (b"Nats-Time-Stamp", shown_moment(message.stored.timestamp).encode()),
    ]


def _size(message: Found) -> int:
    fields = headers.of_message(message.stored)
    block = sum(len(name) + len(value) + 4 for name, value in fields)
    return len(message.subject) + block + 12 * bool(block) + len(message.stored.data)


class _Taken:
    """The messages that one request gets."""

    def __init__(self, wish: Wish) -> None:
        self.most = min(wish.batch or limits.DIRECT_BATCH_MAX, limits.DIRECT_BATCH_MAX)
        self.room = min(wish.size or limits.DIRECT_BATCH_BYTES_MAX, limits.DIRECT_BATCH_BYTES_MAX)
        self.messages: list[Found] = []

    @property
    def full(self) -> bool:
        """True if no further message is wanted."""
        return self.room <= 0 or len(self.messages) >= self.most

    def add(self, message: Found) -> None:
        """Add a message."""
        self.messages.append(message)
        self.room -= _size(message)


class BatchReads:
    """Answers direct requests for many messages."""

    def __init__(self, services: Services) -> None:
        self.outgoing, self.stored = services.outgoing, services.stored

    def begin(self, request: ApiRequest, wish: Wish) -> None:
        """Answer a request."""
        reading, stream = request.part(StreamReading), request.known
        of_each = bool(wish.each) and not (wish.until or wish.until_time) and not stream.config.is_literal
        if stream.config.history or of_each:
            reading.with_index(stream, partial(self._begin, request, wish), request.user)
        else:
            self._begin(request, wish, None)

    def _begin(self, request: ApiRequest, wish: Wish, index: SubjectIndex | None) -> None:
        reading, stream = request.part(StreamReading), request.known
        missing = stream.config.history and (index is None or index.overfull)
        if missing or reading.is_busy(request.user):
            self._say(request, BUSY)
            return
        usable = None if index is None or index.overfull else index
        read = self._read_each if wish.each else self._read_on
        reading.run(read(request, reading, wish, usable), request.user)

    # --- from a sequence on -----------------------------------------------------------------------------------------------

    def _read_on(
        self, request: ApiRequest, reading: StreamReading, wish: Wish, index: SubjectIndex | None
    ) -> Steps[None]:
        """Read the messages that follow each other. *index*: of a stream of which only the newest messages of each subject are
        shown."""
        stream, last, taken = request.known, reading.last(request.known), _Taken(wish)
        at = max(1, self._since(request, wish.since) if wish.since else wish.sequence)
        filtered = bool(wish.after) or index is not None
        behind, counted_to = 0, 0
        try:
            while at <= last and not (taken.full and (not filtered or at > counted_to)):
                some, end = yield from reading.some(stream, at, last)
                for one in some if not filtered else filter(partial(_is_wanted, wish, index), some):
                    if taken.full:
                        behind += 1
                    else:
                        taken.add(one)
                        counted_to = one.sequence + limits.STREAM_PENDING_COUNTED_MAX
                at = end + 1
        except StepError:
            self._say(request, BUSY)
            return
        if filtered:
            behind = max(behind, int(taken.full and at <= last))
        elif taken.messages:
            behind = self._behind(request, taken.messages[-1].sequence, last)
        self._answer(request, wish, taken.messages, behind, ())

    def _since(self, request: ApiRequest, moment: int) -> int:
        """The first message that was stored at a moment or later; one that is not there yet, if there is none."""
        info = request.channel
        return self.stored.indexes(info.group, info.uid).sequence_at(WallNanos(moment))

    def _behind(self, request: ApiRequest, sequence: int, last: int) -> int:
        """The number of messages behind a sequence."""
        deleted = self.stored.deleted(request.channel.group, request.channel.uid)
        return last - sequence - deleted_from(deleted, sequence + 1, last)

    # --- the newest of each subject ---------------------------------------------------------------------------------------

    def _read_each(
        self, request: ApiRequest, reading: StreamReading, wish: Wish, index: SubjectIndex | None
    ) -> Steps[None]:
        """Read the newest messages of subjects."""
        stream, until = request.known, reading.last(request.known)
        if wish.until or wish.until_time:
            told = wish.until or self._since(request, wish.until_time) - 1
            until, index = min(until, max(0, told)), None
        taken = _Taken(wish)
        try:
            newest = yield from self._newest(reading, stream, wish, until, index)
            if len(newest) > limits.DIRECT_SUBJECTS_MAX:
                self._say(request, TOO_MANY)
                return
            while newest and not taken.full:
                found = yield from reading.message_at(stream, newest.pop(0))
                if found is not None:
                    taken.add(found)
        except StepError:
            self._say(request, BUSY)
            return
        self._answer(request, wish, taken.messages, len(newest), ((b"Nats-UpTo-Sequence", b"%d" % until),))

    @staticmethod
    def _newest(
        reading: StreamReading, stream: Stream, wish: Wish, until: int, index: SubjectIndex | None
    ) -> Steps[list[int]]:
        """The sequences of the newest messages up to *until* of the subjects, in their order. Cost: without the *index* all
        messages up to there are read."""
        if index is not None:
            is_there = reading.is_there(stream)
            known: set[int] = set()
            for one in wish.each:
                yield from reading.look_at_subjects(
                    index, one, lambda subject: known.add(index.newest_of(subject, is_there))
                )
            return sorted(at for at in known - {0} if wish.sequence <= at)
        newest: dict[bytes, int] = {}
        at = 1
        while at <= until:
            some, end = yield from reading.some(stream, at, until)
            newest.update((one.subject, one.sequence) for one in some if _covered(wish.each, one.subject))
            at = end + 1
            if len(newest) > limits.DIRECT_SUBJECTS_MAX:
                break
        return sorted(one for one in newest.values() if wish.sequence <= one)

    # --- answers ----------------------------------------------------------------------------------------------------------

    def _answer(
        self,
        request: ApiRequest,
        wish: Wish,
        messages: list[Found],
        behind: int,
        more: Iterable[tuple[bytes, bytes]],
    ) -> None:
        """Send messages, and that these were all; *behind*: so many follow, *more*: further numbers for the client."""
        if not messages:
            self._say(request, NO_RESULTS if wish.each else NOT_FOUND)
            return
        frames, before = [], 0
        for place, one in enumerate(messages, 1):
            fields = described(request.known, one, bare=wish.bare)
            fields += _numbers(behind + len(messages) - place, before)
            frames.append(headers.publication(request.frame.reply, one.stored.data, headers.render(fields)))
            before = one.sequence
        end = headers.render([*_numbers(behind, before), *more], _END)
        frames.append(headers.publication(request.frame.reply, b"", end))
        self.outgoing.answer_as_leader(request.groups[0], b"".join(frames))

    def _say(self, request: ApiRequest, status: bytes) -> None:
        told = headers.publication(request.frame.reply, b"", headers.render((), status))
        self.outgoing.answer_as_leader(request.groups[0], told)


def _numbers(behind: int, last: int) -> list[tuple[bytes, bytes]]:
    return [(b"Nats-Num-Pending", b"%d" % behind), (b"Nats-Last-Sequence", b"%d" % last)]


def _is_wanted(wish: Wish, index: SubjectIndex | None, message: Found) -> bool:
    """True if a message has the subject that is asked for, and is one of those that are shown."""
    if wish.after and not matches(wish.after, text(message.subject)):
        return False
    return index is None or index.oldest(message.subject) <= message.sequence


def _covered(patterns: Iterable[str], subject: bytes) -> bool:
    name = text(subject)
    return any(matches(one, name) for one in patterns)
