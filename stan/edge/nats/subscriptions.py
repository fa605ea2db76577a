"""NATS subscriptions of a server, by their numbers (sids): which subjects they are of, and who handles their frames.

Numbers tell kinds of frames apart: publishes, acks and replies to the broker; messages between nodes, which need no client; then
clients' requests.
"""

from collections.abc import Callable

from stan.invariant import invariant
from stan.protocol.frames import Frame

PUB_SID, ACK_SID, REPLY_SID, ASK_SID, FIRST_NODE_SID, FIRST_REQUEST_SID = 1, 2, 3, 4, 5, 10


class NatsSubscriptions:
    """Subjects and handlers by sid. Frames of a sid without a handler are the broker's."""

    def __init__(self) -> None:
        self.subjects: dict[int, str] = {}
        self.handlers: dict[int, Callable[[Frame], None]] = {}
        self.quiet: set[int] = set()  # sids whose handlers never step the broker

    def add(self, sid: int, subject: str, heard: Callable[[Frame], None], *, quiet: bool = False) -> None:
        """Subscribe to *subject* as *sid*, and hand its frames to *heard*. *quiet*: *heard* never steps the broker."""
        self.subjects[sid] = subject
        self.handlers[sid] = heard
        if quiet:
            self.quiet.add(sid)

    def new_node_sid(self, subject: str) -> int:
        """A free number for messages between nodes on *subject*."""
        sid = FIRST_NODE_SID + sum(other < FIRST_REQUEST_SID for other in self.handlers)
        invariant(sid < FIRST_REQUEST_SID, "subscriptions between nodes have numbers of their own", subject=subject)
        return sid

    def early(self) -> dict[int, str]:
        """Subscriptions before the broker leads: only replies to this server's own requests, and messages of other nodes."""
        early = {REPLY_SID, ASK_SID, *range(FIRST_NODE_SID, FIRST_REQUEST_SID)}
        return {sid: name for sid, name in self.subjects.items() if sid in early}
