"""The batch kernel of the server: the compiled twin if it is there and of the same version, else the plain one.

Promises the contract that server_py.py states, whichever runs; NAME is the running one. STAN_KERNEL=python in the environment
selects the plain one. Has no state.
"""

from typing import TYPE_CHECKING

from stan_protocol.kernel.rows import seal, slots
from stan_protocol.kernel.twins import choose
from stan_protocol.parted import NO_SLOT, SLOTS

from stan.protocol.kernel import server_py
from stan.protocol.kernel.server_py import (
    Assigned,
    HoldLimits,
    OpenWindows,
    SlotTables,
    number,
    refuse,
    select,
)

__all__ = [
    "NAME",
    "NO_SLOT",
    "SLOTS",
    "Assigned",
    "HoldLimits",
    "OpenWindows",
    "SlotTables",
    "assign",
    "assign_again",
    "by_sender",
    "disjoint",
    "divide",
    "flat",
    "frames",
    "joined",
    "leaf_frames",
    "merged",
    "noted",
    "number",
    "refuse",
    "scan",
    "seal",
    "select",
    "settle",
    "shared",
    "slots",
    "stream_acks",
    "take",
]


NAME, _module = choose("_stan_kernel", server_py)

if TYPE_CHECKING:
    from stan.protocol.kernel.server_py import (
        assign,
        assign_again,
        by_sender,
        disjoint,
        divide,
        flat,
        frames,
        joined,
        leaf_frames,
        merged,
        noted,
        scan,
        settle,
        shared,
        stream_acks,
        take,
    )
else:
    scan = _module.scan
    by_sender = _module.by_sender
    frames = _module.frames
    divide = _module.divide
    assign = _module.assign
    assign_again = _module.assign_again
    settle = _module.settle
    take = _module.take
    shared = _module.shared
    joined = _module.joined
    leaf_frames = _module.leaf_frames
    flat = _module.flat
    merged = _module.merged
    disjoint = _module.disjoint
    noted = _module.noted
    stream_acks = _module.stream_acks
