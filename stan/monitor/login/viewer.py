"""The viewer of the pages, with the rights by which the pages choose the channels that are there for this person. Pure.

Rights are those of requests to the servers: lists need `admin_read`, messages `subscribe`, changes `admin_write`, a publish
`publish`; rights on a channel with parts are those on its parts.
"""

from collections.abc import Callable
from typing import Final

from stan_protocol.channels import whole_of

from stan.permissions import EVERYTHING, Permissions, Right, covers

Rights = Callable[[Right, bytes], bool]
_ALL: Final = EVERYTHING.encode()


class Viewer:
    """A person or program that looks at the pages."""

    def __init__(self, name: str, rights: Rights, *, acts: bool) -> None:
        """*name*: "" for somebody unknown; *rights*: returns True for a right to a channel, or to all that a pattern covers;
        *acts*: may use its rights to change things."""
        self.name = name
        self.acts = acts
        self._rights = rights
        self.sees_all = self.sees(_ALL)
        """Sees nodes, clients, options and figures of the whole cluster, too, which belong to no channel."""

    def sees(self, channel: bytes) -> bool:
        """Return True if the channel, and its durables and queue groups, are there for this viewer."""
        whole = whole_of(channel)
        return self._rights(Right.ADMIN_READ, whole) or self._rights(Right.ADMIN_WRITE, whole)

    def reads(self, channel: bytes) -> bool:
        """Return True if this viewer may read the messages of a channel."""
        return self._rights(Right.SUBSCRIBE, whole_of(channel))

    def changes(self, channel: bytes) -> bool:
        """Return True if this viewer may change a channel, its durables and its limits."""
        return self.acts and self._rights(Right.ADMIN_WRITE, whole_of(channel))

    def publishes(self, channel: bytes) -> bool:
        """Return True if this viewer may publish to a channel."""
        return self.acts and self._rights(Right.PUBLISH, whole_of(channel))

    def redrives(self, channel: bytes) -> bool:
        """Return True if this viewer may put dead letters of a channel back: where they go, only the messages tell."""
        return self.changes(channel) and self.publishes_all

    @property
    def changes_all(self) -> bool:
        """True if this viewer may change clients and leaderships, which belong to no channel."""
        return self.changes(_ALL)

    @property
    def publishes_all(self) -> bool:
        """True if this viewer may publish to any channel."""
        return self.publishes(_ALL)


def everybody(*, acts: bool) -> Viewer:
    """Return the viewer of pages without logins, with all rights; *acts*: changes are switched on."""
    return Viewer("", lambda _right, _channel: True, acts=acts)


def permitted(name: str, permissions: Permissions, *, acts: bool) -> Viewer:
    """Return a user of permissions, with its rights without a client id."""
    return Viewer(name, lambda right, channel: permissions.allows(name, b"", right, channel), acts=acts)


def limited(name: str, patterns: tuple[str, ...], *, acts: bool) -> Viewer:
    """Return a viewer with all rights to the channels of *patterns*, and none to others."""

    def rights(_right: Right, channel: bytes) -> bool:
        text = channel.decode("utf-8", "surrogateescape")
        return any(covers(pattern, text) for pattern in patterns)

    return Viewer(name, rights, acts=acts)
