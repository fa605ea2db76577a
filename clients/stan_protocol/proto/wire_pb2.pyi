from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK: _ClassVar[Verdict]
    NAK: _ClassVar[Verdict]
    WORKING: _ClassVar[Verdict]
    REJECT: _ClassVar[Verdict]
ACK: Verdict
NAK: Verdict
WORKING: Verdict
REJECT: Verdict

class PubMsg(_message.Message):
    __slots__ = ("client_id", "guid", "subject", "reply", "data", "conn_id", "sha256", "headers", "key", "deliver_at", "ttl", "ack_level", "numbered")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GUID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONN_ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    ACK_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NUMBERED_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    guid: bytes
    subject: bytes
    reply: bytes
    data: bytes
    conn_id: bytes
    sha256: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    key: bytes
    deliver_at: int
    ttl: int
    ack_level: int
    numbered: bool
    def __init__(self, client_id: _Optional[bytes] = ..., guid: _Optional[bytes] = ..., subject: _Optional[bytes] = ..., reply: _Optional[bytes] = ..., data: _Optional[bytes] = ..., conn_id: _Optional[bytes] = ..., sha256: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., key: _Optional[bytes] = ..., deliver_at: _Optional[int] = ..., ttl: _Optional[int] = ..., ack_level: _Optional[int] = ..., numbered: bool = ...) -> None: ...

class PubAck(_message.Message):
    __slots__ = ("guid", "error", "sequence", "ack_level")
    GUID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACK_LEVEL_FIELD_NUMBER: _ClassVar[int]
    guid: bytes
    error: bytes
    sequence: int
    ack_level: int
    def __init__(self, guid: _Optional[bytes] = ..., error: _Optional[bytes] = ..., sequence: _Optional[int] = ..., ack_level: _Optional[int] = ...) -> None: ...

class MsgProto(_message.Message):
    __slots__ = ("sequence", "subject", "reply", "data", "timestamp", "redelivered", "redelivery_count", "crc32", "headers", "key", "expires_at", "by_broker")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    subject: bytes
    reply: bytes
    data: bytes
    timestamp: int
    redelivered: bool
    redelivery_count: int
    crc32: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    key: bytes
    expires_at: int
    by_broker: bool
    def __init__(self, sequence: _Optional[int] = ..., subject: _Optional[bytes] = ..., reply: _Optional[bytes] = ..., data: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., redelivered: bool = ..., redelivery_count: _Optional[int] = ..., crc32: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., key: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., by_broker: bool = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("subject", "sequence", "kind", "delay", "cumulative", "reason")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    subject: bytes
    sequence: int
    kind: Verdict
    delay: int
    cumulative: bool
    reason: bytes
    def __init__(self, subject: _Optional[bytes] = ..., sequence: _Optional[int] = ..., kind: _Optional[_Union[Verdict, str]] = ..., delay: _Optional[int] = ..., cumulative: bool = ..., reason: _Optional[bytes] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("client_id", "heartbeat_inbox", "protocol", "conn_id", "ping_interval", "ping_max_out")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INBOX_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CONN_ID_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PING_MAX_OUT_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    heartbeat_inbox: bytes
    protocol: int
    conn_id: bytes
    ping_interval: int
    ping_max_out: int
    def __init__(self, client_id: _Optional[bytes] = ..., heartbeat_inbox: _Optional[bytes] = ..., protocol: _Optional[int] = ..., conn_id: _Optional[bytes] = ..., ping_interval: _Optional[int] = ..., ping_max_out: _Optional[int] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("pub_prefix", "sub_requests", "unsub_requests", "close_requests", "error", "sub_close_requests", "ping_requests", "ping_interval", "ping_max_out", "protocol", "features", "epoch", "public_key")
    PUB_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUB_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UNSUB_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SUB_CLOSE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PING_MAX_OUT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    pub_prefix: bytes
    sub_requests: bytes
    unsub_requests: bytes
    close_requests: bytes
    error: bytes
    sub_close_requests: bytes
    ping_requests: bytes
    ping_interval: int
    ping_max_out: int
    protocol: int
    features: int
    epoch: int
    public_key: bytes
    def __init__(self, pub_prefix: _Optional[bytes] = ..., sub_requests: _Optional[bytes] = ..., unsub_requests: _Optional[bytes] = ..., close_requests: _Optional[bytes] = ..., error: _Optional[bytes] = ..., sub_close_requests: _Optional[bytes] = ..., ping_requests: _Optional[bytes] = ..., ping_interval: _Optional[int] = ..., ping_max_out: _Optional[int] = ..., protocol: _Optional[int] = ..., features: _Optional[int] = ..., epoch: _Optional[int] = ..., public_key: _Optional[bytes] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("conn_id",)
    CONN_ID_FIELD_NUMBER: _ClassVar[int]
    conn_id: bytes
    def __init__(self, conn_id: _Optional[bytes] = ...) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    def __init__(self, error: _Optional[bytes] = ...) -> None: ...

class SubscriptionRequest(_message.Message):
    __slots__ = ("client_id", "subject", "queue_group", "inbox", "max_in_flight", "ack_wait_s", "durable_name", "start_position", "start_sequence", "start_time_delta", "replica")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_GROUP_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_DELTA_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    subject: bytes
    queue_group: bytes
    inbox: bytes
    max_in_flight: int
    ack_wait_s: int
    durable_name: bytes
    start_position: int
    start_sequence: int
    start_time_delta: int
    replica: bytes
    def __init__(self, client_id: _Optional[bytes] = ..., subject: _Optional[bytes] = ..., queue_group: _Optional[bytes] = ..., inbox: _Optional[bytes] = ..., max_in_flight: _Optional[int] = ..., ack_wait_s: _Optional[int] = ..., durable_name: _Optional[bytes] = ..., start_position: _Optional[int] = ..., start_sequence: _Optional[int] = ..., start_time_delta: _Optional[int] = ..., replica: _Optional[bytes] = ...) -> None: ...

class SubscriptionResponse(_message.Message):
    __slots__ = ("ack_inbox", "error")
    ACK_INBOX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ack_inbox: bytes
    error: bytes
    def __init__(self, ack_inbox: _Optional[bytes] = ..., error: _Optional[bytes] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("client_id", "subject", "inbox", "durable_name")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    subject: bytes
    inbox: bytes
    durable_name: bytes
    def __init__(self, client_id: _Optional[bytes] = ..., subject: _Optional[bytes] = ..., inbox: _Optional[bytes] = ..., durable_name: _Optional[bytes] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    def __init__(self, client_id: _Optional[bytes] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    def __init__(self, error: _Optional[bytes] = ...) -> None: ...

class CtrlMsg(_message.Message):
    __slots__ = ("msg_type", "server_id", "data", "ref_id")
    MSG_TYPE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REF_ID_FIELD_NUMBER: _ClassVar[int]
    msg_type: int
    server_id: bytes
    data: bytes
    ref_id: bytes
    def __init__(self, msg_type: _Optional[int] = ..., server_id: _Optional[bytes] = ..., data: _Optional[bytes] = ..., ref_id: _Optional[bytes] = ...) -> None: ...
