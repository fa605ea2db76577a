"""What a loss of power leaves of SQLite's files: the real SQLite writes, and a VFS between it and the system notes all of it.

The library that Python's sqlite3 is linked to is asked for its default VFS by ctypes. A copy of that with its own xOpen and
xDelete becomes the default, and files get copies of their methods with their own xWrite, xTruncate and xSync. So the code under
test opens its files as ever. From the notes every moment can be had again: of each file what its last xSync covered, and any of
the later writes, in any order, whole or torn at a sector.
"""

import _sqlite3
import ctypes
import random
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.files import Node

SECTOR = 512
POINTER = ctypes.sizeof(ctypes.c_void_p)
OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int)
)
DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
CLOSE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
CREATE, JOURNALS = 0x4, 0x800 | 0x4000 | 0x80000
"""Flags of xOpen."""
METHODS = {"xClose": (1, CLOSE), "xWrite": (3, WRITE), "xTruncate": (4, TRUNCATE), "xSync": (5, SYNC)}
"""Of sqlite3_io_methods: which pointer of the table, and of which kind."""
METHODS_OF_VERSION = {1: 13, 2: 17, 3: 19}
"""How many pointers the table has, the version before them counted as one."""


class Vfs(ctypes.Structure):
    """sqlite3_vfs as far as it is changed; what is behind differs with its version."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("path_max", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
        ("rest", ctypes.c_void_p * 14),
    )


VFS_POINTERS_BEHIND = {1: 10, 2: 11, 3: 14}
"""Of `rest`, by version."""
VERSION_MAX = 3
"""What a later one adds is left out of the copies."""

_alive = []  # what SQLite may still call, as a test has failed that has files open


class PowerLoss:
    """Notes what SQLite does, in `recording`, and tells what is left of it at any moment."""

    def __init__(self):
        self.notes = []  # (what, path, ...) in order
        self.noted = lambda: None  # called after each
        self._methods = {}  # address of a table of methods -> that of our copy
        self._files = {}  # address of an open file -> (path, its own methods)
        self._kept = []  # what SQLite calls
        self._library = _library()

    @contextmanager
    def recording(self):
        """Every file that sqlite3 opens meanwhile is noted; all of them have to be closed at the end."""
        library = self._library
        default = library.sqlite3_vfs_find(None)
        plain = Vfs()
        version = min(VERSION_MAX, ctypes.c_int.from_address(default).value)
        ctypes.memmove(ctypes.byref(plain), default, Vfs.rest.offset + POINTER * VFS_POINTERS_BEHIND[version])
        plain.version = version
        real_open, real_delete = OPEN(plain.open), DELETE(plain.delete)

        def opened(vfs, name, file, flags, told):
            result = real_open(vfs, name, file, flags, told)
            if result == 0 and name:
                path = ctypes.string_at(name).decode()
                table = ctypes.c_void_p.from_address(file)
                self._files[file] = (path, self._own_methods(table.value))
                table.value = self._methods[table.value]
                self._note("open", path, bool(flags & JOURNALS and flags & CREATE))
            return result

        def deleted(vfs, name, durably):
            result = real_delete(vfs, name, durably)
            if result == 0:
                self._note("delete", ctypes.string_at(name).decode(), bool(durably))
            return result

        ours = Vfs.from_buffer_copy(plain)
        functions = OPEN(opened), DELETE(deleted)
        ours.name = b"power"
        ours.open, ours.delete = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
        self._kept.append((ours, functions))
        assert library.sqlite3_vfs_register(ctypes.byref(ours), 1) == 0
        try:
            yield self
        finally:
            library.sqlite3_vfs_register(default, 1)
            library.sqlite3_vfs_unregister(ctypes.byref(ours))
            if self._files:
                _alive.append(self)
        assert not self._files, f"left open: {self._files}"

    def _note(self, *what):
        self.notes.append(what)
        self.noted()

    def _own_methods(self, table):
        """The methods of a file as they were; where ours go is in `_methods`."""
        own = {
            name: kind(ctypes.c_void_p.from_address(table + at * POINTER).value) for name, (at, kind) in METHODS.items()
        }
        if table in self._methods:
            return own
        version = min(VERSION_MAX, ctypes.c_int.from_address(table).value)
        count = METHODS_OF_VERSION[version]
        copy = (ctypes.c_void_p * count).from_buffer_copy(ctypes.string_at(table, count * POINTER))
        copy[0] = version
        functions = {name: kind(getattr(self, f"_{name}")) for name, (_, kind) in METHODS.items()}
        for name, function in functions.items():
            copy[METHODS[name][0]] = ctypes.cast(function, ctypes.c_void_p).value
        self._kept.append((copy, functions))
        self._methods[table] = ctypes.addressof(copy)
        return own

    def _xClose(self, file):  # noqa: N802 - SQLite's names
        _, own = self._files.pop(file)
        return own["xClose"](file)

    def _xWrite(self, file, data, length, position):  # noqa: N802
        path, own = self._files[file]
        result = own["xWrite"](file, data, length, position)
        self._note("write", path, position, ctypes.string_at(data, length))
        return result

    def _xTruncate(self, file, size):  # noqa: N802
        path, own = self._files[file]
        result = own["xTruncate"](file, size)
        self._note("cut", path, size)
        return result

    def _xSync(self, file, flags):  # noqa: N802
        path, own = self._files[file]
        result = own["xSync"](file, flags)
        if result == 0:
            self._note("sync", path)
        return result

    # --- afterwards -------------------------------------------------------------------------------------------------------

    def leave(self, directory, upto, seed):
        """Put what is found, if the power goes after so many notes, into *directory*."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path, content in self._left(upto, seed).items():
            (directory / Path(path).name).write_bytes(content)

    def moments(self, marks, count, seed):
        """Numbers of notes after which to lose power: some at random, and those of *marks*."""
        some = random.Random(seed).sample(range(len(self.notes) + 1), min(count, len(self.notes)))
        return sorted({*some, *marks})

    def _left(self, upto, seed):
        nodes, going, fresh = {}, set(), set()
        for what, path, *more in self.notes[:upto]:
            if what == "open":
                if path in going:  # a new file of that name
                    nodes.pop(path, None)
                going.discard(path)
                fresh |= {path} if more[0] else set()
                nodes.setdefault(path, Node())
            elif what == "delete":
                going.add(path)
                if more[0]:
                    nodes.pop(path, None)
            elif what == "sync":
                if path in fresh:  # the first one of a new journal covers the directory, too
                    nodes = {path: node for path, node in nodes.items() if path not in going}
                    fresh.discard(path)
                nodes[path].settle()
            else:
                nodes[path].apply((what, *more))
                nodes[path].unsynced.append((what, *more))
        choice = random.Random(f"{upto} {seed}")
        return {
            path: _found(node, choice) for path, node in nodes.items() if path not in going or choice.random() < 0.5
        }


def _found(node, choice):
    found = Node(node.synced)
    for what, *more in node.unsynced:
        fate = choice.random()
        if fate < 0.45:
            continue
        if what == "write" and fate < 0.55:
            position, data = more
            found.apply((what, position, data[: choice.randint(0, len(data) // SECTOR) * SECTOR]))
        else:
            found.apply((what, *more))
    return bytes(found.live)


def _library():
    """SQLite as Python's sqlite3 has it."""
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    try:
        find, register, unregister = (
            getattr(library, f"sqlite3_vfs_{name}") for name in ("find", "register", "unregister")
        )
    except AttributeError:
        pytest.skip("this Python's sqlite3 does not show the SQLite in it")
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    register.argtypes, unregister.argtypes = (ctypes.c_void_p, ctypes.c_int), (ctypes.c_void_p,)
    return library
