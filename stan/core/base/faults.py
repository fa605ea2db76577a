"""Program errors in a group: the group is frozen, and the others continue."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from stan_protocol.scalars import GroupId

Parts = TypeVarTuple("Parts")
Result = TypeVar("Result")


class Faults:
    """Program errors since the last Ready, by group."""

    __slots__ = ("new",)

    def __init__(self) -> None:
        self.new: list[tuple[GroupId, Exception]] = []

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
