"""One leadership of this node over a group: the state that the parts of the broker keep of the group meanwhile.

A Leadership is made when the node begins to lead and dropped as a whole when that ends: the next one begins empty, and no part
of the broker has to clear anything itself.
"""

from typing import Any, TypeVar

Kept = TypeVar("Kept")


class Leadership:
    """The leader's state of one group, one object per class; each part of the broker has a class of its own."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[type, Any] = {}

    def keep(self, kept: object) -> None:
        """Keep an object; it replaces a kept one of the same class."""
        self._kept[type(kept)] = kept

    def kept(self, kind: type[Kept]) -> Kept:
        """The kept object of class *kind*; if there is none, a new one is made and kept."""
        found: Kept | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        return found
