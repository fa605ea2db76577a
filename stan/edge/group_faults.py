"""Groups that this node cannot serve, and why: a failure freezes a group until a restart, the other groups go on.

A group freezes after a failed write or sync, and after an error of the program in it. A group that only refuses proposals, such
as one with a full disk, is not frozen: it goes on as soon as a proposal is written.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVarTuple

from stan.core.broker.broker import Broker
from stan.errors import Aborted, fault
from stan.raft.consensus import Consensus
from stan.types import GroupId, RaftIndex, Term

if TYPE_CHECKING:
    from stan.edge.leadership import Leaderships

Parts = TypeVarTuple("Parts")


class GroupFaults:
    """The border of each group: what fails within a group ends there."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        leaderships: "Leaderships | None",
        applied: dict[GroupId, tuple[RaftIndex, Term]],
        note: Callable[[str, str], None],
    ) -> None:
        """Watch over *groups*; the arguments are those of stan.edge.driver.Driver."""
        self._broker = broker
        self._groups = groups
        self._leaderships = leaderships
        self._applied = applied
        self._note = note
        self.refusals: dict[GroupId, str] = {}  # by group: the reason for refusing proposals, as last logged
        self._frozen: set[GroupId] = set()

    @property
    def frozen(self) -> dict[GroupId, str]:
        """Frozen groups and the reason: a failed disk, or a program error in the group. They do nothing until a restart."""
        return {number: group.failed for number, group in self._groups.items() if group.failed}

    def still_frozen(self) -> set[GroupId]:
        """Groups that are frozen now. A group that was replaced by a copy received from another node is not frozen anymore."""
        if self._frozen:
            self._frozen = {number for number in self._frozen if number in self._groups and self._groups[number].failed}
        return self._frozen

    def freeze(self, number: GroupId, why: str) -> None:
        """A write, a sync or the program failed in the group: it acknowledges and sends nothing until a restart recovers its
        log."""
        if number not in self._frozen and number in self._groups:
            self._frozen.add(number)
            self.refusals[number] = why
            if self._leaderships is not None:
                self._leaderships.freeze(number, why)
            else:
                self._groups[number].freeze(why)
            self._broker.freeze(number)
            self._trouble(number, f"{why}; it does nothing more until a restart")

    def fail(self, number: GroupId, error: Exception) -> None:
        """The program failed in a group: this node takes no part in the group until a restart; its other groups go on.

        An entry may be half applied. Without an applied index the group's state is neither flushed nor sent to other nodes."""
        self._applied.pop(number, None)
        if number not in self._groups:
            self._note("ERR", f"group {number}: {fault(error)}, when it had left this node")
            return
        self.freeze(number, fault(error))
        if self._leaderships is not None:
            self._leaderships.leave(number)
        self._broker.fail(number, self._groups[number].failed)

    def within(self, number: GroupId, call: Callable[[*Parts], object], *args: *Parts) -> None:
        """Call *call* for a group; an error fails this group only. Aborted is raised: it ends the process."""
        try:
            call(*args)
        except Aborted:
            raise
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.fail(number, error)

    def note_refusal(self, number: GroupId, why: str) -> None:
        """The group refused proposals: log the reason once, until a proposal is written or the reason changes."""
        if self.refusals.get(number) != why:
            self.refusals[number] = why
            self._trouble(number, why)

    def _trouble(self, number: GroupId, why: str) -> None:
        self._note("ERR", f"group {number}: {why}")
        self._broker.emit("trouble", f"group {number}: {why}", group=number)
