"""Requests about schemas, answered by the leader of the metadata: add a version, check one before, remove, list.

Whether a text is a schema and keeps its promise is found out here, against the state that this leader has applied; the entry
names that state, so it is not taken if another change was faster. Texts may be long and versions many: each turn does a part of
the work, and requests wait for each other.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

from stan_protocol import refusals
from stan_protocol.patterns import valid_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import (
    SCHEMA_INCOMPATIBLE,
    UNKNOWN_SCHEMA,
    UNKNOWN_SCHEMA_KIND,
    UNKNOWN_SCHEMA_VERSION,
    go_quote,
)
from stan_protocol.scalars import Nanos
from stan_protocol.schemas import json_data
from stan_protocol.schemas.checks import checker
from stan_protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind, word
from stan_protocol.schemas.rules import NumberedText, SchemaText, fault, incompatible

from stan import errors, limits
from stan.core.base.names import raw, text
from stan.core.metadata.meta import MetaResult
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as entries

Then = Callable[[entries.SchemaChange, int], None]


class SchemaRequests:
    """Handles requests about schemas."""

    def __init__(self, services: Services) -> None:
        self.nats, self.node = services.nats, services.node
        self.reports, self.timers = services.reports, services.timers
        self._waiting: deque[Iterator[int]] = deque()

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "schemas": self.listed,
            "admin.add_schema": self._add,
            "admin.check_schema": self._check,
            "admin.remove_schema": self._remove,
        }

    # --- a new version --------------------------------------------------------------------------------------------------

    def _add(self, accepted: AcceptedRequest) -> None:
        self._queue(accepted, partial(self._propose, accepted))

    def _check(self, accepted: AcceptedRequest) -> None:
        def answer(change: entries.SchemaChange, known: int) -> None:
            accepted.answer(schema_version=known, changed=int(change.HasField("add")))

        self._queue(accepted, answer)

    def _queue(self, accepted: AcceptedRequest, then: Then) -> None:
        """Look at a schema, a part of the work in each turn, after the requests that came before it."""
        if len(self._waiting) == limits.SCHEMA_REQUESTS_WAITING_MAX:
            accepted.busy()
            return
        self._waiting.append(self._look(accepted, then))
        if len(self._waiting) == 1:
            self._go_on(self.node.clock.now)

    def _go_on(self, now: Nanos) -> None:
        room = limits.SCHEMA_BYTES_MAX
        while self._waiting:
            try:
                room -= next(self._waiting[0])
            except StopIteration:
                self._waiting.popleft()
            except Exception as error:  # noqa: BLE001 - of this request alone
                self._waiting.popleft()
                self.reports.complain("ERR", f"a request about a schema failed: {errors.fault(error)}")
            if room < 0:
                self.timers.at(now + 1, self._go_on, META_GROUP)
                return

    def _look(self, accepted: AcceptedRequest, then: Then) -> Iterator[int]:
        """Answer a request that is refused; else call *then* with the change that it asks for, and the number under which its
        text is registered already (0: it is not). Yields the bytes of the texts that are looked at in the step that follows."""
        request: pb.AddSchemaRequest | pb.CheckSchemaRequest = accepted.request
        yield min(len(request.text), limits.SCHEMA_BYTES_MAX)
        error = self._fault(request)
        if error:
            accepted.refuse(error)
            return
        if self.node.meta.info is None:
            accepted.busy()
            return
        found = self.node.meta.schemas.by_pattern.get(request.pattern)
        promise = request.compatibility if request.HasField("compatibility") else found.compatibility if found else 0
        change = entries.SchemaChange(
            pattern=request.pattern, changed=found.changed if found else 0, kind=request.kind, compatibility=promise
        )
        versions = found.versions if found else ()
        known = next((v.version for v in versions if (v.text, v.message) == (request.text, request.message)), 0)
        if known and found is not None and found.kind == request.kind:
            then(change, known)
            return
        number = request.schema_version if isinstance(request, pb.AddSchemaRequest) else 0
        change.add.version, change.add.text = number, request.text
        change.add.message, change.add.at = request.message, self.node.clock.wall
        error = self.node.meta.schemas.refusal(change)
        if error:
            accepted.refuse(error)
            return
        kind, complaints = SchemaKind(request.kind), list[str]()
        new = SchemaText(kind, request.text, text(request.message))
        compared = () if number or promise == Compatibility.NONE else versions
        for earlier in sorted(compared, key=attrgetter("version"), reverse=True):
            if len(complaints) < limits.SCHEMA_COMPLAINTS_MAX:
                yield len(request.text) + len(earlier.text)
                old = NumberedText(earlier.version, SchemaText(kind, earlier.text, text(earlier.message)))
                complaints += incompatible(new, [old], Compatibility(promise))
        if complaints:
            self._complain(accepted, Compatibility(promise), complaints[: limits.SCHEMA_COMPLAINTS_MAX])
        else:
            then(change, 0)

    def _complain(self, accepted: AcceptedRequest, promise: Compatibility, complaints: list[str]) -> None:
        told = SCHEMA_INCOMPATIBLE.format(word(promise), complaints[0])
        if isinstance(accepted.request, pb.AddSchemaRequest):
            accepted.refuse(_clipped(told))
        else:
            accepted.answer(complaints=[raw(_clipped(one)) for one in complaints])

    def _fault(self, request: pb.AddSchemaRequest | pb.CheckSchemaRequest) -> str:
        """Return the fault of a request by itself; "" if there is none."""
        if not _is_pattern(request.pattern):
            return refusals.INVALID_ADMIN
        if int(request.kind) not in tuple(SchemaKind):
            return UNKNOWN_SCHEMA_KIND
        if int(request.compatibility) not in tuple(Compatibility) or len(request.message) > limits.NAME_BYTES_MAX:
            return refusals.INVALID_ADMIN
        schema = SchemaText(SchemaKind(request.kind), request.text, text(request.message))
        why = fault(schema)
        if not why and (schema.kind is not SchemaKind.JSON or json_data.AVAILABLE):
            try:
                checker(schema)
            except SchemaError as error:
                why = str(error)
        return _clipped(refusals.INVALID_SCHEMA.format(word(schema.kind), why)) if why else ""

    def _propose(self, accepted: AcceptedRequest, change: entries.SchemaChange, known: int) -> None:
        found = self.node.meta.schemas.by_pattern.get(change.pattern)
        if known and found is not None and found.compatibility == change.compatibility:
            accepted.answer(schema_version=known)
            return

        def registered(result: MetaResult) -> dict[str, object]:
            now = self.node.meta.schemas.by_pattern[change.pattern]
            given = change.add.version or now.last
            return {"schema_version": known or given, "changed": int(result.schemas_changed)}

        accepted.change_meta(registered, schema=change)

    # --- removing and listing --------------------------------------------------------------------------------------------

    def _remove(self, accepted: AcceptedRequest) -> None:
        request: pb.RemoveSchemaRequest = accepted.request
        found = self.node.meta.schemas.by_pattern.get(request.pattern)
        name = go_quote(text(request.pattern))
        if not _is_pattern(request.pattern):
            accepted.refuse(refusals.INVALID_ADMIN)
        elif self.node.meta.info is None:
            accepted.busy()
        elif found is None:
            accepted.refuse(UNKNOWN_SCHEMA.format(name))
        elif request.schema_version and not any(one.version == request.schema_version for one in found.versions):
            accepted.refuse(UNKNOWN_SCHEMA_VERSION.format(name, request.schema_version))
        else:
            gone = 1 if request.schema_version else len(found.versions)
            change = entries.SchemaChange(
                pattern=request.pattern,
                changed=found.changed,
                kind=found.kind,
                compatibility=found.compatibility,
                remove=request.schema_version,
                remove_all=not request.schema_version,
            )
            accepted.change_meta(lambda _result: {"changed": gone}, schema=change)

    def listed(self, accepted: AcceptedRequest) -> None:
        """A SchemasRequest."""
        request: pb.SchemasRequest = accepted.request
        if request.channel and (request.pattern or not valid_name(text(request.channel), wildcards=False)):
            accepted.refuse(refusals.INVALID_QUERY)
            return
        response = pb.SchemasResponse()
        room = self.nats.payload_bytes_max - HEAD_ROOM
        most = min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)
        for pattern, row, version in self._versions(request):
            shown = pb.SchemaStatus(
                pattern=pattern,
                kind=pb.SchemaKind.Name(row.kind),
                compatibility=pb.SchemaCompatibility.Name(row.compatibility),
                schema_version=version.version,
                text=b"" if request.without_texts else version.text,
                message=version.message,
                at=version.at,
                size=len(version.text),
            )
            room -= shown.ByteSize() + ITEM_ROOM
            if response.schemas and (room < 0 or len(response.schemas) == most):
                response.more = True
                break
            response.schemas.append(shown)
        accepted.answer_with(response)

    def _versions(self, request: pb.SchemasRequest) -> list[tuple[bytes, entries.ChannelSchema, entries.SchemaVersion]]:
        """What a request asks for, by pattern and number."""
        schemas = self.node.meta.schemas
        if request.channel:
            covering = schemas.of(request.channel)
            rows = {} if covering is None else dict([covering])
        elif request.pattern:
            rows = {key: row for key, row in schemas.by_pattern.items() if key == request.pattern}
        else:
            rows = schemas.by_pattern
        behind = request.after_pattern, request.after_version
        return [
            (pattern, row, version)
            for pattern, row in sorted(rows.items(), key=lambda item: item[0])
            for version in row.versions
            if request.schema_version in (0, version.version) and (pattern, version.version) > behind
        ]


def _is_pattern(pattern: bytes) -> bool:
    return len(pattern) <= limits.CHANNEL_NAME_BYTES_MAX and valid_name(text(pattern), wildcards=True)


def _clipped(told: str) -> str:
    most = limits.SCHEMA_REFUSAL_BYTES_MAX
    return told if len(told) <= most else f"{told[:most]}..."
