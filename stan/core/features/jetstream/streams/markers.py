"""Delete markers: the last message of a subject leaves one when its time to live is over, for those who watch the subject.

    due in a channel ─► the messages are read, and their subjects looked up in the stream's index ─► one entry removes it, and stores the markers

Promises: a marker is stored by the entry that removes the message, so there is one, also after a crash or by another leader; none
is stored behind a newer message of its subject. A marker expires itself, and leaves none.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND, ChannelUid
from stan_protocol.units import go_duration

from stan import limits
from stan.core.features.jetstream.streams.reading import Found, StreamReading
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.row_batch import row_of
from stan.protocol.jetstream import headers
from stan.protocol.proto import entries_pb2 as pb

_LOOKS: Final = 20
_BETWEEN_LOOKS: Final = 10 * MILLISECOND


class DeleteMarkers(Relocating):
    """Removes expired messages of the streams of one group that leave markers, while this node leads it."""

    def remove_expired(self, uid: ChannelUid) -> bool:
        """Begin to remove the expired messages of a channel; False, and nothing happens, if its stream leaves no markers."""
        stream = self.node.meta.streams.by_uid.get(uid)
        if stream is None or not stream.config.marker_ttl:
            return False
        if uid not in self.running:
            self.begin(uid, self._remove(stream))
        return True

    def _remove(self, stream: Stream) -> Steps[None]:
        """Remove all messages that are due. If that fails, it is begun again a second later, as they stay due."""
        reading = self.leadership.part(StreamReading)
        try:
            while due := self._due(stream.uid):
                expired: list[Found] = []
                for first, last in due:
                    expired += yield from self._read(stream, first, last)
                yield from self._wait_for_others(stream)
                index = reading.current(stream)
                if index is not None:
                    yield from self._leave(stream, due, [*self._markers(stream, index, expired)])
                elif (yield partial(reading.with_index, stream)) == (None,):
                    raise StepError("its messages cannot be read")
        except StepError as error:
            self.reports.complain("WRN", f"Expired messages of stream {stream.name} are not removed yet: {error}")

    def _due(self, uid: ChannelUid) -> list[tuple[int, int]]:
        """The next messages that are due, as (first, last), in increasing order: EXPIRED_MARKED_MAX at most."""
        listed = self.group.machine.expiries.by_channel.get(uid)
        runs: list[tuple[int, int]] = []
        left = limits.EXPIRED_MARKED_MAX
        for first in listed.due(self.node.clock.wall // SECOND) if listed is not None else ():
            if listed is None or not left:
                break
            last = min(listed.runs[first][0], first + left - 1)
            left -= last - first + 1
            runs.append((first, last))
        return runs

    def _read(self, stream: Stream, first: int, last: int) -> Steps[list[Found]]:
        messages: list[Found] = []
        while first <= last:
            some, first = yield from self.leadership.part(StreamReading).some(stream, first, last)
            messages += some
            first += 1
        return messages

    def _wait_for_others(self, stream: Stream) -> Steps[None]:
        """Wait a little while messages are on their way whose subjects nobody knows: those of STAN's clients."""
        storing = self.leadership.part(StreamStoring)
        for _ in range(_LOOKS):
            if not storing.others_come(stream.uid):
                return
            yield from self.pause(_BETWEEN_LOOKS)

    def _markers(self, stream: Stream, index: SubjectIndex, expired: Iterable[Found]) -> Iterator[bytes]:
        """The markers that expired messages leave, as rows."""
        newest = {one.subject: one for one in expired}
        removed = {one.sequence for one in expired}
        storing = self.leadership.part(StreamStoring)
        if index.overfull or storing.others_come(stream.uid):
            self.reports.complain("WRN", f"Subjects of stream {stream.name} end without markers")
            return
        for subject, one in newest.items():
            last = not storing.is_in_flight(stream.uid, subject) and self._is_last(stream, index, subject, removed)
            if last and not headers.marks_deletion(one.stored):
                yield self._marker(stream, one.stored.key)

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

    def _leave(self, stream: Stream, due: list[tuple[int, int]], markers: list[bytes]) -> Steps[None]:
        """Remove the messages that are due, and store markers, in one entry."""
        expired = pb.Expired(until=self.node.clock.wall // SECOND, channels=(stream.uid, due[-1][1]))
        channel = self.channels.by_uid.get(stream.uid)
        if channel is None or channel.closed:
            raise StepError(channel.closed if channel is not None else "it is led elsewhere")
        if not markers:
            yield from self.propose(expired=expired)
            return
        change = pb.GroupChange(expired=expired, at=self.node.clock.wall, node=self.node.name.encode())
        encoded = change.SerializeToString()
        yield from self.store(channel, markers, lambda _first: encoded)
