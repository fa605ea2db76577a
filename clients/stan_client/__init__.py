"""Asyncio client of the STAN protocol: publish with acks, subscribe with flow control, read channels without a subscription,
and recover the session after a loss.

client = await stan_client.connect(client_id="me")
await client.publish("orders", b"one")
async for message in await client.subscribe("orders", start=stan_client.everything()):
    print(message.sequence, message.data)
async for message in client.read("orders"):  # without a subscription, to the end
    print(message.sequence, message.data)

Importing this package loads nothing: its attributes, and its modules, are loaded when they are first used, so that a program
which only reads does not load what publishes. The stub `__init__.pyi` says in which module each attribute is, for this file and
for type checkers.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pkgutil import get_data
from typing import Any

_STUB = (get_data(__name__, "__init__.pyi") or b"").decode()
_WHERE = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", _STUB, re.MULTILINE)}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - as the stub has them


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        attribute = globals()[name] = getattr(import_module(_WHERE[name]), name)
        return attribute
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
