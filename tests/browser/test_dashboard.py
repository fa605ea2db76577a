"""The dashboard in headless Chromium: clicked, typed into, read; on a cluster that answers as told, and on a real server."""

import asyncio
import json
import re
import time

import pytest
import stan_client
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire

from tests.browser.chromium import Page, browser
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster
from tests.kit.ports import free_port
from tests.kit.server import StanServer

pytestmark = pytest.mark.timeout(300)
HOSTILE = b"<img\x0csrc=x\x0conerror=window.hacked=1&quot;'\"\xff"
PHONE = (360, 740)


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


def filled() -> FakeCluster:
    fake = FakeCluster()
    for number in range(120):
        fake.add_channel(b"shop.%d" % number, number)
    for number in range(1, 101):
        more = (
            {"key": b"k" * 1000, "headers": [wire.Header(key=b"n" * 300, value=b"v" * 300)] * 30}
            if number == 99
            else {}
        )
        fake.add_message(b"orders", b'{"order":%d,"big":12345678901234567890}' % number, **more)
    now = time.time_ns()
    fake.add_durable(b"orders", b"audit", client=b"audit-1", waiting=17)
    stuck = {"waiting": 90, "pending": 10, "oldest_pending": now - 300 * SECOND, "last_ack": now - 240 * SECOND}
    fake.add_durable(b"orders", b"billing", client=b"billing-1", **stuck)
    header = wire.Header(key=b"<b onclick=window.hacked=1>", value=b"<img src=x onerror=window.hacked=1>")
    fake.add_message(
        HOSTILE, b"<script>window.hacked=1</script>", key=b"<svg onload=window.hacked=1>", headers=[header]
    )
    fake.add_durable(HOSTILE, b"</td><svg onload=window.hacked=1>", client=b"<b>me</b>", waiting=1)
    fake.clients.append(admin.ClientStatus(client_id=b"<b>me</b>", ping_interval_s=5, ping_max_out=3))
    fake.clients.append(admin.ClientStatus(client_id=b"billing-1", failing=True))
    fake.options["hostile"] = "<script>window.hacked=1</script>"
    return fake


@pytest.fixture(scope="module")
def fake():
    return filled()


@pytest.fixture(scope="module")
def address(fake):
    with served_aside(fake) as url:
        yield url


@pytest.fixture
def page(driver, address):
    yield Page(driver, address)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# --- reading ------------------------------------------------------------------------------------------------------------


def test_overview_says_in_a_sentence_what_is_wrong_and_leads_there(page):
    page.open()
    page.until(lambda: page.text("#sentence").startswith("Durable billing-1/billing of channel orders is stuck"))
    page.until(lambda: page.text("#health") == "Warning")
    page.until(
        lambda: page.script("return document.querySelectorAll('.chart .curves').length") == 2, "charts have points"
    )
    page.click(".side a", "Durables")
    page.until(lambda: "billing" in page.text("tbody tr:first-child"), "the worst comes first")
    told = r"(?s)stuck.*10 of 10 messages are sent and not acked, the oldest since \d+m.* 90 messages wait"
    page.until(lambda: re.search(told, page.text("tbody tr:first-child")), "why it is stuck")


def test_durables_are_filtered_by_their_state(page):
    page.open("#/durables")
    page.until(lambda: len(page.texts("tbody tr")) == 3)
    choose = "const e = document.querySelector('select'); e.value = 'stuck'; e.dispatchEvent(new Event('change'))"
    page.until(lambda: page.find("select option[value=stuck]"))
    page.script(choose)
    page.until(lambda: len(page.texts("tbody tr")) == 1 and "billing" in page.text("tbody"))
    assert page.script("return location.hash") == "#/durables?state=stuck"


def test_channel_with_parts_is_one_row_and_leads_to_its_parts(page, fake):
    parts = fake.add_parts(b"sales", 5000, 10, 20, 30)
    fake.add_durable(b"sales.~1", b"ledger", client=b"books", waiting=7)
    fake.add_durable(b"sales.~2", b"ledger", client=b"books", waiting=4)
    try:
        page.open("#/channels")
        page.type("input[type=search]", "sales")
        page.until(lambda: len(page.texts("tbody tr")) == 1, "the parts are one row")
        page.until(lambda: "5,060" in page.text("tbody tr"))
        assert "~0" not in page.script("return document.querySelector('tbody th').innerText")
        page.click("tbody summary", "4 parts")
        page.until(lambda: len(page.texts("tbody .members li")) == 4, "the parts come when they are asked for")
        assert "sales.~1 10 messages" in page.texts("tbody .members li")[1]
        page.click("tbody th > a", "sales")
        page.until(lambda: page.text("h1") == "sales")
        page.sees("Part ~0 of channel sales has 5,000 of 5,060 messages (98 %)", ".notice.warn")
        page.until(lambda: len(page.texts("section.card:nth-of-type(2) tbody tr")) == 4)
        assert f"{parts[0].group} {fake.leader(parts[0].group)}" in page.text("section.card:nth-of-type(2) tbody tr")
        page.until(lambda: "2 of 4" in page.text("section.card:nth-of-type(3) tbody tr"))
        page.click("tbody a", "sales.~1")
        page.until(lambda: page.text("h1") == "sales.~1")
        page.click(".trail a", "sales")
        page.until(lambda: page.text("h1") == "sales", "the way back")
    finally:
        for part in parts:
            del fake.channels[part.name]
        fake.cursors[:] = [one for one in fake.cursors if not one.HasField("part_of")]


def test_channel_is_found_and_its_messages_are_read(page):
    page.open("#/channels")
    page.until(lambda: len(page.texts("tbody tr")) == 50)
    page.click(".pager button", "Next")
    page.sees("51 to 100 of 122", ".pager")
    page.type("input[type=search]", "order")
    page.until(lambda: page.texts("tbody th") == ["orders"], "only what was searched for")
    page.click("tbody a", "orders")
    page.until(lambda: page.texts(".message .about a:first-child")[:1] == ["#100"], "the newest comes first")
    assert page.text(".message .payload") == '{"order":100,"big":12345678901234567890}'
    assert len(page.text(".message .key")) == len("key ") + 256 + len("…")
    assert page.texts(".message .headers dd")[-1] == "10 more"
    page.click(".views label", "JSON")
    page.until(lambda: page.text(".message .payload") == '{\n  "order": 100,\n  "big": 12345678901234567890\n}')
    page.click("#older")
    page.sees("Sequences 61 to 80", "#shown-range")
    page.type("#from-sequence", "42")
    page.click("#go-sequence")
    page.sees("Sequences 42 to 61", "#shown-range")
    page.click(".views label", "Hex")
    page.until(lambda: page.text(".message .payload").startswith("000000  7b 22 6f 72 64 65 72 22"))
    page.click(".views label", "Text")
    page.until(lambda: page.text(".message .payload") == '{"order":42,"big":12345678901234567890}')
    page.click("#newer")
    page.sees("Sequences 62 to 81", "#shown-range")
    page.click("#newest")
    page.sees("newest first", "#shown-range")


def test_channel_tells_what_its_acks_mean_and_what_compression_and_compaction_have_done(page, fake):
    told = fake.add_channel(b"rates", 900)
    told.compress, told.clear_bytes, told.kept_bytes, told.commit = 1, 84 << 10, 12 << 10, 1
    told.compact, told.compacted_until, told.compacted_here, told.tombstones_until = 1, 800, 750, 120
    told.tombstone_held, told.held_by = 640, b"<b>audit</b>"
    told.compaction_passes, told.compaction_saved_bytes = 3, 5 << 20
    told.compaction_ended = time.time_ns() - 120 * SECOND
    fake.add_channel(b"tidy", 5).compress = 1
    try:
        page.open("#/channel/rates")
        page.sees("12.0 KiB\ncompressed, 7.0 times smaller", "main")
        page.sees("in memory\nacked once a majority has it", "main")
        for words in (
            "750\ncompacted of 800: the newest message of a key stays",
            "2 min ago\nlast pass, 3 times since the log was opened",
            "5.0 MiB\nsaved by compaction",
            "120\ntombstones may be gone up to",
            "up to 640, until <b>audit</b> has passed them\ntombstones that wait",
        ):
            page.sees(words, "#compaction")
        page.open("#/channel/tidy")
        page.sees("nothing yet\nto be compressed", "main")
        page.sees("on disk\nacked once a majority has it", "main")
        assert page.find("#compaction") is None
    finally:
        del fake.channels[b"rates"], fake.channels[b"tidy"]


def test_address_of_a_message_leads_to_it(page):
    page.open("#/channel/orders?seq=7")
    page.sees("Sequences 7 to 26", "#shown-range")
    page.script("location.hash = '#/channel/orders?seq=9'")
    page.sees("Sequences 9 to 28", "#shown-range")


def test_what_was_asked_for_last_is_shown_though_another_answer_comes_later(page, fake):
    page.open("#/channel/orders")
    page.sees("Sequences 81 to 100", "#shown-range")
    waiting = []

    def held(kind, payload):
        slow = kind == "fetch" and pb.FetchRequest.FromString(payload).from_sequence == 5
        waiting[:] = ["waits"] if slow else waiting
        return slow

    fake.held = held
    try:
        page.type("#from-sequence", "5")
        page.click("#go-sequence")
        page.until(lambda: waiting, "the first question is on its way")
        page.type("#from-sequence", "33")
        page.click("#go-sequence")
        page.sees("Sequences 33 to 52", "#shown-range")
    finally:
        fake.held = None
    page.click(".views label", "Hex")
    page.until(lambda: page.text(".message .payload").startswith("000000"))
    assert "Sequences 33 to 52" in page.text("#shown-range")


def test_question_that_fails_says_so_until_it_is_answered(page, fake):
    page.open("#/channel/new")
    page.sees("stan: unknown channel", ".notice.bad")
    page.sees("Try again", ".notice.bad")
    fake.add_message(b"new", b"hello")
    page.sees("hello", ".payload")
    page.until(lambda: page.find(".notice") is None)


def test_cluster_clients_metrics_and_configuration(page):
    page.open("#/cluster")
    page.until(
        lambda: page.texts(".matrix tbody tr:first-child > *") == ["Metadata", "★ leader", "● follower", "● follower"]
    )
    page.click(".side a", "Clients")
    page.sees("does not answer heartbeats", "tbody")
    page.click(".side a", "Metrics")
    page.until(lambda: len(page.texts(".chart")) == 10)
    assert page.script("return document.querySelector('#raw').getAttribute('href')") == "/metrics"
    page.click(".side a", "Configuration")
    page.sees("max_channels", "tbody")


def test_names_and_payloads_that_are_markup_are_shown_and_not_executed(page):
    page.open("#/durables")
    page.sees("</td><svg onload=window.hacked=1>", "tbody")
    page.click("tbody a", "<img")
    page.sees("<script>window.hacked=1</script>", ".payload")
    page.sees("key <svg onload=window.hacked=1>", ".message .key")
    page.sees("<b onclick=window.hacked=1>", ".message .headers dt")
    page.sees("<img src=x onerror=window.hacked=1>", ".message .headers dd")
    page.sees("onerror=window.hacked=1&quot;'\"", "h1")
    for hash_ in (
        "#/",
        "#/channels?search=img",
        "#/clients",
        "#/config",
        "#/channel/%3Cimg%20src=x%20onerror=alert(1)%3E",
    ):
        page.open(hash_)
        page.until(lambda: page.find("[data-phase=loaded], [data-phase=failed]"))
    assert page.script("return window.hacked") is None
    assert page.script("return document.querySelectorAll('main img, main script, main b b').length") == 0


def test_news_arrive_while_a_page_is_open(page, fake):
    page.open("#/channel/live")
    page.sees("stan: unknown channel", ".notice.bad")
    fake.add_message(b"live", b"first")
    page.open("#/channel/live")
    page.sees("first", ".payload")
    page.click("#follow")
    fake.add_message(b"live", b"second")
    page.sees("second", ".payload")
    page.until(lambda: page.text("#live") == "live")


# --- looking -------------------------------------------------------------------------------------------------------------


def brightness(page):
    colour = page.script("return getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_light_and_dark_follow_the_system_until_somebody_chooses(page):
    page.open()
    page.prefer("dark")
    page.until(lambda: brightness(page) < 60, "dark as the system")
    page.prefer("light")
    page.until(lambda: brightness(page) > 200, "light as the system")
    page.click("#theme")  # auto, light, dark
    page.click("#theme")
    page.until(lambda: brightness(page) < 60, "dark as chosen")
    page.open("#/channels")
    page.until(lambda: brightness(page) < 60, "dark as chosen before")
    page.click("#theme")
    page.until(lambda: brightness(page) > 200, "as the system again")


@pytest.mark.parametrize(
    "hash_",
    [
        *("#/", "#/channels", "#/channel/orders", "#/durables", "#/deadletters", "#/clients", "#/cluster"),
        *("#/metrics", "#/config"),
    ],
)
def test_nothing_is_wider_than_a_phone(page, hash_):
    page.size(*PHONE)
    page.open(hash_)
    page.until(lambda: page.find("[data-phase=loaded]"))
    widths = "return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
    page.until(lambda: max(page.script(widths)) == PHONE[0], "no wider than the screen")


def test_everything_is_reached_by_keyboard_and_focus_is_seen(page):
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415 - not there where nothing is tested

    page.open()
    page.until(lambda: page.text("#sentence"))
    page.keys(Keys.TAB)
    page.until(lambda: page.focused() == "Skip to the content")
    outline = "const s = getComputedStyle(document.activeElement); return s.outlineStyle + ' ' + s.outlineWidth"
    page.until(lambda: page.script(outline) == "solid 3px", "focus is seen")
    page.keys(Keys.ENTER)
    page.until(lambda: page.script("return document.activeElement.id") == "main")
    page.open("#/channels")
    page.until(lambda: page.texts("tbody tr"))
    page.script("document.querySelector('.side a').focus()")
    for name in ("Channels", "Durables"):
        page.keys(Keys.TAB)
        page.until(lambda name=name: page.focused() == name)
    page.keys(Keys.ENTER)
    page.sees("Durables and queue groups", "h1")
    page.open("#/channels")
    page.until(lambda: page.texts("tbody tr"))
    page.script("document.querySelector('[data-sort=messages]').focus()")
    page.keys(Keys.ENTER)
    page.until(lambda: page.text("tbody th:first-child") == "shop.119", "sorted by messages")
    page.until(lambda: page.script("return document.activeElement.dataset.sort") == "messages", "focus has stayed")
    assert page.script("return document.querySelector('[aria-sort=descending]')?.innerText").startswith("Messages")


def test_pages_are_told_to_those_who_hear_them(page):
    page.open("#/channel/orders")
    page.until(lambda: page.texts(".message"))
    unnamed = """return [...document.querySelectorAll('button, a[href], input, select, textarea, [role=img], table')]
        .filter((e) => !(e.textContent?.trim() || e.getAttribute('aria-label') || e.labels?.length || e.caption))
        .map((e) => e.outerHTML)"""
    assert page.script(unnamed) == []
    landmarks = (
        "return ['header', 'nav[aria-label]', 'main', 'h1'].filter((s) => document.querySelectorAll(s).length !== 1)"
    )
    assert page.script(landmarks) == []


def test_page_of_ten_thousand_channels_is_drawn(page, fake):
    many = {b"many.%05d" % number: fake.add_channel(b"many.%05d" % number, number) for number in range(10_000)}
    try:
        page.open("#/channels?search=many&sort=-messages")
        page.until(lambda: page.text("tbody th:first-child") == "many.09999")
        page.sees("1 to 50 of 10,000", ".pager")
    finally:
        for name in many:
            del fake.channels[name]


# --- changing ---------------------------------------------------------------------------------------------------------------


def test_nothing_can_be_changed_unless_it_is_switched_on(page):
    page.open("#/channel/orders")
    page.until(lambda: page.texts(".message"))
    for selector in ("#purge", "#delete", "#publish", ".menu", ".message button"):
        assert page.find(selector) is None


def test_a_cursor_whose_window_was_cut_has_a_curve_of_it(driver):
    fake = filled()
    slow = fake.add_durable(b"orders", b"slow", client=b"slow-1", pending=3)
    slow.members[0].window_now = 3
    with served_aside(fake) as url:
        page = Page(driver, url).open("#/channel/orders")
        page.until(lambda: page.find(".bar[aria-label='3 of 10 in flight, window cut to 3']"))
        page.until(lambda: page.find("[data-key='Adaptive window'] path.line"), "the curve has points")
        assert page.text("[data-key='Adaptive window'] .legend") == "slow 3"


def test_dead_letters_are_seen_with_their_sources_and_put_back(driver):
    fake = filled()
    billing = fake.add_durable(b"orders", b"payments", client=b"p-1")
    billing.dead_letter_channel, billing.exhausted, billing.dead_letter_fault = b"orders.dlq", 2, b"<b>no room</b>"
    for number in (1, 2):
        header = wire.Header(key=b"stan-channel", value=b"orders")
        fake.add_message(b"orders.dlq", b"poison %d" % number, headers=[header])
    with served_aside(fake, fake.config(actions=True)) as url:
        page = Page(driver, url).open("#/deadletters")
        page.sees("payments", "tbody")
        page.sees("2 messages still pending: <b>no room</b>", "tbody")
        page.click("tbody button", "Put back…")
        page.sees("They go behind the newest message", "dialog")
        page.type("dialog input[name=last]", "1")
        page.click("dialog .danger", "Put back")
        page.sees("1 message put back", "#toasts")
        page.click("tbody a", "orders.dlq")
        page.sees("poison 2", ".payload")
        page.sees("stan-channel", ".message .headers dt")
        page.click(".message button", "Put back…")
        page.click("dialog .danger", "Put back")
        page.until(lambda: len(fake.changes) == 2)
        assert [(kind, list(request.runs)) for kind, request in fake.changes] == [
            ("admin.redrive", [1, 1]),
            ("admin.redrive", [2, 2]),
        ]


def test_dialogs_say_what_will_happen_and_ask_only_for_what_was_changed(driver):
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

    fake = filled()
    group = fake.add_durable(b"orders", b"", client=b"one", waiting=3)
    group.kind, group.queue_group = admin.QUEUE, b"workers"
    group.members.add(client_id=b"two", subscription_id=8, max_in_flight=5)
    with served_aside(fake, fake.config(actions=True)) as url:
        page = Page(driver, url).open("#/channel/orders")
        page.click("#limits")
        page.until(lambda: page.focused() == "max_msgs" or page.find("dialog input[name=max_msgs]"))
        page.click("dialog .danger", "Set")
        page.sees("Nothing is changed yet.", "dialog")
        page.type("dialog input[name=max_msgs]", "5000")
        page.click("dialog .danger", "Set")
        page.sees("The limits are in force", "#toasts")
        ((kind, request),) = fake.changes
        assert (kind, request.limits) == ("admin.edit_limits", admin.Limits(max_msgs=5000))
        page.click("#purge")
        page.until(lambda: page.find("dialog[open]"))
        page.keys(Keys.ESCAPE)
        page.until(lambda: page.find("dialog[open]") is None)
        page.until(lambda: page.script("return document.activeElement.id") == "purge", "focus is back")
        page.click("summary", "2 members")
        page.until(lambda: "two: 0 of 5 in flight" in page.text(".members"))
        page.click(".members li:last-child button", "Put out")
        page.click("dialog .danger", "Put it out")
        page.sees("The member is out", "#toasts")
        assert fake.changes[-1][1].subscription_id == 8


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A real server with what may be changed switched on; its address of NATS and that of its pages."""
    port, directory = free_port(), tmp_path_factory.mktemp("dashboard")
    (directory / "stan.conf").write_text('streaming { policies { "told.>" { compress: zstd } } }')
    flags = ("-sc", str(directory / "stan.conf"), "-m", str(port), "--dashboard_actions")
    with StanServer(directory, *flags) as server:
        yield server, f"http://127.0.0.1:{port}"


def test_real_server_shows_a_stuck_durable_and_is_changed_from_the_dashboard(driver, real):
    server, url = real
    page = Page(driver, url)

    async def publish_and_hold() -> None:
        client = await stan_client.connect(server.url, client_id="billing")
        async with client:
            await client.publish_many("orders", [b'{"order": %d}' % number for number in range(30)])
            await client.subscribe(
                *("orders", lambda _message: None),
                durable="ledger",
                start=stan_client.everything(),
                manual_acks=True,
                max_in_flight=5,
                ack_wait_s=1,
            )
            await asyncio.to_thread(look)

    def look() -> None:
        page.open()
        page.until(
            lambda: page.text("#sentence").startswith("Durable billing/ledger of channel orders is stuck"),
            "it is found out",
        )
        page.click(".side a", "Durables")
        page.sees("5 of 5 messages are sent and not acked", "tbody")
        page.click("tbody a", "orders")
        page.until(lambda: page.texts(".message .about a:first-child")[:1] == ["#30"])
        page.click("tbody .menu")
        page.click(".choices button", "Pause")
        page.sees("Nothing is sent to it until it is resumed", "dialog")
        page.click("dialog button", "Cancel")
        page.until(lambda: page.find("dialog[open]") is None)
        page.click("tbody .menu")
        page.click(".choices button", "Pause")
        page.click("dialog .danger", "Pause")
        page.sees("It is paused: nothing is sent", "tbody")
        page.click("#publish")
        page.type("dialog textarea", "from the browser")
        page.click("dialog .danger", "Publish")
        page.sees("from the browser", ".payload")
        page.click("#purge")
        page.sees("It holds 31 messages, sequences 1 to 31", "dialog")
        page.type("dialog input", "4")
        page.click("dialog .danger", "Purge")
        page.sees("27 messages removed", "#toasts")
        page.until(lambda: page.texts(".message .about a:first-child") == ["#31", "#30", "#29", "#28"])
        page.click("#delete")
        page.until(lambda: not page.find("dialog .danger").is_enabled(), "not before it is typed")
        page.type("dialog input", "orders")
        page.click("dialog .danger", "Delete")
        page.sees("There is nothing yet", "main")

    asyncio.run(publish_and_hold())


def test_real_server_works(driver, real):
    server, url = real
    page = Page(driver, url)
    driver.get("about:blank")
    page.log()  # of other tests

    async def publish() -> None:
        async with await stan_client.connect(server.url, client_id="me") as client:
            await client.publish("hello", json.dumps({"a": [1, 2]}).encode())

    asyncio.run(publish())
    page.open()
    page.until(lambda: page.text("#sentence").startswith("Everything works: this node is ready"))
    page.until(lambda: "channel created" in page.text(".events"), "what happened is told")
    page.click(".side a", "Configuration")
    page.sees("dashboard_actions", "tbody")
    page.click(".side a", "Metrics")
    page.until(lambda: len(page.texts(".chart")) == 10)
    page.open("#/channel/hello")
    page.sees('"a": [1, 2]', ".payload")
    assert page.log() == ""


def test_real_server_tells_how_much_smaller_compression_makes_a_channel(driver, real):
    server, url = real
    page = Page(driver, url)

    async def publish() -> None:
        async with await stan_client.connect(server.url, client_id="me") as client:
            await client.publish_many("told.events", [b'{"event": %d, "what": "the same"}' % at for at in range(2000)])

    asyncio.run(publish())
    page.open("#/channel/told.events")
    page.until(lambda: re.search(r"compressed, \d+\.\d times smaller", page.text("main")))
    page.sees("on disk\nacked once a majority has it", "main")
    assert page.find("#compaction") is None


def test_what_has_happened_to_a_message_is_told_in_a_dialog(page):
    page.open("#/durables")
    page.until(lambda: len(page.texts("tbody tr")) == 3)
    page.script(
        "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes('billing-1'))"
        ".querySelector('td:nth-child(6) button').click()"
    )
    page.sees("What happened to a message for billing", "dialog")
    page.script("document.querySelector('dialog input[name=sequence]').value = 1")
    page.click("dialog button", "Explain")
    page.sees("sent to <b>me</b> (subscription 0) for the first time", "#steps")
    page.sees("as the delivery before was not acked in time; redelivery 1", "#steps")
    page.sees("A member has it, and has not acked it yet.", "#explained")
    page.click("dialog button", "Close")
    page.until(lambda: not page.find("dialog[open]"))
