"""The history of figures in headless Chromium: charts over an hour and a week, the same after a restart of a real server."""

import asyncio
import time

import pytest
import stan_client

from stan.config import Config, StoreConfig
from stan.monitor.dashboard.measured_history import MeasuredHistory
from tests.browser.chromium import Page, browser
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster
from tests.kit.ports import free_port
from tests.kit.server import StanServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


def test_charts_share_a_time_axis_have_a_scale_and_show_where_nothing_is_known(driver, tmp_path):
    history, now = MeasuredHistory(), time.time_ns()
    for hours in range(160):
        if not 60 < hours < 90:
            for step in range(12):
                at = now - (160 - hours) * 3600 * SECOND + step * 300 * SECOND
                history.note(
                    at, {"messages_in": 1500, "messages_out": 10 * hours, "bytes_in": 900 * 1024, "lag": hours}
                )
    (tmp_path / "dashboard-history").write_bytes(history.encoded())
    config = Config(store=StoreConfig(kind="file", directory=tmp_path, raft_groups=8))
    with served_aside(FakeCluster(), config) as url:
        page = Page(driver, url)
        page.open("#/metrics")
        page.click(".views label", "A week")
        page.until(lambda: page.text(".chart .scale span") == "2,000/s", "a round end of the scale")
        assert page.script("return location.hash") == "#/metrics?span=week"
        lines = "return [...document.querySelectorAll('.chart')].map((e) => e.querySelectorAll('.line.s0').length)"
        page.until(lambda: page.script(lines)[:2] == [2, 2], "a line is broken where nothing is known")
        assert len(page.script(lines)) == 10
        times = "return [...document.querySelectorAll('.times')].map((e) => e.textContent)"
        page.until(lambda: len(page.script(times)) >= 3)
        assert len(set(page.script(times)[:3])) == 1
        assert page.texts(".chart .axis span")[0].startswith("UTC")


def test_real_server_shows_what_was_before_its_restart(driver, tmp_path):
    port = free_port()

    async def publish(url: str) -> None:
        async with await stan_client.connect(url, client_id="me") as client:
            await client.publish_many("orders", [b"x" * 100] * 2000)

    with StanServer(tmp_path, "-m", str(port)) as server:
        page = Page(driver, f"http://127.0.0.1:{port}")
        page.open("#/metrics")
        values = "return (await (await fetch('/api/v1/history?span=week')).json()).points.map((point) => point[1] ?? 0)"

        def measured() -> bool:
            asyncio.run(publish(server.url))
            return max(page.script(values), default=0) > 0

        page.until(measured, "it is measured")
        before = page.script(values)
        server.terminate()
        server.start()
        page.open("#/metrics")
        page.until(lambda: max(page.script(values), default=0) > 0, "it is there again")
        assert len(page.script(values)) >= len(before)
