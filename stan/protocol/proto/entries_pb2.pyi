from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Client(_message.Message):
    __slots__ = ("client_id", "conn_id", "heartbeat_inbox", "protocol", "ping_interval", "ping_max_out", "incarnation", "failing")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONN_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INBOX_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PING_MAX_OUT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    conn_id: bytes
    heartbeat_inbox: bytes
    protocol: int
    ping_interval: int
    ping_max_out: int
    incarnation: int
    failing: bool
    def __init__(self, client_id: _Optional[bytes] = ..., conn_id: _Optional[bytes] = ..., heartbeat_inbox: _Optional[bytes] = ..., protocol: _Optional[int] = ..., ping_interval: _Optional[int] = ..., ping_max_out: _Optional[int] = ..., incarnation: _Optional[int] = ..., failing: bool = ...) -> None: ...

class Channel(_message.Message):
    __slots__ = ("name", "uid", "group", "moving_to", "move", "left", "commit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVING_TO_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    uid: int
    group: int
    moving_to: int
    move: int
    left: _containers.RepeatedScalarFieldContainer[int]
    commit: int
    def __init__(self, name: _Optional[bytes] = ..., uid: _Optional[int] = ..., group: _Optional[int] = ..., moving_to: _Optional[int] = ..., move: _Optional[int] = ..., left: _Optional[_Iterable[int]] = ..., commit: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("cursor_id", "uid", "name", "kind", "client_id", "last_sent", "to_redeliver", "inbox", "ack_inbox", "max_in_flight", "ack_wait_s", "subscription_id", "maybe_sent_until", "start_sequence", "override", "counts", "acked_at", "unacked_since")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SENT_FIELD_NUMBER: _ClassVar[int]
    TO_REDELIVER_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    ACK_INBOX_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    MAYBE_SENT_UNTIL_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ACKED_AT_FIELD_NUMBER: _ClassVar[int]
    UNACKED_SINCE_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    uid: int
    name: bytes
    kind: int
    client_id: bytes
    last_sent: int
    to_redeliver: _containers.RepeatedScalarFieldContainer[int]
    inbox: bytes
    ack_inbox: bytes
    max_in_flight: int
    ack_wait_s: int
    subscription_id: int
    maybe_sent_until: int
    start_sequence: int
    override: CursorOverride
    counts: _containers.RepeatedScalarFieldContainer[int]
    acked_at: int
    unacked_since: int
    def __init__(self, cursor_id: _Optional[int] = ..., uid: _Optional[int] = ..., name: _Optional[bytes] = ..., kind: _Optional[int] = ..., client_id: _Optional[bytes] = ..., last_sent: _Optional[int] = ..., to_redeliver: _Optional[_Iterable[int]] = ..., inbox: _Optional[bytes] = ..., ack_inbox: _Optional[bytes] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., subscription_id: _Optional[int] = ..., maybe_sent_until: _Optional[int] = ..., start_sequence: _Optional[int] = ..., override: _Optional[_Union[CursorOverride, _Mapping]] = ..., counts: _Optional[_Iterable[int]] = ..., acked_at: _Optional[int] = ..., unacked_since: _Optional[int] = ...) -> None: ...

class CursorOverride(_message.Message):
    __slots__ = ("paused", "epoch", "moved_at", "skipped", "resend", "unsent", "reason")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MOVED_AT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    UNSENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    epoch: int
    moved_at: int
    skipped: _containers.RepeatedScalarFieldContainer[int]
    resend: _containers.RepeatedScalarFieldContainer[int]
    unsent: _containers.RepeatedScalarFieldContainer[int]
    reason: bytes
    def __init__(self, paused: bool = ..., epoch: _Optional[int] = ..., moved_at: _Optional[int] = ..., skipped: _Optional[_Iterable[int]] = ..., resend: _Optional[_Iterable[int]] = ..., unsent: _Optional[_Iterable[int]] = ..., reason: _Optional[bytes] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("subscription_id", "cursor_id", "client_id", "incarnation", "inbox", "ack_inbox", "ack_key", "max_in_flight", "ack_wait_s", "pending", "last_sent", "reply", "joined", "counts", "replica", "served_by", "served_since", "server_instance", "ack_group")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    ACK_INBOX_FIELD_NUMBER: _ClassVar[int]
    ACK_KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LAST_SENT_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    SERVED_SINCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACK_GROUP_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    cursor_id: int
    client_id: bytes
    incarnation: int
    inbox: bytes
    ack_inbox: bytes
    ack_key: int
    max_in_flight: int
    ack_wait_s: int
    pending: _containers.RepeatedScalarFieldContainer[int]
    last_sent: int
    reply: bytes
    joined: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    replica: bytes
    served_by: bytes
    served_since: int
    server_instance: int
    ack_group: int
    def __init__(self, subscription_id: _Optional[int] = ..., cursor_id: _Optional[int] = ..., client_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., inbox: _Optional[bytes] = ..., ack_inbox: _Optional[bytes] = ..., ack_key: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., pending: _Optional[_Iterable[int]] = ..., last_sent: _Optional[int] = ..., reply: _Optional[bytes] = ..., joined: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ..., replica: _Optional[bytes] = ..., served_by: _Optional[bytes] = ..., served_since: _Optional[int] = ..., server_instance: _Optional[int] = ..., ack_group: _Optional[int] = ...) -> None: ...

class MetaChange(_message.Message):
    __slots__ = ("connect", "disconnect", "create_channels", "delete_channel", "cluster_info", "heartbeat", "nodes", "raise_level", "consumer_group", "set_policy", "pin_channel", "schema", "grow_pool", "open_pool", "begin_move", "end_move", "pause_moves", "create_parted", "drop_parted", "double_parted", "part_closed", "doubling_ended", "stream")
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    CREATE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    DELETE_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INFO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RAISE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    SET_POLICY_FIELD_NUMBER: _ClassVar[int]
    PIN_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    GROW_POOL_FIELD_NUMBER: _ClassVar[int]
    OPEN_POOL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MOVE_FIELD_NUMBER: _ClassVar[int]
    END_MOVE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MOVES_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTED_FIELD_NUMBER: _ClassVar[int]
    DROP_PARTED_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_PARTED_FIELD_NUMBER: _ClassVar[int]
    PART_CLOSED_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_ENDED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    connect: Connect
    disconnect: Disconnect
    create_channels: CreateChannels
    delete_channel: DeleteChannel
    cluster_info: ClusterInfo
    heartbeat: Heartbeat
    nodes: Nodes
    raise_level: int
    consumer_group: ConsumerGroupChange
    set_policy: Policy
    pin_channel: Pin
    schema: SchemaChange
    grow_pool: GrowPool
    open_pool: int
    begin_move: BeginMove
    end_move: EndMove
    pause_moves: bool
    create_parted: CreateParted
    drop_parted: DropParted
    double_parted: DoubleParted
    part_closed: PartClosed
    doubling_ended: DoublingEnded
    stream: StreamChange
    def __init__(self, connect: _Optional[_Union[Connect, _Mapping]] = ..., disconnect: _Optional[_Union[Disconnect, _Mapping]] = ..., create_channels: _Optional[_Union[CreateChannels, _Mapping]] = ..., delete_channel: _Optional[_Union[DeleteChannel, _Mapping]] = ..., cluster_info: _Optional[_Union[ClusterInfo, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., raise_level: _Optional[int] = ..., consumer_group: _Optional[_Union[ConsumerGroupChange, _Mapping]] = ..., set_policy: _Optional[_Union[Policy, _Mapping]] = ..., pin_channel: _Optional[_Union[Pin, _Mapping]] = ..., schema: _Optional[_Union[SchemaChange, _Mapping]] = ..., grow_pool: _Optional[_Union[GrowPool, _Mapping]] = ..., open_pool: _Optional[int] = ..., begin_move: _Optional[_Union[BeginMove, _Mapping]] = ..., end_move: _Optional[_Union[EndMove, _Mapping]] = ..., pause_moves: bool = ..., create_parted: _Optional[_Union[CreateParted, _Mapping]] = ..., drop_parted: _Optional[_Union[DropParted, _Mapping]] = ..., double_parted: _Optional[_Union[DoubleParted, _Mapping]] = ..., part_closed: _Optional[_Union[PartClosed, _Mapping]] = ..., doubling_ended: _Optional[_Union[DoublingEnded, _Mapping]] = ..., stream: _Optional[_Union[StreamChange, _Mapping]] = ...) -> None: ...

class ClusterInfo(_message.Message):
    __slots__ = ("cluster_id", "raft_groups", "nuid", "nodes", "level", "policies", "pins", "pool", "moves_paused")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    NUID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    MOVES_PAUSED_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    raft_groups: int
    nuid: bytes
    nodes: Nodes
    level: int
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    pins: _containers.RepeatedCompositeFieldContainer[Pin]
    pool: GrownPool
    moves_paused: bool
    def __init__(self, cluster_id: _Optional[bytes] = ..., raft_groups: _Optional[int] = ..., nuid: _Optional[bytes] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., level: _Optional[int] = ..., policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ..., pins: _Optional[_Iterable[_Union[Pin, _Mapping]]] = ..., pool: _Optional[_Union[GrownPool, _Mapping]] = ..., moves_paused: bool = ...) -> None: ...

class GrownPool(_message.Message):
    __slots__ = ("groups", "open", "growths")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    GROWTHS_FIELD_NUMBER: _ClassVar[int]
    groups: int
    open: int
    growths: _containers.RepeatedCompositeFieldContainer[GrowPool]
    def __init__(self, groups: _Optional[int] = ..., open: _Optional[int] = ..., growths: _Optional[_Iterable[_Union[GrowPool, _Mapping]]] = ...) -> None: ...

class GrowPool(_message.Message):
    __slots__ = ("groups", "before", "nodes_version", "nodes", "voters", "commit")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    NODES_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    groups: int
    before: int
    nodes_version: int
    nodes: _containers.RepeatedCompositeFieldContainer[FoundingNode]
    voters: _containers.RepeatedCompositeFieldContainer[FirstVoters]
    commit: int
    def __init__(self, groups: _Optional[int] = ..., before: _Optional[int] = ..., nodes_version: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[FoundingNode, _Mapping]]] = ..., voters: _Optional[_Iterable[_Union[FirstVoters, _Mapping]]] = ..., commit: _Optional[int] = ...) -> None: ...

class FoundingNode(_message.Message):
    __slots__ = ("node", "store")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    node: str
    store: bytes
    def __init__(self, node: _Optional[str] = ..., store: _Optional[bytes] = ...) -> None: ...

class FirstVoters(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("channel", "group")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    group: int
    def __init__(self, channel: _Optional[bytes] = ..., group: _Optional[int] = ...) -> None: ...

class BeginMove(_message.Message):
    __slots__ = ("uids", "to", "pin")
    UIDS_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    uids: _containers.RepeatedScalarFieldContainer[int]
    to: int
    pin: Pin
    def __init__(self, uids: _Optional[_Iterable[int]] = ..., to: _Optional[int] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ...) -> None: ...

class EndMove(_message.Message):
    __slots__ = ("move", "done")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    move: int
    done: bool
    def __init__(self, move: _Optional[int] = ..., done: bool = ...) -> None: ...

class MoveQuestion(_message.Message):
    __slots__ = ("move", "uid", "next", "told_by", "told_from", "depart", "rows_from")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    TOLD_BY_FIELD_NUMBER: _ClassVar[int]
    TOLD_FROM_FIELD_NUMBER: _ClassVar[int]
    DEPART_FIELD_NUMBER: _ClassVar[int]
    ROWS_FROM_FIELD_NUMBER: _ClassVar[int]
    move: int
    uid: int
    next: int
    told_by: bytes
    told_from: int
    depart: bool
    rows_from: int
    def __init__(self, move: _Optional[int] = ..., uid: _Optional[int] = ..., next: _Optional[int] = ..., told_by: _Optional[bytes] = ..., told_from: _Optional[int] = ..., depart: bool = ..., rows_from: _Optional[int] = ...) -> None: ...

class MoveAnswer(_message.Message):
    __slots__ = ("departed", "waits_for", "first_sequence", "last_sequence", "batches", "told_by", "told_next", "fingerprints", "told_end", "rows", "rows_end", "known_for", "bytes_left")
    DEPARTED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOLD_BY_FIELD_NUMBER: _ClassVar[int]
    TOLD_NEXT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    TOLD_END_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_END_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FOR_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    departed: bool
    waits_for: str
    first_sequence: int
    last_sequence: int
    batches: _containers.RepeatedCompositeFieldContainer[MovedBatch]
    told_by: bytes
    told_next: int
    fingerprints: bytes
    told_end: bool
    rows: _containers.RepeatedCompositeFieldContainer[MovedRow]
    rows_end: bool
    known_for: int
    bytes_left: int
    def __init__(self, departed: bool = ..., waits_for: _Optional[str] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[MovedBatch, _Mapping]]] = ..., told_by: _Optional[bytes] = ..., told_next: _Optional[int] = ..., fingerprints: _Optional[bytes] = ..., told_end: bool = ..., rows: _Optional[_Iterable[_Union[MovedRow, _Mapping]]] = ..., rows_end: bool = ..., known_for: _Optional[int] = ..., bytes_left: _Optional[int] = ...) -> None: ...

class MovedBatch(_message.Message):
    __slots__ = ("base_sequence", "count", "timestamp", "records")
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    base_sequence: int
    count: int
    timestamp: int
    records: bytes
    def __init__(self, base_sequence: _Optional[int] = ..., count: _Optional[int] = ..., timestamp: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class MovedRow(_message.Message):
    __slots__ = ("first", "cursor", "subscription", "part", "recent")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    first: FirstSequence
    cursor: Cursor
    subscription: Subscription
    part: PartRow
    recent: RecentRequest
    def __init__(self, first: _Optional[_Union[FirstSequence, _Mapping]] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., part: _Optional[_Union[PartRow, _Mapping]] = ..., recent: _Optional[_Union[RecentRequest, _Mapping]] = ...) -> None: ...

class RecentRequest(_message.Message):
    __slots__ = ("client_id", "inbox")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    inbox: bytes
    def __init__(self, client_id: _Optional[bytes] = ..., inbox: _Optional[bytes] = ...) -> None: ...

class FirstSequence(_message.Message):
    __slots__ = ("uid", "first_sequence", "last_sequence")
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    uid: int
    first_sequence: int
    last_sequence: int
    def __init__(self, uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("pattern", "name", "max_deliver", "backoff", "max_hold", "adaptive_window", "dead_letter", "dead_letter_rate", "failover", "ordered_by_key", "delay", "target", "max_late", "ttl", "compact", "min_age", "tombstone_max", "from_replica", "schema", "commit", "compress", "tier", "tier_stretch")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVER_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_RATE_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_FIELD_NUMBER: _ClassVar[int]
    ORDERED_BY_KEY_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MAX_LATE_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    MIN_AGE_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_MAX_FIELD_NUMBER: _ClassVar[int]
    FROM_REPLICA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    TIER_STRETCH_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    name: bytes
    max_deliver: int
    backoff: Pauses
    max_hold: int
    adaptive_window: bool
    dead_letter: bytes
    dead_letter_rate: int
    failover: bool
    ordered_by_key: bool
    delay: int
    target: bytes
    max_late: int
    ttl: int
    compact: int
    min_age: int
    tombstone_max: int
    from_replica: bool
    schema: int
    commit: int
    compress: int
    tier: bytes
    tier_stretch: int
    def __init__(self, pattern: _Optional[bytes] = ..., name: _Optional[bytes] = ..., max_deliver: _Optional[int] = ..., backoff: _Optional[_Union[Pauses, _Mapping]] = ..., max_hold: _Optional[int] = ..., adaptive_window: bool = ..., dead_letter: _Optional[bytes] = ..., dead_letter_rate: _Optional[int] = ..., failover: bool = ..., ordered_by_key: bool = ..., delay: _Optional[int] = ..., target: _Optional[bytes] = ..., max_late: _Optional[int] = ..., ttl: _Optional[int] = ..., compact: _Optional[int] = ..., min_age: _Optional[int] = ..., tombstone_max: _Optional[int] = ..., from_replica: bool = ..., schema: _Optional[int] = ..., commit: _Optional[int] = ..., compress: _Optional[int] = ..., tier: _Optional[bytes] = ..., tier_stretch: _Optional[int] = ...) -> None: ...

class Pauses(_message.Message):
    __slots__ = ("pauses",)
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    pauses: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pauses: _Optional[_Iterable[int]] = ...) -> None: ...

class PartedChannel(_message.Message):
    __slots__ = ("name", "parts", "key", "dropping", "doubling", "settled", "new_groups", "closed", "splits", "doubling_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DROPPING_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    NEW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_AT_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    parts: int
    key: bytes
    dropping: bool
    doubling: int
    settled: int
    new_groups: _containers.RepeatedScalarFieldContainer[int]
    closed: _containers.RepeatedScalarFieldContainer[int]
    splits: _containers.RepeatedCompositeFieldContainer[PartSplit]
    doubling_at: int
    def __init__(self, name: _Optional[bytes] = ..., parts: _Optional[int] = ..., key: _Optional[bytes] = ..., dropping: bool = ..., doubling: _Optional[int] = ..., settled: _Optional[int] = ..., new_groups: _Optional[_Iterable[int]] = ..., closed: _Optional[_Iterable[int]] = ..., splits: _Optional[_Iterable[_Union[PartSplit, _Mapping]]] = ..., doubling_at: _Optional[int] = ...) -> None: ...

class PartSplit(_message.Message):
    __slots__ = ("parts", "last")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    parts: int
    last: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, parts: _Optional[int] = ..., last: _Optional[_Iterable[int]] = ...) -> None: ...

class DoubleParted(_message.Message):
    __slots__ = ("name", "groups", "channels_max", "at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_MAX_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    groups: _containers.RepeatedScalarFieldContainer[int]
    channels_max: int
    at: int
    def __init__(self, name: _Optional[bytes] = ..., groups: _Optional[_Iterable[int]] = ..., channels_max: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class PartClosed(_message.Message):
    __slots__ = ("name", "doubling", "part", "last", "fingerprints", "known_for")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FOR_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    doubling: int
    part: int
    last: int
    fingerprints: bytes
    known_for: int
    def __init__(self, name: _Optional[bytes] = ..., doubling: _Optional[int] = ..., part: _Optional[int] = ..., last: _Optional[int] = ..., fingerprints: _Optional[bytes] = ..., known_for: _Optional[int] = ...) -> None: ...

class DoublingEnded(_message.Message):
    __slots__ = ("name", "doubling")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    doubling: int
    def __init__(self, name: _Optional[bytes] = ..., doubling: _Optional[int] = ...) -> None: ...

class CreateParted(_message.Message):
    __slots__ = ("name", "key", "groups", "channels_max")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_MAX_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    key: bytes
    groups: _containers.RepeatedScalarFieldContainer[int]
    channels_max: int
    def __init__(self, name: _Optional[bytes] = ..., key: _Optional[bytes] = ..., groups: _Optional[_Iterable[int]] = ..., channels_max: _Optional[int] = ...) -> None: ...

class DropParted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    def __init__(self, name: _Optional[bytes] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("names", "version", "changed", "labels")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    version: int
    changed: str
    labels: _containers.RepeatedCompositeFieldContainer[PlacedNode]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ..., changed: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[PlacedNode, _Mapping]]] = ...) -> None: ...

class PlacedNode(_message.Message):
    __slots__ = ("node", "zone", "rack", "host")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    node: str
    zone: str
    rack: str
    host: str
    def __init__(self, node: _Optional[str] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class Connect(_message.Message):
    __slots__ = ("client", "replaces")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    client: Client
    replaces: int
    def __init__(self, client: _Optional[_Union[Client, _Mapping]] = ..., replaces: _Optional[int] = ...) -> None: ...

class Disconnect(_message.Message):
    __slots__ = ("client_id", "incarnation", "asked")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    incarnation: int
    asked: bool
    def __init__(self, client_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., asked: bool = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("client_id", "incarnation", "failing")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    incarnation: int
    failing: bool
    def __init__(self, client_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., failing: bool = ...) -> None: ...

class CreateChannels(_message.Message):
    __slots__ = ("exact", "channels", "channels_max")
    EXACT_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_MAX_FIELD_NUMBER: _ClassVar[int]
    exact: bool
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    channels_max: int
    def __init__(self, exact: bool = ..., channels: _Optional[_Iterable[_Union[Channel, _Mapping]]] = ..., channels_max: _Optional[int] = ...) -> None: ...

class DeleteChannel(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: int
    def __init__(self, uid: _Optional[int] = ...) -> None: ...

class GroupChange(_message.Message):
    __slots__ = ("progress", "subscribe", "leave", "trim", "drop_channel", "gone_channels", "maybe_sent", "remember_ids", "staged", "commit", "commit_done", "drop_staged", "finished", "bookmark", "removal", "edit_limits", "restore", "restored_cursor", "move_cursor", "skip_sequences", "send_again", "pause_cursor", "drop_cursor", "dead_letters", "deferred", "deferred_gone", "expiring", "expired", "compacted", "close_part", "ephemeral_epoch", "serve", "arriving", "arrived", "depart", "departed", "returned", "arrival_dropped", "set_consumer", "drop_consumer", "scheduled", "served_since", "at", "node")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    TRIM_FIELD_NUMBER: _ClassVar[int]
    DROP_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GONE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MAYBE_SENT_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_IDS_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_DONE_FIELD_NUMBER: _ClassVar[int]
    DROP_STAGED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_FIELD_NUMBER: _ClassVar[int]
    EDIT_LIMITS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    MOVE_CURSOR_FIELD_NUMBER: _ClassVar[int]
    SKIP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SEND_AGAIN_FIELD_NUMBER: _ClassVar[int]
    PAUSE_CURSOR_FIELD_NUMBER: _ClassVar[int]
    DROP_CURSOR_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_GONE_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PART_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERVE_FIELD_NUMBER: _ClassVar[int]
    ARRIVING_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    DEPART_FIELD_NUMBER: _ClassVar[int]
    DEPARTED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SET_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DROP_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    SERVED_SINCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    subscribe: Subscribe
    leave: Leave
    trim: Trim
    drop_channel: DropChannel
    gone_channels: GoneChannels
    maybe_sent: MaybeSent
    remember_ids: RememberIds
    staged: Staged
    commit: Commit
    commit_done: CommitDone
    drop_staged: DropStaged
    finished: Finished
    bookmark: Bookmark
    removal: Removal
    edit_limits: EditLimits
    restore: Restore
    restored_cursor: RestoredCursor
    move_cursor: MoveCursor
    skip_sequences: SkipSequences
    send_again: SendAgain
    pause_cursor: PauseCursor
    drop_cursor: DropCursor
    dead_letters: DeadLetters
    deferred: Deferred
    deferred_gone: DeferredGone
    expiring: Expiring
    expired: Expired
    compacted: Compacted
    close_part: ClosePart
    ephemeral_epoch: EphemeralEpoch
    serve: Serve
    arriving: Moving
    arrived: Arrived
    depart: Moving
    departed: Moving
    returned: Moving
    arrival_dropped: Moving
    set_consumer: SetConsumer
    drop_consumer: DropConsumer
    scheduled: Scheduled
    served_since: _containers.RepeatedScalarFieldContainer[int]
    at: int
    node: bytes
    def __init__(self, progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., trim: _Optional[_Union[Trim, _Mapping]] = ..., drop_channel: _Optional[_Union[DropChannel, _Mapping]] = ..., gone_channels: _Optional[_Union[GoneChannels, _Mapping]] = ..., maybe_sent: _Optional[_Union[MaybeSent, _Mapping]] = ..., remember_ids: _Optional[_Union[RememberIds, _Mapping]] = ..., staged: _Optional[_Union[Staged, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., commit_done: _Optional[_Union[CommitDone, _Mapping]] = ..., drop_staged: _Optional[_Union[DropStaged, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., bookmark: _Optional[_Union[Bookmark, _Mapping]] = ..., removal: _Optional[_Union[Removal, _Mapping]] = ..., edit_limits: _Optional[_Union[EditLimits, _Mapping]] = ..., restore: _Optional[_Union[Restore, _Mapping]] = ..., restored_cursor: _Optional[_Union[RestoredCursor, _Mapping]] = ..., move_cursor: _Optional[_Union[MoveCursor, _Mapping]] = ..., skip_sequences: _Optional[_Union[SkipSequences, _Mapping]] = ..., send_again: _Optional[_Union[SendAgain, _Mapping]] = ..., pause_cursor: _Optional[_Union[PauseCursor, _Mapping]] = ..., drop_cursor: _Optional[_Union[DropCursor, _Mapping]] = ..., dead_letters: _Optional[_Union[DeadLetters, _Mapping]] = ..., deferred: _Optional[_Union[Deferred, _Mapping]] = ..., deferred_gone: _Optional[_Union[DeferredGone, _Mapping]] = ..., expiring: _Optional[_Union[Expiring, _Mapping]] = ..., expired: _Optional[_Union[Expired, _Mapping]] = ..., compacted: _Optional[_Union[Compacted, _Mapping]] = ..., close_part: _Optional[_Union[ClosePart, _Mapping]] = ..., ephemeral_epoch: _Optional[_Union[EphemeralEpoch, _Mapping]] = ..., serve: _Optional[_Union[Serve, _Mapping]] = ..., arriving: _Optional[_Union[Moving, _Mapping]] = ..., arrived: _Optional[_Union[Arrived, _Mapping]] = ..., depart: _Optional[_Union[Moving, _Mapping]] = ..., departed: _Optional[_Union[Moving, _Mapping]] = ..., returned: _Optional[_Union[Moving, _Mapping]] = ..., arrival_dropped: _Optional[_Union[Moving, _Mapping]] = ..., set_consumer: _Optional[_Union[SetConsumer, _Mapping]] = ..., drop_consumer: _Optional[_Union[DropConsumer, _Mapping]] = ..., scheduled: _Optional[_Union[Scheduled, _Mapping]] = ..., served_since: _Optional[_Iterable[int]] = ..., at: _Optional[int] = ..., node: _Optional[bytes] = ...) -> None: ...

class ClosePart(_message.Message):
    __slots__ = ("uid", "doubling")
    UID_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    uid: int
    doubling: int
    def __init__(self, uid: _Optional[int] = ..., doubling: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("uid", "client_id", "incarnation", "inbox", "queue_group", "durable_name", "max_in_flight", "ack_wait_s", "start_sequence", "subscriptions_max", "replace_durable", "nuid", "reply", "ack_key", "ack_prefix", "sent_before", "replica", "user", "former_user")
    UID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    REPLACE_DURABLE_FIELD_NUMBER: _ClassVar[int]
    NUID_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    ACK_KEY_FIELD_NUMBER: _ClassVar[int]
    ACK_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SENT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    FORMER_USER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    client_id: bytes
    incarnation: int
    inbox: bytes
    queue_group: bytes
    durable_name: bytes
    max_in_flight: int
    ack_wait_s: int
    start_sequence: int
    subscriptions_max: int
    replace_durable: bool
    nuid: bytes
    reply: bytes
    ack_key: int
    ack_prefix: bytes
    sent_before: bool
    replica: bytes
    user: bytes
    former_user: bytes
    def __init__(self, uid: _Optional[int] = ..., client_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., inbox: _Optional[bytes] = ..., queue_group: _Optional[bytes] = ..., durable_name: _Optional[bytes] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., start_sequence: _Optional[int] = ..., subscriptions_max: _Optional[int] = ..., replace_durable: bool = ..., nuid: _Optional[bytes] = ..., reply: _Optional[bytes] = ..., ack_key: _Optional[int] = ..., ack_prefix: _Optional[bytes] = ..., sent_before: bool = ..., replica: _Optional[bytes] = ..., user: _Optional[bytes] = ..., former_user: _Optional[bytes] = ...) -> None: ...

class Serve(_message.Message):
    __slots__ = ("node", "cursor_ids", "instance")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_IDS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    node: bytes
    cursor_ids: _containers.RepeatedScalarFieldContainer[int]
    instance: int
    def __init__(self, node: _Optional[bytes] = ..., cursor_ids: _Optional[_Iterable[int]] = ..., instance: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("uid", "subscription_id", "unsubscribe")
    UID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    uid: int
    subscription_id: int
    unsubscribe: bool
    def __init__(self, uid: _Optional[int] = ..., subscription_id: _Optional[int] = ..., unsubscribe: bool = ...) -> None: ...

class Moving(_message.Message):
    __slots__ = ("move", "uids")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    UIDS_FIELD_NUMBER: _ClassVar[int]
    move: int
    uids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, move: _Optional[int] = ..., uids: _Optional[_Iterable[int]] = ...) -> None: ...

class Arrived(_message.Message):
    __slots__ = ("move", "uids", "rows", "known_for")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    UIDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FOR_FIELD_NUMBER: _ClassVar[int]
    move: int
    uids: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[MovedRow]
    known_for: int
    def __init__(self, move: _Optional[int] = ..., uids: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[MovedRow, _Mapping]]] = ..., known_for: _Optional[int] = ...) -> None: ...

class MoveState(_message.Message):
    __slots__ = ("move", "stage")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    move: int
    stage: int
    def __init__(self, move: _Optional[int] = ..., stage: _Optional[int] = ...) -> None: ...

class Trim(_message.Message):
    __slots__ = ("first_sequences",)
    FIRST_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    first_sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class DropChannel(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: int
    def __init__(self, uid: _Optional[int] = ...) -> None: ...

class GoneChannels(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[_Iterable[int]] = ...) -> None: ...

class MaybeSent(_message.Message):
    __slots__ = ("until",)
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    until: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, until: _Optional[_Iterable[int]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("cursor_id", "last_sent", "held", "acked", "epoch", "sent", "rejected", "removed")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SENT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    last_sent: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    acked: _containers.RepeatedScalarFieldContainer[int]
    epoch: int
    sent: _containers.RepeatedCompositeFieldContainer[Sent]
    rejected: _containers.RepeatedScalarFieldContainer[int]
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cursor_id: _Optional[int] = ..., last_sent: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., acked: _Optional[_Iterable[int]] = ..., epoch: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[Sent, _Mapping]]] = ..., rejected: _Optional[_Iterable[int]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class Sent(_message.Message):
    __slots__ = ("subscription_id", "client_id", "cause", "count", "runs", "first_ago", "last_ago")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FIRST_AGO_FIELD_NUMBER: _ClassVar[int]
    LAST_AGO_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    client_id: bytes
    cause: int
    count: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    first_ago: int
    last_ago: int
    def __init__(self, subscription_id: _Optional[int] = ..., client_id: _Optional[bytes] = ..., cause: _Optional[int] = ..., count: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ..., first_ago: _Optional[int] = ..., last_ago: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("subscription_id", "runs", "counts", "cause", "exhausted", "rejected")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    cause: int
    exhausted: bool
    rejected: bool
    def __init__(self, subscription_id: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., cause: _Optional[int] = ..., exhausted: bool = ..., rejected: bool = ...) -> None: ...

class RememberIds(_message.Message):
    __slots__ = ("uid", "producer", "version", "ids", "at")
    UID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    uid: int
    producer: bytes
    version: int
    ids: bytes
    at: int
    def __init__(self, uid: _Optional[int] = ..., producer: _Optional[bytes] = ..., version: _Optional[int] = ..., ids: _Optional[bytes] = ..., at: _Optional[int] = ...) -> None: ...

class Staged(_message.Message):
    __slots__ = ("app", "version", "txn", "at", "user", "parts")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    txn: bytes
    at: int
    user: bytes
    parts: _containers.RepeatedCompositeFieldContainer[StagedPart]
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., txn: _Optional[bytes] = ..., at: _Optional[int] = ..., user: _Optional[bytes] = ..., parts: _Optional[_Iterable[_Union[StagedPart, _Mapping]]] = ...) -> None: ...

class StagedPart(_message.Message):
    __slots__ = ("uid", "part", "sequence", "count", "bytes")
    UID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    uid: int
    part: int
    sequence: int
    count: int
    bytes: int
    def __init__(self, uid: _Optional[int] = ..., part: _Optional[int] = ..., sequence: _Optional[int] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("app", "version", "at", "user", "writer", "channels", "txns")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    TXNS_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    at: int
    user: bytes
    writer: bytes
    channels: _containers.RepeatedCompositeFieldContainer[CommitShare]
    txns: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., at: _Optional[int] = ..., user: _Optional[bytes] = ..., writer: _Optional[bytes] = ..., channels: _Optional[_Iterable[_Union[CommitShare, _Mapping]]] = ..., txns: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommitShare(_message.Message):
    __slots__ = ("uid", "parts", "sequences")
    UID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    uid: int
    parts: _containers.RepeatedScalarFieldContainer[int]
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, uid: _Optional[int] = ..., parts: _Optional[_Iterable[int]] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitDone(_message.Message):
    __slots__ = ("decision", "rows")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    decision: int
    rows: _containers.RepeatedCompositeFieldContainer[CommittedRows]
    def __init__(self, decision: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[CommittedRows, _Mapping]]] = ...) -> None: ...

class CommittedRows(_message.Message):
    __slots__ = ("uid", "first_sequence", "last_sequence")
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    uid: int
    first_sequence: int
    last_sequence: int
    def __init__(self, uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("uid", "app", "version", "first_sequence", "last_sequence", "at", "user", "writer")
    UID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    app: bytes
    version: int
    first_sequence: int
    last_sequence: int
    at: int
    user: bytes
    writer: bytes
    def __init__(self, uid: _Optional[int] = ..., app: _Optional[bytes] = ..., version: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., at: _Optional[int] = ..., user: _Optional[bytes] = ..., writer: _Optional[bytes] = ...) -> None: ...

class DropStaged(_message.Message):
    __slots__ = ("uid", "txns", "before", "user")
    UID_FIELD_NUMBER: _ClassVar[int]
    TXNS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    txns: _containers.RepeatedScalarFieldContainer[bytes]
    before: int
    user: bytes
    def __init__(self, uid: _Optional[int] = ..., txns: _Optional[_Iterable[bytes]] = ..., before: _Optional[int] = ..., user: _Optional[bytes] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("app", "version", "at", "user", "writer")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    at: int
    user: bytes
    writer: bytes
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., at: _Optional[int] = ..., user: _Optional[bytes] = ..., writer: _Optional[bytes] = ...) -> None: ...

class Fingerprints(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[BatchFingerprints]
    def __init__(self, batches: _Optional[_Iterable[_Union[BatchFingerprints, _Mapping]]] = ...) -> None: ...

class BatchFingerprints(_message.Message):
    __slots__ = ("channel", "publishers", "owners", "keys", "user")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    publishers: _containers.RepeatedScalarFieldContainer[bytes]
    owners: bytes
    keys: bytes
    user: bytes
    def __init__(self, channel: _Optional[bytes] = ..., publishers: _Optional[_Iterable[bytes]] = ..., owners: _Optional[bytes] = ..., keys: _Optional[bytes] = ..., user: _Optional[bytes] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("applied_index", "applied_term", "clients", "channels", "cursors", "subscriptions", "first_sequences", "cluster_info", "next_id", "voters", "voters_index", "parts", "sealed_from")
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_TERM_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INFO_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FROM_FIELD_NUMBER: _ClassVar[int]
    applied_index: int
    applied_term: int
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    first_sequences: _containers.RepeatedScalarFieldContainer[int]
    cluster_info: ClusterInfo
    next_id: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    voters_index: int
    parts: _containers.RepeatedCompositeFieldContainer[PartRow]
    sealed_from: int
    def __init__(self, applied_index: _Optional[int] = ..., applied_term: _Optional[int] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ..., channels: _Optional[_Iterable[_Union[Channel, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., first_sequences: _Optional[_Iterable[int]] = ..., cluster_info: _Optional[_Union[ClusterInfo, _Mapping]] = ..., next_id: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., voters_index: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[PartRow, _Mapping]]] = ..., sealed_from: _Optional[int] = ...) -> None: ...

class PartRow(_message.Message):
    __slots__ = ("kind", "key", "state")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: bytes
    state: bytes
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[bytes] = ..., state: _Optional[bytes] = ...) -> None: ...

class Bookmark(_message.Message):
    __slots__ = ("uid", "name", "sequence", "generation", "claim", "taken", "user")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    name: bytes
    sequence: int
    generation: int
    claim: bool
    taken: int
    user: bytes
    def __init__(self, uid: _Optional[int] = ..., name: _Optional[bytes] = ..., sequence: _Optional[int] = ..., generation: _Optional[int] = ..., claim: bool = ..., taken: _Optional[int] = ..., user: _Optional[bytes] = ...) -> None: ...

class ConsumerGroupChange(_message.Message):
    __slots__ = ("group", "changed", "joined", "left", "taken", "given")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    group: bytes
    changed: int
    joined: _containers.RepeatedCompositeFieldContainer[ConsumerMember]
    left: _containers.RepeatedScalarFieldContainer[bytes]
    taken: _containers.RepeatedScalarFieldContainer[int]
    given: _containers.RepeatedCompositeFieldContainer[GivenChannels]
    def __init__(self, group: _Optional[bytes] = ..., changed: _Optional[int] = ..., joined: _Optional[_Iterable[_Union[ConsumerMember, _Mapping]]] = ..., left: _Optional[_Iterable[bytes]] = ..., taken: _Optional[_Iterable[int]] = ..., given: _Optional[_Iterable[_Union[GivenChannels, _Mapping]]] = ...) -> None: ...

class ConsumerMember(_message.Message):
    __slots__ = ("member", "user", "pattern", "lease_ms", "name")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    member: bytes
    user: bytes
    pattern: bytes
    lease_ms: int
    name: bytes
    def __init__(self, member: _Optional[bytes] = ..., user: _Optional[bytes] = ..., pattern: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class GivenChannels(_message.Message):
    __slots__ = ("member", "uids")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    UIDS_FIELD_NUMBER: _ClassVar[int]
    member: bytes
    uids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, member: _Optional[bytes] = ..., uids: _Optional[_Iterable[int]] = ...) -> None: ...

class ConsumerGroup(_message.Message):
    __slots__ = ("changed", "members", "owners")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    changed: int
    members: _containers.RepeatedCompositeFieldContainer[ConsumerMember]
    owners: _containers.RepeatedCompositeFieldContainer[ChannelOwner]
    def __init__(self, changed: _Optional[int] = ..., members: _Optional[_Iterable[_Union[ConsumerMember, _Mapping]]] = ..., owners: _Optional[_Iterable[_Union[ChannelOwner, _Mapping]]] = ...) -> None: ...

class ChannelOwner(_message.Message):
    __slots__ = ("uid", "member", "generation")
    UID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    uid: int
    member: int
    generation: int
    def __init__(self, uid: _Optional[int] = ..., member: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class SchemaChange(_message.Message):
    __slots__ = ("pattern", "changed", "kind", "compatibility", "add", "remove", "remove_all")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ALL_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    changed: int
    kind: int
    compatibility: int
    add: SchemaVersion
    remove: int
    remove_all: bool
    def __init__(self, pattern: _Optional[bytes] = ..., changed: _Optional[int] = ..., kind: _Optional[int] = ..., compatibility: _Optional[int] = ..., add: _Optional[_Union[SchemaVersion, _Mapping]] = ..., remove: _Optional[int] = ..., remove_all: bool = ...) -> None: ...

class SchemaVersion(_message.Message):
    __slots__ = ("version", "text", "message", "at")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    version: int
    text: bytes
    message: bytes
    at: int
    def __init__(self, version: _Optional[int] = ..., text: _Optional[bytes] = ..., message: _Optional[bytes] = ..., at: _Optional[int] = ...) -> None: ...

class ChannelSchema(_message.Message):
    __slots__ = ("changed", "kind", "compatibility", "versions", "last")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    changed: int
    kind: int
    compatibility: int
    versions: _containers.RepeatedCompositeFieldContainer[SchemaVersion]
    last: int
    def __init__(self, changed: _Optional[int] = ..., kind: _Optional[int] = ..., compatibility: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[SchemaVersion, _Mapping]]] = ..., last: _Optional[int] = ...) -> None: ...

class StreamChange(_message.Message):
    __slots__ = ("name", "changed", "config", "channel", "group", "at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    changed: int
    config: bytes
    channel: bytes
    group: int
    at: int
    def __init__(self, name: _Optional[bytes] = ..., changed: _Optional[int] = ..., config: _Optional[bytes] = ..., channel: _Optional[bytes] = ..., group: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("channel", "uid", "config", "changed", "created", "adopted")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    uid: int
    config: bytes
    changed: int
    created: int
    adopted: bool
    def __init__(self, channel: _Optional[bytes] = ..., uid: _Optional[int] = ..., config: _Optional[bytes] = ..., changed: _Optional[int] = ..., created: _Optional[int] = ..., adopted: bool = ...) -> None: ...

class SetConsumer(_message.Message):
    __slots__ = ("uid", "stream", "name", "changed", "config", "start_sequence", "skipped", "consumers_max", "at", "subject", "user")
    UID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_MAX_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    stream: bytes
    name: bytes
    changed: int
    config: bytes
    start_sequence: int
    skipped: _containers.RepeatedScalarFieldContainer[int]
    consumers_max: int
    at: int
    subject: bytes
    user: bytes
    def __init__(self, uid: _Optional[int] = ..., stream: _Optional[bytes] = ..., name: _Optional[bytes] = ..., changed: _Optional[int] = ..., config: _Optional[bytes] = ..., start_sequence: _Optional[int] = ..., skipped: _Optional[_Iterable[int]] = ..., consumers_max: _Optional[int] = ..., at: _Optional[int] = ..., subject: _Optional[bytes] = ..., user: _Optional[bytes] = ...) -> None: ...

class DropConsumer(_message.Message):
    __slots__ = ("uid", "name", "changed")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    uid: int
    name: bytes
    changed: int
    def __init__(self, uid: _Optional[int] = ..., name: _Optional[bytes] = ..., changed: _Optional[int] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("stream", "config", "changed", "created", "subject")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    stream: bytes
    config: bytes
    changed: int
    created: int
    subject: bytes
    def __init__(self, stream: _Optional[bytes] = ..., config: _Optional[bytes] = ..., changed: _Optional[int] = ..., created: _Optional[int] = ..., subject: _Optional[bytes] = ...) -> None: ...

class Scheduled(_message.Message):
    __slots__ = ("uid", "sequences", "dues", "subjects")
    UID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    DUES_FIELD_NUMBER: _ClassVar[int]
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    uid: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    dues: _containers.RepeatedScalarFieldContainer[int]
    subjects: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, uid: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ..., dues: _Optional[_Iterable[int]] = ..., subjects: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Removal(_message.Message):
    __slots__ = ("uid", "first_sequence", "deleted", "lost_until", "scheduled", "tier")
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    LOST_UNTIL_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    first_sequence: int
    deleted: _containers.RepeatedScalarFieldContainer[int]
    lost_until: int
    scheduled: bool
    tier: bytes
    def __init__(self, uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., deleted: _Optional[_Iterable[int]] = ..., lost_until: _Optional[int] = ..., scheduled: bool = ..., tier: _Optional[bytes] = ...) -> None: ...

class EditLimits(_message.Message):
    __slots__ = ("uid", "reset", "max_msgs", "max_bytes", "max_age", "max_subs", "max_inactivity")
    UID_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    MAX_MSGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBS_FIELD_NUMBER: _ClassVar[int]
    MAX_INACTIVITY_FIELD_NUMBER: _ClassVar[int]
    uid: int
    reset: bool
    max_msgs: int
    max_bytes: int
    max_age: int
    max_subs: int
    max_inactivity: int
    def __init__(self, uid: _Optional[int] = ..., reset: bool = ..., max_msgs: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_age: _Optional[int] = ..., max_subs: _Optional[int] = ..., max_inactivity: _Optional[int] = ...) -> None: ...

class Restore(_message.Message):
    __slots__ = ("uid", "name", "first_sequence", "ended", "limits")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    uid: int
    name: bytes
    first_sequence: int
    ended: bool
    limits: EditLimits
    def __init__(self, uid: _Optional[int] = ..., name: _Optional[bytes] = ..., first_sequence: _Optional[int] = ..., ended: bool = ..., limits: _Optional[_Union[EditLimits, _Mapping]] = ...) -> None: ...

class RestoredCursor(_message.Message):
    __slots__ = ("restore", "cursor")
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    restore: bytes
    cursor: Cursor
    def __init__(self, restore: _Optional[bytes] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ...) -> None: ...

class MoveCursor(_message.Message):
    __slots__ = ("cursor_id", "sequence", "at")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    sequence: int
    at: int
    def __init__(self, cursor_id: _Optional[int] = ..., sequence: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class SkipSequences(_message.Message):
    __slots__ = ("cursor_id", "runs")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cursor_id: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class SendAgain(_message.Message):
    __slots__ = ("cursor_id", "runs")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cursor_id: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class PauseCursor(_message.Message):
    __slots__ = ("cursor_id", "paused", "reason")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    paused: bool
    reason: bytes
    def __init__(self, cursor_id: _Optional[int] = ..., paused: bool = ..., reason: _Optional[bytes] = ...) -> None: ...

class DropCursor(_message.Message):
    __slots__ = ("cursor_id",)
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    def __init__(self, cursor_id: _Optional[int] = ...) -> None: ...

class DeadLetters(_message.Message):
    __slots__ = ("cursor_id", "runs")
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    cursor_id: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cursor_id: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class Deferred(_message.Message):
    __slots__ = ("uid", "sequence", "dues", "bytes", "ids", "user")
    UID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    sequence: int
    dues: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    user: bytes
    def __init__(self, uid: _Optional[int] = ..., sequence: _Optional[int] = ..., dues: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., user: _Optional[bytes] = ...) -> None: ...

class DeferredGone(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, places: _Optional[_Iterable[int]] = ...) -> None: ...

class Expiring(_message.Message):
    __slots__ = ("uid", "runs", "at")
    UID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    uid: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    at: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, uid: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ..., at: _Optional[_Iterable[int]] = ...) -> None: ...

class Expired(_message.Message):
    __slots__ = ("until", "channels")
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    until: int
    channels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, until: _Optional[int] = ..., channels: _Optional[_Iterable[int]] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[CompactedChannel]
    def __init__(self, channels: _Optional[_Iterable[_Union[CompactedChannel, _Mapping]]] = ...) -> None: ...

class CompactedChannel(_message.Message):
    __slots__ = ("uid", "until", "tombstones_until", "keep_first", "index", "overdue_until", "earlier")
    UID_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_UNTIL_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIRST_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    uid: int
    until: int
    tombstones_until: int
    keep_first: bool
    index: int
    overdue_until: int
    earlier: int
    def __init__(self, uid: _Optional[int] = ..., until: _Optional[int] = ..., tombstones_until: _Optional[int] = ..., keep_first: bool = ..., index: _Optional[int] = ..., overdue_until: _Optional[int] = ..., earlier: _Optional[int] = ...) -> None: ...

class EphemeralEpoch(_message.Message):
    __slots__ = ("uid", "more", "block", "at")
    UID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    uid: int
    more: int
    block: int
    at: int
    def __init__(self, uid: _Optional[int] = ..., more: _Optional[int] = ..., block: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class EpochRow(_message.Message):
    __slots__ = ("number", "first", "block", "began")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    number: int
    first: int
    block: int
    began: int
    def __init__(self, number: _Optional[int] = ..., first: _Optional[int] = ..., block: _Optional[int] = ..., began: _Optional[int] = ...) -> None: ...
