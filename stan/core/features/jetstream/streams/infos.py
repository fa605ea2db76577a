"""Requests for what a stream holds: its state, the numbers of messages of its subjects, its deleted messages."""

from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple, cast

from stan_protocol.patterns import matches
from stan_protocol.scalars import KiB

from stan import limits
from stan.core.base.names import text
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.descriptions import StreamDescriptions
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.publishing.relocating import Steps
from stan.core.services.services import Services
from stan.protocol.jetstream.api import PAGED, SEES, ApiRow
from stan.protocol.jetstream.errors import INSUFFICIENT, UNAVAILABLE, RequestError
from stan.protocol.jetstream.json_data import Fields

INFO: Final = ApiRow("STREAM.INFO.*", "stream_info", SEES, refused=PAGED)
_DOCUMENT_ROOM: Final = 128 * KiB
"""Bytes of an answer about a stream beside lists of subjects or messages."""
_COUNT_ROOM: Final = 24
"""Bytes of a count, with what is around it."""


class _Details(NamedTuple):
    """The details that a request asks for."""

    deleted: bool  # the sequences of deleted messages
    pattern: str  # the numbers of messages of these subjects; "": of none
    offset: int
    every: int = 0  # subjects that there are in all


class StreamInfos:
    """Answers requests for what a stream holds."""

    def __init__(self, services: Services, rights: JetStreamRights, descriptions: StreamDescriptions) -> None:
        self.nats, self.node = services.nats, services.node
        self.rights, self.descriptions = rights, descriptions

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of the request."""
        return {INFO: self._info}

    def _info(self, request: ApiRequest) -> None:
        fields = Fields(request.document())
        deleted, filtered = fields.switch("deleted_details"), fields.text("subjects_filter")
        offset = max(0, fields.number("offset"))
        fields.end()
        reading, config = request.part(StreamReading), request.known.config
        if filtered or deleted:
            self.rights.check_details(request.user, request.known)
        if filtered and not config.history and reading.is_busy(request.user):
            raise RequestError(INSUFFICIENT)
        details = _Details(deleted, filtered, offset)
        if config.history:  # how many there are its index tells
            reading.with_index(request.known, partial(self._describe_history, reading, request, details), request.user)
        elif filtered:
            counted = partial(self._describe_counted, request, details)
            reading.run(reading.count(request.known, ">", counted), request.user)
        else:
            self._describe(request, details, {})

    def _describe_counted(self, request: ApiRequest, details: _Details, subjects: Mapping[bytes, int] | None) -> None:
        """Answer a request for what a stream holds, of which all *subjects* are counted."""
        named = {one: count for one, count in (subjects or {}).items() if matches(details.pattern, text(one))}
        self._describe(request, details._replace(every=len(subjects or ())), None if subjects is None else named)

    def _describe_history(
        self, reading: StreamReading, request: ApiRequest, details: _Details, index: SubjectIndex | None
    ) -> None:
        """Answer a request for what a stream holds of which the newest messages of each subject stay."""
        unknown = index is None or index.overfull
        if details.pattern and unknown:
            request.refuse(UNAVAILABLE if index is None else INSUFFICIENT)
            return
        if index is None or not details.pattern:
            self._describe(request, details, {})
        elif reading.is_busy(request.user):
            request.refuse(INSUFFICIENT)
        else:
            reading.run(self._count_shown(reading, request, details, index), request.user)

    def _count_shown(
        self, reading: StreamReading, request: ApiRequest, details: _Details, index: SubjectIndex
    ) -> Steps[None]:
        """Answer with the numbers of messages that are shown of each subject."""
        counts: dict[bytes, int] = {}
        is_there = reading.is_there(request.known)

        def look(subject: bytes) -> None:
            count = len(index.shown(subject, is_there))
            if count:
                counts[subject] = count

        yield from reading.look_at_subjects(index, details.pattern, look)
        self._describe(request, details, counts)

    def _describe(self, request: ApiRequest, details: _Details, subjects: Mapping[bytes, int] | None) -> None:
        """Answer a request for what a stream holds; *subjects*: None: they cannot be read now."""
        if subjects is None or request.known.name not in self.node.meta.streams.by_name:
            request.refuse(UNAVAILABLE)
            return
        told = self.descriptions.document(request.known)
        state = cast("dict[str, object]", told["state"])
        if details.deleted and (deleted := self.descriptions.deleted(request.known)):
            state["deleted"] = deleted
        if not details.pattern:
            request.answer(total=0, offset=0, limit=0, **told)
            return
        most = limits.STREAM_DETAILS_MAX
        shown = self._fitting(list(subjects)[details.offset : details.offset + most])
        state.setdefault("num_subjects", details.every)
        if shown:
            state["subjects"] = {text(subject): subjects[subject] for subject in shown}
        request.answer(total=len(subjects), offset=details.offset, limit=most, **told)

    def _fitting(self, subjects: list[bytes]) -> list[bytes]:
        """The first ones of *subjects* that, with their counts, fit into one answer."""
        room = self.nats.payload_bytes_max - _DOCUMENT_ROOM
        sizes = accumulate(6 * len(subject) + _COUNT_ROOM for subject in subjects)  # as \u0000, at worst
        return [subject for subject, size in zip(subjects, sizes, strict=True) if size <= room]
