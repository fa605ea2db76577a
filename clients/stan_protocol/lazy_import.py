"""Makes nats-py quick to import: its imports for features that the broker does not use are left out, or wait for their use.

Promises that nothing changes but the time: JetStream is loaded on first use, aiohttp and importlib.metadata can be
imported again afterwards, and nats-py has aiohttp as soon as a connection needs it. Never imports nats-py itself. Old test
harnesses expect an answer of the server half a second after they have started it, and this is a fifth of its start; of a
Python worker of Spark it is a third.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

_UNUSED = ("aiohttp", "importlib.metadata")  # web sockets, and its own version number; nats-py does without either
_PACKAGE, _LATE = "nats", "js"


class _LateModule(ModuleType):
    """Stands for a module until its first use. The standard library's LazyLoader is woken by any import of it."""

    def __getattr__(self, attribute: str) -> object:
        return getattr(import_module(self.__name__), attribute)


@contextmanager
def lazy_nats() -> Iterator[None]:
    """Import nats-py inside of this block."""
    if _PACKAGE in sys.modules:
        yield
        return
    hidden = [name for name in _UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import of it fails
    late = sys.modules[f"{_PACKAGE}.{_LATE}"] = _LateModule(f"{_PACKAGE}.{_LATE}")
    try:
        yield
    finally:
        # Not left there: an import of a module below it would load that one twice, with exceptions that are not the same.
        for name in (*hidden, late.__name__):
            sys.modules.pop(name, None)
        if (package := sys.modules.get(_PACKAGE)) is not None:
            vars(package).setdefault(_LATE, late)


def with_web_sockets(transports: ModuleType) -> None:
    """Give nats-py's module of *transports* aiohttp, for web sockets.

    Raises:
        ImportError: aiohttp is not installed.
    """
    transports.aiohttp = import_module("aiohttp")  # type: ignore[attr-defined]
