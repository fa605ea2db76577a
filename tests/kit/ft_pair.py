"""Two real servers of a fault tolerance group over one store and one nats-server, for tests."""

import asyncio
import signal
import urllib.error
import urllib.request

from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, READY, NatsServer, StanServer, until

STANDBY = "Starting in standby mode"


class Member(StanServer):
    """A server of the group, with monitoring pages."""

    def __init__(self, directory, store, nats, kind):
        directory.mkdir(exist_ok=True)
        self.http = free_port()
        where = "-dir" if kind == "FILE" else "-sql_source"
        flags = ("-ft_group", "pair", where, str(store), "-m", str(self.http))
        super().__init__(directory, *flags, store=kind, nats_url=nats.url)

    @property
    def serves(self):
        """Whether clients are served."""
        return READY in self.log_since_start()

    def status(self, path):
        """Status of a page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=20) as found:
                return found.status
        except urllib.error.HTTPError as error:
            return error.code

    def text(self, path):
        """Text of a page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=20) as found:
            return found.read().decode()


class Pair:
    """Two members, the first one active; what the load talks to."""

    def __init__(self, directory, kind="FILE"):
        """*kind* of the store: FILE or SQL."""
        self.nats = NatsServer(directory)
        self.store = directory / "shared"
        self.members = [Member(directory / name, self.store, self.nats, kind) for name in "ab"]
        self.url, self.cluster_id = self.nats.url, CLUSTER_ID

    @property
    def running(self):
        return any(member.running for member in self.members)

    def log(self):
        return "\n".join(member.log() for member in self.members)

    def start(self):
        """The first is active, the other one its standby."""
        first, second = self.members
        first.start()
        second.launch()
        until(lambda: STANDBY in second.log_since_start(), why=self.log)

    def await_takeover(self, by):
        """Until a member serves."""
        until(lambda: by.serves or not by.running, why=self.log)
        assert by.serves, self.log()

    async def replace(self, load, active, standby, number):
        """Send *active* a signal and wait until *standby* has taken over; *load* may miss what came meanwhile."""
        active.signal(number)
        load.crashed()
        await asyncio.to_thread(self.await_takeover, standby)
        load.crashed()

    def end(self):
        for member in self.members:
            if member.running:
                member.signal(signal.SIGCONT)
                member.signal(signal.SIGKILL)
            member.sweep()
        self.nats.kill()
