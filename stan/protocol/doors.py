"""How it is known which NATS user asks: each has a NATS account of his own, and the broker has another. Pure.

    user's account          `_STAN.sub.C`, reply `_INBOX.x`              what every client says
    broker's account        `_STAN.from.<user>._STAN.sub.C`              as NATS hands it over, nobody can say it for another
    broker's answer         `_STAN.to.<user>._INBOX.x`                   which NATS hands to that account alone, as `_INBOX.x`

Publishes, acks and the acks of publishes cross unchanged: a publish is known by its connection id, an ack by its inbox, both of
which only the broker and that user have seen. The accounts are made by stan.edge.accounts.
"""

from google.protobuf.message import DecodeError

from stan.config import Config
from stan.permissions import RESERVED
from stan.protocol import wire_pb2 as wire
from stan.protocol.channels import Subjects
from stan.protocol.frames import Frame

BROKER = RESERVED
"""Name of the broker's account and of its user; nodes ask each other under it."""
FROM = "_STAN.from"
TO = "_STAN.to"
_FROM, _TO = f"{FROM}.".encode(), f"{TO}.".encode()


def reply_subject(cluster_id: str) -> str:
    """What answers to the broker's own requests begin with; the user's name ends them."""
    return f"_STAN.reply.{cluster_id}"


def ack_subject(cluster_id: str) -> str:
    """What ack inboxes begin with."""
    return f"_STAN.ack.{cluster_id}"


def with_users(config: Config) -> bool:
    """Whether NATS tells which user asks."""
    return config.permissions is not None and bool(config.permissions.users)


def ack_subjects(config: Config, nuid: bytes) -> str:
    """All ack inboxes of a cluster."""
    return f"{ack_subject(config.cluster_id)}.>" if with_users(config) else f"_INBOX.{nuid.decode()}.>"


def heard(subject: str) -> str:
    """What the broker subscribes to in place of *subject* of a request."""
    return f"{FROM}.*.{subject}"


def user_of(inbox: bytes) -> str:
    """The user whom an inbox belongs to, as the broker knows it; "" if NATS does not tell."""
    return inbox[len(_TO) :].partition(b".")[0].decode("utf-8", "replace") if inbox.startswith(_TO) else ""


def opened(frame: Frame, subjects: Subjects) -> Frame | None:
    """A request as its user has sent it, its inboxes as the broker reaches them; None if it is not one of a user."""
    if not frame.subject.startswith(_FROM):
        return None
    user, _, subject = frame.subject[len(_FROM) :].partition(b".")
    prefix = b"%b%b." % (_TO, user)
    reply = prefix + frame.reply if frame.reply else b""
    payload = _payload(subject.decode("utf-8", "replace"), frame.payload, prefix, subjects)
    return frame._replace(subject=subject, reply=reply, payload=payload)


def _payload(subject: str, payload: bytes, prefix: bytes, subjects: Subjects) -> bytes:
    try:
        if subject == subjects.discover:
            connect = wire.ConnectRequest.FromString(payload)
            if connect.heartbeat_inbox:
                connect.heartbeat_inbox = prefix + connect.heartbeat_inbox
            return connect.SerializeToString()
        if subject == subjects.sub:
            subscribe = wire.SubscriptionRequest.FromString(payload)
            if subscribe.inbox:
                subscribe.inbox = prefix + subscribe.inbox
            return subscribe.SerializeToString()
        if subject in (subjects.unsub, subjects.sub_close):
            leave = wire.UnsubscribeRequest.FromString(payload)
            if leave.inbox and not leave.inbox.startswith(b"_STAN.ack."):  # an ack inbox is known to both as it is
                leave.inbox = prefix + leave.inbox
            return leave.SerializeToString()
    except DecodeError:
        pass  # who handles it says so
    return payload
