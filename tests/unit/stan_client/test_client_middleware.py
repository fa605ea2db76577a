"""Middleware: the order of a chain, and the four that are built in."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
import stan_client
from hypothesis import given
from hypothesis import strategies as st
from stan_client import Correlation, Log, Message, MiddlewareContext, NewMessage, Retry, Timing, correlation_id
from stan_client.messages import middleware as module
from stan_client.messages.middleware import PASSING, Chain, RetryBudget, handled, is_unknown, passes
from stan_protocol import refusals

from stan import errors

CLIENT = SimpleNamespace(client_id="me")
BUSY = stan_client.ServerError(refusals.BUSY)


def context(kind="publish", **fields):
    return MiddlewareContext(kind, CLIENT, "orders", **fields)


def publishing(*outcomes):
    """The innermost step of publishes: raises or returns one outcome after the other; keeps the messages."""
    left = list(outcomes)

    async def publish(message):
        publish.messages.append(message)
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    publish.messages = []
    return publish


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, and pauses that take none of its time: `pauses` tells their lengths."""
    clock = SimpleNamespace(now=1000.0, pauses=[])

    async def sleep(seconds):
        clock.pauses.append(seconds)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return clock


# --- chain -----------------------------------------------------------------------------------------------------------


async def test_the_first_is_the_outermost_and_each_may_change_message_and_outcome() -> None:
    seen = []

    def named(name):
        async def middleware(context, message, call_next):
            seen.append((name, context.kind, message.data))
            told = await call_next(message._replace(data=message.data + name.encode()))
            return f"{told}{name}"

        return middleware

    chain = Chain([named("a"), named("b")])
    innermost = publishing("guid")
    assert await chain.run(context(), NewMessage(b"x"), innermost) == "guidba"
    assert seen == [("a", "publish", b"x"), ("b", "publish", b"xa")]
    assert [message.data for message in innermost.messages] == [b"xab"]
    assert bool(chain)
    assert not Chain([])


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_callback_may_be_async_or_not(asynchronous) -> None:
    got = []

    async def callback(message):
        got.append(message)

    await handled(callback if asynchronous else got.append)(1)
    assert got == [1]


# --- retry -----------------------------------------------------------------------------------------------------------


async def test_what_passes_is_published_again_after_growing_pauses(clock) -> None:
    told, publish = context(), publishing(BUSY, BUSY, BUSY, "guid")
    assert await Retry(1.0, pause_s=1, pause_max_s=3, least=9)(told, NewMessage(b"x"), publish) == "guid"
    assert told.attempt == len(publish.messages) == 4
    for pause, longest in zip(clock.pauses, (1, 2, 3), strict=True):
        assert longest / 2 <= pause <= longest


@pytest.mark.parametrize(
    ("error", "certain", "unknown"),
    [
        (BUSY, True, False),
        (stan_client.ServerError(refusals.CHANNEL_DELETING), True, False),
        (stan_client.TooManyInFlightError(), True, False),
        (stan_client.NotSentError(), True, False),
        (stan_client.PublishAckTimeoutError(), False, True),
        (stan_client.PingFailureError(), False, True),
        (stan_client.BadConnectionError(), False, True),
        (stan_client.ServerError(refusals.CLIENT_REPLACED), False, True),
        (stan_client.ServerError(refusals.INVALID_PUBLISH), False, False),
        (stan_client.ServerError(errors.Frozen.told), False, False),
        (stan_client.NotSupportedError(), False, False),
        (stan_client.InvalidKeyError(), False, False),
        (stan_client.MessageTooLargeError(), False, False),
        (stan_client.ConnectionClosedError(), False, False),
    ],
)
async def test_what_may_be_stored_is_published_again_only_if_asked_for(clock, error, certain, unknown) -> None:
    assert (passes(error), is_unknown(error)) == (certain, unknown)
    for asked, again in ((False, certain), (True, certain or unknown)):
        publish = publishing(error, "guid")
        retry = Retry(unknown=asked)
        if again:
            assert await retry(context(), NewMessage(b"x"), publish) == "guid"
        else:
            with pytest.raises(type(error)):
                await retry(context(), NewMessage(b"x"), publish)
        assert len(publish.messages) == 1 + again


def test_refusals_that_pass_are_those_of_the_server() -> None:
    assert refusals.TEXTS.keys() >= PASSING
    assert {refusals.code_of(kind.told) for kind in (errors.Shortage, errors.DiskFull)} <= PASSING


async def test_attempts_are_bounded(clock) -> None:
    publish = publishing(*[BUSY] * 9)
    with pytest.raises(stan_client.ServerError):
        await Retry(1.0, attempts_max=3, least=9)(context(), NewMessage(b"x"), publish)
    assert len(publish.messages) == 3


async def test_what_was_refused_before_its_time_was_over_tells_why(clock) -> None:
    publish = publishing(BUSY, stan_client.NotSentError())
    with pytest.raises(stan_client.ServerError, match=refusals.BUSY):
        await Retry(1.0, attempts_max=2, least=9)(context(), NewMessage(b"x"), publish)


async def test_no_pause_goes_on_behind_the_callers_deadline(clock) -> None:
    publish = publishing(BUSY, "guid")
    deadline = asyncio.get_running_loop().time() + 0.1
    with pytest.raises(stan_client.ServerError):
        await Retry(pause_s=1)(context(deadline=deadline), NewMessage(b"x"), publish)
    assert clock.pauses == []


async def test_an_outage_is_not_multiplied(clock) -> None:
    retry = Retry(0.1, least=3, window_s=10)
    publish = publishing(*[BUSY] * 5000)
    for _ in range(1000):
        clock.now += 0.01
        with pytest.raises(stan_client.ServerError):
            await retry(context(), NewMessage(b"x"), publish)
    assert 1000 < len(publish.messages) <= 1000 + 0.1 * 1000 + 3


async def test_handled_messages_are_passed_on(clock) -> None:
    handle = publishing(BUSY)
    with pytest.raises(stan_client.ServerError):
        await Retry()(context("handle"), Message(1, "orders"), handle)
    assert len(handle.messages) == 1


@given(
    share=st.floats(0, 1),
    least=st.integers(0, 5),
    steps=st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200),
)
def test_retries_stay_within_the_budget_in_each_window(share, least, steps) -> None:
    budget, now = RetryBudget(share, 10, least), [1000.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        publishes, retries = [], []
        for pause, retry in steps:
            now[0] += pause
            if not retry:
                budget.note_publish()
                publishes.append(now[0])
            elif budget.spend():
                retries.append(now[0])
                # What a slot counts is within the window or, by less than a slot, older.
                recent = sum(now[0] - at <= 10 for at in publishes)
                within = sum(now[0] - at < 10 - 0.5 for at in retries)
                assert within <= max(least, share * recent)


# --- correlation -----------------------------------------------------------------------------------------------------


async def test_the_id_of_a_handled_message_is_put_on_what_is_published_meanwhile() -> None:
    middleware, publish = Correlation(), publishing("1", "2")
    handling = context("handle")

    async def handle(_message):
        assert correlation_id.get() == handling.correlation_id == "id-1"
        await middleware(context(), NewMessage(b"x", {"other": "1"}), publish)
        await asyncio.create_task(middleware(context(), NewMessage(b"x"), publish))

    message = Message(1, "orders", headers=((b"stan-correlation-id", b"id-1"),))
    await middleware(handling, message, handle)
    assert correlation_id.get() == ""
    assert [message.headers for message in publish.messages] == [
        {"other": "1", "stan-correlation-id": "id-1"},
        {"stan-correlation-id": "id-1"},
    ]


async def test_an_id_is_made_anew_where_there_is_none() -> None:
    seen = []

    async def handle(_message):
        seen.append(correlation_id.get())

    for _ in range(2):
        await Correlation()(context("handle"), Message(1, "orders"), handle)
    publish = publishing("1", "2", "3")
    for message in (NewMessage(b""), NewMessage(b""), NewMessage(b"", {"stan-correlation-id": b"own"})):
        told = context()
        await Correlation()(told, message, publish)
        seen.append(told.correlation_id)
    assert all(seen)
    assert len(set(seen)) == 5
    assert seen[-1] == "own"
    assert publish.messages[-1].headers == {"stan-correlation-id": b"own"}


async def test_a_publish_that_is_tried_again_keeps_its_id(clock) -> None:
    publish = publishing(BUSY, "guid")
    await Chain([Retry(), Correlation()]).run(context(), NewMessage(b"x"), publish)
    first, second = (message.headers["stan-correlation-id"] for message in publish.messages)
    assert first == second


async def test_the_id_ends_with_a_handler_that_fails() -> None:
    with pytest.raises(stan_client.ServerError):
        await Correlation()(context("handle"), Message(1, "orders"), publishing(BUSY))
    assert correlation_id.get() == ""


# --- log and timing --------------------------------------------------------------------------------------------------


async def test_log_writes_one_line_for_each_without_the_data(caplog) -> None:
    told = stan_client.Published("guid", 7)
    log = Log(logging.getLogger("mine"), logging.INFO)
    with caplog.at_level(logging.INFO, "mine"):
        await log(context(correlation_id="id-1"), NewMessage(b"secret"), publishing(told))
        await log(context("handle", attempt=2), Message(9, "orders", data=b"secret"), publishing(None))
        with pytest.raises(stan_client.ServerError):
            await log(context(), NewMessage(b"secret"), publishing(BUSY))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["INFO", "INFO", "WARNING"]
    assert lines[0][1].startswith("publish orders: 6 bytes, sequence 7, ")
    assert lines[0][1].endswith(" ms, correlation id id-1")
    assert lines[1][1].startswith("handle orders: 6 bytes, sequence 9, ")
    assert lines[1][1].endswith(" ms, attempt 2")
    assert "failed: ServerError: stan: busy, try again" in lines[2][1]
    assert "secret" not in caplog.text


async def test_timing_tells_kind_channel_seconds_and_error(clock) -> None:
    seen = []
    timing = Timing(lambda *told: seen.append(told))

    async def handle(_message):
        clock.now += 2
        raise BUSY

    assert await timing(context(), NewMessage(b"x"), publishing("guid")) == "guid"
    with pytest.raises(stan_client.ServerError):
        await timing(context("handle"), Message(1, "orders"), handle)
    with pytest.raises(asyncio.CancelledError):
        await timing(context(), NewMessage(b"x"), publishing(asyncio.CancelledError()))
    assert seen[:2] == [("publish", "orders", 0, None), ("handle", "orders", 2, BUSY)]
    assert isinstance(seen[2][3], asyncio.CancelledError)


async def test_what_observe_raises_stops_nothing(caplog) -> None:
    def observe(*_told):
        raise RuntimeError("no metrics")

    assert await Timing(observe)(context(), NewMessage(b"x"), publishing("guid")) == "guid"
    assert "no metrics" in caplog.text
