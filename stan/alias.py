"""Attributes that stand for others, read without a call of a Python function: for what is read many times for each message."""

from operator import attrgetter
from typing import Any


def alias(path: str) -> Any:
    """Return an attribute for a class: it stands for the one with that *path* from the object on (`a` or `a.b.c`).

    It can be set if the path is a single name."""
    return property(attrgetter(path), None if "." in path else lambda self, value: setattr(self, path, value))
