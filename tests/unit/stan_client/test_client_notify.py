"""Callbacks that only tell: what they raise, and what they return, concerns nobody but the log."""

from stan_client.waiting import notify


def test_a_failing_callback_is_logged(caplog) -> None:
    notify("on_change", lambda key: {}[key], "k")
    assert "on_change failed" in caplog.text


def test_an_async_callback_is_logged_as_it_is_never_awaited(caplog) -> None:
    async def changed(_key):
        raise AssertionError("nobody runs it")

    notify("on_change", changed, "k")
    assert "give a plain function" in caplog.text
