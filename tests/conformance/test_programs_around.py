"""Programs that speak STAN in the middle of others': their requests, with the settings that their sources give to the client.

Redpanda Connect (`nats_stream`): manual acks, a durable or not, all messages or from the last one, a window, an ack wait, a
queue group; a batch that fails is not acked; it ends by closing the connection to NATS first, so that no close request comes,
and begins again under the same client id; `unsubscribe_on_close` unsubscribes. Knative's channel `natss` (until 0.27): one
client, channels `<name>.<namespace>`, a durable per subscription, an ack wait of minutes, a small window, an ack once the event
is dispatched. Both publish with the client's synchronous call. The programs themselves were not run.
"""

import uuid

import pytest

from tests.conformance.clients import numbered, payloads, sequences


@pytest.mark.parametrize("group", ["", "packers"], ids=["alone", "queue"])
def test_input_of_redpanda_connect_goes_on_after_it_has_vanished(connect, name, group):
    client_id = str(uuid.uuid4())
    settings = {"durable": "benthos", "manual": 1, "start": "first", "max_in_flight": 4, "ack_wait": 1000}
    settings |= {"queue": group} if group else {}
    first, publisher = connect(client_id), connect()
    publisher.publish_and_wait(name, *numbered("m", 6))
    first.subscribe("input", name, **settings)
    assert payloads(first.messages("input", 4)) == numbered("m", 4)
    first.ack("input", 1, 3)  # the batch with 2 has failed
    again = first.messages("input", 1, sequence=2, redelivered=True)
    assert payloads(again)[0] == b"m2"
    first.subscribe("witness", name)  # answered after the acks, so they have arrived
    first.kill()  # as a connection to NATS that is closed first: no close request

    second = connect(client_id)
    second.subscribe("input", name, **settings)
    found = second.messages("input", 4)
    second.ack("input", 2, 4, 5, 6)
    assert sorted(set(sequences(found))) == [2, 4, 5, 6]
    assert not {1, 3} & {message["sequence"] for message in second.seen("message", sub="input")}


def test_input_of_redpanda_connect_that_unsubscribes_leaves_nothing(connect, name):
    client, publisher = connect(), connect()
    publisher.publish_and_wait(name, *numbered("m", 3))
    settings = {"durable": "benthos", "manual": 1, "start": "first"}
    client.subscribe("input", name, **settings)
    client.ack("input", *sequences(client.messages("input", 3)))
    client.unsubscribe("input")
    client.subscribe("anew", name, **settings)
    assert payloads(client.messages("anew", 3)) == numbered("m", 3)


def test_input_of_redpanda_connect_without_start_from_oldest(connect, name):
    client, publisher = connect(), connect()
    publisher.publish_and_wait(name, *numbered("m", 3))
    client.subscribe("input", name, manual=1, start="last", queue="q", max_in_flight=1024, ack_wait=30000)
    publisher.publish_and_wait(name, b"m4")
    assert payloads(client.messages("input", 2)) == [b"m3", b"m4"]


def test_channel_of_knative_dispatches_event_by_event(connect, name):
    channel, durable = f"{name}.default", str(uuid.uuid4())
    dispatcher, ingress = connect(f"{name}-natss-ch-dispatcher"), connect()
    settings = {"durable": durable, "manual": 1, "ack_wait": 60000, "max_in_flight": 1}
    dispatcher.subscribe("sub", channel, **settings)
    ingress.publish_and_wait(channel, *numbered("event", 3))
    for sequence in (1, 2):
        assert dispatcher.messages("sub", sequence)[-1]["sequence"] == sequence
        dispatcher.ack("sub", sequence)
    dispatcher.messages("sub", 3)
    dispatcher.kill()  # with the third undispatched

    restarted = connect(f"{name}-natss-ch-dispatcher")
    restarted.subscribe("sub", channel, **settings)
    (third,) = restarted.messages("sub", 1)
    assert (third["sequence"], third["redelivered"]) == (3, True)
    restarted.ack("sub", 3)
    restarted.unsubscribe("sub")
