"""A disk in memory that forgets what was not synced, tears writes, gets full, breaks, and loses power at any call.

Twin of `stan.log.files.disk.OsFiles`. What a crash may leave (modelled on what journalling file systems do): of each file its
synced bytes and then a beginning of the later writes, the last one torn, perhaps followed by zeros. After a sync that failed the
system takes what was written before for clean: programs read it, later syncs leave it out, and only writing it again helps. Of
the names those that a directory sync covered and then a beginning of the later changes. Without a journal (`journal = False`) a
directory sync covers the names in that directory alone, and any of the others may be lost, with all that is in them.
"""

import errno
import os
import posixpath
import random

from stan.log.files.disk import Directories

RESERVE_BYTES_MAX = 1000  # so that images of the disk stay small


class PowerCut(BaseException):
    """The machine is gone; nothing catches this but the test."""


class Node:
    """A file: what is on the medium, and the operations since."""

    def __init__(self, synced=b""):
        self.live = bytearray(synced)
        self.synced = bytearray(synced)
        self.unsynced = []  # ("write", position, bytes) or ("cut", size)

    def apply(self, operation):
        """Carry one operation out on the live bytes."""
        if operation[0] == "cut":
            size = operation[1]
            del self.live[size:]
            self.live.extend(bytes(size - len(self.live)))
        else:
            _, position, data = operation
            self.live.extend(bytes(max(0, position - len(self.live))))
            self.live[position : position + len(data)] = data

    def sync(self):
        """Carry the unsynced operations out on the medium."""
        medium = Node()
        medium.live = self.synced
        for operation in self.unsynced:
            medium.apply(operation)
        self.unsynced.clear()

    def settle(self):
        """All that is read is on the medium, however it came there."""
        self.synced = bytearray(self.live)
        self.unsynced.clear()

    def after_crash(self, choice):
        """What is found when the power is back."""
        kept = choice.randint(0, len(self.unsynced))
        node = Node(self.synced)
        for operation in self.unsynced[:kept]:
            node.apply(operation)
        if kept < len(self.unsynced) and self.unsynced[kept][0] == "write":
            _, position, data = self.unsynced[kept]
            torn = choice.randint(0, len(data))
            node.apply(("write", position, data[:torn]))
            if choice.random() < 0.3:
                node.apply(("write", position + torn, bytes(len(data) - torn)))
        return Node(bytes(node.live))


FOLDER = Node()
"""Stands for every directory among the names."""


class CrashingFiles(Directories):
    """`Files` over nodes in memory."""

    journal = True  # changes of names reach the medium in their order

    def __init__(self):
        super().__init__()
        self.names = {}  # path -> Node, as programs see it
        self.synced_names = {}
        self.name_changes = []  # ({path: Node or None}, directories changed), each atomic, not yet covered by a sync
        self.open_files = {}
        self.calls = 0
        self.cut_at = None  # number of the changing call at which the power goes
        self.faults = {}  # method -> [calls until it fails, errno]
        self.full = False  # nothing new finds room: it lasts, over a loss of power too
        self.syncs = 0
        self.cached = lambda: True  # says for each read whether the system has the bytes in memory

    # --- what a test does -------------------------------------------------------------------------------------------------
    def fail(self, method, after, error):
        """Let *method* fail with *error* at its next call but *after*, once; a failing write leaves a part behind."""
        self.faults[method] = [after, error]

    def cut_power_after(self, calls):
        """Lose power at the changing call after *calls* more of them."""
        self.cut_at = self.calls + calls

    def crash(self, seed):
        """The disk as it is found after a power cut now; unsynced things are kept or lost as *seed* says."""
        choice = random.Random(seed)
        after = CrashingFiles()
        names = dict(self.synced_names)
        kept = self.name_changes[: choice.randint(0, len(self.name_changes))]
        if not self.journal:
            kept = [change for change in self.name_changes if choice.random() < 0.5]
        for change, _ in kept:
            _change_names(names, change)
        for path in [path for path in names if any(parent not in names for parent in _parents(path))]:
            del names[path]  # it is in a directory that was lost
        nodes = {id(FOLDER): FOLDER}
        for path in sorted(names):
            node = names[path]
            if id(node) not in nodes:
                nodes[id(node)] = node.after_crash(choice)
            after.names[path] = nodes[id(node)]
        after.synced_names = dict(after.names)
        after.full, after.journal, after.cached = self.full, self.journal, self.cached
        return after

    def content(self, path):
        """Bytes of a file."""
        return bytes(self.names[path].live)

    def put(self, path, data):
        """A file that is safe on the medium."""
        for directory in _parents(path):
            self.names[directory] = self.synced_names[directory] = FOLDER
        self.names[path] = self.synced_names[path] = Node(data)

    def paths(self):
        """All names of files."""
        return sorted(path for path, node in self.names.items() if node is not FOLDER)

    # --- Files ------------------------------------------------------------------------------------------------------------
    def open(self, path):
        self._fault("open")
        self._must_exist(path)
        if self.names[path] is FOLDER:
            raise _error(errno.EISDIR, path)
        return self._descriptor(self.names[path])

    def create(self, path):
        self._change("create")
        self._needs_room(path)
        if path in self.names:
            node = self.names[path]
            node.apply(("cut", 0))
            node.unsynced.append(("cut", 0))
        else:
            self._must_exist(posixpath.dirname(path))
            node = Node()
            self._change_names({path: node})
        return self._descriptor(node)

    def close(self, descriptor):
        del self.open_files[descriptor]

    def size(self, descriptor):
        return len(self.open_files[descriptor].live)

    def pwritev(self, descriptor, buffers, position):
        data = b"".join(buffers)
        node = self.open_files[descriptor]
        try:
            self._change("pwritev")
            if position + len(data) > len(node.live):  # what is overwritten in place has its room
                self._needs_room("pwritev")
        except (OSError, PowerCut):
            part = ("write", position, data[: len(data) // 2])
            node.apply(part)
            node.unsynced.append(part)
            raise
        node.apply(("write", position, data))
        node.unsynced.append(("write", position, data))

    def pread(self, descriptor, length, position):
        self._fault("pread")
        return bytes(self.open_files[descriptor].live[position : position + length])

    def pread_cached(self, descriptor, length, position):
        data = self.open_files[descriptor].live[position : position + length]
        return data if len(data) == length and self.cached() else None

    def ftruncate(self, descriptor, size):
        self._change("ftruncate")
        node = self.open_files[descriptor]
        node.apply(("cut", size))
        node.unsynced.append(("cut", size))

    def reserve(self, descriptor, size):
        self._change("reserve")
        node = self.open_files[descriptor]
        size = min(size, len(node.live) + RESERVE_BYTES_MAX)
        self._needs_room("reserve")
        node.apply(("cut", size))
        node.unsynced.append(("cut", size))
        return size

    def fdatasync(self, descriptor):
        node = self.open_files[descriptor]
        try:
            self._change("fdatasync")
        except OSError:
            node.unsynced.clear()
            raise
        node.sync()
        self.syncs += 1

    def rename(self, source, target):
        self._change("rename")
        self._must_exist(source)
        moved = {path: node for path, node in self.names.items() if path == source or path.startswith(source + "/")}
        if self.names[source] is FOLDER and self._within(target):
            raise _error(errno.ENOTEMPTY, target)
        change = dict.fromkeys(moved) | {target + path[len(source) :]: node for path, node in moved.items()}
        self._change_names(change, source, target)

    def link(self, source, target):
        self._change("link")
        self._needs_room(target)
        self._must_exist(source)
        if target in self.names:
            raise _error(errno.EEXIST, target)
        self._change_names({target: self.names[source]})

    def unlink(self, path):
        self._change("unlink")
        self._must_exist(path)
        if self.names[path] is FOLDER:
            raise _error(errno.EISDIR, path)
        self._change_names({path: None})

    def listdir(self, path):
        self._must_exist(path)
        return self._within(path)

    def is_directory(self, path):
        return path == "/" or self.names.get(path) is FOLDER

    def mkdir(self, path):
        self._change("mkdir")
        self._needs_room(path)
        self._must_exist(posixpath.dirname(path))
        if path in self.names:
            raise _error(errno.EEXIST, path)
        self._change_names({path: FOLDER})

    def rmdir(self, path):
        self._change("rmdir")
        self._must_exist(path)
        if self._within(path):
            raise _error(errno.ENOTEMPTY, path)
        self._change_names({path: None})

    def sync_directory(self, path):
        self._change("sync_directory")
        self._cover(path)

    # --- inside -----------------------------------------------------------------------------------------------------------
    def _descriptor(self, node):
        descriptor = max(self.open_files, default=2) + 1
        self.open_files[descriptor] = node
        return descriptor

    def _within(self, path):
        return [posixpath.basename(name) for name in self.names if posixpath.dirname(name) == path]

    def _must_exist(self, path):
        if path not in self.names and path not in ("", "/"):
            raise _error(errno.ENOENT, path)

    def _change_names(self, change, *paths):
        """*paths*: whose directories changed, if not those of all names."""
        _change_names(self.names, change)
        self.name_changes.append((change, {posixpath.dirname(path) for path in paths or change}))

    def _cover(self, path):
        """Nothing of the changes up to the last one in that directory can be lost any more."""
        covered = 0
        for at, (_, directories) in enumerate(self.name_changes):
            if path in directories:
                covered = at + 1
        done, left = self.name_changes[:covered], self.name_changes[covered:]
        if not self.journal:
            left = [change for change in done if path not in change[1]] + left
            done = [change for change in done if path in change[1]]
        for change, _ in done:
            _change_names(self.synced_names, change)
        self.name_changes = left

    def _change(self, method):
        self.calls += 1
        if self.cut_at is not None and self.calls > self.cut_at:
            raise PowerCut
        self._fault(method)

    def _needs_room(self, what):
        if self.full:
            raise _error(errno.ENOSPC, what)

    def _fault(self, method):
        fault = self.faults.get(method)
        if fault is None:
            return
        if fault[0] == 0:
            del self.faults[method]
            raise OSError(fault[1], os.strerror(fault[1]))
        fault[0] -= 1


def _error(number, path):
    return OSError(number, os.strerror(number), path)


def _parents(path):
    """The directories that *path* is in, but the root."""
    while (path := posixpath.dirname(path)) not in ("", "/"):
        yield path


def _change_names(names, change):
    for path, node in change.items():
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node
