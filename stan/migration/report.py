"""The findings of a migration, channel by channel, with all problems. Values alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

PROBLEMS_MAX = 1000
"""Problems that are reported one by one; further ones are only counted."""

Note = Callable[[str, int, str], None]
"""Takes file, offset and text of something that was not in order."""
NoteRow = Callable[[str, str, str], None]
"""Takes table, key and text of something that was not in order."""


class Problem(NamedTuple):
    """Something that was not in order, in a file at an offset, or in a table in the row of a key."""

    file: str
    offset: int
    text: str
    key: str = ""

    @property
    def place(self) -> str:
        """The place for people."""
        return f"{self.file}: {self.key}" if self.key else f"{self.file}: offset {self.offset}"

    def document(self) -> dict[str, object]:
        """The problem for programs."""
        where = {"table": self.file, "key": self.key} if self.key else {"file": self.file, "offset": self.offset}
        return {**where, "text": self.text}


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

    source: str = ""
    cluster_id: str = ""
    channels: list[ChannelReport] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # remarks, no problems
    hints: list[Problem] = field(default_factory=list)  # what was not in order and costs nothing
    problems: list[Problem] = field(default_factory=list)
    problems_untold: int = 0
    decrypted: bool = False

    def note(self, file: str, offset: int, text: str) -> None:
        """Note a problem in a file."""
        self._add(Problem(file, offset, text))

    def note_row(self, table: str, key: str, text: str) -> None:
        """Note a problem in a table."""
        self._add(Problem(table, 0, text, key))

    def hint(self, file: str, offset: int, text: str) -> None:
        """Note something that was not in order, but costs nothing: the original would write it again, or there is a copy."""
        self._add_hint(Problem(file, offset, text))

    def include(self, part: "MigrationReport", *, harmless: bool) -> None:
        """Include and clear the problems of another report, *part*, as hints if they are *harmless*; its hints stay hints."""
        for hint in part.hints:
            self._add_hint(hint)
        for problem in part.problems:
            (self._add_hint if harmless else self._add)(problem)
        self.problems_untold += 0 if harmless else part.problems_untold
        part.problems, part.problems_untold, part.hints = [], 0, []

    def _add(self, problem: Problem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_untold += 1

    def _add_hint(self, problem: Problem) -> None:
        if len(self.hints) < PROBLEMS_MAX:
            self.hints.append(problem)

    @property
    def problem_count(self) -> int:
        """Number of all problems, including those that are only counted."""
        return len(self.problems) + self.problems_untold

    @property
    def messages(self) -> int:
        """Number of messages of all channels."""
        return sum(channel.messages for channel in self.channels)
