"""A leader's knowledge of one follower: its entries, the messages on the way to it, and its old answers.

Promises: at most a window of bodies and messages is on the way (S15); an answer to an older AppendEntries never undoes an answer
to a newer one (S3, S5), and a reset counts only if it answers a message that left after the last reset. `SentAppends.confirmed`
is the sending time of an answered message, or earlier. Pure.
"""

from collections import deque
from dataclasses import dataclass, field

from stan_protocol.scalars import Nanos, RaftIndex

from stan import limits
from stan.log.types import Entry


@dataclass(slots=True)
class SentAppends:
    """The AppendEntries that have left for one follower in one leadership, by number (seq), and which answers to them are old."""

    seq: int = 0  # of the newest AppendEntries
    confirmed: Nanos = field(default=Nanos(0))  # it was this leader's follower at this time or later; 0: never
    is_asked: bool = False  # it was asked to campaign, and has answered nothing since
    _echoed: int = 0  # newest seq that an answer named
    _reset_seq: int = 0  # newest message that had left at the last reset; resets that answer it or an older one are old
    _asked_seq: int = -1  # the newest seq when the follower was asked to campaign
    _times: deque[tuple[int, Nanos]] = field(default_factory=deque)  # seq and when it left, of messages not answered

    def add(self, now: Nanos) -> int:
        """Note that a message leaves; returns its seq."""
        self.seq += 1
        if not self._times or now - self._times[-1][1] >= limits.RAFT_SENT_STEP:
            self._times.append((self.seq, now))
            if now - self._times[0][1] > limits.RAFT_ELECTION_TIMEOUT_MIN:
                self._times.popleft()  # an answer to it would come too late
        return self.seq

    def is_news(self, seq: int) -> bool:
        """True if an answer with that seq is not older than an earlier one; notes the seq."""
        if not self._echoed <= seq <= self.seq:
            return False
        self._echoed = seq
        if seq > self._asked_seq:
            self.is_asked = False
        return True

    def confirm(self, seq: int) -> None:
        """Note an answer to the message *seq*: the follower followed this leader when that message left."""
        while self._times and self._times[0][0] <= seq:
            self.confirmed = self._times.popleft()[1]

    def is_new_reset(self, seq: int) -> bool:
        """True if a reset with that seq answers a message that left after the last reset; notes this one as the last."""
        if seq <= self._reset_seq:
            return False
        self._reset_seq = self.seq
        return True

    def ask(self) -> None:
        """Note that the follower is asked to campaign."""
        self._asked_seq = self.seq
        self.is_asked = True


@dataclass(slots=True)
class Window:
    """The messages with entries that are on the way to one follower, and their bodies' bytes (S15)."""

    bytes: int = 0
    has_room: bool = True  # for another message with entries; an empty window always has
    _flights: deque[tuple[RaftIndex, int]] = field(default_factory=deque)  # last index and bytes of each message

    def add(self, entries: list[Entry]) -> None:
        """Note that a message with these entries leaves."""
        size = 0
        for entry in entries:
            size += len(entry.body)
        self._flights.append((entries[-1].index, size))
        self.bytes += size
        self.has_room = (
            self.bytes < limits.RAFT_WINDOW_BYTES_MAX and len(self._flights) < limits.RAFT_WINDOW_APPENDS_MAX
        )

    def answered(self, acked: RaftIndex) -> None:
        """Note that messages with entries up to *acked* have arrived."""
        flights = self._flights
        while flights and flights[0][0] <= acked:
            self.bytes -= flights.popleft()[1]
        self.has_room = self.bytes < limits.RAFT_WINDOW_BYTES_MAX and len(flights) < limits.RAFT_WINDOW_APPENDS_MAX

    def clear(self) -> None:
        """Forget the messages on the way, which are lost."""
        self._flights.clear()
        self.bytes, self.has_room = 0, True


@dataclass(slots=True)
class Progress:
    """The progress of a follower or observer of a leader, in one leadership."""

    next_index: RaftIndex  # first entry that was not sent yet
    acked: RaftIndex = field(default=RaftIndex(0))  # everything up to here is durable there and equal
    acked_before: RaftIndex = field(default=RaftIndex(0))  # newest entry acknowledged before the link began
    counts: bool = False  # by its newest answer since the link began, it is not amnesiac: its acknowledgements count
    amnesiac: bool = False  # by its newest answer since the link began, it is; both are False without an answer
    has_counted: bool = False  # an answer has counted in this leadership
    readmit_index: RaftIndex | None = None  # entry made since the link began: the member is readmitted when it has it
    needs_snapshot: bool = False  # it needs entries that the log no longer has
    appends: SentAppends = field(default_factory=SentAppends)
    window: Window = field(default_factory=Window)

    @property
    def most(self) -> RaftIndex:
        """Newest entry that the follower has acknowledged, before the link began or since."""
        return max(self.acked_before, self.acked)

    def sent(self, entries: list[Entry], now: Nanos) -> int:
        """Note that a message leaves; returns its seq."""
        if entries:
            self.window.add(entries)
            self.next_index = RaftIndex(entries[-1].index + 1)
        return self.appends.add(now)

    def answered(self, acked: RaftIndex) -> None:
        """Note that the follower has everything up to *acked*."""
        self.acked = max(self.acked, acked)
        self.next_index = max(self.next_index, RaftIndex(acked + 1))
        self.window.answered(acked)

    def reset(self, seq: int, next_index: RaftIndex) -> bool:
        """Send everything from *next_index* on again; False if this answers a message older than the last reset."""
        if not self.appends.is_new_reset(seq):
            return False
        self.restart(next_index)
        return True

    def reset_for_new_link(self, end: RaftIndex) -> None:
        """Prepare for a new link to the follower, with this leader's log ending at *end*.

        The follower may have been restarted with an empty disk: earlier acknowledgements do not count until it answers."""
        self.restart(RaftIndex(self.acked + 1) if self.acked else RaftIndex(end + 1))
        self.acked_before, self.acked = max(self.acked_before, self.acked), RaftIndex(0)
        self.counts, self.amnesiac, self.readmit_index = False, False, None

    def restart(self, next_index: RaftIndex) -> None:
        """Begin again at *next_index*: messages on the way are lost."""
        self.next_index = next_index
        self.window.clear()
