"""The pictures of the dashboard's page: `python -m tests.browser.screenshots` takes them of a cluster with some life in it.

They are small PNGs in the folder beside this file. Look at them before they are committed.
"""

import base64
import math
import time
from pathlib import Path

from stan_protocol.proto import admin_pb2 as admin

from tests.browser.chromium import Page, browser
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster

FOLDER = Path(__file__).with_name("screenshots")
BYTES_MAX = 150_000
NAMES = ("billing", "orders", "shipping", "payments", "stock", "mail", "search", "audit", "prices", "returns", "carts")


class Lively(FakeCluster):
    """Something is published all the time."""

    def _admin_nodes(self, payload):
        beat = time.time()
        self.published += int(900 + 350 * math.sin(beat * 1.3) + 130 * math.sin(beat * 3.7))
        for at, status in enumerate(super()._admin_nodes(payload)):
            status.messages_out = int(status.messages_in * (1.7 + at / 10))
            status.bytes_in, status.bytes_out = 212 * status.messages_in, 230 * status.messages_out
            yield status

    def _admin_channels(self, payload):
        for at, row in enumerate(self.channels.values()):
            if at % 7 == 0 and row.name != b"orders":
                row.last_sequence += 260 * (at // 7 + 1)
        return super()._admin_channels(payload)


def lively() -> FakeCluster:
    """A shop's cluster; one durable of it is stuck."""
    fake = Lively()
    now = time.time_ns()
    for number, name in enumerate(NAMES):
        for part in ("eu", "us", "asia"):
            fake.add_channel(f"shop.{name}.{part}".encode(), 7919 * (number + 1) % 90_000, 160)
    row = fake.add_channel(b"orders", 48_000, 92)
    for number in range(240):
        order = b'{"order": %d, "customer": "c-%d", "items": [{"sku": "A-%d", "count": %d}], "total": %d.90}'
        fake.add_message(
            b"orders", order % (10_400 + number, 17 * number % 997, number % 40, number % 3 + 1, number % 140)
        )
    for at, message in enumerate(fake.data[b"orders"]):
        message.timestamp = now - int((240 - at) * 1.2 * SECOND)
    row.first_timestamp = now - 6 * 3600 * SECOND
    stuck = {"waiting": 1204, "pending": 10, "oldest_pending": now - 190 * SECOND, "last_ack": now - 185 * SECOND}
    fake.add_durable(b"orders", b"billing", client=b"billing-1", acked_up_to=48_240 - 1214, **stuck)
    fake.add_durable(b"orders", b"shipping", client=b"shipping-2", acked_up_to=48_240)
    fake.add_durable(b"orders", b"reports", client=b"reports", acked_up_to=48_221, waiting=17, pending=2)
    for name, text in (
        ("leader", "node n2 leads group 5"),
        ("client connected", "client billing-1 connected"),
        ("subscribed", "durable billing on orders is online"),
    ):
        fake.happened.append(admin.Event(time=now - 200 * SECOND, kind=name, text=text))
    for number in range(14):
        fake.clients.append(admin.ClientStatus(client_id=b"worker-%d" % number, ping_interval_s=5, ping_max_out=3))
    return fake


def take(page: Page, name: str) -> None:
    """One picture of what is seen now."""
    shot = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": False})
    data = base64.b64decode(shot["data"])
    assert len(data) < BYTES_MAX, f"{name} has {len(data)} bytes"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.png").write_bytes(data)
    print(f"{name}.png: {len(data)} bytes")


def main() -> None:
    """Take them all."""
    fake = lively()
    with served_aside(fake) as url, browser() as driver:
        page = Page(driver, url)
        page.prefer("dark")
        page.size(1280, 860)
        page.open()
        points = "return (document.querySelector('.line')?.getAttribute('d') ?? '').split('L').length"
        page.until(lambda: page.script(points) >= 7, "charts have points")
        take(page, "overview-dark")
        page.prefer("light")
        page.size(1280, 1000)
        page.open("#/channel/orders")
        page.until(lambda: page.texts(".message"))
        page.script("document.querySelector('.columns').scrollIntoView()")
        take(page, "channel")
        page.size(390, 780)
        page.open("#/durables")
        page.until(lambda: page.texts("tbody tr"))
        take(page, "phone")


if __name__ == "__main__":
    main()
