"""Schemas of messages in the replicated metadata, by pattern of channels: their versions, and what a new one must promise.

Fed by committed entries alone. Promises: no channel is covered by two patterns, and no number is ever given to two versions of
the schema of a channel, also if a pattern is removed and another one covers the channel later: so what a stored message says of
its schema never means another one. Whether a text is a schema, and keeps the promise, its leader has found out before.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from stan_protocol import refusals
from stan_protocol.patterns import matches, overlap
from stan_protocol.refusals import (
    SCHEMA_CHANGED,
    SCHEMA_OF_ANOTHER_KIND,
    SCHEMA_OVERLAPS,
    SCHEMA_VERSION_EXISTS,
    go_quote,
)
from stan_protocol.scalars import RaftIndex

from stan import limits
from stan.protocol.proto import entries_pb2 as pb

TOO_MANY_SCHEMAS = refusals.TOO_MANY_SCHEMAS.format(limits.SCHEMA_PATTERNS_MAX)
TOO_MANY_VERSIONS = refusals.TOO_MANY_SCHEMA_VERSIONS.format(limits.SCHEMA_VERSIONS_MAX)
TOO_MUCH_TEXT = refusals.SCHEMAS_TOO_LARGE.format(limits.SCHEMAS_BYTES_MAX)
NO_PATTERN = b""
"""Key of the row that outlives patterns."""


@dataclass(slots=True)
class Schemas:
    """All registered schemas."""

    KIND: ClassVar[str] = "schemas"
    by_pattern: dict[bytes, pb.ChannelSchema] = field(default_factory=dict)
    floor: int = 0  # the highest number of patterns that are gone
    changes: int = 0  # counts them, for who remembers something; not replicated
    dirty: set[bytes] = field(default_factory=set)

    def of(self, channel: bytes) -> tuple[bytes, pb.ChannelSchema] | None:
        """The pattern that covers a channel, and its schema. Cost: O(patterns)."""
        name = channel.decode("utf-8", "surrogateescape")
        for pattern, found in self.by_pattern.items():
            if matches(pattern.decode("utf-8", "surrogateescape"), name):
                return pattern, found
        return None

    def overlapping(self, pattern: bytes) -> bytes:
        """Another pattern that covers some of the same channels; b"": none."""
        name = pattern.decode("utf-8", "surrogateescape")
        others = (one for one in sorted(self.by_pattern) if one != pattern)
        return next((one for one in others if overlap(one.decode("utf-8", "surrogateescape"), name)), b"")

    def refusal(self, change: pb.SchemaChange) -> str:
        """Why a change cannot be made to this state; "" if it can."""
        found = self.by_pattern.get(change.pattern)
        if (0 if found is None else found.changed) != change.changed:
            return SCHEMA_CHANGED
        if not change.HasField("add"):
            return ""
        other = self.overlapping(change.pattern)
        if other:
            return SCHEMA_OVERLAPS.format(go_quote(other.decode("utf-8", "surrogateescape")))
        if found is None and len(self.by_pattern) >= limits.SCHEMA_PATTERNS_MAX:
            return TOO_MANY_SCHEMAS
        return self._misfit(change, found) if found is not None else self._too_much(change)

    def _misfit(self, change: pb.SchemaChange, found: pb.ChannelSchema) -> str:
        if found.kind != change.kind:
            return SCHEMA_OF_ANOTHER_KIND
        if len(found.versions) >= limits.SCHEMA_VERSIONS_MAX:
            return TOO_MANY_VERSIONS
        if any(one.version == change.add.version for one in found.versions):
            return SCHEMA_VERSION_EXISTS.format(change.add.version)
        return self._too_much(change)

    def _too_much(self, change: pb.SchemaChange) -> str:
        size = sum(len(version.text) for row in self.by_pattern.values() for version in row.versions)
        return TOO_MUCH_TEXT if size + len(change.add.text) > limits.SCHEMAS_BYTES_MAX else ""

    def apply(self, change: pb.SchemaChange, index: RaftIndex) -> str:
        """Apply one committed change; returns why nothing of it was applied, or ""."""
        error = self.refusal(change)
        if error:
            return error
        found = self.by_pattern.get(change.pattern)
        if found is None and not change.HasField("add"):
            return ""
        row = pb.ChannelSchema(last=self.floor)
        if found is not None:
            row.CopyFrom(found)
        row.changed, row.kind, row.compatibility = index, change.kind, change.compatibility
        if change.HasField("add"):
            added = change.add
            added.version = added.version or row.last + 1
            row.last = max(row.last, added.version)
            kept = [*row.versions, added]
        else:
            kept = [one for one in row.versions if one.version != change.remove and not change.remove_all]
        del row.versions[:]
        row.versions.extend(sorted(kept, key=lambda version: version.version))
        if row.versions:
            self.by_pattern[change.pattern] = row
        else:
            self.by_pattern.pop(change.pattern, None)
            self.floor = max(self.floor, row.last)
            self.dirty.add(NO_PATTERN)
        self.dirty.add(change.pattern)
        self.changes += 1
        return ""

    # --- rows -----------------------------------------------------------------------------------------------------

    def _row(self, pattern: bytes) -> bytes | None:
        if pattern == NO_PATTERN:
            return pb.ChannelSchema(last=self.floor).SerializeToString() if self.floor else None
        found = self.by_pattern.get(pattern)
        return None if found is None else found.SerializeToString()

    def _keys(self) -> set[bytes]:
        return {*self.by_pattern, *([NO_PATTERN] if self.floor else [])}

    def take_changed_rows(self) -> list[tuple[str, bytes, bytes | None]]:
        """Return kind, key and row of what has changed since the last call; None: the pattern is gone."""
        dirty, self.dirty = sorted(self.dirty), set()
        return [(self.KIND, pattern, self._row(pattern)) for pattern in dirty]

    def touch_all(self) -> None:
        """All rows are to be written again."""
        self.dirty |= self._keys()

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write all schemas into *snapshot*, in an order that depends on the state alone."""
        for pattern in sorted(self._keys()):
            snapshot.parts.add(kind=self.KIND, key=pattern, state=self._row(pattern))

    def load(self, pattern: bytes, state: bytes) -> None:
        """Take in one row; only before the first `apply`."""
        row = pb.ChannelSchema.FromString(state)
        if pattern == NO_PATTERN:
            self.floor = row.last
        else:
            self.by_pattern[pattern] = row
        self.changes += 1
