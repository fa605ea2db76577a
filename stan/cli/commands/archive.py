"""The files of a backup, written by `stan backup` and read by `stan restore`.

    backup.json            the index, written last: a directory without it is no backup
    000001.messages        blocks of one channel's messages, in order
    000001.positions       its durables and queue groups, one block
    000001.delayed         blocks of its messages that wait for a time of their own, by id; if there are any
    000001.stream          blocks with its stream of JetStream and the consumers of that; if it has one

A block is magic, length and CRC-32 of its content, which is a FetchResponse, a SubscriptionsResponse, a ReadStreamResponse or
a ReadDelayedResponse: the last one of these has in `ids` the messages that came into their channel during the backup, and
are not put back as delayed. Promises: a backup is complete or has no backup.json; damage is reported by file and
offset. Files are read and written block by block.
"""

import base64
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from struct import Struct
from typing import Any, Final, get_origin

from stan_protocol.admin_types import (
    Compatibility,
    CursorStatus,
    DelayedMessage,
    DeliveryPolicy,
    PolicyStatus,
    ReadStreamResponse,
    SchemaKind,
    SchemaStatus,
)
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.proto.admin_pb2 import ReadDelayedResponse, SubscriptionsResponse
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.proto.wire_pb2 import MsgProto
from stan_protocol.records import message_of
from stan_protocol.scalars import SECOND, MiB

from stan.policies import given_options

FORMAT: Final = 1
INDEX: Final = "backup.json"
MAGIC: Final = b"SBK1"
BLOCK_BYTES_MAX: Final = 128 * MiB
"""Larger than any payload of NATS."""
_BLOCK = Struct("<4sII")
_ROW = Struct("<I")
_EXPIRES_TAG: Final = b"\x90\x01"
"""Of MsgProto.expires_at: messages without these bytes do not expire."""


class ArchiveError(Exception):
    """The directory is no backup, or is damaged: names the file, and the offset in it."""


@dataclass(frozen=True, slots=True)
class SavedChannel:
    """A channel of a backup."""

    name: str  # UTF-8, other bytes as surrogates
    file: str  # begin of the names of its files
    group: int
    first_sequence: int  # oldest message; last_sequence + 1 if there is none
    last_sequence: int
    messages: int
    positions: int
    limits: dict[str, int]  # that were edited
    delayed: int = 0  # messages that wait for a time of their own
    stream: bool = False  # it is the channel of a stream
    adopted: bool = False  # and was there before that
    consumers: int = 0  # of the stream


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """A policy of delivery that an operator had set while the cluster ran."""

    pattern: str
    name: str  # of a durable or queue group; "": all
    options: dict[str, Any]  # its settings, as stan.policies.options_of gives them


@dataclass(frozen=True, slots=True)
class SavedSchema:
    """A version of the schema of a pattern of channels."""

    pattern: str
    kind: int
    compatibility: int
    version: int
    text: str  # base64
    message: str  # of protobuf


@dataclass(slots=True)
class BackupIndex:
    """The content of backup.json."""

    cluster_id: str
    backup: str  # a name that no other backup has
    made: str  # ISO 8601
    product: str
    channels: list[SavedChannel] = field(default_factory=list)
    policies: list[SavedPolicy] = field(default_factory=list)
    schemas: list[SavedSchema] = field(default_factory=list)  # by pattern and version
    format: int = FORMAT


class Writer:
    """A file of blocks that is being made. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")

    def write(self, content: bytes) -> int:
        """Add a block; returns its size in the file."""
        self._file.write(_BLOCK.pack(MAGIC, len(content), zlib.crc32(content)))
        self._file.write(content)
        return _BLOCK.size + len(content)

    def close(self) -> None:
        """Close the file, with everything on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def blocks(path: Path) -> Iterator[bytes]:
    """The blocks of a file. Raises ArchiveError."""
    try:
        with path.open("rb") as file:
            at = 0
            while head := file.read(_BLOCK.size):
                if len(head) < _BLOCK.size:
                    raise ArchiveError(f"{path}: offset {at}: the file ends within a block")
                magic, length, crc = _BLOCK.unpack(head)
                if magic != MAGIC or length > BLOCK_BYTES_MAX:
                    raise ArchiveError(f"{path}: offset {at}: no block begins here")
                content = file.read(length)
                if len(content) < length:
                    raise ArchiveError(f"{path}: offset {at}: the file ends within a block")
                if zlib.crc32(content) != crc:
                    raise ArchiveError(f"{path}: offset {at}: wrong CRC")
                yield content
                at += _BLOCK.size + length
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror or error}") from None


def saved_messages(directory: Path, channel: SavedChannel) -> Iterator[FetchResponse]:
    """The messages of a channel, as answers to fetch. Raises ArchiveError: damaged, or not as many as there were."""
    path = directory / f"{channel.file}.messages"
    count = 0
    for content in blocks(path):
        answer = FetchResponse.FromString(content)
        count += sum(run.count for run in answer.runs)
        yield answer
    if count != channel.messages:
        raise ArchiveError(f"{path}: {count} messages, {channel.messages} were written")


def expiries(answer: FetchResponse) -> list[int]:
    """Return the expiry of each of these messages, in Unix seconds, 0: none; empty if none expires."""
    records, at = answer.records, 0
    if _EXPIRES_TAG not in records:
        return []
    times: list[int] = []
    while at < len(records):
        end = at + _ROW.size + _ROW.unpack_from(records, at)[0]
        record = records[at + _ROW.size : end]
        expires_at = MsgProto.FromString(record).expires_at if _EXPIRES_TAG in record else 0
        times.append(-(-expires_at // SECOND))
        at = end
    return times if any(times) else []


def saved_delayed(directory: Path, channel: SavedChannel) -> Iterator[tuple[list[DelayedMessage], list[bytes]]]:
    """The messages of a channel that wait for a time of their own, by id, block by block, and the row of each. Raises
    ArchiveError: damaged, or not as many as there were."""
    if not channel.delayed:
        return
    path, count = directory / f"{channel.file}.delayed", 0
    gone = {one for content in blocks(path) for one in ReadDelayedResponse.FromString(content).ids}
    for content in blocks(path):
        answer, at = ReadDelayedResponse.FromString(content), 0
        messages: list[DelayedMessage] = []
        rows: list[bytes] = []
        for message in answer.messages:
            end = at + _ROW.size + _ROW.unpack_from(answer.rows, at)[0]
            if message.id not in gone:
                messages.append(DelayedMessage.from_pb(message))
                rows.append(answer.rows[at:end])
            at = end
        count += len(messages)
        if messages:
            yield messages, rows
    if count != channel.delayed:
        raise ArchiveError(f"{path}: {count} messages, {channel.delayed} were written")


def saved_positions(directory: Path, channel: SavedChannel) -> list[CursorStatus]:
    """The durables and queue groups of a channel. Raises ArchiveError."""
    path = directory / f"{channel.file}.positions"
    answers = map(SubscriptionsResponse.FromString, blocks(path))
    positions = [CursorStatus.from_pb(one) for answer in answers for one in answer.cursors]
    if len(positions) != channel.positions:
        raise ArchiveError(f"{path}: {len(positions)} positions, {channel.positions} were written")
    return positions


def saved_stream(directory: Path, channel: SavedChannel) -> ReadStreamResponse | None:
    """The stream of a channel and its consumers; None if it has none. Raises ArchiveError: damaged, or not as many as there
    were."""
    if not channel.stream:
        return None
    path = directory / f"{channel.file}.stream"
    pages = [ReadStreamResponse.from_pb(pb.ReadStreamResponse.FromString(content)) for content in blocks(path)]
    consumers = tuple(one for page in pages for one in page.consumers)
    if not pages or len(consumers) != channel.consumers:
        raise ArchiveError(f"{path}: {len(consumers)} consumers, {channel.consumers} were written")
    return ReadStreamResponse(stream=pages[0].stream, consumers=consumers)


def saved_policy(status: PolicyStatus) -> SavedPolicy:
    """Return a policy in its saved form; the inverse of `policy_of`."""
    return SavedPolicy(status.pattern, status.name, given_options(status.policy))


def policy_of(saved: SavedPolicy) -> DeliveryPolicy:
    """A saved policy. Raises KeyError, TypeError, ValueError: it is none."""
    return DeliveryPolicy.from_pb(message_of(pb.DeliveryPolicy, **saved.options))


def saved_schema(status: SchemaStatus) -> SavedSchema:
    """Return a version of a schema in its saved form; the inverse of `schema_of`."""
    text = base64.b64encode(status.text).decode()
    version = status.schema_version
    return SavedSchema(status.pattern, status.kind, status.compatibility, version, text, status.message)


def schema_of(saved: SavedSchema) -> SchemaStatus:
    """A saved version. Raises TypeError, ValueError: it is none."""
    return SchemaStatus(
        pattern=saved.pattern,
        kind=SchemaKind(saved.kind),
        compatibility=Compatibility(saved.compatibility),
        schema_version=saved.version,
        text=base64.b64decode(saved.text, validate=True),
        message=saved.message,
    )


def write_index(directory: Path, index: BackupIndex) -> None:
    """The backup is whole. Raises OSError."""
    path, new = directory / INDEX, directory / f"{INDEX}.new"
    with new.open("w", encoding="utf-8") as file:
        json.dump(asdict(index), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_index(directory: Path) -> BackupIndex:
    """Return the index of a backup. Raises ArchiveError."""
    path = directory / INDEX
    try:
        content: Any = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ArchiveError(f"{path}: format {content['format']}, this program reads format {FORMAT}")
        channels = [SavedChannel(**channel) for channel in content.pop("channels")]
        policies = [SavedPolicy(**policy) for policy in content.pop("policies")]
        schemas = [SavedSchema(**schema) for schema in content.pop("schemas")]
        for policy in policies:
            policy_of(policy)
        for schema in schemas:
            schema_of(schema)
        index = BackupIndex(**content, channels=channels, policies=policies, schemas=schemas)
        for channel in channels:
            for one in fields(channel):
                if type(getattr(channel, one.name)) is not (get_origin(one.type) or one.type):
                    raise TypeError(f"{one.name} of a channel is {getattr(channel, one.name)!r}")
    except FileNotFoundError:
        raise ArchiveError(f"{directory} is no backup, or one that was not finished: {INDEX} is missing") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(f"{path}: {error}") from None
    if any("/" in channel.file or not channel.file for channel in channels):
        raise ArchiveError(f"{path}: a file outside of the backup is named")
    return index
