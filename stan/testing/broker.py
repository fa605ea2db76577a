"""A broker of production code, in one life: driver, gateway, core, and a log that outlives it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stan_protocol.scalars import GroupId

from stan.config import Config, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.driver import Driver
from stan.edge.nats.gateway import Gateway
from stan.edge.serving.fetching import Fetching
from stan.edge.serving.log_requests import serve_log_requests
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.edge.turns import Turns
from stan.log.memorylog import MemoryLog
from stan.raft.solo import Solo
from stan.testing.loop import Loop, SimRuntime, run_now
from stan.testing.nats import NodePort, SimNats

if TYPE_CHECKING:
    from stan.log.types import GroupLog

NAME: Final = "broker"
CONFIG: Final = Config(store=StoreConfig(kind="file", directory=Path("simulated"), raft_groups=1))
"""Of a server with files, whose acks mean that a message is on its disk; the log in memory outlives the broker as a file does."""


class Medium:
    """The medium outlives a broker: it has the logs of its groups, from which the next broker makes its state again."""

    def __init__(self, groups: int = 1) -> None:
        self.logs: dict[GroupId, GroupLog] = {GroupId(n): MemoryLog(replayable=True) for n in range(groups + 1)}
        self.lives = 0


class SimulatedBroker:
    """A broker from its start to `kill`."""

    def __init__(self, loop: Loop, nats: SimNats, medium: Medium, note: Callable[[str, str], None]) -> None:
        """Make the state from the logs, and serve. *note*: gets level and text of a line for the operator."""
        medium.lives += 1
        logs = medium.logs
        storage = Storage(logs, _on_the_spot)
        inbox = f"_INBOX.{NAME}{medium.lives}.".encode()
        broker = Broker(CONFIG, lambda group, uid: logs[group].channel(uid), inbox)
        run_now(StateLoader(storage, broker).load())
        self._runtime = runtime = SimRuntime(loop)
        self._turns = turns = Turns(runtime, self._crashed)
        groups = {number: Solo(number, log, "always", turns.touched) for number, log in logs.items()}
        nuid = broker.view.nuid.decode()
        self.acks = f"_INBOX.{nuid}."
        """Beginning of the subjects to which clients send acks."""
        gateway = Gateway(broker, f"{self.acks}>", note)
        Driver(broker, groups, gateway, runtime, turns, applied=storage.applied, note=note)
        gateway.read_buffer.wake = turns.look
        Fetching(broker, groups, gateway, runtime, lambda _group: True)
        serve_log_requests(broker, groups, gateway, runtime, "")
        self.link = NodePort(nats, NAME, gateway.read_buffer)
        self.link.subscriptions = gateway.subscriptions.subjects
        gateway.connection = self.link
        broker.lead(runtime.now(), runtime.wall(), unconfirmed=storage.unconfirmed)
        self.link.connect()

    def kill(self) -> None:
        """End the process; what it has written stays."""
        self._runtime.dead = True
        self._turns.stop()
        self.link.cut()

    def _crashed(self, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            raise error


async def _on_the_spot(call: Callable[[], object]) -> object:
    return call()
