"""Consumers of JetStream compared with NATS's own server, by the published JavaScript clients: both get the same."""

import json
import os
import subprocess

import pytest

from stan.edge.nats.nats_process import find_binary
from tests.conformance.clients import jetstream
from tests.kit.ports import accepts, free_port
from tests.kit.server import StanServer, until


@pytest.fixture
def original(tmp_path):
    """A nats-server with JetStream of its own."""
    port = free_port()
    command = [str(find_binary()), "-js", "-sd", str(tmp_path / "js"), "-a", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: accepts(port))
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def ours(tmp_path):
    with StanServer(tmp_path, "--jetstream_api") as server:
        yield server.url


def story_of(program, url):
    """What the clients tell of one server, step by step."""
    done = subprocess.run(
        [*program.command, url], capture_output=True, env=os.environ | program.env, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_clients_in_javascript_get_the_same_of_both_servers(original, ours):
    program = jetstream("consumers")
    theirs, own = (story_of(program, url) for url in (original, ours))
    assert len(own) == len(theirs) > 20
    for expected, told in zip(theirs, own, strict=True):
        assert told == expected
