"""The voters of a group, as an entry of its log (Ongaro, "Consensus: Bridging Theory and Practice", 2014, chapter 4).

A change adds or removes one voter, so that every majority of the old voters and every majority of the new ones have a node in
common. A change takes effect on a member when the member applies it, and only a leader that has applied it proposes the next one;
so if a log holds two changes, the first of them is committed. A member that knows of a committed entry which it has not applied
does not campaign: its voters could be two changes old (as in etcd's raft). Pure.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from stan_protocol.scalars import RaftIndex

from stan import limits
from stan.errors import Damage
from stan.log.types import GroupLog
from stan.protocol.entries import Kind


def encode(voters: Iterable[str]) -> bytes:
    """Body of the entry (of kind CONFIG) that makes these the voters."""
    return "\n".join(sorted(voters)).encode()


def decode(body: bytes) -> tuple[str, ...]:
    """The voters in the body of an entry of kind CONFIG, sorted."""
    return tuple(body.decode().split("\n"))


def objection(now: Iterable[str], proposed: Seq[str], me: str) -> str:
    """Return the reason why the leader *me* must not replace the voters *now* by *proposed*; "" if it may."""
    voters, names = set(now), set(proposed)
    if len(names) != len(proposed) or not names:
        return "voters are named once each"
    if len(voters ^ names) != 1:
        return "one voter is added or removed at a time"
    if me not in names:
        return "a leader does not remove itself: it hands leadership over first"
    return ""


def known_committed(log: GroupLog, applied: RaftIndex) -> RaftIndex:
    """The newest entry after *applied* that must be committed, because it changes the voters and another change follows it.

    Returns *applied* if there is none."""
    changes = [applied]
    at = RaftIndex(applied + 1)
    while at <= log.last_index:
        try:
            entries = log.entries(at, log.last_index, limits.TURN_BYTES_MAX)
        except Damage:  # it is reported when the entry is handed out
            break
        if not entries:
            break
        changes += [entry.index for entry in entries if entry.kind == Kind.CONFIG]
        at = RaftIndex(entries[-1].index + 1)
    return changes[-2] if len(changes) > 2 else applied
