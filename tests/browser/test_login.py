"""Logging in to the dashboard of a real server in headless Chromium: the form, what a person sees, and the way out."""

import asyncio

import pytest
import stan_client

from tests.browser.chromium import Page, browser
from tests.kit.ports import free_port
from tests.kit.server import StanServer

pytestmark = pytest.mark.timeout(300)
CONFIG = """
streaming {
  permissions {
    users: [{ user: alice, password: of-alice }, { user: ops, password: of-ops }]
    allow: [
      { user: alice, admin_read: "orders.>", subscribe: "orders.>" }
      { user: ops, publish: ">", subscribe: ">", durable: ">", admin_read: ">", admin_write: ">" }
    ]
  }
  dashboard { users: [{ user: alice }, { user: ops, role: act, token: "0123456789abcdef0123" }] }
}
"""


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A server with logins, and messages in two channels; the address of its pages."""
    port, directory = free_port(), tmp_path_factory.mktemp("login")
    (directory / "stan.conf").write_text(CONFIG)

    async def publish(url: str) -> None:
        login = url.replace("nats://", "nats://ops:of-ops@")
        async with await stan_client.connect(login, client_id="ops") as client:
            await client.publish("orders.eu", b"seen")
            await client.publish("hidden", b"unseen")

    with StanServer(directory, "-c", str(directory / "stan.conf"), "-m", str(port)) as server:
        asyncio.run(publish(server.url))
        yield server, f"http://127.0.0.1:{port}"


@pytest.fixture
def page(driver, real):
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    return Page(driver, real[1])


def log_in(page: Page, user: str, password: str) -> None:
    page.type("[name=user]", user)
    page.type("[name=password]", password)
    page.click("#log-in")


def test_a_page_asks_who_it_is_and_goes_on_where_it_was_asked_for(page, real):
    page.open("#/channels")
    page.sees("Log in", "h1")
    assert page.texts(".side a") == []
    page.until(lambda: page.script("return document.activeElement.name") == "user", "one can type at once")
    log_in(page, "alice", "wrong")
    page.sees("no such user, or a wrong password or token", ".notice.bad")
    assert page.script("return document.querySelector('[name=password]').value") == ""
    log_in(page, "alice", "of-alice")
    page.until(lambda: page.texts("tbody th") == ["orders.eu"], "what she may see")
    page.sees("alice", "#user")
    assert page.texts(".side a") == ["Overview", "Channels", "Durables", "Dead letters", "Schemas"]
    page.until(lambda: page.text("#live") == "live", "news come")
    assert page.find("#create") is None
    assert 'Audit: "alice" has logged in from 127.0.0.1' in real[0].log()


def test_a_channel_that_a_person_may_not_see_is_not_there(page):
    page.open("#/channel/hidden")
    log_in(page, "alice", "of-alice")
    page.sees("unknown channel", ".notice.bad")
    page.open("#/channel/orders.eu")
    page.sees("seen", ".payload")


def test_an_acting_person_changes_something_and_the_log_says_who(page, real):
    page.open()
    page.click("summary", "With a token instead")
    page.type("[name=token]", "0123456789abcdef0123")
    page.click("#log-in")
    page.until(lambda: page.text("#sentence").startswith("Everything works"))
    page.open("#/channel/orders.eu")
    page.click("#publish")
    page.type("dialog textarea", "from the browser")
    page.click("dialog .danger", "Publish")
    page.sees("Stored with sequence", "#toasts")
    assert 'Audit: "ops" at 127.0.0.1: publish channel="orders.eu" text=(16 characters): Stored' in real[0].log()


def test_logging_out_leads_to_the_form_and_nothing_stays_to_be_seen(page):
    page.open("#/channels")
    log_in(page, "ops", "of-ops")
    page.until(lambda: "hidden" in page.texts("tbody th"))
    page.click("#log-out")
    page.sees("Log in", "h1")
    assert "hidden" not in page.text("body")
    page.open("#/channels")
    page.sees("Log in", "h1")
