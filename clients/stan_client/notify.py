"""Callbacks that only tell the program what has happened: plain functions, called in the turn that learned of it."""

import inspect
import logging
from collections.abc import Callable

log = logging.getLogger("stan_client")


def notify(name: str, callback: Callable[..., object], *arguments: object) -> None:
    """Call *callback*, for the log *name*. Whatever it raises is logged; so is an async function, as nobody could await it."""
    try:
        result = callback(*arguments)
        if result is None or not inspect.isawaitable(result):
            return
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("it is not awaited: give a plain function, which may create a task")
    except Exception:
        log.exception("%s failed", name)
