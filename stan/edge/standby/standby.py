"""A server of a fault tolerance group: standby until it has the lease of the store, then active to its end (STAN-SPEC 10).

The active server sends heartbeats over NATS, but only the lease decides which server may be active
(stan.edge.standby.store_lease). A standby has no file of the store open and no subscription that clients use. An active server
that has lost the lease ends at once, with the error texts of the original.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from struct import Struct, error
from typing import Any

from google.protobuf.message import DecodeError
from stan_protocol.channels import publication
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, Nanos, WallNanos

from stan import limits
from stan.config import Config
from stan.edge.log import ServerLog, redacted
from stan.edge.nats.connection import NatsConnection
from stan.edge.runtime import CLOCK
from stan.edge.standby.store_generations import StoreGenerations
from stan.edge.standby.store_lease import Keeper, Lease, LeaseFiles, LeaseWatch
from stan.errors import LostLock, StanError, StartError
from stan.protocol.kernel import server as kernel

STANDBY, ACTIVE = "FT_STANDBY", "FT_ACTIVE"
_HEARTBEAT = 3
"""CtrlMsg.MsgType of a heartbeat."""
_GO_TIME = Struct(">bqih")
_GO_TIME_VERSION, _UTC = 1, -1
_YEAR_1 = 62_135_596_800
"""Seconds from year 1 to 1970."""
_GROUP_SID = 1
_ENTER_ATTEMPTS = 3
_CLAIMS_BELIEVED = 2
"""So many heartbeats of another server count: a single one may come from a server that was frozen while sending."""

Serve = Callable[[Config, Lease], Awaitable[None]]
"""Serves clients from the store in the given settings, under the lease, until the server has to stop."""


def encode_time(at: WallNanos) -> bytes:
    """A time as Go's time.Time.MarshalBinary writes it, in UTC."""
    seconds, nanos = divmod(at, SECOND)
    return _GO_TIME.pack(_GO_TIME_VERSION, seconds + _YEAR_1, nanos, _UTC)


def decode_time(data: bytes) -> WallNanos | None:
    """The inverse of `encode_time`; None if the bytes are not such a time."""
    try:
        version, seconds, nanos, _ = _GO_TIME.unpack(data)
    except error:
        return None
    return WallNanos((seconds - _YEAR_1) * SECOND + nanos) if version == _GO_TIME_VERSION else None


def boot_clock() -> Nanos:
    """Monotonic time that goes on while the machine sleeps."""
    return Nanos(time.clock_gettime_ns(CLOCK))


def _store_generations(config: Config) -> StoreGenerations:
    """The data directories of the shared store that the settings name. Raises StartError if it cannot be shared."""
    store = config.store
    if store.kind == "sql" and store.source is not None:
        from stan.edge.standby.sql_store_generations import SqlStoreGenerations  # noqa: PLC0415 - few want it

        return SqlStoreGenerations(store.source)
    if store.directory is None:
        raise StartError("ft: only FILE or SQL stores supported in FT mode")
    return StoreGenerations(store.directory)


class StandbyLink:
    """A NATS connection for heartbeats."""

    def __init__(self, config: Config, server_id: str, on_message: Callable[[bytes], None]) -> None:
        """*on_message* gets the payload of each message on the group's subject."""
        self._config = config
        self._server_id = server_id.encode()
        self._on_message = on_message
        self._subject = f"_STAN.ft.{config.cluster_id}.{config.ft_group}"
        self._rest = b""
        self._connection = NatsConnection(
            {_GROUP_SID: self._subject}, on_data=self._read, on_up=self._drop, on_down=self._drop, on_drained=self._drop
        )

    async def open(self, urls: tuple[str, ...], note: Callable[[str], None]) -> None:
        """Connect. Raises StartError."""
        try:
            await self._connection.open(self._config.nats, urls, f"_NSS-{self._config.cluster_id}-ft", note)
        except Exception as problem:
            shown = ", ".join(redacted(url) for url in urls)
            raise StartError(f"cannot connect to NATS at {shown}: {problem or type(problem).__name__}") from problem

    def send_heartbeat(self, activated: WallNanos) -> None:
        """Send the other servers a heartbeat: this one is active since *activated*."""
        message = wire.CtrlMsg(msg_type=_HEARTBEAT, server_id=self._server_id, data=encode_time(activated))
        self._connection.write(publication(self._subject.encode(), message.SerializeToString()))

    async def close(self) -> None:
        """Close the connection."""
        if not self._connection.is_closed:
            await self._connection.close()

    def _drop(self) -> None:
        self._rest = b""

    def _read(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        with contextlib.suppress(ValueError):  # no NATS protocol: nats-server itself ends such a connection
            while at < len(data):
                scan = kernel.scan(data, at, 0, 0, b"")
                if not scan.consumed:
                    break
                at += scan.consumed
                for frame in scan.others:
                    if frame.sid == _GROUP_SID:
                        self._on_message(frame.payload)
                    elif frame.subject == b"PING":
                        self._connection.write(b"PONG\r\n")
                    elif frame.subject == b"PONG":
                        self._connection.ponged()
        self._rest = data[at:]


class RepeatedLine:
    """Log lines about a trouble that lasts, with pauses that double from a second to FT_COMPLAINT_MAX."""

    def __init__(self, log: ServerLog, clock: Callable[[], Nanos]) -> None:
        self._log = log
        self._clock = clock
        self._next_at = Nanos(0)
        self._interval = SECOND

    def write(self, text: str) -> None:
        """Write a line unless the last one was written too recently."""
        now = self._clock()
        if now >= self._next_at:
            self._log.info(text)
            self._next_at = Nanos(now + self._interval)
            self._interval = min(2 * self._interval, limits.FT_COMPLAINT_MAX)


class ActiveServer:
    """A server that has the lease: it takes over the store, serves clients, and sends heartbeats until it ends.

    It ends with LostLock once another server may write to the store.
    """

    def __init__(
        self,
        config: Config,
        server_id: str,
        log: ServerLog,
        generations: StoreGenerations,
        link: StandbyLink,
        lease: Lease,
    ) -> None:
        self._config = config
        self._server_id = server_id
        self._log = log
        self._generations = generations
        self._link = link
        self._lease = lease
        self._interval = round(limits.FT_HEARTBEAT_INTERVAL * Random().uniform(0.9, 1.1))
        self._activated = WallNanos(time.time_ns())
        self._claims: Counter[bytes] = Counter()  # number of heartbeats, by server id
        self._lost: asyncio.Future[LostLock] = asyncio.get_running_loop().create_future()

    async def run(self, serve: Serve, *, alone: bool) -> None:
        """Serve clients until *serve* returns. Raises LostLock, StartError.

        *alone*: no other server can be writing to the store.
        """
        loop = asyncio.get_running_loop()

        def lost(problem: LostLock) -> None:
            loop.call_soon_threadsafe(self._fail, problem)

        def note(text: str) -> None:
            loop.call_soon_threadsafe(self._log.error, text)

        keeper = Keeper(self._lease, lost, note)
        over = False  # serving has ended, and the store is closed in order
        try:
            directory = await self._enter(alone=alone)
            store = self._generations.store(self._config.store, directory)
            serving = asyncio.ensure_future(serve(replace(self._config, store=store), self._lease))
            beating = asyncio.ensure_future(self._send_heartbeats())
            try:
                waiting: set[asyncio.Future[Any]] = {serving, self._lost}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                beating.cancel()
                serving.cancel()
                await asyncio.gather(beating, serving, return_exceptions=True)
            if self._lost.done():
                raise self._lost.result()
            over = True
            serving.result()
        finally:
            await asyncio.to_thread(keeper.stop)
            self._lease.close(release=over)

    async def _enter(self, *, alone: bool) -> Path:
        """Make the data of the last active server this one's; returns its directory. Raises LostLock, StartError."""
        generations, lease = self._generations, self._lease
        epoch = lease.epoch  # a lease that is taken again has a later epoch, but the directory keeps its name
        for attempt in range(_ENTER_ATTEMPTS):
            try:
                directory = await asyncio.to_thread(partial(generations.enter, epoch, alone=alone))
                await asyncio.to_thread(lease.check)
                await asyncio.to_thread(generations.tidy, epoch)
                await asyncio.to_thread(lease.files.forget_before, epoch)
            except OSError as problem:  # the last active server may still be removing files
                if attempt == _ENTER_ATTEMPTS - 1:
                    raise StartError(f"ft: cannot take over the store: {problem}") from problem
            else:
                return directory
        raise StartError("ft: cannot take over the store")

    async def _send_heartbeats(self) -> None:
        while True:
            if self._lease.holds():
                self._link.send_heartbeat(self._activated)
            await asyncio.sleep(self._interval / SECOND)

    def on_message(self, payload: bytes) -> None:
        """Handle a message of the group; a heartbeat of another server claims that it is active, too."""
        try:
            message = wire.CtrlMsg.FromString(payload)
        except DecodeError:
            return
        if message.msg_type != _HEARTBEAT or message.server_id == self._server_id.encode():
            return
        try:
            self._lease.check()
        except LostLock as problem:
            self._fail(problem)
            return
        except OSError:
            return  # the lease cannot be read, so the claim cannot be judged
        claim = f"ft: serverID {go_quote(message.server_id.decode(errors='replace'))} claims to be active"
        since = decode_time(message.data)
        if len(self._claims) >= limits.NODES_MAX:
            self._claims.clear()
        self._claims[message.server_id] += 1
        if since is not None and since < self._activated and self._claims[message.server_id] >= _CLAIMS_BELIEVED:
            self._fail(LostLock(f"{claim}, aborting"))
        else:
            self._log.error(claim)

    def _fail(self, problem: LostLock) -> None:
        if not self._lost.done():
            self._lost.set_result(problem)


class StandbyServer:
    """A server of a fault tolerance group: it waits until it has the lease of the store, and is an ActiveServer then."""

    def __init__(
        self,
        config: Config,
        server_id: str,
        log: ServerLog,
        tell_state: Callable[[str], None],
        *,
        clock: Callable[[], Nanos] = boot_clock,
    ) -> None:
        """*tell_state* is called with each new state, FT_STANDBY or FT_ACTIVE."""
        self.generations = _store_generations(config)
        self.link = StandbyLink(config, server_id, self._on_message)
        self.lease: Lease | None = None
        self._active: ActiveServer | None = None
        self._config = config
        self._server_id = server_id
        self._log = log
        self._tell_state = tell_state
        self._clock = clock
        self._missed = round(limits.FT_MISSED_INTERVAL * Random().uniform(0.9, 1.1))
        self._last_message_at = clock()
        self._complaint = RepeatedLine(log, clock)

    async def run(self, urls: tuple[str, ...], stop: asyncio.Event, serve: Serve) -> None:
        """Take part in the group until *stop*; without *urls*, which no other server would share, there are no heartbeats.

        Raises:
            StartError. LostLock: this server was active and has lost the lease.
        """
        self._log.info("Starting in standby mode")
        self._tell_state(STANDBY)
        if urls:
            await self.link.open(urls, self._log.error)
        try:
            alone = await self._standby(stop)
            if self.lease is not None:
                self._log.info("Server is active")
                self._tell_state(ACTIVE)
                self._active = ActiveServer(
                    self._config, self._server_id, self._log, self.generations, self.link, self.lease
                )
                await self._active.run(serve, alone=alone)
        finally:
            self.generations.close()
            await self.link.close()

    async def _standby(self, stop: asyncio.Event) -> bool:
        """Wait until this server has the lease, or for *stop*; True if no other server can be writing to the store."""
        files = LeaseFiles(self.generations.leases)
        watch = LeaseWatch(files)
        while not stop.is_set():
            try:
                if await asyncio.to_thread(self._try, files, watch):
                    return watch.alone
            except (OSError, StanError) as problem:
                self._complaint.write(
                    f"ft: error attempting to get the store lock: ft: fatal error getting the store lock: {problem}"
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), limits.FT_LOOK_INTERVAL / SECOND)
        return False

    def _try(self, files: LeaseFiles, watch: LeaseWatch) -> bool:
        """Look at the lease once, and try to get it if no heartbeat has come for long enough; True if this server has it."""
        self.generations.make()
        files.make()
        now = self._clock()
        after = watch.look(now)
        if now - self._last_message_at < self._missed:
            return False
        if after is not None and self._clock() - now < limits.LEASE_RENEWAL:  # else the look took too long to count
            self.lease = Lease.acquire(files, after, self._server_id, self._clock)
        if self.lease is None:
            self._complaint.write("ft: unable to get store lock at this time, going back to standby")
        return self.lease is not None

    def _on_message(self, payload: bytes) -> None:
        """Handle a message of the group: a standby waits until none has come for a while."""
        self._last_message_at = self._clock()
        if self._active is not None:
            self._active.on_message(payload)
