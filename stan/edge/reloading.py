"""Reloading: hands new settings from the code that reads them to the node that applies them, even if it starts later."""

from collections.abc import Callable

from stan.config import Config

Apply = Callable[[Config], None]
"""Applies the settings that can change while the server runs."""


class Reloading:
    """Holds the newest settings for the node. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._apply: Apply | None = None
        self._newest: Config | None = None

    def attach(self, apply: Apply) -> None:
        """Call *apply* with new settings from now on, and at once with the newest if there are any."""
        self._apply = apply
        if self._newest is not None:
            apply(self._newest)

    def detach(self) -> None:
        """Apply no settings from now on."""
        self._apply = None

    def update(self, config: Config) -> None:
        """Apply changed settings, now or once a node is attached."""
        self._newest = config
        if self._apply is not None:
            self._apply(config)
