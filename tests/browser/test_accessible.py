"""axe-core finds nothing on any page of the dashboard: in light and dark, wide and on a phone, whatever is wrong or open."""

import functools
import io
import json
import time
from pathlib import Path

import fastavro
import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.logins import Logins
from tests.browser.chromium import Page, browser
from tests.conformance.clients import node_modules
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster

pytestmark = pytest.mark.timeout(300)
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]
PAGES = (
    *(
        "#/",
        "#/channels",
        "#/channels?search=nothing-like-it",
        "#/channel/orders",
        "#/channel/rates",
        "#/channel/sales",
    ),
    *("#/channel/bills.eu", "#/channel/none", "#/durables", "#/deadletters", "#/schemas", "#/clients", "#/cluster"),
    *("#/metrics", "#/config", "#/nothing"),
)
FAULTS = """
const done = arguments[0];
axe.run(document, {resultTypes: ["violations"]}).then(
  ({violations}) => done(violations.flatMap(({id, nodes}) => nodes.map(
    (node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary.split("\\n").slice(1).join(" ").slice(0, 240)}`))),
  (error) => done([String(error)]));
"""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@functools.cache
def axe() -> str:
    """The program that looks for faults."""
    return (node_modules(Path(__file__).with_name("axe")) / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def faults(page: Page) -> list[str]:
    """What is wrong with the page as it is now, once all has faded in."""
    page.until(lambda: page.script("return document.getAnimations().length") == 0, "nothing moves")
    page.script(axe())
    return page.driver.execute_async_script(FAULTS)


def none_of(found: dict[str, list[str]]) -> None:
    """Assert that nothing is wrong anywhere; all that is wrong is in the text of the failure."""
    wrong = [f"{where}: {one}" for where, those in found.items() for one in those]
    assert not wrong, "\n".join(wrong)


def settled(page: Page) -> None:
    """Wait until a page has loaded or failed, and news have come."""
    page.until(lambda: page.find("[data-phase=loading]") is None and page.find("#main h1"))
    page.until(lambda: page.text("#health") != "…")


# --- a cluster with all that can be seen --------------------------------------------------------------------------------


def add_messages(fake: FakeCluster) -> None:
    """Text, JSON, bytes, headers, a long one, one by a schema, and one that does not fit it."""
    header = wire.Header(key=b"kind", value=b"odd")
    for number in range(40):
        fake.add_message(b"orders", b'{"order": %d}' % number, key=b"k%d" % number, headers=[header] * 35)
    fake.add_message(b"orders", bytes(range(256)) * 200)
    fake.add_message(b"orders", b"")
    text = json.dumps(ORDER).encode()
    fake.schemas = [
        admin.SchemaStatus(pattern=b"bills.*", kind=2, schema_version=1, text=text, size=len(text), at=10**18)
    ]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": 7})
    fake.add_message(b"bills.eu", out.getvalue())
    fake.add_message(b"bills.eu", b"\x80")


def add_readers(fake: FakeCluster) -> None:
    """Durables and groups of all states."""
    now = time.time_ns()
    full = {"waiting": 90, "pending": 10}
    old = {"oldest_pending": now - 300 * SECOND, "last_ack": now - 240 * SECOND}
    fake.add_durable(b"orders", b"stuck", client=b"one", **full, **old)
    fake.add_durable(b"orders", b"full", client=b"two", **full, oldest_pending=now - 45 * SECOND)
    fake.add_durable(b"orders", b"busy", client=b"three", **full, oldest_pending=now)
    fake.add_durable(b"orders", b"behind", client=b"four", waiting=17, held_back=3)
    fake.add_durable(b"orders", b"paused", client=b"five", paused=True, waiting=3)
    fake.add_durable(b"orders", b"away", client=b"six", waiting=3).ClearField("members")
    slow = fake.add_durable(b"orders", b"slow", client=b"seven", pending=3)
    slow.members[0].window_now = 3
    group = fake.add_durable(b"orders", b"", client=b"eight", waiting=3)
    group.kind, group.queue_group = admin.QUEUE, b"workers"
    group.members.add(client_id=b"nine", subscription_id=8, max_in_flight=5)
    dead = fake.add_durable(b"orders", b"payments", client=b"ten")
    dead.dead_letter_channel, dead.exhausted, dead.dead_letter_fault = b"orders.dlq", 2, b"no room"
    fake.add_message(b"orders.dlq", b"poison", headers=[wire.Header(key=b"stan-channel", value=b"orders")])


def with_everything() -> FakeCluster:
    """A cluster of which each page has something to show."""
    fake = FakeCluster()
    for number in range(60):
        fake.add_channel(b"shop.%d" % number, number)
    add_messages(fake)
    add_readers(fake)
    told = fake.add_channel(b"rates", 960_000)
    told.compress, told.clear_bytes, told.kept_bytes, told.commit = 1, 84 << 10, 12 << 10, 1
    told.compact, told.compacted_until, told.compacted_here, told.tombstones_until = 1, 800, 750, 120
    told.tombstone_held, told.held_by = 640, b"audit"
    fake.add_parts(b"sales", 5000, 10, 20, 30)
    fake.add_durable(b"sales.~1", b"ledger", client=b"books", waiting=7)
    for client in (b"one", b"two"):
        fake.clients.append(admin.ClientStatus(client_id=client, ping_interval_s=5, failing=client == b"two"))
    for text in ("node n2 leads group 5", "client one connected"):
        fake.happened.append(admin.Event(time=time.time_ns(), kind="leader", text=text))
    return fake


@pytest.fixture(scope="module")
def fake():
    return with_everything()


@pytest.fixture(scope="module")
def address(fake):
    with served_aside(fake, fake.config(actions=True)) as url:
        yield url


@pytest.fixture(params=LOOKS, ids=lambda look: "-".join(map(str, look)))
def look(driver, request):
    """A colour scheme and a width."""
    page = Page(driver, "")
    scheme, width = request.param
    page.prefer(scheme)
    page.size(width, 860)
    yield page
    page.usual_size()
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def page(look, address):
    look.url = address
    return look


# --- what is looked at --------------------------------------------------------------------------------------------------


def test_no_page_has_a_fault(page):
    found = {}
    for hash_ in PAGES:
        page.open(hash_)
        settled(page)
        found[hash_] = faults(page)
    none_of(found)


def test_no_dialog_has_a_fault(page):
    found = {}
    page.open("#/channel/orders")
    settled(page)
    for button in ("#publish", "#purge", "#limits", "#delete", "tbody .menu"):
        page.click(button)
        page.until(lambda: page.find("dialog[open]"))
        found[button] = faults(page)
        page.click("dialog .buttons button")
    page.click("tbody button", "Explain…")
    page.type("dialog [name=sequence]", "1")
    page.click("dialog [type=submit]")
    page.until(lambda: page.find("#explained"))
    found["explain"] = faults(page)
    page.click("dialog .buttons button")
    none_of(found)


def test_nothing_that_is_unfolded_found_or_told_has_a_fault(page):
    page.open("#/channel/orders")
    settled(page)
    page.script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.type("#find [name=text]", "order")
    page.click("#start-search")
    page.until(lambda: page.find(".found .message") and page.find("#clear-search"))
    page.click(".views label", "Hex")
    page.script("scrollTo(0, 0)")  # else the head of the page covers it
    page.click("#limits")
    page.click("dialog .danger")
    page.sees("Nothing is changed yet.", "dialog")
    refused = faults(page)
    page.click("dialog .buttons button")
    page.click("#publish")
    page.click("dialog .danger")
    page.sees("Stored with sequence", "#toasts")
    none_of({"refused": refused, "unfolded": faults(page)})


def test_page_without_an_answering_majority_has_no_fault(look, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_GRACE", 0)
    monkeypatch.setattr(limits, "DASHBOARD_COST_RATIO", 0)
    fake = with_everything()
    with served_aside(fake) as look.url:
        look.open()
        settled(look)
        fake.silent, fake.leaderless = {"n2", "n3"}, set(range(1, 9))
        look.until(lambda: "is grey is as it was at" in look.text("#old"))
        found = {"#/": faults(look)}
        for hash_ in ("#/cluster", "#/channels", "#/durables"):
            look.open(hash_)
            settled(look)
            found[hash_] = faults(look)
    look.until(lambda: look.text("#lost").startswith("The server cannot be reached"))
    found["lost"] = faults(look)
    none_of(found)


def test_login_has_no_fault(look):
    fake = with_everything()
    config = fake.config(logins=Logins())
    with served_aside(fake, config) as look.url:
        look.open()
        look.sees("Log in", "h1")
        asked = faults(look)
        look.click("summary", "With a token instead")
        look.type("[name=token]", "of nobody")
        look.click("#log-in")
        look.until(lambda: look.find(".notice.bad"))
        none_of({"asked": asked, "refused": faults(look)})
