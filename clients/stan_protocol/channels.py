"""Channel names: their rules, and the NATS subjects made of them (STAN-SPEC 1, 4.2). Pure."""

import re
from dataclasses import dataclass

from stan_protocol.limits import CHANNEL_NAME_BYTES_MAX, INBOX_BYTES_MAX
from stan_protocol.patterns import RESERVED

_BLANKS = (b" ", b"\t", b"\r", b"\n")
OWN_INBOXES = b"_INBOX._STAN."
"""Prefix of the inboxes on which clients answer the broker; the broker answers clients on other inboxes."""
REPLIES = ("_INBOX.", "_STAN.acks.")
"""Prefixes of the reply subjects of publishes, in all existing clients."""
_ACKS = b"_STAN.acks."
_PART_MARK = b".~"
_PART = re.compile(rb"(.+)\.~(0|[1-9][0-9]{0,5})", re.DOTALL)
_RESERVED = tuple(prefix.encode() for prefix in RESERVED)


def is_channel_name(name: bytes) -> bool:
    """True if *name* is a literal channel name: tokens separated by dots, none empty, without `/`, `*`, `>`.

    Bytes that cannot travel inside a NATS subject (space, tab, CR, LF) are refused too, and names beyond a sane length.
    """
    if not 0 < len(name) <= CHANNEL_NAME_BYTES_MAX or name.startswith(b".") or name.endswith(b".") or b".." in name:
        return False
    return not any(char in name for char in (b"/", b"*", b">", *_BLANKS))


def is_subject(subject: bytes) -> bool:
    """True if the broker can send to *subject*, which a client has named: one without empty tokens and wildcards. A subject that
    breaks the NATS protocol line would cost the broker its NATS connection, again and again."""
    if not 0 < len(subject) <= INBOX_BYTES_MAX or any(char in subject for char in (*_BLANKS, b"\0")):
        return False
    return not any(token in (b"", b"*", b">") for token in subject.split(b"."))


def is_inbox(subject: bytes) -> bool:
    """True if the broker may send to *subject*, which a client has named: to a subject where servers listen, a client could make
    the broker send messages in the broker's name."""
    return is_subject(subject) and (not subject.startswith(_RESERVED) or subject.startswith(_ACKS))


def folded(name: bytes) -> bytes:
    """The channel name in lower case, as text; it must be unique among all channels (STAN-SPEC 4.2)."""
    return name.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """The NATS subjects of one streaming cluster (STAN-SPEC 1.2), and those between its nodes."""

    discover: str
    pings: str
    pub_prefix: str  # before the channel name
    sub: str
    unsub: str
    sub_close: str
    close: str
    node: str  # prefix of the subjects between nodes
    hello: str
    meta: str  # changes of the metadata, for their leader
    read_index: str  # questions to the leader of the metadata how new they are
    moves: str  # questions to the leader of a group about channels that are moved from it
    serving: str  # reports of nodes that serve subscriptions
    node_add: str
    node_remove: str
    extension: str  # prefix of the requests that the original does not have
    events: str  # prefix of the cluster's events

    @classmethod
    def of(cls, cluster_id: str, discover_prefix: str) -> "Subjects":
        """Return the subjects of a cluster; *discover_prefix*: of its connect requests."""
        discover, node = f"{discover_prefix}.{cluster_id}", f"_STAN.node.{cluster_id}"
        extension = extension_subject(cluster_id)
        return cls(
            discover=discover,
            pings=f"{discover}.pings",
            pub_prefix=f"_STAN.pub.{cluster_id}",
            sub=f"_STAN.sub.{cluster_id}",
            unsub=f"_STAN.unsub.{cluster_id}",
            sub_close=f"_STAN.subclose.{cluster_id}",
            close=f"_STAN.close.{cluster_id}",
            node=node,
            hello=f"{node}.hello",
            meta=f"{node}.meta",
            read_index=f"{node}.read_index",
            moves=f"{node}.moves",
            serving=f"{node}.serving",
            node_add=f"_STAN.raft.{cluster_id}.node.add",
            node_remove=f"_STAN.raft.{cluster_id}.node.remove",
            extension=extension,
            events=f"{extension}.events",
        )


def fetch_subjects(cluster_id: str) -> tuple[str, str]:
    """The subjects of fetch requests: to a channel's leader, and to read replicas."""
    extension = extension_subject(cluster_id)
    return f"{extension}.fetch", f"{extension}.replica.fetch"


def extension_subject(cluster_id: str) -> str:
    """The common prefix of the subjects of the extension's requests, which the original does not have."""
    return f"_STAN.x.{cluster_id}"


def part_name(channel: bytes, number: int) -> bytes:
    """The name of a part of a channel that has parts (stan_protocol.parted)."""
    return b"%b%b%d" % (channel, _PART_MARK, number)


def whole_and_part(name: bytes) -> tuple[bytes, int] | None:
    """Return the channel of which *name* is a part, and the number of the part, if it has the name of one; else None. The channel
    need not exist."""
    match = _PART.fullmatch(name) if _PART_MARK in name else None
    return None if match is None else (match[1], int(match[2]))


def whole_of(name: bytes) -> bytes:
    """The channel of which *name* is a part, if it is called like one; else *name* itself."""
    match = whole_and_part(name)
    return name if match is None else match[0]


def publication(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """Return a NATS PUB frame; *reply* is the subject for answers, b"" for none."""
    return b"PUB %b %d\r\n%b\r\n" % (subject + b" " + reply if reply else subject, len(payload), payload)
