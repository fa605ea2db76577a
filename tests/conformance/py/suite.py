"""Runs the published Python client's own tests over the `stan.aio.client` that is there.

`suite.py CHECKOUT SERVER REPORT [TEST]`: the URL of a NATS with a streaming server, and the file for the names of the tests that
fail. The tests are of 2019: for them, and for nothing that they test, asyncio takes the loop again, and a connection of nats-py
ends with a `with`, and makes its subscription for answers at once, which they count. A client that overrides what answers
heartbeats or looks at pings, both with names of the original's inside, gets that.
"""

import asyncio
import functools
import sys
import unittest
from pathlib import Path


def of_its_time(call):
    """A function of asyncio that is told the loop, and takes no notice."""

    @functools.wraps(call, updated=())
    def called(*args, loop=None, **kwargs):
        return call(*args, **kwargs)

    return called


for name in ("sleep", "wait_for"):
    setattr(asyncio, name, of_its_time(getattr(asyncio, name)))

import nats  # noqa: E402 - looks at asyncio when it is imported
from nats.aio.client import Client as Nats  # noqa: E402
from stan.aio.client import Client  # noqa: E402
from stan_client.transport.session import HEARTBEAT, PING  # noqa: E402

CHECKOUT, SERVER, REPORT = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
sys.path.insert(0, str(CHECKOUT))

from tests import client_test, utils  # noqa: E402 - the suite's, not ours

connect_nats, connect_stan = Nats.connect, Client.connect


async def connect(self, servers=SERVER, **options):
    await connect_nats(self, servers, **options)
    await self._init_request_sub()
    self.loop_then = asyncio.get_running_loop()


def enter(self):
    return self


def leave(self, *_error):
    self.closing = self.loop_then.create_task(self.close())


async def connect_as_overridden(self, *args, **options):
    await connect_stan(self, *args, **options)
    for name, token in (("_process_heartbeats", HEARTBEAT), ("_process_ping_response", PING)):
        if hasattr(type(self), name):
            self._session.inbox._takers[token] = lambda _frame: None  # what the suite overrides does nothing


async def connected(**options):
    made = Nats()
    await made.connect(**options)
    return made


Nats.connect, Nats.__enter__, Nats.__exit__, nats.connect = connect, enter, leave, connected
Client.connect = connect_as_overridden


class Server:
    """In the place of the server that the suite starts for each test: one runs already."""

    def __init__(self, **_options):
        self.proc = None

    def start(self):
        """Nothing to do."""

    def stop(self):
        """Nothing to do."""


utils.StanServer, utils.start_nats_streaming = Server, Server.start
client_test.start_nats_streaming = Server.start

(only,) = sys.argv[4:] or [""]
found = unittest.TestSuite(
    test
    for case in (client_test.ClientTest, client_test.SubscriptionsTest)
    for test in unittest.defaultTestLoader.loadTestsFromTestCase(case)
    if test.id().endswith(only)
)
result = unittest.TextTestRunner(stream=sys.stderr).run(found)
failed = [test.id().rpartition(".")[2] for test, _why in (*result.failures, *result.errors)]
REPORT.write_text("\n".join([str(result.testsRun), *failed]), encoding="utf-8")
