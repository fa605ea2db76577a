"""Writes the content of a table as an Iceberg table, too: metadata beside the files, for DuckDB, Trino, Spark and others.

    channel=orders/uid=7/metadata/v12.metadata.json      of the version of the manifest; the highest number counts
    channel=orders/uid=7/metadata/12-list.avro           Iceberg's manifest list, and its manifest of the files that no chunk has
    channel=orders/uid=7/metadata/12-files.avro
    channel=orders/uid=7/metadata/12-deletes.avro        while files have rows that were deleted: their positions, and a manifest
    channel=orders/uid=7/metadata/12-deletes.parquet
    channel=orders/uid=7/_files.….avro                   Iceberg's manifest of a chunk

Promises: it comes behind each commit, and before a file goes that the commit has left out. So after a crash it may lag, until the
next commit, but lists no file that is gone, and no message twice. Expired rows go when their file is written again.
"""

import io
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyiceberg.conversions import to_bytes
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from stan_lake.columns import SCHEMA
from stan_lake.errors import naming
from stan_lake.manifest import Chunk, DataFile, Run, TableManifest, within
from stan_lake.places import ENTRANCE, METADATA, chunk_manifest, objects_of
from stan_lake.position_deletes import DeletesWriter, position_deletes, positions
from stan_lake.store import Store

_FORMAT: Final = 2
_SCHEMA: Final = pyarrow_to_schema(SCHEMA)
_FIRST: Final = 1
"""Snapshot and sequence number of each file: position deletes are for files of their own number, too."""
_PARQUET: Final = {"file_format": FileFormat.PARQUET, "partition": Record()}
_LENGTH: Final = 1
"""The place of `ManifestFile.manifest_length`."""
_Deleted = tuple[DataFile, tuple[Run, ...]]
"""A file, and what is deleted of it."""


class IcebergTable:
    """The metadata of one table. *directory*: of the table, in the store."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store, self._directory = store, directory
        self._chunks: dict[str, ManifestFile] = {}  # by names
        self._deleted: dict[_Deleted, list[int]] = {}  # positions

    def publish(self, manifest: TableManifest) -> None:
        """Write the metadata of a manifest that was committed. Raises LakeError, OSError."""
        deleted, deletes, files, listed, entrance = objects_of(manifest.version)
        chunks = {chunk.name: self._chunks.get(chunk.name) or self._chunk(chunk) for chunk in manifest.chunks}
        self._chunks = chunks
        manifests = list(chunks.values())
        if manifest.alone:
            made, data = self._data_manifest(files, manifest.alone)
            self._put(files, data)
            manifests.append(made)
        rows = self._deleted_rows(manifest)
        if rows:
            number, data = position_deletes(rows)
            self._put(deleted, data)
            made, data = self._deletes_manifest(deletes, deleted, number, len(data))
            self._put(deletes, data)
            manifests.append(made)
        self._put(listed, self._list(listed, manifest.version, manifests))
        self._put(entrance, self._metadata(manifest, listed))

    def forget_places(self, manifest: TableManifest) -> None:
        """Remove the manifests of chunks if the lake was moved: they have its paths, and the next `publish` writes them again."""
        names = self._store.children(f"{self._directory}/{METADATA}").objects
        newest = max(filter(None, map(ENTRANCE.fullmatch, names)), key=lambda match: int(match[1]), default=None)
        if newest:
            place = json.dumps(self._location("").rstrip("/"), ensure_ascii=False).encode()
            if place not in self._store.get(f"{self._directory}/{METADATA}/{newest[0]}"):
                for chunk in manifest.chunks:
                    self._store.delete(f"{self._directory}/{chunk_manifest(chunk.name)}")

    def _chunk(self, chunk: Chunk) -> ManifestFile:
        """Write Iceberg's manifest of a chunk, if none is there."""
        name = chunk_manifest(chunk.name)
        made, data = self._data_manifest(name, chunk.files)
        if not self._put(name, data):
            made[_LENGTH] = len(self._store.get(f"{self._directory}/{name}"))
        return made

    def _deleted_rows(self, manifest: TableManifest) -> dict[str, list[int]]:
        """Return the positions of deleted rows, by the locations of their files."""
        known = self._deleted
        self._deleted = {}
        rows = {}
        for file in manifest.files if manifest.deleted else ():
            runs = within(manifest.deleted, file.first, file.last)
            if runs:
                key = file, tuple(runs)
                location = self._location(file.name)
                with naming(location):
                    opened = self._store.opened(f"{self._directory}/{file.name}")
                    self._deleted[key] = known[key] if key in known else positions(opened, runs)
                rows[location] = self._deleted[key]
        return {path: places for path, places in rows.items() if places}

    def _data_manifest(self, name: str, files: Sequence[DataFile]) -> tuple[ManifestFile, bytes]:
        out = _Bytes(self._location(name))
        writer = write_manifest(_FORMAT, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, out, _FIRST, "deflate")
        return _written(writer, map(self._entry, files)), out.data

    def _deletes_manifest(self, name: str, deletes: str, rows: int, size: int) -> tuple[ManifestFile, bytes]:
        out = _Bytes(self._location(name))
        writer = DeletesWriter(UNPARTITIONED_PARTITION_SPEC, _SCHEMA, out, _FIRST, "deflate")
        content = DataFileContent.POSITION_DELETES
        file = IcebergFile.from_args(
            content=content, file_path=self._location(deletes), record_count=rows, file_size_in_bytes=size, **_PARQUET
        )
        return _written(writer, [file]), out.data

    def _entry(self, file: DataFile) -> IcebergFile:
        lower = {"sequence": file.first, "timestamp": file.first_time_ns // 1000}
        upper = {"sequence": file.last, "timestamp": file.last_time_ns // 1000}
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._location(file.name),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            lower_bounds=_bounds(lower),
            upper_bounds=_bounds(upper),
            **_PARQUET,
        )

    def _list(self, name: str, version: int, manifests: list[ManifestFile]) -> bytes:
        out = _Bytes(self._location(name))
        with write_manifest_list(_FORMAT, out, version, None, version, "deflate") as writer:
            writer.add_manifests(manifests)
        return out.data

    def _metadata(self, manifest: TableManifest, listed: str) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        snapshot = Snapshot(
            snapshot_id=manifest.version,
            sequence_number=manifest.version,
            timestamp_ms=now_ms,
            manifest_list=self._location(listed),
            summary=Summary(Operation.OVERWRITE),
            schema_id=_SCHEMA.schema_id,
        )
        metadata = TableMetadataV2(
            location=self._location("").rstrip("/"),
            table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, self._location("")),
            last_updated_ms=now_ms,
            last_sequence_number=manifest.version,
            last_column_id=_SCHEMA.highest_field_id,
            schemas=[_SCHEMA],
            current_schema_id=_SCHEMA.schema_id,
            partition_specs=[UNPARTITIONED_PARTITION_SPEC],
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
            snapshots=[snapshot],
            current_snapshot_id=manifest.version,
            refs={"main": SnapshotRef(snapshot_id=manifest.version, snapshot_ref_type="branch")},
        )
        text: str = metadata.model_dump_json()
        return text.encode()

    def _location(self, name: str) -> str:
        return self._store.location(f"{self._directory}/{name}")

    def _put(self, name: str, data: bytes) -> bool:
        return self._store.put_new(f"{self._directory}/{name}", data)


def _written(writer: ManifestWriter, files: Iterable[IcebergFile]) -> ManifestFile:
    """Write a manifest of *files*."""
    with writer:
        for file in files:
            writer.existing(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=_FIRST,
                    sequence_number=_FIRST,
                    file_sequence_number=_FIRST,
                    data_file=file,
                )
            )
    made = writer.to_manifest_file()
    made.sequence_number, made.min_sequence_number = _FIRST, _FIRST
    return made


def _bounds(values: dict[str, int]) -> dict[int, bytes]:
    fields = ((_SCHEMA.find_field(name), value) for name, value in values.items())
    return {field.field_id: to_bytes(field.field_type, value) for field, value in fields}


class _Bytes(OutputFile):  # type: ignore[misc,unused-ignore]
    """An object in memory that pyiceberg writes."""

    data = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        whole = self

        class Written(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    whole.data = self.getvalue()
                super().close()

        return Written()
