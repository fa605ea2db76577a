"""Checks messages by the schema of their channel, where a policy asks for it; on the leader, before they get their sequences.

Messages are checked once, when they are published. What the broker moves (dead letters, messages that come when they are due) or
an operator puts back (redrives, restores) is not checked again: it may be older than the schema.
"""

from array import array
from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import partial

from stan_protocol.frames import Publishes
from stan_protocol.kernel.rows import columns
from stan_protocol.refusals import (
    BUSY,
    CHANNEL_DELETING,
    NO_SCHEMA,
    NO_SCHEMA_VERSION,
    ROW_REFUSED,
    SCHEMA_MISMATCH,
    SCHEMA_UNCHECKED,
    WRONG_SCHEMA_VERSION,
    go_quote,
)
from stan_protocol.scalars import ChannelUid
from stan_protocol.schemas.checks import Check, checker
from stan_protocol.schemas.kinds import HEADER, SchemaError, SchemaKind
from stan_protocol.schemas.rules import SchemaText

from stan.core.base import payload_limit
from stan.core.base.batch_split import split
from stan.core.base.names import text
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.services.services import Services
from stan.limits import SCHEMA_REFUSAL_BYTES_MAX
from stan.policies import KNOWN
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from stan.remembered import Remembered

STAN = "stan: "
UNJUDGED = SCHEMA_UNCHECKED.partition("{")[0]
ERROR_FIELD_BYTES = 8
"""Bytes of a PubAck around the text of an error."""
VERSION_DIGITS_MAX = 9


class SchemaChecks:
    """Checks messages by the schemas in the metadata, as this node's copy has them."""

    def __init__(self, services: Services, channels: LiveChannels, read_index: MetadataReadIndex) -> None:
        self.nats, self.node, self.reports = services.nats, services.node, services.reports
        self.channels = channels
        self.read_index = read_index
        self._registry: tuple[object, int] = None, 0  # and its changes, when the following was found
        self._schemas: Remembered[bytes, tuple[bytes, pb.ChannelSchema] | None] = Remembered()  # by channel
        self._checks: dict[tuple[bytes, int], Check | str] = {}  # by pattern and version; or why there is none

    def objections(self, uid: ChannelUid, bodies: bytes, count: int) -> list[str]:
        """For each of some messages (as in `Publishes.bodies`) why it is refused, "": it is not; empty if none is."""
        asked = self.channels.policies.schemas.get(uid)
        if asked is None:
            return []
        mode, channel = asked
        name, found = go_quote(text(channel)), self._schema(channel)
        if found is None:
            return [_clipped(NO_SCHEMA.format(name))] * count
        columned = columns(bodies, count, headers=True)
        ends, data, told = array("i", columned.data_offsets), columned.data, columned.headers or []
        refused = [self._objection(mode, name, found, told[at], data[ends[at] : ends[at + 1]]) for at in range(count)]
        return refused if any(refused) else []

    def part(self, batch: Publishes, errors: list[str]) -> tuple[Publishes | None, list[bytes], bytes]:
        """Part the messages that `objections` refuses from the others.

        Returns: what stays (None if nothing), the PubAcks that refuse, and the prepared acks of messages that this server cannot
        judge, but another one may.
        """
        kept, _ = split(batch, [not error for error in errors])
        replied = batch.replied or b"\1" * batch.count
        answered = [error for error, answer in zip(errors, replied, strict=True) if answer]
        refusals: list[bytes] = []
        unjudged: list[bytes] = []
        most = self.nats.payload_bytes_max - ERROR_FIELD_BYTES
        for error, (frame, size) in zip(answered, payload_limit.ack_frames(batch.acks), strict=True):
            if error.startswith(UNJUDGED):
                unjudged.append(frame)
            elif error and size + len(error.encode()) <= most:
                refusals.append(kernel.refuse(frame, error.encode()))
        refused = len(errors) - errors.count("")
        self.reports.totals.refused_by_schema += refused
        # No word of a publisher's.
        told = next(error for error in errors if error).removeprefix(STAN).partition(": /")[0]
        self.reports.complain("WRN", f"messages to channel {go_quote(text(batch.channel))} are refused: {told}")
        return kept, refusals, b"".join(unjudged)

    def rows(
        self, channel: LiveChannel, rows: bytes, count: int, done: Callable[[LiveChannel | None, str, bool], None]
    ) -> None:
        """Check rows for a channel, all or none; *done* is called with the channel if they may be stored, else with None, why
        they are refused, and True if that may pass. It is called at once, or once this copy of the metadata is as new as the
        leader's; never if this node does not lead the channel any more."""
        if not self._row_error(channel, rows, count):
            done(channel, "", False)  # noqa: FBT003
        else:
            self.read_index.wait(partial(self._rows_again, channel, rows, count, done), channel.info.group)

    def _rows_again(
        self,
        channel: LiveChannel,
        rows: bytes,
        count: int,
        done: Callable[[LiveChannel | None, str, bool], None],
        known: bool,  # noqa: FBT001 - an answer
    ) -> None:
        error = self._row_error(channel, rows, count)
        if not self.node.leads(channel.info.group):
            return
        if self.channels.by_uid.get(channel.info.uid) is not channel or channel.closed:
            done(None, channel.closed or CHANNEL_DELETING, True)  # noqa: FBT003
        elif not error:
            done(channel, "", False)  # noqa: FBT003
        else:
            if known:
                self.reports.totals.refused_by_schema += count
            done(None, error if known else BUSY, not known or error.startswith(UNJUDGED))

    def _row_error(self, channel: LiveChannel, rows: bytes, count: int) -> str:
        errors = self.objections(channel.info.uid, rows, count)
        return next((ROW_REFUSED.format(at, error.removeprefix(STAN)) for at, error in enumerate(errors) if error), "")

    def _objection(
        self,
        mode: int,
        name: str,
        found: tuple[bytes, pb.ChannelSchema],
        headers: Seq[tuple[bytes, bytes]],
        data: bytes,
    ) -> str:
        pattern, schema = found
        said = next((value for key, value in reversed(headers) if key == HEADER), None)
        if said is None:
            if mode == KNOWN:
                return NO_SCHEMA_VERSION
            version = schema.versions[-1].version
        else:
            version = int(said) if said.isdigit() and len(said) <= VERSION_DIGITS_MAX else 0
            if not any(one.version == version for one in schema.versions):
                return _clipped(WRONG_SCHEMA_VERSION.format(go_quote(text(said)), name))
        if mode == KNOWN:
            return ""
        check = self._check(pattern, schema, version)
        if isinstance(check, str):
            return _clipped(SCHEMA_UNCHECKED.format(version, name, check))
        why = check(data)
        return _clipped(SCHEMA_MISMATCH.format(version, name, why)) if why else ""

    def _schema(self, channel: bytes) -> tuple[bytes, pb.ChannelSchema] | None:
        schemas = self.node.meta.schemas
        if (schemas, schemas.changes) != self._registry:
            self._registry = schemas, schemas.changes
            self._schemas.clear()
            self._checks.clear()
        if channel not in self._schemas:
            return self._schemas.remember(channel, schemas.of(channel), len(channel))
        return self._schemas[channel]

    def _check(self, pattern: bytes, schema: pb.ChannelSchema, version: int) -> Check | str:
        key = pattern, version
        found = self._checks.get(key)
        if found is None:
            row = next(one for one in schema.versions if one.version == version)
            try:
                found = checker(SchemaText(SchemaKind(schema.kind), row.text, text(row.message)))
            except SchemaError as fault:
                found = str(fault)
            self._checks[key] = found
        return found


def _clipped(refusal: str) -> str:
    encoded = refusal.encode("utf-8", "replace")
    if len(encoded) <= SCHEMA_REFUSAL_BYTES_MAX:
        return refusal
    return f"{encoded[:SCHEMA_REFUSAL_BYTES_MAX].decode('utf-8', 'ignore')}..."
