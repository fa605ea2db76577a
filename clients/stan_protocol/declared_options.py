"""Options declared with their values: a field of a dataclass names the option that fills it; pure.

A reader converts an option's text to the field's type, and gathers mistakes, with their places, instead of raising.
Values that depend on several options are set where the object is made.
"""

from dataclasses import field, fields
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class OptionSource(Protocol):
    """Values of options by their names."""

    def option(self, kind: Any, name: str, default: Any, *bounds: int) -> object:
        """Return the option as a *kind*, a number within *bounds*; *default* if it is not given or wrong."""


def option(name: str, default: T, *bounds: int, shown: bool = True) -> T:
    """A field that is the option *name*, and without a reader *default*; not *shown*: left out of the repr."""
    return field(default=default, repr=shown, metadata={"option": (name, bounds)})


def filled(of: type[T], reader: OptionSource, **others: Any) -> T:
    """Make an *of*: fields from *others*, and all other fields that are options from *reader*."""
    for each in fields(of):  # type: ignore[arg-type] # a dataclass
        if each.name not in others and "option" in each.metadata:
            name, bounds = each.metadata["option"]
            others[each.name] = reader.option(each.type, name, each.default, *bounds)
    return of(**others)
