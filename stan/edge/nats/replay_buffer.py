"""The replay buffer: bytes read from NATS in the last seconds. A new leader handles them again (DESIGN 5).

Promises: bounded in bytes and age; chunks begin and end with whole frames. Copies nothing.
"""

from collections import deque
from collections.abc import Iterator
from itertools import groupby

from stan_protocol.scalars import GroupId, KiB, Nanos

from stan import limits

JOINED_BYTES = 256 * KiB
"""A replay scans chunks joined up to this many bytes."""


Chunk = tuple[Nanos, bytes, int]
"""(time of arrival, bytes, end of the whole frames in them)."""


class ReplayBuffer:
    """Chunks in order of arrival, oldest first."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self.complete_since = Nanos(0)  # older frames are incomplete
        self.alone_since: Nanos | None = Nanos(0)
        """The time since which requests may reach this node alone, as its NATS has no route to others. None: they reach all."""
        self._gap = Nanos(0)  # end of the last gap
        self._forgotten: dict[GroupId, Nanos] = {}  # by group: publishes up to this time are not replayed

    def joined(self, *bounds: Nanos) -> Iterator[tuple[Nanos, bytes]]:
        """Yield (arrival time, bytes) with adjacent chunks joined up to JOINED_BYTES, so that the scanner is called rarely.

        A joined run never crosses one of *bounds*."""
        for _, alike in groupby(self._chunks, key=lambda chunk: [chunk[0] > bound for bound in bounds]):
            run: list[bytes] = []
            size, first = 0, Nanos(0)
            for at, data, end in alike:
                first = first if run else at
                run.append(data[:end])
                size += end
                if size >= JOINED_BYTES:
                    yield first, b"".join(run)
                    run, size = [], 0
            if run:
                yield first, b"".join(run)

    def since(self, now: Nanos, group: GroupId | None = None) -> Nanos:
        """Time from which on the buffer has all frames read, and may replay them for *group*."""
        forgotten = Nanos(0) if group is None else self.forgotten(group)
        return Nanos(max(self.complete_since, forgotten, now - limits.REPLAY_AGE_MAX))

    def forgotten(self, group: GroupId) -> Nanos:
        """Time up to which only acks of the group are replayed, and no publishes.

        Up to then a publish cannot be told from one in the group's log already, or earlier publishes of the same
        publisher were missed."""
        return max(Nanos(self._gap - 1), self._forgotten.get(group, Nanos(0)))

    def add(self, at: Nanos, data: bytes, end: int) -> None:
        """Add the frames in `data[:end]`, which were handled; drops the oldest chunks beyond the limits of bytes and age."""
        self._chunks.append((at, data, end))
        self._bytes += len(data)
        oldest = at - limits.REPLAY_AGE_MAX
        while self._bytes > limits.REPLAY_BYTES_MAX or self._chunks[0][0] < oldest:
            dropped_at, dropped, _ = self._chunks.popleft()
            self._bytes -= len(dropped)
            self.complete_since = max(self.complete_since, dropped_at)
            if not self._chunks:
                break

    def gap(self, now: Nanos) -> None:
        """Note that publishes until *now* are missing from the buffer."""
        self._gap = self.complete_since = now
        before = Nanos(now - 1)
        for position in reversed(range(len(self._chunks))):
            at, data, end = self._chunks[position]
            if at < now:
                break
            self._chunks[position] = (before, data, end)  # same turn, same time as the chunks after the gap

    def forget_group(self, group: GroupId, now: Nanos) -> None:
        """Forget the publishes for a group whose log came from another node: it is unknown which of them are in it."""
        self._forgotten[group] = now
