"""Reads of stored messages by parts of the broker that copy them from one channel into another, on the leader of their group."""

from collections.abc import Callable, Iterable, Iterator

from stan_protocol.fetches import LENGTH_PREFIX
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.base.ready import Fetch, ReadResult
from stan.core.leader.local_group import Leadership
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services

Found = Callable[[list[ReadResult], str], None]
"""Called with the record batches that hold the messages, as far as one read goes, and ""; or with none and why that failed."""


class StoredReads(LeaderPart):
    """Asks for stored messages of one group. An answer that comes when this node no longer leads the group is dropped."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.faults = services.faults
        self._waiting: dict[int, Found] = {}  # by number of the Fetch

    def ask(self, uid: ChannelUid, runs: tuple[tuple[int, int], ...], found: Found) -> None:
        """Read the messages *runs* of a channel, [first, last] each; *found* is called once."""
        number = self.group.dispatch.fetch_number()
        self._waiting[number] = self.faults.bound(self.number, found)
        self.outgoing.fetches.append(Fetch(self.number, uid, 0, runs, limits.READ_BYTES_MAX, number))

    def fetched(self, fetch: Fetch, batches: list[ReadResult], error: str = "") -> None:
        """The answer to a Fetch of `ask`."""
        found = self._waiting.pop(fetch.number, None)
        if found is not None:
            found(batches, error)


def stored_messages(batches: list[ReadResult], runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """(sequence, message) of the messages in *runs*, increasing, that *batches* hold."""
    wanted = iter(runs)
    first, last = next(wanted, (0, 0))
    for batch in batches:
        at, records = 0, memoryview(batch.records)
        for sequence in range(batch.base_sequence, batch.base_sequence + batch.count):
            size = int.from_bytes(records[at : at + LENGTH_PREFIX], "little")
            at += LENGTH_PREFIX
            while first and sequence > last:
                first, last = next(wanted, (0, 0))
            if first and first <= sequence:
                yield sequence, bytes(records[at : at + size])
            at += size
