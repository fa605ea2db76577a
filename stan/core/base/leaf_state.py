"""The leafnode connection as the core knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan.core.base.interest import Change, Interest


@dataclass(slots=True)
class LeafState:
    """Whether deliveries of consumers can leave, and to whom."""

    up: bool = False  # there is a connection, with room
    interest: Interest = field(default_factory=Interest)  # of NATS
    followers: list[Callable[[list[Change]], None]] = field(default_factory=list)  # called with changes of the interest

    def change(self, changes: list[Change], *, up: bool, forgotten: bool) -> None:
        """What has become of the connection, and of NATS's interest. *forgotten*: what was known before is not true any more."""
        self.up = up
        if forgotten:
            self.interest.clear()
        self.interest.change(changes)
        for follow in self.followers:
            follow(changes)
