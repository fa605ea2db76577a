"""The newest messages of the subjects that a consumer wants: for consumers that do not get every message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream
from stan.permissions import covers


def let_all_through(filters: tuple[str, ...], stream: Stream) -> bool:
    """True if every message of a stream passes the filters."""
    subjects = (">",) if stream.config.mixed else stream.config.subjects
    return all(any(covers(one, subject) for one in filters) for subject in subjects)


class _Counted(NamedTuple):
    """A number of messages that a consumer was to get."""

    sent: int  # the number of its newest delivery by then
    remaining: int
    removals: tuple[int, int]  # as of StreamReading.removals


@dataclass(slots=True)
class WantedSubjects:
    """Subjects that a consumer wants, by the index of the stream. Cost: O(subjects) for filters with wildcards."""

    reading: StreamReading
    stream: Stream
    filters: tuple[str, ...]
    newest_until: int  # up to this sequence the newest message of each subject is wanted alone
    awaited: Callable[[bool], None]  # called when the index that was missing is there, or cannot be made now (False)
    user: str = ""  # to whom the consumer belongs
    _awaits: bool = False
    _counted: "_Counted | None" = None

    @property
    def limited(self) -> bool:
        """See KnownSubjects."""
        return self.stream.config.history > 0

    def ready(self) -> bool:
        """See KnownSubjects."""
        return self._caught_up() is not None

    def _caught_up(self) -> SubjectIndex | None:
        """The index, if it has all messages; else it is caught up meanwhile."""
        found = self.reading.current(self.stream)
        if found is None and not self._awaits:
            self._awaits = True
            self.reading.with_index(self.stream, self._caught, self.user)
            found = self.reading.current(self.stream)
        return found

    def _caught(self, index: SubjectIndex | None) -> None:
        self._awaits = False
        self.awaited(index is not None)

    def _index(self) -> SubjectIndex | None:
        """The index, if it knows the subjects of all messages."""
        found = self._caught_up()
        return None if found is None or found.overfull or not found.by_key else found

    def remaining(self, sequence: int, sent: int | None) -> int | None:
        """See KnownSubjects. The number goes down with each delivery, and is counted again when it would be 0, or messages were
        removed."""
        index = self._index()
        if index is None:
            return None
        if sequence >= index.through:
            return 0
        if sent is None:
            return self._count(index, sequence)
        removals, counted = self.reading.removals(self.stream), self._counted
        if counted is None or counted.removals != removals or not 0 < sent - counted.sent < counted.remaining:
            counted = self._counted = _Counted(sent, self._count(index, sequence), removals)
        return counted.remaining - (sent - counted.sent)

    def _count(self, index: SubjectIndex, sequence: int) -> int:
        is_there, single = self.reading.is_there(self.stream), max(sequence, self.newest_until)
        return sum(index.behind(one, sequence, single, is_there) for one in self.filters or (">",))

    def has_newer(self, subject: bytes, sequence: int) -> bool:
        """See KnownSubjects."""
        index = self._index()
        return index is not None and index.newest.get(subject, 0) > sequence

    def is_outdated(self, subject: bytes, sequence: int) -> bool:
        """See KnownSubjects."""
        index = self._index()
        return index is not None and index.oldest(subject) > sequence
