"""Search of messages and schemas in headless Chromium, on a cluster that answers as told, and on a real server."""

import asyncio
import io
import json

import fastavro
import pytest
import stan_client
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from tests.browser.chromium import Page, browser
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import FakeCluster
from tests.kit.ports import free_port
from tests.kit.server import StanServer

pytestmark = pytest.mark.timeout(300)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "string"}],
}


def written(value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def fake():
    fake = FakeCluster(fetched=5)
    for number in range(1, 101):
        header = wire.Header(key=b"kind", value=b"<b>odd" if number % 2 else b"even")
        fake.add_message(b"orders", b'{"order": %d}' % number, key=b"k%d" % (number % 10), headers=[header])
    text = json.dumps(ORDER).encode()
    fake.schemas = [
        admin.SchemaStatus(pattern=b"bills.*", kind=2, schema_version=1, text=text, size=len(text), at=10**18)
    ]
    fake.add_message(b"bills.eu", written({"id": 12345678901234567, "to": "<i>me</i>"}))
    fake.add_message(b"bills.eu", b"\x02")
    return fake


@pytest.fixture
def page(driver, fake):
    with served_aside(fake) as url:
        yield Page(driver, url)
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_messages_are_found_and_the_search_goes_on_where_it_ended(page):
    page.open("#/channel/orders")
    page.click("summary", "Search messages")
    page.type("#find [name=header]", "kind=<b>odd")
    page.type("#find [name=key]", "k3")
    page.click("#start-search")
    page.until(lambda: page.text("#searched") == "10 matches in 100 messages, 1.3 KiB.", "all is searched")
    assert page.texts(".found .message .about a:first-child")[:3] == ["#3", "#13", "#23"]
    page.type("#find [name=text]", "ORDER")
    page.type("#find [name=key]", "")
    page.type("#find [name=header]", "")
    page.click("#start-search")
    page.until(lambda: page.text("#searched").startswith("50 matches in 50 messages"), "so many at once")
    page.click("#go-on")
    page.until(lambda: page.text("#searched").startswith("100 matches in 50 messages"))
    assert len(page.texts(".found .message")) == 100
    page.script("scrollTo(0, 0)")  # else the head of the page covers it
    page.click("#clear-search")
    page.until(lambda: page.find(".found") is None)


def test_search_without_a_condition_says_what_is_missing(page):
    page.open("#/channel/orders")
    page.click("summary", "Search messages")
    page.click("#start-search")
    page.sees("say what to search for", ".found .notice.bad")


def test_a_search_is_stopped(page, fake):
    page.open("#/channel/orders")
    page.sees('{"order": 100}', "#messages")
    fake.held = lambda kind, _payload: kind == "fetch"
    try:
        page.click("summary", "Search messages")
        page.type("#find [name=text]", "unseen")
        page.click("#start-search")
        page.sees("Searching", "#searched")
        page.click("#stop-search")
        page.until(lambda: page.find("#stop-search") is None and page.find("#clear-search"))
    finally:
        fake.held = None


def test_avro_is_shown_decoded_with_all_digits_and_a_misfit_says_why(page):
    page.open("#/channel/bills.eu")
    page.sees("Decoded by version 1 of the schema (avro)", "#messages")
    page.sees('"id": 12345678901234567', ".payload.json")
    page.sees("<i>me</i>", ".payload.json")
    page.sees("It does not fit version 1 of the schema (avro): /to: is cut off", ".misfit")
    page.click(".views label", "Hex")
    page.until(lambda: "Decoded by" not in page.text("#messages"), "the bytes as they are")


def test_schemas_are_listed_and_lead_to_their_texts(page):
    page.open("#/schemas")
    page.sees("bills.*", "tbody")
    page.click("tbody a", "bills.*")
    page.sees("Version 1", "summary")
    page.sees('"name": "Order"', "pre.payload")
    assert page.texts(".side a[aria-current]") == ["Schemas"]


def test_real_server_is_searched_and_its_schema_decodes(driver, tmp_path):
    port = free_port()

    async def fill(url: str) -> None:
        async with await stan_client.connect(url, client_id="me") as client:
            await client.publish_many(
                "many", [b"needle" if number == 4000 else b"hay %d" % number for number in range(5000)]
            )
            await client.publish("bills.eu", written({"id": 7, "to": "me"}))
        async with stan_client.Direct(url, cluster_id="test-cluster") as direct:
            await direct.admin.add_schema("bills.*", json.dumps(ORDER).encode(), 2)

    with StanServer(tmp_path, "-m", str(port)) as server:
        asyncio.run(fill(server.url))
        page = Page(driver, f"http://127.0.0.1:{port}")
        page.open("#/channel/many")
        page.click("summary", "Search messages")
        page.type("#find [name=text]", "needle")
        page.click("#start-search")
        page.until(lambda: page.text("#searched").startswith("1 match in 5,000 messages"))
        assert page.texts(".found .message .about a:first-child") == ["#4,001"]
        page.open("#/channel/bills.eu")
        page.sees("Decoded by version 1", "#messages")
        page.sees('"id": 7', ".payload.json")
