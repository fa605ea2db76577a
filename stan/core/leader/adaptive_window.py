"""How many messages a member may have in flight, found from its acks: for consumers that are slower than their max in flight.

A consumer that needs longer than the ack wait for a full window gets most of it again, and works on repeats. An adaptive window
starts at max in flight, is cut when an ack wait is over, and grows again while acks come early: what congestion control does for
the packets of a connection. It lives on the leader only; the next leader starts with a full window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stan.core.base.runs import Run

QUICK: Final = 4
"""An ack is early if it comes within the ack wait divided by this."""
GROWTH: Final = 16
"""A window grows by one part in so many."""
PATIENCE: Final = 3
"""A client that acks nothing late for so many ack waits is not slow: it never acks what it was sent again."""


@dataclass(slots=True)
class AckRate:
    """Counts acks in steps of an ack wait."""

    step: int  # Nanos: the ack wait
    begun: int = 0  # Nanos: start of the present step
    acked: int = 0  # in the present step
    before: int = 0  # in the step before

    def add(self, count: int, now: int) -> None:
        """*count* messages were acked."""
        self._move_on(now)
        self.acked += count

    def of_last(self, now: int) -> int:
        """Messages acked in about the last ack wait."""
        self._move_on(now)
        return self.acked + self.before * (self.begun + self.step - now) // self.step

    def _move_on(self, now: int) -> None:
        if now >= self.begun + self.step:
            at_once = now < self.begun + 2 * self.step
            self.before = self.acked if at_once else 0
            self.begun = self.begun + self.step if at_once else now
            self.acked = 0


@dataclass(slots=True)
class AdaptiveWindow:
    """The adaptive window of one member. Invariant: 1 <= size <= most. Times are Nanos.

    Runs tell when they were sent by their deadline, an ack wait later; both move when NATS was away. The client holds more than
    its window: what was taken back for redelivery is still in its hands, `late`, and it acks that when it gets there. Late
    messages keep their places, so that nothing is added to a queue that the client still works off.
    """

    most: int  # max in flight of the subscription
    ack_wait: int
    rate: AckRate
    size: int  # messages that may be in flight now
    opened: int = 0  # when runs were sent before is not known: the leader before sent them
    since: int = 0  # only what was sent from here on tells of the size as it is now
    late: int = 0  # messages taken back that are probably still in the client's hands
    late_until: int = 0  # if no late ack comes until then, the client has lost them
    late_ack: int = 0  # when the last ack came of a message that had been taken back
    acked: int = 0  # messages of this round: a round is `size` of them
    early: int = 0  # of these, acked within a quarter of the ack wait

    @classmethod
    def open(cls, max_in_flight: int, ack_wait: int) -> "AdaptiveWindow":
        """A full window."""
        return cls(max_in_flight, ack_wait, AckRate(ack_wait), max_in_flight)

    def led(self, now: int) -> None:
        """Leadership begins at *now*: runs in the window were sent by another leader, at times that are not known."""
        self.opened = self.since = now + 1

    def put_off(self, away: int) -> None:
        """Deadlines were moved by *away*."""
        self.opened += away
        self.since += away
        self.late_until += away
        self.late_ack += away
        self.rate.begun += away

    def forget_late(self) -> None:
        """The client is not expected to ack what was taken back."""
        self.late = 0

    def acks(self, runs: Iterable[Run], missing: int, in_flight: int, now: int) -> None:
        """Acks came: for *runs* of the window, of which *in_flight* messages were there before, and for *missing* messages that
        were not in it any more.

        Messages that were sent more than once are not timed, as nobody knows which delivery was acked. Acks while less than
        half of the window is in use say nothing about a larger one.
        """
        count, since, early_from = missing, self.since, now - self.ack_wait // QUICK + self.ack_wait
        used = 2 * in_flight >= self.size
        for first, last, deadline, redeliveries in runs:
            size = last - first + 1
            count += size
            if redeliveries:
                self.late_ack = now
            if used and not redeliveries and deadline - self.ack_wait >= since:
                self.acked += size
                if deadline > early_from:
                    self.early += size
        self.rate.add(count, now)
        if missing:
            self.late_ack = now
        if missing and self.late:
            self.late = max(0, self.late - missing)
            self.late_until = now + self.ack_wait
        if self.acked >= self.size:
            if 10 * self.early >= 9 * self.acked:
                self._grow()
            self.acked = self.early = 0

    def taken_back(self, runs: Iterable[Run], now: int, *, elsewhere: bool = False) -> None:
        """The ack wait of *runs* is over, and they were taken out of the window. *elsewhere*: another member has room.

        A client that is slow acks late. Where only repeats were taken back, and nothing was acked late for a few ack waits, it is
        not slow: it never acks these messages. Then the window grows, lest they fill it for ever and nothing else gets through;
        unless another member has room, and may do better.

        The window is cut at most once per ack wait, as what was sent before a cut does not count: to a half; or, where more is
        late than the client acks in an ack wait, to a half of what it acks, as the rest would wait behind what it has.
        """
        newest, stuck = 0, not elsewhere and now >= self.late_ack + PATIENCE * self.ack_wait
        for run in runs:
            stuck = stuck and run.count > 0
            sent = run.deadline - self.ack_wait
            newest = max(newest, sent)
            if sent >= self.opened:
                self.late = min(self.most, self.late + run.size)
                self.late_until = now + self.ack_wait
        if stuck:
            self._grow()
        elif newest >= self.since:
            acked = self.rate.of_last(now)
            self.size = max(1, (min(self.size, acked) if 0 < acked < self.late else self.size) // 2)
            self.since = now
            self.acked = self.early = 0

    def _grow(self) -> None:
        self.size = min(self.most, self.size + max(1, self.size // GROWTH))

    def give_up(self, now: int) -> bool:
        """True if no late ack came for an ack wait: what was taken back is lost, and its places are free."""
        if not self.late or now < self.late_until:
            return False
        self.late = 0
        return True
