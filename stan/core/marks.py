"""Which of the publishes that this node heard are in the log already, when it begins to lead (DESIGN 5).

Every node hears every publish; the leader of the channel's group takes it. A records entry says which publishes its messages come
from: publisher and key, the last bytes of the guid. A message that was heard and is in the log is acknowledged again: the last
leader may have failed before it did. One that is not in the log is taken, unless a later one of the same publisher is there: the
last leader has refused or missed it, and taken now it would be out of order. Pure.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stan import limits
from stan.core.parting import OWNER, owner_of, pick
from stan.protocol import entries_pb2 as pb
from stan.protocol.frames import KEY_BYTES, Publishes
from stan.types import Nanos

Publisher = tuple[bytes, bytes, bytes]
"""Channel name, client id, connection id."""


class Sorted(NamedTuple):
    """What becomes of a batch that was heard."""

    new: list[Publishes]  # to be taken
    acks: bytes  # prepared PubAcks of what is in the log


@dataclass(slots=True)
class Logged:
    """What of one publisher is in the log, as far as it matters."""

    keys: set[bytes]
    newest: bytes
    at: Nanos  # when the newest one was applied


@dataclass(slots=True)
class Behind:
    """A publisher whose newest message in the log was not heard here yet."""

    logged: Logged
    until: Nanos  # what is not in the log is passed over until then
    forgotten: Nanos  # nothing of it is expected any more


@dataclass(slots=True)
class Marked:
    """The marks of one group that are young enough to matter."""

    behind: dict[Publisher, Behind] = field(default_factory=dict)
    _told: deque[tuple[Nanos, bytes, bool]] = field(default_factory=deque)

    def apply(self, encoded: bytes | memoryview, now: Nanos, since: Nanos, *, old: bool) -> None:
        """Take in the marks of an entry that was applied; they are looked at when leadership begins.

        *since*: nothing that was heard before is kept, so the marks of before are not wanted either. *old*: what the entry holds
        was published before this node began to listen, and is not heard any more.
        """
        self._told.append((now, bytes(encoded), old))
        oldest = min(now, since - 2 * limits.MARK_PATIENCE)
        while self._told[0][0] < oldest:
            self._told.popleft()

    def begin(self, heard: list[Publishes], now: Nanos, since: Nanos) -> list[Sorted]:
        """What becomes of each batch *heard* since *since*, in order of arrival; called when leadership begins."""
        logged = self._logged()
        lasts: dict[Publisher, tuple[int, int]] = {}
        newest_heard = set()
        for number, batch in enumerate(heard):
            for at, (publisher, key) in enumerate(_senders(batch)):
                known = logged.get(publisher)
                if known is not None and key in known.keys:
                    lasts[publisher] = number, at
                    if key == known.newest:
                        newest_heard.add(publisher)
        self.behind = {
            publisher: Behind(known, Nanos(now + limits.MARK_PATIENCE), Nanos(now + limits.MARK_MEMORY))
            for publisher, known in logged.items()
            if publisher not in newest_heard and known.at - limits.MARK_PATIENCE > since
        }
        return [self._sort(number, batch, logged, lasts) for number, batch in enumerate(heard)]

    def _sort(
        self,
        number: int,
        batch: Publishes,
        logged: dict[Publisher, Logged],
        lasts: dict[Publisher, tuple[int, int]],
    ) -> Sorted:
        fates = []
        for at, (publisher, key) in enumerate(_senders(batch)):
            known = logged.get(publisher)
            if known is not None and key in known.keys:
                fates.append(_LOGGED)
            elif publisher in self.behind or (number, at) < lasts.get(publisher, (-1, 0)):
                fates.append(_PASSED)
            else:
                fates.append(_NEW)
        return _part(batch, fates)

    def still_new(self, batch: Publishes, now: Nanos) -> Sorted:
        """What becomes of a batch that arrives now: this node may hear later than the last leader did, much later if the network
        held it back."""
        for publisher in [publisher for publisher, behind in self.behind.items() if now >= behind.forgotten]:
            del self.behind[publisher]
        if not any((batch.channel, *publisher) in self.behind for publisher in batch.publishers):
            return Sorted([batch], b"")
        fates = []
        for publisher, key in _senders(batch):
            behind = self.behind.get(publisher)
            if behind is None:
                fates.append(_NEW)
            elif key in behind.logged.keys:
                fates.append(_LOGGED)
                if key == behind.logged.newest:
                    del self.behind[publisher]
            else:
                fates.append(_PASSED if now < behind.until else _NEW)
        return _part(batch, fates)

    def _logged(self) -> dict[Publisher, Logged]:
        found: dict[Publisher, Logged] = {}
        for applied, encoded, old in self._told:
            at = Nanos(0) if old else applied
            for mark in pb.Marks.FromString(encoded).marks:
                names = [
                    (mark.channel, *pair) for pair in zip(mark.publishers[::2], mark.publishers[1::2], strict=True)
                ]
                for place in range(0, len(mark.keys), KEY_BYTES):
                    key = mark.keys[place : place + KEY_BYTES]
                    owner = OWNER.unpack_from(mark.owners, place // 4)[0] if mark.owners else 0
                    known = found.setdefault(names[owner], Logged(set(), key, at))
                    known.keys.add(key)
                    known.newest, known.at = key, at
        return found


def encode(batches: Iterable[Publishes]) -> bytes:
    """What a records entry with the messages of *batches* carries."""
    marks = (
        pb.Mark(
            channel=batch.channel,
            publishers=[name for publisher in batch.publishers for name in publisher],
            owners=batch.owners,
            keys=batch.keys,
        )
        for batch in batches
    )
    return pb.Marks(marks=marks).SerializeToString()


_NEW, _LOGGED, _PASSED = range(3)


def _senders(batch: Publishes) -> Iterator[tuple[Publisher, bytes]]:
    """Publisher and key of each message."""
    publishers = [(batch.channel, client_id, conn_id) for client_id, conn_id in batch.publishers]
    keys = batch.keys
    for at in range(batch.count):
        yield publishers[owner_of(batch, at)], keys[KEY_BYTES * at : KEY_BYTES * (at + 1)]


def _part(batch: Publishes, fates: list[int]) -> Sorted:
    """Part the messages of *batch* by what becomes of them."""
    new, _ = pick(batch, [fate == _NEW for fate in fates])
    _, acks = pick(batch, [fate != _LOGGED for fate in fates])
    return Sorted([new] if new is not None else [], acks)
