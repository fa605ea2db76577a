"""Time as a running server sees it."""

import time

from stan.edge import runtime


async def test_time_goes_on_while_the_machine_sleeps(monkeypatch):
    asked = []
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: asked.append(clock) or 7)
    assert runtime.Ticker().now() == 7
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
