"""Client ids (STAN-SPEC 3.2 to 3.5, 16 A): one client each, the dead are replaced, the replaced are told."""

import signal

from tests.conformance.clients import Client, payloads
from tests.kit.server import StanServer

REPLACED = "client has been replaced or is no longer registered"
PINGS = (1, 3)  # seconds, and how many may be without an answer


def test_client_id_in_use_is_refused_and_its_owner_goes_on(connect, name):
    owner = connect(name)

    second = connect(name, expect="refused")

    assert second.seen("refused")[0]["error"] == "stan: clientID already registered"
    owner.publish_and_wait(name, b"m")


def test_client_id_of_a_dead_client_is_given_away(connect, name):
    dead = connect(name)
    dead.subscribe("s", name)
    dead.kill()

    successor = connect(name)

    successor.publish_and_wait(name, b"m")


def test_client_id_of_a_closed_client_is_free(connect, name):
    connect(name).disconnect()

    connect(name).publish_and_wait(name, b"m")


def test_frozen_client_is_replaced_and_told_so(connect, name):
    frozen = connect(name, pings=PINGS)
    frozen.signal(signal.SIGSTOP)

    successor = connect(name, pings=PINGS)
    frozen.signal(signal.SIGCONT)

    assert frozen.wait("connection_lost")[0]["error"] == REPLACED
    successor.publish_and_wait(name, b"m")
    assert not successor.seen("connection_lost")


def test_invalid_client_id_is_refused(connect):
    client = connect("a.b", expect="refused")

    assert "invalid clientID" in client.seen("refused")[0]["error"]


def test_wrong_cluster_id_is_a_connect_timeout(shared_server, program, name):
    client = Client(program, shared_server.url, "no-such-cluster", name, PINGS, patience_s=1)
    try:
        (event,) = client.wait("refused")
    finally:
        client.release()

    texts = ("connect request timeout", "no streaming server was listening", "failed connecting to 'no-such-cluster'")
    assert any(text in event["error"] for text in texts)


def test_server_that_forgot_its_clients_tells_them(connect, name, tmp_path):
    """A MEMORY store is empty after a restart; the client hears it in the answer to its next PING."""
    with StanServer(tmp_path, store="MEMORY") as server:
        client = connect(name, server, pings=(1, 10))
        client.publish_and_wait(name, b"m")

        server.kill9()
        server.start()

        assert client.wait("connection_lost")[0]["error"] == REPLACED


def test_server_that_stays_away_is_a_lost_connection(connect, name, external_nats, tmp_path):
    with StanServer(tmp_path, nats_url=external_nats) as server:
        client = connect(name, server, pings=(1, 2))
        client.subscribe("s", name)
        client.publish_and_wait(name, b"m")
        assert payloads(client.messages("s", 1)) == [b"m"]

        server.kill9()

        assert client.wait("connection_lost")[0]["error"].endswith("connection lost due to PING failure")
