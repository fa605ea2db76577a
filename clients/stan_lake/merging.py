"""Chooses small files that are to become one, by their age and size. Pure.

Time is cut into windows, each FAN_IN times as long as those within it. Once a message of a later window is in the lake, the files
of a window become one, or as many as are full. So a message is written again once for each length of window, at most, until its
file is full; what stays is full files, and fewer than FAN_IN for each length of window.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from stan_lake.manifest import DataFile

FAN_IN: Final = 6
"""Windows in the next longer one. More of them: more files, which are written fewer times."""
SHORTEST_S: Final = 0.01
"""For a tierer that lets no message wait."""


def due(files: Sequence[DataFile], target_bytes: int, age_s: float) -> tuple[DataFile, ...]:
    """Return adjacent files that are to become one now; none if no two are.

    Args:
        files: of a table, in order.
        target_bytes: size of the messages in a full file, before compression.
        age_s: seconds of messages in a file of a slow channel.
    """
    for span in _windows(files, age_s):
        newest = files[-1].last_time_ns // span
        for window, group in groupby(files, lambda file: file.last_time_ns // span):  # noqa: B023 - used up at once
            inside = tuple(group)
            # What expires has its file written again each time: the smaller that is, the better.
            if window < newest and not any(file.expires_at_ns for file in inside):
                for together in _fitting(inside, target_bytes):
                    if len(together) > 1:
                        return together
    return ()


def _windows(files: Sequence[DataFile], age_s: float) -> list[int]:
    """Return the lengths of windows that may be over, in ns, the longest first."""
    lengths: list[int] = []
    length = int(FAN_IN * max(age_s, SHORTEST_S) * 1e9)
    while files and files[0].last_time_ns // length < files[-1].last_time_ns // length:
        lengths.insert(0, length)
        length *= FAN_IN
    return lengths


def _fitting(files: Sequence[DataFile], target_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    """Yield *files* in order, as many together as make one that is full."""
    together: list[DataFile] = []
    size = 0
    for file in files:
        if together and size + file.message_bytes > target_bytes:
            yield tuple(together)
            together, size = [], 0
        together.append(file)
        size += file.message_bytes
    yield tuple(together)
