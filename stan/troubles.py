"""The kinds of trouble that a group can have on a node: how bad each is, whether the node is ready with it, and what helps.

The only place that judges: health checks and `stan.status` read it.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from stan_protocol.scalars import WallNanos


class Severity(IntEnum):
    """How bad something is."""

    FINE = 0
    """Nothing is wrong."""
    NOTE = 1
    """Good to know; nothing has to be done."""
    ATTENTION = 2
    """Nothing fails yet, or it passes within seconds."""
    BROKEN = 3
    """Something is not served."""


class TroubleKind(NamedTuple):
    """A kind of trouble."""

    name: str  # on the wire, in the status of a node
    severity: Severity
    step: str
    ready: bool = False


_LOG: Final = "See the log of that node."
FROZEN: Final = TroubleKind(
    "frozen", Severity.BROKEN, f"{_LOG} Mend the disk, then restart the node: a frozen log needs that."
)
FULL: Final = TroubleKind(
    "full",
    Severity.BROKEN,
    "Make room on its disk, or raise its limit of open files; it heals by itself, without a restart.",
)
REFUSING: Final = TroubleKind(
    "refusing", Severity.ATTENTION, "It passes by itself; if it comes again and again, see the node's log.", ready=True
)
LEADERLESS: Final = TroubleKind(
    "leaderless", Severity.BROKEN, "Start nodes until a majority of its voters is there: stan group list"
)
VOTELESS: Final = TroubleKind(
    "voteless",
    Severity.BROKEN,
    "Start the nodes with their old disks; if these are gone for good, stop all nodes: stan cluster rescue DIRECTORY --dry-run",
)
INCOMPLETE: Final = TroubleKind("incomplete", Severity.ATTENTION, "It is filled by itself: stan group list --watch")
DIFFERS: Final = TroubleKind(
    "differs", Severity.BROKEN, f"{_LOG} Stop the node, move its directory away, start it: it is filled anew."
)
_KINDS: Final = {kind.name: kind for kind in (FROZEN, FULL, REFUSING, LEADERLESS, VOTELESS, INCOMPLETE, DIFFERS)}
_UNKNOWN: Final = TroubleKind("", Severity.BROKEN, _LOG)


def kind_of(name: str) -> TroubleKind:
    """Return the kind of a name; of a node of another version it may be unknown here, and counts as broken then."""
    return _KINDS.get(name, _UNKNOWN)


class Trouble(NamedTuple):
    """What is wrong with a group on a node."""

    kind: TroubleKind
    text: str
    since: WallNanos = WallNanos(0)  # 0: not known
