"""The lease of a store that several servers share; one server at most may use the store at a time (STAN-SPEC 10).

    <place>/lease-<epoch>    made once by the server that acquires the lease (O_EXCL), which locks (flock) and renews it

The file of the newest epoch is the lease. It is never removed and never given back, so one look at the directory shows a holder
whether it has lost the lease, whatever clocks say. Promises:
    F1  Each epoch has one holder. The holder acknowledges no change of the store unless `check`, called after the change
        was on stable storage, has found no newer epoch.
    F2  A server that takes a newer epoch reads the store only afterwards. So it has every answered change, and later writes of an
        earlier holder reach no copy in use.
    F3  A lease is taken only if its holder has released it, or is gone from this very machine (its flock is free), or was not
        seen renewing it for LEASE_TAKEN on the taker's clock. A holder that was frozen that long finds LEASE_HELD, which is
        shorter, over, and looks at the directory before it goes on.
Times are nanoseconds of a clock that goes on while the machine sleeps. `check` may run beside `renew` in another thread.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, Nanos

from stan import limits
from stan.edge.storage.manifest import boot_id
from stan.errors import LostLock
from stan.log.files.disk import Named, OsFiles

_NAME = re.compile(r"lease-(\d{10})")


@dataclass(slots=True)
class Holder:
    """The holder of a lease, from the lease's file."""

    server_id: str
    host: str = ""
    boot: str = ""
    process: int = 0
    renewals: int = 0
    locked: bool = False  # the file has its flock, which shows whether the holder lives
    released: bool = False

    @classmethod
    def here(cls, server_id: str) -> "Holder":
        """Return this process as a holder."""
        return cls(server_id, socket.gethostname(), boot_id(), os.getpid())

    @property
    def is_of_this_machine(self) -> bool:
        """True if the holder runs, or ran, on this machine under the kernel that is running now (same host name and boot)."""
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), boot_id())

    @classmethod
    def read(cls, content: bytes) -> "Holder | None":
        """Parse the content of a lease's file; None if it names no holder yet."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None


class LeaseFiles:
    """The directory with the leases of one store. Raises OSError."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def make(self) -> None:
        """Make the directory unless it is there."""
        OsFiles().makedirs(str(self.place))

    def newest(self) -> int:
        """The newest epoch; 0 if there is none."""
        matches = (_NAME.fullmatch(name) for name in os.listdir(self.place))  # noqa: PTH208 - read before every answer
        return max((int(name[1]) for name in matches if name), default=0)

    def path(self, epoch: int) -> Path:
        """File of an epoch."""
        return self.place / f"lease-{epoch:010d}"

    def read(self, epoch: int) -> bytes:
        """The content of an epoch's file; b"" if there is none."""
        try:
            with self.path(epoch).open("rb") as file:
                return file.read(limits.LEASE_RECORD_BYTES_MAX)
        except FileNotFoundError:
            return b""

    def holder(self, epoch: int) -> Holder | None:
        """The holder of an epoch; None if its file is missing or names none yet."""
        return Holder.read(self.read(epoch))

    def is_abandoned(self, epoch: int, holder: Holder | None) -> bool:
        """True if the holder has released the lease, or is known to be gone: it ran on this machine, and its lock is free."""
        if holder is None or holder.released:
            return holder is not None
        if not (holder.locked and holder.is_of_this_machine):
            return False
        try:
            handle = os.open(self.path(epoch), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return _lock(handle)
        finally:
            os.close(handle)

    def create(self, epoch: int, holder: Holder) -> int | None:
        """Make the file of *epoch*, which follows the newest one, durably.

        Returns its descriptor; None if another server has made this epoch or a later one.
        """
        try:
            handle = os.open(self.path(epoch), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return None
        try:
            holder.locked = _lock(handle)
            write_record(handle, holder)
            OsFiles().sync_directory(str(self.place))
        except BaseException:
            os.close(handle)
            raise
        if self.newest() > epoch:  # this epoch was made and removed by others since the caller looked
            os.close(handle)
            self.path(epoch).unlink(missing_ok=True)
            return None
        return handle

    def forget_before(self, epoch: int) -> None:
        """Remove the files of older epochs."""
        for name in os.listdir(self.place):  # noqa: PTH208 - as above
            match = _NAME.fullmatch(name)
            if match and int(match[1]) < epoch:
                (self.place / name).unlink(missing_ok=True)


def write_record(handle: int, holder: Holder) -> None:
    """Replace the content of a lease's file durably. A reader may get a mixture of both, which counts as a change."""
    record = json.dumps(asdict(holder)).encode()
    with Named(handle):
        os.pwrite(handle, record.ljust(512) + b"\n", 0)
        os.fdatasync(handle)


def _lock(handle: int) -> bool:
    """Try to lock the file; False if another process has the lock, or the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class LeaseWatch:
    """A standby's view of the lease."""

    def __init__(self, files: LeaseFiles) -> None:
        self._files = files
        self._seen: tuple[int, bytes] = (0, b"")
        self._since = Nanos(0)
        self.alone = False  # the holder of the newest epoch can no longer write to the store

    def look(self, now: Nanos) -> int | None:
        """The newest epoch if it may be followed by a new one, else None. Raises OSError."""
        newest = self._files.newest()
        self.alone = False
        if not newest:
            return 0
        seen = newest, self._files.read(newest)
        if seen != self._seen:
            self._seen, self._since = seen, now
        self.alone = self._files.is_abandoned(newest, Holder.read(seen[1]))
        return newest if self.alone or now - self._since >= limits.LEASE_TAKEN else None


class Lease:
    """A lease that this process has acquired, until `close`."""

    def __init__(self, files: LeaseFiles, epoch: int, handle: int, holder: Holder, clock: Callable[[], Nanos]) -> None:
        """The lease is over until the first renewal; `acquire` makes one that counts at once."""
        self.files = files
        self.epoch = epoch
        self.holder = holder
        self._handle = handle
        self._clock = clock
        self._until = Nanos(0)
        self._turn = Lock()
        self._lost = ""

    @classmethod
    def acquire(cls, files: LeaseFiles, after: int, server_id: str, clock: Callable[[], Nanos]) -> "Lease | None":
        """Acquire the epoch after *after*, as `LeaseWatch.look` gave it; None if another server was faster. Raises OSError."""
        started = clock()
        holder = Holder.here(server_id)
        handle = files.create(after + 1, holder)
        if handle is None:
            return None
        lease = cls(files, after + 1, handle, holder, clock)
        lease._until = Nanos(started + limits.LEASE_HELD)
        return lease

    def check(self) -> None:
        """Raise LostLock if another server may have the store; OSError if the directory of the leases cannot be read or written.

        Costs one look at the directory, and a renewal if the lease is over, as after a stop and a continuation of the process."""
        if self._lost:
            raise LostLock(self._lost)
        if self.files.newest() != self.epoch:
            with self._turn:  # `renew` in the other thread may just have acquired the newer epoch
                self._look()
        if self._clock() >= self._until:
            self.renew()

    def fence(self) -> None:
        """Raise LostLock unless this server certainly still has the lease."""
        try:
            self.check()
        except OSError as error:
            raise LostLock(f"lost store lock, aborting: {error}") from error

    def holds(self) -> bool:
        """True if `check` raises nothing: the lease still counts."""
        try:
            self.check()
        except (LostLock, OSError):
            return False
        return True

    def renew(self) -> None:
        """Prolong the lease; blocking. If it is over, acquire the next epoch, unless another server has. Raises as `check`."""
        with self._turn:
            if self._lost:
                raise LostLock(self._lost)
            started = self._clock()
            self.holder.renewals += 1
            if started >= self._until:
                self._take_again()
            else:
                write_record(self._handle, self.holder)
                self._look()
            self._until = Nanos(started + limits.LEASE_HELD)

    def _take_again(self) -> None:
        self._look()
        handle = self.files.create(self.epoch + 1, self.holder)
        if handle is None:
            self._look()
            raise OSError(errno.EAGAIN, "a lease was made and is gone again", str(self.files.path(self.epoch + 1)))
        os.close(self._handle)
        self._handle, self.epoch = handle, self.epoch + 1
        self.files.forget_before(self.epoch)

    def _look(self) -> None:
        newest = self.files.newest()
        if newest != self.epoch:
            holder = self.files.holder(newest)
            other = f"ft: serverID {go_quote(holder.server_id)} claims to be active, aborting" if holder else ""
            self._lost = other or "lost store lock, aborting"
            raise LostLock(self._lost)

    def close(self, *, release: bool) -> None:
        """End the lease. *release*: nothing of the store is open any longer, so the next server need not wait."""
        with self._turn:
            if self._handle < 0:
                return
            if release and not self._lost:
                self.holder.released = True
                with contextlib.suppress(OSError):
                    write_record(self._handle, self.holder)
            os.close(self._handle)
            self._handle = -1
            self._lost = self._lost or "the lease was given up"


class Keeper:
    """Renews a lease in a thread of its own, as the event loop may be busy.

    *lost* is called at most once, *note* with a text for the operator; both in that thread.
    """

    def __init__(self, lease: Lease, lost: Callable[[LostLock], None], note: Callable[[str], None]) -> None:
        self._lease = lease
        self._lost = lost
        self._note = note
        self._stop = Event()
        self._thread = Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failing = False
        while not self._stop.wait(limits.LEASE_RENEWAL / SECOND):
            try:
                self._lease.renew()
                failing = False
            except LostLock as error:
                if not self._stop.is_set():
                    self._lost(error)
                return
            except OSError as error:
                if not failing:
                    self._note(f"cannot renew the lease of the store ({error}); trying again")
                failing = True

    def stop(self) -> None:
        """End the thread; the lease is not renewed any longer."""
        self._stop.set()
        self._thread.join()
