"""The time that one call has, as the caller gives it: a point on the event loop's clock, which all waits of the call share."""

import asyncio


def deadline(timeout_s: float | None) -> float | None:
    """Return when *timeout_s* seconds from now are over, on the event loop's clock; None stays None: the call sets no bound."""
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


def left_s(until: float | None) -> float | None:
    """Return the seconds that are left until a `deadline`, at least 0; None without one."""
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())
