"""Answers to questions that clients make up, remembered within bounds of number and size. Pure."""

from collections.abc import Hashable
from typing import TypeVar

from stan.limits import REMEMBERED_BYTES_MAX, REMEMBERED_MAX

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(dict[Key, Value]):
    """A bounded cache of results; when the bound is reached, the whole cache is cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def remember(self, key: Key, value: Value, size: int) -> Value:
        """Keep *value*, of a key of about *size* bytes."""
        if len(self) >= REMEMBERED_MAX or self._bytes + size > REMEMBERED_BYTES_MAX:
            self.clear()
        if size <= REMEMBERED_BYTES_MAX:
            self[key] = value
            self._bytes += size
        return value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._bytes = 0
