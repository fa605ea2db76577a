"""Dataclasses of what servers answer operators, and of what requests of these are made of. Pure.

Made from admin.proto by `python -m docs.generator.admin_types`: change that. Times are Unix ns, and durations ns, unless they say
otherwise.
"""

from dataclasses import dataclass
from enum import IntEnum

from stan_protocol.ack_levels import AckLevel
from stan_protocol.choices import Commit, Compact, Compress, SchemaCheck
from stan_protocol.records import MessageRecord
from stan_protocol.schemas.kinds import Compatibility, SchemaKind

__all__ = [
    "AckLevel",
    "AckedMessages",
    "ChangeResponse",
    "ChannelStatus",
    "ClientStatus",
    "Commit",
    "Compact",
    "Compatibility",
    "Compress",
    "ConsumerChannelStatus",
    "ConsumerGroupStatus",
    "ConsumerMemberStatus",
    "CursorKind",
    "CursorRef",
    "CursorStatus",
    "DamagedMessages",
    "DelayedMessage",
    "DeliveryPolicy",
    "Event",
    "ExplainStep",
    "GroupStatus",
    "Limits",
    "MemberStatus",
    "NodePlace",
    "NodeStatus",
    "Option",
    "PartOf",
    "PartSplitStatus",
    "PartedStatus",
    "PinStatus",
    "PolicyStatus",
    "ReadDelayedResponse",
    "ReadStreamResponse",
    "Redriven",
    "ReplicaStatus",
    "RestoredRun",
    "SchemaCheck",
    "SchemaKind",
    "SchemaStatus",
    "VerifyResponse",
]


class CursorKind(IntEnum):
    """Owner of a position: a plain subscription, a client and a name, or a queue group."""

    PLAIN = 0
    DURABLE = 1
    QUEUE = 2
    DURABLE_QUEUE = 3


@dataclass(frozen=True, slots=True)
class Limits(MessageRecord):
    """Limits of a channel; one that is not set is inherited."""

    max_msgs: int | None = None
    """0: no limit, as for all of them."""
    max_bytes: int | None = None
    max_age: int | None = None
    """ns."""
    max_subs: int | None = None
    max_inactivity: int | None = None
    """ns."""


@dataclass(frozen=True, slots=True)
class PartOf(MessageRecord):
    """Of which channel another one is a part."""

    channel: str = ""
    number: int = 0
    parts: int = 0
    """That the channel has."""
    before: int = 0
    """The newest sequence before the last doubling, behind which are the keys of now; 0 in parts that are younger."""
    doubling: int = 0
    """Since when the parts are being doubled, Unix ns; 0: they are not."""
    closed: bool = False
    """For that: the part takes nothing more."""


@dataclass(frozen=True, slots=True)
class ChannelStatus(MessageRecord):
    """A channel, as the leader of its group has it."""

    name: str = ""
    uid: int = 0
    group: int = 0
    first_sequence: int = 0
    """Last + 1 if all were removed; 0 if there was none ever."""
    last_sequence: int = 0
    messages: int = 0
    """Kept; of a channel that is compacted at most so many."""
    bytes: int = 0
    first_timestamp: int = 0
    """Unix ns."""
    last_timestamp: int = 0
    subscriptions: int = 0
    """Online members."""
    offline: int = 0
    """Durables and durable queue groups without a member."""
    limits: Limits = Limits()
    """In force."""
    edited: Limits = Limits()
    """Set by a request, over those of the configuration; a field that is not set was not edited."""
    deleted: int = 0
    """Messages deleted one by one between first and last."""
    delayed: int = 0
    """Delayed messages, which wait for the time that their publishers have set."""
    delay_fault: str = ""
    """Why delayed messages that are due cannot be moved now."""
    pinned: bool = False
    """To its group, by an operator."""
    commit: Commit = Commit.SYNCED
    """Meaning of an ack of a publish: 0 synced by a majority, 1 replicated to a majority."""
    ttl: int = 0
    """ns that messages live at most, as a policy says; 0: none does."""
    compacted_until: int = 0
    """Up to here of each key but one message may be gone; 0: the channel was never compacted."""
    tombstones_until: int = 0
    """Up to here tombstones may be gone, too."""
    compact: Compact = Compact.NONE
    """The policy in force: 0: none, 1: the newest message of a key stays, 2: the oldest."""
    kept_bytes: int = 0
    """That the log of the leader has of the messages, if some are compressed; 0: none is."""
    clear_bytes: int = 0
    """That it would have of them if none were; set with kept_bytes."""
    compress: Compress = Compress.NONE
    """The policy in force: 0: none, 1: zstd."""
    compacted_here: int = 0
    """Up to here the log of the leader has done it."""
    tombstone_held: int = 0
    """The newest tombstone that stays until a position has passed it; 0: there is none."""
    held_by: str = ""
    """That position: a durable, a queue group, a subscription, a named position."""
    compaction_passes: int = 0
    """Of the log of the leader over this channel, since it was opened."""
    compaction_saved_bytes: int = 0
    """By them."""
    compaction_ended: int = 0
    """When the last of them did, Unix ns."""
    tier: str = ""
    """The named position for which limits wait, as a policy says; empty: none."""
    tier_next: int = 0
    """The next sequence that it has to pass; 0: the position is not there."""
    tier_kept: int = 0
    """Messages that the limits would have removed, and that wait for it."""
    tier_lost: int = 0
    """Messages that the limits have removed before it had passed them, since this leader leads."""
    part_of: PartOf | None = None
    """Of a part of a channel; not set: it is none."""
    epoch: int = 0
    """Of an ephemeral channel: counts its leaders that have begun to keep its messages."""
    epoch_began: int = 0
    """Unix ns; 0: not known."""
    ack_level: AckLevel = AckLevel.UNTOLD
    """Where a message is when it is acked, as PubAck.ack_level tells it."""


@dataclass(frozen=True, slots=True)
class DelayedMessage(MessageRecord):
    """A message that waits for its time."""

    id: int = 0
    """As in the ack of the publish."""
    due: int = 0
    """Unix ns."""
    expires_at: int = 0
    """Unix ns, whole seconds; only with its contents; 0: it does not expire."""


@dataclass(frozen=True, slots=True)
class ReadDelayedResponse(MessageRecord):
    """A page of messages that wait for their time, with their contents."""

    messages: tuple[DelayedMessage, ...] = ()
    """By id."""
    more: bool = False
    ids: tuple[int, ...] = ()
    """See `until`."""
    last_sequence: int = 0
    """Of the channel at the moment of this answer: delayed messages get later ones."""
    now: int = 0
    """That moment, Unix ns."""
    after: int = 0
    """Of the next page, if there is `more`."""
    rows: bytes = b""
    """As of BatchRequest, of all messages."""


@dataclass(frozen=True, slots=True)
class MemberStatus(MessageRecord):
    """A subscription that is online, and gets messages of a position."""

    client_id: str = ""
    subscription_id: int = 0
    inbox: str = ""
    max_in_flight: int = 0
    ack_wait_s: int = 0
    pending: int = 0
    last_sent: int = 0
    stalled: bool = False
    """Its window is full."""
    failing: bool = False
    """Its client does not answer heartbeats."""
    oldest_pending: int = 0
    window_now: int = 0
    """Messages that may be in flight: max_in_flight, or less while an adaptive window is cut."""
    active: bool = False
    """Of a failover group: this member gets all messages."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy(MessageRecord):
    """The delivery of messages as an operator wants it. As a policy of a pattern: fields that are not set are
    inherited."""

    max_deliver: int | None = None
    """Deliveries of a message, the first included; 0: no limit."""
    backoff: tuple[int, ...] | None = None
    max_hold: int | None = None
    """ns that "working" may put an ack wait off; 0: no limit."""
    adaptive_window: bool | None = None
    """The window shrinks while messages come back."""
    dead_letter: str | None = None
    """Channel of messages that are given up; beginning with a dot: a suffix of the channel's name; empty: none."""
    dead_letter_rate: int | None = None
    """Most dead letters a minute before the position pauses; 0: no limit."""
    failover: bool | None = None
    """The first member of a queue group gets all messages, while it is there."""
    ordered_by_key: bool | None = None
    """A queue group delivers the messages of a key in order, to one member at a time."""
    delay: int | None = None
    """ns that messages published to the channel wait before they are stored in `target`; 0: none."""
    target: str | None = None
    max_late: int | None = None
    """ns that a delayed message may be late; 0: any time."""
    ttl: int | None = None
    """ns that messages of the channel live; 0: as long as the channel's limits keep them."""
    compact: Compact | None = None
    """0: no compaction; 1: of each key the newest message stays; 2: the oldest."""
    min_age: int | None = None
    """ns that a message is not compacted."""
    tombstone_max: int | None = None
    """ns that a tombstone stays for positions that have not passed it."""
    from_replica: bool | None = None
    """Plain subscriptions that are made from now on are served by other nodes than the leader, if there are any."""
    schema: SchemaCheck | None = None
    """Whether messages published to the channel are checked: 0 off, 1 known, 2 valid."""
    compress: Compress | None = None
    """How the leader compresses messages published to the channel: 0 not, 1 zstd."""
    tier: str | None = None
    """The named position which messages have to pass before the channel's limits remove them; empty: none."""
    tier_stretch: int | None = None
    """How many times its limits the channel keeps at most for that; 0: any number."""
    commit: Commit | None = None
    """Of channels that are made from then on: 0, an ack means synced by a majority; 1, replicated to a majority."""


@dataclass(frozen=True, slots=True)
class CursorStatus(MessageRecord):
    """A position in a channel: of a plain subscription, a durable, or shared by a queue group."""

    channel: str = ""
    cursor_id: int = 0
    group: int = 0
    kind: CursorKind = CursorKind.PLAIN
    durable_name: str = ""
    queue_group: str = ""
    client_id: str = ""
    """Of a durable: its owner."""
    paused: bool = False
    last_sent: int = 0
    acked_up_to: int = 0
    """Everything up to it was acked, or is gone."""
    pending: int = 0
    """Sent, not acked: of the members and owed."""
    owed: int = 0
    """Of these, without a member: to be sent to the next one."""
    waiting: int = 0
    """In the channel, not sent yet."""
    redelivered: int = 0
    """By this leader."""
    oldest_pending: int = 0
    """Unix ns, when the oldest one was sent first; 0: none or not known."""
    members: tuple[MemberStatus, ...] = ()
    last_sequence: int = 0
    """Of the channel."""
    last_ack: int = 0
    """Unix ns; 0: no ack came."""
    max_in_flight: int = 0
    """Also while no member is online."""
    ack_wait_s: int = 0
    first_sequence: int = 0
    """Of the channel."""
    owed_runs: tuple[tuple[int, int], ...] = ()
    """First, last, ...: for a backup."""
    pending_runs: tuple[tuple[int, int], ...] = ()
    """Of all members together, first, last, ..."""
    inbox: str = ""
    """Of the last member."""
    runs_cut: bool = False
    """There are more runs than the answer holds."""
    policy: DeliveryPolicy | None = None
    """In force, if an operator has set one."""
    served_by: str = ""
    """The node that sends the messages; of a plain subscription that another node serves than the leader: as of its
    last report."""
    exhausted: int = 0
    """Of the owed ones: given up, so not sent any more; 0 while no member is online."""
    given_up_rejected: int = 0
    """Of the exhausted ones: a client has rejected them; the others were delivered as often as the policy allows."""
    counted_runs: tuple[tuple[int, int], ...] = ()
    """Of the owed and pending ones, those that were delivered more than once: first, last, ..."""
    counts: tuple[int, ...] = ()
    """Redeliveries, one for each of these runs."""
    delayed: int = 0
    """Of the members' pending ones: failed, and in the pause before they are sent again."""
    held_back: int = 0
    """Of the waiting ones: passed over, each until an earlier message of its slot is settled; in `owed_runs`, too."""
    rejected: int = 0
    """By clients, since this leader leads."""
    dead_letters: int = 0
    """Messages that this leader has moved into a dead letter channel."""
    dead_letter_channel: str = ""
    """Where messages go that are given up; empty: nowhere."""
    dead_letter_fault: str = ""
    """Why they cannot be moved there now."""
    pause_reason: str = ""
    """Why the leader has paused the position by itself."""
    part_of: PartOf | None = None
    """Of a position in a part of a channel."""
    user: str = ""
    """Owner of a durable or queue group; empty: none, as of those made without users."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberStatus(MessageRecord):
    """A member of a consumer group."""

    name: str = ""
    """As it calls itself."""
    user: str = ""
    pattern: str = ""
    lease_ms: int = 0
    left_ms: int = 0
    """Of the lease."""
    channels: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerChannelStatus(MessageRecord):
    """A channel that members of a consumer group want, and its owner."""

    channel: str = ""
    member: int = 0
    """Place in `member_list`, from 1 on; 0: no owner."""
    generation: int = 0
    releasing: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerGroupStatus(MessageRecord):
    """A consumer group that has members."""

    group: str = ""
    members: int = 0
    channels: int = 0
    """That its members' patterns match."""
    unowned: int = 0
    """Of them, those without an owner."""
    releasing: int = 0
    """Of them, those that their owner has to release."""
    member_list: tuple[ConsumerMemberStatus, ...] = ()
    """If the request names the group: by their ids."""
    channel_list: tuple[ConsumerChannelStatus, ...] = ()
    """Likewise, by channel; cut off where an answer is full."""
    user: str = ""
    """Whose it is: each user has groups of its own; empty: everybody's."""


@dataclass(frozen=True, slots=True)
class PolicyStatus(MessageRecord):
    """A policy of delivery, and where it comes from."""

    pattern: str = ""
    name: str = ""
    policy: DeliveryPolicy = DeliveryPolicy()
    configured: bool = False
    """Else set by an operator, in the metadata."""
    where: str = ""
    """file:line of one that is configured."""


@dataclass(frozen=True, slots=True)
class ClientStatus(MessageRecord):
    """A registered client."""

    client_id: str = ""
    heartbeat_inbox: str = ""
    protocol: int = 0
    ping_interval_s: int = 0
    ping_max_out: int = 0
    failing: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaStatus(MessageRecord):
    """How far a copy of a group is, as its leader knows."""

    node: str = ""
    match: int = 0
    """Index it is known to have."""
    connected: bool = False


@dataclass(frozen=True, slots=True)
class GroupStatus(MessageRecord):
    """A node's copy of a group."""

    group: int = 0
    """0: the metadata."""
    role: str = ""
    """Leader, follower, candidate, observer; frozen: of a node alone, until a restart."""
    leader: str = ""
    """As this node knows it, "" if it knows none."""
    term: int = 0
    last_index: int = 0
    committed: int = 0
    applied: int = 0
    voters: tuple[str, ...] = ()
    trouble: str = ""
    """"" if all is well."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """Of a leader."""
    state_hash: bytes = b""
    """Of the state as of entry `hashed`, if there is one; nodes of one version have equal ones."""
    hashed: int = 0
    differs: str = ""
    """Nodes whose state differs from this one's; "" if none."""
    trouble_kind: str = ""
    """Stan.troubles: frozen, full, refusing, leaderless, voteless, incomplete, differs; "" if all is well."""
    trouble_since: int = 0
    """Unix ns; 0: not known."""
    commit: Commit = Commit.SYNCED
    """Of its channels, see ChannelStatus."""


@dataclass(frozen=True, slots=True)
class NodePlace(MessageRecord):
    """The labels of a node."""

    node: str = ""
    zone: str = ""
    """"": not reported, as all below."""
    rack: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class AckedMessages(MessageRecord):
    """How many messages were acked at one level."""

    level: AckLevel = AckLevel.UNTOLD
    """As PubAck tells it: 1 synced, 2 replicated, 3 memory."""
    messages: int = 0


@dataclass(frozen=True, slots=True)
class NodeStatus(MessageRecord):
    """A node, as it reports itself."""

    node: str = ""
    """"" alone."""
    server_id: str = ""
    product: str = ""
    """Version."""
    nodes: tuple[str, ...] = ()
    """That keep groups, as this one knows it."""
    nodes_version: int = 0
    started: int = 0
    """Unix ns."""
    replica: bool = False
    groups: tuple[GroupStatus, ...] = ()
    not_ready: tuple[str, ...] = ()
    """Why; none: ready."""
    clients: int = 0
    channels: int = 0
    monitor: str = ""
    """URL of its pages, "" if there are none."""
    disk_free: int = 0
    """Bytes."""
    disk_total: int = 0
    rss: int = 0
    """Bytes."""
    kernel: str = ""
    """Twin."""
    sync: str = ""
    store: str = ""
    now: int = 0
    """Unix ns."""
    messages_in: int = 0
    """Since it started."""
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    read_replicas: tuple[str, ...] = ()
    """Other nodes that this one hears, and that are no part of `nodes`."""
    level: int = 0
    """Of the cluster, as this node has it: bounds the entries that may be written; 0: it has none yet."""
    level_known: int = 0
    """The highest that this node's version knows."""
    labels: str = ""
    """Of this node, as in its settings: "zone=a,rack=3"."""
    places: tuple[NodePlace, ...] = ()
    """Of nodes that have labels, as this one knows the metadata."""
    pool_groups: int = 0
    """Groups of channels that there are, as this one knows the metadata; 0: not known."""
    pool_open: int = 0
    """Of them, those over which names of new channels are hashed."""
    channels_to_move: int = 0
    """That are not in the group where they belong yet; only from the leader of the metadata."""
    moves_paused: bool = False
    """No channel goes there by itself."""
    decompressed_batches: int = 0
    """For subscribers and other readers of messages in clear, since it started."""
    decompressed_again: int = 0
    """Of them, those that it had decompressed before, and that did not stay in memory."""
    acked: tuple[AckedMessages, ...] = ()
    """Since it started, as leader."""
    unanswered: int = 0
    """Of `messages_in`, those whose publishers want no ack."""


@dataclass(frozen=True, slots=True)
class Option(MessageRecord):
    """A setting of a node."""

    name: str = ""
    """As the command line calls it."""
    value: str = ""
    source: str = ""
    """Default, file:line, flag, environment."""


@dataclass(frozen=True, slots=True)
class DamagedMessages(MessageRecord):
    """Messages of a copy that cannot be read."""

    first_sequence: int = 0
    last_sequence: int = 0
    text: str = ""
    """The damage, with file and position."""


@dataclass(frozen=True, slots=True)
class VerifyResponse(MessageRecord):
    """A checked piece of one node's copy of a channel."""

    node: str = ""
    group: int = 0
    uid: int = 0
    first_sequence: int = 0
    """Of this copy."""
    last_sequence: int = 0
    messages: int = 0
    """Read for this answer."""
    bytes: int = 0
    """Of them, as stored."""
    crc: int = 0
    """CRC-32 of all that was read, each message behind its length (u32, little-endian)."""
    next_sequence: int = 0
    """Where to go on; above `to`: that was all."""
    damaged: tuple[DamagedMessages, ...] = ()
    """Left out of the counts."""


@dataclass(frozen=True, slots=True)
class ExplainStep(MessageRecord):
    """A step of a message, as one log entry tells it."""

    what: str = ""
    """Staged, committed, delivered, maybe delivered, acked, rejected, exhausted, dead letter, left, moved, skipped,
    sent again, removed, expired, paused, resumed."""
    at: int = 0
    """Unix ns, by the clock of `node`; of a delivery: not before; 0: not known."""
    until: int = 0
    """Of a delivery: not after."""
    cause: str = ""
    """Of a delivery: new, ack wait over, negative ack, member gone, leader changed, server changed, resumed, moved, not
    sent, owed."""
    client_id: str = ""
    """Of a delivery: the receiver."""
    subscription_id: int = 0
    """Of a delivery, or of the member that left."""
    count: int = 0
    """Of a delivery: redeliveries, this one included."""
    sequence: int = 0
    """Of `moved`: the next one that the cursor gets; of `staged`: the message of the group's hidden channel."""
    node: str = ""
    """That led the group; "": a server alone."""
    term: int = 0
    index: int = 0
    """Of the entry."""
    app: str = ""
    """Of `staged`: whose transaction."""
    app_version: int = 0
    """Of `staged`: which work of the app."""
    reason: str = ""
    """Of `paused`: why the leader has paused the cursor by itself; empty: an operator did."""


@dataclass(frozen=True, slots=True)
class Redriven(MessageRecord):
    """Messages of a RedriveRequest that were not put back."""

    stopped: int = 0
    """Were put back too often already."""
    foreign: int = 0
    """Are no dead letters, or come from another channel than the first one."""
    too_large: int = 0
    """NATS would not take them."""
    next_sequence: int = 0
    """The earlier ones are done: the next request begins here; 0: all are done."""


@dataclass(frozen=True, slots=True)
class ChangeResponse(MessageRecord):
    """The result of a change."""

    changed: int = 0
    """Messages, subscriptions, ... that were."""
    first_sequence: int = 0
    """Of the channel, afterwards."""
    last_sequence: int = 0
    redriven: Redriven = Redriven()
    """Of `.redrive`."""
    schema_version: int = 0
    """Of `.add_schema`: the number of the text."""


@dataclass(frozen=True, slots=True)
class CursorRef(MessageRecord):
    """A cursor, by id or by name: a durable has a client and a name, a queue group its name, a durable one both names."""

    channel: str = ""
    cursor_id: int = 0
    durable_name: str = ""
    client_id: str = ""
    queue_group: str = ""


@dataclass(frozen=True, slots=True)
class PartSplitStatus(MessageRecord):
    """A doubling of the parts of a channel."""

    parts: int = 0
    """Before; keys have gone from part p to part p + `parts`."""
    last: tuple[int, ...] = ()
    """Of each part the newest sequence before."""


@dataclass(frozen=True, slots=True)
class PartedStatus(MessageRecord):
    """A channel that has parts."""

    channel: str = ""
    parts: int = 0
    """They are called `<channel>.~<number>`, from 0 on."""
    key: str = ""
    """As in CreatePartsRequest."""
    deleting: bool = False
    doubling: bool = False
    """Its parts take nothing, as they are being doubled."""
    splits: tuple[PartSplitStatus, ...] = ()
    """Doublings, the oldest first."""


@dataclass(frozen=True, slots=True)
class PinStatus(MessageRecord):
    """A channel that is pinned to a group."""

    channel: str = ""
    group: int = 0
    exists: bool = False
    """The channel."""
    group_now: int = 0
    """In which the channel is; 0: it does not exist."""
    moving: bool = False
    """It is being moved to `group`."""


@dataclass(frozen=True, slots=True)
class RestoredRun(MessageRecord):
    """Consecutive messages with one timestamp, to be restored."""

    first_sequence: int = 0
    count: int = 0
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ReadStreamResponse(MessageRecord):
    """A page of the descriptions of a stream and its consumers."""

    stream: str = ""
    """Its configuration, as JSON; empty: the channel has no stream."""
    adopted: bool = False
    """The channel was there before the stream, and stays when that goes."""
    consumers: tuple[str, ...] = ()
    """Their configurations, as JSON, by name."""
    more: bool = False
    after: str = ""
    """The name of the last one of the page."""


@dataclass(frozen=True, slots=True)
class Event(MessageRecord):
    """Something that has happened."""

    time: int = 0
    """Unix ns."""
    node: str = ""
    kind: str = ""
    """Leader, client_connected, client_closed, client_lost, subscribed, unsubscribed, channel_created, channel_deleted,
    admin, node_added, node_removed, level_raised, trouble, slow, ..."""
    text: str = ""
    """A sentence for people."""
    channel: str = ""
    client_id: str = ""
    group: int = 0
    cursor_id: int = 0


@dataclass(frozen=True, slots=True)
class SchemaStatus(MessageRecord):
    """A version of a schema."""

    pattern: str = ""
    kind: SchemaKind = SchemaKind.JSON
    compatibility: Compatibility = Compatibility.BACKWARD
    schema_version: int = 0
    text: bytes = b""
    message: str = ""
    at: int = 0
    """Unix ns when it was added."""
    size: int = 0
    """Bytes of the text."""
