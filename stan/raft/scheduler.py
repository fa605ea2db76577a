"""The turns of groups: soon after a message, a proposal or a sync (`wake`), and by timers. After a run, messages leave.

Promises: events that arrive together cost each group one turn, and their messages leave in one frame per peer; only timers wait
for a tick. An owner that has given its groups something to do may `run` them at once. Never polls. Each scheduler has one alarm.
"""

from collections.abc import Callable
from typing import Protocol

from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.invariant import invariant
from stan.raft.group import RaftGroup
from stan.raft.transport.mux import Mux


class SchedulerRuntime(Protocol):
    """Time and a next turn. Callbacks never come from inside the call that sets them."""

    def now(self) -> Nanos:
        """Monotonic time."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call when the event loop has read its sockets."""

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces an earlier alarm."""


class Timetable:
    """Turns that come by time: those of all groups at the next tick, and those requested by single groups before it. Pure."""

    def __init__(self) -> None:
        self.tick_at = Nanos(0)
        self.alarm_at = Nanos(0)  # time for which the alarm is set
        self.requested: dict[GroupId, Nanos] = {}  # times of turns that single groups have requested

    def request(self, number: GroupId, due: Nanos) -> bool:
        """Request a turn of the group at *due*.

        Returns True if that is before the alarm: `alarm_at` is now *due*, and the owner has to set the alarm again."""
        self.requested[number] = due
        if due >= self.alarm_at:
            return False
        self.alarm_at = due
        return True

    def drop(self, number: GroupId) -> None:
        """Withdraw the group's request: it needs no turn before the next tick."""
        self.requested.pop(number, None)

    def due(self, now: Nanos) -> set[GroupId]:
        """Return the groups whose requested turn is due, and set `alarm_at`: to the next tick, or the first turn requested for
        later than *now*."""
        ready, self.alarm_at = set(), self.tick_at
        for number, due in self.requested.items():
            if due <= now:
                ready.add(number)
            elif due < self.alarm_at:
                self.alarm_at = due
        return ready


class Owner:
    """The owner of the groups, as the scheduler sees it: the groups that it has to look at, and whether it is about to."""

    def __init__(self, news: Callable[[], None]) -> None:
        self.news = news  # called after a run outside of its turns in which a group got work for it
        self.touched: set[GroupId] = set()  # groups that had a turn; the owner removes those that it has looked at
        self.has_news = False  # a group has work for it (`RaftGroup.take_news`); the owner resets it
        self.runs = False  # it is in a turn of its own, and runs the groups itself

    def touch(self, number: GroupId) -> None:
        """Note that the owner has to look at the group."""
        self.touched.add(number)
        self.has_news = True


class Scheduler:
    """The groups of one node.

    The constructor's callbacks: *news* is that of the `Owner`; *crashed* gets an exception that must end the process, after which
    there are no more turns."""

    def __init__(
        self, runtime: SchedulerRuntime, *, news: Callable[[], None], crashed: Callable[[BaseException], None]
    ) -> None:
        self.groups: dict[GroupId, RaftGroup] = {}
        self._runtime = runtime
        self.owner = Owner(news)
        self._crashed = crashed
        self._mux: Mux | None = None
        self.speaks: set[str] = set()  # peers to which a frame may have to leave
        self.dirty: set[GroupId] = set()  # groups that take a turn in the next run
        self._timetable = Timetable()
        self._scheduled = False
        self._running = False
        self._stopped = False

    def start(self, mux: Mux, groups: list[RaftGroup]) -> None:
        """Add the groups and begin to tick."""
        self._mux, self.speaks = mux, mux.speaks
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
        self.owner.touch(number)
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
            if not self.owner.runs:
                self.schedule()

    def schedule(self) -> None:
        """Run soon, if only to let messages leave."""
        if not (self._scheduled or self.owner.runs or self._stopped):
            self._scheduled = True
            self._runtime.soon(self._run_scheduled)

    def end_turn(self) -> None:
        """End the owner's turn: schedule a run for events after the owner's last one."""
        self.owner.runs = False
        if self.dirty or self.speaks:
            self.schedule()

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run a turn of each group in `dirty` now, and let their messages leave. Does nothing if called from inside a run."""
        if self._running or self._stopped or self._mux is None or not (self.dirty or self.speaks):
            return
        self._running, owner = True, self.owner
        try:
            dirty, self.dirty, requested = self.dirty, set(), self._timetable.requested
            owner.touched |= dirty
            news = False
            for number in sorted(dirty & self.groups.keys()):
                group = self.groups[number]
                due = group.turn()
                if due is None:
                    requested.pop(number, None)
                elif requested.get(number) != due and self._timetable.request(number, due):
                    self._set_alarm()
                news |= group.take_news()
            owner.has_news |= news
            self._mux.flush()
        except BaseException as error:  # noqa: BLE001 - see _fail
            self._fail(error)
            return
        finally:
            self._running = False
        if news and not owner.runs:
            owner.news()

    def heartbeat_if_due(self) -> None:
        """Let heartbeats leave if they are due: the owner is busy for long, and reads no messages."""
        if self._runtime.now() >= self._timetable.tick_at and not self._running:
            self._on_alarm(reads_nothing=True)
            self.run()

    def _set_alarm(self) -> None:
        self._runtime.alarm(self._timetable.alarm_at, self._on_alarm)

    def _on_alarm(self, *, reads_nothing: bool = False) -> None:
        """Handle the alarm: tick all groups if a tick is due, and schedule a run with the turns that are due."""
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
        self._set_alarm()
        self.schedule()

    def _fail(self, error: BaseException) -> None:
        """Run no more turns, and report an exception that left a group. Groups freeze for failures that the process survives."""
        self._stopped = True
        self._crashed(error)
