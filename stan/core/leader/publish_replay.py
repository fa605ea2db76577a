"""Which publishes of the replay buffer are in the log already, when this node begins to lead a group (DESIGN 5).

Every node receives every publish; the leader of the channel's group takes it. A records entry holds fingerprints of the
publishes that its messages come from: publisher and key, a hash of the guid. A buffered publish that is in the log is
acknowledged again: the previous leader may have failed before it did so. A publish that is not in the log is taken, unless a
later one of the same publisher is there: the previous leader has refused or missed it, and stored now it would be out of
order. Pure.
"""

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from stan_protocol.frames import KEY_BYTES, LATER, Publishes
from stan_protocol.kernel.rows import ID_BYTES, IdSet
from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.batch_split import OWNER, last_of, owner_of, split
from stan.invariant import invariant
from stan.protocol.proto import entries_pb2 as pb

EVER: Final = -(1 << 60)
"""Nanos: earlier than anything that a node has heard, also one whose machine, and so its clock, was started a moment ago."""
NEEDED_BEFORE: Final = 2 * limits.FINGERPRINT_PATIENCE
"""To tell which publishes heard since a time are in the log, what was applied this much earlier (ns) has to be known."""
Publisher = tuple[bytes, bytes, bytes, bytes]
"""Channel name or `Publishes.line`, user, client id, connection id."""


class SplitBatch(NamedTuple):
    """A replayed batch, split into publishes to take and publishes in the log."""

    new: list[Publishes]  # to be taken
    acks: bytes  # prepared PubAcks of the publishes in the log


@dataclass(slots=True)
class Logged:
    """The keys of one publisher's messages in the log, as far back as fingerprints are kept, and the newest of them."""

    keys: set[bytes]
    newest: bytes


@dataclass(slots=True)
class LaggingPublisher:
    """A publisher whose newest message in the log has not reached this node yet."""

    logged: Logged
    until: Nanos  # until then, its publishes that are not in the log are dropped as out of order
    forgotten: Nanos  # from then on its publishes are no longer looked up


@dataclass(slots=True)
class ReplayFilter:
    """Splits the replayed publishes of one group into new ones and those in the log, by the fingerprints of recent entries."""

    lagging: dict[Publisher, LaggingPublisher] = field(default_factory=dict)
    _applied: deque[tuple[Nanos, bytes, bool]] = field(default_factory=deque)
    _count: int = 0  # of entries that were ever in `_applied`
    complete_since: int = EVER  # Nanos: of what was applied up to then, fingerprints are not known
    taken_over: dict[bytes, Nanos] = field(default_factory=dict)
    """Channels that came from other groups, or have messages that would be another part's -> the time up to which nobody can tell
    which of their publishes are in the log, as who led them did not know it any more: these are not replayed. And names of
    channels that were deleted elsewhere, as their messages are in no log that is known here."""
    deleted: dict[bytes, Nanos] = field(default_factory=dict)
    """Names of channels that were deleted -> when: requests about them that came before are not replayed."""
    named: dict[bytes, Nanos] = field(default_factory=dict)
    """New parts of channels -> since when they are known here: what was published to them by name before was refused."""
    answered: dict[bytes, Nanos] = field(default_factory=dict)
    """Parts that were closed for a while -> the time before which nothing is replayed: it had its answer, and a later message of
    its publisher may be in the log that would be another part's now."""
    divided: dict[bytes, Nanos] = field(default_factory=dict)
    """Parts of channels -> when the parts were doubled: of the publishes that were stored before nobody can tell to which of two
    parts they would belong now, and so in which of them the publisher's newest one should have been heard."""

    def apply(self, encoded: bytes | memoryview, now: Nanos, since: Nanos, *, old: bool) -> None:
        """Keep the fingerprints of an applied entry; they are evaluated when leadership begins.

        *since*: the replay buffer holds nothing older, so older fingerprints are dropped, too, but for those of the last seconds:
        a busy node's buffer is short, and who takes a channel over asks for more. *old*: the messages of the entry were published
        before this node began to listen, so it never receives them.
        """
        self._applied.append((now, bytes(encoded), old))
        self._count += 1
        oldest = min(now - limits.FINGERPRINT_AGE_MIN, since - NEEDED_BEFORE)
        while self._applied[0][0] < oldest:
            self.complete_since = max(self.complete_since, self._applied.popleft()[0])

    def begun(self, now: Nanos, *, empty: bool) -> None:
        """The node starts at *now*, with a log that is *empty*, or has messages whose fingerprints it does not know."""
        self.complete_since = EVER if empty else now

    def begin(self, heard: list[Publishes], now: Nanos, since: Nanos) -> list[SplitBatch]:
        """Split each batch *heard* since *since*, in order of arrival; called when leadership begins. Afterwards `lagging` holds
        the publishers whose newest message in the log is recent and has not arrived here."""
        self.lagging = {}
        return self._begin(self._logged(since), heard, now, since)

    def begin_channels(
        self, channels: Collection[bytes], heard: list[Publishes], now: Nanos, since: Nanos
    ) -> list[SplitBatch]:
        """As `begin`, of some channels alone, which the group has taken over. If this node led before, it knew what had come with
        the channels, and handled nothing that it heard of them: that made publishers late who are not."""
        lines = lines_of(channels)
        self.lagging = {publisher: one for publisher, one in self.lagging.items() if publisher[0] not in lines}
        return self._begin(self._logged(since, lines), heard, now, since)

    def told_since(self, channels: Collection[bytes], at: int, size_max: int) -> tuple[bytes, int, bool]:
        """Fingerprints of some channels, encoded, of entries that were applied from the *at*-th on, as many as fit in *size_max*
        bytes; the number from which on to ask next, and True if there are no more of them now."""
        lines, told, first = lines_of(channels), pb.Fingerprints(), self._count - len(self._applied)
        size, number = 0, max(at, first)
        while number < self._count:
            encoded = self._applied[number - first][1]
            concerned = any(channel in encoded for channel in channels)  # in a busy group few of many entries are
            found = [b for b in pb.Fingerprints.FromString(encoded).batches if b.channel in lines] if concerned else []
            size += sum(mark.ByteSize() + 8 for mark in found)
            if size > size_max:
                break
            told.batches.extend(found)
            number += 1
        return told.SerializeToString(), number, number == self._count

    def known_since(self, channels: Iterable[bytes]) -> int:
        """Fingerprints of all messages of some channels that were applied later are known (ns)."""
        return max([self.complete_since, *(self.taken_over.get(channel, EVER) for channel in channels)])

    def newest_of(self, channel: bytes, size_max: int, span: int) -> tuple[bytes, int]:
        """Fingerprints of a channel's newest messages, encoded: of the last *span* ns before its newest one, as far as they fit
        in *size_max* bytes. And the time (ns) when the newest of those that are left out were applied; EVER: none is."""
        lines, told, size, oldest = lines_of((channel,)), list[pb.BatchFingerprints](), 0, 0
        for applied, encoded, _ in reversed(self._applied):
            if channel not in encoded:
                continue
            marks = [mark for mark in pb.Fingerprints.FromString(encoded).batches if mark.channel in lines]
            size += sum(mark.ByteSize() + 8 for mark in marks)
            if marks and (size > size_max or applied < oldest):
                return pb.Fingerprints(batches=reversed(told)).SerializeToString(), applied
            if marks and not told:
                oldest = applied - span
            told += reversed(marks)
        return pb.Fingerprints(batches=reversed(told)).SerializeToString(), EVER

    def adopt(self, encoded: bytes, channel: bytes, now: Nanos, since: Nanos) -> None:
        """Messages with these fingerprints are in another channel, and would be *channel*'s if they came now: they are known as
        if they were in its log."""
        told = pb.Fingerprints.FromString(encoded)
        for mark in told.batches:
            mark.channel = channel + LATER if mark.channel.endswith(LATER) else channel
        if told.batches:
            self.apply(told.SerializeToString(), now, since, old=False)

    def divide(self, channel: bytes, now: Nanos) -> None:
        """The parts of a channel have been doubled, *channel* is one of them. Whose newest message has not arrived here as one of
        it may have been heard as another part's: nothing waits for that."""
        self.divided[channel] = now
        lines = lines_of((channel,))
        for publisher in [publisher for publisher in self.lagging if publisher[0] in lines]:
            self.lagging[publisher] = replace(self.lagging[publisher], until=now)

    def forget_old(self, now: Nanos) -> None:
        """Forget what is told of times of which nothing is replayed any more."""
        oldest = now - limits.REPLAY_AGE_MAX - 2 * limits.FINGERPRINT_PATIENCE
        for times in (self.taken_over, self.deleted, self.named, self.answered, self.divided):
            for name in [name for name, at in times.items() if at < oldest]:
                del times[name]

    def bounds(self) -> set[Nanos]:
        """Times at which it changes what `replays` says."""
        return {*chain(*(times.values() for times in (self.taken_over, self.deleted, self.named, self.answered)))}

    def replays(self, heard: bytes, channel: bytes, at: Nanos) -> bool:
        """True if what was published to *heard* and came at *at* may be replayed for a channel, which is it or a part of it."""
        since = max(self.taken_over.get(channel, 0), self.answered.get(channel, 0))
        return at > since and (heard != channel or at > self.named.get(channel, 0))

    def _begin(self, log: "_Log", heard: list[Publishes], now: Nanos, since: Nanos) -> list[SplitBatch]:
        messages = _Messages()
        senders_of = [[log.numbers[batch.line, *sender] for sender in batch.senders()] for batch in heard]
        for batch, senders in zip(heard, senders_of, strict=True):
            messages.add(senders, batch.owners, batch.keys)
        ids = messages.ids()
        heard_ids = IdSet()
        heard_ids.add(ids)
        all_new, place = log.known.missing(ids), 0
        looked_at: list[_LookedAt] = []
        lasts: dict[int, tuple[int, int]] = {}  # publisher -> batch and place of its last message that is in the log
        for number, (batch, senders) in enumerate(zip(heard, senders_of, strict=True)):
            new = all_new[place : place + batch.count]
            place += batch.count
            if _IS_NEW not in new:
                lasts |= dict.fromkeys(senders, (number, batch.count))
            elif _IS_KNOWN in new:
                lasts |= {senders[owner_of(batch, at)]: (number, at) for at, is_new in enumerate(new) if not is_new}
            looked_at.append(_LookedAt(number, batch, senders, new))
        late = {sender for sender in log.unheard(heard_ids) if log.at[sender] - limits.FINGERPRINT_PATIENCE > since}
        elsewhere, late = late & log.divided, late - log.divided
        behind = Nanos(now + limits.FINGERPRINT_PATIENCE)
        self.lagging |= log.behind(elsewhere, now, now) | log.behind(late, behind, now)
        return [_sort(one, late, lasts) for one in looked_at]

    def split(self, batch: Publishes, now: Nanos) -> SplitBatch:
        """Split a batch that arrives after leadership began: this node may receive publishes later than the previous leader did,
        much later if the network held them back."""
        for publisher in [publisher for publisher, behind in self.lagging.items() if now >= behind.forgotten]:
            del self.lagging[publisher]
        if not any((batch.line, *sender) in self.lagging for sender in batch.senders()):
            return SplitBatch([batch], b"")
        fates = []
        for publisher, key in _senders(batch):
            behind = self.lagging.get(publisher)
            if behind is None:
                fates.append(_NEW)
            elif key in behind.logged.keys:
                fates.append(_LOGGED)
                if key == behind.logged.newest:
                    del self.lagging[publisher]
            else:
                fates.append(_PASSED if now < behind.until else _NEW)
        return _part(batch, fates)

    def _logged(self, since: Nanos, lines: Collection[bytes] | None = None) -> "_Log":
        log, oldest = _Log(), since - NEEDED_BEFORE
        divided = {line: at for channel, at in self.divided.items() for line in (channel, channel + LATER)}
        for applied, encoded, old in self._applied:
            # Of what the busiest group has applied in ten seconds, an election would read a million messages for nothing.
            if applied < oldest:
                continue
            for mark in pb.Fingerprints.FromString(encoded).batches:
                if lines is None or mark.channel in lines:
                    log.add(mark, Nanos(0) if old else applied, divided=applied <= divided.get(mark.channel, -1))
        log.known.add(log.messages.ids())
        return log


class _Numbers(dict[Publisher, int]):
    """Small numbers for publishers, in order of first appearance."""

    def __missing__(self, publisher: Publisher) -> int:
        number = self[publisher] = len(self)
        return number


class _Messages:
    """Key and publisher's number of many messages. A few seconds of a busy group hold hundreds of thousands of messages, and the
    links to the other nodes wait meanwhile: so no Python statement runs per message."""

    def __init__(self) -> None:
        self._senders: list[int] = []
        self._keys: list[bytes] = []

    def add(self, senders: list[int], owners: bytes, keys: bytes) -> None:
        """Add the messages of a batch; *senders*: the numbers of the batch's publishers."""
        self._senders += _each(senders, owners, len(keys) // KEY_BYTES)
        self._keys.append(keys)

    def ids(self) -> bytes:
        """The ids of all messages, in order, for an IdSet."""
        return _ids(array("Q", self._senders), b"".join(self._keys))


class _Log:
    """The publishes in the log, by their fingerprints."""

    def __init__(self) -> None:
        self.numbers = _Numbers()
        self.messages = _Messages()
        self.known = IdSet()
        self.at: dict[int, Nanos] = {}  # number of a publisher -> when its newest message was applied
        self.divided: set[int] = set()  # publishers whose newest message may have been another part's
        self._marks: list[tuple[list[int], pb.BatchFingerprints]] = []  # with the numbers of their publishers
        self._senders: dict[tuple[bytes, ...], list[int]] = {}  # the same few publishers come again and again

    def add(self, mark: pb.BatchFingerprints, at: Nanos, *, divided: bool) -> None:
        """Add the fingerprints of messages that are newer than all added before, applied at *at*. *divided*: before the parts
        were doubled."""
        names = (mark.channel, mark.user, *mark.publishers)
        senders = self._senders.get(names)
        if senders is None:
            pairs = zip(names[2::2], names[3::2], strict=True)
            senders = self._senders[names] = [self.numbers[mark.channel, mark.user, *pair] for pair in pairs]
        self.messages.add(senders, mark.owners, mark.keys)
        self.at |= dict.fromkeys(senders, at)
        if divided:
            self.divided.update(senders)
        elif self.divided:
            self.divided.difference_update(senders)
        self._marks.append((senders, mark))

    def _newest(self) -> dict[int, bytes]:
        """Map each publisher's number to the key of its newest message."""
        newest: dict[int, bytes] = {}
        for senders, mark in reversed(self._marks):
            for owner, sender in enumerate(senders):
                if sender not in newest:
                    place = last_of(mark.owners, owner) if mark.owners else len(mark.keys) // KEY_BYTES - 1
                    newest[sender] = mark.keys[KEY_BYTES * place : KEY_BYTES * (place + 1)]
        return newest

    def unheard(self, heard: IdSet) -> set[int]:
        """Numbers of the publishers whose newest message is not among those *heard*."""
        newest = self._newest()
        missing = heard.missing(_ids(array("Q", newest), b"".join(newest.values())))
        return {sender for sender, is_missing in zip(newest, missing, strict=True) if is_missing}

    def behind(self, late: set[int], until: Nanos, now: Nanos) -> dict[Publisher, LaggingPublisher]:
        """Make the LaggingPublishers with the numbers *late*; *until* then what is not in the log is dropped."""
        if not late:
            return {}
        keys: dict[int, set[bytes]] = {sender: set() for sender in late}
        for senders, mark in self._marks:
            if not late.isdisjoint(senders):
                for at, sender in enumerate(_each(senders, mark.owners, len(mark.keys) // KEY_BYTES)):
                    if sender in late:
                        keys[sender].add(mark.keys[KEY_BYTES * at : KEY_BYTES * (at + 1)])
        newest = self._newest()
        forgotten = Nanos(now + limits.FINGERPRINT_MEMORY)
        return {
            publisher: LaggingPublisher(Logged(keys[sender], newest[sender]), until, forgotten)
            for publisher, sender in self.numbers.items()
            if sender in late
        }


class _LookedAt(NamedTuple):
    """A batch that was heard."""

    number: int
    batch: Publishes
    senders: list[int]  # number of each of its publishers
    new: bytes  # per message: _IS_NEW or _IS_KNOWN, which is in the log


def _sort(one: _LookedAt, late: set[int], lasts: dict[int, tuple[int, int]]) -> SplitBatch:
    """Split one heard batch. A publisher's new messages are dropped if a later one of its messages is in the log: that one is in
    *lasts* (batch and place of its last logged message), or has not arrived here yet (*late*)."""
    number, batch, senders, new = one
    if _IS_NEW not in new:
        return SplitBatch([], batch.acks)
    passed_before = [(number, batch.count) if sender in late else lasts.get(sender, (-1, 0)) for sender in senders]
    if _IS_KNOWN not in new and max(passed_before) < (number, 0):
        return SplitBatch([batch], b"")
    fates = [
        _NEW if is_new and (number, at) >= passed_before[owner_of(batch, at)] else _PASSED if is_new else _LOGGED
        for at, is_new in enumerate(new)
    ]
    return _part(batch, fates)


def lines_of(channels: Iterable[bytes]) -> frozenset[bytes]:
    """What fingerprints call these channels (see `Publishes.line`)."""
    return frozenset(line for channel in channels for line in (channel, channel + LATER))


def encode(batches: Iterable[Publishes]) -> bytes:
    """Encode the fingerprints that a records entry with the messages of *batches* carries."""
    fingerprints = pb.Fingerprints()
    for batch in batches:
        fingerprints.batches.add(
            channel=batch.channel + LATER if batch.times.dues else batch.channel,
            publishers=chain.from_iterable(batch.publishers),
            owners=batch.owners,
            keys=batch.keys,
            user=batch.user,
        )
    return fingerprints.SerializeToString()


_NEW, _LOGGED, _PASSED = range(3)
_IS_KNOWN, _IS_NEW = 0, 1
invariant(KEY_BYTES + array("Q").itemsize == ID_BYTES, "an id is a key and a number", size=ID_BYTES)


def _each(senders: list[int], owners: bytes, count: int) -> Iterable[int]:
    """Number of the publisher of each message. *senders*: the numbers of the batch's publishers."""
    if not owners:
        return senders[:1] * count
    return map(senders.__getitem__, chain.from_iterable(OWNER.iter_unpack(owners)))


def _ids(senders: "array[int]", keys: bytes) -> bytes:
    """Key and number of the publisher of each message, for an IdSet."""
    ids = bytearray(ID_BYTES * len(senders))
    if senders:
        words = memoryview(ids).cast("Q")
        words[::2] = memoryview(keys).cast("Q")
        words[1::2] = memoryview(senders)
    return bytes(ids)


def _senders(batch: Publishes) -> Iterator[tuple[Publisher, bytes]]:
    """Publisher and key of each message."""
    publishers = [(batch.line, *sender) for sender in batch.senders()]
    keys = batch.keys
    for at in range(batch.count):
        yield publishers[owner_of(batch, at)], keys[KEY_BYTES * at : KEY_BYTES * (at + 1)]


def _part(batch: Publishes, fates: list[int]) -> SplitBatch:
    """Split *batch* by the fate of each message: taken, acknowledged as logged, or passed over."""
    new, _ = split(batch, [fate == _NEW for fate in fates])
    _, acks = split(batch, [fate != _LOGGED for fate in fates])
    return SplitBatch([new] if new is not None else [], acks)
