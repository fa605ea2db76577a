"""Streams of JetStream in the replicated metadata: each is a name, a configuration and a channel.

Fed by committed entries alone. Promises: a stream has a channel as long as it is there, no channel is that of two streams, and no
subject is one of two streams. What a configuration may be its leader has found out before.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stan_protocol.patterns import matches, overlap
from stan_protocol.scalars import ChannelUid, RaftIndex, WallNanos

from stan import limits
from stan.core.base.delivery_policy import KEEP_LAST
from stan.policies import PolicyRule
from stan.protocol.jetstream.streams import StreamConfig, decoded
from stan.protocol.proto import entries_pb2 as pb

CHANGED, OVERLAPS, TOO_MANY, CHANNEL_TAKEN = (
    "the stream was changed meanwhile",
    "another stream has one of the subjects",
    "there are too many streams",
    "another stream has the channel",
)
"""Why a change is not taken."""


class Stream(NamedTuple):
    """Describes a stream."""

    name: str
    config: StreamConfig
    uid: ChannelUid  # of its channel
    channel: bytes
    changed: int  # index of the entry of its newest configuration
    created: WallNanos
    adopted: bool  # the channel was there before it

    def row(self) -> pb.Stream:
        """The stream as a row."""
        return pb.Stream(
            channel=self.channel,
            uid=self.uid,
            config=self.config.encoded(),
            changed=self.changed,
            created=self.created,
            adopted=self.adopted,
        )

    @property
    def only_subject(self) -> bytes:
        """The subject of all of its messages; b"": each has its own, as its key."""
        return self.channel if self.config.is_literal else b""

    def subject_of(self, key: bytes) -> bytes:
        """The subject of a message with that key."""
        return self.only_subject or key or self.channel

    def covers(self, subject: str) -> bool:
        """True if a message of that subject is one of the stream's. Cost: O(subjects)."""
        return any(matches(pattern, subject) for pattern in self.config.subjects)

    def overlaps(self, pattern: str) -> bool:
        """True if some subject of the stream's may be one of a pattern's. Cost: O(subjects)."""
        return any(overlap(own, pattern) for own in self.config.subjects)


def _rule(stream: Stream) -> PolicyRule:
    """The policy that a stream implies for its channel."""
    keeps, compressed = stream.config.history > 0, stream.config.compressed
    return PolicyRule(
        pattern=stream.channel.decode(),
        compact=KEEP_LAST if keeps else None,
        min_age=0 if keeps else None,
        compress=1 if compressed else None,
        ttl=stream.config.max_age if stream.config.expires else None,
    )


@dataclass(slots=True)
class Streams:
    """All streams."""

    KIND: ClassVar[str] = "streams"
    by_name: dict[str, Stream] = field(default_factory=dict)
    by_uid: dict[ChannelUid, Stream] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    rules: tuple[
        PolicyRule, ...
    ] = ()  # of channels whose streams keep the newest messages of each subject, are compressed, or leave markers

    def of_subject(self, subject: str) -> Stream | None:
        """The stream that a message of that subject belongs to; None: there is none. Cost: O(streams)."""
        return next((one for one in self.by_name.values() if one.covers(subject)), None)

    def overlapping(self, config: StreamConfig) -> str:
        """Return the name of another stream with one of the subjects; "": there is none."""
        others = (self.by_name[name] for name in sorted(self.by_name) if name != config.name)
        pairs = ((one.name, theirs, own) for one in others for theirs in one.config.subjects for own in config.subjects)
        return next((name for name, theirs, own in pairs if overlap(theirs, own)), "")

    def is_too_much(self, config: StreamConfig) -> bool:
        """True if there were too many subjects with those of a configuration."""
        others = sum(len(one.config.subjects) for name, one in self.by_name.items() if name != config.name)
        return others + len(config.subjects) > limits.STREAMS_SUBJECTS_MAX

    def refusal(self, change: pb.StreamChange) -> str:
        """Why a change cannot be made to this state; "" if it can."""
        name = change.name.decode()
        found = self.by_name.get(name)
        if (0 if found is None else found.changed) != change.changed:
            return CHANGED
        if not change.config:
            return ""
        config = decoded(change.config)
        if (found is None and len(self.by_name) >= limits.STREAMS_MAX) or self.is_too_much(config):
            return TOO_MANY
        if self.overlapping(config):
            return OVERLAPS
        other = next((one for one in self.by_name.values() if one.channel == change.channel), found)
        return "" if other is found else CHANNEL_TAKEN

    def apply(self, change: pb.StreamChange, uid: ChannelUid, index: RaftIndex, *, adopted: bool) -> None:
        """Apply a change that is not refused. *uid*: of the channel, which is there now; *adopted*: it was before."""
        name = change.name.decode()
        found = self.by_name.get(name)
        if not change.config:
            if found is not None:
                self._remove(found)
            return
        created = WallNanos(change.at) if found is None else found.created
        adopted = adopted if found is None else found.adopted
        self._put(Stream(name, decoded(change.config), uid, change.channel, index, created, adopted))
        self.dirty.add(name)

    def drop_channel(self, uid: ChannelUid) -> str:
        """A channel is deleted, and its stream with it; returns the name of that, "" if there was none."""
        found = self.by_uid.get(uid)
        if found is None:
            return ""
        self._remove(found)
        return found.name

    def _put(self, stream: Stream) -> None:
        self.by_name[stream.name] = self.by_uid[stream.uid] = stream
        self._note_rules()

    def _remove(self, stream: Stream) -> None:
        del self.by_name[stream.name], self.by_uid[stream.uid]
        self.dirty.add(stream.name)
        self._note_rules()

    def _note_rules(self) -> None:
        rules = tuple(rule for _, one in sorted(self.by_name.items()) if not (rule := _rule(one)).empty)
        if rules != self.rules:
            self.rules = rules

    # --- rows -----------------------------------------------------------------------------------------------------

    def take_changed_rows(self) -> list[tuple[str, bytes, bytes | None]]:
        """Return kind, key and row of each stream that has changed since the last call; None: the stream is gone."""
        dirty, self.dirty = sorted(self.dirty), set()
        rows = ((name, self.by_name.get(name)) for name in dirty)
        return [
            (self.KIND, name.encode(), None if one is None else one.row().SerializeToString()) for name, one in rows
        ]

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write all streams into *snapshot*, in an order that depends on the state alone."""
        for name in sorted(self.by_name):
            row = self.by_name[name].row()
            snapshot.parts.add(kind=self.KIND, key=name.encode(), state=row.SerializeToString())

    def load(self, name: bytes, state: bytes) -> None:
        """Take in one row; only before the first change."""
        row = pb.Stream.FromString(state)
        config, uid = decoded(row.config), ChannelUid(row.uid)
        created = WallNanos(row.created)
        self._put(Stream(name.decode(), config, uid, row.channel, row.changed, created, row.adopted))
