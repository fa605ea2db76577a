"""The operating system's files, as few calls as the log needs, so that a test can put a lying disk in their place.

Promises nothing about durability except through `fdatasync` and `sync_directory`. Every OSError names its file. Never retries,
never hides an OSError: the log decides what a failed call means. The idea of a file port with a faulty twin is
TigerBeetle's `storage`.
"""

import errno
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

IOVEC_MAX = 1024
"""Buffers that one pwritev call takes (Linux and macOS: IOV_MAX)."""
_WITHOUT_WAITING: int | None = getattr(os, "RWF_NOWAIT", None)
"""Flag of a read that fails if it had to wait for the disk."""
WRITING = ".writing"
"""Suffix of a small file's name until the file is complete."""


class Files(Protocol):
    """Paths are strings, descriptors are ints, positions and lengths are bytes. Every method may raise OSError."""

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""

    def create(self, path: str) -> int:
        """Open an empty file for reading and writing; an earlier file of that name is emptied."""

    def close(self, descriptor: int) -> None:
        """Give the descriptor back; without making anything durable."""

    def size(self, descriptor: int) -> int:
        """Length of the file."""

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> None:
        """Write all buffers one after the other from *position* on, without joining them."""

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        """Read *length* bytes; fewer only at the end of the file."""

    def pread_cached(self, descriptor: int, length: int, position: int) -> bytearray | None:
        """Read *length* bytes if the system has them in memory; None if it would wait, or fails."""

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut the file to *size*."""

    def reserve(self, descriptor: int, size: int) -> int:
        """Extend the file to *size*, or less, with zeros in blocks that later writes fill; returns its size.

        Raises OSError (ENOTSUP) where the system cannot."""

    def fdatasync(self, descriptor: int) -> None:
        """Return once the file's bytes and size are on stable storage."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, atomically replacing the one that has it; or a directory, with its content."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which stays if the first one is removed or replaced."""

    def unlink(self, path: str) -> None:
        """Remove a name; open descriptors go on reading the file."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents, and return once their names are on stable storage; an existing one is fine."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Return once the directory's names are on stable storage."""


class Directories:
    """Makes directories durably, for `OsFiles` and for the tests' twin of it alike."""

    def __init__(self) -> None:
        self._named: set[str] = set()  # those whose names were made durable by this object

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents, and return once their names are on stable storage.

        The names of directories that exist are synced, too: the process that made them may have been killed before its sync."""
        there, parent = self.is_directory(path), os.path.dirname(path)  # noqa: PTH120 - paths are strings in this port
        if parent == path or (there and path in self._named):
            return
        if parent:
            self.makedirs(parent)
        if not there:
            try:
                self.mkdir(path)
            except FileExistsError:  # another process has made it, if it is one
                if not self.is_directory(path):
                    raise
        try:
            self.sync_directory(parent or ".")
        except OSError as error:
            if not there or error.errno == errno.EIO:  # else it belongs to another user
                raise
        self._named.add(path)

    def is_directory(self, path: str) -> bool:
        """True if there is a directory of that name."""
        raise NotImplementedError

    def mkdir(self, path: str) -> None:
        """Make one directory."""
        raise NotImplementedError

    def sync_directory(self, path: str) -> None:
        """Return once the directory's names are on stable storage."""
        raise NotImplementedError


class Named:
    """Names the file of a descriptor in each OSError that passes: a call with a descriptor does not know the name."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            with suppress(OSError):
                error.filename = _name(self._descriptor)


def _name(descriptor: int) -> str:
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415 - exists on Unix only

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - paths are strings in this module


class OsFiles(Directories):
    """`Files` over the operating system."""

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: str) -> int:
        """Open an empty file for reading and writing; an earlier file of that name is emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def close(self, descriptor: int) -> None:
        """Give the descriptor back; without making anything durable."""
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        """Length of the file."""
        with Named(descriptor):
            return os.fstat(descriptor).st_size

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> None:
        """Write all buffers one after the other from *position* on; a short write is continued until it is complete or fails."""
        with Named(descriptor):
            for start in range(0, len(buffers), IOVEC_MAX):
                part = buffers[start : start + IOVEC_MAX]
                length = sum(map(len, part))
                written = os.pwritev(descriptor, part, position)
                if written < length:
                    rest = memoryview(b"".join(part))
                    while written < length:
                        written += os.pwrite(descriptor, rest[written:], position + written)
                position += length

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        """Read *length* bytes; fewer only at the end of the file."""
        with Named(descriptor):
            return os.pread(descriptor, length, position)

    def pread_cached(self, descriptor: int, length: int, position: int) -> bytearray | None:
        """Read *length* bytes if the system has them in memory, so that no disk is waited for; None if it would wait, or fails.

        Only Linux can do that, and not on every file system."""
        if _WITHOUT_WAITING is None:
            return None
        data = bytearray(length)
        try:
            read = os.preadv(descriptor, [data], position, _WITHOUT_WAITING)
        except OSError:
            return None
        return data if read == length else None

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut the file to *size*."""
        with Named(descriptor):
            os.ftruncate(descriptor, size)

    def reserve(self, descriptor: int, size: int) -> int:
        """Extend the file to *size* with zeros in blocks that later writes fill; returns *size*."""
        if not hasattr(os, "posix_fallocate"):  # macOS
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        with Named(descriptor):
            os.posix_fallocate(descriptor, 0, size)
        return size

    def fdatasync(self, descriptor: int) -> None:
        """Return once the file's bytes and size are on stable storage. On macOS only F_FULLFSYNC reaches the medium."""
        with Named(descriptor):
            if sys.platform == "darwin":
                import fcntl  # noqa: PLC0415 - exists on Unix only

                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, atomically replacing the one that has it; or a directory, with its content."""
        os.replace(source, target)  # noqa: PTH105 - paths are strings in this port

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which stays if the first one is removed or replaced."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name; open descriptors go on reading the file."""
        os.unlink(path)  # noqa: PTH108 - paths are strings in this port

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        return os.listdir(path)  # noqa: PTH208 - paths are strings in this port

    def is_directory(self, path: str) -> bool:
        """True if there is a directory of that name."""
        return os.path.isdir(path)  # noqa: PTH112 - paths are strings in this port

    def mkdir(self, path: str) -> None:
        """Make one directory, in one that exists."""
        os.mkdir(path, 0o750)  # noqa: PTH102 - same

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)  # noqa: PTH106 - paths are strings in this port

    def sync_directory(self, path: str) -> None:
        """Return once the directory's names are on stable storage."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with Named(descriptor):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


OWNER_ALONE = 0o077
"""The umask of every process that writes messages or secrets: only the owner may read its files."""


def close_to_others(path: str) -> str:
    """Leave only the owner's permissions on a file or directory; returns "", or a text if it stays open to all."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - paths are strings in this module
        if mode & OWNER_ALONE:
            os.chmod(path, mode & ~OWNER_ALONE)  # noqa: PTH101 - same
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path} can be read by others, and that cannot be changed: {error.strerror}" if mode & 0o007 else ""
    return ""


def read_file(files: Files, path: str) -> bytes:
    """Return the content of a file. Raises FileNotFoundError if there is none."""
    descriptor = files.open(path)
    try:
        return files.pread(descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


def write_durably(files: Files, path: str, content: bytes) -> None:
    """Make or replace a small file: after a crash it is the old or the new one, complete."""
    temporary = path + WRITING
    descriptor = files.create(temporary)
    try:
        files.pwritev(descriptor, [content], 0)
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(temporary, path)
    files.sync_directory(path.rpartition("/")[0])


def remove_directory(files: Files, path: str) -> None:
    """Remove a directory that holds only files; nothing is synced, so after a crash the caller may find a part of it."""
    for name in files.listdir(path):
        files.unlink(f"{path}/{name}")
    files.rmdir(path)
