"""A clock that a test sets."""

from stan_protocol.scalars import SECOND


class Clock:
    """Time in nanoseconds, as a test lets it go on."""

    def __init__(self):
        self.now = 100 * SECOND

    def __call__(self):
        return self.now

    def go(self, seconds):
        self.now += round(seconds * SECOND)
