"""Consumers of JetStream compared with NATS's own server, by the published JavaScript clients: both get the same."""

import pytest

from tests.conformance.clients import jetstream, story_of
from tests.kit.server import NatsServer, StanServer


@pytest.fixture
def original(tmp_path):
    """A nats-server with JetStream of its own."""
    with NatsServer(tmp_path, "-js", "-sd", str(tmp_path / "js")) as server:
        yield server.url


@pytest.fixture
def ours(tmp_path):
    with StanServer(tmp_path, "--jetstream_api") as server:
        yield server.url


def test_clients_in_javascript_get_the_same_of_both_servers(original, ours):
    program = jetstream("consumers")
    theirs, own = (story_of(program, url) for url in (original, ours))
    assert len(own) == len(theirs) > 20
    for expected, told in zip(theirs, own, strict=True):
        assert told == expected
