"""The loop that carries out what the broker decides, in the one order that keeps its promises.

    read → step → committed → Ready → trims → write proposals → send → fetch        (a turn)
                      ▲                          │
                      └── sync, off the loop ────┘

A turn never awaits. It runs when something arrived, a sync is done, or a deadline has come; everything that arrived since
the last turn is handled in one.
"""

import asyncio
import time
from collections.abc import Mapping
from itertools import groupby

from stan import limits
from stan.core.broker import Broker
from stan.core.ready import Fetch, Fetched, Proposal, Ready
from stan.edge.disk import Disk
from stan.edge.gateway import Gateway
from stan.edge.log import ServerLog
from stan.errors import NotNow, StanError
from stan.log.types import BatchRef, GroupLog, StaleRef
from stan.raft.consensus import Consensus
from stan.types import GroupId, Nanos, Sequence, WallNanos

ROUNDS_PER_TURN = 8
"""Rounds of commit and Ready inside one turn; what is left goes on in the next, after the sockets were looked at."""


FETCH_ATTEMPTS = 3
"""Look-ups of one read before it is called failed."""


class Driver:
    """One node's loop."""

    def __init__(self, broker: Broker, groups: Mapping[GroupId, Consensus], log: ServerLog) -> None:
        self.broker = broker
        self.groups = groups
        self.log = log
        self.disk = Disk(len(groups), self._synced, self._sync_failed)
        self.applied: dict[GroupId, tuple[int, int]] = {}  # index, term
        self.frozen: dict[GroupId, str] = {}
        self.gateway: Gateway
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._down_since = 0
        self._stopped = False
        self._pong_tasks: set[asyncio.Task[None]] = set()
        self.crash: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """Run a turn soon."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._turn_safely)

    def stop(self) -> None:
        """No more turns."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # --- the turn -------------------------------------------------------------------------------------------------------

    def _turn_safely(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            self.turn()
        except BaseException as error:  # noqa: BLE001 - a broken invariant stops the process, it is not survived
            self._stopped = True
            if not self.crash.done():
                self.crash.set_exception(error)

    def turn(self) -> None:
        """Handle everything that arrived."""
        broker, gateway = self.broker, self.gateway
        broker.tick(self._now(), self._wall())
        self._connection_changes()
        pongs = gateway.take_in()
        for _ in range(pongs):
            task = self._loop.create_task(gateway.connection.pong())
            self._pong_tasks.add(task)
            task.add_done_callback(self._pong_tasks.discard)
        for _ in range(ROUNDS_PER_TURN):
            self._commit()
            room = limits.OUTBOUND_BYTES_HIGH - gateway.connection.unsent
            ready = broker.ready(self._now(), self._wall(), room)
            self._carry_out(ready)
            if not (broker.hungry and room > 0) and not any(g.has_committed for g in self.groups.values()):
                break
        else:
            self.wake()
        for group in self.groups.values():
            if group.wants_sync:
                self.disk.sync(group)
        self._set_timer(ready.deadline)
        gateway.connection.hold_reading(broker.publishing.uncommitted_bytes > limits.UNCOMMITTED_BYTES_MAX)

    def _connection_changes(self) -> None:
        gateway = self.gateway
        if gateway.went_down:
            gateway.went_down = False
            if not self._down_since:
                self._down_since = self._now()
                self.log.warning("Connection to NATS lost")
                self.broker.step_disconnected()
        if gateway.went_up and gateway.connection.up:
            gateway.went_up = False
            if self._down_since:
                away = self._now() - self._down_since
                self._down_since = 0
                self.log.info(f"Connection to NATS is back after {away / 1e9:.3f}s")
                self.broker.step_reconnected(away)

    def _commit(self) -> None:
        for number, group in self.groups.items():
            entries = group.take_committed()
            if not entries:
                continue
            group.log.commit(entries[-1].index)
            for entry in entries:
                self.broker.step_committed(number, entry.index, entry.kind, entry.body)
            self.applied[number] = (entries[-1].index, entries[-1].term)

    def _carry_out(self, ready: Ready) -> None:
        for level, text in ready.notes:
            self.note(level, text)
        for number, uid, first in ready.trims:
            self.groups[number].log.trim(uid, first)
        for number, uid in ready.drops:
            self.groups[number].log.drop(uid)
        for (number, urgent), proposals in groupby(ready.proposals, key=lambda p: (p.group, p.urgent)):
            self._propose(number, list(proposals), urgent=urgent)
        self.gateway.send(ready.sends)
        for fetch in ready.fetches:
            self._fetch(fetch)

    def _propose(self, number: GroupId, proposals: list[Proposal], *, urgent: bool) -> None:
        try:
            first = self.groups[number].propose([(p.kind, p.body) for p in proposals], urgent=urgent)
        except NotNow as error:
            why = str(error)
            if self.frozen.get(number) != why:
                self.frozen[number] = why
                self.log.error(f"group {number}: {why}")
            for proposal in proposals:
                self.broker.refused(proposal, f"stan: {why}")
            return
        self.frozen.pop(number, None)
        for at, proposal in enumerate(proposals):
            self.broker.written(proposal, type(first)(first + at))

    # --- reads ------------------------------------------------------------------------------------------------------------

    def _fetch(self, fetch: Fetch, attempt: int = 1) -> None:
        log = self.groups[fetch.group].log
        refs = refs_of(log, fetch)
        batches = from_memory(log, refs)
        if batches is not None:
            self.broker.step_fetched(fetch, batches)
            return
        future = self._loop.run_in_executor(self.disk.readers, read_batches, log, refs)
        future.add_done_callback(lambda done: self._fetched(fetch, attempt, done))

    def _fetched(self, fetch: Fetch, attempt: int, done: "asyncio.Future[list[Fetched]]") -> None:
        if self._stopped:
            return
        try:
            batches = done.result()
        except StaleRef:  # the segment was rewritten or removed meanwhile: look it up again
            if attempt < FETCH_ATTEMPTS:
                self._fetch(fetch, attempt + 1)
            else:
                self.broker.step_fetch_failed(fetch, "the log changes faster than it can be read")
        except (OSError, StanError) as error:
            self.broker.step_fetch_failed(fetch, str(error))
        else:
            self.broker.tick(self._now(), self._wall())
            self.broker.step_fetched(fetch, batches)
        self.wake()

    def apply_committed(self) -> None:
        """Take what the last sync committed into the replicated state, without answering anybody: on the way out."""
        self._commit()

    # --- syncs and time -----------------------------------------------------------------------------------------------

    def _synced(self, group: Consensus) -> None:
        if group.wants_sync:
            self.disk.sync(group)
        self.wake()

    def _sync_failed(self, group: Consensus, why: str) -> None:
        self.log.error(
            f"group {group.group}: cannot make the log durable ({why}); nothing more is acknowledged from it"
        )
        self.wake()

    def _set_timer(self, deadline: Nanos | None) -> None:
        if deadline is None or (self._timer is not None and self._timer_at == deadline and not self._timer.cancelled()):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, (deadline - self._now()) / 1e9), self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        self.wake()

    def note(self, level: str, text: str) -> None:
        """A line of the broker for the log."""
        {"INF": self.log.info, "WRN": self.log.warning, "ERR": self.log.error, "DBG": self.log.debug}[level](text)

    def _now(self) -> Nanos:
        return Nanos(time.monotonic_ns())

    def _wall(self) -> WallNanos:
        return WallNanos(time.time_ns())


def refs_of(log: GroupLog, fetch: Fetch) -> list[BatchRef]:
    """Where the batches of *fetch* lie; bounded in bytes and number."""
    index = log.channel(fetch.uid)
    refs: list[BatchRef] = []
    size = 0
    for first, last in fetch.runs:
        for ref in index.refs(
            Sequence(first), Sequence(last), fetch.bytes_max - size, limits.BATCHES_PER_READ_MAX - len(refs)
        ):
            if refs and refs[-1].base_sequence >= ref.base_sequence:
                continue
            refs.append(ref)
            size += ref.length
        if size >= fetch.bytes_max or len(refs) >= limits.BATCHES_PER_READ_MAX:
            break
    return refs


def from_memory(log: GroupLog, refs: list[BatchRef]) -> list[Fetched] | None:
    """The batches if all of them are in memory; None if the disk has to be read."""
    batches = []
    for ref in refs:
        records = log.recent(ref)
        if records is None:
            return None
        batches.append(Fetched(ref.base_sequence, ref.count, records))
    return batches


def read_batches(log: GroupLog, refs: list[BatchRef]) -> list[Fetched]:
    """Read from the disk; runs in a worker thread."""
    return [Fetched(ref.base_sequence, ref.count, log.read(ref)) for ref in refs]
