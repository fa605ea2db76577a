"""The choice of the member of a queue group that gets the next messages, and of how many."""

from stan.core.leader.cursors import LiveCursor, LiveMember


def choose(cursor: LiveCursor, *, again: bool = False) -> LiveMember | None:
    """The member that gets the next message: open window, a client that acks and answers heartbeats, fewest in flight,
    earliest in the list (STAN-SPEC 6.4); of a failover group the active one. None if every window is full. *again*: the
    message was sent before, so that no doubted member gets it."""
    if len(cursor.members) == 1 or cursor.policy.failover:
        only = cursor.members[0] if len(cursor.members) == 1 else cursor.takers[0]
        return only if only.open_slots else None
    pool = [m for m in cursor.members if m.open_slots and not (again and m.doubted)]
    if not pool:
        return None
    best = min(pool, key=lambda m: (m.rank, m.window.size))
    if best is cursor.members[0]:  # equal members take turns
        cursor.members.append(cursor.members.pop(0))
    return best


def share(cursor: LiveCursor, member: LiveMember, available: int) -> int:
    """How many of *available* messages *member*, whose window is open, gets at once: as many as fit there and level the open
    windows of its rank."""
    fitting = min(available, member.open_slots)
    if len(cursor.members) == 1 or cursor.policy.failover:
        return fitting
    open_members = [m for m in cursor.members if m.rank == member.rank and m.open_slots]
    level = -(-(sum(len(m.window) for m in open_members) + available) // len(open_members))
    return max(1, min(fitting, level - len(member.window)))
