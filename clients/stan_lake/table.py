"""A table of the lake: the places of its files, and commits, which make written files visible.

    channel=orders/uid=7/00000000000000000001-00000000000000100000.3.12.parquet     first, last, epoch, version
    channel=orders/uid=7/_files.00000000000000000001-00000000000001000000.3.12.json    a chunk of the manifest, named alike
    channel=orders/uid=7/_manifest/00000000000000000012.json                        the version
    channel=orders/uid=7/metadata/v12.metadata.json                                 the same for readers of Iceberg

Promises: a commit is the creation of the next version's manifest, which succeeds for one writer only; so readers see each version
whole, and of two tierers the one that has not taken the table over last fails. A file that a crash has left without a commit is
listed by no manifest, and the next tierer removes it. Readers see the files of the newest manifest. Behind each commit, before
anything goes that it has left out, the metadata for readers of Iceberg is written.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from stan_lake.chunks import CHUNK_FILES, sealed
from stan_lake.errors import LakeError, TakenOverError
from stan_lake.manifest import Chunk, DataFile, Replaced, TableManifest, from_json
from stan_lake.places import METADATA, chunk_manifest, objects_of
from stan_lake.store import Store

if TYPE_CHECKING:
    from stan_lake.iceberg import IcebergTable

MANIFESTS: Final = "_manifest"
VERSIONS_KEPT: Final = 12
"""Older manifests are removed, with their metadata of Iceberg; a reader that has read one does not need it again."""
ATTEMPTS: Final = 5
"""Attempts of a reader whose manifest was removed because of many commits meanwhile."""
REPLACED_KEPT_S: Final = 3600
"""Seconds that replaced files stay, for queries that were planned earlier."""
NAME_MAX: Final = 200
"""Longest encoded name of a channel in a path."""

_VERSION = re.compile(r"(\d{20})\.json")
_FILE = re.compile(r"\d{20}-\d{20}\.(\d+)\.\d+\.(?:parquet|json|avro)")
_PUBLISHED = re.compile(r"(\d+)-\w+\.\w+|v(\d+)\.metadata\.json")
_CUT = re.compile(r".+~[0-9a-f]{64}")
_CHANNEL, _UID = "channel=", "uid="


def directory_of(channel: str) -> str:
    """Return the directory of a channel's tables. Other characters than letters, digits and `.-_~` are encoded as in URLs; a very
    long name is cut, and gets its hash."""
    raw = channel.encode("utf-8", "surrogateescape")
    name = quote_from_bytes(raw, safe="")
    if len(name) > NAME_MAX:
        name = f"{name[: NAME_MAX // 2].rstrip('%')}~{hashlib.sha256(raw).hexdigest()}"
    return f"{_CHANNEL}{name}"


def channels(store: Store) -> list[str]:
    """Return the channels that a lake has tables of, sorted."""
    names = []
    for name in store.children("").directories:
        if not name.startswith(_CHANNEL):
            continue
        channel = unquote_to_bytes(name.removeprefix(_CHANNEL)).decode("utf-8", "surrogateescape")
        if _CUT.fullmatch(name):  # the whole name is in the manifests
            channel = next((one.channel for uid in _uids(store, name) if (one := _newest(store, name, uid))), "")
        if channel:
            names.append(channel)
    return sorted(names)


def incarnations(store: Store, channel: str) -> list[int]:
    """Return the uids of a channel's tables, the newest at the end."""
    return _uids(store, directory_of(channel))


def _uids(store: Store, directory: str) -> list[int]:
    names = (name.removeprefix(_UID) for name in store.children(directory).directories if name.startswith(_UID))
    return sorted(int(name) for name in names if name.isdecimal())


def _newest(store: Store, directory: str, uid: int, known: TableManifest | None = None) -> TableManifest | None:
    table = f"{directory}/{_UID}{uid}"
    tables = f"{table}/{MANIFESTS}"
    chunks = {chunk.name: chunk for chunk in known.chunks} if known else {}

    def chunk(name: str) -> Chunk | bytes:
        return chunks.get(name) or store.get(f"{table}/{name}")

    missing = ""
    for _ in range(ATTEMPTS):
        versions = _versions(store, tables)
        if not versions:
            return None
        path = f"{tables}/{versions[-1]:020d}.json"
        try:
            manifest = from_json(store.get(path), chunk)
        except FileNotFoundError as error:  # commits since then have removed it, or a chunk of it
            missing = str(error)
            continue
        except LakeError as error:
            raise LakeError(f"{store.location(path)}: {error}") from None
        if (manifest.version, manifest.uid) != (versions[-1], uid):
            raise LakeError(f"{store.location(path)}: is version {manifest.version} of the table of uid {manifest.uid}")
        return manifest
    raise LakeError(f"{store.location(tables)}: changes faster than it can be read, or is damaged: {missing}")


def _versions(store: Store, directory: str) -> list[int]:
    names = map(_VERSION.fullmatch, store.children(directory).objects)
    return [int(name[1]) for name in names if name]


class LakeTable:
    """The table of one incarnation of a channel. Methods raise OSError or LakeError where the store cannot be reached."""

    def __init__(self, store: Store, channel: str, uid: int, *, chunk_files: int = CHUNK_FILES) -> None:
        self.store = store
        self.channel, self.uid = channel, uid
        self._chunk_files = chunk_files
        self._iceberg: IcebergTable | None = None
        self._directory = directory_of(channel)

    def path(self, name: str) -> str:
        """Return the path of a file of the table."""
        return f"{self._directory}/{_UID}{self.uid}/{name}"

    def manifest(self, known: TableManifest | None = None) -> TableManifest:
        """Return the newest manifest; version 0 if nothing was ever committed. *known*: an earlier one, whose chunks are not
        read again. Raises LakeError: it is damaged, or that of another channel."""
        newest = _newest(self.store, self._directory, self.uid, known)
        if newest is None:
            return TableManifest(channel=self.channel, uid=self.uid)
        if newest.channel != self.channel:
            raise LakeError(f"{self.store.location(self.path(''))}: is the table of channel {newest.channel!r}")
        return newest

    def take_over(self, cluster: str = "", known: TableManifest | None = None) -> TableManifest:
        """Become the writer of the table, and remove uncommitted files of earlier writers. A lake that was moved has its place in
        Iceberg's metadata from then on. *cluster*: of the channel from now on, "": as before; *known* as for `manifest`.
        Raises TakenOverError."""
        before = self.manifest(known)
        cluster = cluster or before.cluster
        self._published().forget_places(before)
        mine = self.commit(replace(before, epoch=before.epoch + 1, released=False, cluster=cluster))
        self.clean(mine)
        return mine

    def release(self, manifest: TableManifest) -> None:
        """Let the tierer before this writer go on. *manifest*: the newest one."""
        self.commit(replace(manifest, released=True))

    def file_name(self, manifest: TableManifest, first: int, last: int) -> str:
        """Return the name of a new file for the manifest after this one; no two files get the same."""
        return f"{first:020d}-{last:020d}.{manifest.epoch}.{manifest.version + 1}.parquet"

    def write(self, name: str, data: bytes) -> None:
        """Write a file; readers see it from the commit on. One that a crash has left is as good if it has the same bytes."""
        if not self.store.put_new(self.path(name), data) and self.store.get(self.path(name)) != data:
            raise TakenOverError(f"{self.store.location(self.path(name))} is there already")

    def commit(self, changed: TableManifest, now_s: int = 0) -> TableManifest:
        """Make a changed manifest the newest one; returns it as it is stored.

        Args:
            changed: the newest one, with changes.
            now_s: Unix seconds, from which on replaced chunks stay for a while; 0: they need not.

        Raises:
            TakenOverError: there is a newer manifest.
        """
        chunks = self._sealed(changed)
        gone = sorted({chunk.name for chunk in changed.chunks} - {chunk.name for chunk in chunks})
        replaced = [Replaced(name=name, at_s=now_s) for chunk in gone for name in (chunk, chunk_manifest(chunk))]
        version = changed.version + 1
        new = replace(changed, version=version, chunks=chunks, replaced=(*changed.replaced, *replaced))
        path = self.path(f"{MANIFESTS}/{new.version:020d}.json")
        if not self.store.put_new(path, new.to_json()):
            raise TakenOverError(f"{self.store.location(path)} is there already: another tierer writes to this table")
        if (
            _versions(self.store, self.path(MANIFESTS))[-1] > new.version
        ):  # that of another one was there, and is removed already
            self.store.delete(path)
            raise TakenOverError(f"{self.store.location(path)} is old: another tierer writes to this table")
        self._published().publish(new)
        old = new.version - VERSIONS_KEPT
        if old > 0:
            for name in (f"{MANIFESTS}/{old:020d}.json", *reversed(objects_of(old))):
                self.store.delete(self.path(name))
        return new

    def _published(self) -> "IcebergTable":
        """Return the metadata for readers of Iceberg; it is brought up to date before anything goes that they name."""
        if self._iceberg is None:
            from stan_lake.iceberg import IcebergTable  # noqa: PLC0415 - takes long, and readers do without it

            self._iceberg = IcebergTable(self.store, self.path("").rstrip("/"))
        return self._iceberg

    def _sealed(self, changed: TableManifest) -> tuple[Chunk, ...]:
        """Return the chunks of a manifest that is about to be committed; new ones are written."""

        def name(files: tuple[DataFile, ...]) -> str:
            return f"_files.{files[0].first:020d}-{files[-1].last:020d}.{changed.epoch}.{changed.version + 1}.json"

        chunks = sealed(changed.files, changed.chunks, name, self._chunk_files)
        stored = {chunk.name for chunk in changed.chunks}
        for chunk in chunks:
            if chunk.name not in stored:
                self.write(chunk.name, chunk.to_json())
        return chunks

    def clean(self, manifest: TableManifest) -> list[str]:
        """Remove uncommitted files of earlier tierers, which can commit nothing any more. Returns their names."""
        files = {file.name for file in manifest.files} | {file.name for file in manifest.replaced}
        chunks = {chunk.name for chunk in manifest.chunks}
        listed = files | chunks | set(map(chunk_manifest, chunks))
        gone = [name for name in self._names() if name not in listed and self._is_before(name, manifest.epoch)]
        for name in gone:
            self.store.delete(self.path(name))
        for version in _versions(self.store, self.path(MANIFESTS)):
            if version <= manifest.version - VERSIONS_KEPT:
                self.store.delete(self.path(f"{MANIFESTS}/{version:020d}.json"))
        for name in self.store.children(self.path(METADATA)).objects:
            published = _PUBLISHED.fullmatch(name)
            if published and int(published[1] or published[2]) <= manifest.version - VERSIONS_KEPT:
                self.store.delete(self.path(f"{METADATA}/{name}"))
        return gone

    def _names(self) -> Iterator[str]:
        yield from self.store.children(self.path("").rstrip("/")).objects
        for directory, whole in ((MANIFESTS, _VERSION), (METADATA, _PUBLISHED)):
            inside = self.store.children(self.path(directory)).objects
            yield from (f"{directory}/{name}" for name in inside if not whole.fullmatch(name))

    def _is_before(self, name: str, epoch: int) -> bool:
        """Return True for a file of an earlier tierer, and for the remains of a write on a local disk after a crash."""
        match = _FILE.search(name.rpartition("/")[2])
        return int(match[1]) < epoch if match else name.rpartition("/")[2].startswith(".")

    def drop_replaced(self, manifest: TableManifest, now_s: int, kept_s: int = REPLACED_KEPT_S) -> TableManifest:
        """Remove files and chunks that were replaced long ago; returns the manifest without them, committed if there were any."""
        recent: tuple[Replaced, ...] = tuple(file for file in manifest.replaced if file.at_s > now_s - kept_s)
        if len(recent) == len(manifest.replaced):
            return manifest
        new = self.commit(replace(manifest, replaced=recent))
        for file in set(manifest.replaced) - set(recent):
            self.store.delete(self.path(file.name))
        return new

    def remove(self) -> None:
        """Remove a table without files: its manifests, the newest one last."""
        for name in self.store.children(self.path(METADATA)).objects:
            self.store.delete(self.path(f"{METADATA}/{name}"))
        for version in _versions(self.store, self.path(MANIFESTS)):
            self.store.delete(self.path(f"{MANIFESTS}/{version:020d}.json"))
        for directory in (self.path(METADATA), self.path(MANIFESTS), self.path("").rstrip("/"), self._directory):
            self.store.prune(directory)
