"""Clocks that are set by an hour while a world runs: for what waits for a time, or goes when one has come."""

from stan_protocol.scalars import SECOND

HOUR = 3600 * SECOND


class ClockSet:
    """Put before a world."""

    def __init__(self, seed):
        super().__init__(seed)
        self.history.tells_causes = False  # times in the log are those of clocks that are set

    def _plan_faults(self, end):
        super()._plan_faults(end)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            at = self.random.randint(self.loop.now, end)
            self.faults.append((at, "clock"))
            self.loop.at(at, self._set_clock, self.random.choice((-HOUR, HOUR)))

    def _set_clock(self, by):
        self.history.cause(self.loop.now, self.loop.now + SECOND, "clock set")
        self.loop.wall_offset += by
