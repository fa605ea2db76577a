"""NATS subscriptions of a server, by their numbers (sids): their subjects and handlers.

Numbers distinguish kinds of frames: publishes, acks and replies to the broker; messages between nodes, which need no client; then
clients' requests; then what comes on subjects of other protocols.
"""

from collections.abc import Callable

from stan_protocol.frames import Frame

from stan.invariant import invariant

PUB_SID, ACK_SID, REPLY_SID, ASK_SID, FIRST_NODE_SID, FIRST_REQUEST_SID = 1, 2, 3, 4, 5, 10
FIRST_MORE_SID = 100_000
"""Of subjects of other protocols, which come and go; no number is used again."""


class NatsSubscriptions:
    """Subjects and handlers by sid. Frames of a sid without a handler are the broker's."""

    def __init__(self) -> None:
        self.subjects: dict[int, str] = {}
        self.handlers: dict[int, Callable[[Frame], None]] = {}
        self.quiet: set[int] = set()  # sids whose handlers never step the broker
        self.more: dict[str, int] = {}  # subjects of other protocols
        self._newest = FIRST_MORE_SID

    def add(self, sid: int, subject: str, handler: Callable[[Frame], None], *, quiet: bool = False) -> None:
        """Subscribe to *subject* as *sid*, and hand its frames to *handler*. *quiet*: *handler* never steps the broker."""
        self.subjects[sid] = subject
        self.handlers[sid] = handler
        if quiet:
            self.quiet.add(sid)

    def new_node_sid(self, subject: str) -> int:
        """A free number for messages between nodes on *subject*."""
        sid = FIRST_NODE_SID + sum(other < FIRST_REQUEST_SID for other in self.handlers)
        invariant(sid < FIRST_REQUEST_SID, "subscriptions between nodes have numbers of their own", subject=subject)
        return sid

    def add_more(self, subject: str, handler: Callable[[Frame], None]) -> int:
        """Subscribe to a subject of another protocol; returns its number."""
        self._newest += 1
        self.more[subject] = self._newest
        self.add(self._newest, subject, handler)
        return self._newest

    def drop(self, subject: str) -> int:
        """End the subscription to a subject of another protocol; returns its number."""
        sid = self.more.pop(subject)
        del self.subjects[sid], self.handlers[sid]
        return sid

    def new_request_sid(self) -> int:
        """A free number for clients' requests."""
        return max(sid for sid in self.subjects if sid < FIRST_MORE_SID) + 1

    def ack_on(self, subject: str) -> None:
        """Set the subject of acks, which is known now."""
        self.subjects[ACK_SID] = subject

    def known(self) -> dict[int, str]:
        """All subscriptions whose subject is known: that of acks has the cluster's identity in it."""
        return {sid: name for sid, name in self.subjects.items() if name}

    def early(self) -> dict[int, str]:
        """The subscriptions without frames of clients: replies to this server's own requests, and messages of other nodes."""
        return {sid: name for sid, name in self.subjects.items() if is_early(sid)}


def is_request(sid: int) -> bool:
    """True for requests of STAN's clients, which a next leader may have to answer."""
    return FIRST_REQUEST_SID <= sid < FIRST_MORE_SID


def is_early(sid: int) -> bool:
    """True for frames that are handled before clients are served."""
    return sid in (REPLY_SID, ASK_SID) or FIRST_NODE_SID <= sid < FIRST_REQUEST_SID
