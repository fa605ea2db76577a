"""Pending messages of a position, as a running server tells them to a client that resumes it, and as its pages count them."""

import contextlib
import http.server
import json
import threading
from types import SimpleNamespace

import pytest

from stan.cli.commands import old_server
from stan.cli.commands.old_server import OldServer, RunningPosition

POSITION = RunningPosition("orders", "shop", "ledger", "", 100, 3, 10, 30, ())


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(old_server, "PROBE_S", 0.05)
    monkeypatch.setattr(old_server, "PROBE_POLL_S", 0.01)


@contextlib.contextmanager
def pages(subscriptions):
    """A server whose page of channels lists these subscriptions."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = {"name": "orders", "msgs": 100, "bytes": 1, "first_seq": 1, "last_seq": 100}
            body = json.dumps({**found, "subscriptions": subscriptions}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Client:
    """Gets these sequences when it subscribes."""

    def __init__(self, *sequences):
        self.sequences = sequences

    async def subscribe(self, _channel, callback, **_options):
        callback([SimpleNamespace(sequence=sequence) for sequence in self.sequences])
        return self

    async def close(self):
        pass


async def owed(subscriptions, *sequences):
    with pages(subscriptions) as url:
        return await OldServer("nats://127.0.0.1:1", (url,), "test-cluster").pending(POSITION, Client(*sequences))


def durable(pending):
    known = {"client_id": "shop", "durable_name": "ledger", "is_durable": True, "is_offline": False}
    return {**known, "last_sent": 100, "pending_count": pending, "max_inflight": 10, "ack_wait": 30}


async def test_all_that_is_pending_has_come():
    assert await owed([durable(3)], 5, 17, 90) == ({5, 17, 90}, True)


async def test_less_is_pending_once_limits_have_removed_some():
    assert await owed([durable(2)], 5, 17) == ({5, 17}, True)


async def test_what_did_not_come_again_counts_as_pending_from_the_first_on():
    assert await owed([durable(3)], 40, 50) == (set(range(40, 101)), False)


async def test_all_counts_as_pending_if_nothing_came_again():
    assert await owed([durable(3)]) == (set(range(1, 101)), False)


async def test_a_page_without_the_position_is_no_sign_that_nothing_is_pending():
    assert await owed([], 40) == (set(range(40, 101)), False)
    assert await owed([]) == (set(range(1, 101)), False)
