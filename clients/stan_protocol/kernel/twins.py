"""The choice between the two twins of a kernel, the compiled one and the plain one.

Never knows a kernel. Modelled on how structlog and others pair twins: one chooser, no knowledge elsewhere.
"""

import importlib
from os import environ  # the choice belongs to the process and is made once, at import
from types import ModuleType


def choose(compiled: str, twin: ModuleType) -> tuple[str, ModuleType]:
    """The module named *compiled* if it can be imported, fits *twin*'s version and is not forbidden; else *twin*."""
    if environ.get("STAN_KERNEL") != "python":
        try:
            module = importlib.import_module(compiled)
        except ImportError:
            return "python", twin
        if module.KERNEL_VERSION == twin.KERNEL_VERSION:
            return "compiled", module
    return "python", twin
