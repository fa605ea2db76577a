"""Servers of one cluster id that share the channels among them: which of them are this server's (STAN-SPEC 11). Pure.

The others' channels belong to ELSEWHERE, a group that nobody leads here: requests for them are neither answered nor refused.
"""

from collections.abc import Iterable

from stan_protocol.patterns import ONE, REST, matches
from stan_protocol.scalars import GroupId

from stan.remembered import Remembered

ELSEWHERE = GroupId(-1)
"""The group of the channels of other servers."""


class Partition(Remembered[bytes, bool]):
    """Whether a channel is this server's, by name; remembers what it was asked, as the kernel asks for every batch."""

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__()
        self.patterns = tuple(sorted(patterns))

    def __missing__(self, channel: bytes) -> bool:
        name = channel.decode("utf-8", "surrogateescape")
        return self.remember(channel, any(matches(pattern, name) for pattern in self.patterns), len(channel))

    def cover(self) -> str:
        """The narrowest subject that all its channels fit."""
        split = [pattern.split(".") for pattern in self.patterns]
        found = []
        for place in range(max(map(len, split), default=0)):
            tokens = {tokens[place] if place < len(tokens) else REST for tokens in split}
            if REST in tokens:
                break
            found.append(tokens.pop() if len(tokens) == 1 else ONE)
        else:
            return ".".join(found)
        if any(len(tokens) == len(found) for tokens in split):  # `a` and `a.b`: `a.>` would not cover the first
            return REST if len(found) == 1 else ".".join([*found[:-1], REST])
        return ".".join([*found, REST])


def conflict(mine: Iterable[str], theirs: Iterable[str]) -> str | None:
    """The first of *theirs* that also one of *mine* covers, or is covered by."""
    mine = tuple(mine)
    return next((name for name in theirs if any(matches(own, name) or matches(name, own) for own in mine)), None)
