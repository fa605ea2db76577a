"""A table of the lake: where its files lie, and how a commit makes what is written to them visible.

    channel=orders/uid=7/00000000000000000001-00000000000000100000.3.12.parquet     first, last, epoch, version
    channel=orders/uid=7/_manifest/00000000000000000012.json                        the version

Promises: a commit is the creation of the next version's manifest, which succeeds for one writer only; so readers see each version
whole, and of two tierers the one that has not taken the table over last fails. A file that a crash has left without a commit is
listed by no manifest, and the next tierer removes it. Readers see what the newest manifest lists.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from stan_lake.errors import LakeError, TakenOverError
from stan_lake.manifest import Replaced, TableManifest, from_json
from stan_lake.store import Store

MANIFESTS: Final = "_manifest"
VERSIONS_KEPT: Final = 20
"""Older manifests are removed; whoever has read one does not need it again."""
ATTEMPTS: Final = 5
"""How often a reader begins again that was overtaken by so many commits that its manifest was removed."""
REPLACED_KEPT_S: Final = 3600
"""How long files that were replaced stay, for queries that were planned before."""
NAME_MAX: Final = 200
"""Longest encoded name of a channel in a path."""

_VERSION = re.compile(r"(\d{20})\.json")
_FILE = re.compile(r"\d{20}-\d{20}\.(\d+)\.\d+\.parquet")
_CUT = re.compile(r".+~[0-9a-f]{64}")
_CHANNEL, _UID = "channel=", "uid="


def directory_of(channel: str) -> str:
    """Return the directory of a channel's tables. Other characters than letters, digits and `.-_~` are encoded as in URLs; a very
    long name is cut, and told apart by its hash."""
    raw = channel.encode("utf-8", "surrogateescape")
    name = quote_from_bytes(raw, safe="")
    if len(name) > NAME_MAX:
        name = f"{name[: NAME_MAX // 2].rstrip('%')}~{hashlib.sha256(raw).hexdigest()}"
    return f"{_CHANNEL}{name}"


def channels(store: Store) -> list[str]:
    """Return the channels that a lake has tables of, sorted."""
    found = []
    for name in store.children("").directories:
        if not name.startswith(_CHANNEL):
            continue
        channel = unquote_to_bytes(name.removeprefix(_CHANNEL)).decode("utf-8", "surrogateescape")
        if _CUT.fullmatch(name):  # the whole name is in the manifests
            channel = next((one.channel for uid in _uids(store, name) if (one := _newest(store, name, uid))), "")
        if channel:
            found.append(channel)
    return sorted(found)


def incarnations(store: Store, channel: str) -> list[int]:
    """Return the uids of a channel's tables, the one that was made last at the end."""
    return _uids(store, directory_of(channel))


def _uids(store: Store, directory: str) -> list[int]:
    names = (name.removeprefix(_UID) for name in store.children(directory).directories if name.startswith(_UID))
    return sorted(int(name) for name in names if name.isdecimal())


def _newest(store: Store, directory: str, uid: int) -> TableManifest | None:
    tables = f"{directory}/{_UID}{uid}/{MANIFESTS}"
    for _ in range(ATTEMPTS):
        versions = _versions(store, tables)
        if not versions:
            return None
        path = f"{tables}/{versions[-1]:020d}.json"
        try:
            found = from_json(store.get(path))
        except FileNotFoundError:  # so many commits since, that it is gone
            continue
        except LakeError as error:
            raise LakeError(f"{store.location(path)}: {error}") from None
        if (found.version, found.uid) != (versions[-1], uid):
            raise LakeError(f"{store.location(path)}: is version {found.version} of the table of uid {found.uid}")
        return found
    raise LakeError(f"{store.location(tables)}: changes faster than it can be read")


def _versions(store: Store, directory: str) -> list[int]:
    names = map(_VERSION.fullmatch, store.children(directory).objects)
    return [int(name[1]) for name in names if name]


class LakeTable:
    """The table of one incarnation of a channel. Methods raise OSError or LakeError where the store cannot be reached."""

    def __init__(self, store: Store, channel: str, uid: int) -> None:
        self.store = store
        self.channel, self.uid = channel, uid
        self._directory = directory_of(channel)

    def path(self, name: str) -> str:
        """Return the path of a file of the table."""
        return f"{self._directory}/{_UID}{self.uid}/{name}"

    def manifest(self) -> TableManifest:
        """Return the newest manifest; version 0 if nothing was ever committed. Raises LakeError: it is damaged, or that of
        another channel."""
        found = _newest(self.store, self._directory, self.uid)
        if found is None:
            return TableManifest(channel=self.channel, uid=self.uid)
        if found.channel != self.channel:
            raise LakeError(f"{self.store.location(self.path(''))}: is the table of channel {found.channel!r}")
        return found

    def take_over(self) -> TableManifest:
        """Become the one that writes to the table, and remove what others before have left without a commit. Raises
        TakenOverError."""
        before = self.manifest()
        mine = self.commit(replace(before, epoch=before.epoch + 1, released=False))
        self.clean(mine)
        return mine

    def file_name(self, manifest: TableManifest, first: int, last: int) -> str:
        """Return the name of a new file that is to be in the manifest behind this one; no two files get the same."""
        return f"{first:020d}-{last:020d}.{manifest.epoch}.{manifest.version + 1}.parquet"

    def write(self, name: str, data: bytes) -> None:
        """Write a file; nobody sees it before the commit."""
        if not self.store.put_new(self.path(name), data):
            raise TakenOverError(f"{self.store.location(self.path(name))} is there already")

    def commit(self, changed: TableManifest) -> TableManifest:
        """Make a changed manifest the newest one; returns it as it is stored.

        Raises:
            TakenOverError: there is a newer one than that which was changed.
        """
        new = replace(changed, version=changed.version + 1)
        path = self.path(f"{MANIFESTS}/{new.version:020d}.json")
        if not self.store.put_new(path, new.to_json()):
            raise TakenOverError(f"{self.store.location(path)} is there already: another tierer writes to this table")
        if (
            _versions(self.store, self.path(MANIFESTS))[-1] > new.version
        ):  # that of another one was there, and is removed already
            self.store.delete(path)
            raise TakenOverError(f"{self.store.location(path)} is old: another tierer writes to this table")
        old = self.path(f"{MANIFESTS}/{new.version - VERSIONS_KEPT:020d}.json")
        if new.version > VERSIONS_KEPT:
            self.store.delete(old)
        return new

    def clean(self, manifest: TableManifest) -> list[str]:
        """Remove files that earlier tierers have left without a commit: they can commit nothing any more. Returns their names."""
        listed = {file.name for file in manifest.files} | {file.name for file in manifest.replaced}
        gone = [name for name in self._left() if name not in listed and self._is_before(name, manifest.epoch)]
        for name in gone:
            self.store.delete(self.path(name))
        for version in _versions(self.store, self.path(MANIFESTS)):
            if version <= manifest.version - VERSIONS_KEPT:
                self.store.delete(self.path(f"{MANIFESTS}/{version:020d}.json"))
        return gone

    def _left(self) -> Iterator[str]:
        yield from self.store.children(self.path("").rstrip("/")).objects
        inside = self.store.children(self.path(MANIFESTS)).objects
        yield from (f"{MANIFESTS}/{name}" for name in inside if not _VERSION.fullmatch(name))

    def _is_before(self, name: str, epoch: int) -> bool:
        """True for a file of an earlier tierer, and for what a local disk keeps of a write that a crash has cut off."""
        found = _FILE.search(name.rpartition("/")[2])
        return int(found[1]) < epoch if found else name.rpartition("/")[2].startswith(".")

    def drop_replaced(self, manifest: TableManifest, now_s: int, kept_s: int = REPLACED_KEPT_S) -> TableManifest:
        """Remove files that were replaced long ago; returns the manifest without them, committed if there were any."""
        kept: tuple[Replaced, ...] = tuple(file for file in manifest.replaced if file.at_s > now_s - kept_s)
        if len(kept) == len(manifest.replaced):
            return manifest
        new = self.commit(replace(manifest, replaced=kept))
        for file in set(manifest.replaced) - set(kept):
            self.store.delete(self.path(file.name))
        return new

    def remove(self) -> None:
        """Remove what is left of a table without files: its manifests, the newest one last."""
        for version in _versions(self.store, self.path(MANIFESTS)):
            self.store.delete(self.path(f"{MANIFESTS}/{version:020d}.json"))
        for directory in (self.path(MANIFESTS), self.path("").rstrip("/"), self._directory):
            self.store.prune(directory)
