"""The leafnode connection as the core knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan.core.base.interest import Change, Interest


@dataclass(slots=True)
class LeafState:
    """State of the connection that carries deliveries to consumers, and the interest of NATS."""

    up: bool = False  # there is a connection, with room
    interest: Interest = field(default_factory=Interest)  # of NATS
    followers: list[Callable[[list[Change]], None]] = field(default_factory=list)  # called with changes of the interest

    def change(self, changes: list[Change], *, up: bool, forgotten: bool) -> None:
        """Note how the connection and NATS's interest are now. *forgotten*: all earlier interest counts no more."""
        self.up = up
        if forgotten:
            self.interest.clear()
        self.interest.change(changes)
        for follow in self.followers:
            follow(changes)
