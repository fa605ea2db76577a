"""Log lines about what clients send, bounded: each line once a minute, not too many, none too long; lines left out are counted.

A client that can cause one line can cause a million of them. Pure.
"""

from collections.abc import Callable

from stan_protocol.scalars import SECOND

from stan import limits


class Complaints:
    """Writes bounded log lines."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        """*note*: called with level and text to write a line."""
        self._note = note
        self._since = 0
        self._told: set[str] = set()
        self._left_out = 0

    def tell(self, now: int, level: str, line: str | Callable[[], str]) -> None:
        """Write a line at *now*, monotonic ns, unless the same line or too many others were written in this minute. A *line* that
        is a function is made only if there is room for it."""
        self.sum_up(now)
        if len(self._told) >= limits.COMPLAINTS_MAX:
            self._left_out += 1
            return
        if not isinstance(line, str):
            line = line()
        if len(line) > limits.COMPLAINT_CHARS_MAX:
            line = f"{line[: limits.COMPLAINT_CHARS_MAX]}... ({len(line)} characters)"
        if line in self._told:
            self._left_out += 1
            return
        self._told.add(line)
        self._note(level, line)

    def sum_up(self, now: int) -> None:
        """Once the minute is over, write how many lines were left out, and begin the next minute."""
        if now - self._since < 60 * SECOND:
            return
        if self._left_out:
            self._note("WRN", f"{self._left_out} more lines about what clients have sent were left out")
        self._since, self._left_out = now, 0
        self._told.clear()
