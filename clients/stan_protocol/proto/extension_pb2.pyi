from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("channel", "from_sequence", "from_time", "newest", "newest_of_key", "last", "max_messages", "max_bytes", "compressed")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_OF_KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    from_sequence: int
    from_time: int
    newest: int
    newest_of_key: bytes
    last: int
    max_messages: int
    max_bytes: int
    compressed: bool
    def __init__(self, channel: _Optional[bytes] = ..., from_sequence: _Optional[int] = ..., from_time: _Optional[int] = ..., newest: _Optional[int] = ..., newest_of_key: _Optional[bytes] = ..., last: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., compressed: bool = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "uid", "first_sequence", "last_sequence", "next_sequence", "runs", "cluster", "lost_until", "timestamp_before", "last_timestamp", "records", "tombstones_until", "searched_from")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOST_UNTIL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_UNTIL_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_FROM_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    uid: int
    first_sequence: int
    last_sequence: int
    next_sequence: int
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    cluster: bytes
    lost_until: int
    timestamp_before: int
    last_timestamp: int
    records: bytes
    tombstones_until: int
    searched_from: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., next_sequence: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., cluster: _Optional[bytes] = ..., lost_until: _Optional[int] = ..., timestamp_before: _Optional[int] = ..., last_timestamp: _Optional[int] = ..., records: _Optional[bytes] = ..., tombstones_until: _Optional[int] = ..., searched_from: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("first_sequence", "count", "timestamp", "position", "compressed", "skipped", "rows")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    count: int
    timestamp: int
    position: int
    compressed: int
    skipped: int
    rows: int
    def __init__(self, first_sequence: _Optional[int] = ..., count: _Optional[int] = ..., timestamp: _Optional[int] = ..., position: _Optional[int] = ..., compressed: _Optional[int] = ..., skipped: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ("channels", "pattern", "after", "newer_than", "wait_ms")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NEWER_THAN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedScalarFieldContainer[bytes]
    pattern: bytes
    after: bytes
    newer_than: _containers.RepeatedCompositeFieldContainer[Position]
    wait_ms: int
    def __init__(self, channels: _Optional[_Iterable[bytes]] = ..., pattern: _Optional[bytes] = ..., after: _Optional[bytes] = ..., newer_than: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("channel", "sequence")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    sequence: int
    def __init__(self, channel: _Optional[bytes] = ..., sequence: _Optional[int] = ...) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "pool", "groups", "channels", "more", "message_bytes_max", "cluster")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    pool: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelInfo]
    more: bool
    message_bytes_max: int
    cluster: bytes
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., pool: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[_Union[ChannelInfo, _Mapping]]] = ..., more: bool = ..., message_bytes_max: _Optional[int] = ..., cluster: _Optional[bytes] = ...) -> None: ...

class ChannelInfo(_message.Message):
    __slots__ = ("name", "uid", "first_sequence", "last_sequence", "bytes", "first_timestamp", "last_timestamp", "group", "lost_until", "timestamp_at", "next_sequence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LOST_UNTIL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    uid: int
    first_sequence: int
    last_sequence: int
    bytes: int
    first_timestamp: int
    last_timestamp: int
    group: int
    lost_until: int
    timestamp_at: int
    next_sequence: int
    def __init__(self, name: _Optional[bytes] = ..., uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., bytes: _Optional[int] = ..., first_timestamp: _Optional[int] = ..., last_timestamp: _Optional[int] = ..., group: _Optional[int] = ..., lost_until: _Optional[int] = ..., timestamp_at: _Optional[int] = ..., next_sequence: _Optional[int] = ...) -> None: ...

class SeqAtTimeRequest(_message.Message):
    __slots__ = ("channel", "time")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    time: int
    def __init__(self, channel: _Optional[bytes] = ..., time: _Optional[int] = ...) -> None: ...

class SeqAtTimeResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "uid", "sequence")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    uid: int
    sequence: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., uid: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("channel", "count", "producer", "version", "ids", "rows", "compressed_rows")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_ROWS_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    count: int
    producer: bytes
    version: int
    ids: bytes
    rows: bytes
    compressed_rows: bytes
    def __init__(self, channel: _Optional[bytes] = ..., count: _Optional[int] = ..., producer: _Optional[bytes] = ..., version: _Optional[int] = ..., ids: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., compressed_rows: _Optional[bytes] = ...) -> None: ...

class BatchResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "first_sequence", "last_sequence", "duplicates")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    first_sequence: int
    last_sequence: int
    duplicates: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., duplicates: _Optional[int] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("app", "version", "txn", "part", "channel", "count", "rows", "more")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    txn: bytes
    part: int
    channel: bytes
    count: int
    rows: bytes
    more: _containers.RepeatedCompositeFieldContainer[StagedRows]
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., txn: _Optional[bytes] = ..., part: _Optional[int] = ..., channel: _Optional[bytes] = ..., count: _Optional[int] = ..., rows: _Optional[bytes] = ..., more: _Optional[_Iterable[_Union[StagedRows, _Mapping]]] = ...) -> None: ...

class StagedRows(_message.Message):
    __slots__ = ("channel", "part", "count", "rows")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    part: int
    count: int
    rows: bytes
    def __init__(self, channel: _Optional[bytes] = ..., part: _Optional[int] = ..., count: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "group", "elsewhere")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    group: int
    elsewhere: _containers.RepeatedCompositeFieldContainer[ElsewhereChannel]
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., group: _Optional[int] = ..., elsewhere: _Optional[_Iterable[_Union[ElsewhereChannel, _Mapping]]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("app", "version", "channel", "txns", "parts", "writer", "more")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TXNS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    channel: bytes
    txns: _containers.RepeatedScalarFieldContainer[bytes]
    parts: _containers.RepeatedScalarFieldContainer[int]
    writer: bytes
    more: _containers.RepeatedCompositeFieldContainer[ChannelTxns]
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., channel: _Optional[bytes] = ..., txns: _Optional[_Iterable[bytes]] = ..., parts: _Optional[_Iterable[int]] = ..., writer: _Optional[bytes] = ..., more: _Optional[_Iterable[_Union[ChannelTxns, _Mapping]]] = ...) -> None: ...

class ChannelTxns(_message.Message):
    __slots__ = ("channel", "parts")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    parts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, channel: _Optional[bytes] = ..., parts: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "already", "first_sequence", "last_sequence", "group", "more", "elsewhere")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    already: bool
    first_sequence: int
    last_sequence: int
    group: int
    more: _containers.RepeatedCompositeFieldContainer[CommittedChannel]
    elsewhere: _containers.RepeatedCompositeFieldContainer[ElsewhereChannel]
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., already: bool = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., group: _Optional[int] = ..., more: _Optional[_Iterable[_Union[CommittedChannel, _Mapping]]] = ..., elsewhere: _Optional[_Iterable[_Union[ElsewhereChannel, _Mapping]]] = ...) -> None: ...

class CommittedChannel(_message.Message):
    __slots__ = ("channel", "already", "first_sequence", "last_sequence")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    already: bool
    first_sequence: int
    last_sequence: int
    def __init__(self, channel: _Optional[bytes] = ..., already: bool = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class ElsewhereChannel(_message.Message):
    __slots__ = ("channel", "group")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    group: int
    def __init__(self, channel: _Optional[bytes] = ..., group: _Optional[int] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("channel", "txns")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TXNS_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    txns: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, channel: _Optional[bytes] = ..., txns: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("app", "version", "writer")
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    version: int
    writer: bytes
    def __init__(self, app: _Optional[bytes] = ..., version: _Optional[int] = ..., writer: _Optional[bytes] = ...) -> None: ...

class FinishResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ...) -> None: ...

class LastCommittedRequest(_message.Message):
    __slots__ = ("app", "writer", "version")
    APP_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    writer: bytes
    version: int
    def __init__(self, app: _Optional[bytes] = ..., writer: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class LastCommittedResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "known", "version")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    known: bool
    version: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., known: bool = ..., version: _Optional[int] = ...) -> None: ...

class CursorSetRequest(_message.Message):
    __slots__ = ("name", "channel", "sequence", "generation", "claim", "uid", "cluster", "read_timestamp", "taken")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    READ_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    channel: bytes
    sequence: int
    generation: int
    claim: bool
    uid: int
    cluster: bytes
    read_timestamp: int
    taken: int
    def __init__(self, name: _Optional[bytes] = ..., channel: _Optional[bytes] = ..., sequence: _Optional[int] = ..., generation: _Optional[int] = ..., claim: bool = ..., uid: _Optional[int] = ..., cluster: _Optional[bytes] = ..., read_timestamp: _Optional[int] = ..., taken: _Optional[int] = ...) -> None: ...

class CursorSetResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "sequence")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    sequence: int
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., sequence: _Optional[int] = ...) -> None: ...

class CursorsRequest(_message.Message):
    __slots__ = ("name", "after_name", "after_channel", "after_user")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_USER_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    after_name: bytes
    after_channel: bytes
    after_user: bytes
    def __init__(self, name: _Optional[bytes] = ..., after_name: _Optional[bytes] = ..., after_channel: _Optional[bytes] = ..., after_user: _Optional[bytes] = ...) -> None: ...

class CursorsResponse(_message.Message):
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
    cursors: _containers.RepeatedCompositeFieldContainer[NamedCursor]
    more: bool
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., pool: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., cursors: _Optional[_Iterable[_Union[NamedCursor, _Mapping]]] = ..., more: bool = ...) -> None: ...

class NamedCursor(_message.Message):
    __slots__ = ("name", "channel", "sequence", "last_sequence", "generation", "removals", "removed", "user")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    channel: bytes
    sequence: int
    last_sequence: int
    generation: int
    removals: int
    removed: _containers.RepeatedScalarFieldContainer[int]
    user: bytes
    def __init__(self, name: _Optional[bytes] = ..., channel: _Optional[bytes] = ..., sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., generation: _Optional[int] = ..., removals: _Optional[int] = ..., removed: _Optional[_Iterable[int]] = ..., user: _Optional[bytes] = ...) -> None: ...

class ConsumerGroupRequest(_message.Message):
    __slots__ = ("group", "member", "pattern", "lease_ms", "known", "released", "wait_ms", "leave", "name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    group: bytes
    member: bytes
    pattern: bytes
    lease_ms: int
    known: int
    released: _containers.RepeatedCompositeFieldContainer[OwnedChannel]
    wait_ms: int
    leave: bool
    name: bytes
    def __init__(self, group: _Optional[bytes] = ..., member: _Optional[bytes] = ..., pattern: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., known: _Optional[int] = ..., released: _Optional[_Iterable[_Union[OwnedChannel, _Mapping]]] = ..., wait_ms: _Optional[int] = ..., leave: bool = ..., name: _Optional[bytes] = ...) -> None: ...

class OwnedChannel(_message.Message):
    __slots__ = ("uid", "generation", "channel", "release")
    UID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    uid: int
    generation: int
    channel: bytes
    release: bool
    def __init__(self, uid: _Optional[int] = ..., generation: _Optional[int] = ..., channel: _Optional[bytes] = ..., release: bool = ...) -> None: ...

class ConsumerGroupResponse(_message.Message):
    __slots__ = ("error", "error_code", "retry", "assignment", "unchanged", "channels", "cluster")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    error_code: str
    retry: bool
    assignment: int
    unchanged: bool
    channels: _containers.RepeatedCompositeFieldContainer[OwnedChannel]
    cluster: bytes
    def __init__(self, error: _Optional[bytes] = ..., error_code: _Optional[str] = ..., retry: bool = ..., assignment: _Optional[int] = ..., unchanged: bool = ..., channels: _Optional[_Iterable[_Union[OwnedChannel, _Mapping]]] = ..., cluster: _Optional[bytes] = ...) -> None: ...
