"""The errors of a lake."""

from stan_client.errors import StanClientError


class LakeError(StanClientError):
    """The lake cannot be read or written: it is damaged, belongs to something else, or cannot be reached."""


class TakenOverError(LakeError):
    """The table was taken over by another tierer: this one writes no more to it."""
