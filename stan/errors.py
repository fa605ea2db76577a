"""Errors of the server, as a small tree: "not now" for a node in trouble, damage on disk, bad settings."""

import errno
from typing import ClassVar, Final

from stan_protocol.refusals import CHANNEL_FROZEN, DISK_FULL, SHORTAGE

FAULT: Final = "the program failed: "
"""With this begins why a group is frozen if it is neither its disk nor its data."""
FAULT_CHARS_MAX: Final = 300
"""Of an exception's text, which may quote what it was about."""
FAULT_CALLS: Final = 5
"""Number of innermost calls reported for an exception."""


class StanError(Exception):
    """Root of all operating errors."""


class NotNow(StanError):
    """The node cannot do it at the moment; nothing was changed and a retry may succeed."""

    told: ClassVar[str] = ""
    """What clients are told in place of the text, which names files of the server; empty: the text."""


class Shortage(NotNow):
    """The system lacks open files or memory for now; the write was taken back whole."""

    told = SHORTAGE


class DiskFull(Shortage):
    """The disk has no room; the write was taken back whole."""

    told = DISK_FULL


class Frozen(NotNow):
    """A write or fsync of this group failed, or the program failed in it; it acknowledges nothing until a restart has verified
    its log."""

    told = CHANNEL_FROZEN


class InDoubt(Frozen):
    """The very write that failed and froze the group: what it carried may or may not be there after a restart."""


class Aborted(StanError):
    """The server must do nothing more and end at once; the text is the last line of its log."""


class LostLock(Aborted):
    """Another server of the fault tolerance group has the store: this one must do nothing more and end."""


class Damage(StanError):
    """The disk gave back something else than was written; the text names file and position."""


class WrongKey(Damage):
    """What the disk gave back is what was written, but with another encryption key than the one that was given."""


class ConfigError(StanError):
    """Settings that cannot work; `complaints` holds all of them, one sentence each."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


class Unanswered(NotNow):
    """Nobody answered a request to the servers in time, or only with "ask again"; the text tells what was said last."""


class Refused(StanError):
    """A request to the servers was refused; the text is that of the answer."""


class StartError(StanError):
    """The server cannot start; the text is the one the original server prints after "Failed to start: "."""


NO_LEADER: Final = "it has no leader"
"""What is wrong with a group that nobody leads, as far as a node knows."""
NO_VOTE: Final = f"{NO_LEADER}, and this node no vote: its disk has lost what it had"
"""The same, where the node has no vote."""


NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors by which no file was opened, so that none was written or synced."""
_SHORTAGES: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), DiskFull),
    **dict.fromkeys((*NO_DESCRIPTOR, errno.ENOMEM, errno.ENOBUFS), Shortage),
}


def shortage(error: BaseException) -> type[Shortage] | None:
    """Return the kind of shortage that an error of the system reports, which passes without a restart; None if it reports
    something else."""
    return _SHORTAGES.get(error.errno or 0) if isinstance(error, OSError) else None


def fault(error: BaseException) -> str:
    """What froze a group, in one line: operating errors speak for themselves, of others their kind and place are told."""
    if isinstance(error, StanError | OSError):
        return str(error)
    calls, at = [], error.__traceback__
    while at is not None:
        calls.append(f"{at.tb_frame.f_code.co_qualname}:{at.tb_lineno}")
        at = at.tb_next
    text = " ".join(str(error).split())[:FAULT_CHARS_MAX]
    return f"{FAULT}{type(error).__name__}: {text} (at {', '.join(calls[-FAULT_CALLS:])})"
