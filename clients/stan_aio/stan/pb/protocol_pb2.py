"""Protobuf messages of the STAN protocol with the field names of the original, for programs that make or read them by themselves.

Made when this is imported, in a pool of their own: nothing that a program registers, under whichever name, is in their way.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as describe
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE: Final = "pb"
_POSITION: Final = "StartPosition"
_TYPES: Final = {
    "string": describe.FieldDescriptorProto.TYPE_STRING,
    "bytes": describe.FieldDescriptorProto.TYPE_BYTES,
    "bool": describe.FieldDescriptorProto.TYPE_BOOL,
    "int32": describe.FieldDescriptorProto.TYPE_INT32,
    "int64": describe.FieldDescriptorProto.TYPE_INT64,
    "uint32": describe.FieldDescriptorProto.TYPE_UINT32,
    "uint64": describe.FieldDescriptorProto.TYPE_UINT64,
    _POSITION: describe.FieldDescriptorProto.TYPE_ENUM,
}

NewOnly, LastReceived, TimeDeltaStart, SequenceStart, First = range(5)

_POSITIONS: Final = ("NewOnly", "LastReceived", "TimeDeltaStart", "SequenceStart", "First")

_MESSAGES: Final = {
    "PubMsg": "1 string clientID, 2 string guid, 3 string subject, 4 string reply, 5 bytes data, 6 bytes connID, "
    "10 bytes sha256",
    "PubAck": "1 string guid, 2 string error",
    "MsgProto": "1 uint64 sequence, 2 string subject, 3 string reply, 4 bytes data, 5 int64 timestamp, 6 bool redelivered, "
    "7 uint32 redeliveryCount, 10 uint32 CRC32",
    "Ack": "1 string subject, 2 uint64 sequence",
    "ConnectRequest": "1 string clientID, 2 string heartbeatInbox, 3 int32 protocol, 4 bytes connID, 5 int32 pingInterval, "
    "6 int32 pingMaxOut",
    "ConnectResponse": "1 string pubPrefix, 2 string subRequests, 3 string unsubRequests, 4 string closeRequests, "
    "5 string error, 6 string subCloseRequests, 7 string pingRequests, 8 int32 pingInterval, 9 int32 pingMaxOut, "
    "10 int32 protocol, 100 string publicKey",
    "Ping": "1 bytes connID",
    "PingResponse": "1 string error",
    "SubscriptionRequest": "1 string clientID, 2 string subject, 3 string qGroup, 4 string inbox, 5 int32 maxInFlight, "
    "6 int32 ackWaitInSecs, 7 string durableName, 10 StartPosition startPosition, 11 uint64 startSequence, "
    "12 int64 startTimeDelta",
    "SubscriptionResponse": "2 string ackInbox, 3 string error",
    "UnsubscribeRequest": "1 string clientID, 2 string subject, 3 string inbox, 4 string durableName",
    "CloseRequest": "1 string clientID",
    "CloseResponse": "1 string error",
}
"""Each message's fields: number, type, name (STAN-SPEC 2.1)."""


def _fields(text: str) -> Iterator[describe.FieldDescriptorProto]:
    for line in text.split(","):
        number, kind, name = line.split()
        yield describe.FieldDescriptorProto(
            name=name,
            number=int(number),
            type=_TYPES[kind],
            type_name=f".{_PACKAGE}.{kind}" if kind == _POSITION else None,
            label=describe.FieldDescriptorProto.LABEL_OPTIONAL,
        )


def _classes() -> dict[str, Any]:
    positions = [
        describe.EnumValueDescriptorProto(name=name, number=number) for number, name in enumerate(_POSITIONS)
    ]
    file = describe.FileDescriptorProto(
        name="stan/pb/protocol.proto",
        package=_PACKAGE,
        syntax="proto3",
        message_type=[describe.DescriptorProto(name=name, field=_fields(text)) for name, text in _MESSAGES.items()],
        enum_type=[describe.EnumDescriptorProto(name=_POSITION, value=positions)],
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_made = _classes()
PubMsg: Any = _made["PubMsg"]
PubAck: Any = _made["PubAck"]
MsgProto: Any = _made["MsgProto"]
Ack: Any = _made["Ack"]
ConnectRequest: Any = _made["ConnectRequest"]
ConnectResponse: Any = _made["ConnectResponse"]
Ping: Any = _made["Ping"]
PingResponse: Any = _made["PingResponse"]
SubscriptionRequest: Any = _made["SubscriptionRequest"]
SubscriptionResponse: Any = _made["SubscriptionResponse"]
UnsubscribeRequest: Any = _made["UnsubscribeRequest"]
CloseRequest: Any = _made["CloseRequest"]
CloseResponse: Any = _made["CloseResponse"]
