"""The newest messages of the subjects that a consumer wants: for consumers that do not get every message."""

from dataclasses import dataclass

from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream


def let_all_through(filters: tuple[str, ...], stream: Stream) -> bool:
    """True if every message of a stream passes the filters."""
    return all(any(_covers(one, subject) for one in filters) for subject in stream.config.subjects)


def _covers(pattern: str, narrower: str) -> bool:
    """True if every subject that *narrower* covers is one of *pattern*'s, too."""
    wide, narrow = pattern.split("."), narrower.split(".")
    if wide[-1] == ">":
        return len(narrow) >= len(wide) and _is_wider(wide[:-1], narrow)
    return len(wide) == len(narrow) and narrow[-1] != ">" and _is_wider(wide, narrow)


def _is_wider(wide: list[str], narrow: list[str]) -> bool:
    return all(one == "*" or one == other for one, other in zip(wide, narrow, strict=False))  # noqa: PLR1714


@dataclass(slots=True)
class WantedSubjects:
    """Subjects that a consumer wants, by the index of the stream. Cost: O(subjects) for filters with wildcards."""

    reading: StreamReading
    stream: Stream
    filters: tuple[str, ...]

    @property
    def newest_only(self) -> bool:
        """See KnownSubjects."""
        return self.stream.config.keeps_newest

    def _index(self) -> SubjectIndex | None:
        """The index, if it has all messages; else it is caught up meanwhile."""
        found = self.reading.current(self.stream)
        if found is None:
            self.reading.with_index(self.stream, lambda _index: None)
        return None if found is None or found.overfull or not found.by_key else found

    def remaining(self, sequence: int) -> int | None:
        """See KnownSubjects."""
        index = self._index()
        if index is None:
            return None
        return sum(at > sequence for one in self.filters or (">",) for _, at in index.matching(one))

    def is_outdated(self, subject: bytes, sequence: int) -> bool:
        """See KnownSubjects."""
        index = self._index()
        return index is not None and index.newest.get(subject, 0) > sequence
