"""The monitoring pages and the metrics of prometheus-nats-exporter, compared with those of NATS Streaming Server 0.25.6.

What the original answers after the same few requests is in `tests/fixtures/stan-monitoring`; with STAN_ORIGINAL the fixture
itself is compared with the original.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
import stan_client

from tests.kit.original import ORIGINAL, needs_original
from tests.kit.ports import free_port
from tests.kit.server import COMMAND, StanServer, until

FIXTURES = Path(__file__).parents[1] / "fixtures" / "stan-monitoring"
PAGES = FIXTURES / "pages-0.25.6.json"
EXPORTED = FIXTURES / "exporter-0.13.0.prom"
VOLATILE = {"server_id", "now", "start_time", "uptime", "go", "open_fds", "max_fds", "inbox", "ack_inbox", "hb_inbox"}
"""Fields whose values differ from start to start."""

WINDOW = ("", "limit=1", "offset=1", "offset=1&limit=1", "offset=100", "offset=-1", "limit=0", "limit=-5", "limit=abc")
ODD_NUMBERS = (
    "offset=x",
    "limit=%2B1",
    "limit=1.5",
    "limit=0x1",
    "limit=1_0",
    "limit=%201",
    "limit=%D9%A1",
    "limit=1&limit=2",
)
BEYOND = ("limit=9223372036854775807", "limit=99999999999999999999")
SUBS = ("subs=1", "subs=0", "subs=true", "subs=x", "offset=1&limit=1&subs=1", "offset=100&subs=1")
OF_CLIENT = ("client=me", "client=me&subs=1", "client=nobody", "client=")
OF_CHANNEL = (
    *("channel=foo", "channel=foo&subs=1", "channel=bar.baz&subs=1", "channel=bar.*", "channel=a%3Cb%26c", "channel="),
    *("channel=nope", "channel=no%3Cx%3E", "limit=1&x=%zz", "callback=cb"),
)
ASKED = [
    *(
        "GET /streaming/serverz",
        "HEAD /streaming/serverz",
        "POST /streaming/serverz",
        "GET /streaming/serverz?callback=cb",
    ),
    *("GET /streaming/storez", "GET /streaming/isFTActive", "GET /streaming/nope", "GET /streaming/serverz/"),
    *(f"GET /streaming/clientsz?{query}" for query in (*WINDOW, *ODD_NUMBERS, *BEYOND, *SUBS, *OF_CLIENT)),
    *(f"GET /streaming/channelsz?{query}" for query in (*WINDOW, *ODD_NUMBERS, *BEYOND, *SUBS, *OF_CHANNEL)),
]


class Asked(StanServer):
    """A server with a monitoring port."""

    def __init__(self, directory: Path, command: tuple[str, ...]) -> None:
        self.http = free_port()
        super().__init__(directory, "-m", str(self.http), command=command)

    def ask(self, method: str, path: str) -> tuple[int, str, str]:
        """Status, content type and body; redirects are not followed."""
        connection = HTTPConnection("127.0.0.1", self.http, timeout=20)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        finally:
            connection.close()

    def page(self, path: str) -> dict:
        """A page as JSON."""
        return json.loads(self.ask("GET", path)[2])


def in_order(page: object) -> object:
    """A page without what differs from start to start; members of queue groups come in any order."""
    if isinstance(page, list):
        each = [in_order(one) for one in page]
        return (
            sorted(each, key=json.dumps) if any("ack_inbox" in one for one in page if isinstance(one, dict)) else each
        )
    if isinstance(page, dict):
        return {name: type(value).__name__ if name in VOLATILE else in_order(value) for name, value in page.items()}
    return page


def comparable(answer: tuple[int, str, str]) -> list:
    """An answer, its body as JSON where it is some; lists keep the order of the fields."""
    status, kind, body = answer
    call = re.fullmatch(r"(cb\()?(\{.*\})(\))?", body, re.DOTALL)
    if call is None:
        return [status, kind, body]
    return [status, kind, call[1] or "", json.dumps(in_order(json.loads(call[2]))), call[3] or ""]


async def use(server: Asked, clients: AsyncExitStack) -> None:
    """Make three channels and five subscriptions, one of them offline; the server is still when this returns."""
    me, other = [
        await clients.enter_async_context(await stan_client.connect(server.url, client_id=name))
        for name in ("me", "other-1")
    ]
    for channel in ("foo", "bar.baz", "a<b&c"):
        await me.publish_many(channel, [b"x" * 10] * 5)
    start = stan_client.everything()
    plain = await me.subscribe("foo", start=start, manual_acks=True)
    await me.subscribe("foo", start=start, manual_acks=True, durable="dur", max_in_flight=3)
    await me.subscribe("foo", start=start, manual_acks=True, queue="q", max_in_flight=2)
    await other.subscribe("foo", start=start, manual_acks=True, queue="q", durable="qd", max_in_flight=5)
    closed = await other.subscribe("bar.baz", start=start, manual_acks=True, durable="off")
    for _ in range(4):
        await (await anext(plain)).ack()
    await anext(closed)
    await closed.close()

    def still() -> bool:
        page, totals = server.page("/streaming/channelsz?subs=1"), server.page("/streaming/serverz")
        pending = [one["pending_count"] for channel in page["channels"] for one in channel.get("subscriptions", ())]
        return sorted(pending) == [1, 2, 3, 5, 5] and totals["out_msgs"] == 20

    await asyncio.to_thread(until, still, why=lambda: server.ask("GET", "/streaming/channelsz?subs=1")[2])


async def used(directory: Path, command: tuple[str, ...]) -> dict[str, list]:
    """The answers of a server of *command*, and its metrics under the exporter's names."""
    with Asked(directory, command) as server:
        async with AsyncExitStack() as clients:
            await use(server, clients)
            found = {asked: comparable(await asyncio.to_thread(server.ask, *asked.split(" ", 1))) for asked in ASKED}
            found["metrics"] = (await asyncio.to_thread(server.ask, "GET", "/metrics?legacy=nss"))[2].splitlines()
            return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    return asyncio.run(used(tmp_path_factory.mktemp("ours"), COMMAND))


@pytest.fixture(scope="module")
def theirs() -> dict[str, list]:
    return json.loads(PAGES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("asked", ASKED)
def test_page_is_that_of_the_original(ours, theirs, asked):
    assert ours[asked] == theirs[asked]


@needs_original
async def test_fixture_is_what_the_original_answers(theirs, tmp_path):
    found = await used(tmp_path, (ORIGINAL,))
    assert {asked: found[asked] for asked in ASKED} == theirs


def samples(lines: list[str]) -> tuple[dict[str, float], dict[str, str]]:
    """Values by name and labels, and types by name; addresses, inboxes and the version of the language are left out."""
    values, types = {}, {}
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("#"):
            text = re.sub(r'(server_id|inbox|go_version|start_time)="[^"]+"', r'\1="…"', line)
            name, _, value = text.rpartition(" ")
            values[name] = float(value)
    return values, types


def test_metrics_are_those_of_the_exporter(ours):
    """Names, labels and values of the exporter beside the original, after the same load; types, where the library has them."""
    values, types = samples(ours["metrics"])
    expected, kinds = samples(EXPORTED.read_text(encoding="utf-8").splitlines())
    assert values == expected
    without_total = {name: "gauge" for name, kind in kinds.items() if kind == "counter" and not name.endswith("_total")}
    assert types == kinds | without_total
