"""Syncing logs off the event loop: one fsync serves everything that arrived while the previous one ran."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stan.errors import StanError
from stan.raft.consensus import Consensus
from stan.types import RaftIndex

READERS = 2
"""Threads for reads that are not in memory."""


class Disk:
    """At most one sync per group at a time, in worker threads; reads in others, so that a slow read delays no ack."""

    def __init__(
        self, groups: int, synced: Callable[[Consensus], None], failed: Callable[[Consensus, str], None]
    ) -> None:
        self._syncers = ThreadPoolExecutor(max_workers=max(1, min(groups, 4)), thread_name_prefix="sync")
        self.readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="read")
        self._running: set[int] = set()
        self._synced = synced
        self._failed = failed

    def sync(self, consensus: Consensus) -> None:
        """Start a sync unless one runs; `synced` is called on the event loop and asks again if there is more."""
        if consensus.group in self._running:
            return
        self._running.add(consensus.group)
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                durable = consensus.log.sync()
            except (OSError, StanError) as error:
                why = str(error)
                call = lambda: self._done(consensus, None, why)  # noqa: E731 - two lines of one choice
            else:
                call = lambda: self._done(consensus, durable, "")  # noqa: E731
            loop.call_soon_threadsafe(call)

        self._syncers.submit(work)

    def _done(self, consensus: Consensus, durable: RaftIndex | None, why: str) -> None:
        self._running.discard(consensus.group)
        if durable is None:
            self._failed(consensus, why)
        else:
            consensus.synced(durable)
            self._synced(consensus)

    def close(self) -> None:
        """Wait for what runs."""
        self._syncers.shutdown(wait=True)
        self.readers.shutdown(wait=True)
