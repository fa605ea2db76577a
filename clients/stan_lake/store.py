"""The storage of a lake: a directory of a local disk, or a bucket of an object store.

Promises of every store: an object is there whole or not at all, is durable when `put_new` returns, and never changes; of two that
put an object of one name one succeeds. Paths are relative to the lake's root, their parts separated by `/`.
"""

import contextlib
import io
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from stan_lake.errors import LakeError

TEMPORARY: Final = ".tmp"
"""Suffix of the names of incomplete objects, on a local disk."""


class Children(NamedTuple):
    """The content of a directory."""

    directories: list[str]  # names, sorted
    objects: list[str]


class Store(Protocol):
    """See the module's text. Raises OSError or LakeError where the store cannot be reached."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write an object. Returns False, and does nothing, if there is one of this name."""
        ...

    def get(self, path: str) -> bytes:
        """Return an object. Raises FileNotFoundError."""
        ...

    def children(self, path: str) -> Children:
        """Return the direct children of a directory; none if there is no directory."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        ...

    def prune(self, path: str) -> None:
        """Remove a directory, if it is there and holds nothing."""
        ...

    def opened(self, path: str) -> Any:
        """Return a file of an object for pyarrow. Raises FileNotFoundError, at the latest when it is read."""
        ...

    def location(self, path: str) -> str:
        """Return the path or URL by which other programs find an object."""
        ...


class LocalStore:
    """A directory. Needs a file system with hard links."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_new(self, path: str, data: bytes) -> bool:
        """See Store."""
        target = self._root / path
        self._make(target.parent)
        new = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
        try:
            with new.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(new, target)
        except FileExistsError:
            return False
        finally:
            new.unlink(missing_ok=True)
        _sync(target.parent)
        return True

    def get(self, path: str) -> bytes:
        """See Store."""
        return (self._root / path).read_bytes()

    def children(self, path: str) -> Children:
        """See Store."""
        try:
            entries = list(os.scandir(self._root / path))
        except FileNotFoundError:
            return Children([], [])
        return Children(
            sorted(entry.name for entry in entries if entry.is_dir()),
            sorted(entry.name for entry in entries if not entry.is_dir()),
        )

    def delete(self, path: str) -> None:
        """See Store."""
        (self._root / path).unlink(missing_ok=True)

    def prune(self, path: str) -> None:
        """See Store."""
        with contextlib.suppress(OSError):
            (self._root / path).rmdir()

    def opened(self, path: str) -> str:
        """See Store."""
        return str(self._root / path)

    def location(self, path: str) -> str:
        """See Store."""
        return str(self._root / path)

    def _make(self, directory: Path) -> None:
        """Make a directory that survives a power loss."""
        if directory.is_dir():
            return
        self._make(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ObjectStore:
    """A bucket, or a prefix in it, by obstore; credentials come from the environment, as usual there."""

    def __init__(self, url: str) -> None:
        try:
            import obstore  # noqa: PLC0415 - local lakes do without it
            from obstore.store import from_url  # noqa: PLC0415
        except ImportError:
            raise LakeError(f"{url}: object stores need the package obstore: pip install obstore") from None
        self._url = url.rstrip("/")
        self._api: Any = obstore
        try:
            self._store: Any = from_url(self._url)
        except Exception as error:  # noqa: BLE001 - obstore has many
            raise LakeError(f"{url}: {_first_line(error)}") from None

    def put_new(self, path: str, data: bytes) -> bool:
        """See Store. Who was cut off within a write and repeats it finds its own object: that is no other's."""
        try:
            self._call(self._api.put, path, data, mode="create", use_multipart=False)
        except FileExistsError:
            return self.get(path) == data
        return True

    def get(self, path: str) -> bytes:
        """See Store."""
        return bytes(self._call(self._api.get, path).bytes())

    def children(self, path: str) -> Children:
        """See Store."""
        entries = self._call(self._api.list_with_delimiter, path)
        return Children(
            sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in entries["common_prefixes"]),
            sorted(meta["path"].rpartition("/")[2] for meta in entries["objects"]),
        )

    def delete(self, path: str) -> None:
        """See Store."""
        with contextlib.suppress(FileNotFoundError):
            self._call(self._api.delete, path)

    def prune(self, path: str) -> None:
        """See Store. There are no directories."""

    def opened(self, path: str) -> Any:
        """See Store."""
        size = self._call(self._api.head, path)["size"]
        return RangedObject(lambda first, end: self._call(self._api.get_range, path, start=first, end=end), size)

    def location(self, path: str) -> str:
        """See Store."""
        return f"{self._url}/{path}"

    def _call(self, call: Any, path: str, *args: Any, **options: Any) -> Any:
        try:
            return call(self._store, path, *args, **options)
        except FileNotFoundError:
            raise
        except self._api.exceptions.AlreadyExistsError:
            raise FileExistsError(path) from None
        except self._api.exceptions.BaseError as error:
            raise LakeError(f"{self.location(path)}: {_first_line(error)}") from None


class RangedObject(io.RawIOBase):
    """An object of a bucket as a file, of which each read is a request. *get*: returns the bytes of [first, end)."""

    def __init__(self, get: Callable[[int, int], Any], size: int) -> None:
        super().__init__()
        self._get = get
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another place; see io.IOBase."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to *size* bytes; a negative one: all that follow."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        data = bytes(self._get(self._at, end))
        self._at = end
        return data


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def open_store(url: str) -> Store:
    """Return the store of a lake: a path, `file://…`, or a URL that obstore knows, such as s3://bucket/prefix, gs://…, az://….

    Raises:
        LakeError: the URL names no possible store.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = parts.path if parts.scheme else url
        if parts.netloc or not path:
            raise LakeError(f"{url!r} names no directory: a path, or file:///path")
        return LocalStore(Path(path).expanduser().absolute())
    return ObjectStore(url)
