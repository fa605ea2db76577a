"""Clicks on the pages of a shop, some of which arrive late, and the results that the pipeline must publish for them. Pure.

Promises that no event is later than LATE_S, counted from the newest event before it: a watermark of that delay drops none.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

CHANNEL: Final = "clicks"
PAGES: Final = ("home", "search", "product", "basket", "checkout")
LATE_S: Final = 20
LATE_SHARE: Final = 0.1
USERS: Final = 500
WINDOW_S: Final = 10
START: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Click:
    """A click of a user on a page."""

    user: str
    page: str
    at_ms: int  # Unix time

    def message(self) -> bytes:
        """Return the click as a JSON message."""
        return json.dumps({"user": self.user, "page": self.page, "at": iso(self.at_ms)}).encode()


def clicks(seed: int, per_s: float = 100.0, start: float = START) -> Iterator[Click]:
    """Generate clicks without an end, *per_s* in each second of their own time, from *start* (Unix s) on."""
    chance, number = random.Random(seed), 0
    while True:
        at = start + number / per_s
        if chance.random() < LATE_SHARE:
            at = max(start, at - chance.uniform(0, LATE_S))
        user, page = f"user-{chance.randrange(USERS)}", chance.choice(PAGES)
        yield Click(user, page, int(at * 1000))
        number += 1


def messages(seed: int) -> Iterator[bytes]:
    """Generate clicks as messages, without an end."""
    return (click.message() for click in clicks(seed))


def counted(events: Iterable[Click]) -> dict[tuple[str, str], int]:
    """Count *events* by the beginning of their window and their page: the results that the pipeline must publish."""
    return dict(Counter((iso(click.at_ms // (WINDOW_S * 1000) * WINDOW_S * 1000), click.page) for click in events))


def iso(at_ms: int) -> str:
    """Return a time (Unix ms) as pipelines write it in JSON, with microseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
