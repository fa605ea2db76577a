"""The subjects in which NATS has interest, as a leafnode connection tells them: exact ones and patterns."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stan import limits

Change = tuple[bool, bytes, bytes]
"""True if there is interest from now on, a subject, and the queue group that listens; b"": listeners of their own."""


@dataclass(slots=True)
class Interest:
    """Subjects with listeners, each with the queue group that listens; b"": listeners of their own."""

    exact: set[tuple[bytes, bytes]] = field(default_factory=set)
    patterns: dict[tuple[bytes, bytes], list[bytes]] = field(default_factory=dict)  # with their tokens

    def change(self, changes: Iterable[Change]) -> None:
        """Note changes in their order; at most LEAF_SUBJECTS_MAX subjects are known."""
        for begins, subject, queue in changes:
            key = subject, queue
            if not begins:
                self.exact.discard(key)
                self.patterns.pop(key, None)
            elif len(self.exact) + len(self.patterns) < limits.LEAF_SUBJECTS_MAX:
                tokens = subject.split(b".")
                if b"*" in tokens or tokens[-1] == b">":
                    self.patterns[key] = tokens
                else:
                    self.exact.add(key)

    def clear(self) -> None:
        """The connection is lost: nothing is known."""
        self.exact.clear()
        self.patterns.clear()

    def has(self, subject: bytes, queue: bytes = b"") -> bool:
        """True if somebody listens to *subject*, as a member of *queue* if one is named."""
        if (subject, queue) in self.exact:
            return True
        patterns = self.patterns
        above = subject.rpartition(b".")[0]
        if (above + b".*", queue) in patterns or (above + b".>", queue) in patterns:  # inboxes, as a rule
            return True
        given = subject.split(b".")
        return any(named == queue and matches(tokens, given) for (_, named), tokens in patterns.items())


def matches(tokens: list[bytes], given: list[bytes]) -> bool:
    """True if a subject, given as tokens, fits a pattern of NATS."""
    if tokens[-1] == b">":
        if len(given) < len(tokens):
            return False
        tokens, given = tokens[:-1], given[: len(tokens) - 1]
    return len(tokens) == len(given) and all(token in (b"*", name) for token, name in zip(tokens, given, strict=True))
