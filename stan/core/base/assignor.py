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

    Cost: O(channels x members) at worst.
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
    while (move := _evening_move(members, shares)) is not None:
        channel, giver, taker = move
        shares[giver].discard(channel)
        shares[taker].add(channel)
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


def _evening_move(members: Mapping[M, Set[int]], shares: Mapping[M, set[int]]) -> tuple[int, M, M] | None:
    """The move of one channel from who has most to who has least, at least two less; None: there is none."""
    by_size = sorted(members, key=lambda member: len(shares[member]))  # stable: equals keep their order
    for giver in reversed(by_size):
        for taker in by_size:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            fitting = shares[giver] & members[taker]
            if fitting:
                return max(fitting), giver, taker  # the newest channel has the shortest history with its owner
    return None
