"""The files of a group that is being received from another node, in a directory of their own, until they take its place.

Promises: complete segments that no cleaner has rewritten stay for the next attempt; `finish` returns only if the files are
the offered ones, with this node's store id in each segment. Blocking; raises OSError and Damage.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.edge.storage.snapshot_files import read_snapshot, snapshot_path
from stan.edge.storage.transfer_codec import Offer, OfferedSegment
from stan.errors import Damage
from stan.log.encryption import NEVER, Cipher, Encryptor
from stan.log.files.disk import Files, remove_directory
from stan.log.files.filelog import FileLog
from stan.log.files.reencryption import reencrypt
from stan.log.files.segment import SEGMENT_HEADER_SIZE, decode_segment_header, segment_name


@dataclass
class _File:
    """A part that is being received."""

    path: str
    length: int
    segment: OfferedSegment | None  # None: the state
    previous_term: Term | None  # replaces the one in the segment's header, which the sender's log may have forgotten
    missing: int = field(init=False)
    descriptor: int = -1

    def __post_init__(self) -> None:
        self.missing = self.length


class ReceivedFiles:
    """The received files of one group: `expect` an offer, `write` its parts, then `finish`.

    Args:
        files: the disk.
        directory: of their own, made by `expect`.
        group: its number.
        store_id: of this node's logs; replaces the sender's.
        cipher: of this node's logs; has to decrypt the sender's segments.
    """

    def __init__(self, files: Files, directory: str, group: GroupId, store_id: bytes, cipher: Cipher | None) -> None:
        self._files = files
        self._directory = directory
        self._group = group
        self._store_id = store_id
        self._cipher = cipher
        self._incomplete: dict[int, _File] = {}  # by number of the part
        self._complete: dict[str, OfferedSegment | None] = {}  # by path
        self._origins: dict[str, bytes] = {}  # of segments: the store that they were encrypted for

    @property
    def is_complete(self) -> bool:
        """True if all expected parts are there."""
        return not self._incomplete

    def forget_incomplete(self) -> None:
        """Expect nothing until the next offer; complete files stay."""
        for part in self._incomplete.values():
            if part.descriptor >= 0:
                self._files.close(part.descriptor)
        self._incomplete.clear()

    def expect(self, offer: Offer) -> dict[int, int]:
        """Make room for an offer; returns the parts that are missing, from 1, with their lengths."""
        self._files.makedirs(self._directory)
        paths = [snapshot_path(self._directory, offer.index)]
        paths += [f"{self._directory}/{segment_name(part.first_index)}" for part in offer.segments]
        lengths = [offer.state_bytes, *(part.length for part in offer.segments)]
        offered: dict[str, OfferedSegment | None] = dict(zip(paths, (None, *offer.segments), strict=True))
        # Two nodes clean at different times, but a segment that was never cleaned is the same on all nodes.
        same = {
            path for path, part in self._complete.items() if part and not part.generation and offered.get(path) == part
        }
        self._complete = {path: self._complete[path] for path in same}
        for name in self._files.listdir(self._directory):
            if f"{self._directory}/{name}" not in same:
                self._files.unlink(f"{self._directory}/{name}")
        for number, (path, length) in enumerate(zip(paths, lengths, strict=True), 1):
            if path not in same:
                segment = offered[path]
                follows = segment is not None and segment.first_index == offer.index + 1
                self._incomplete[number] = _File(path, length, segment, offer.term if follows else None)
        for empty in [number for number, part in self._incomplete.items() if not part.length]:
            self.write(empty, 0, b"")
        return {number: part.length for number, part in self._incomplete.items()}

    def write(self, number: int, offset: int, content: bytes | memoryview) -> None:
        """Write received bytes of a part. Raises Damage if a segment is not the offered one."""
        part = self._incomplete[number]
        if part.descriptor < 0:
            part.descriptor = self._files.create(part.path)
        if part.segment is not None and offset == 0:
            content = self._made_ours(part.path, part.segment, part.previous_term, content)
        self._files.pwritev(part.descriptor, [content], offset)
        part.missing -= len(content)
        if not part.missing:
            self._files.close(part.descriptor)
            self._complete[part.path] = part.segment
            del self._incomplete[number]

    def _made_ours(
        self, path: str, part: OfferedSegment, previous_term: Term | None, content: bytes | memoryview
    ) -> bytes:
        """The beginning of a segment with this node's store id in its header."""
        header = decode_segment_header(bytes(content[:SEGMENT_HEADER_SIZE]))
        if (header.group, header.first_index, header.generation) != (self._group, part.first_index, part.generation):
            raise Damage(f"a segment of group {header.group} from {header.first_index} on where {part} was offered")
        self._origins[path] = header.store_id
        ours = replace(header, store_id=self._store_id)
        if previous_term is not None:
            ours = replace(ours, previous_term=previous_term)
        return b"".join((ours.encode(), content[SEGMENT_HEADER_SIZE:]))

    def finish(self, offer: Offer) -> None:
        """Make everything durable and verify every entry.

        Raises Damage if the files are not the offered ones; the next attempt then starts from nothing.
        """
        try:
            self._reencrypt(offer)
            for path in self._complete:
                descriptor = self._files.open(path)
                try:
                    self._files.fdatasync(descriptor)
                finally:
                    self._files.close(descriptor)
            self._verify(offer)
            self._files.sync_directory(self._directory)
        except BaseException:
            self._complete.clear()
            raise

    def _reencrypt(self, offer: Offer) -> None:
        """Encrypt the sender's segments again, as the ciphertext is bound to the sender's store. Raises Damage."""
        if self._cipher is None:
            return
        state = read_snapshot(self._files, snapshot_path(self._directory, offer.index))
        since = RaftIndex(state.sealed_from or NEVER)
        ours = Encryptor(self._cipher.of(self._store_id, self._group, RaftIndex(1)))
        for path, part in self._complete.items():
            if part is not None:
                reencrypt(self._files, path, self._cipher.of(self._origins[path], self._group, since), ours)

    def _verify(self, offer: Offer) -> None:
        path = snapshot_path(self._directory, offer.index)
        state = read_snapshot(self._files, path)
        if (state.applied_index, state.applied_term) != (offer.index, offer.term):
            raise Damage(f"{path}: a state as of entry {state.applied_index}, not {offer.index}")
        log, report = FileLog.open(
            Path(self._directory),
            self._group,
            self._store_id,
            lost_found=Path(self._directory + ".damaged"),
            files=self._files,
            cipher=None if self._cipher is None else self._cipher.of(self._store_id, self._group, RaftIndex(1)),
        )
        try:
            log.check_key()
        finally:
            log.close()
        there = (log.first_index, log.last_index, log.last_term, report.segments)
        if report.texts or there != (offer.first_index, offer.index, offer.term, len(offer.segments)):
            raise Damage(f"what was received of group {self._group} is not what was offered: {report.texts or there}")

    def discard(self) -> None:
        """Remove all received files."""
        self.forget_incomplete()
        self._complete.clear()
        for directory in (self._directory, self._directory + ".damaged"):
            self._files.makedirs(directory)
            remove_directory(self._files, directory)
