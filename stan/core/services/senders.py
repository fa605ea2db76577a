"""Senders of requests, publishes and acks: which client or user they are, and what they may do."""

from dataclasses import dataclass, field
from typing import Protocol

from stan_protocol.channels import is_inbox, is_subject
from stan_protocol.frames import Frame, Publishes, Sender
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.rate_limit import RateLimiter
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.registered_clients import Client
from stan.core.services.leading import Leading
from stan.core.services.node import Node
from stan.core.state.cursors import Subscription
from stan.permissions import Permissions, Right
from stan.protocol.user_subjects import acker, user_of


class Authorizer(Protocol):
    """Decides by the permissions what clients may do; implemented by stan.core.clients.authorization."""

    with_users: bool  # NATS tells which user asks
    permissions: Permissions

    def refusal(self, user: str, client_id: bytes, right: Right, channel: bytes) -> str:
        """Return the error for a requester without the right, and write it to the log."""

    def owns(self, reply: bytes, client: Client) -> bool:
        """True if the requester with that reply subject is the user to whom *client* belongs."""

    def ack_prefix(self, client: Client) -> bytes:
        """The prefix of the client's ack inboxes; b"" if the client belongs to no user."""

    def is_of(self, user: bytes, client: Client) -> bool:
        """True if *client* belongs to *user*."""

    def may_ack(self, user: bytes, sub: Subscription) -> bool:
        """True if acks of *user* count for the subscription."""

    def own(self, subject: str) -> str:
        """The subject on which this server itself asks what clients ask on *subject*, of itself and the other nodes."""

    def may_publish(self, batch: Publishes) -> list[bool]:
        """For each publisher of the batch, in order, True if it may publish to the channel; all publishers are known."""

    def right_refusal(self, reply: bytes, right: Right, channel: bytes) -> str:
        """Return why the requester with that reply subject has no such right to the channel; "" if it has."""

    def subscription_refusal(self, request: wire.SubscriptionRequest, reply: bytes) -> str:
        """Return why a registered client may not make this subscription; "" if it may."""

    def leave_refusal(self, sub: Subscription, reply: bytes, channel: bytes, *, ends_durable: bool) -> str:
        """Return why the requester with that reply subject may not end a subscription; "" if it may."""

    def is_user(self, name: bytes) -> bool:
        """True if there is a user of that name."""

    def may_keep(self, client: Client, channel: bytes, *, durable: bool) -> bool:
        """True if a subscription from before the start of this server may continue."""

    def admit(self, frame: Frame) -> Frame | None:
        """The request in the form to be handled; None if it must not be handled; the responsible node has answered why."""


@dataclass(slots=True)
class Senders:
    """Finds the client or user behind a frame."""

    node: Node
    leading: Leading
    rate_limiter: RateLimiter  # of operators' requests
    authorizer: Authorizer | None = None  # None: every client may do everything
    closing: dict[int, Client] = field(default_factory=dict)
    """Clients that are gone, by incarnation, as long as frames that they sent before may still come."""

    def known(self, client_id: bytes) -> Client | None:
        """The client of that id; a closing one counts, too, as it may have sent a frame before it closed."""
        closing = self.closing.values()
        return self.node.meta.clients.get(client_id) or next(
            (one for one in closing if one.client_id == client_id), None
        )

    def sender(self, sender: Sender) -> Client | None:
        """The client that published something, by connection id if the publish has one, else by client id (STAN-SPEC 2.3); a
        closing one counts, too. None if it is unknown, or belongs to another user than the sender."""
        user, client_id, conn_id = sender
        connection = (user, conn_id)
        found = self.node.meta.clients.by_connection.get(connection) if conn_id else self.known(client_id)
        if found is None and conn_id and self.closing:
            found = next((one for one in self.closing.values() if one.connection == connection), None)
        return found if found is None or self.authorizer is None or self.authorizer.is_of(user, found) else None

    def user_of(self, reply: bytes) -> bytes:
        """The user who sent a request, from its reply subject; b"" if NATS does not report users."""
        return user_of(reply).encode() if self.authorizer is not None and self.authorizer.with_users else b""

    def may_send_to(self, named: bytes) -> bool:
        """True if the broker may send to a subject that a client has named. With users the broker sends to it only behind the
        prefix `_STAN.to.<user>.`."""
        if self.authorizer is not None and self.authorizer.with_users:
            return is_subject(named)
        return is_inbox(named) and not named.startswith(b"_INBOX.%b." % self.node.nuid)

    def judged(self, inbox: bytes) -> tuple[ChannelGroup, int] | None:
        """Return the result of `Leading.acked` for a whole ack inbox; None also if its subscription belongs to another user than
        the one who sent there."""
        authorizer = self.authorizer
        user, number, key = acker(inbox, users=authorizer is not None and authorizer.with_users)
        taker = self.leading.acked(number, key)
        if taker is None or authorizer is None:
            return taker
        found = taker[0].dispatch.cursors.by_ack_key.get(taker[1])
        return taker if found is not None and authorizer.may_ack(user, found[1].sub) else None
