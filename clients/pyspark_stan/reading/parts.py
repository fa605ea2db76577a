"""Channels with parts: one that is named is read as all of its parts, also those of a doubling.

    sales ─► sales.~0, sales.~1 ─► doubled: sales.~2 and sales.~3 behind what sales.~0 and sales.~1 had before

Promises the order of each key to a stream, also where a pattern finds the parts: no batch has messages of a new part before
earlier batches have had those that the part from which its keys came had when it was split.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stan_client.reading.channels import ChannelInfo
from stan_client.requests.names import part_names, raw
from stan_client.transport.session import text_of
from stan_protocol.channels import whole_and_part

from pyspark_stan.options import ReadBound

if TYPE_CHECKING:
    from stan_protocol.admin_types import PartedStatus

Infos = Mapping[str, ChannelInfo]


def part_in(name: str) -> tuple[str, int] | None:
    """Return the channel of which *name* is a part, and the part's number; None: it is not called like a part."""
    found = whole_and_part(raw(name)) if ".~" in name else None
    return None if found is None else (text_of(found[0]), found[1])


def whole_in(name: str) -> str:
    """Return the channel of which *name* is a part; *name* itself if it is not called like one."""
    found = part_in(name)
    return name if found is None else found[0]


class _LookedUp(NamedTuple):
    """The parts that there were when a channel was looked up."""

    highest: int  # part; -1: none
    first: tuple[str, int]  # cluster and uid of the first part; ("", 0): not known yet


_NOTHING: Final = _LookedUp(-1, ("", 0))


class Parts:
    """The parts of the channels of a read, as far as the broker has been asked for them."""

    def __init__(self, named: Sequence[str]) -> None:
        """*named*: the channels that are read by their names; of others only parts can be found."""
        self._named = dict.fromkeys(named)
        self._parted: dict[str, PartedStatus] = {}
        self._looked_up: dict[str, _LookedUp] = {}

    def requested(self) -> list[str]:
        """Return the channels to ask the broker for: parts and those of a next doubling, or a channel's own name; beside it the
        first part, if there was no such channel."""
        names = []
        for name in self._named:
            parted = self._parted.get(name)
            names += part_names(name, 2 * parted.parts) if parted else [name]
            if not parted and name in self._looked_up:
                names += part_names(name, 1)
        return names

    def unknown(self, infos: Infos) -> set[str]:
        """Return the channels of which it is not known which parts they have: those with new parts, or with parts that were made
        again, and those that are missing in *infos* for the first time."""
        there = [(found[0], found[1], info) for name, info in infos.items() if (found := part_in(name)) is not None]
        for deleted in self._parted.keys() - {whole for whole, _, _ in there}:
            del self._parted[deleted]
            self._looked_up[deleted] = _NOTHING
        for name in self._looked_up.keys() & infos.keys():
            del self._looked_up[name]
        unknown = {name for name in self._named if name not in infos and name not in self._looked_up}
        for whole, number, info in there:
            before, which = self._looked_up.get(whole, _NOTHING), (info.cluster, info.uid)
            if number > before.highest or (number == 0 and before.first not in (which, _NOTHING.first)):
                unknown.add(whole)
            elif number == 0:
                self._looked_up[whole] = before._replace(first=which)
        return unknown

    def learn(self, channel: str, infos: Infos, answer: "Sequence[PartedStatus]") -> None:
        """Note the broker's answer about a channel of `unknown`, of the same *infos*."""
        self._parted.pop(channel, None)
        self._parted |= {parted.channel: parted for parted in answer}
        numbers = [found[1] for name in infos if (found := part_in(name)) and found[0] == channel]
        highest = max([*numbers, *(parted.parts - 1 for parted in answer)], default=-1)
        self._looked_up[channel] = _LookedUp(highest, _NOTHING.first)

    def reads(self, name: str) -> bool:
        """Return True if a channel is one of the named ones, or a part of one of them."""
        return name in self._named or whole_in(name) in self._parted

    def missing(self, existing: Container[str]) -> list[str]:
        """Return the named channels that neither exist nor have parts."""
        return [name for name in self._named if name not in existing and name not in self._parted]

    def before(self, name: str) -> tuple[str, int] | None:
        """Return the part from which the keys of a part have come, and its newest message at that time; None: the part is one of
        the first."""
        whole, number = part_in(name) or (name, 0)
        splits = self._parted[whole].splits if whole in self._parted else ()
        for split in splits:
            if split.parts <= number < 2 * split.parts:
                source = number - split.parts
                return part_names(whole, source + 1)[source], split.last[source]
        return None

    def waits(self, name: str, positions: Mapping[str, int], existing: Container[str]) -> bool:
        """Return True if the part from which the keys of a part have come has to be read first."""
        source, last = self.before(name) or ("", 0)
        return source in existing and positions.get(source, last + 1) <= last

    def bound(self, place: ReadBound, existing: Iterable[str], option: str) -> tuple[ReadBound, list[str]]:
        """Return a start or an end with that of a channel with parts for each of these, and complaints; *option*: its name in
        them."""
        sequences, times, complaints = dict(place.sequences), dict(place.times_ns), set()
        for name in existing:
            whole = whole_in(name)
            if whole != name and whole in sequences:
                sequences.setdefault(name, sequences[whole])
                if sequences[whole] >= 0:
                    complaints.add(f"{option}: {whole} has parts with sequences of their own: subscribe to {whole}.*")
            if whole in times:
                times.setdefault(name, times[whole])
        return replace(place, sequences=sequences, times_ns=times), sorted(complaints)
