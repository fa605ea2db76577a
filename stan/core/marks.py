"""Which of the publishes that this node heard are in the log already, when it begins to lead (DESIGN 5).

Every node hears every publish; the leader of the channel's group takes it. A records entry names, per publisher, the last
message in it. NATS keeps the order of one publisher, so all that it sent before that one has been dealt with, and what it sent
after that one is still to be taken. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from struct import Struct

from stan import limits
from stan.core.oversize import ack_frames
from stan.protocol import entries_pb2 as pb
from stan.protocol import kernel
from stan.protocol import wire_pb2 as wire
from stan.protocol.frames import Publishes
from stan.types import ChannelUid, Nanos

Publisher = tuple[ChannelUid, bytes, bytes]
"""Channel, client id, connection id."""

_OWNER = Struct("<H")


@dataclass(slots=True)
class Mark:
    """The newest message of a publisher that is in the log."""

    guid: bytes
    at: Nanos  # when it was applied


@dataclass(slots=True)
class Marked:
    """The marks of one group that are young enough to matter, and publishers whose mark is still to be heard."""

    marks: dict[Publisher, Mark] = field(default_factory=dict)
    behind: dict[Publisher, Mark] = field(default_factory=dict)  # at: give up waiting for it
    _tidy_at: int = 0

    def apply(self, encoded: bytes | memoryview, now: Nanos) -> None:
        """Take in the marks of an entry that was applied."""
        for mark in pb.Marks.FromString(bytes(encoded)).marks:
            self.marks[ChannelUid(mark.uid), mark.client_id, mark.conn_id] = Mark(mark.guid, now)
        if now >= self._tidy_at:
            self._tidy_at = now + limits.HEARD_AGE_MAX
            old = now - 2 * limits.HEARD_AGE_MAX
            self.marks = {publisher: mark for publisher, mark in self.marks.items() if mark.at >= old}

    def begin(self, heard: list[tuple[ChannelUid, Publishes]], now: Nanos, since: Nanos) -> list[list[Publishes]]:
        """What of each batch *heard* since *since*, in order of arrival, is not in the log; called when leadership begins."""
        lasts: dict[Publisher, tuple[int, int]] = {}
        for number, (uid, batch) in enumerate(heard):
            for at, (publisher, guid) in enumerate(_senders(uid, batch)):
                mark = self.marks.get(publisher)
                if mark is not None and mark.guid == guid:
                    lasts[publisher] = number, at
        self.behind = {
            publisher: Mark(mark.guid, Nanos(now + limits.MARK_PATIENCE))
            for publisher, mark in self.marks.items()
            if publisher not in lasts and mark.at - limits.MARK_PATIENCE > since
        }
        left = []
        for number, (uid, batch) in enumerate(heard):
            keep = [
                publisher not in self.behind and (number, at) > lasts.get(publisher, (-1, 0))
                for at, (publisher, _) in enumerate(_senders(uid, batch))
            ]
            left.append(_part(batch, keep))
        return left

    def still_new(self, uid: ChannelUid, batch: Publishes, now: Nanos) -> list[Publishes]:
        """What of a batch that arrives now is not in the log: this node may hear later than the last leader did."""
        senders = list(_senders(uid, batch))
        keep = []
        for publisher, guid in senders:
            mark = self.behind.get(publisher)
            keep.append(mark is None or now >= mark.at)
            if mark is not None and (mark.guid == guid or now >= mark.at):
                del self.behind[publisher]
        return _part(batch, keep)


def encode(marks: Iterable[tuple[Publisher, bytes]]) -> bytes:
    """What a records entry carries; (publisher, guid of its last message)."""
    rows = (pb.Mark(uid=uid, client_id=client, conn_id=conn, guid=guid) for (uid, client, conn), guid in marks)
    return pb.Marks(marks=rows).SerializeToString()


def _senders(uid: ChannelUid, batch: Publishes) -> Iterator[tuple[Publisher, bytes]]:
    """Publisher and guid of each message; the guid is b"" where nobody waits for an ack."""
    acks = (wire.PubAck.FromString(frame[-2 - size : -2]).guid for frame, size in ack_frames(batch.acks))
    publishers = [(uid, client_id, conn_id) for client_id, conn_id in batch.publishers]
    for at in range(batch.count):
        owner = _OWNER.unpack_from(batch.owners, 2 * at)[0] if batch.owners else 0
        replied = not batch.replied or batch.replied[at]
        yield publishers[owner], next(acks) if replied else b""


def _part(batch: Publishes, keep: list[bool]) -> list[Publishes]:
    """Those messages of *batch* that stay; nothing or one batch."""
    if all(keep):
        return [batch]
    if not any(keep):
        return []
    # The kernel selects by publisher: let each message that goes belong to a publisher of its own.
    owners = [
        (_OWNER.unpack_from(batch.owners, 2 * at)[0] if batch.owners else 0) if stays else len(batch.publishers)
        for at, stays in enumerate(keep)
    ]
    marked = replace(
        batch,
        publishers=(*batch.publishers, (b"", b"gone")),
        last_guids=(*batch.last_guids, b""),
        owners=b"".join(map(_OWNER.pack, owners)),
    )
    kept, _ = kernel.select(marked, [*(owner in owners for owner in range(len(batch.publishers))), False])
    return [kept] if kept is not None else []
