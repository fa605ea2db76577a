"""The shell's needs of PySyncObj: one exact version, and every private name in use (see `library`).

Promises: importing this module fails with a StartError that names the difference, unless the installed library is exactly the
one that the tests and the simulation have run with.
"""

import inspect
from typing import Any, Self

import pysyncobj.syncobj as library
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.syncobj import SyncObj, SyncObjConf
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from stan.alias import alias
from stan.errors import StartError

__all__ = [
    "CANDIDATE",
    "FOLLOWER",
    "LEADER",
    "NO_OP",
    "Journal",
    "Peer",
    "SyncObjConf",
    "Transport",
]

PINNED = "0.3.17"
"""The only version that is known to work inside the shell (0.3.14, which its public repository may show, is not it)."""

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
NO_OP = b"\x01"
"""The command that a new leader appends."""

METHODS = {
    "_SyncObj__applyLogEntries": ["self"],
    "_SyncObj__doApplyCommand": ["self", "command"],
    "_SyncObj__generateRaftTimeout": ["self"],
    "_SyncObj__getCurrentLogIndex": ["self"],
    "_SyncObj__getEntries": ["self", "fromIDx", "count", "maxSizeBytes"],
    "_SyncObj__loadDumpFile": ["self", "clearJournal"],
    "_SyncObj__onBecomeLeader": ["self"],
    "_SyncObj__onMessageReceived": ["self", "node", "message"],
    "_SyncObj__onNodeConnected": ["self", "node"],
    "_SyncObj__onNodeDisconnected": ["self", "node"],
    "_SyncObj__onReadonlyNodeConnected": ["self", "node"],
    "_SyncObj__onReadonlyNodeDisconnected": ["self", "node"],
    "_SyncObj__sendAppendEntries": ["self"],
    "_SyncObj__sendNextNodeIdx": ["self", "node", "reset", "nextNodeIdx", "success"],
    "_SyncObj__setCurrentTerm": ["self", "term", "votedForNodeId"],
    "_SyncObj__setState": ["self", "newState"],
    "_SyncObj__tryLogCompaction": ["self"],
    "_checkCommandsToApply": ["self"],
    "_onTick": ["self", "timeToWait"],
    "transferLeadership": ["self", "node", "callback"],
}
"""Methods that the shell overrides or calls, with their parameters."""

ATTRIBUTES = (
    "_SyncObj__conf",
    "_SyncObj__connectedNodes",
    "_SyncObj__lastResponseTime",
    "_SyncObj__newAppendEntriesTime",
    "_SyncObj__noopIDx",
    "_SyncObj__numOneSecondDumps",
    "_SyncObj__otherNodes",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLeader",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftState",
    "_SyncObj__readonlyNodes",
    "_SyncObj__startTime",
    "_SyncObj__transferInProgress",
    "_poller",
)
"""Attributes that the shell reads or writes; the library's constructor sets them."""


class Peer(int, Node):  # type: ignore[misc] # the library is not typed
    """A node that is compared and hashed as the number that its name spells, hence without a call of a Python function, and with
    the same place in a set in every process, so that a simulated run can be repeated."""

    id: str = alias("_id")

    def __new__(cls, name: str) -> Self:
        """Make the node with that name."""
        return super().__new__(cls, int.from_bytes(name.encode(), "big"))

    def __init__(self, name: str) -> None:
        Node.__init__(self, name)

    __str__ = Node.__str__
    __repr__ = Node.__repr__
    __format__ = object.__format__


def complaints(version: str, owner: type, module: Any) -> list[str]:
    """Return the differences from the shell's needs; empty if there are none."""
    differences = []
    if version != PINNED:
        differences.append(f"pysyncobj {version} is installed, {PINNED} is needed")
    for name, parameters in METHODS.items():
        method = owner.__dict__.get(name)
        if method is None:
            differences.append(f"SyncObj.{name} is missing")
        elif (has := list(inspect.signature(method).parameters)) != parameters:
            differences.append(f"SyncObj.{name} takes {has}, not {parameters}")
    code = getattr(owner.__init__, "__code__", None)  # type: ignore[misc] # only its names are looked at
    names = code.co_names if code else ()
    differences += [f"SyncObj has no attribute {name}" for name in ATTRIBUTES if name not in names]
    differences += [
        f"pysyncobj.syncobj.{name} is missing"
        for name in ("createJournal", "monotonicTime")
        if not hasattr(module, name)
    ]
    return differences


_found = complaints(VERSION, SyncObj, library)
if _found:
    raise StartError("clusters need the PySyncObj that they were proven with: " + "; ".join(_found))
