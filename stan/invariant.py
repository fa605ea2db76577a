"""Stops what is wrong, where the program is wrong.

An operating error (bad input, full disk, lost peer) is handled; a broken invariant is not: code that is wrong can only be
stopped. What stops is as small as it can be told: the group that it was broken in takes part in nothing until a restart, and
the others go on; where no group can be told it is the process. Model: TigerBeetle's assertions, which stay on in production.
"""


class InvariantError(RuntimeError):
    """A promise the program makes to itself was broken; caught at the border of a group alone, which is frozen by it."""


def invariant(condition: bool, text: str, **numbers: object) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise InvariantError with every number in the text unless *condition* holds."""
    if not condition:
        raise broken(text, **numbers)


def broken(text: str, **numbers: object) -> InvariantError:
    """The error of an invariant, with every number in the text; for `if …: raise` where each message passes."""
    shown = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
    return InvariantError(f"{text} ({shown})" if shown else text)
