"""Where a subscription starts (STAN-SPEC 5.3, 16 D), with published clients."""

import time

import pytest

from tests.conformance.clients import payloads, sequences
from tests.kit.server import until

GAP_SECONDS = 1.5  # between old and young messages; far more than a subscribe request takes


@pytest.fixture
def client(connect, name):
    """A client, and five messages in the channel."""
    found = connect()
    found.publish_and_wait(name, b"1", b"2", b"3", b"4", b"5")
    return found


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("new", [b"6", b"7"]),
        ("last", [b"5", b"6", b"7"]),
        ("first", [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]),
        ("sequence:3", [b"3", b"4", b"5", b"6", b"7"]),
        ("sequence:1", [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]),
        ("sequence:6", [b"6", b"7"]),
        ("sequence:100", [b"6", b"7"]),
        ("delta:3600000", [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]),
    ],
)
def test_start_in_used_channel_gives_exactly_what_follows(client, name, start, expected):
    client.subscribe("s", name, start=start)

    client.publish_and_wait(name, b"6", b"7")

    messages = client.messages("s", len(expected))
    assert payloads(messages) == expected
    assert sequences(messages) == [int(payload) for payload in expected]


@pytest.mark.parametrize("start", ["new", "last", "first", "sequence:1", "sequence:9", "delta:1000"])
def test_start_in_empty_channel_gives_the_next_message(connect, name, start):
    client = connect()
    client.subscribe("s", name, start=start)

    client.publish_and_wait(name, b"1", b"2")

    assert payloads(client.messages("s", 2)) == [b"1", b"2"]


def test_time_delta_between_old_and_young_gives_the_young(client, name):
    old_until = time.monotonic()
    until(lambda: time.monotonic() > old_until + GAP_SECONDS)
    young_since = time.monotonic()
    client.publish_and_wait(name, b"6")

    delta = time.monotonic() - young_since + GAP_SECONDS / 3
    client.subscribe("s", name, start=f"delta:{delta * 1000:.0f}")
    client.publish_and_wait(name, b"7")

    assert payloads(client.messages("s", 2)) == [b"6", b"7"]


def test_time_delta_shorter_than_age_of_last_gives_only_new(client, name):
    old_until = time.monotonic()
    until(lambda: time.monotonic() > old_until + GAP_SECONDS)

    client.subscribe("s", name, start="delta:1000")
    client.publish_and_wait(name, b"6")

    assert payloads(client.messages("s", 1)) == [b"6"]
