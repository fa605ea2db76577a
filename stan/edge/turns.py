"""When the driver runs its next turn: soon after something arrived, a sync ended or a deadline came. Never two at once.

What arrives until the turn begins is handled in it, so many events cost one turn.
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
        self.wanted = False  # the next turn has a reason besides what arrived
        self.stopped = False  # after `stop`, or after a crash: no more turns run
        self._scheduled = False

    def wake(self) -> None:
        """Run a turn soon."""
        self.wanted = True
        self.look()

    def look(self) -> None:
        """Something arrived: take it in soon; the turn ends early if nothing in it needs one."""
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._runtime.soon(self._run)

    def stop(self) -> None:
        """No more turns."""
        self.stopped = True

    def crash(self, error: BaseException) -> None:
        """No more turns: the error belongs to no group, so it ends the process."""
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
