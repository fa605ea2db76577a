"""When groups run: soon after something happened to them, and all of them when the ticker rings. Then what they said leaves.

Promises: work that arrives together is done in one turn and leaves in one frame per peer; nothing waits for a tick but timers.
An owner that has just given its groups something to do may `run` them at once. Never polls. Each scheduler has one alarm.
"""

from collections.abc import Callable
from typing import Protocol

from stan import limits
from stan.invariant import invariant
from stan.raft.group import RaftGroup
from stan.raft.transport.mux import Mux
from stan.types import GroupId, Nanos


class SchedulerRuntime(Protocol):
    """Time and a next turn. Callbacks never come from inside the call that asked for them."""

    def now(self) -> Nanos:
        """Monotonic time."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call once the sockets were looked at."""

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces the alarm that was set before."""


class Scheduler:
    """The groups of one node. `news` tells the owner that a group has something for it; `crashed` gets what nothing survives."""

    def __init__(
        self, runtime: SchedulerRuntime, *, news: Callable[[], None], crashed: Callable[[BaseException], None]
    ) -> None:
        self.groups: dict[GroupId, RaftGroup] = {}
        self._runtime = runtime
        self._news = news
        self._crashed = crashed
        self._mux: Mux | None = None
        self.touched: set[GroupId] = set()  # groups that had a turn; the owner takes out those that it has looked at
        self.dirty: set[GroupId] = set()  # groups whose turn comes with the next run
        self._requested_turns: dict[GroupId, Nanos] = {}  # groups that want a turn before the next tick, and when
        self._tick_at = Nanos(0)
        self._alarm_at = Nanos(0)
        self._scheduled = False
        self._running = False
        self._owner_runs = False
        self._stopped = False

    def start(self, mux: Mux, groups: list[RaftGroup]) -> None:
        """Take the groups in and begin to tick."""
        self._mux = mux
        for group in groups:
            self.add(group)
        self._on_alarm()

    def add(self, group: RaftGroup) -> None:
        """Another group takes part, perhaps in the place of one that was removed. Only after `start`."""
        mux = self._mux
        invariant(mux is not None, "turns have begun", group=group.group)
        if mux is not None:
            self.groups[group.group] = group
            mux.attach(group.group, group)
            self.wake(group)

    def remove(self, number: GroupId) -> RaftGroup:
        """A group takes part no more; who waits for it is told so. Returns it."""
        if self._mux is not None:
            self._mux.detach(number)
        self.dirty.discard(number)
        self._requested_turns.pop(number, None)
        group = self.groups.pop(number)
        group.close()
        return group

    def stop(self) -> None:
        """No more turns."""
        self._stopped = True

    def wake(self, group: RaftGroup) -> None:
        """Run a turn of the group soon."""
        if self.groups.get(group.group) is group:
            self.dirty.add(group.group)
            self.schedule()

    def schedule(self) -> None:
        """Run a turn soon, if only to let something leave."""
        if not (self._scheduled or self._owner_runs or self._stopped):
            self._scheduled = True
            self._runtime.soon(self._run_scheduled)

    def begin_turn(self) -> None:
        """The owner will `run` before it lets go: nothing has to be scheduled meanwhile."""
        self._owner_runs = True

    def end_turn(self) -> None:
        """See `begin_turn`; what came after the last run comes soon."""
        self._owner_runs = False
        if self.dirty or (self._mux is not None and self._mux.speaks):
            self.schedule()

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run the groups that something happened to, now, and let what they said leave. Inside a run nothing happens."""
        if self._running or self._stopped or self._mux is None or not (self.dirty or self._mux.speaks):
            return
        self._running = True
        try:
            dirty, self.dirty = self.dirty, set()
            self.touched |= dirty
            news = False
            for number in sorted(dirty & self.groups.keys()):
                group = self.groups[number]
                self._request_turn(number, group.turn())
                news |= group.take_news()
            self._mux.flush()
        except BaseException as error:  # noqa: BLE001 - see _fail
            self._fail(error)
            return
        finally:
            self._running = False
        if news:
            self._news()

    def heartbeat_if_due(self) -> None:
        """The owner does something long, and reads nothing: let heartbeats leave meanwhile, if they are due."""
        if self._runtime.now() >= self._tick_at and not self._running:
            self._on_alarm(reads_nothing=True)
            self.run()

    def _request_turn(self, number: GroupId, due: Nanos | None) -> None:
        """The group wants a turn at *due*, or waits for the next tick."""
        if due is None:
            self._requested_turns.pop(number, None)
            return
        self._requested_turns[number] = due
        if due < self._alarm_at:
            self._alarm(due)

    def _alarm(self, at: Nanos) -> None:
        self._alarm_at = at
        self._runtime.alarm(at, self._on_alarm)

    def _on_alarm(self, *, reads_nothing: bool = False) -> None:
        """The alarm: a tick, or what cannot wait for it."""
        if self._stopped or self._mux is None:
            return
        now = self._runtime.now()
        try:
            if now >= self._tick_at:
                self._tick_at = Nanos(now + limits.RAFT_TICK_INTERVAL)
                self._mux.tick(reads_nothing=reads_nothing)
                self.dirty |= {number for number, group in self.groups.items() if group.tick(now)}
            self.dirty |= {number for number, due in self._requested_turns.items() if due <= now}
        except BaseException as error:  # noqa: BLE001 - see _fail
            self._fail(error)
        later = [due for due in self._requested_turns.values() if due > now]
        self._alarm(min([self._tick_at, *later]))
        self.schedule()

    def _fail(self, error: BaseException) -> None:
        """A broken invariant stops the process, it is not survived."""
        self._stopped = True
        self._crashed(error)
