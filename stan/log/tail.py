"""The tail cache: the newest record batches of a log in memory, so that subscribers who keep up cost no reads.

Promises never to hold more bytes than its bound. Never copies: it keeps the appended bodies and points into them.
"""

from collections import deque

from stan.log.types import BatchRow


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

        *sealed*: by how many bytes each batch is longer in the segment than in the body.
        """
        size = len(body)
        if size > self._bytes_max or not rows:
            return
        records = self._records
        self._bytes += size
        while self._bytes > self._bytes_max:
            in_segment, less, gone = self._bodies.popleft()
            self._bytes -= less
            for row in gone:
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
