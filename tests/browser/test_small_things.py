"""Small things of the dashboard in headless Chromium: names in one line, one menu a row, what is shown when little is known."""

import time

import pytest
from stan_protocol.proto import admin_pb2 as admin

from stan import limits
from tests.browser.chromium import Page, browser
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster

pytestmark = pytest.mark.timeout(300)
NAMES = (b"payments", b"orders.eu", b"shipping-and-handling")


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


def shop() -> FakeCluster:
    fake = FakeCluster()
    for name in NAMES:
        fake.add_channel(name, 500)
        fake.add_durable(name, b"audit-and-billing", client=b"billing-service-1", waiting=17, pending=3)
    return fake


@pytest.fixture
def page(driver):
    fake = shop()
    with served_aside(fake, fake.config(actions=True)) as url:
        page = Page(driver, url)
        page.fake = fake
        yield page
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


LINES = "return [...document.querySelectorAll('.whole')].map((e) => e.getClientRects().length)"
WIDER = "return document.documentElement.scrollWidth - innerWidth"


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("hash_", ["#/durables", "#/channels", "#/channel/orders.eu"])
def test_names_stand_in_one_line(page, width, hash_):
    page.size(width, 800)
    page.open(hash_)
    page.until(lambda: page.script(LINES))
    assert set(page.script(LINES)) == {1}
    assert page.script(WIDER) <= 0


def test_one_menu_a_row_leads_to_all_that_can_be_done(page):
    page.open("#/durables")
    page.click("tbody .menu")
    page.until(lambda: len(page.texts(".choices button")) == 6)
    assert page.texts(".choices button")[0] == "Pause…"
    page.click(".choices button", "Pause…")
    page.click("dialog .danger", "Pause")
    page.sees("Paused", "#toasts")
    assert page.fake.changes[-1][0] == "admin.pause"


def test_configuration_begins_with_what_was_set(page, monkeypatch):
    def answered(_payload):
        answer = admin.OptionsResponse(node="n1")
        answer.options.add(name="max_channels", value="100", source="default")
        answer.options.add(name="cluster_id", value="shop", source="stan.conf:2")
        yield answer

    monkeypatch.setattr(page.fake, "_admin_options", answered)
    page.open("#/config")
    page.sees("cluster_id", "#own")
    assert "max_channels" not in page.text("#own")
    page.click("#usual summary", "1 option at the default")
    page.sees("max_channels", "#usual")
    page.type("input[type=search]", "max_ch")
    page.until(lambda: page.find("#own") is None)


def test_pages_that_are_none_say_so(page):
    page.open("#/nothing")
    page.sees("There is no such page", "h1")
    page.sees('Nothing is called "nothing" here', "main")
    assert page.texts(".side a[aria-current]") == []
    page.click("main a", "To the overview")
    page.until(lambda: page.text("#sentence"))


def test_a_group_is_of_nobody(page):
    group = page.fake.add_durable(b"orders.eu", b"", client=b"app7550", waiting=3)
    group.kind, group.queue_group = admin.QUEUE, b"workers"
    page.open("#/durables")
    page.until(lambda: any(text.startswith("workers") for text in page.texts("tbody th")))
    (text,) = [text for text in page.texts("tbody th") if text.startswith("workers")]
    assert "app7550" not in text
    page.type("input[type=search]", "app7550")
    page.until(lambda: len(page.texts("tbody tr")) == 1, "its members find it")


def test_full_window_is_yellow_before_it_is_stuck(page):
    now = time.time_ns()
    told = {"waiting": 90, "pending": 10, "oldest_pending": now - 45 * SECOND, "last_ack": now - 40 * SECOND}
    page.fake.add_durable(b"orders.eu", b"slow", client=b"slow", **told)
    fresh = told | {"oldest_pending": now, "last_ack": now}
    page.fake.add_durable(b"orders.eu", b"fine", client=b"fine", **fresh)
    page.open("#/durables?search=window")
    page.open("#/durables")
    page.until(lambda: page.texts(".level.warn") == ["window full"] and "window full" in page.texts(".level.busy"))


def test_last_known_numbers_stay_grey_when_the_majority_is_gone(page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_GRACE", 0)
    monkeypatch.setattr(limits, "DASHBOARD_COST_RATIO", 0)
    page.open()
    page.until(lambda: page.texts(".facts b")[3:4] == ["3"], "its channels are known")
    page.fake.silent = {"n1", "n2", "n3"} - {"n1"}
    page.fake.leaderless = set(range(1, 9))
    page.until(lambda: "is grey is as it was at" in page.text("#old"))
    assert page.texts(".facts b")[3] == "3"
    page.sees("orders.eu / audit-and-billing", ".card.old")
    page.until(lambda: "node n2 does not answer" in page.text(".events"), "the death is told")
    page.fake.silent, page.fake.leaderless = set(), set()
    page.until(lambda: page.find("#old") is None and "node n2 answers again" in page.text(".events"))
