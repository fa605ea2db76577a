"""Program errors in a group: the group is frozen, and the others continue."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, TypeVarTuple

from stan_protocol.scalars import GroupId

Parts = TypeVarTuple("Parts")
Result = TypeVar("Result")


class OfGroup(Protocol):
    """Something of one group, as a channel."""

    @property
    def group(self) -> GroupId:
        """The group."""


Item = TypeVar("Item", bound=OfGroup)


class Faults:
    """The border of each group: program errors end there."""

    __slots__ = ("faulty", "new")

    def __init__(self) -> None:
        self.new: list[tuple[GroupId, Exception]] = []
        """Since the last Ready, by group."""
        self.faulty: dict[GroupId, str] = {}
        """Groups that are frozen until a restart, and why."""

    def fail(self, group: GroupId, error: Exception) -> None:
        """The program failed in a group: the group is frozen, if this node still holds it, and the others continue."""
        self.new.append((group, error))

    def within(self, group: GroupId, call: Callable[[*Parts], Result], *args: *Parts) -> Result | None:
        """Call something on behalf of a group; if the call raises, only this group fails, and the result is None."""
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.fail(group, error)
            return None

    def bound(self, group: GroupId, call: Callable[[*Parts], Result]) -> Callable[[*Parts], Result | None]:
        """Return a function that calls *call* on behalf of a group, for somebody who calls it later."""

        def later(*args: *Parts) -> Result | None:
            return self.within(group, call, *args)

        return later

    def each(self, call: Callable[[Item], object], items: Iterable[Item]) -> list[Item]:
        """Call *call* with each of *items*, on behalf of the item's group; returns those for which the result was true."""
        return [item for item in items if self.within(item.group, call, item)]
