"""The registered schemas: the versions for people, and the data of messages decoded by the version that each names.

Promises: data larger than DASHBOARD_DECODED_BYTES_MAX is not decoded; schemas of the channels of late are remembered for
DASHBOARD_SCHEMAS_AGE, and a channel without a schema costs one request in that time.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from stan_protocol.admin_types import SchemaStatus
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.schemas import checks
from stan_protocol.schemas.decoding import Decoder, decoder
from stan_protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind, word
from stan_protocol.schemas.rules import SchemaText

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.errors import Refused
from stan.monitor.dashboard.formatting import key_of, millis, shown
from stan.status.schema_shown import shown_text

Json = dict[str, Any]
VERSION_HEADER: Final = b"stan-schema"


class SchemaVersion(NamedTuple):
    """A version of the schema of a channel, ready to decode."""

    number: int
    kind: SchemaKind
    decode: Decoder  # raises ValueError with the reason


class ChannelSchema(NamedTuple):
    """The versions of the schema of a channel, by their numbers; none: it has no schema."""

    versions: dict[int, SchemaVersion]

    def version_of(self, message: wire.MsgProto) -> SchemaVersion | None:
        """Return the version that a message names, else the newest; None if there is no such version."""
        named = next((bytes(header.value) for header in message.headers if header.key == VERSION_HEADER), b"")
        number = int(named) if named.isdigit() and len(named) < 10 else max(self.versions, default=0)
        return self.versions.get(number)

    @property
    def is_binary(self) -> bool:
        """True if data is no text, so that a search for text has to look at it decoded."""
        return any(version.kind != SchemaKind.JSON for version in self.versions.values())

    def text_of(self, message: wire.MsgProto) -> str:
        """Return the data of a message as JSON; "" if it is too large, or does not fit."""
        version = self.version_of(message)
        if version is None or len(message.data) > limits.DASHBOARD_DECODED_BYTES_MAX:
            return ""
        try:
            return version.decode(message.data)
        except ValueError:
            return ""

    def shown(self, message: wire.MsgProto) -> Json | None:
        """Return for the browser how a message fits the schema, with its data as JSON unless it is JSON itself; None: there is no
        schema, or the data is too large."""
        version = self.version_of(message)
        if version is None or len(message.data) > limits.DASHBOARD_DECODED_BYTES_MAX:
            return None
        told: Json = {"version": version.number, "kind": word(version.kind)}
        try:
            text = version.decode(message.data)
        except ValueError as error:
            return {**told, "misfit": shown(str(error))}
        if version.kind == SchemaKind.JSON:
            return told
        room = limits.DASHBOARD_DECODED_CHARS_MAX
        return {**told, "text": text[:room], "whole": len(text) <= room}


class SchemaRegistry:
    """The schemas of a cluster. *clock*: monotonic ns."""

    def __init__(self, cluster_client: ClusterClient, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._cluster_client = cluster_client
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[int, ChannelSchema]] = OrderedDict()

    async def of_channel(self, channel: bytes) -> ChannelSchema:
        """Return the schema of a channel. Errors as of `ClusterClient.ask`, but a refusal, which means that there is none."""
        made, schema = self._known.get(channel, (0, None))
        if schema is not None and self._clock() - made < limits.DASHBOARD_SCHEMAS_AGE:
            return schema
        try:
            statuses = await self._statuses(admin.SchemasRequest(version=1, channel=channel))
        except Refused:
            statuses = []
        schema = ChannelSchema(dict(filter(None, map(_version, statuses))))
        self._known[channel] = (self._clock(), schema)
        self._known.move_to_end(channel)
        if len(self._known) > limits.DASHBOARD_RATED_CHANNELS_MAX:
            self._known.popitem(last=False)
        return schema

    async def listed(self, sees: Callable[[bytes], bool]) -> list[Json]:
        """Return all versions without their texts, by pattern and number; *sees*: returns True for a pattern that is shown."""
        statuses = await self._statuses(admin.SchemasRequest(version=1, without_texts=True))
        return [_row(one) for one in statuses if sees(_raw(one.pattern))]

    async def of_pattern(self, pattern: bytes) -> list[Json]:
        """Return the versions of a pattern with their texts, the newest first; none if there is no schema."""
        statuses = await self._statuses(admin.SchemasRequest(version=1, pattern=pattern))
        return [_row(one) | {"text": shown(shown_text(one))} for one in reversed(statuses)]

    async def _statuses(self, request: admin.SchemasRequest) -> list[SchemaStatus]:
        statuses: list[SchemaStatus] = []
        for _ in range(limits.DASHBOARD_SCHEMA_ANSWERS_MAX):
            answer = await self._cluster_client.ask("schemas", request, admin.SchemasResponse)
            statuses += map(SchemaStatus.from_pb, answer.schemas)
            if not answer.more or not answer.schemas:
                break
            request.after_pattern = answer.schemas[-1].pattern
            request.after_version = answer.schemas[-1].schema_version
        return statuses


def _version(status: SchemaStatus) -> tuple[int, SchemaVersion] | None:
    schema = SchemaText(SchemaKind(status.kind), status.text, status.message)
    try:
        decode = decoder(schema)
    except SchemaError:
        return None  # of a newer server: the message is shown as it is
    if schema.kind == SchemaKind.JSON:
        decode = _checked(schema, decode)
    return status.schema_version, SchemaVersion(status.schema_version, schema.kind, decode)


def _checked(schema: SchemaText, decode: Decoder) -> Decoder:
    """Return a decoder that also refuses what does not fit, if this program can check by the schema."""
    try:
        misfit_of = checks.checker(schema)
    except SchemaError:
        return decode

    def decode_checked(data: bytes) -> str:
        if misfit := misfit_of(data):
            raise ValueError(misfit)
        return decode(data)

    return decode_checked


def _row(status: SchemaStatus) -> Json:
    return {
        "pattern": shown(status.pattern),
        "key": key_of(status.pattern),
        "version": status.schema_version,
        "kind": word(SchemaKind(status.kind)),
        "compatibility": word(Compatibility(status.compatibility)),
        "message": shown(status.message),
        "size": status.size or len(status.text),
        "at": millis(status.at),
    }


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
