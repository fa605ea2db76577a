"""The findings of a migration, channel by channel, with all problems. Values alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

PROBLEMS_MAX = 1000
"""Problems that are reported one by one; further ones are only counted."""

Note = Callable[[str, int, str], None]
"""Takes file, offset and text of something that was not in order."""


class Problem(NamedTuple):
    """Something that was not in order."""

    file: str
    offset: int
    text: str


@dataclass(slots=True)
class PositionReport:
    """The report of a durable or a durable queue group."""

    name: str
    client_id: str  # "" for a group
    last_sent: int
    pending: int


@dataclass(slots=True)
class ChannelReport:
    """The report of a channel."""

    name: str
    messages: int = 0
    first: int = 0
    last: int = 0
    bytes: int = 0  # of the messages as they are stored
    lost: int = 0  # messages that must have been there
    positions: list[PositionReport] = field(default_factory=list)
    subscriptions_ended: int = 0  # of no durable: they end with their client
    problems: int = 0


@dataclass(slots=True)
class MigrationReport:
    """The report of a migration."""

    directory: str
    cluster_id: str = ""
    channels: list[ChannelReport] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # remarks, no problems
    hints: list[Problem] = field(default_factory=list)  # what was not in order and costs nothing
    problems: list[Problem] = field(default_factory=list)
    problems_untold: int = 0
    decrypted: bool = False

    def note(self, file: str, offset: int, text: str) -> None:
        """Note a problem."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(file, offset, text))
        else:
            self.problems_untold += 1

    def hint(self, file: str, offset: int, text: str) -> None:
        """Note something that was not in order, but costs nothing: the original would write it again, or there is a copy."""
        if len(self.hints) < PROBLEMS_MAX:
            self.hints.append(Problem(file, offset, text))

    def include(self, part: "MigrationReport", *, harmless: bool) -> None:
        """Include and clear the problems of another report, *part*, as hints if they are *harmless*; its hints stay hints."""
        for hint in part.hints:
            self.hint(*hint)
        for problem in part.problems:
            (self.hint if harmless else self.note)(*problem)
        self.problems_untold += 0 if harmless else part.problems_untold
        part.problems, part.problems_untold, part.hints = [], 0, []

    @property
    def problem_count(self) -> int:
        """Number of all problems, including those that are only counted."""
        return len(self.problems) + self.problems_untold

    @property
    def messages(self) -> int:
        """Number of messages of all channels."""
        return sum(channel.messages for channel in self.channels)
