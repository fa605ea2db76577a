"""Channel names: what is a name, and what NATS subjects are made of them (STAN-SPEC 1, 4.2). Pure."""

from stan.limits import CHANNEL_NAME_BYTES_MAX, INBOX_BYTES_MAX
from stan.patterns import RESERVED

_BLANKS = (b" ", b"\t", b"\r", b"\n")
OWN_INBOXES = b"_INBOX._STAN."
"""Prefix of the inboxes on which clients answer the broker; the broker answers clients on other inboxes."""
REPLIES = ("_INBOX.", "_STAN.acks.")
"""Prefixes of the reply subjects of publishes, in all existing clients."""
_ACKS = b"_STAN.acks."
_RESERVED = tuple(prefix.encode() for prefix in RESERVED)


def is_channel_name(name: bytes) -> bool:
    """True if *name* is a literal channel name: tokens separated by dots, none empty, without `/`, `*`, `>`.

    Bytes that cannot travel inside a NATS subject (space, tab, CR, LF) are refused too, and names beyond a sane length.
    """
    if not 0 < len(name) <= CHANNEL_NAME_BYTES_MAX or name.startswith(b".") or name.endswith(b".") or b".." in name:
        return False
    return not any(char in name for char in (b"/", b"*", b">", *_BLANKS))


def is_subject(subject: bytes) -> bool:
    """True if the broker can send to *subject*, which a client has named: a subject that breaks the NATS protocol line would cost
    the broker its NATS connection, again and again."""
    return 0 < len(subject) <= INBOX_BYTES_MAX and not any(char in subject for char in (*_BLANKS, b"\0"))


def is_inbox(subject: bytes) -> bool:
    """True if the broker may send to *subject*, which a client has named: to a subject where servers listen, a client could make
    the broker send messages in the broker's name."""
    return is_subject(subject) and (not subject.startswith(_RESERVED) or subject.startswith(_ACKS))


def folded(name: bytes) -> bytes:
    """The channel name in lower case, as text; it must be unique among all channels (STAN-SPEC 4.2)."""
    return name.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")


class Subjects:
    """The NATS subjects of one streaming cluster (STAN-SPEC 1.2), and those between its nodes."""

    __slots__ = (
        "close",
        "discover",
        "events",
        "extension",
        "hello",
        "meta",
        "node",
        "node_add",
        "node_remove",
        "pings",
        "pub_prefix",
        "sub",
        "sub_close",
        "unsub",
    )

    def __init__(self, cluster_id: str, discover_prefix: str) -> None:
        self.discover = f"{discover_prefix}.{cluster_id}"
        self.pings = f"{self.discover}.pings"
        self.pub_prefix = f"_STAN.pub.{cluster_id}"
        self.sub = f"_STAN.sub.{cluster_id}"
        self.unsub = f"_STAN.unsub.{cluster_id}"
        self.sub_close = f"_STAN.subclose.{cluster_id}"
        self.close = f"_STAN.close.{cluster_id}"
        self.node = f"_STAN.node.{cluster_id}"
        self.hello = f"{self.node}.hello"
        self.meta = f"{self.node}.meta"
        self.node_add = f"_STAN.raft.{cluster_id}.node.add"
        self.node_remove = f"_STAN.raft.{cluster_id}.node.remove"
        self.extension = extension_subject(cluster_id)
        self.events = f"{self.extension}.events"


def fetch_subjects(cluster_id: str) -> tuple[str, str]:
    """The subjects of fetch requests: to a channel's leader, and to read replicas."""
    extension = extension_subject(cluster_id)
    return f"{extension}.fetch", f"{extension}.replica.fetch"


def extension_subject(cluster_id: str) -> str:
    """The common prefix of the subjects of the extension's requests, which the original does not have."""
    return f"_STAN.x.{cluster_id}"


def publication(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """One NATS PUB frame; *reply* is where answers go, b"" for nowhere."""
    return b"PUB %b %d\r\n%b\r\n" % (subject + b" " + reply if reply else subject, len(payload), payload)
