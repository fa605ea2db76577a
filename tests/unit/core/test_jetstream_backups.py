"""Streams and consumers in backups: told, and made again on a server that has none of them."""

import json

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb

from tests.kit import jetstream as js
from tests.kit.consumers import consumer, info, served
from tests.kit.core_harness import CoreHarness

KINDS = {
    "read_stream": (pb.ReadStreamRequest, pb.ReadStreamResponse),
    "restore_stream": (pb.RestoreStreamRequest, pb.ChangeResponse),
    "restore_consumer": (pb.RestoreConsumerRequest, pb.ChangeResponse),
    "restore_channel": (pb.RestoreChannelRequest, pb.ChangeResponse),
    "restore_cursor": (pb.RestoreCursorRequest, pb.ChangeResponse),
    "restore_end": (pb.RestoreEndRequest, pb.ChangeResponse),
}
POSITION = pb.CursorStatus(
    kind="DURABLE",
    durable_name=b"worker",
    client_id=b"$JS",
    last_sent=2,
    owed_runs=[1, 1],
    max_in_flight=10,
    ack_wait_s=30,
)


def ask(harness, kind, channel=b"ORDERS", **asked):
    request, response = KINDS[kind]
    return CoreHarness.ask(
        harness, f"_STAN.x.test-cluster.admin.{kind}", request(version=1, channel=channel, **asked), response
    )


def told(response):
    return response.error.decode(), response.changed


@pytest.fixture
def saved():
    """The descriptions of a stream and its consumer."""
    h = served(max_msgs=50)
    consumer(h, "worker", max_deliver=3)
    return ask(h, "read_stream")


def test_they_are_told_as_they_are_made_again(saved):
    h = js.harness()
    assert told(ask(h, "restore_stream", stream=saved.stream)) == ("", 1)
    assert told(ask(h, "restore_channel", restore=b"r", first_sequence=1)) == ("", 1)
    assert told(ask(h, "restore_consumer", consumer=saved.consumers[0])) == (refusals.CHANNEL_RESTORING, 0)
    ask(h, "restore_cursor", restore=b"r", cursor=POSITION)
    ask(h, "restore_end", restore=b"r", last_sequence=3)
    for changed in (1, 0):
        assert told(ask(h, "restore_consumer", consumer=saved.consumers[0])) == ("", changed)
    assert told(ask(h, "restore_stream", stream=saved.stream)) == ("", 0)

    again = ask(h, "read_stream")
    assert (again.stream, list(again.consumers), again.adopted) == (saved.stream, list(saved.consumers), False)
    assert info(h, "worker")["config"]["max_deliver"] == 3


def test_a_stream_that_comes_behind_its_channel_takes_that_over(saved):
    h = js.harness()
    ask(h, "restore_channel", restore=b"r", first_sequence=1)
    assert told(ask(h, "restore_stream", stream=saved.stream)) == ("", 1)
    ask(h, "restore_end", restore=b"r")
    assert ask(h, "read_stream").adopted


def test_a_channel_without_a_stream_tells_none(saved):
    h = js.harness()
    h.connect()
    h.publish("plain", b"1")
    assert not ask(h, "read_stream", b"plain").stream
    answer = ask(h, "restore_consumer", b"plain", consumer=saved.consumers[0])
    assert (answer.error.decode(), answer.retry) == (refusals.NO_STREAM_OF_CHANNEL, True)


def test_pages_end_where_an_answer_is_full():
    h = served()
    for number in range(5):
        consumer(h, f"w{number}", metadata={"a": "x" * 16_000})
    h.broker.step_payload_limit(60_000)
    first = ask(h, "read_stream")
    rest = ask(h, "read_stream", after=first.after)
    names = [json.loads(one)["name"] for page in (first, rest) for one in page.consumers]
    assert (names[: len(first.consumers)], first.more) == (names[: names.index(first.after.decode()) + 1], True)
    assert names == [f"w{number}" for number in range(len(names))]


def test_what_is_there_otherwise_is_left(saved):
    h = served(max_msgs=40)
    assert (
        told(ask(h, "restore_stream", stream=saved.stream))[0]
        == 'stan: stream "ORDERS" is there, with another configuration'
    )


@pytest.mark.parametrize(
    "stream",
    [b"", b"[]", b'{"name": 7}', b'{"name": "ORDERS", "max_msgs": "x"}', b'{"name": "OTHER", "subjects": ["a.*"]}'],
)
def test_what_is_no_description_of_the_channels_stream_is_refused(stream):
    h = js.harness()
    assert told(ask(h, "restore_stream", stream=stream))[0].startswith("stan: the stream cannot be made: ")


@pytest.mark.parametrize(
    "text", [b"", b'{"name": "x y"}', b'{"name": "worker", "named": 1}', b'{"name": "worker", "newest_until": -1}']
)
def test_what_is_no_description_of_a_consumer_is_refused(text):
    h = served()
    assert told(ask(h, "restore_consumer", consumer=text))[0].startswith("stan: the consumer cannot be made: ")


def test_a_consumer_without_its_position_is_refused(saved):
    h = served(max_msgs=50)
    answer = ask(h, "restore_consumer", consumer=saved.consumers[0])
    assert answer.error == b"stan: the consumer cannot be made: its position was not restored"


def test_servers_without_clients_of_jetstream_say_so(saved):
    h = CoreHarness()
    h.connect()
    h.publish("ORDERS", b"1")
    assert told(ask(h, "restore_stream", stream=saved.stream))[0] == refusals.JETSTREAM_OFF
    assert told(ask(h, "restore_consumer", consumer=saved.consumers[0]))[0] == refusals.JETSTREAM_OFF


def test_a_stream_whose_subjects_were_changed_is_made_again_with_its_channel():
    h = served(["orders"])
    assert "error" not in js.api(h, "STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["orders", "bills"]})
    saved = ask(h, "read_stream", b"orders")
    h = js.harness()
    for changed in (1, 0):
        assert told(ask(h, "restore_stream", b"orders", stream=saved.stream)) == ("", changed)
    assert ask(h, "read_stream", b"orders").stream == saved.stream
    assert list(h.broker.view.meta.channels) == [b"orders"]
