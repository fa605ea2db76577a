"""A place in a stream of channels, as Spark's checkpoint keeps it.

    {"*inc": {"orders": 7}, "*init": {"orders": 1}, "orders": 4711}

Per channel the next sequence to be read; where reading of it began; and the uid that tells it from a channel of the same name
made after it was deleted. No channel's name holds a `*`. Promises: equal places are equal JSON (Spark compares the text, and
runs empty batches for ever where the order of keys changes); nothing but the place itself decides what a batch holds, so that
one that is repeated holds the same.

Why the beginning travels along: Spark writes down where a batch ends before it runs, but never where the first one begins.
After a crash in it, it asks again, and "latest" is another place by then.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from stan_client.requests import ChannelInfo

from pyspark_stan.options import EARLIEST, LATEST, SEQUENCE_MAX, ReadBound

SequenceAt = Callable[[str, int], int]
"""The sequence of a channel's first message at or after a time (Unix ns); behind the newest if there is none."""
INITIAL: Final = "*init"
INCARNATIONS: Final = "*inc"


class DataLossError(RuntimeError):
    """Messages that should be read no longer exist."""


class Offset(NamedTuple):
    """See the module's docstring."""

    positions: Mapping[str, int]
    initial: Mapping[str, int]
    incarnations: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """For Spark, which turns it into text as it is."""
        nested = {INITIAL: _sorted(self.initial), INCARNATIONS: _sorted(self.incarnations)}
        return dict(sorted({**self.positions, **nested}.items()))


class Range(NamedTuple):
    """Messages of a channel: [first, end)."""

    channel: str
    uid: int  # 0: not known
    first: int
    end: int


def from_json(said: Mapping[str, Any]) -> Offset:
    """Parse the result of `to_json`. Raises ValueError: it has another form."""
    positions = {channel: value for channel, value in said.items() if channel not in (INITIAL, INCARNATIONS)}
    if INITIAL not in said or not all(isinstance(value, int) for value in positions.values()):
        raise ValueError(f"stan: the checkpoint holds no offset of this source: {said}")
    return Offset(positions, dict(said[INITIAL]), dict(said.get(INCARNATIONS, {})))


def _sorted(values: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(values.items()))


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """What a batch holds. Where *start* does not know the channel of *end*, or knows another beginning or another channel of that
    name, it begins where *end* says."""
    found = []
    for channel, stop in sorted(end.positions.items()):
        uid = end.incarnations.get(channel, 0)
        first = end.initial[channel]
        same = start.incarnations.get(channel) in (None, uid)
        if same and channel in start.positions and start.initial[channel] == first:
            first = start.positions[channel]
        if first < stop:
            found.append(Range(channel, uid, first, stop))
    return found


def oldest(info: ChannelInfo | None) -> int:
    """Return the sequence at which a channel begins."""
    return max(info.first, 1) if info else 1


def behind(info: ChannelInfo | None) -> int:
    """Return the sequence of a channel's next message. Raises OverflowError: too large for a number in Spark."""
    last = info.last if info else 0
    if last >= SEQUENCE_MAX:
        raise OverflowError(f"stan: the sequences of channel {info and info.name} are larger than Spark's long")
    return last + 1


class Resolver:
    """Turns what the user has said of a beginning or an end into sequences."""

    def __init__(self, infos: Mapping[str, ChannelInfo], sequence_at: SequenceAt) -> None:
        self._infos = infos
        self._sequence_at = sequence_at

    def resolve(self, channels: Iterable[str], place: ReadBound, option: str) -> tuple[dict[str, int], list[str]]:
        """Sequences by channel, and complaints."""
        found: dict[str, int] = {}
        complaints: list[str] = []
        for channel in sorted(channels):
            info = self._infos.get(channel)
            time_ns = place.times_ns.get(channel, place.time_ns)
            said = place.sequences.get(channel, place.default)
            if time_ns:
                found[channel] = self._sequence_at(channel, time_ns) if info else 1
                if found[channel] >= behind(info) and not place.latest_if_later:
                    complaints.append(
                        f"{option}: {channel} has no message of that time or later "
                        "(startingOffsetsByTimestampStrategy=latest waits for one)"
                    )
            elif said == EARLIEST:
                found[channel] = oldest(info)
            elif said == LATEST:
                found[channel] = behind(info)
            else:
                found[channel] = min(max(said, 1), behind(info))
                if said > behind(info):
                    complaints.append(f"{option}: {channel} ends at {behind(info)}, before {said}")
        return found, complaints
