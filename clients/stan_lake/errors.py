"""The errors of a lake."""

from collections.abc import Iterator
from contextlib import contextmanager

from stan_client.errors import StanClientError


class LakeError(StanClientError):
    """The lake cannot be read or written: it is damaged, belongs to something else, or cannot be reached."""


class TakenOverError(LakeError):
    """The table was taken over by another tierer: this one writes no more to it."""


@contextmanager
def naming(location: str) -> Iterator[None]:
    """Name the data file at *location* in the error that pyarrow raises, which becomes a LakeError; not so FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, OSError, TypeError, KeyError, NotImplementedError) as error:
        first_line = str(error).partition("\n")[0]
        raise LakeError(f"{location} cannot be read: {first_line}") from None
