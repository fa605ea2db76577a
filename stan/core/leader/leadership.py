"""One leadership of this node over a group: the leader's parts of the broker for this group, and what they know.

A Leadership is made when the node begins to lead and dropped as a whole when that ends: the next one begins empty, and no part
of the broker has to clear anything itself.
"""

from typing import Any, TypeVar

from stan_protocol.scalars import GroupId

Kept = TypeVar("Kept")


class Leadership:
    """What there is of one group while this node leads it, one object per class."""

    __slots__ = ("_kept", "ended", "group")

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.ended = False
        """True once this node no longer leads the group: callbacks that come then have nothing to do."""
        self._kept: dict[type, Any] = {}

    def keep(self, kept: object) -> None:
        """Keep an object; it replaces a kept one of the same class."""
        self._kept[type(kept)] = kept

    def part(self, kind: type[Kept]) -> Kept:
        """The part of class *kind*, which was made with the leadership.

        Raises:
            KeyError: there is none.
        """
        part: Kept = self._kept[kind]
        return part

    def kept(self, kind: type[Kept]) -> Kept:
        """The kept object of class *kind*; if there is none, a new one is made and kept."""
        found: Kept | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        return found
