"""The values of stan_client: start positions, errors, messages, runs of acks."""

from datetime import UTC, datetime

import pytest
import stan_client
from stan_client.positions import RESUME_MARGIN_NS
from stan_client.subscribing.delivery import _returns_awaitable
from stan_client.subscribing.subscription_path import _runs

NOW_NS = 1_700_000_000 * 10**9


@pytest.fixture
def _frozen(monkeypatch) -> None:
    monkeypatch.setattr("stan_client.positions.time.time_ns", lambda: NOW_NS)


@pytest.mark.usefixtures("_frozen")
def test_start_delta_of_time_positions_counts_back_from_now() -> None:
    assert stan_client.ago(1.5).start_time_delta() == 1_500_000_000
    assert stan_client.from_time(datetime.fromtimestamp(1_699_999_990, UTC)).start_time_delta() == 10 * 10**9
    assert stan_client.from_time(datetime.fromtimestamp(1_700_000_010, UTC)).start_time_delta() == -10 * 10**9
    assert stan_client.everything().start_time_delta() == 0


@pytest.mark.parametrize("start", [stan_client.new_only(), stan_client.last_received()])
def test_start_made_again_covers_what_was_published_meanwhile(start) -> None:
    again = start.since(5)

    assert (again.position, again.start_time_delta()) == (2, 5 + RESUME_MARGIN_NS)


def test_start_made_again_keeps_fixed_places_and_moves_relative_ones() -> None:
    for fixed in (stan_client.everything(), stan_client.from_sequence(7), stan_client.from_time(datetime.now(UTC))):
        assert fixed.since(5) == fixed
    assert stan_client.ago(1).since(5).start_time_delta() == 1_000_000_005 + RESUME_MARGIN_NS


def test_runs_join_what_follows_and_keep_the_order() -> None:
    assert _runs([1, 2, 3, 7, 5, 6, 6]) == [(1, 3), (7, 7), (5, 6), (6, 6)]
    assert _runs([4]) == [(4, 4)]


def test_async_callbacks_are_told_from_plain_ones() -> None:
    class Awaitable:
        async def __call__(self, message: object) -> None: ...

    async def function(message: object) -> None: ...

    assert _returns_awaitable(function)
    assert _returns_awaitable(Awaitable())
    assert not _returns_awaitable(print)
    assert not _returns_awaitable(lambda message: message)


def test_errors_have_the_original_texts_and_one_root() -> None:
    texts = {
        stan_client.ConnectRequestTimeoutError: "stan: connect request timeout (possibly wrong cluster ID?)",
        stan_client.CloseRequestTimeoutError: "stan: close request timeout",
        stan_client.SubscribeRequestTimeoutError: "stan: subscribe request timeout",
        stan_client.UnsubscribeRequestTimeoutError: "stan: unsubscribe request timeout",
        stan_client.ConnectionClosedError: "stan: connection closed",
        stan_client.PublishAckTimeoutError: "stan: publish ack timeout",
        stan_client.BadAckError: "stan: malformed ack",
        stan_client.BadSubscriptionError: "stan: invalid subscription",
        stan_client.BadConnectionError: "stan: invalid connection",
        stan_client.ManualAckError: "stan: cannot manually ack in auto-ack mode",
        stan_client.NilMessageError: "stan: nil message",
        stan_client.NotSupportedError: "stan: not supported by server",
        stan_client.PingFailureError: "stan: connection lost due to PING failure",
    }

    assert {kind: str(kind()) for kind in texts} == texts
    assert all(issubclass(kind, stan_client.StanClientError) for kind in texts)
    assert str(stan_client.PingOptionsError(0, 1)) == "invalid ping values: interval=0 (min>0) maxOut=1 (min=2)"


def test_message_shows_what_matters() -> None:
    message = stan_client.Message(3, "orders", data=b"four", redelivered=True, redelivery_count=2)

    assert repr(message) == "<Message 3 orders 4 bytes redelivered 2>"


def test_times_of_a_message_are_datetimes_too() -> None:
    message = stan_client.Message(1, "ch", timestamp_ns=NOW_NS + 1_999, expires_at_ns=NOW_NS)
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    assert message.expires_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert stan_client.Message(1, "ch").expires_at is None
