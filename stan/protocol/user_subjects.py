"""Subjects that show the NATS user of a request: each user has a NATS account, and the broker has another. Pure.

    user's account          `_STAN.sub.C`, reply `_INBOX.x`              as every client sends it
    broker's account        `_STAN.from.<user>._STAN.sub.C`              as NATS hands it over; no user can send it for another
    broker's answer         `_STAN.to.<user>._INBOX.x`                   NATS hands it to that account alone, as `_INBOX.x`
    an advisory             `_STAN.to.<user>.$JS.EVENT.ADVISORY.…`       likewise, as `$JS.EVENT.ADVISORY.…`

Publishes and acks are many, and another name for a subject costs NATS as much as a delivery. So the broker has clients
publish and ack on `_STAN.from.<user>.…` themselves: messages there cross as they are, out of that user's account alone.
The broker sends to subjects that clients name (replies, inboxes) only after `_STAN.to.<user>.`, so no user can make it send
anything in its own account, where servers speak to each other. The accounts are made by stan.edge.nats.accounts.
"""

from google.protobuf.message import DecodeError
from stan_protocol.channels import OWN_INBOXES, REPLIES, Subjects, is_inbox
from stan_protocol.frames import Frame, Rules
from stan_protocol.patterns import ONE, REST
from stan_protocol.proto import wire_pb2 as wire

from stan.config import Config
from stan.permissions import RESERVED

BROKER = RESERVED
"""Name of the broker's account and of its user; nodes ask each other under it."""
FROM = "_STAN.from"
TO = "_STAN.to"
ACK_GROUPS = 1 << 16
"""Added to the number of the group in ack inboxes of subscriptions that another node than the leader may serve: a node without
of these skips their acks unread."""
_BUCKETS = {"$KV", "$O"}
"""First tokens of the subjects of JetStream's buckets, and of its objects."""
_FROM, _TO = f"{FROM}.".encode(), f"{TO}.".encode()
_ACKS = (b"_STAN.ack.", _FROM)


def reply_subject(cluster_id: str) -> str:
    """The prefix of reply subjects of the broker's own requests; the subjects end with the user's name."""
    return f"_STAN.reply.{cluster_id}"


def ack_subject(cluster_id: str) -> str:
    """The prefix of users' ack inboxes."""
    return f"_STAN.ack.{cluster_id}"


def is_of_user(ack_inbox: bytes) -> bool:
    """True if an ack inbox belongs to a user."""
    return ack_inbox.startswith(_ACKS)


def with_users(config: Config) -> bool:
    """True if users are configured, so that NATS reports the user of each request."""
    return config.permissions is not None and bool(config.permissions.users)


def stream_tokens(config: Config) -> set[str]:
    """The first tokens that subjects of JetStream's streams may have where there are users: those of all patterns of the rules,
    and of buckets. Only messages on such subjects come to the broker."""
    rules = config.permissions.rules if config.permissions is not None else ()
    named = {name.partition(".")[0] for rule in rules for names in rule.rights.values() for name in names}
    taken = {prefix.partition(".")[0] for prefix in (*REPLIES, *config.reply_prefixes)} | {ONE, REST, "$JS", "$SYS"}
    return {token for token in (named | _BUCKETS) - taken if token.isprintable() and " " not in token}


def said_by(user: bytes, subject: bytes) -> bytes:
    """The subject on which the broker receives a user's messages to *subject*; *subject* itself without a user."""
    return b"%b%b.%b" % (_FROM, user, subject) if user else subject


def ack_subjects(config: Config, nuid: bytes) -> str:
    """All ack inboxes of a cluster."""
    return from_any_user(f"{ack_subject(config.cluster_id)}.>") if with_users(config) else f"_INBOX.{nuid.decode()}.>"


def rules(config: Config, nuid: bytes = b"") -> Rules:
    """The kernel's rules for users and reply subjects; *nuid*: of the cluster, b"" while it is unknown."""
    replies = tuple(prefix.encode() for prefix in (*REPLIES, *config.reply_prefixes))
    if with_users(config):
        return Rules(_FROM, _TO, replies)
    return Rules(replies=replies, own=(OWN_INBOXES, *([b"_INBOX.%b." % nuid] if nuid else [])))


def from_any_user(subject: str) -> str:
    """The subject that the broker subscribes to in place of *subject*, to receive it from any user."""
    return f"{FROM}.*.{subject}"


def user_of(inbox: bytes) -> str:
    """The user of an inbox as the broker knows it; "" without users."""
    return inbox[len(_TO) :].partition(b".")[0].decode("utf-8", "replace") if inbox.startswith(_TO) else ""


def inbox_of(user: bytes, subject: bytes) -> bytes:
    """An inbox of a user as the broker reaches it; *subject* itself without a user."""
    return b"%b%b.%b" % (_TO, user, subject) if user else subject


def own_name(subject: bytes) -> bytes:
    """An inbox as its user calls it; *subject* itself without users."""
    return subject[len(_TO) :].partition(b".")[2] if subject.startswith(_TO) else subject


def sent_by(frame: Frame) -> tuple[str, Frame] | None:
    """The user of a message of another protocol, and the message as its user sent it, its reply subject as the broker reaches it.
    One of a server, whose user is BROKER, names its reply subject itself. None: it is no user's, or wants its answer where no
    client can be answered."""
    if not frame.subject.startswith(_FROM):
        return None
    user, _, subject = frame.subject[len(_FROM) :].partition(b".")
    name = user.decode("utf-8", "replace")
    if name == BROKER or not frame.reply:
        return name, frame._replace(subject=subject)
    if not is_inbox(frame.reply):
        return None
    return name, frame._replace(subject=subject, reply=b"%b%b.%b" % (_TO, user, frame.reply))


def acker(ack_inbox: bytes, *, users: bool) -> tuple[bytes, int, int]:
    """Split the subject of an ack into the user (b"" without *users*), and group and key of the ack inbox.

    Raises:
        ValueError: it is no ack inbox; the kernel passes none on.
    """
    user, inbox = b"", ack_inbox
    if users:
        user, _, inbox = ack_inbox[len(_FROM) :].partition(b".")
    _, group, key = inbox.rsplit(b".", 2)
    return user, int(group), int(key)


def unwrap(frame: Frame, subjects: Subjects) -> Frame | None:
    """A request as its user sent it, its inboxes as the broker reaches them; None if it is no user's, or has no reply
    subject: from here on the reply subject shows its user."""
    if not frame.subject.startswith(_FROM) or not is_inbox(frame.reply):
        return None
    user, _, subject = frame.subject[len(_FROM) :].partition(b".")
    prefix = b"%b%b." % (_TO, user)
    payload = _payload(subject.decode("utf-8", "replace"), frame.payload, prefix, subjects)
    return frame._replace(subject=subject, reply=prefix + frame.reply, payload=payload)


def published(frame: Frame, allowed: Rules) -> Frame:
    """A malformed publish as its user sent it; without a reply subject if nothing may be sent there."""
    user, subject, reply = b"", frame.subject, frame.reply if allowed.answers(frame.reply) else b""
    if allowed.users:
        user, _, subject = frame.subject[len(_FROM) :].partition(b".")
        reply = b"%b%b.%b" % (_TO, user, reply) if reply else b""
    return frame._replace(subject=subject, reply=reply)


def _payload(subject: str, payload: bytes, prefix: bytes, subjects: Subjects) -> bytes:
    try:
        if subject == subjects.discover:
            connect = wire.ConnectRequest.FromString(payload)
            connect.heartbeat_inbox = _behind(prefix, connect.heartbeat_inbox)
            return connect.SerializeToString()
        if subject == subjects.sub:
            subscribe = wire.SubscriptionRequest.FromString(payload)
            subscribe.inbox = _behind(prefix, subscribe.inbox)
            return subscribe.SerializeToString()
        if subject in (subjects.unsub, subjects.sub_close):
            leave = wire.UnsubscribeRequest.FromString(payload)
            if leave.inbox and not is_of_user(leave.inbox):  # an ack inbox is the same for both
                leave.inbox = _behind(prefix, leave.inbox)
            return leave.SerializeToString()
    except DecodeError:
        pass  # the request's handler refuses it
    return payload


def _behind(prefix: bytes, inbox: bytes) -> bytes:
    """An inbox as the broker reaches it; b"", which is refused, if it is no inbox."""
    return prefix + inbox if is_inbox(inbox) else b""
