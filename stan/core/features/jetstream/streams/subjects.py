"""The index of a stream, which the leader of its channel has: the newest message of each subject, or the newest ones, and the ids
of the last messages. Memory alone, made of the log.
"""

import re
from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple

from stan_protocol.compaction import keyed
from stan_protocol.patterns import ONE, REST, literal
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.core.base.names import raw
from stan.core.metadata.streams import Stream
from stan.protocol.jetstream.headers import MSG_ID, ROLLUP
from stan.protocol.kernel import server as kernel

_DIGEST: Final = 16


class Stored(NamedTuple):
    """A message with an id."""

    sequence: int
    at: int  # Unix ns


def digest(message_id: bytes) -> bytes:
    """A message's id as it is remembered: a short one as it is, so that none can pass for a hash."""
    return message_id if len(message_id) < _DIGEST else blake2b(message_id, digest_size=_DIGEST).digest()


def digests(ids: list[bytes]) -> list[bytes]:
    """The ids as they are remembered, without the empty ones."""
    return [digest(one) for one in ids if one]


def id_of(message: wire.MsgProto) -> bytes:
    """The id that the publisher has given a message; b"" if it has none."""
    return next((header.value for header in message.headers if header.key == MSG_ID), b"")


class SubjectIndex:
    """The messages of one stream up to `through`. Cost: memory for each subject, and for each id of the duplicate window.

    Where the newest messages of each subject stay, the index has these, deleted ones among them: older messages are not
    shown, and are left out of the log by compaction, later.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream, self.config = stream, stream.config
        self.by_key = not stream.config.is_literal
        self._history = stream.config.history
        self.through = 0  # all messages up to this sequence are in it
        self.newest: dict[bytes, int] = {}  # the sequence of each subject's newest message, of streams with keys
        self.ids: dict[bytes, Stored] = {}  # in their order
        self.last_id = b""  # of the message `through`
        # The messages of each subject before its newest one: where several stay those, and where a message may take the place
        # of the others of its subject, or they are counted, all.
        has_earlier = self.by_key and (stream.config.rolls_up or stream.config.counts_subjects or self._history > 1)
        self.earlier: dict[bytes, array[int]] | None = {} if has_earlier else None
        self._earlier_left = limits.STREAM_EARLIER_MAX if self._history else limits.STREAM_INDEXED_MAX
        self.overfull = False  # there are more subjects than may be remembered

    def note(
        self,
        stream: Stream,
        sequence: int,
        key: bytes,
        message_id: bytes,
        at: int,
        *,
        replaces: bool = False,
        gone: bool = False,
    ) -> None:
        """Add a message; those before it are there, or are gone. *at*: when it was stored, Unix ns. *replaces*: it takes the
        place of those before it of its subject. *gone*: it was deleted, and its id is known for the rest of its time."""
        if self.by_key and (self._history or not gone):
            self._note_subject(stream.subject_of(key), sequence, replaces=replaces)
        self.last_id = message_id
        self._note_id(message_id, sequence, at)
        self.through = max(self.through, sequence)

    def note_batch(self, records: bytes | memoryview, first: int, count: int, at: int) -> bool:
        """Add messages in one pass; False, and nothing is added, if they have to be looked at one by one. *records*: each behind
        its length; *first*: sequence of the first; *at*: as of `note`."""
        newest, ids = kernel.noted(records, first)
        if (self.earlier is not None and not self._history) or len(self.newest) + len(
            newest
        ) > limits.STREAM_INDEXED_MAX:
            return False
        if self.by_key:
            if b"" in newest:
                return False
            if self.earlier is None:
                self.newest.update(newest)
            elif ROLLUP in bytes(records):
                return False
            else:
                for sequence, subject in enumerate(keyed(records, count).keys, first):
                    self._note_subject(subject, sequence)
        for sequence, message_id in enumerate(ids, first):
            self._note_id(message_id, sequence, at)
        self.last_id = ids[-1] if ids else b""
        self.through = max(self.through, first + count - 1)
        return True

    def _note_id(self, message_id: bytes, sequence: int, at: int) -> None:
        if message_id:
            known = digest(message_id)
            self.ids.pop(known, None)
            self.ids[known] = Stored(sequence, at)

    def _note_subject(self, subject: bytes, sequence: int, *, replaces: bool = False) -> None:
        """Add a message of a subject, its newest one."""
        before = self.newest.get(subject)
        if before is None and len(self.newest) >= limits.STREAM_INDEXED_MAX:
            self.overfull = True
            return
        if before is not None and self.earlier is not None:
            if replaces and self._history:
                self._earlier_left += len(self.earlier.pop(subject, ()))
            else:
                self._note_earlier(self.earlier, subject, before)
        self.newest[subject] = sequence

    def _note_earlier(self, earlier: "dict[bytes, array[int]]", subject: bytes, sequence: int) -> None:
        """The newest message of a subject is so no longer."""
        known = earlier.get(subject)
        if known is not None and len(known) == self._history - 1:
            del known[0]
        elif self._earlier_left:
            self._earlier_left -= 1
        else:
            self.earlier, self.overfull = None, self.overfull or self._history > 0
            return
        if known is None:
            earlier[subject] = array("Q", (sequence,))
        else:
            known.append(sequence)

    def sequences(self, subject: bytes) -> list[int] | None:
        """The messages of a subject, in their order; some may be gone. None: they are not known."""
        if self.earlier is None or self.overfull:
            return None
        newest = self.newest.get(subject)
        return [] if newest is None else [*self.earlier.get(subject, ()), newest]

    def forget_gone(self, subject: bytes, there: list[int]) -> None:
        """Forget the messages of a subject that are gone; *there*: those that are not. Where several stay, they count on."""
        if self.earlier is not None and not self._history and subject in self.earlier:
            before = self.earlier.pop(subject)
            kept = array("Q", (one for one in there if one != self.newest.get(subject)))
            self._earlier_left += len(before) - len(kept)
            if kept:
                self.earlier[subject] = kept

    def newest_of(self, subject: bytes, is_there: Callable[[int], bool]) -> int:
        """The newest message that is there of a subject; 0: there is none. Cost: the messages of the subject that are gone."""
        newest = self.newest.get(subject, 0)
        if not newest or is_there(newest):
            return newest
        return next(filter(is_there, reversed(self.earlier.get(subject, ()))), 0) if self.earlier else 0

    def newest_there(self, pattern: str, is_there: Callable[[int], bool]) -> Iterator[int]:
        """The newest message that is there of each subject that a pattern covers. Cost: as of `matching` and `newest_of`."""
        return filter(None, (self.newest_of(subject, is_there) for subject, _ in self.matching(pattern)))

    def oldest(self, subject: bytes) -> int:
        """The first message of a subject that stays, where the newest ones do; 0: all that are there do, or none is."""
        if not self._history:
            return 0
        known = () if self.earlier is None else self.earlier.get(subject, ())
        return known[0] if known else self.newest.get(subject, 0)

    def shown(self, subject: bytes, is_there: Callable[[int], bool]) -> list[int]:
        """The known messages of a subject that are there, in their order: all that are shown, or where all stay, the newest one
        at least."""
        found = [*filter(is_there, self.earlier.get(subject, ()))] if self.earlier else []
        newest = self.newest.get(subject, 0)
        return [*found, newest] if newest and is_there(newest) else found

    def there(self, pattern: str, is_there: Callable[[int], bool]) -> Iterator[tuple[bytes, list[int]]]:
        """The messages that `shown` gives of each subject that a pattern covers, of which some are there. Cost: O(messages)."""
        for subject, _ in self.matching(pattern):
            found = self.shown(subject, is_there)
            if found:
                yield subject, found

    def counts(self, first: int, is_there: Callable[[int], bool], *, removed: bool) -> tuple[int, int, int]:
        """How many messages are shown, the first of them, and how many subjects they have; 0: none. *first*: the first one of
        the stream; *removed*: some were removed by themselves. Cost: O(subjects) in one pass, O(messages) if some are gone."""
        earlier = self.earlier or {}
        oldest = min(chain(self.newest.values(), (known[0] for known in earlier.values())), default=0)
        if oldest >= first and not removed:
            return len(self.newest) + sum(map(len, earlier.values())), oldest, len(self.newest)
        found = [shown for _, shown in self.there(">", is_there)]
        return sum(map(len, found)), min((one[0] for one in found), default=0), len(found)

    def behind(self, pattern: str, sequence: int, earlier: int, is_there: Callable[[int], bool]) -> int:
        """The number of the known messages behind *sequence* of the subjects that a pattern covers; those that are not the newest
        of their subject count behind *earlier*. Cost: O(subjects), and O(messages) behind *earlier*."""
        count = 0
        for subject, newest in self.matching(pattern):
            count += newest > sequence and is_there(newest)
            known = None if self.earlier is None else self.earlier.get(subject)
            if known and known[-1] > earlier:
                count += sum(at > earlier and is_there(at) for at in known)
        return count

    @property
    def outlives_removals(self) -> bool:
        """True if it tells the newest message of a subject also when single messages are removed: those before it are known, or
        do not count."""
        return self.earlier is not None or not self.by_key or self._history > 0

    def emptied(self) -> "SubjectIndex":
        """Return an index that is to be made again, with the ids: those of messages that are removed are known on."""
        made = SubjectIndex(self._stream)
        made.ids, made.last_id = self.ids, self.last_id
        return made

    def forget_ids(self, before: int) -> None:
        """Forget the ids of messages that were stored before *before*, Unix ns."""
        while self.ids:
            name, stored = next(iter(self.ids.items()))
            if stored.at >= before:
                return
            del self.ids[name]

    def duplicate(self, message_id: bytes, since: int) -> int:
        """The sequence of the message with that id that was stored at *since* (Unix ns) or later; 0: there is none."""
        found = self.ids.get(digest(message_id))
        return found.sequence if found is not None and found.at >= since else 0

    def matching(self, pattern: str) -> Iterator[tuple[bytes, int]]:
        """The subjects that a pattern covers, each with the sequence of its newest message. Cost: O(subjects) for a pattern with
        wildcards."""
        if literal(pattern):
            found = self.newest.get(raw(pattern))
            return iter([(raw(pattern), found)] if found else [])
        covers = _covering(pattern)
        return ((subject, at) for subject, at in self.newest.items() if covers(subject))

    def in_slices(self, pattern: str) -> Iterator[tuple[list[bytes], int]]:
        """The subjects that a pattern covers, in pieces, each with the number of subjects that were looked at for it. The index
        may grow meanwhile."""
        if literal(pattern):
            yield [raw(pattern)] if raw(pattern) in self.newest else [], 1
            return
        subjects, covers = list(self.newest), _covering(pattern)
        for at in range(0, len(subjects), limits.STREAM_SLICE):
            some = subjects[at : at + limits.STREAM_SLICE]
            yield [one for one in some if covers(one)], len(some)


def _covering(pattern: str) -> Callable[[bytes], object]:
    """Return a function that tells if a pattern covers a subject, as `matches` does, in one pass."""
    tokens = pattern.split(".")
    parts = [rb"[^.]*" if token == ONE else re.escape(raw(token)) for token in tokens]
    if tokens[-1] == REST:
        parts[-1] = b".*"
    return re.compile(rb"\.".join(parts), re.DOTALL).fullmatch


def runs_of(sequences: list[int]) -> list[tuple[int, int]]:
    """Increasing sequences as runs, first and last each."""
    runs: list[tuple[int, int]] = []
    for sequence in sequences:
        if runs and runs[-1][1] + 1 == sequence:
            runs[-1] = runs[-1][0], sequence
        else:
            runs.append((sequence, sequence))
    return runs
