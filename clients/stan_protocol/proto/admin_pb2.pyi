from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAIN: _ClassVar[Kind]
    DURABLE: _ClassVar[Kind]
    QUEUE: _ClassVar[Kind]
    DURABLE_QUEUE: _ClassVar[Kind]

class SchemaKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANY_SCHEMA_KIND: _ClassVar[SchemaKind]
    JSON_SCHEMA: _ClassVar[SchemaKind]
    AVRO_SCHEMA: _ClassVar[SchemaKind]
    PROTOBUF_SCHEMA: _ClassVar[SchemaKind]

class SchemaCompatibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKWARD: _ClassVar[SchemaCompatibility]
    FORWARD: _ClassVar[SchemaCompatibility]
    FULL: _ClassVar[SchemaCompatibility]
    NONE: _ClassVar[SchemaCompatibility]
PLAIN: Kind
DURABLE: Kind
QUEUE: Kind
DURABLE_QUEUE: Kind
ANY_SCHEMA_KIND: SchemaKind
JSON_SCHEMA: SchemaKind
AVRO_SCHEMA: SchemaKind
PROTOBUF_SCHEMA: SchemaKind
BACKWARD: SchemaCompatibility
FORWARD: SchemaCompatibility
FULL: SchemaCompatibility
NONE: SchemaCompatibility

class ChannelsRequest(_message.Message):
    __slots__ = ("version", "pattern", "after", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    after: bytes
    max: int
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., after: _Optional[bytes] = ..., max: _Optional[int] = ...) -> None: ...

class ChannelsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "pool", "groups", "channels", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    pool: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., pool: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[_Union[ChannelStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ChannelStatus(_message.Message):
    __slots__ = ("name", "uid", "group", "first_sequence", "last_sequence", "messages", "bytes", "first_timestamp", "last_timestamp", "subscriptions", "offline", "limits", "edited", "deleted", "delayed", "delay_fault", "pinned", "commit", "ttl", "compacted_until", "tombstones_until", "compact", "kept_bytes", "clear_bytes", "compress", "compacted_here", "tombstone_held", "held_by", "compaction_passes", "compaction_saved_bytes", "compaction_ended", "tier", "tier_next", "tier_kept", "tier_lost", "part_of", "epoch", "epoch_began", "ack_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EDITED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DELAY_FAULT_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_UNTIL_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    KEPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLEAR_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_HERE_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_HELD_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_PASSES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_SAVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_ENDED_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    TIER_NEXT_FIELD_NUMBER: _ClassVar[int]
    TIER_KEPT_FIELD_NUMBER: _ClassVar[int]
    TIER_LOST_FIELD_NUMBER: _ClassVar[int]
    PART_OF_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_BEGAN_FIELD_NUMBER: _ClassVar[int]
    ACK_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    uid: int
    group: int
    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int
    first_timestamp: int
    last_timestamp: int
    subscriptions: int
    offline: int
    limits: Limits
    edited: Limits
    deleted: int
    delayed: int
    delay_fault: bytes
    pinned: bool
    commit: int
    ttl: int
    compacted_until: int
    tombstones_until: int
    compact: int
    kept_bytes: int
    clear_bytes: int
    compress: int
    compacted_here: int
    tombstone_held: int
    held_by: bytes
    compaction_passes: int
    compaction_saved_bytes: int
    compaction_ended: int
    tier: bytes
    tier_next: int
    tier_kept: int
    tier_lost: int
    part_of: PartOf
    epoch: int
    epoch_began: int
    ack_level: int
    def __init__(self, name: _Optional[bytes] = ..., uid: _Optional[int] = ..., group: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., first_timestamp: _Optional[int] = ..., last_timestamp: _Optional[int] = ..., subscriptions: _Optional[int] = ..., offline: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., edited: _Optional[_Union[Limits, _Mapping]] = ..., deleted: _Optional[int] = ..., delayed: _Optional[int] = ..., delay_fault: _Optional[bytes] = ..., pinned: bool = ..., commit: _Optional[int] = ..., ttl: _Optional[int] = ..., compacted_until: _Optional[int] = ..., tombstones_until: _Optional[int] = ..., compact: _Optional[int] = ..., kept_bytes: _Optional[int] = ..., clear_bytes: _Optional[int] = ..., compress: _Optional[int] = ..., compacted_here: _Optional[int] = ..., tombstone_held: _Optional[int] = ..., held_by: _Optional[bytes] = ..., compaction_passes: _Optional[int] = ..., compaction_saved_bytes: _Optional[int] = ..., compaction_ended: _Optional[int] = ..., tier: _Optional[bytes] = ..., tier_next: _Optional[int] = ..., tier_kept: _Optional[int] = ..., tier_lost: _Optional[int] = ..., part_of: _Optional[_Union[PartOf, _Mapping]] = ..., epoch: _Optional[int] = ..., epoch_began: _Optional[int] = ..., ack_level: _Optional[int] = ...) -> None: ...

class PartOf(_message.Message):
    __slots__ = ("channel", "number", "parts", "before", "doubling", "closed")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    number: int
    parts: int
    before: int
    doubling: int
    closed: bool
    def __init__(self, channel: _Optional[bytes] = ..., number: _Optional[int] = ..., parts: _Optional[int] = ..., before: _Optional[int] = ..., doubling: _Optional[int] = ..., closed: bool = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_msgs", "max_bytes", "max_age", "max_subs", "max_inactivity")
    MAX_MSGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBS_FIELD_NUMBER: _ClassVar[int]
    MAX_INACTIVITY_FIELD_NUMBER: _ClassVar[int]
    max_msgs: int
    max_bytes: int
    max_age: int
    max_subs: int
    max_inactivity: int
    def __init__(self, max_msgs: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_age: _Optional[int] = ..., max_subs: _Optional[int] = ..., max_inactivity: _Optional[int] = ...) -> None: ...

class DelayedRequest(_message.Message):
    __slots__ = ("version", "channel", "after", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    after: int
    max: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., after: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class DelayedResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "messages", "waiting", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    waiting: int
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., waiting: _Optional[int] = ..., more: bool = ...) -> None: ...

class ReadDelayedRequest(_message.Message):
    __slots__ = ("version", "channel", "after", "until")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    after: int
    until: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., after: _Optional[int] = ..., until: _Optional[int] = ...) -> None: ...

class ReadDelayedResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "messages", "more", "ids", "last_sequence", "now", "after", "rows")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    more: bool
    ids: _containers.RepeatedScalarFieldContainer[int]
    last_sequence: int
    now: int
    after: int
    rows: bytes
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., more: bool = ..., ids: _Optional[_Iterable[int]] = ..., last_sequence: _Optional[int] = ..., now: _Optional[int] = ..., after: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class DelayedMessage(_message.Message):
    __slots__ = ("id", "due", "expires_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    due: int
    expires_at: int
    def __init__(self, id: _Optional[int] = ..., due: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class SubscriptionsRequest(_message.Message):
    __slots__ = ("version", "pattern", "name", "client_id", "durable_only", "after_channel", "after_cursor", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_ONLY_FIELD_NUMBER: _ClassVar[int]
    AFTER_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    name: bytes
    client_id: bytes
    durable_only: bool
    after_channel: bytes
    after_cursor: int
    max: int
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., name: _Optional[bytes] = ..., client_id: _Optional[bytes] = ..., durable_only: bool = ..., after_channel: _Optional[bytes] = ..., after_cursor: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class SubscriptionsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "pool", "groups", "cursors", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    pool: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    cursors: _containers.RepeatedCompositeFieldContainer[CursorStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., pool: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., cursors: _Optional[_Iterable[_Union[CursorStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class CursorStatus(_message.Message):
    __slots__ = ("channel", "cursor_id", "group", "kind", "durable_name", "queue_group", "client_id", "paused", "last_sent", "acked_up_to", "pending", "owed", "waiting", "redelivered", "oldest_pending", "members", "last_sequence", "last_ack", "max_in_flight", "ack_wait_s", "first_sequence", "owed_runs", "pending_runs", "inbox", "runs_cut", "policy", "served_by", "exhausted", "given_up_rejected", "counted_runs", "counts", "delayed", "held_back", "rejected", "dead_letters", "dead_letter_channel", "dead_letter_fault", "pause_reason", "part_of", "user")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    LAST_SENT_FIELD_NUMBER: _ClassVar[int]
    ACKED_UP_TO_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PENDING_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OWED_RUNS_FIELD_NUMBER: _ClassVar[int]
    PENDING_RUNS_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    RUNS_CUT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_REJECTED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_RUNS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FAULT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    PART_OF_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    cursor_id: int
    group: int
    kind: Kind
    durable_name: bytes
    queue_group: bytes
    client_id: bytes
    paused: bool
    last_sent: int
    acked_up_to: int
    pending: int
    owed: int
    waiting: int
    redelivered: int
    oldest_pending: int
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    last_sequence: int
    last_ack: int
    max_in_flight: int
    ack_wait_s: int
    first_sequence: int
    owed_runs: _containers.RepeatedScalarFieldContainer[int]
    pending_runs: _containers.RepeatedScalarFieldContainer[int]
    inbox: bytes
    runs_cut: bool
    policy: DeliveryPolicy
    served_by: bytes
    exhausted: int
    given_up_rejected: int
    counted_runs: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    delayed: int
    held_back: int
    rejected: int
    dead_letters: int
    dead_letter_channel: bytes
    dead_letter_fault: bytes
    pause_reason: bytes
    part_of: PartOf
    user: bytes
    def __init__(self, channel: _Optional[bytes] = ..., cursor_id: _Optional[int] = ..., group: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., durable_name: _Optional[bytes] = ..., queue_group: _Optional[bytes] = ..., client_id: _Optional[bytes] = ..., paused: bool = ..., last_sent: _Optional[int] = ..., acked_up_to: _Optional[int] = ..., pending: _Optional[int] = ..., owed: _Optional[int] = ..., waiting: _Optional[int] = ..., redelivered: _Optional[int] = ..., oldest_pending: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., last_sequence: _Optional[int] = ..., last_ack: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., first_sequence: _Optional[int] = ..., owed_runs: _Optional[_Iterable[int]] = ..., pending_runs: _Optional[_Iterable[int]] = ..., inbox: _Optional[bytes] = ..., runs_cut: bool = ..., policy: _Optional[_Union[DeliveryPolicy, _Mapping]] = ..., served_by: _Optional[bytes] = ..., exhausted: _Optional[int] = ..., given_up_rejected: _Optional[int] = ..., counted_runs: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., delayed: _Optional[int] = ..., held_back: _Optional[int] = ..., rejected: _Optional[int] = ..., dead_letters: _Optional[int] = ..., dead_letter_channel: _Optional[bytes] = ..., dead_letter_fault: _Optional[bytes] = ..., pause_reason: _Optional[bytes] = ..., part_of: _Optional[_Union[PartOf, _Mapping]] = ..., user: _Optional[bytes] = ...) -> None: ...

class DeliveryPolicy(_message.Message):
    __slots__ = ("max_deliver", "backoff", "max_hold", "adaptive_window", "dead_letter", "dead_letter_rate", "failover", "ordered_by_key", "delay", "target", "max_late", "ttl", "compact", "min_age", "tombstone_max", "from_replica", "schema", "compress", "tier", "tier_stretch", "commit")
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
    COMPRESS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    TIER_STRETCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    max_deliver: int
    backoff: Backoff
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
    compress: int
    tier: bytes
    tier_stretch: int
    commit: int
    def __init__(self, max_deliver: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., max_hold: _Optional[int] = ..., adaptive_window: bool = ..., dead_letter: _Optional[bytes] = ..., dead_letter_rate: _Optional[int] = ..., failover: bool = ..., ordered_by_key: bool = ..., delay: _Optional[int] = ..., target: _Optional[bytes] = ..., max_late: _Optional[int] = ..., ttl: _Optional[int] = ..., compact: _Optional[int] = ..., min_age: _Optional[int] = ..., tombstone_max: _Optional[int] = ..., from_replica: bool = ..., schema: _Optional[int] = ..., compress: _Optional[int] = ..., tier: _Optional[bytes] = ..., tier_stretch: _Optional[int] = ..., commit: _Optional[int] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("pauses",)
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    pauses: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pauses: _Optional[_Iterable[int]] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("client_id", "subscription_id", "inbox", "max_in_flight", "ack_wait_s", "pending", "last_sent", "stalled", "failing", "oldest_pending", "window_now", "active")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LAST_SENT_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PENDING_FIELD_NUMBER: _ClassVar[int]
    WINDOW_NOW_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    subscription_id: int
    inbox: bytes
    max_in_flight: int
    ack_wait_s: int
    pending: int
    last_sent: int
    stalled: bool
    failing: bool
    oldest_pending: int
    window_now: int
    active: bool
    def __init__(self, client_id: _Optional[bytes] = ..., subscription_id: _Optional[int] = ..., inbox: _Optional[bytes] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., pending: _Optional[int] = ..., last_sent: _Optional[int] = ..., stalled: bool = ..., failing: bool = ..., oldest_pending: _Optional[int] = ..., window_now: _Optional[int] = ..., active: bool = ...) -> None: ...

class ClientsRequest(_message.Message):
    __slots__ = ("version", "client_id", "after", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    client_id: bytes
    after: bytes
    max: int
    def __init__(self, version: _Optional[int] = ..., client_id: _Optional[bytes] = ..., after: _Optional[bytes] = ..., max: _Optional[int] = ...) -> None: ...

class ClientsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "clients", "more", "total")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    clients: _containers.RepeatedCompositeFieldContainer[ClientStatus]
    more: bool
    total: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ..., more: bool = ..., total: _Optional[int] = ...) -> None: ...

class ConsumerGroupsRequest(_message.Message):
    __slots__ = ("version", "group", "after", "max", "user", "after_user")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    AFTER_USER_FIELD_NUMBER: _ClassVar[int]
    version: int
    group: bytes
    after: bytes
    max: int
    user: bytes
    after_user: bytes
    def __init__(self, version: _Optional[int] = ..., group: _Optional[bytes] = ..., after: _Optional[bytes] = ..., max: _Optional[int] = ..., user: _Optional[bytes] = ..., after_user: _Optional[bytes] = ...) -> None: ...

class ConsumerGroupsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "groups", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    groups: _containers.RepeatedCompositeFieldContainer[ConsumerGroupStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., groups: _Optional[_Iterable[_Union[ConsumerGroupStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ConsumerGroupStatus(_message.Message):
    __slots__ = ("group", "members", "channels", "unowned", "releasing", "member_list", "channel_list", "user")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_FIELD_NUMBER: _ClassVar[int]
    RELEASING_FIELD_NUMBER: _ClassVar[int]
    MEMBER_LIST_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_LIST_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    group: bytes
    members: int
    channels: int
    unowned: int
    releasing: int
    member_list: _containers.RepeatedCompositeFieldContainer[ConsumerMemberStatus]
    channel_list: _containers.RepeatedCompositeFieldContainer[ConsumerChannelStatus]
    user: bytes
    def __init__(self, group: _Optional[bytes] = ..., members: _Optional[int] = ..., channels: _Optional[int] = ..., unowned: _Optional[int] = ..., releasing: _Optional[int] = ..., member_list: _Optional[_Iterable[_Union[ConsumerMemberStatus, _Mapping]]] = ..., channel_list: _Optional[_Iterable[_Union[ConsumerChannelStatus, _Mapping]]] = ..., user: _Optional[bytes] = ...) -> None: ...

class ConsumerMemberStatus(_message.Message):
    __slots__ = ("name", "user", "pattern", "lease_ms", "left_ms", "channels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    user: bytes
    pattern: bytes
    lease_ms: int
    left_ms: int
    channels: int
    def __init__(self, name: _Optional[bytes] = ..., user: _Optional[bytes] = ..., pattern: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., left_ms: _Optional[int] = ..., channels: _Optional[int] = ...) -> None: ...

class ConsumerChannelStatus(_message.Message):
    __slots__ = ("channel", "member", "generation", "releasing")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RELEASING_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    member: int
    generation: int
    releasing: bool
    def __init__(self, channel: _Optional[bytes] = ..., member: _Optional[int] = ..., generation: _Optional[int] = ..., releasing: bool = ...) -> None: ...

class PoliciesRequest(_message.Message):
    __slots__ = ("version", "pattern", "channel", "name", "after", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    channel: bytes
    name: bytes
    after: int
    max: int
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., channel: _Optional[bytes] = ..., name: _Optional[bytes] = ..., after: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class PoliciesResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "policies", "more", "in_force")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    policies: _containers.RepeatedCompositeFieldContainer[PolicyStatus]
    more: bool
    in_force: DeliveryPolicy
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., policies: _Optional[_Iterable[_Union[PolicyStatus, _Mapping]]] = ..., more: bool = ..., in_force: _Optional[_Union[DeliveryPolicy, _Mapping]] = ...) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("pattern", "name", "policy", "configured", "where")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    name: bytes
    policy: DeliveryPolicy
    configured: bool
    where: bytes
    def __init__(self, pattern: _Optional[bytes] = ..., name: _Optional[bytes] = ..., policy: _Optional[_Union[DeliveryPolicy, _Mapping]] = ..., configured: bool = ..., where: _Optional[bytes] = ...) -> None: ...

class ClientStatus(_message.Message):
    __slots__ = ("client_id", "heartbeat_inbox", "protocol", "ping_interval_s", "ping_max_out", "failing")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INBOX_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    PING_MAX_OUT_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    heartbeat_inbox: bytes
    protocol: int
    ping_interval_s: int
    ping_max_out: int
    failing: bool
    def __init__(self, client_id: _Optional[bytes] = ..., heartbeat_inbox: _Optional[bytes] = ..., protocol: _Optional[int] = ..., ping_interval_s: _Optional[int] = ..., ping_max_out: _Optional[int] = ..., failing: bool = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("error", "error_code", "retry", "node", "server_id", "product", "nodes", "nodes_version", "started", "replica", "groups", "not_ready", "clients", "channels", "monitor", "disk_free", "disk_total", "rss", "kernel", "sync", "store", "now", "messages_in", "messages_out", "bytes_in", "bytes_out", "read_replicas", "level", "level_known", "labels", "places", "pool_groups", "pool_open", "channels_to_move", "moves_paused", "decompressed_batches", "decompressed_again", "acked", "unanswered")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MONITOR_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RSS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    READ_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_KNOWN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    POOL_GROUPS_FIELD_NUMBER: _ClassVar[int]
    POOL_OPEN_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_TO_MOVE_FIELD_NUMBER: _ClassVar[int]
    MOVES_PAUSED_FIELD_NUMBER: _ClassVar[int]
    DECOMPRESSED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    DECOMPRESSED_AGAIN_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    node: str
    server_id: str
    product: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    nodes_version: int
    started: int
    replica: bool
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    not_ready: _containers.RepeatedScalarFieldContainer[str]
    clients: int
    channels: int
    monitor: str
    disk_free: int
    disk_total: int
    rss: int
    kernel: str
    sync: str
    store: str
    now: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    read_replicas: _containers.RepeatedScalarFieldContainer[str]
    level: int
    level_known: int
    labels: str
    places: _containers.RepeatedCompositeFieldContainer[NodePlace]
    pool_groups: int
    pool_open: int
    channels_to_move: int
    moves_paused: bool
    decompressed_batches: int
    decompressed_again: int
    acked: _containers.RepeatedCompositeFieldContainer[AckedMessages]
    unanswered: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., node: _Optional[str] = ..., server_id: _Optional[str] = ..., product: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., nodes_version: _Optional[int] = ..., started: _Optional[int] = ..., replica: bool = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., not_ready: _Optional[_Iterable[str]] = ..., clients: _Optional[int] = ..., channels: _Optional[int] = ..., monitor: _Optional[str] = ..., disk_free: _Optional[int] = ..., disk_total: _Optional[int] = ..., rss: _Optional[int] = ..., kernel: _Optional[str] = ..., sync: _Optional[str] = ..., store: _Optional[str] = ..., now: _Optional[int] = ..., messages_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., read_replicas: _Optional[_Iterable[str]] = ..., level: _Optional[int] = ..., level_known: _Optional[int] = ..., labels: _Optional[str] = ..., places: _Optional[_Iterable[_Union[NodePlace, _Mapping]]] = ..., pool_groups: _Optional[int] = ..., pool_open: _Optional[int] = ..., channels_to_move: _Optional[int] = ..., moves_paused: bool = ..., decompressed_batches: _Optional[int] = ..., decompressed_again: _Optional[int] = ..., acked: _Optional[_Iterable[_Union[AckedMessages, _Mapping]]] = ..., unanswered: _Optional[int] = ...) -> None: ...

class AckedMessages(_message.Message):
    __slots__ = ("level", "messages")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    level: int
    messages: int
    def __init__(self, level: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class NodePlace(_message.Message):
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

class GroupStatus(_message.Message):
    __slots__ = ("group", "role", "leader", "term", "last_index", "committed", "applied", "voters", "trouble", "replicas", "state_hash", "hashed", "differs", "trouble_kind", "trouble_since", "commit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STATE_HASH_FIELD_NUMBER: _ClassVar[int]
    HASHED_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_KIND_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_SINCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    group: int
    role: str
    leader: str
    term: int
    last_index: int
    committed: int
    applied: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    trouble: str
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    state_hash: bytes
    hashed: int
    differs: str
    trouble_kind: str
    trouble_since: int
    commit: int
    def __init__(self, group: _Optional[int] = ..., role: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., last_index: _Optional[int] = ..., committed: _Optional[int] = ..., applied: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., trouble: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., state_hash: _Optional[bytes] = ..., hashed: _Optional[int] = ..., differs: _Optional[str] = ..., trouble_kind: _Optional[str] = ..., trouble_since: _Optional[int] = ..., commit: _Optional[int] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("node", "match", "connected")
    NODE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    node: str
    match: int
    connected: bool
    def __init__(self, node: _Optional[str] = ..., match: _Optional[int] = ..., connected: bool = ...) -> None: ...

class OptionsRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class OptionsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "node", "options")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    node: str
    options: _containers.RepeatedCompositeFieldContainer[Option]
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., node: _Optional[str] = ..., options: _Optional[_Iterable[_Union[Option, _Mapping]]] = ...) -> None: ...

class Option(_message.Message):
    __slots__ = ("name", "value", "source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("version", "node", "channel", "uid", "to", "crc", "compared_from")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FROM_FIELD_NUMBER: _ClassVar[int]
    version: int
    node: str
    channel: bytes
    uid: int
    to: int
    crc: int
    compared_from: int
    def __init__(self, version: _Optional[int] = ..., node: _Optional[str] = ..., channel: _Optional[bytes] = ..., uid: _Optional[int] = ..., to: _Optional[int] = ..., crc: _Optional[int] = ..., compared_from: _Optional[int] = ..., **kwargs) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "node", "group", "uid", "first_sequence", "last_sequence", "messages", "bytes", "crc", "next_sequence", "damaged")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    node: str
    group: int
    uid: int
    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int
    crc: int
    next_sequence: int
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedMessages]
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., node: _Optional[str] = ..., group: _Optional[int] = ..., uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., crc: _Optional[int] = ..., next_sequence: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedMessages, _Mapping]]] = ...) -> None: ...

class DamagedMessages(_message.Message):
    __slots__ = ("first_sequence", "last_sequence", "text")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    last_sequence: int
    text: str
    def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("version", "which", "sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    sequence: int
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ..., sequence: _Optional[int] = ..., **kwargs) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "node", "cursor_id", "timestamp", "steps", "more", "next", "begins_late", "state")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    BEGINS_LATE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    node: str
    cursor_id: int
    timestamp: int
    steps: _containers.RepeatedCompositeFieldContainer[ExplainStep]
    more: bool
    next: ExplainPlace
    begins_late: bool
    state: str
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., node: _Optional[str] = ..., cursor_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ExplainStep, _Mapping]]] = ..., more: bool = ..., next: _Optional[_Union[ExplainPlace, _Mapping]] = ..., begins_late: bool = ..., state: _Optional[str] = ...) -> None: ...

class ExplainStep(_message.Message):
    __slots__ = ("what", "at", "until", "cause", "client_id", "subscription_id", "count", "sequence", "node", "term", "index", "app", "app_version", "reason")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    APP_VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    what: str
    at: int
    until: int
    cause: str
    client_id: bytes
    subscription_id: int
    count: int
    sequence: int
    node: str
    term: int
    index: int
    app: bytes
    app_version: int
    reason: bytes
    def __init__(self, what: _Optional[str] = ..., at: _Optional[int] = ..., until: _Optional[int] = ..., cause: _Optional[str] = ..., client_id: _Optional[bytes] = ..., subscription_id: _Optional[int] = ..., count: _Optional[int] = ..., sequence: _Optional[int] = ..., node: _Optional[str] = ..., term: _Optional[int] = ..., index: _Optional[int] = ..., app: _Optional[bytes] = ..., app_version: _Optional[int] = ..., reason: _Optional[bytes] = ...) -> None: ...

class ExplainPlace(_message.Message):
    __slots__ = ("index", "holder", "owed", "epoch", "known_epoch", "settled", "expires", "served_since", "known_server", "unstored")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    SERVED_SINCE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SERVER_FIELD_NUMBER: _ClassVar[int]
    UNSTORED_FIELD_NUMBER: _ClassVar[int]
    index: int
    holder: int
    owed: int
    epoch: int
    known_epoch: bool
    settled: bool
    expires: int
    served_since: int
    known_server: bool
    unstored: bool
    def __init__(self, index: _Optional[int] = ..., holder: _Optional[int] = ..., owed: _Optional[int] = ..., epoch: _Optional[int] = ..., known_epoch: bool = ..., settled: bool = ..., expires: _Optional[int] = ..., served_since: _Optional[int] = ..., known_server: bool = ..., unstored: bool = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "changed", "first_sequence", "last_sequence", "redriven", "schema_version")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    changed: int
    first_sequence: int
    last_sequence: int
    redriven: Redriven
    schema_version: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., changed: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., redriven: _Optional[_Union[Redriven, _Mapping]] = ..., schema_version: _Optional[int] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("version", "channel", "up_to", "keep")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    up_to: int
    keep: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., up_to: _Optional[int] = ..., keep: _Optional[int] = ...) -> None: ...

class DeleteMessageRequest(_message.Message):
    __slots__ = ("version", "channel", "sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    sequence: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., sequence: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("version", "channel", "runs", "to")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    runs: _containers.RepeatedScalarFieldContainer[int]
    to: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., runs: _Optional[_Iterable[int]] = ..., to: _Optional[bytes] = ...) -> None: ...

class Redriven(_message.Message):
    __slots__ = ("stopped", "foreign", "too_large", "next_sequence")
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    stopped: int
    foreign: int
    too_large: int
    next_sequence: int
    def __init__(self, stopped: _Optional[int] = ..., foreign: _Optional[int] = ..., too_large: _Optional[int] = ..., next_sequence: _Optional[int] = ...) -> None: ...

class CancelDelayedRequest(_message.Message):
    __slots__ = ("version", "channel", "ids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateChannelRequest(_message.Message):
    __slots__ = ("version", "channel")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ...) -> None: ...

class DeleteChannelRequest(_message.Message):
    __slots__ = ("version", "channel", "uid")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    uid: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., uid: _Optional[int] = ...) -> None: ...

class EditLimitsRequest(_message.Message):
    __slots__ = ("version", "channel", "limits", "reset")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    limits: Limits
    reset: bool
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., reset: bool = ...) -> None: ...

class Which(_message.Message):
    __slots__ = ("channel", "cursor_id", "durable_name", "client_id", "queue_group")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_GROUP_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    cursor_id: int
    durable_name: bytes
    client_id: bytes
    queue_group: bytes
    def __init__(self, channel: _Optional[bytes] = ..., cursor_id: _Optional[int] = ..., durable_name: _Optional[bytes] = ..., client_id: _Optional[bytes] = ..., queue_group: _Optional[bytes] = ...) -> None: ...

class CreateCursorRequest(_message.Message):
    __slots__ = ("version", "which", "sequence", "time", "new_only", "all", "like")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    NEW_ONLY_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    LIKE_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    sequence: int
    time: int
    new_only: bool
    all: bool
    like: Which
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ..., sequence: _Optional[int] = ..., time: _Optional[int] = ..., new_only: bool = ..., all: bool = ..., like: _Optional[_Union[Which, _Mapping]] = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("version", "which", "sequence", "time", "new_only", "all")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    NEW_ONLY_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    sequence: int
    time: int
    new_only: bool
    all: bool
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ..., sequence: _Optional[int] = ..., time: _Optional[int] = ..., new_only: bool = ..., all: bool = ...) -> None: ...

class SkipRequest(_message.Message):
    __slots__ = ("version", "which", "runs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class RedeliverRequest(_message.Message):
    __slots__ = ("version", "which", "runs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("version", "which")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("version", "which")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ...) -> None: ...

class EvictMemberRequest(_message.Message):
    __slots__ = ("version", "channel", "subscription_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    subscription_id: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., subscription_id: _Optional[int] = ...) -> None: ...

class DeleteCursorRequest(_message.Message):
    __slots__ = ("version", "which")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    version: int
    which: Which
    def __init__(self, version: _Optional[int] = ..., which: _Optional[_Union[Which, _Mapping]] = ...) -> None: ...

class EvictClientRequest(_message.Message):
    __slots__ = ("version", "client_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    client_id: bytes
    def __init__(self, version: _Optional[int] = ..., client_id: _Optional[bytes] = ...) -> None: ...

class StepDownRequest(_message.Message):
    __slots__ = ("version", "group", "to")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    version: int
    group: int
    to: str
    def __init__(self, version: _Optional[int] = ..., group: _Optional[int] = ..., to: _Optional[str] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ("version", "node")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    version: int
    node: str
    def __init__(self, version: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class RaiseLevelRequest(_message.Message):
    __slots__ = ("version", "to")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    version: int
    to: int
    def __init__(self, version: _Optional[int] = ..., to: _Optional[int] = ...) -> None: ...

class PinChannelRequest(_message.Message):
    __slots__ = ("version", "channel", "group")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    group: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., group: _Optional[int] = ...) -> None: ...

class ChangeCommitRequest(_message.Message):
    __slots__ = ("version", "channel", "commit")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    commit: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., commit: _Optional[int] = ...) -> None: ...

class GrowPoolRequest(_message.Message):
    __slots__ = ("version", "groups", "commit")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    version: int
    groups: int
    commit: int
    def __init__(self, version: _Optional[int] = ..., groups: _Optional[int] = ..., commit: _Optional[int] = ...) -> None: ...

class PauseMovesRequest(_message.Message):
    __slots__ = ("version", "paused")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    version: int
    paused: bool
    def __init__(self, version: _Optional[int] = ..., paused: bool = ...) -> None: ...

class CreatePartsRequest(_message.Message):
    __slots__ = ("version", "channel", "parts", "key")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    parts: int
    key: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., parts: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class DeletePartsRequest(_message.Message):
    __slots__ = ("version", "channel")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ...) -> None: ...

class DoublePartsRequest(_message.Message):
    __slots__ = ("version", "channel", "parts")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    parts: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., parts: _Optional[int] = ...) -> None: ...

class PartsRequest(_message.Message):
    __slots__ = ("channel", "after", "max")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    after: bytes
    max: int
    def __init__(self, channel: _Optional[bytes] = ..., after: _Optional[bytes] = ..., max: _Optional[int] = ...) -> None: ...

class PartsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "channels", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    channels: _containers.RepeatedCompositeFieldContainer[PartedStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., channels: _Optional[_Iterable[_Union[PartedStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class PartedStatus(_message.Message):
    __slots__ = ("channel", "parts", "key", "deleting", "doubling", "splits")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    DOUBLING_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    parts: int
    key: bytes
    deleting: bool
    doubling: bool
    splits: _containers.RepeatedCompositeFieldContainer[PartSplitStatus]
    def __init__(self, channel: _Optional[bytes] = ..., parts: _Optional[int] = ..., key: _Optional[bytes] = ..., deleting: bool = ..., doubling: bool = ..., splits: _Optional[_Iterable[_Union[PartSplitStatus, _Mapping]]] = ...) -> None: ...

class PartSplitStatus(_message.Message):
    __slots__ = ("parts", "last")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    parts: int
    last: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, parts: _Optional[int] = ..., last: _Optional[_Iterable[int]] = ...) -> None: ...

class PinsRequest(_message.Message):
    __slots__ = ("version", "after", "max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    after: bytes
    max: int
    def __init__(self, version: _Optional[int] = ..., after: _Optional[bytes] = ..., max: _Optional[int] = ...) -> None: ...

class PinsResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "pins", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    pins: _containers.RepeatedCompositeFieldContainer[PinStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., pins: _Optional[_Iterable[_Union[PinStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class PinStatus(_message.Message):
    __slots__ = ("channel", "group", "exists", "group_now", "moving")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_NOW_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    group: int
    exists: bool
    group_now: int
    moving: bool
    def __init__(self, channel: _Optional[bytes] = ..., group: _Optional[int] = ..., exists: bool = ..., group_now: _Optional[int] = ..., moving: bool = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("version", "pattern", "name", "policy")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    name: bytes
    policy: DeliveryPolicy
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., name: _Optional[bytes] = ..., policy: _Optional[_Union[DeliveryPolicy, _Mapping]] = ...) -> None: ...

class RestoreChannelRequest(_message.Message):
    __slots__ = ("version", "channel", "restore", "first_sequence", "limits")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    restore: bytes
    first_sequence: int
    limits: Limits
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., restore: _Optional[bytes] = ..., first_sequence: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class RestoreRowsRequest(_message.Message):
    __slots__ = ("version", "channel", "restore", "runs", "expiring_runs", "expire_at", "rows")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_RUNS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    restore: bytes
    runs: _containers.RepeatedCompositeFieldContainer[RestoredRun]
    expiring_runs: _containers.RepeatedScalarFieldContainer[int]
    expire_at: _containers.RepeatedScalarFieldContainer[int]
    rows: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., restore: _Optional[bytes] = ..., runs: _Optional[_Iterable[_Union[RestoredRun, _Mapping]]] = ..., expiring_runs: _Optional[_Iterable[int]] = ..., expire_at: _Optional[_Iterable[int]] = ..., rows: _Optional[bytes] = ...) -> None: ...

class RestoredRun(_message.Message):
    __slots__ = ("first_sequence", "count", "timestamp")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    count: int
    timestamp: int
    def __init__(self, first_sequence: _Optional[int] = ..., count: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class RestoreCursorRequest(_message.Message):
    __slots__ = ("version", "channel", "restore", "cursor")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    restore: bytes
    cursor: CursorStatus
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., restore: _Optional[bytes] = ..., cursor: _Optional[_Union[CursorStatus, _Mapping]] = ...) -> None: ...

class RestoreDelayedRequest(_message.Message):
    __slots__ = ("version", "channel", "restore", "messages", "rows")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    restore: bytes
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    rows: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., restore: _Optional[bytes] = ..., messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., rows: _Optional[bytes] = ...) -> None: ...

class ReadStreamRequest(_message.Message):
    __slots__ = ("version", "channel", "after")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    after: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., after: _Optional[bytes] = ...) -> None: ...

class ReadStreamResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "stream", "adopted", "consumers", "more", "after")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    stream: bytes
    adopted: bool
    consumers: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    after: bytes
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., stream: _Optional[bytes] = ..., adopted: bool = ..., consumers: _Optional[_Iterable[bytes]] = ..., more: bool = ..., after: _Optional[bytes] = ...) -> None: ...

class RestoreStreamRequest(_message.Message):
    __slots__ = ("version", "channel", "stream")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    stream: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., stream: _Optional[bytes] = ...) -> None: ...

class RestoreConsumerRequest(_message.Message):
    __slots__ = ("version", "channel", "consumer")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    consumer: bytes
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., consumer: _Optional[bytes] = ...) -> None: ...

class RestoreEndRequest(_message.Message):
    __slots__ = ("version", "channel", "restore", "last_sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    restore: bytes
    last_sequence: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., restore: _Optional[bytes] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("time", "node", "kind", "text", "channel", "client_id", "group", "cursor_id")
    TIME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    time: int
    node: str
    kind: str
    text: str
    channel: bytes
    client_id: bytes
    group: int
    cursor_id: int
    def __init__(self, time: _Optional[int] = ..., node: _Optional[str] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., channel: _Optional[bytes] = ..., client_id: _Optional[bytes] = ..., group: _Optional[int] = ..., cursor_id: _Optional[int] = ...) -> None: ...

class AddSchemaRequest(_message.Message):
    __slots__ = ("version", "pattern", "kind", "text", "message", "compatibility", "schema_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    kind: SchemaKind
    text: bytes
    message: bytes
    compatibility: SchemaCompatibility
    schema_version: int
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., kind: _Optional[_Union[SchemaKind, str]] = ..., text: _Optional[bytes] = ..., message: _Optional[bytes] = ..., compatibility: _Optional[_Union[SchemaCompatibility, str]] = ..., schema_version: _Optional[int] = ...) -> None: ...

class CheckSchemaRequest(_message.Message):
    __slots__ = ("version", "pattern", "kind", "text", "message", "compatibility")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    kind: SchemaKind
    text: bytes
    message: bytes
    compatibility: SchemaCompatibility
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., kind: _Optional[_Union[SchemaKind, str]] = ..., text: _Optional[bytes] = ..., message: _Optional[bytes] = ..., compatibility: _Optional[_Union[SchemaCompatibility, str]] = ...) -> None: ...

class CheckSchemaResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "changed", "schema_version", "complaints")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPLAINTS_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    changed: int
    schema_version: int
    complaints: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., changed: _Optional[int] = ..., schema_version: _Optional[int] = ..., complaints: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RemoveSchemaRequest(_message.Message):
    __slots__ = ("version", "pattern", "schema_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    pattern: bytes
    schema_version: int
    def __init__(self, version: _Optional[int] = ..., pattern: _Optional[bytes] = ..., schema_version: _Optional[int] = ...) -> None: ...

class SchemasRequest(_message.Message):
    __slots__ = ("version", "channel", "pattern", "schema_version", "without_texts", "max", "after_pattern", "after_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TEXTS_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    AFTER_PATTERN_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    channel: bytes
    pattern: bytes
    schema_version: int
    without_texts: bool
    max: int
    after_pattern: bytes
    after_version: int
    def __init__(self, version: _Optional[int] = ..., channel: _Optional[bytes] = ..., pattern: _Optional[bytes] = ..., schema_version: _Optional[int] = ..., without_texts: bool = ..., max: _Optional[int] = ..., after_pattern: _Optional[bytes] = ..., after_version: _Optional[int] = ...) -> None: ...

class SchemasResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "schemas", "more")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    schemas: _containers.RepeatedCompositeFieldContainer[SchemaStatus]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., schemas: _Optional[_Iterable[_Union[SchemaStatus, _Mapping]]] = ..., more: bool = ...) -> None: ...

class SchemaStatus(_message.Message):
    __slots__ = ("pattern", "kind", "compatibility", "schema_version", "text", "message", "at", "size")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    kind: SchemaKind
    compatibility: SchemaCompatibility
    schema_version: int
    text: bytes
    message: bytes
    at: int
    size: int
    def __init__(self, pattern: _Optional[bytes] = ..., kind: _Optional[_Union[SchemaKind, str]] = ..., compatibility: _Optional[_Union[SchemaCompatibility, str]] = ..., schema_version: _Optional[int] = ..., text: _Optional[bytes] = ..., message: _Optional[bytes] = ..., at: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...
