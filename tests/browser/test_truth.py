"""The dashboard tells no untruth: opened under load, after a minute of nobody, with servers that freeze or die, by a person
who may see a part, and on a full disk.

`STAN_OPENINGS=200` in the environment has each of these tests open as often, instead of 10 times.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time

import pytest
import stan_client

from tests.browser.chromium import Page, browser
from tests.conformance.wire import speaking
from tests.kit.cluster import StanCluster
from tests.kit.dashboard import served_aside
from tests.kit.fake_cluster import SECOND, FakeCluster
from tests.kit.ports import free_port
from tests.kit.server import NatsServer, StanServer

OPENINGS = int(os.environ.get("STAN_OPENINGS", "10"))  # of each test
OPENINGS_SLOW = 100
MINUTE = 60 * SECOND
pytestmark = pytest.mark.timeout(300 + 10 * OPENINGS)
GONE = re.compile(r"not answer|does not hear|is known yet|no connection to NATS")
NEWS = """
const [many, done] = arguments, found = [], stream = new EventSource("/api/v1/live");
stream.onmessage = (event) => {
  found.push(event.data);
  if (found.length === many) stream.close(), done(found);
};
stream.onerror = () => (stream.close(), done(found));
"""


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@contextlib.contextmanager
def load(url, rate=300):
    """So many messages a second, and a subscriber, until the block is left."""
    over = threading.Event()

    async def publish():
        async with await stan_client.connect(url.split(","), client_id="load") as client:
            await client.subscribe("load.0", lambda _message: None, durable="reader", start=stan_client.everything())
            while not over.is_set():
                begun = time.monotonic()
                await asyncio.gather(*(client.publish(f"load.{at % 8}", bytes(200)) for at in range(rate // 10)))
                await asyncio.sleep(max(0, begun + 0.1 - time.monotonic()))

    thread = threading.Thread(target=lambda: asyncio.run(publish()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def opened(page, hash_="#/", news=1):
    """What is told on a page that was just opened: the first *news*, and what is read there once it is drawn."""
    page.open(hash_)
    told = [json.loads(text) for text in page.driver.execute_async_script(NEWS, news)]
    page.until(lambda: page.text("#live") == "live", "news have come")
    return [(one["state"], one["sentence"]) for one in told], page.text("#health"), page.text("#lost")


def log_of(cluster):
    """All that its nodes have logged, when it is called for."""
    return lambda: "".join(node.log() for node in cluster.nodes.values())


def changes(log):
    """How often leadership came or went."""
    return len(re.findall(r"group \d+: leads", log))


def untruths(page, times, log=str, news=1, *, hashes=("#/", "#/cluster")):
    """Openings of a cluster in which nobody died that tell something else.

    *log*: of its nodes; *hashes*: the overview, and a page that is opened in turn with it. Where the machine is short of CPU
    leaders may change indeed: what is said of that is true then."""
    found, before = [], changes(log())
    for at in range(times):
        states, health, lost = opened(page, hashes[at % 2], news)
        told = page.text("#sentence") if at % 2 == 0 else page.text("main")
        now = changes(log())
        well = {state for state, _ in states} == {"ok"} and health == "Healthy"
        said = " ".join([told, *(sentence for _, sentence in states)])
        if lost or GONE.search(said) or not (well or now != before):
            found.append((at, states, health, lost, told))
        before = now
    return found


# --- nobody looks -------------------------------------------------------------------------------------------------------


def test_first_look_after_a_minute_of_nobody_is_true(driver):
    fake = FakeCluster()
    with served_aside(fake) as url:
        page = Page(driver, url)
        for _ in range(OPENINGS):
            news, health, _ = opened(page)
            assert [state for state, _ in news] == ["ok"], news
            assert health == "Healthy"
            driver.get("about:blank")
            fake.ahead += MINUTE


# --- load ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    port = free_port()
    with StanServer(tmp_path, "-m", str(port)) as server:
        yield server, f"http://127.0.0.1:{port}"


@pytest.fixture
def three(tmp_path):
    """A cluster, and the addresses of its pages by node."""
    ports = {name: free_port() for name in ("n1", "n2", "n3")}
    flags = {name: ("-m", str(port)) for name, port in ports.items()}
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats, own_flags=flags) as cluster:
        yield cluster, {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}


def test_server_under_load_is_told_to_be_well_whenever_its_pages_are_opened(driver, alone):
    server, url = alone
    page = Page(driver, url)
    page.open()
    page.until(lambda: page.text("#health") == "Healthy")
    with load(server.url):
        assert untruths(page, OPENINGS) == []


def test_each_of_three_nodes_under_load_tells_the_truth(driver, three):
    cluster, urls = three
    with load(cluster.url):
        for url in urls.values():
            page = Page(driver, url)
            page.open()
            page.until(lambda page=page: page.text("#health") == "Healthy")
            assert untruths(page, OPENINGS // 2, log_of(cluster)) == []


# --- a person who may see a part ----------------------------------------------------------------------------------------


PERSON = """
streaming {
  permissions { users: [{ user: load, password: of-load }, { user: alice, password: of-alice }], allow: [
    { user: load, publish: ">", subscribe: ">", durable: ">" }
    { user: alice, admin_read: "load.1", subscribe: "load.1" }
  ] }
  dashboard { users: [{ user: alice }] }
}
"""


def test_each_opening_of_a_person_who_may_see_one_channel_tells_the_truth_and_nothing_else(driver, tmp_path):
    port = free_port()
    (tmp_path / "stan.conf").write_text(PERSON)
    with StanServer(tmp_path, "-c", str(tmp_path / "stan.conf"), "-m", str(port)) as server:
        page = Page(driver, f"http://127.0.0.1:{port}")
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        with load(server.url.replace("nats://", "nats://load:of-load@")):
            page.open()
            page.type("[name=user]", "alice")
            page.type("[name=password]", "of-alice")
            page.click("#log-in")
            page.until(lambda: page.text("#health") == "Healthy")
            page.open("#/channels")
            page.until(lambda: page.texts("tbody th") == ["load.1"], "what she may see")
            assert untruths(page, OPENINGS, server.log, hashes=("#/", "#/channels")) == []
            page.open("#/durables")
            page.until(lambda: page.find("[data-phase=loaded]"))
            assert "reader" not in page.text("main"), "the durable of another channel"


# --- a full disk --------------------------------------------------------------------------------------------------------


def test_each_opening_of_a_server_with_a_full_disk_says_so(driver, tmp_path):
    full, port = tmp_path / "full", free_port()
    command = (sys.executable, "-m", "tests.kit.full_disk", str(full))

    async def fill(url):
        async with speaking(url) as wire:
            session = await wire.connect("writer")
            assert await session.publish("orders", b"there is room") == [""]
            full.touch()
            assert await session.publish("orders", b"there is none") == ["stan: no space left on the server's disk"]

    with StanServer(tmp_path, "-m", str(port), command=command) as server:
        page = Page(driver, f"http://127.0.0.1:{port}").open()
        page.until(lambda: page.text("#health") == "Healthy")
        asyncio.run(fill(server.url))
        page.until(lambda: page.text("#health") == "Trouble", "it is known")
        said = [opened(page, ("#/", "#/cluster")[at % 2]) for at in range(OPENINGS)]
        assert {(state, health) for news, health, _ in said for state, _ in news} == {("bad", "Trouble")}
        assert all("No space left on device" in sentence for news, _, _ in said for _, sentence in news), said
        assert {lost for _, _, lost in said} == {""}
        full.unlink()
        page.until(lambda: page.text("#health") == "Healthy", "there is room again")
        assert untruths(page, OPENINGS) == []


# --- often --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hundred_openings_under_load_tell_nothing_untrue(driver, three, alone):
    cluster, urls = three
    server, own = alone
    with load(cluster.url), load(server.url):
        found = []
        for url in (own, *urls.values()):
            page = Page(driver, url)
            page.open()
            page.until(lambda page=page: page.text("#health") == "Healthy")
            found += [(url, one) for one in untruths(page, OPENINGS_SLOW // 4, log_of(cluster), news=2)]
        assert not found, "\n".join(map(str, found)) + cluster.log()


# --- servers that die ---------------------------------------------------------------------------------------------------


DAY_SECOND = "const d = new Date(arguments[0]); return d.getHours() * 3600 + d.getMinutes() * 60 + d.getSeconds()"


def seconds(text):
    """Moments of a day in *text*, as seconds."""
    return [int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in re.findall(r"(\d\d):(\d\d):(\d\d)", text)]


def day_second(page, at):
    """The same of Unix seconds, where the browser is."""
    return page.script(DAY_SECOND, at * 1000)


def test_nodes_that_die_are_told_with_since_when_and_a_lost_majority_in_one_sentence(driver, three):
    cluster, urls = three
    page = Page(driver, urls["n1"])
    page.open()
    page.until(lambda: page.text("#health") == "Healthy")
    killed = time.time()
    cluster.kill9("n3")
    page.until(lambda: page.text("#sentence").startswith("Node n3 does not answer"), "n3 is told of as gone")
    told = time.time()
    (since, *_) = seconds(page.text("#sentence") or page.text(".problems"))
    assert day_second(page, killed) <= since <= day_second(page, told)
    page.until(lambda: page.text("#health") == "Trouble")
    page.open("#/cluster")
    page.until(lambda: "does not answer since" in page.text(".node.bad"))
    assert seconds(page.text(".node.bad"))[0] == since
    page.open()
    cluster.kill9("n2")
    page.until(lambda: "2 of 3 nodes do not answer (n2 and n3): nothing is accepted" in page.text("#sentence"))
    assert page.texts(".problems li") == []
    cluster.start("n2", "n3")
    page.until(lambda: page.text("#sentence").startswith("Everything works: 3 of 3 nodes"))


def test_page_whose_own_server_freezes_or_dies_says_so(driver, alone):
    server, url = alone
    page = Page(driver, url).open("#/cluster")
    page.until(lambda: page.text(".nodes .level") == "ready")
    server.signal(signal.SIGSTOP)
    page.until(lambda: page.text("#lost").startswith("The server does not answer. What is shown is as it was at "))
    assert page.text("#health") == "Trouble"
    server.signal(signal.SIGCONT)
    page.until(lambda: not page.text("#lost") and page.text("#health") == "Healthy")
    server.kill9()
    page.until(lambda: page.text("#lost").startswith("The server cannot be reached. What is shown is as it was at "))
    assert page.text("#health") == "Trouble"
    server.start()
    page.until(lambda: not page.text("#lost") and page.text("#health") == "Healthy")
