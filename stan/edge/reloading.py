"""New settings for a server that runs: from whoever reads them to whoever heeds them, also if that one is not there yet."""

from collections.abc import Callable

from stan.config import Config

Apply = Callable[[Config], None]
"""Takes over what of a configuration can change while the server runs."""


class Reloading:
    """A place to leave the newest settings at. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._apply: Apply | None = None
        self._newest: Config | None = None

    def attach(self, apply: Apply) -> None:
        """*apply* is told of new settings from now on, and at once of those that have come already."""
        self._apply = apply
        if self._newest is not None:
            apply(self._newest)

    def detach(self) -> None:
        """Nobody heeds them any more."""
        self._apply = None

    def tell(self, config: Config) -> None:
        """Settings have changed."""
        self._newest = config
        if self._apply is not None:
            self._apply(config)
