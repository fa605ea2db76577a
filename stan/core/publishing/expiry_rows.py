"""Rows of messages that expire: when, as their leader reckons it, and how a stored message tells it. Pure."""

from array import array
from struct import Struct

from stan_protocol.fetches import LENGTH_PREFIX
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND, ChannelUid

from stan import limits
from stan.protocol.expiry import TAG, stamped
from stan.protocol.proto import entries_pb2 as pb

EXPIRY_BYTES = 12
"""Bytes of a message that tell when it expires."""
_LENGTH = Struct("<I")


def expiry(since: int, ttl: int) -> int:
    """When a message expires, in Unix seconds: *ttl* ns after *since* (Unix ns), and up to a second or a TTL_UNITS-th of *ttl*
    later, so that many messages expire together."""
    unit = max(1, ttl // (limits.TTL_UNITS * SECOND))
    at = -(-(since + ttl) // SECOND)
    return -(-at // unit) * unit


def times_of(ttls: bytes, count: int, wall: int, policy: int) -> "array[int]":
    """When each of *count* messages that were published now expires, in Unix seconds, 0: it does not; the earlier one of what its
    publisher (*ttls*, see `Publishes`) and the policy (ns; 0: nothing) tell."""
    by_policy = expiry(wall, policy) if policy else 0
    if not ttls:
        return array("q", [by_policy]) * count
    known: dict[int, int] = {0: by_policy}
    found = array("q")
    for ttl in array("q", ttls):
        at = known.get(ttl)
        if at is None:
            own = expiry(wall, ttl)
            at = known[ttl] = min(own, by_policy) if by_policy else own
        found.append(at)
    return found


def restamped(bodies: bytes, wall: int, policy: int) -> tuple[bytes, "array[int]"]:
    """As `stamped` of rows some of which tell when they expire: they do not expire later. Returns the times, too."""
    by_policy = expiry(wall, policy) if policy else 0
    times = array("q")
    plain: list[bytes] = []
    place = 0
    while place < len(bodies):
        (size,) = _LENGTH.unpack_from(bodies, place)
        row = bodies[place : place + LENGTH_PREFIX + size]
        place += LENGTH_PREFIX + size
        own = 0
        if TAG in row:
            message = wire.MsgProto.FromString(row[LENGTH_PREFIX:])
            own = -(-message.expires_at // SECOND)
            if own:
                message.ClearField("expires_at")
                body = message.SerializeToString()
                row = _LENGTH.pack(len(body)) + body
        plain.append(row)
        times.append(min(own, by_policy) if own and by_policy else own or by_policy)
    return stamped(b"".join(plain), times), times


def runs_of(times: "array[int]") -> tuple[list[int], list[int]]:
    """The places of messages that expire, as first, last, first, last, ... from 0 on, and when those of each run do."""
    runs: list[int] = []
    found: list[int] = []
    for place, at in enumerate(times):
        if not at:
            continue
        if found and found[-1] == at and runs[-1] == place - 1:
            runs[-1] = place
        else:
            runs += (place, place)
            found.append(at)
    return runs, found


def expiring_change(uid: ChannelUid, runs: list[int], times: list[int], first: int) -> bytes:
    """The change that goes with messages stored from the sequence *first* on; *runs*, *times*: as `runs_of` gives them."""
    change = pb.Expiring(uid=uid, runs=[first + place for place in runs], at=times)
    return pb.GroupChange(expiring=change).SerializeToString()
