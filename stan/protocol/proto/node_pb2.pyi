from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeHello(_message.Message):
    __slots__ = ("node", "instance", "started", "cluster_id", "identity", "raft_groups", "replicas", "voters", "fresh", "bootstrap", "replica", "draining", "led", "version", "established", "rival", "founders", "nodes_version", "held", "walking", "resting", "hashes", "level_known", "level", "epoch", "own_labels", "labels", "pool", "store", "listens")
    class FoundersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    RAFT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ESTABLISHED_FIELD_NUMBER: _ClassVar[int]
    RIVAL_FIELD_NUMBER: _ClassVar[int]
    FOUNDERS_FIELD_NUMBER: _ClassVar[int]
    NODES_VERSION_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    WALKING_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_KNOWN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWN_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    LISTENS_FIELD_NUMBER: _ClassVar[int]
    node: str
    instance: int
    started: int
    cluster_id: str
    identity: bytes
    raft_groups: int
    replicas: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    fresh: bool
    bootstrap: bool
    replica: bool
    draining: bool
    led: _containers.RepeatedScalarFieldContainer[int]
    version: str
    established: bool
    rival: int
    founders: _containers.ScalarMap[str, int]
    nodes_version: int
    held: _containers.RepeatedScalarFieldContainer[int]
    walking: _containers.RepeatedScalarFieldContainer[int]
    resting: _containers.RepeatedScalarFieldContainer[int]
    hashes: _containers.RepeatedCompositeFieldContainer[StateHash]
    level_known: int
    level: int
    epoch: int
    own_labels: NodeLabels
    labels: _containers.RepeatedCompositeFieldContainer[NodeLabels]
    pool: int
    store: bytes
    listens: bool
    def __init__(self, node: _Optional[str] = ..., instance: _Optional[int] = ..., started: _Optional[int] = ..., cluster_id: _Optional[str] = ..., identity: _Optional[bytes] = ..., raft_groups: _Optional[int] = ..., replicas: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., fresh: bool = ..., bootstrap: bool = ..., replica: bool = ..., draining: bool = ..., led: _Optional[_Iterable[int]] = ..., version: _Optional[str] = ..., established: bool = ..., rival: _Optional[int] = ..., founders: _Optional[_Mapping[str, int]] = ..., nodes_version: _Optional[int] = ..., held: _Optional[_Iterable[int]] = ..., walking: _Optional[_Iterable[int]] = ..., resting: _Optional[_Iterable[int]] = ..., hashes: _Optional[_Iterable[_Union[StateHash, _Mapping]]] = ..., level_known: _Optional[int] = ..., level: _Optional[int] = ..., epoch: _Optional[int] = ..., own_labels: _Optional[_Union[NodeLabels, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[NodeLabels, _Mapping]]] = ..., pool: _Optional[int] = ..., store: _Optional[bytes] = ..., listens: bool = ...) -> None: ...

class NodeLabels(_message.Message):
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

class StateHash(_message.Message):
    __slots__ = ("group", "index", "hash")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    group: int
    index: int
    hash: int
    def __init__(self, group: _Optional[int] = ..., index: _Optional[int] = ..., hash: _Optional[int] = ...) -> None: ...

class ServingReport(_message.Message):
    __slots__ = ("node", "group", "begun", "applied", "instance", "progress")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    group: int
    begun: int
    applied: int
    instance: int
    progress: bytes
    def __init__(self, node: _Optional[str] = ..., group: _Optional[int] = ..., begun: _Optional[int] = ..., applied: _Optional[int] = ..., instance: _Optional[int] = ..., progress: _Optional[bytes] = ...) -> None: ...

class ServingAnswer(_message.Message):
    __slots__ = ("granted", "taken")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    granted: bool
    taken: bool
    def __init__(self, granted: bool = ..., taken: bool = ...) -> None: ...
