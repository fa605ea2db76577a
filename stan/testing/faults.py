"""The faults of one simulation, drawn from its seed: aimed at the moments around a delivery, where programs have their faults.

How many there are of each kind, how likely and how long they are differs from seed to seed, and a seed may have none.
"""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

from stan.testing.loop import Loop

OF_A_KIND_MAX: Final = 4
"""Faults of one kind in one simulation, acks that are lost aside."""
SOON: Final = (0, 300 * MICROSECOND, 3 * MILLISECOND, 40 * MILLISECOND, SECOND)
"""Bounds of the time between a delivery and the fault that it brings about."""
OUTAGES: Final = (10 * MILLISECOND, 300 * MILLISECOND, 3 * SECOND)
"""Bounds of the time in which the broker is down, or a program has no connection."""
DELAYS: Final = (10 * MILLISECOND, SECOND, 40 * SECOND)
"""Bounds of a delay; the longest are longer than an ack wait of 30 s."""
OFTEN: Final = 0.75
"""Share of the seeds in which faults of a kind happen."""
STEPS: Final = (4, 12, 40)
"""Bounds of the number of awaits of a program, from its first message on, after which it is ended."""


class FaultKinds(Protocol):
    """The kinds of faults that may happen."""

    @property
    def kills(self) -> bool:
        """The broker dies and starts again from its log."""

    @property
    def cuts(self) -> bool:
        """A program loses its connection."""

    @property
    def delays(self) -> bool:
        """The connection of a program is slow, by up to 40 s."""

    @property
    def lost_acks(self) -> bool:
        """Acks of messages do not arrive, so that the messages come again."""

    @property
    def ends(self) -> bool:
        """A program is killed, or cancelled, at one of its awaits, and starts again."""


class FaultPlan:
    """The faults of one kind: their number, and the moments at which they happen."""

    def __init__(self, draw: Random, *, wanted: bool) -> None:
        self._draw = draw
        self._left = draw.randint(1, OF_A_KIND_MAX) if wanted and draw.random() < OFTEN else 0
        self._share = draw.choice((0.02, 0.1, 0.4))

    def strikes(self, share: float = 0) -> bool:
        """Draw whether this moment brings a fault of the kind about, with this probability, 0: that of the plan."""
        if not self._left or self._draw.random() >= (share or self._share):
            return False
        self._left -= 1
        return True


class FaultSchedule:
    """The faults of one simulation."""

    def __init__(self, loop: Loop, kinds: FaultKinds | None) -> None:
        """*kinds*: None: no faults."""
        draw = self._draw = loop.random
        self._loop = loop
        self.active = False
        self.kills = FaultPlan(draw, wanted=kinds is not None and kinds.kills)
        self.cuts = FaultPlan(draw, wanted=kinds is not None and kinds.cuts)
        self.delays = FaultPlan(draw, wanted=kinds is not None and kinds.delays)
        self.ends = FaultPlan(draw, wanted=kinds is not None and kinds.ends)
        lost = draw.choice((0, 0.05, 0.3))
        self._lost_acks = lost if kinds is not None and kinds.lost_acks else 0

    def loses_ack(self) -> bool:
        """Draw whether an ack is lost."""
        return self.active and self._draw.random() < self._lost_acks

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a while, unless peace has come by then."""
        self._loop.after(self._draw.randint(0, self._draw.choice(SOON)), lambda: call() if self.active else None)

    def outage(self) -> int:
        """Draw the length of an outage, ns."""
        return self._draw.randint(MILLISECOND, self._draw.choice(OUTAGES))

    def delay(self) -> int:
        """Draw the length of a delay, ns."""
        return self._draw.randint(MILLISECOND, self._draw.choice(DELAYS))

    def end_after(self) -> int:
        """Draw the number of awaits after which a program is ended; 0: it is not."""
        return self._draw.randint(1, self._draw.choice(STEPS)) if self.active and self.ends.strikes(OFTEN) else 0

    def is_kill(self) -> bool:
        """Draw whether a program that is ended is killed, and does nothing more; else it is cancelled, and may clean up."""
        return self._draw.random() < 0.6
