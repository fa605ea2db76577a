"""The caches of a log: its newest record batches, so that subscribers at the end cost no reads, and the records of
compressed batches, so that the next reader of one need not decompress it again.

Promises to stay within the bound of each. The tail never copies: it refers to the appended bodies.
"""

from collections import OrderedDict, deque
from threading import Lock
from time import thread_time_ns

from stan.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_PLACES_MAX
from stan.log.types import BatchRef, BatchRow, DecompressedTotals
from stan.protocol.compressed_batches import records_of


class TailCache:
    """Record batches by place. `put` and `clear` belong to one thread; `get` may run in any."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._records: dict[tuple[int, int], memoryview] = {}
        self._bodies: deque[tuple[int, int, list[BatchRow]]] = deque()  # segment, bytes, batches; oldest first

    def __len__(self) -> int:
        return self._bytes

    def put(self, segment: int, body: bytes, body_position: int, rows: list[BatchRow], sealed: int = 0) -> None:
        """Remember the batches of an entry's body, which begins at *body_position* in the segment; drop the oldest.

        *sealed*: bytes by which each batch is longer in the segment than in the body.
        """
        size = len(body)
        if rows and rows[-1].staged:  # references have no records
            rows = [row for row in rows if not row.staged]
        if size > self._bytes_max or not rows:
            return
        records = self._records
        self._bytes += size
        while self._bytes > self._bytes_max:
            in_segment, less, old = self._bodies.popleft()
            self._bytes -= less
            for row in old:
                del records[in_segment, row.position]
        view = memoryview(body)
        for row in rows:
            position = row.position
            start = position - body_position
            records[segment, position] = view[start : start + row.length]
            body_position += sealed
        self._bodies.append((segment, size, rows))

    def get(self, segment: int, position: int) -> memoryview | None:
        """Records of the batch at that place, if they are still here."""
        return self._records.get((segment, position))

    def clear(self) -> None:
        """Forget all batches: their places are about to be written a second time."""
        self._records.clear()
        self._bodies.clear()
        self._bytes = 0


class DecompressedBatches:
    """Records by the place of their batch; those that were read least recently go first. Usable from any thread."""

    def __init__(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._records: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._forgotten: OrderedDict[tuple[int, int], None] = OrderedDict()  # places of dropped records
        self._lock = Lock()
        self.totals = DecompressedTotals()

    def __len__(self) -> int:
        return self._bytes

    def get(self, ref: BatchRef) -> bytes | None:
        """The records of the batch, if they are here."""
        place = ref.segment, ref.position
        with self._lock:
            records = self._records.get(place)
            if records is not None:
                self._records.move_to_end(place)
            return records

    def make(self, ref: BatchRef, stored: bytes | memoryview, *, remember: bool = True) -> bytes:
        """Return the records of the batch with the *stored* bytes; cached if *remember*. Raises Damage."""
        began = thread_time_ns()
        records = records_of(stored, ref.base_sequence, ref.timestamp, ref.size)
        spent = thread_time_ns() - began
        with self._lock:
            self._count(len(records), spent)
            if remember:
                self._remember((ref.segment, ref.position), records)
        return records

    def _count(self, size: int, spent: int) -> None:
        totals = self.totals
        totals.batches += 1
        totals.clear_bytes += size
        totals.cpu += spent

    def _remember(self, place: tuple[int, int], records: bytes) -> None:
        forgotten = self._forgotten
        if place in forgotten:
            self.totals.again += 1
            del forgotten[place]
        if len(records) > self._bytes_max:
            self._forget(place)
            return
        before = self._records.pop(place, None)
        self._records[place] = records
        self._bytes += len(records) - (0 if before is None else len(before))
        while self._bytes > self._bytes_max:
            dropped, less = self._records.popitem(last=False)
            self._bytes -= len(less)
            self._forget(dropped)

    def _forget(self, place: tuple[int, int]) -> None:
        self._forgotten[place] = None
        if len(self._forgotten) > DECOMPRESSED_PLACES_MAX:
            self._forgotten.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them: their places are about to be written a second time."""
        with self._lock:
            self._records.clear()
            self._forgotten.clear()
            self._bytes = 0
