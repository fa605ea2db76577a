"""Facts about the NATS connection of a node."""

from dataclasses import dataclass

from stan_protocol.channels import Subjects

from stan import limits
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.core.services.node import Node


@dataclass(slots=True)
class NatsState:
    """The subjects of the cluster, and what NATS takes at the moment."""

    node: Node
    subjects: Subjects
    reply_prefix: bytes  # subjects `<reply_prefix><number>` come back to this node
    connected: bool = True
    payload_bytes_max: int = limits.MESSAGE_PAYLOAD_BYTES_MAX  # largest payload that NATS accepts

    @property
    def delivered_bytes_max(self) -> int:
        """Largest payload in bytes in which a message may be delivered: that of NATS, or that of the settings if it is less."""
        return min(self.payload_bytes_max, self.node.config.requests.payload_bytes)

    def message_payload_max(self, channel: bytes) -> int:
        """Size limit in bytes of a message in *channel*, as the payload in which it is delivered."""
        most = self.node.config.requests.message_bytes
        if not most:
            return self.delivered_bytes_max
        field = 1 + (most.bit_length() + 6) // 7  # before the data
        return min(self.delivered_bytes_max, most + field + MESSAGE_ROOM + len(channel))
