"""Permissions: a request without the needed right is refused before it is handled.

Every request passes `admit` once. A request that cannot be judged by its content alone is judged by its handler, which asks the
authorizer. Publishes are judged per publisher and channel of a batch, and verdicts are remembered: nothing is done per message,
and nothing at all where no permissions are configured (`BrokerContext.authorizer` is None then). Each node of a cluster judges
by its own configuration, which has to be the same on all of them.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.frames import Frame, Publishes, Sender
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote

from stan.core.base.names import text
from stan.core.metadata.registered_clients import Client
from stan.core.requests.table import ALL, REQUESTS, UNKNOWN, RequestKind, Scope
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.cursors import Subscription
from stan.permissions import EVERYTHING, Permissions, Right
from stan.protocol.requests import decode
from stan.protocol.user_subjects import BROKER, FROM, ack_subject, said_by, unwrap, user_of

_USERS: Final = f"{FROM}.".encode()
_OWN: Final = _USERS + f"{BROKER}.".encode()


class PermissionAuthorizer:
    """The authorizer of a broker with configured permissions (see `stan.core.services.senders.Authorizer`)."""

    def __init__(self, services: Services, permissions: Permissions) -> None:
        self.leading, self.nats, self.node = services.leading, services.nats, services.node
        self.outgoing, self.placement, self.reports = services.outgoing, services.placement, services.reports
        self.senders = services.senders
        self.permissions = permissions
        self.with_users = bool(permissions.users)
        self._users = {user.name for user in permissions.users}

    # --- who it is --------------------------------------------------------------------------------------------------------

    def owns(self, reply: bytes, client: Client) -> bool:
        """True if the requester with that reply subject is the user to whom *client* belongs; always True without users."""
        return not self.with_users or user_of(reply) == user_of(client.heartbeat_inbox)

    def ack_prefix(self, client: Client) -> bytes:
        """The prefix of the client's ack inboxes; b"" without users."""
        user = user_of(client.heartbeat_inbox).encode()
        return said_by(user, ack_subject(self.node.config.cluster_id).encode()) if self.with_users else b""

    def is_of(self, user: bytes, client: Client) -> bool:
        """True if *client* belongs to *user*; always True without users."""
        return not self.with_users or user.decode("utf-8", "replace") == user_of(client.heartbeat_inbox)

    def may_ack(self, user: bytes, sub: Subscription) -> bool:
        """True if acks of *user* count for the subscription; always True without users."""
        return not self.with_users or user.decode("utf-8", "replace") == user_of(sub.settings.inbox)

    def is_user(self, name: bytes) -> bool:
        """True if there is a user of that name."""
        return text(name) in self._users

    def own(self, subject: str) -> str:
        """The subject on which this server itself asks what clients ask on *subject*, of itself and the other nodes; with users
        it lies below the broker's own prefix, which the NATS accounts keep users from."""
        own = self.with_users and subject.startswith(f"{self.nats.subjects.extension}.")
        return f"{FROM}.{BROKER}.{subject}" if own else subject

    # --- publishes --------------------------------------------------------------------------------------------------------

    def may_publish(self, batch: Publishes) -> list[bool]:
        """For each publisher of the batch, in order, True if it may publish to the channel, and to the one where its messages are
        stored later if they are delayed; all publishers are known."""
        reached = self.placement.reached(batch.channel)
        return [all(self._may_publish(sender, channel) for channel in reached) for sender in batch.senders()]

    def _may_publish(self, sender: Sender, channel: bytes) -> bool:
        client = self.senders.sender(sender)
        if client is None:
            return False
        user = user_of(client.heartbeat_inbox)
        proven = self.with_users or sender[2] or not client.conn_id  # a client id alone is public
        if proven and self.permissions.allows(user, client.client_id, Right.PUBLISH, self._whole(channel)):
            return True
        self._complain(user, client.client_id, Right.PUBLISH, channel)
        return False

    def right_refusal(self, reply: bytes, right: Right, channel: bytes) -> str:
        """Return why the requester with that reply subject has no such right to the channel; "" if it has."""
        return self._refusal_of(user_of(reply), b"", [right], channel)

    # --- subscriptions ----------------------------------------------------------------------------------------------------

    def subscription_refusal(self, request: wire.SubscriptionRequest, reply: bytes) -> str:
        """Return why a registered client may not make this subscription; "" if it may."""
        client = self.node.meta.clients.get(request.client_id)
        if client is None or not self.owns(reply, client):
            return refusals.UNKNOWN_CLIENT
        rights = [Right.SUBSCRIBE, Right.DURABLE] if request.durable_name else [Right.SUBSCRIBE]
        return self._refusal_of(user_of(reply), client.client_id, rights, request.subject)

    def leave_refusal(self, sub: Subscription, reply: bytes, channel: bytes, *, ends_durable: bool) -> str:
        """Return why the requester with that reply subject may not end a subscription; "" if it may."""
        client = self.senders.known(sub.client_id)
        if client is None or not self.owns(reply, client) or not self.may_ack(user_of(reply).encode(), sub):
            return refusals.UNKNOWN_CLIENT
        rights = [Right.DURABLE] if ends_durable else []
        return self._refusal_of(user_of(reply), sub.client_id, rights, channel)

    def may_keep(self, client: Client, channel: bytes, *, durable: bool) -> bool:
        """True if a subscription from before the start of this server may continue."""
        rights = (Right.SUBSCRIBE, Right.DURABLE) if durable else (Right.SUBSCRIBE,)
        user = user_of(client.heartbeat_inbox)
        whole = self._whole(channel)
        return all(self.permissions.allows(user, client.client_id, right, whole) for right in rights)

    def _whole(self, channel: bytes) -> bytes:
        """The channel whose rights count: of a part the one that it belongs to."""
        return self.node.meta.channels.parted.whole(channel)

    def _refusal_of(self, user: str, client_id: bytes, rights: Iterable[Right], channel: bytes) -> str:
        whole = self._whole(channel)
        wrong = (right for right in rights if not self.permissions.allows(user, client_id, right, whole))
        return next((self.refusal(user, client_id, right, channel) for right in wrong), "")

    # --- requests ---------------------------------------------------------------------------------------------------------

    def admit(self, frame: Frame) -> Frame | None:
        """The request in the form to be handled, its user's prefix removed; None if it must not be handled: the responsible node
        has answered why."""
        subjects = self.nats.subjects
        if self.with_users and frame.subject.startswith(_OWN):
            return frame._replace(subject=frame.subject[len(_OWN) :])
        asked = self._unwrap(frame) if self.with_users else frame
        if asked is None:
            return None
        subject = asked.subject.decode("utf-8", "replace")
        try:
            if subject.startswith(f"{subjects.extension}."):
                admitted = self._may_ask(asked, subject[len(subjects.extension) + 1 :])
            else:
                admitted = self._may_say(asked, subject)
        except DecodeError:
            admitted = True  # its handler refuses it
        return asked if admitted else None

    def _unwrap(self, frame: Frame) -> Frame | None:
        found = unwrap(frame, self.nats.subjects)
        if found is None and self.node.leads_meta and not frame.subject.startswith(_USERS):
            # Sent in the broker's own account, where no users are: by another server that looks for servers of its cluster.
            response = wire.ConnectResponse(error=refusals.UNKNOWN_USER.encode())
            self.outgoing.respond(frame.reply, response.SerializeToString())
        return found

    def _may_say(self, frame: Frame, subject: str) -> bool:
        """Judge the original's requests that can be judged by their content alone.

        Raises:
            DecodeError: if the request cannot be parsed.
        """
        subjects = self.nats.subjects
        if subject == subjects.discover:
            return self._may_connect(frame)
        if subject == subjects.close:
            return self._may_close(frame)
        if subject in (subjects.node_add, subjects.node_remove):
            return self._may_change_nodes(frame)
        return True

    def _may_connect(self, frame: Frame) -> bool:
        user, client_id = user_of(frame.reply), decode(wire.ConnectRequest, frame.payload).client_id
        if self.permissions.admits(user, client_id):
            return True
        if self.leading.concerns(META_GROUP):
            error = refusals.client_not_permitted(text(client_id))
            self.reports.complain("WRN", f"{_who(user, client_id)}: {error}")
            self.outgoing.respond(frame.reply, wire.ConnectResponse(error=error.encode()).SerializeToString())
        return False

    def _may_change_nodes(self, frame: Frame) -> bool:
        user = user_of(frame.reply)
        if self.permissions.allows(user, b"", Right.ADMIN_WRITE, ALL):
            return True
        if self.leading.concerns(META_GROUP):
            error = self.refusal(user, b"", Right.ADMIN_WRITE, ALL)
            self.outgoing.respond(frame.reply, f"-ERR {error}".encode())
        return False

    def _may_close(self, frame: Frame) -> bool:
        client = self.node.meta.clients.get(decode(wire.CloseRequest, frame.payload).client_id)
        if client is None or self.owns(frame.reply, client):
            return True
        if self.leading.concerns(META_GROUP):
            refusal = wire.CloseResponse(error=refusals.UNKNOWN_CLIENT.encode())
            self.outgoing.respond(frame.reply, refusal.SerializeToString())
        return False

    def _may_ask(self, frame: Frame, name: str) -> bool:
        """Judge a request of the extension by its user alone, as it carries no client id.

        Raises:
            DecodeError: if the request cannot be parsed.
        """
        user = user_of(frame.reply)
        kind = REQUESTS.get(name, UNKNOWN)
        request = decode(kind.request, frame.payload)
        if kind.channels is None:
            wrong = None if any(self.permissions.has(user, b"", right) for right in kind.rights) else ALL
        else:
            wrong = next((named for named in kind.channels(request) if not self._allows_all(user, kind, named)), None)
        right = kind.rights[0]
        if wrong is None:
            right = Right.PUBLISH
            wrong = next((named for named in kind.fills(request) if not self._may_fill(user, named)), None)
        if wrong is None:
            return True
        if self._has_to_answer(kind, wrong):
            answer = refusals.refused(kind.response(), self.refusal(user, b"", right, wrong))
            self.outgoing.respond(frame.reply, answer.SerializeToString())
        return False

    def _allows_all(self, user: str, kind: RequestKind, named: bytes) -> bool:
        """True if the user has the right for a channel or pattern that a request names; to publish, for a delay's target, too."""
        reached = self.placement.reached(named) if kind.rights == (Right.PUBLISH,) else (named,)
        return all(self._allows(user, kind, channel) for channel in reached)

    def _allows(self, user: str, kind: RequestKind, channel: bytes) -> bool:
        return any(self.permissions.allows(user, b"", right, self._whole(channel)) for right in kind.rights)

    def _may_fill(self, user: str, named: bytes) -> bool:
        """True if the user may have the broker move messages into a channel, or those that a pattern covers."""
        return any(
            self.permissions.allows(user, b"", right, self._whole(named))
            for right in (Right.PUBLISH, Right.ADMIN_WRITE)
        )

    def _has_to_answer(self, kind: RequestKind, channel: bytes) -> bool:
        """True if this node has to answer that the request is refused for *channel*."""
        if kind.scope in (Scope.REPLICA, Scope.EACH_NODE):
            return True
        if EVERYTHING in text(channel) or b"*" in channel:  # a request to every leader
            return self.node.leads_meta or any(True for _ in self.leading.led)
        return self.node.leads(self.placement.group_number(channel))

    # --- refusals ---------------------------------------------------------------------------------------------------------

    def refusal(self, user: str, client_id: bytes, right: Right, channel: bytes) -> str:
        """Return the error for a requester without the right, and write it to the log, bounded by `complain`."""
        self._complain(user, client_id, right, channel)
        return refusals.not_permitted(right.value, text(channel))

    def _complain(self, user: str, client_id: bytes, right: Right, channel: bytes) -> None:
        self.reports.complain(
            "WRN", lambda: f"{_who(user, client_id)}: {refusals.not_permitted(right.value, text(channel))}"
        )


def _who(user: str, client_id: bytes) -> str:
    names = ([f"user {go_quote(user)}"] if user else []) + (
        [f"client {go_quote(text(client_id))}"] if client_id else []
    )
    return " ".join(names) or "somebody without a client id"
