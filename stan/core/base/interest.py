"""The subjects in which NATS has interest, as a leafnode connection tells them: exact ones and patterns."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stan import limits

TOKENS_TRIED_MAX: Final = 6
"""Up to so many tokens of a subject all patterns that fit it are tried, which are twice as many for each token."""

Change = tuple[bool, bytes, bytes]
"""True if there is interest from now on, a subject, and the queue group that listens; b"": listeners of their own."""


@dataclass(slots=True)
class Interest:
    """Subjects with listeners, each with the queue group that listens; b"": listeners of their own."""

    exact: set[tuple[bytes, bytes]] = field(default_factory=set)
    patterns: dict[tuple[bytes, bytes], list[bytes]] = field(default_factory=dict)  # with their tokens
    groups: dict[bytes, set[bytes]] = field(default_factory=dict)  # the queue groups of exact subjects

    def change(self, changes: Iterable[Change]) -> None:
        """Note changes in their order; at most LEAF_SUBJECTS_MAX subjects are known."""
        for begins, subject, queue in changes:
            key = subject, queue
            if not begins:
                self._end(key)
            elif len(self.exact) + len(self.patterns) < limits.LEAF_SUBJECTS_MAX:
                tokens = subject.split(b".")
                if b"*" in tokens or tokens[-1] == b">":
                    self.patterns[key] = tokens
                else:
                    self.exact.add(key)
                    if queue:
                        self.groups.setdefault(subject, set()).add(queue)

    def _end(self, key: tuple[bytes, bytes]) -> None:
        self.patterns.pop(key, None)
        self.exact.discard(key)
        subject, queue = key
        groups = self.groups.get(subject)
        if groups is not None:
            groups.discard(queue)
            if not groups:
                del self.groups[subject]

    def clear(self) -> None:
        """The connection is lost: nothing is known."""
        self.exact.clear()
        self.patterns.clear()
        self.groups.clear()

    def groups_of(self, subject: bytes) -> bytes:
        """The queue groups that listen to *subject* itself, with spaces between them."""
        return b" ".join(sorted(self.groups.get(subject, ())))

    def has(self, subject: bytes, queue: bytes = b"") -> bool:
        """True if somebody listens to *subject*, as a member of *queue* if one is named. Cost: that of the subject's tokens, as
        long as it has few; there may be a pattern for each connection."""
        if (subject, queue) in self.exact:
            return True
        patterns, given = self.patterns, subject.split(b".")
        if len(given) > TOKENS_TRIED_MAX:
            return any(named == queue and matches(tokens, given) for (_, named), tokens in patterns.items())
        heads = [b""]
        for token in given:
            if any((head + b">", queue) in patterns for head in heads):
                return True
            heads = [head + one for head in heads for one in (token + b".", b"*.")]
        return any((head[:-1], queue) in patterns for head in heads)


def matches(tokens: list[bytes], given: list[bytes]) -> bool:
    """True if a subject, given as tokens, fits a pattern of NATS."""
    if tokens[-1] == b">":
        if len(given) < len(tokens):
            return False
        tokens, given = tokens[:-1], given[: len(tokens) - 1]
    return len(tokens) == len(given) and all(token in (b"*", name) for token, name in zip(tokens, given, strict=True))
