"""When groups take turns: soon after a message, a proposal or a sync (`wake`), and by timers. After a run, messages leave.

Promises: events that arrive together cost each group one turn, and their messages leave in one frame per peer; only timers wait
for a tick. An owner that has given its groups something to do may `run` them at once. Never polls. Each scheduler has one alarm.
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
        """Call when the event loop has read its sockets."""

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces the alarm that was set before."""


class Timetable:
    """Turns that come by time: all groups' at the next tick, and those that single groups have requested before it. Pure."""

    def __init__(self) -> None:
        self.tick_at = Nanos(0)
        self.alarm_at = Nanos(0)  # time for which the alarm is set
        self._requested: dict[GroupId, Nanos] = {}  # groups that want a turn at a time of their own

    def request(self, number: GroupId, due: Nanos | None) -> bool:
        """The group wants a turn at *due*; with None it waits for the next tick.

        Returns True if that is before the alarm: `alarm_at` is now *due*, and the owner has to set the alarm again."""
        if due is None:
            self._requested.pop(number, None)
            return False
        self._requested[number] = due
        if due >= self.alarm_at:
            return False
        self.alarm_at = due
        return True

    def drop(self, number: GroupId) -> None:
        """The group wants no turn."""
        self._requested.pop(number, None)

    def due(self, now: Nanos) -> set[GroupId]:
        """Groups whose requested turn is due."""
        return {number for number, due in self._requested.items() if due <= now}

    def plan_alarm(self, now: Nanos) -> None:
        """Set `alarm_at` to the next tick or the first turn requested for later than *now*."""
        self.alarm_at = min([self.tick_at, *(due for due in self._requested.values() if due > now)])


class Scheduler:
    """The groups of one node.

    The constructor's callbacks: *news* is called after a run in which a group got something for the owner to do
    (`RaftGroup.take_news`); *crashed* gets an exception that must end the process, after which there are no more turns."""

    def __init__(
        self, runtime: SchedulerRuntime, *, news: Callable[[], None], crashed: Callable[[BaseException], None]
    ) -> None:
        self.groups: dict[GroupId, RaftGroup] = {}
        self._runtime = runtime
        self._news = news
        self._crashed = crashed
        self._mux: Mux | None = None
        self.touched: set[GroupId] = set()  # groups that had a turn; the owner removes those that it has looked at
        self.dirty: set[GroupId] = set()  # groups that take a turn in the next run
        self._timetable = Timetable()
        self._scheduled = False
        self._running = False
        self._owner_runs = False
        self._stopped = False

    def start(self, mux: Mux, groups: list[RaftGroup]) -> None:
        """Add the groups and begin to tick."""
        self._mux = mux
        for group in groups:
            self.add(group)
        self._on_alarm()

    def add(self, group: RaftGroup) -> None:
        """Add a group, perhaps in the place of one that was removed. Only after `start`."""
        mux = self._mux
        invariant(mux is not None, "turns have begun", group=group.group)
        if mux is not None:
            self.groups[group.group] = group
            mux.attach(group.group, group)
            self.wake(group)

    def remove(self, number: GroupId) -> RaftGroup:
        """Remove a group and close it, which calls back a hand-over that is under way. Returns the group."""
        if self._mux is not None:
            self._mux.detach(number)
        self.dirty.discard(number)
        self._timetable.drop(number)
        group = self.groups.pop(number)
        group.close()
        return group

    def stop(self) -> None:
        """Run no more turns."""
        self._stopped = True

    def wake(self, group: RaftGroup) -> None:
        """Run a turn of the group soon. Does nothing if the group was removed."""
        if self.groups.get(group.group) is group:
            self.dirty.add(group.group)
            self.schedule()

    def schedule(self) -> None:
        """Make a run soon, if only to let messages leave."""
        if not (self._scheduled or self._owner_runs or self._stopped):
            self._scheduled = True
            self._runtime.soon(self._run_scheduled)

    def begin_turn(self) -> None:
        """The owner's turn begins, in which it will `run` the groups itself: until `end_turn` no run is scheduled."""
        self._owner_runs = True

    def end_turn(self) -> None:
        """The owner's turn ends: schedule a run for what has come after the owner's last one."""
        self._owner_runs = False
        if self.dirty or (self._mux is not None and self._mux.speaks):
            self.schedule()

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run a turn of each group in `dirty` now, and let their messages leave. Does nothing if called from inside a run."""
        if self._running or self._stopped or self._mux is None or not (self.dirty or self._mux.speaks):
            return
        self._running = True
        try:
            dirty, self.dirty = self.dirty, set()
            self.touched |= dirty
            news = False
            for number in sorted(dirty & self.groups.keys()):
                group = self.groups[number]
                if self._timetable.request(number, group.turn()):
                    self._set_alarm()
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
        """Let heartbeats leave if they are due: the owner is busy with something long, and reads no messages meanwhile."""
        if self._runtime.now() >= self._timetable.tick_at and not self._running:
            self._on_alarm(reads_nothing=True)
            self.run()

    def _set_alarm(self) -> None:
        self._runtime.alarm(self._timetable.alarm_at, self._on_alarm)

    def _on_alarm(self, *, reads_nothing: bool = False) -> None:
        """The alarm rings: tick all groups if a tick is due, and schedule a run with the turns that are due."""
        if self._stopped or self._mux is None:
            return
        now, timetable = self._runtime.now(), self._timetable
        try:
            if now >= timetable.tick_at:
                timetable.tick_at = Nanos(now + limits.RAFT_TICK_INTERVAL)
                self._mux.tick(reads_nothing=reads_nothing)
                self.dirty |= {number for number, group in self.groups.items() if group.tick(now)}
            self.dirty |= timetable.due(now)
        except BaseException as error:  # noqa: BLE001 - see _fail
            self._fail(error)
        timetable.plan_alarm(now)
        self._set_alarm()
        self.schedule()

    def _fail(self, error: BaseException) -> None:
        """Run no more turns, and report an exception that left a group. Groups freeze for failures that the process survives."""
        self._stopped = True
        self._crashed(error)
