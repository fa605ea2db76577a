"""Fixtures of the conformance tests: one server for all, published clients of each language, a channel for each test."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.conformance.clients import Client, Program, c, javascript, python
from tests.conformance.wire import Session, Wire, speaking, unique
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer, StanServer, external_nats

__all__ = ["external_nats"]

Connect = Callable[..., Client]


OWN_SERVER = frozenset({"external_nats", "tmp_path", "small_server", "compressing_server"})
"""Tests with one of these fixtures start what they speak to; they need not run with and without policies."""


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Leave out what would run twice in the same way."""
    items[:] = [
        item
        for item in items
        if not (getattr(item, "callspec", None) and item.callspec.params.get("policies"))
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


POLICIES = """policies {
  ">" {
    max_deliver: 1000, backoff: ["1ms"], max_hold: "1h", window: adaptive, dead_letter: ".dlq", order: key
    compress: zstd, compact: last, min_age: "0s"
  }
}
"""
"""Each policy that changes nothing for clients which keep up; the messages of published clients have no keys."""


@pytest.fixture(scope="session", params=["", POLICIES], ids=["plain", "policies"])
def policies(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Flags of a server: none, and those that give it all policies."""
    if not request.param:
        return ()
    file = tmp_path_factory.mktemp("policies") / "stan.conf"
    file.write_text(request.param)
    return "-sc", str(file)


@pytest.fixture
def stan_server(tmp_path_factory: pytest.TempPathFactory, policies: tuple[str, ...]) -> Iterator[StanServer]:
    """A server with a FILE store for one test, without policies and with them."""
    with StanServer(tmp_path_factory.mktemp("server"), *policies) as server:
        yield server


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory, policies: tuple[str, ...]) -> Iterator[StanCluster]:
    """One cluster for all tests of a module, over a nats-server that stays up."""
    directory = tmp_path_factory.mktemp("cluster")
    with NatsServer(directory) as nats, StanCluster(directory, "-mc", "0", *policies, nats=nats) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: StanCluster) -> StanCluster:
    """It, with all nodes running."""
    if one_cluster.down:
        one_cluster.start(*one_cluster.down)
    return one_cluster


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory, policies: tuple[str, ...]) -> Iterator[StanServer]:
    """A server with a FILE store that no test ends: one without policies, and one with them."""
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0", *policies) as server:  # a channel for each test
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
