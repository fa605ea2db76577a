"""Groups that this node cannot serve, with the reasons: a failure freezes a group until a restart, the other groups go on.

A group freezes after a failed write or sync, and after an error of the program in it. A group that only refuses proposals, such
as one with a full disk, is not frozen: it goes on as soon as there is room. Promises that a past refusal is forgotten
within REFUSAL_REMEMBERED, also without publishes, and that this is logged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVarTuple

from stan_protocol.scalars import GroupId, Nanos, RaftIndex, Term, WallNanos

from stan import limits
from stan.core.broker.broker import Broker
from stan.errors import Aborted, NotNow, Shortage, fault
from stan.raft.consensus import Consensus

if TYPE_CHECKING:
    from stan.edge.leadership import Leaderships
    from stan.edge.runtime import Runtime

Parts = TypeVarTuple("Parts")


@dataclass(slots=True)
class LastingRefusal:
    """Proposals of a group that were refused one after the other."""

    why: str
    short: bool  # the node lacks room, open files or memory
    since: WallNanos  # of the first one
    newest: Nanos
    bytes: int  # of the largest one
    looked: Nanos  # time of the last test for room


class GroupFaults:
    """The border of each group: a failure within a group ends there."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        leaderships: "Leaderships | None",
        applied: dict[GroupId, tuple[RaftIndex, Term]],
        note: Callable[[str, str], None],
        clock: "Runtime",
    ) -> None:
        """Watch over *groups*; the arguments are those of stan.edge.driver.Driver."""
        self._broker = broker
        self._groups = groups
        self._leaderships = leaderships
        self._applied = applied
        self._note = note
        self._clock = clock
        self.refusals: dict[GroupId, LastingRefusal] = {}  # of groups that refuse proposals now
        self.voteless: set[GroupId] = set()  # groups in which this node has no vote, as its disk has lost its data
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
        """Freeze a group after a failed write, sync or program: it acknowledges and sends nothing until a restart recovers its
        log."""
        if number not in self._frozen and number in self._groups:
            self._frozen.add(number)
            self.refusals.pop(number, None)
            if self._leaderships is not None:
                self._leaderships.freeze(number, why)
            else:
                self._groups[number].freeze(why)
            self._broker.stops.step_frozen(number)
            self._trouble(number, f"{why}; it does nothing more until a restart")

    def fail(self, number: GroupId, error: Exception) -> None:
        """Freeze a group after a failure of the program: this node takes no part in it until a restart; its other groups go on.

        An entry may be half applied. Without an applied index the group's state is neither flushed nor sent to other nodes."""
        self._applied.pop(number, None)
        if number not in self._groups:
            self._note("ERR", f"group {number}: {fault(error)}, when it had left this node")
            return
        self.freeze(number, fault(error))
        if self._leaderships is not None:
            self._leaderships.leave(number)
        self._broker.stops.step_failed(number, self._groups[number].failed)

    def within(self, number: GroupId, call: Callable[[*Parts], object], *args: *Parts) -> None:
        """Call *call* for a group; an error fails this group only. Raises Aborted, which ends the process."""
        try:
            call(*args)
        except Aborted:
            raise
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.fail(number, error)

    def note_refusal(self, number: GroupId, error: NotNow, size: int) -> None:
        """Note that the group refused proposals of *size* bytes in all: log the reason once, until it has passed or changes."""
        if number in self._frozen:
            return
        why, now, known = str(error), self._clock.now(), self.refusals.get(number)
        if known is not None and known.why == why:
            known.newest, known.bytes = now, max(size, known.bytes)
            return
        since = self._clock.wall() if known is None else known.since
        self.refusals[number] = LastingRefusal(why, isinstance(error, Shortage), since, now, size, now)
        self._trouble(number, why)

    def note_written(self, number: GroupId) -> None:
        """Note that the group has written a proposal. That ends no shortage: a smaller one may have had room."""
        if number in self.refusals and not self.refusals[number].short:
            self._end_refusal(number)

    def look_again(self) -> None:
        """Forget the refusals that have passed. To be called several times a second."""
        now = self._clock.now()
        for number, refusal in list(self.refusals.items()):
            if number not in self._groups:
                del self.refusals[number]
            elif not refusal.short and now - refusal.newest >= limits.REFUSAL_REMEMBERED:
                self._end_refusal(number)
            elif refusal.short and now - refusal.looked >= limits.FULL_DISK_RETRY:
                refusal.looked = now
                if self._groups[number].log.has_room(refusal.bytes):
                    self._end_refusal(number)

    def _end_refusal(self, number: GroupId) -> None:
        del self.refusals[number]
        self._note("INF", f"group {number}: takes publishes again")
        self._broker.emit("trouble", f"group {number}: takes publishes again", group=number)

    def _trouble(self, number: GroupId, why: str) -> None:
        self._note("ERR", f"group {number}: {why}")
        self._broker.emit("trouble", f"group {number}: {why}", group=number)
