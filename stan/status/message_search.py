"""The search of messages by their contents, keys and headers: its conditions, and its bounds; pure.

For the command line, which reads with a client, and for the dashboard, which reads with requests of its node.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

UNBOUNDED: Final = 1 << 62


class SearchedMessage(Protocol):
    """A message, as conditions look at it."""

    @property
    def data(self) -> bytes:
        """The payload."""

    @property
    def key(self) -> bytes:
        """The key; b"" without one."""

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers, by their names."""


Condition = Callable[[SearchedMessage], bool]


class BadConditionError(ValueError):
    """A condition cannot be understood; the text is for the person who wrote it."""


def has_text(text: str, *, ignore_case: bool) -> Condition:
    """Return the condition that *text* is in the data, as it is written."""
    return has_pattern(re.escape(text), ignore_case=ignore_case)


def has_pattern(pattern: str, *, ignore_case: bool) -> Condition:
    """Return the condition that a regular expression of Python fits somewhere in the data. It may need very long for some data.
    Raises BadConditionError."""
    try:
        read = re.compile(_raw(pattern), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise BadConditionError(str(error)) from None
    return lambda message: read.search(message.data) is not None


def has_key(key: str) -> Condition:
    """Return the condition that a message has this key."""
    wanted = _raw(key)
    return lambda message: message.key == wanted


def has_header(text: str) -> Condition:
    """Return the condition of `NAME` or `NAME=VALUE`: there is such a header. Raises BadConditionError."""
    name, equals, value = text.partition("=")
    if not name:
        raise BadConditionError(f"{text!r} is not NAME or NAME=VALUE")
    content = _raw(value) if equals else None

    def condition(message: SearchedMessage) -> bool:
        found = message.headers.get(name)
        return found is not None and content in (None, found)

    return condition


class SearchTally:
    """The counts of a search in progress, and its bounds."""

    def __init__(
        self, conditions: Sequence[Condition], *, matches_max: int, messages_max: int, bytes_max: int = UNBOUNDED
    ) -> None:
        """*matches_max*, *messages_max*, *bytes_max*: the search ends before a message once it has so many matches, or has looked
        at so many messages, or bytes of data."""
        self._conditions = tuple(conditions)
        self._matches_max = matches_max
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.matches = 0
        self.messages = 0
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """True if a bound is reached."""
        return self.matches >= self._matches_max or self.messages >= self._messages_max or self.bytes >= self._bytes_max

    def add(self, message: SearchedMessage) -> bool:
        """Count a message; returns True if all conditions hold for it."""
        self.messages += 1
        self.bytes += len(message.data)
        if not all(condition(message) for condition in self._conditions):
            return False
        self.matches += 1
        return True


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
