"""Requests that a broker itself sends to clients and other nodes, and the callbacks that wait for the answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan_protocol.channels import publication
from stan_protocol.scalars import GroupId, Nanos

from stan.core.base.faults import Faults
from stan.core.base.timers import Timers
from stan.core.services.nats import NatsState
from stan.core.services.node import Node
from stan.core.services.outgoing import Outgoing
from stan.core.services.senders import Senders
from stan.protocol.user_subjects import user_of

NUMBER_DIGITS_MAX = 19
"""Longest request number in a reply subject; a longer one is not of this broker, and int() raises beyond a few thousand."""

Answered = Callable[[bytes | None], object]
"""Called once with the payload of the answer to a request; with None if no client listens or no answer came in time."""


@dataclass(slots=True)
class BrokerRequests:
    """Own requests under way."""

    node: Node
    nats: NatsState
    senders: Senders
    outgoing: Outgoing
    timers: Timers
    faults: Faults
    newest: int = 0  # number of the newest request
    awaited: dict[int, Answered] = field(default_factory=dict)  # number of a request -> on answer
    asked_users: dict[int, bytes] = field(default_factory=dict)  # number of a request -> the user who was asked

    def send(self, group: GroupId, subject: bytes, timeout_ns: int, answered: Answered, payload: bytes = b"") -> None:
        """Send a request on behalf of *group*; *answered* is called once, with None after *timeout_ns*."""
        self.newest += 1
        number = self.newest
        self.awaited[number] = end = self.faults.bound(group, answered)
        reply = b"%b%d" % (self.nats.reply_prefix, number)
        if self.senders.authorizer is not None and (user := user_of(subject).encode()):
            self.asked_users[number] = user
            reply = b"%b.%b" % (reply, user)
        self.outgoing.responses.append(publication(subject, payload, reply))

        def late(_now: Nanos) -> None:
            self.asked_users.pop(number, None)
            if self.awaited.pop(number, None) is not None:
                end(None)

        self.timers.at(self.node.clock.now + timeout_ns, late, group)

    def answered(self, suffix: bytes) -> Answered | None:
        """Take the callback that waits for the answer under *suffix*, the reply subject behind `reply_prefix`; None if there is
        none, or if another user answers than the one who was asked."""
        number, _, user = suffix.partition(b".")
        if not number.isdigit() or len(number) > NUMBER_DIGITS_MAX or self.asked_users.get(int(number), b"") != user:
            return None
        self.asked_users.pop(int(number), None)
        return self.awaited.pop(int(number), None)

    def lose_all(self) -> None:
        """The NATS connection is lost: call the callbacks of all requests under way with None."""
        self.asked_users.clear()
        for number in list(self.awaited):
            self.awaited.pop(number)(None)
