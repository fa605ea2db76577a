"""The leafnode connections as the core knows them: one, or with users one into the account of each."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan.core.base.interest import Change, Interest


@dataclass(slots=True)
class LeafState:
    """State of a connection that carries deliveries to consumers, and the interest of NATS."""

    user: bytes = b""  # whose account it leads to; b"": there are no users
    up: bool = False  # there is a connection, with room
    interest: Interest = field(default_factory=Interest)  # of NATS

    def change(self, changes: list[Change], *, up: bool, forgotten: bool) -> None:
        """Note how the connection and NATS's interest are now. *forgotten*: all earlier interest counts no more."""
        self.up = up
        if forgotten:
            self.interest.clear()
        self.interest.change(changes)


@dataclass(slots=True)
class LeafStates:
    """The states of all connections."""

    by_user: dict[bytes, LeafState] = field(default_factory=dict)
    followers: list[Callable[[LeafState, list[Change]], None]] = field(
        default_factory=list
    )  # called with a state that has changed, and changes of the interest
    apart: bool = False  # each user has a connection

    def of(self, user: bytes) -> LeafState:
        """The connection by which the consumers of a user get their messages; without users the only one."""
        name = user if self.apart else b""
        found = self.by_user.get(name)
        if found is None:
            found = self.by_user[name] = LeafState(name)
        return found

    def change(self, user: bytes, changes: list[Change], *, up: bool, forgotten: bool) -> None:
        """Note how a connection and NATS's interest are now; see `LeafState.change`."""
        state = self.of(user)
        state.change(changes, up=up, forgotten=forgotten)
        for follow in self.followers:
            follow(state, changes)
