from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("channel", "from_sequence", "from_time", "newest", "last", "max_messages", "max_bytes")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    channel: bytes
    from_sequence: int
    from_time: int
    newest: int
    last: int
    max_messages: int
    max_bytes: int
    def __init__(self, channel: _Optional[bytes] = ..., from_sequence: _Optional[int] = ..., from_time: _Optional[int] = ..., newest: _Optional[int] = ..., last: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("error", "retry", "uid", "first_sequence", "last_sequence", "next_sequence", "runs", "records")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    retry: bool
    uid: int
    first_sequence: int
    last_sequence: int
    next_sequence: int
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    records: bytes
    def __init__(self, error: _Optional[bytes] = ..., retry: bool = ..., uid: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., next_sequence: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., records: _Optional[bytes] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("first_sequence", "count", "timestamp", "position")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    count: int
    timestamp: int
    position: int
    def __init__(self, first_sequence: _Optional[int] = ..., count: _Optional[int] = ..., timestamp: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...
