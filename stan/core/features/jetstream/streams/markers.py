"""Delete markers: the last message of a subject leaves one when its time to live is over, for those who watch the subject.

    messages are due ─► they are read, their subjects looked up in the index ─► one entry removes them, and stores the markers

Promises: a marker is stored by the entry that removes the message, so there is one, also after a crash or by another leader; none
is stored behind a newer message of its subject. A marker expires itself, and leaves none.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND, ChannelUid
from stan_protocol.units import go_duration

from stan import limits
from stan.core.base.names import shown
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.row_batch import row_of
from stan.protocol.jetstream import headers
from stan.protocol.proto import entries_pb2 as pb

_LOOKS: Final = 20
_BETWEEN_LOOKS: Final = 10 * MILLISECOND


class _Expired(NamedTuple):
    """The properties of an expired message that count."""

    sequence: int
    subject: bytes
    key: bytes
    ends: bool  # it is a marker itself, or says that a key was purged


class DeleteMarkers(Relocating):
    """Removes expired messages of the streams of one group that leave markers, while this node leads it."""

    def remove_expired(self, uid: ChannelUid) -> bool:
        """Begin to remove the expired messages of a channel; False, and nothing happens, if its stream leaves no markers."""
        channel = self.channels.by_uid.get(uid)
        if channel is None or self._stream(uid) is None:
            return False
        if uid not in self.running:
            self.begin(uid, self._remove(channel))
        return True

    def _stream(self, uid: ChannelUid) -> Stream | None:
        """The stream of a channel as it is now, if it leaves markers."""
        stream = self.node.meta.streams.by_uid.get(uid)
        return stream if stream is not None and stream.config.marker_ttl else None

    def _remove(self, channel: LiveChannel) -> Steps[None]:
        """Remove all messages that are due. If that fails, it is begun again a second later, as they stay due."""
        reading, uid = self.leadership.part(StreamReading), channel.info.uid
        try:
            while (stream := self._stream(uid)) is not None:
                until = self.node.clock.wall // SECOND
                due = self._due(uid, until)
                if not due:
                    return
                expired: list[_Expired] = []
                for first, last in due:
                    expired += yield from self._read(stream, first, last)
                yield from self._wait_for_others(uid)
                self.check_open(channel)
                if self._stream(uid) is not stream:
                    continue
                index = reading.current(stream)
                if index is not None:
                    markers = [*self._markers(stream, index, expired)]
                    yield from self._leave(channel, pb.Expired(until=until, channels=(uid, due[-1][1])), markers)
                elif (yield partial(reading.with_index, stream)) == (None,):
                    raise StepError("its messages cannot be read")
        except StepError as error:
            self.reports.complain("WRN", f"Expired messages of {shown(channel.info.name)} are not removed yet: {error}")

    def _due(self, uid: ChannelUid, until: int) -> list[tuple[int, int]]:
        """The next messages that are due at *until* (Unix s), as (first, last), in increasing order: EXPIRED_MARKED_MAX at
        most."""
        listed = self.group.machine.expiries.by_channel.get(uid)
        runs: list[tuple[int, int]] = []
        left = limits.EXPIRED_MARKED_MAX
        for first in listed.due(until) if listed is not None else ():
            if listed is None or not left:
                break
            last = min(listed.runs[first][0], first + left - 1)
            left -= last - first + 1
            runs.append((first, last))
        return runs

    def _read(self, stream: Stream, first: int, last: int) -> Steps[list[_Expired]]:
        expired: list[_Expired] = []
        while first <= last:
            some, first = yield from self.leadership.part(StreamReading).some(stream, first, last)
            expired += [
                _Expired(one.sequence, one.subject, one.stored.key, headers.marks_deletion(one.stored)) for one in some
            ]
            first += 1
        return expired

    def _wait_for_others(self, uid: ChannelUid) -> Steps[None]:
        """Wait a little while messages are on their way whose subjects nobody knows: those of STAN's clients."""
        storing = self.leadership.part(StreamStoring)
        for _ in range(_LOOKS):
            if not storing.others_come(uid):
                return
            yield from self.pause(_BETWEEN_LOOKS)

    def _markers(self, stream: Stream, index: SubjectIndex, expired: Iterable[_Expired]) -> Iterator[bytes]:
        """The markers that expired messages leave, as rows."""
        newest = {one.subject: one for one in expired}
        removed = {one.sequence for one in expired}
        storing = self.leadership.part(StreamStoring)
        if index.overfull or storing.others_come(stream.uid):
            self.reports.complain("WRN", f"Subjects of stream {stream.name} end without markers")
            return
        for subject, one in newest.items():
            last = not storing.is_in_flight(stream.uid, subject) and self._is_last(stream, index, subject, removed)
            if last and not one.ends:
                yield self._marker(stream, one.key)

    def _is_last(self, stream: Stream, index: SubjectIndex, subject: bytes, removed: set[int]) -> bool:
        """True if nothing of a subject stays when messages are *removed*."""
        if not index.by_key:
            last = self.leadership.part(StreamReading).last(stream)
            info = self.node.meta.by_uid[stream.uid]
            return self.channels.policies.count_below(info, last + 1) == len(removed)
        known = index.sequences(subject)
        if known is None:
            return index.newest.get(subject) in removed
        is_there = self.leadership.part(StreamReading).is_there(stream)
        return not any(is_there(sequence) and sequence not in removed for sequence in known)

    def _marker(self, stream: Stream, key: bytes) -> bytes:
        ttl = stream.config.marker_ttl
        message = wire.MsgProto(key=key, expires_at=self.node.clock.wall + ttl)
        fields = (headers.MARKER_REASON, b"MaxAge"), (headers.TTL, go_duration(ttl).encode())
        message.headers.extend(headers.stored((*fields, (headers.ROLLUP, headers.OF_SUBJECT))))
        return row_of(message)

    def _leave(self, channel: LiveChannel, expired: pb.Expired, markers: list[bytes]) -> Steps[None]:
        """Remove the messages that are due, and store markers, in one entry."""
        if not markers:
            yield from self.propose(expired=expired)
            return
        change = pb.GroupChange(expired=expired, at=self.node.clock.wall, node=self.node.name.encode())
        encoded = change.SerializeToString()
        yield from self.store(channel, markers, lambda _first: encoded)
