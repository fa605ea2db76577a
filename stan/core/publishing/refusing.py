"""Refusals of publishes, in the acks that the kernel has prepared for them."""

from stan_protocol.refusals import (
    NO_METADATA,
    PARTS_DOUBLING,
    STREAM_FULL,
    TOO_MANY_DELAYED,
    TOO_MANY_EXPIRING,
    TOO_MUCH_WAITING,
)
from stan_protocol.scalars import GroupId

from stan.core.base import payload_limit
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.kernel import server as kernel

PASSING = frozenset((NO_METADATA, STREAM_FULL, TOO_MANY_DELAYED, TOO_MANY_EXPIRING, TOO_MUCH_WAITING))
"""Reasons that pass."""


def refuse(services: Services, acks: bytes, error: str, channel: bytes, *, passing: bool = False) -> None:
    """Refuse publishes to *channel*. The answer leaves only under the lease of the channel's group: another node may have taken
    them while this one stood still. For a reason that passes they stay unanswered in a cluster: the next leader replays what it
    has buffered, and may store what this leader could not; a publisher that received an error must not find its message stored
    later."""
    if not services.node.clustered:  # it leads every group, so the channel's need not be looked up
        refuse_as_leader(services, META_GROUP, acks, error)
    elif passing or error in PASSING:
        if acks:
            services.reports.complain("WRN", f"publishes are not answered ({error})")
    elif error != PARTS_DOUBLING:  # of which the next leader of the part need not be told
        refuse_as_leader(services, services.placement.group_number(channel), acks, error)


def refuse_as_leader(services: Services, number: GroupId, acks: bytes, error: str) -> None:
    """Refuse publishes that another leader of the group might take."""
    acks = payload_limit.answerable(acks, services.nats.payload_bytes_max)
    if acks:
        services.outgoing.answer_as_leader(number, kernel.refuse(acks, error.encode()))
