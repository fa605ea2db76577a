"""Which member of a consumer group gets which channel; pure.

Promises, where all members may be given all channels: no member has two channels more than another, as few channels as possible
move, and the same question has the same answer. Where members have different patterns: every channel that somebody may be given
is given, and no move of a single channel would make the shares more even.
"""

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

M = TypeVar("M", bound=Hashable)


def assign(members: Mapping[M, Set[int]], owners: Mapping[int, M]) -> dict[int, M]:
    """Return the owner of each channel that one of *members* may be given.

    Args:
        members: for each member the channels that it may be given; the order of the mapping decides between equals.
        owners: who owns channels now; who is no member, or may not be given the channel, does not count.

    Cost: O(channels x members x different sets of channels) at worst.
    """
    order = list(members)
    shares: dict[M, set[int]] = {member: set() for member in order}
    for channel, member in owners.items():
        if channel in members.get(member, ()):
            shares[member].add(channel)
    kept = set().union(*shares.values())
    able = _able(members)
    # Who may be given to few is given first.
    free = sorted(able.keys() - kept, key=lambda channel: (len(able[channel]), channel))
    for channel in free:
        shares[min(able[channel], key=lambda member: len(shares[member]))].add(channel)
    _even(members, shares)
    return {channel: member for member, share in shares.items() for channel in share}


def _able(members: Mapping[M, Set[int]]) -> dict[int, tuple[M, ...]]:
    """By channel, the members that may be given it, in their order; members with the same channels share one tuple."""
    alike: dict[frozenset[int], list[M]] = {}
    for member, channels in members.items():
        alike.setdefault(frozenset(channels), []).append(member)
    if len(alike) == 1:
        ((channels, all_of_them),) = alike.items()
        return dict.fromkeys(channels, tuple(all_of_them))
    found: dict[int, list[M]] = {}
    for member, channels in members.items():
        for channel in channels:
            found.setdefault(channel, []).append(member)
    return {channel: tuple(able) for channel, able in found.items()}


def _even(members: Mapping[M, Set[int]], shares: Mapping[M, set[int]]) -> None:
    """Move channels, one at a time, from who has most to who has least, at least two less, until there is no such move."""
    alike: dict[frozenset[int], list[M]] = {}
    for member, channels in members.items():
        alike.setdefault(frozenset(channels), []).append(member)
    kinds = list(alike.items())
    fitting = {member: [shares[member] & able for able, _ in kinds] for member in members}  # by the taker's kind

    while (found := _evening_move(kinds, shares, fitting)) is not None:
        channel, giver, taker = found
        shares[giver].discard(channel)
        shares[taker].add(channel)
        for kind, (able, _) in enumerate(kinds):
            fitting[giver][kind].discard(channel)
            if channel in able:
                fitting[taker][kind].add(channel)


def _evening_move(
    kinds: list[tuple[frozenset[int], list[M]]], shares: Mapping[M, set[int]], fitting: Mapping[M, list[set[int]]]
) -> tuple[int, M, M] | None:
    """The next move: channel, from, to; None: there is none."""

    def size(member: M) -> int:
        return len(shares[member])

    takers = [(min(able, key=size), kind) for kind, (_, able) in enumerate(kinds)]
    takers.sort(key=lambda taker: size(taker[0]))
    for giver in sorted(shares, key=size, reverse=True):
        for taker, kind in takers:
            if size(giver) - size(taker) < 2:
                break
            if fitting[giver][kind]:
                return max(fitting[giver][kind]), giver, taker  # the newest: its owner has had it for the shortest time
    return None
