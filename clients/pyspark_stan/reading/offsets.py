"""The offset of a stream of channels, as Spark stores it in the checkpoint.

    {"*cluster": "0b5f...", "*inc": {"orders": 7}, "*init": {"orders": 1}, "*read": [1796034188046], "*tasks": 4,
     "orders": 4711}

For each channel it has the next sequence to read, the sequence at which reading began (*init), and the channel's uid (*inc),
which differs for a channel of the same name that was made after the first was deleted; the identity of the cluster whose channels
they are (*cluster), which a server that was set up anew does not have; when the channel's newest message was published, in Unix
milliseconds, as of the time at which the position was chosen (*read, by the names' order; 0: there was none): a channel that has
lost its end since has newer messages below the position; and into how many tasks small channels are put together (*tasks). Where
a channel was begun again because it ended before the position, or has other messages below it, *again counts how often. No
channel name contains a `*`. Many channels are packed, as JSON that is compressed and in base64:

    {"*packed": "eNqrVkrOz1WyUkrLL8pVqgUAJDcE8g=="}

Promises: equal offsets are equal JSON, because Spark compares the text and would run empty batches for ever if the order of keys
changed; and a batch depends only on its two offsets, so that a repeated batch has the same messages in the same partitions.

The sequence at which reading began is stored because Spark stores the end of a batch before it runs, but never the beginning of
the first batch. After a crash in the first batch Spark asks for the beginning again, and by then "latest" is another sequence.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from stan_client.reading.channels import ChannelInfo
from stan_protocol.scalars import MILLISECOND

from pyspark_stan.options import EARLIEST, LATEST, SEQUENCE_MAX, ReadBound

SequenceAt = Callable[[str, int], int]
"""Returns the sequence of a channel's first message at or after a time (Unix ns), or the next sequence if there is none."""
INITIAL: Final = "*init"
INCARNATIONS: Final = "*inc"
TASKS: Final = "*tasks"
AGAIN: Final = "*again"
CLUSTER: Final = "*cluster"
READ: Final = "*read"
AGES: Final = "*ages"
BYTES: Final = "*bytes"
"""In a report beside the ends of channels: the age in seconds of each channel's oldest unread message, and the bytes of all."""
PACKED: Final = "*packed"
CHANNELS_PLAIN_MAX: Final = 100
"""Offsets of more channels are packed."""
OFFSET_BYTES_MAX: Final = 1 << 28
"""Largest JSON of an offset that was packed."""

_SHOWN_MAX: Final = 200


class Offset(NamedTuple):
    """A position in each channel of a stream; the keys of all fields are channel names."""

    positions: Mapping[str, int]  # next sequence to read
    initial: Mapping[str, int]  # sequence at which reading began
    incarnations: Mapping[str, int]  # uid; missing for a channel that did not exist yet
    tasks: int = 1  # into how many tasks small channels are put together
    again: Mapping[str, int] = {}  # how often a channel was begun again; missing: never
    cluster: str = ""  # whose channels they are; "": not known yet
    read_ms: Mapping[str, int] = {}  # Unix time of the newest message when the position was chosen; missing: none

    def place(self, name: str) -> tuple[int | None, ...]:
        """Return what says where reading of a channel goes on."""
        return tuple(each.get(name) for each in (self.positions, self.incarnations, self.again))

    def to_json(self) -> dict[str, Any]:
        """Return the offset as a JSON object with sorted keys; Spark writes it in this order."""
        nested = {INITIAL: _sorted(self.initial), INCARNATIONS: _sorted(self.incarnations), TASKS: self.tasks}
        more: dict[str, Any] = {AGAIN: _sorted(self.again)} if self.again else {}
        if self.read_ms:
            more[READ] = [self.read_ms.get(name, 0) for name in sorted(self.positions)]
        if self.cluster:
            more[CLUSTER] = self.cluster
        return packed(dict(sorted({**self.positions, **nested, **more}.items())), len(self.positions))


class Range(NamedTuple):
    """The messages [first, end) of a channel."""

    channel: str
    uid: int  # 0: not known
    first: int
    end: int
    cluster: str = ""  # "": not known


def from_json(document: object) -> Offset:
    """Parse the result of `to_json`. Raises ValueError: it is of another source or a later version, or damaged."""
    if not isinstance(document, Mapping):
        raise _damaged(_shown(document))
    fields = unpacked(document)
    positions = {name: value for name, value in fields.items() if not name.startswith("*")}
    initial, uids, again = (fields.get(name, {}) for name in (INITIAL, INCARNATIONS, AGAIN))
    read = fields.get(READ, [0] * len(positions))
    if not {INITIAL, INCARNATIONS, TASKS} <= fields.keys():
        raise ValueError(
            f"stan: the checkpoint has an offset of another source, and needs one of its own: {_shown(fields)}"
        )
    known = (INITIAL, INCARNATIONS, TASKS, AGAIN, CLUSTER, READ)
    later = [name for name in fields if name.startswith("*") and name not in known]
    if later:
        raise ValueError(
            f"stan: the checkpoint has an offset of a later version of pyspark_stan, with {', '.join(later)}: go on with that "
            f"version, or begin with a new checkpoint. The offset is {_shown(fields)}"
        )
    numbers = [fields[TASKS], *positions.values()]
    for each in (initial, uids, again):
        numbers += each.values() if isinstance(each, dict) else [None]
    numbers += read if isinstance(read, list) and len(read) == len(positions) else [None]
    cluster = fields.get(CLUSTER, "")
    if (
        not isinstance(cluster, str)
        or not all(isinstance(value, int) and value >= 0 for value in numbers)
        or not positions.keys() <= dict(initial).keys()
    ):
        raise _damaged(_shown(fields))
    read_ms = {name: time for name, time in zip(sorted(positions), read, strict=True) if time}
    return Offset(positions, dict(initial), dict(uids), fields[TASKS], dict(again), cluster, read_ms)


def packed(fields: dict[str, Any], channels: int) -> dict[str, Any]:
    """Pack a JSON object about so many channels, if they are many: Spark writes it with each batch and into each report."""
    if channels <= CHANNELS_PLAIN_MAX:
        return fields
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return {PACKED: b64encode(zlib.compress(text.encode(), 6)).decode()}


def unpacked(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the argument of `packed`. Raises ValueError: it is something else."""
    if PACKED not in fields:
        return fields
    text = fields[PACKED]
    if not isinstance(text, str):
        raise _damaged(_shown(fields))
    try:
        inflating = zlib.decompressobj()
        document = json.loads(inflating.decompress(b64decode(text, validate=True), OFFSET_BYTES_MAX))
    except (zlib.error, ValueError) as error:
        raise _damaged(str(error)) from None
    return document if isinstance(document, dict) else {}


def _damaged(what: str) -> ValueError:
    text = f"stan: the checkpoint has an offset that is damaged ({what})"
    return ValueError(f"{text}: restore the checkpoint, or begin with a new one")


def _shown(fields: object) -> str:
    text = json.dumps(fields, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _sorted(values: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(values.items()))


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """Return the messages of the batch between two offsets. A channel that *start* does not have, or has with another beginning,
    another uid or of another cluster, or that was begun again, is read from the beginning that *end* gives."""
    ranges = []
    if start.cluster not in ("", end.cluster):
        start = Offset({}, {}, {})
    for channel, stop in sorted(end.positions.items()):
        uid = end.incarnations.get(channel, 0)
        first = end.initial[channel]
        same = start.incarnations.get(channel) in (None, uid) and start.again.get(channel) == end.again.get(channel)
        if same and channel in start.positions and start.initial[channel] == first:
            first = start.positions[channel]
        if first < stop:
            ranges.append(Range(channel, uid, first, stop, end.cluster))
    return ranges


def newest_ms(infos: Mapping[str, ChannelInfo]) -> dict[str, int]:
    """Return when the newest message of each channel was published (Unix ms); channels that never had one are left out."""
    return {name: info.last_time_ns // MILLISECOND for name, info in infos.items() if info.last_time_ns}


def has_others(offset: Offset, info: ChannelInfo) -> bool:
    """Return True if a channel has messages below its position that are newer than any when the position was chosen: it has lost
    its end since. *info* tells of the sequence before the position."""
    read = offset.read_ms.get(info.name, 0)
    return 0 < read < info.position_time_ns // MILLISECOND


def oldest(info: ChannelInfo | None) -> int:
    """Return the sequence at which a channel begins."""
    return max(info.first, 1) if info else 1


def behind(info: ChannelInfo | None) -> int:
    """Return the sequence of a channel's next message. Raises OverflowError: too large for a number in Spark."""
    last = info.last if info else 0
    if last >= SEQUENCE_MAX:
        raise OverflowError(f"stan: the sequences of channel {info and info.name} are larger than Spark's long")
    return last + 1


def cluster_of(infos: Mapping[str, ChannelInfo]) -> str:
    """Return the cluster of channels; "" if there are none, or a server does not know it yet."""
    return next((info.cluster for info in infos.values()), "")


def row_bytes(info: ChannelInfo) -> float:
    """Return the average size of a channel's messages in bytes, at least 1."""
    count = behind(info) - oldest(info)
    return max(1.0, info.bytes / count) if count > 0 else 1.0


class Resolver:
    """Translates the start or end of a read, as the user has given it, into sequences."""

    def __init__(self, infos: Mapping[str, ChannelInfo], sequence_at: SequenceAt) -> None:
        self._infos = infos
        self._sequence_at = sequence_at

    def resolve(self, channels: Iterable[str], place: ReadBound, option: str) -> tuple[dict[str, int], list[str]]:
        """Return the sequence for each channel, and complaints; *option*: its name in them."""
        sequences: dict[str, int] = {}
        complaints: list[str] = []
        for channel in sorted(channels):
            info = self._infos.get(channel)
            time_ns = place.times_ns.get(channel, place.time_ns)
            value = place.sequences.get(channel, place.default)
            if time_ns:
                sequences[channel] = self._sequence_at(channel, time_ns) if info else 1
                if sequences[channel] >= behind(info) and not place.latest_if_later:
                    complaints.append(
                        f"{option}: {channel} has no message of that time or later "
                        "(startingOffsetsByTimestampStrategy=latest waits for one)"
                    )
            elif value == EARLIEST:
                sequences[channel] = oldest(info)
            elif value == LATEST:
                sequences[channel] = behind(info)
            else:
                sequences[channel] = min(max(value, 1), behind(info))
                if value > behind(info):
                    complaints.append(f"{option}: {channel} ends at {behind(info)}, before {value}")
        return sequences, complaints
