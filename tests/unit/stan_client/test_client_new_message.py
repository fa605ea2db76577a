"""Messages before they are stored: what of headers and keys is refused, and what publishing returns."""

import time
from datetime import UTC, datetime, timedelta

import pytest
import stan_client
from stan_client import InvalidDelayError
from stan_client.messages.new_message import DUE_TAG, NewMessage, Published, encode_context, encode_due
from stan_protocol.proto import wire_pb2 as wire

from stan.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX


def decoded(context):
    message = wire.PubMsg.FromString(context)
    return [(header.key, header.value) for header in message.headers], message.key


def test_nothing_is_encoded_as_nothing() -> None:
    assert encode_context(None, "") == encode_context({}, b"") == b""


def test_headers_and_key_are_text_or_bytes() -> None:
    context = encode_context({"trace": "ä", "raw": b"\xff", "empty": ""}, "käy")
    assert decoded(context) == ([(b"trace", "ä".encode()), (b"raw", b"\xff"), (b"empty", b"")], "käy".encode())
    assert decoded(encode_context(None, b"\x00\xff")) == ([], b"\x00\xff")


def test_names_of_a_message_that_came_can_be_sent_again() -> None:
    message = stan_client.Message(1, "ch", headers=((b"\xffname", b"\xfe"),))
    assert decoded(encode_context(message.headers, message.key)) == ([(b"\xffname", b"\xfe")], b"")


@pytest.mark.parametrize("headers", [{b"name": "v"}, {"": "v"}, {1: "v"}, {"name": 1}, {"name": None}, {"\ud800": ""}])
def test_headers_that_are_not_text_by_name_are_refused(headers) -> None:
    with pytest.raises(stan_client.InvalidHeadersError, match="header"):
        encode_context(headers, "")


@pytest.mark.parametrize("key", [7, "\ud800", bytearray(b"k")])
def test_keys_that_are_neither_text_nor_bytes_are_refused(key) -> None:
    with pytest.raises(stan_client.InvalidKeyError, match="key"):
        encode_context(None, key)


def test_the_longest_key_is_taken_and_a_longer_one_is_refused_with_the_bound() -> None:
    assert decoded(encode_context(None, "k" * KEY_BYTES_MAX)) == ([], b"k" * KEY_BYTES_MAX)
    with pytest.raises(stan_client.InvalidKeyError, match=f"{KEY_BYTES_MAX + 2} bytes.*at most {KEY_BYTES_MAX}"):
        encode_context(None, "ä" * (KEY_BYTES_MAX // 2 + 1))


def test_the_most_headers_are_taken_and_more_are_refused_with_the_bound() -> None:
    room = HEADERS_BYTES_MAX - len(encode_context({"a": b"v" * 60_000, "b": b"v" * 1000}, "")) + 1000
    most = {"a": b"v" * 60_000, "b": b"v" * room}
    assert len(encode_context(most, "")) == HEADERS_BYTES_MAX
    with pytest.raises(stan_client.InvalidHeadersError, match=f"at most {HEADERS_BYTES_MAX}"):
        encode_context({**most, "b": b"v" * (room + 1)}, "")
    assert encode_context(most, "k" * KEY_BYTES_MAX), "the bounds are two"


def test_further_headers_win_over_those_that_are_there() -> None:
    message = NewMessage(b"x", {"a": "1", "b": "1"}, key="k", reply="r")
    assert message.with_headers({"b": "2"}) == NewMessage(b"x", {"a": "1", "b": "2"}, "k", "r")
    assert message.headers == {"a": "1", "b": "1"}
    with pytest.raises(TypeError):
        NewMessage(b"x").headers["a"] = "1"


def test_what_publishing_returns_never_changes() -> None:
    published = Published("guid", 7)
    assert (published.guid, published.sequence, published.delayed_id, published.acked_as) == ("guid", 7, 0, "")
    with pytest.raises(AttributeError):
        published.sequence = 8


def due_of(encoded):
    return wire.PubMsg.FromString(encoded).deliver_at


def test_a_delay_is_encoded_as_the_time_when_it_is_over():
    assert encode_due(None, None) == b""
    before = time.time_ns()
    encoded = encode_due(1.5, None)
    assert encoded.startswith(DUE_TAG)
    assert before + 1.5e9 <= due_of(encoded) <= time.time_ns() + 1.5e9
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    assert due_of(encode_due(None, tomorrow)) == int(tomorrow.timestamp()) * 10**9
    assert due_of(encode_due(None, datetime(2000, 1, 1, tzinfo=UTC))) > 0, "what is past is due at once"
    assert due_of(encode_due(0, None)) >= before


@pytest.mark.parametrize(
    ("delay_s", "deliver_at"),
    [
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        (366 * 86400, None),
        (None, datetime(2027, 1, 1)),  # noqa: DTZ001 - that is the mistake
        (1, datetime(2027, 1, 1, tzinfo=UTC)),
        (None, datetime(2100, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_delay_that_no_server_takes_is_refused(delay_s, deliver_at):
    with pytest.raises(InvalidDelayError):
        encode_due(delay_s, deliver_at)
