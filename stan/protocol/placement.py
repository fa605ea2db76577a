"""The group of a channel: a consistent hash of its name (DESIGN 5). Pure.

Jump consistent hash (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014): a pool that grows from n
to n + 1 moves only 1 / (n + 1) of the names. The result is written into the registry when the channel is created.
"""

from hashlib import blake2b

from stan_protocol.channels import whole_and_part
from stan_protocol.scalars import GroupId

from stan.invariant import invariant

_MASK = (1 << 64) - 1


def jump_hash(key: int, buckets: int) -> int:
    """Bucket in [0, buckets) of a 64-bit key."""
    invariant(buckets > 0, "there is at least one bucket", buckets=buckets)
    bucket, jump = -1, 0
    while jump < buckets:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & _MASK
        jump = int((bucket + 1) * (1 << 31) / ((key >> 33) + 1))
    return bucket


def channel_group(name: bytes, groups: int) -> GroupId:
    """Group 1..groups of channel *name*. The parts of a channel are in one group after the other, so that none has many more."""
    name, number = whole_and_part(name) or (name, 0)
    key = int.from_bytes(blake2b(name, digest_size=8).digest(), "little")
    return GroupId(1 + (jump_hash(key, groups) + number) % groups)
