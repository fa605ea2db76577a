"""The times of the driver's turns: soon after an arrival, the end of a sync or a deadline. Never two at once.

A turn handles all arrivals before its beginning, so many events cost one turn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stan.edge.runtime import Runtime

if TYPE_CHECKING:
    from stan_protocol.scalars import GroupId

    from stan.raft.scheduler import Scheduler


class Turns:
    """The driver's turns, on the event loop of *runtime*. *crashed* is called with an error that ends the process."""

    def __init__(self, runtime: Runtime, crashed: Callable[[BaseException], None]) -> None:
        self._runtime = runtime
        self._crashed = crashed
        self.turn: Callable[[], None]  # of the driver
        self.scheduler: Scheduler | None = None  # of a cluster's groups, which run inside of the driver's turns
        self.touched: set[GroupId] = set()  # groups in which something may have changed; the others need no work
        self.needed = False  # the next turn has a reason besides arrivals
        self.stopped = False  # after `stop`, or after a crash: no more turns run
        self._scheduled = False

    def wake(self) -> None:
        """Run a turn soon."""
        self.needed = True
        self.look()

    def look(self) -> None:
        """Look at an arrival soon; the turn ends early if nothing in it needs one."""
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._runtime.soon(self._run)

    def stop(self) -> None:
        """Run no more turns."""
        self.stopped = True

    def crash(self, error: BaseException) -> None:
        """Run no more turns: the error belongs to no group, so it ends the process."""
        self.stopped = True
        self._crashed(error)

    def _run(self) -> None:
        self._scheduled = False
        if self.stopped:
            return
        if self.scheduler is not None:
            self.scheduler.owner.runs = True
        try:
            self.turn()
        except BaseException as error:  # noqa: BLE001 - an error outside of any group ends the process
            self.crash(error)
        finally:
            if self.scheduler is not None:
                self.scheduler.end_turn()
