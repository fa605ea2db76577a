"""Fixtures of the conformance tests: one server for all, published clients of each language, a channel for each test."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.conformance.clients import Client, Program, c, javascript, python
from tests.conformance.wire import Session, Wire, speaking, unique
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer, StanServer, external_nats, stan_server

__all__ = ["external_nats", "stan_server"]

Connect = Callable[..., Client]


OWN_SERVER = frozenset({"cluster", "stan_server", "external_nats", "tmp_path"})
"""Tests with one of these fixtures start what they speak to; they need not run for each kind of the shared server."""


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Leave out what would run twice in the same way."""
    items[:] = [
        item
        for item in items
        if not (getattr(item, "callspec", None) and item.callspec.params.get("shared_server"))
        or OWN_SERVER.isdisjoint(item.fixturenames)
    ]


@pytest.fixture(scope="session")
def js_program() -> Program:
    return javascript()


@pytest.fixture(scope="session")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return c(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="session")
def py_program() -> Program:
    return python()


@pytest.fixture(params=["js", "c", "py"])
def program(request: pytest.FixtureRequest) -> Program:
    """The published client of one language after the other."""
    found: Program = request.getfixturevalue(f"{request.param}_program")
    return found


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StanCluster]:
    """One cluster for all tests of a module, over a nats-server that stays up."""
    directory = tmp_path_factory.mktemp("cluster")
    with NatsServer(directory) as nats, StanCluster(directory, "-mc", "0", nats=nats) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: StanCluster) -> StanCluster:
    """It, with all nodes running."""
    if one_cluster.down:
        one_cluster.start(*one_cluster.down)
    return one_cluster


POLICIES = """policies {
  ">" { max_deliver: 1000, backoff: ["1ms"], max_hold: "1h", window: adaptive, dead_letter: ".dlq", order: key }
}
"""
"""Each policy of delivery that changes nothing for clients which keep up; the messages of published clients have no keys."""


@pytest.fixture(scope="session", params=["", POLICIES], ids=["plain", "policies"])
def shared_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StanServer]:
    """A server with a FILE store that no test ends: one without policies of delivery, and one with them."""
    directory = tmp_path_factory.mktemp("server")
    (directory / "stan.conf").write_text(request.param)
    flags = ("-sc", str(directory / "stan.conf")) if request.param else ()
    with StanServer(directory, "-mc", "0", *flags) as server:  # a channel for each test
        yield server


_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A word that no other test uses, for channels, clients and groups."""
    return f"n{next(_numbers)}"


@pytest.fixture
def connect(program: Program, shared_server: StanServer, name: str) -> Iterator[Connect]:
    """Starts clients of *program* and waits until they are connected; ends them after the test."""
    clients: list[Client] = []
    numbers = itertools.count(1)

    def connecting(
        client_id: str | None = None,
        server: StanServer = shared_server,
        *,
        pings: tuple[int, int] = (5, 88),
        expect: str = "connected",
        language: Program = program,
    ) -> Client:
        client = Client(language, server.url, server.cluster_id, client_id or f"{name}-{next(numbers)}", pings)
        clients.append(client)
        client.wait(expect)
        return client

    yield connecting
    for client in clients:
        client.release()


@pytest.fixture
async def talk(server: StanServer) -> AsyncIterator[Wire]:
    """A NATS connection that speaks the protocol by hand, to the server of the module."""
    async with speaking(server.url) as talk:
        yield talk


@pytest.fixture
async def me(talk: Wire) -> Session:
    """A client that is connected on it."""
    return await talk.connect(unique("c"))
