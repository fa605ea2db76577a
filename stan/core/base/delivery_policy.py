"""How an operator wants messages to be delivered; the defaults are the original's behaviour."""

from dataclasses import dataclass, replace
from typing import Final

from stan_protocol.scalars import SECOND, Nanos

from stan.policies import OFF
from stan.protocol.jetstream.consumers import ConsumerConfig

NONE: Final = Nanos(0)
KEEP_LAST, KEEP_FIRST = 1, 2
MIN_AGE: Final = Nanos(10 * 60 * SECOND)
TOMBSTONE_MAX: Final = Nanos(7 * 24 * 3600 * SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The policy in force for one cursor; what is of whole channels is the same for all cursors of a channel."""

    max_deliver: int = 0  # deliveries of a message, the first included; 0: no limit
    backoff: tuple[Nanos, ...] = ()  # pauses after the first, second, ... failure of a message; the last one repeats
    steady: bool = False  # these pauses are as long as they are told; else they vary by a fifth
    max_hold: Nanos = NONE  # how long "working" may put an ack wait off, from the delivery on; 0: for ever
    adaptive_window: bool = False  # False: a window is always as large as the subscription asked for
    dead_letter: str = (
        ""  # channel of messages that are given up; ".dlq": added to the channel's name; "": they stay pending
    )
    dead_letter_rate: int = 100  # dead letters a minute before the position pauses; 0: no limit
    failover: bool = False  # of queue groups: the member that joined first gets all messages
    ordered_by_key: bool = False  # of queue groups: messages of one key are delivered in order, to one member at a time
    from_replica: bool = False  # plain subscriptions are served by other nodes than the leader, if there are any
    # Of whole channels:
    delay: Nanos = NONE  # messages are stored in `target` so long after they were published; 0: as they come
    target: str = ""
    max_late: Nanos = NONE  # a delayed message that is later than this is given up; 0: it never is
    ttl: Nanos = NONE  # messages are gone so long after they were stored; 0: as the channel's limits say
    compact: int = 0  # KEEP_LAST: of each key the newest message stays; KEEP_FIRST: the oldest; 0: all
    min_age: Nanos = MIN_AGE  # younger messages are not compacted
    tombstone_max: Nanos = TOMBSTONE_MAX  # for so long a tombstone waits for positions to pass it
    tier: str = ""  # the named position for which the channel's limits wait; "": for none
    tier_stretch: int = 4  # how many times its limits a channel keeps for that; 0: any number
    schema: int = OFF  # whether published messages are checked: OFF, KNOWN or VALID
    commit: int = 0  # SYNCED or REPLICATED, of a channel that is made now
    compress: int = 0  # 1: the leader compresses batches that their publishers have not compressed

    def target_of(self, channel: bytes) -> bytes:
        """The channel in which the delayed messages of *channel* are stored once they are due; b"": none is told."""
        return satellite(self.target.encode("utf-8", "surrogateescape"), channel)

    def dead_letters_of(self, channel: bytes) -> bytes:
        """The channel of messages of *channel* that are given up; b"": there is none."""
        return satellite(self.dead_letter.encode("utf-8", "surrogateescape"), channel)

    def pause_after(self, failures: int) -> Nanos:
        """The pause before a message is delivered again after so many failures, 1 or more."""
        return self.backoff[min(failures, len(self.backoff)) - 1] if self.backoff else NONE


def satellite(name: bytes, channel: bytes) -> bytes:
    """The channel that an option names for *channel*: itself, or, beginning with a dot, what is added to its name."""
    return channel + name if name.startswith(b".") else name


def of_consumer(config: ConsumerConfig, policy: DeliveryPolicy) -> DeliveryPolicy:
    """The policy in force for a consumer of JetStream: what its client wants, and for the rest *policy*, which operators have set
    for the channel. JetStream counts a pause from the delivery, the broker from the end of the ack wait."""
    wanted = replace(policy, adaptive_window=False, failover=False, ordered_by_key=False, from_replica=False)
    if config.max_deliver > 0:
        wanted = replace(wanted, max_deliver=config.max_deliver)
    if config.backoff:
        pauses = tuple(Nanos(max(0, one - config.backoff[0])) for one in config.backoff)
        wanted = replace(wanted, backoff=pauses, steady=True)
    return wanted


DEFAULT: Final = DeliveryPolicy()
"""What is in force where no operator has set anything."""
NOT_KNOWN: Final = DeliveryPolicy()
"""This very object: the metadata of the node does not have the channel yet. Nothing is sent until it does, as the policy may want
an order, or one member."""
