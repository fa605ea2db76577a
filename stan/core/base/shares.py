"""What is apart by user: shares of rooms that all users have together, and names of which each user has its own. Pure.

A user may have half of what the others leave: the first one half of a room, the second half of the rest, and who comes later
finds room, too. Where no users are known (b"") all are one, and have all of it.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Shares:
    """What is taken of one room, in all and by each user."""

    used: int = 0  # by all together
    by_user: dict[bytes, int] = field(default_factory=dict)

    def add(self, user: bytes, count: int) -> None:
        """A user takes *count* more; negative: gives them back."""
        self.used += count
        self.by_user[user] = self.by_user.get(user, 0) + count
        if not self.by_user[user]:
            del self.by_user[user]

    def of(self, user: bytes) -> int:
        """What a user has taken."""
        return self.by_user.get(user, 0)

    def left(self, user: bytes, bound: int) -> int:
        """How many more a user may take of a room for *bound*; negative if the share was larger before."""
        return share_left(user, bound, self.used, self.of(user))


def share_left(user: bytes, bound: int, used: int, own: int) -> int:
    """As `Shares.left`, of a room of which all together use *used*, the user *own* of these."""
    most = bound - (used - own)
    return (most // 2 if user else most) - own


def of_user(user: bytes, name: bytes) -> bytes:
    """A user's *name* (of a producer, a named position, a consumer group) among those of all users; itself without a user."""
    return b"%b\0%b" % (user, name) if user else name


def of_whom(name: bytes) -> tuple[bytes, bytes]:
    """The inverse of `of_user`: user and name."""
    user, found, own = name.partition(b"\0")
    return (user, own) if found else (b"", name)
