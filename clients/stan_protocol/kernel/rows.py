"""The rows kernel: the compiled twin if it is there and of the same version, else the plain one.

Promises the contract that rows_py.py states, whichever runs; NAME says which. STAN_KERNEL=python in the environment
asks for the plain one. Never holds anything of its own.
"""

from typing import TYPE_CHECKING

from stan_protocol.kernel import rows_py
from stan_protocol.kernel.rows_py import ID_BYTES, Buffer, Columns, Headers
from stan_protocol.kernel.twins import choose

__all__ = [
    "ID_BYTES",
    "NAME",
    "Buffer",
    "Columns",
    "Headers",
    "IdSet",
    "behind",
    "check_rows",
    "columns",
    "digests",
    "pack_rows",
    "pick_ids",
    "pick_rows",
    "seal",
    "slots",
]

NAME, _module = choose("_stan_rows_kernel", rows_py)

if TYPE_CHECKING:
    from stan_protocol.kernel.rows_py import (
        IdSet,
        behind,
        check_rows,
        columns,
        digests,
        pack_rows,
        pick_ids,
        pick_rows,
        seal,
        slots,
    )
else:
    IdSet = _module.IdSet
    behind = _module.behind
    check_rows = _module.check_rows
    columns = _module.columns
    digests = _module.digests
    pack_rows = _module.pack_rows
    pick_ids = _module.pick_ids
    pick_rows = _module.pick_rows
    seal = _module.seal
    slots = _module.slots
