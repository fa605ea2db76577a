"""This node's time as the leader of one group: what the parts of the broker keep of the group meanwhile.

Made when the leadership begins, and dropped whole when it ends: the next one begins with nothing, and no part has to be told of
the end of it to forget.
"""

from typing import Any, TypeVar

Kept = TypeVar("Kept")


class Leadership:
    """See the module's docstring. Each part of the broker has a class of its own for what it keeps."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[type, Any] = {}

    def keep(self, kept: object) -> None:
        """Keep something, in the place of its class."""
        self._kept[type(kept)] = kept

    def kept(self, kind: type[Kept]) -> Kept:
        """What is kept of a class; at first a new one, which has nothing in it."""
        found: Kept | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        return found
