"""Copies of one channel's messages as one: each message from the first copy that has it."""

from collections.abc import Callable, Iterator, Sequence

from stan_protocol.kernel.wire_py import records_in

from stan.migration.cluster.state import LoggedBatch
from stan.migration.messages import SEQUENCE_MAX, encoded
from stan.migration.records import ProtoFields, texts
from stan.migration.source import MessageRun


class MessageCopy:
    """Messages in their order, read as far as they are needed."""

    def __init__(self, runs: Iterator[MessageRun]) -> None:
        self._runs = runs
        self._next: MessageRun | None = None

    def begin(self) -> int:
        """Return the sequence of the next message, 0 at the end."""
        if self._next is None:
            self._next = next(self._runs, None)
        return self._next.base if self._next else 0

    def read_from(self, sequence: int) -> MessageRun | None:
        """Return the next messages if *sequence* is among them, from there on; earlier ones are skipped."""
        while self.begin() and (run := self._next):
            if run.base > sequence:
                return None
            self._next = None
            if sequence < run.base + run.count:
                return behind(run, sequence)
        return None


class LoggedMessages(MessageCopy):
    """The messages of a channel in the entries of a Raft log."""

    def __init__(self, channel: bytes, batches: Sequence[LoggedBatch], read: Callable[[int, int], bytes]) -> None:
        self._floor = 0  # what is before it is not read
        super().__init__(self._messages(channel, batches, read))

    def read_from(self, sequence: int) -> MessageRun | None:
        """Return the next messages like any copy; batches before *sequence* are not read."""
        self._floor = sequence
        return super().read_from(sequence)

    def _messages(
        self, channel: bytes, batches: Sequence[LoggedBatch], read: Callable[[int, int], bytes]
    ) -> Iterator[MessageRun]:
        last = 0
        for batch in batches:
            if batch.last < self._floor:
                continue
            for message in texts(texts(read(batch.offset, batch.size), 2)[-1], 1):
                try:
                    fields = ProtoFields(message)
                except ValueError:
                    continue  # missing, like any other that no copy has
                sequence = fields.number(1)
                if last < sequence <= batch.last:
                    last = sequence
                    record = encoded(fields, channel, fields.text(4))
                    time = min(fields.number(5) or 1, SEQUENCE_MAX)
                    yield MessageRun(sequence, 1, time, len(record).to_bytes(4, "little") + record, gap=False)


def merged(copies: Sequence[MessageCopy], want: int, newest: int) -> Iterator[MessageRun]:
    """Yield all messages, each from the first of *copies* that has it.

    Args:
        copies: of one channel.
        want: the sequence where it begins.
        newest: the newest sequence that is known of; only the first copy is asked for more.
    """
    last = 0
    while True:
        asked = copies if want <= newest else copies[:1]
        run = next(filter(None, (copy.read_from(want) for copy in asked)), None)
        if run is not None:
            yield run._replace(gap=0 < last < run.base - 1)
            last = run.base + run.count - 1
            want = last + 1
        elif ahead := [begin for copy in asked if (begin := copy.begin())]:
            want = min(ahead)
        else:
            return


def behind(run: MessageRun, sequence: int) -> MessageRun:
    """Return the messages from *sequence* on."""
    if run.base >= sequence:
        return run
    skipped = sequence - run.base
    places = list(records_in(run.records))
    return run._replace(base=sequence, count=run.count - skipped, records=run.records[places[skipped][0] - 4 :])
