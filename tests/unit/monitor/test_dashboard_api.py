"""The dashboard's JSON, over HTTP and without a browser: what it tells of a cluster, what it refuses, and to whom."""

import asyncio
import base64
import json
import socket
import time
from dataclasses import replace
from urllib.parse import quote

import aiohttp
import pytest
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.config import MonitorConfig
from stan.monitor.dashboard import api
from stan.monitor.guard import TOKEN_HEADER
from tests.kit.dashboard import served
from tests.kit.fake_broker import eventually
from tests.kit.fake_cluster import SECOND, FakeCluster


class Page:
    """Asks the dashboard of one cluster."""

    def __init__(self, session, url):
        self.session, self.url = session, url

    async def get(self, path, status=200, **headers):
        async with self.session.get(f"{self.url}/api/v1/{path}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def post(self, name, fields, status=200, **headers):
        session = await self.get("session")
        told = {"Origin": self.url, TOKEN_HEADER: session["token"], "Content-Type": "application/json", **headers}
        told = {name: text for name, text in told.items() if text is not None}
        data = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        async with self.session.post(f"{self.url}/api/v1/actions/{name}", data=data, headers=told) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Answers come with the first look, and new ones 2 s later, however busy the machine is: also if the garbage collector
    of the test process made an answer costly."""
    monkeypatch.setattr(api, "WHOLE_WAIT_S", 20.0)
    monkeypatch.setattr(limits, "DASHBOARD_WAIT", 20 * SECOND)
    monkeypatch.setattr(limits, "DASHBOARD_COST_RATIO", 0)
    monkeypatch.setattr(limits, "DASHBOARD_RED_AFTER", 0)


@pytest.fixture
def fake():
    return FakeCluster()


@pytest.fixture
async def page(fake):
    async with served(fake) as url, aiohttp.ClientSession() as session:
        yield Page(session, url)


@pytest.fixture
async def changing(fake):
    async with served(fake, fake.config(actions=True)) as url, aiohttp.ClientSession() as session:
        yield Page(session, url)


# --- what it tells ------------------------------------------------------------------------------------------------------


async def test_cluster_that_works_says_so_in_a_sentence(fake, page):
    fake.add_channel(b"orders", 1204)
    fake.add_durable(b"orders", b"billing", waiting=1204)
    found = await page.get("overview")
    assert found["state"] == "ok"
    assert found["sentence"] == (
        "Everything works: 3 of 3 nodes, all 9 groups have leaders, worst lag 1,204 on orders / billing."
    )
    assert (found["channels"], found["messages"], found["durables"]) == (1, 1204, 1)
    assert found["worst"][0]["name"] == "billing"


async def test_group_without_leader_is_told_with_since_when(fake, page):
    fake.leaderless = {3}
    before = time.time_ns() // 1_000_000

    async def told():
        return (await page.get("overview"))["sentence"].startswith("Group 3 has no leader")

    await eventually(told)
    found = await page.get("overview")
    assert found["state"] == "bad"
    (problem,) = found["problems"]
    again = (await page.get("overview"))["problems"][0]
    assert before <= problem["since"] == again["since"]
    fake.leaderless = set()

    async def well():
        return (await page.get("overview"))["state"] == "ok"

    await eventually(well)


async def test_channels_of_all_leaders_come_once_in_order_and_pages(fake, page):
    fake.page = 7
    names = [f"c{number:03}" for number in range(100)]
    for name in reversed(names):
        fake.add_channel(name.encode(), 3)
    found = await page.get("channels?limit=500")
    assert [row["name"] for row in found["rows"]] == names
    second = await page.get("channels?limit=10&offset=10")
    assert [row["name"] for row in second["rows"]] == names[10:20]
    assert (second["matching"], second["total"], second["missing"]) == (100, 100, [])


async def test_what_compression_and_compaction_have_done_is_told(fake, page):
    fake.add_channel(b"plain", 1)
    told = fake.add_channel(b"told", 9)
    told.commit, told.compress, told.compact, told.compacted_until, told.compacted_here = 1, 1, 1, 8, 7
    told.clear_bytes, told.kept_bytes, told.tombstones_until, told.tombstone_held = 900, 300, 3, 6
    told.held_by, told.compaction_passes, told.compaction_saved_bytes = b"billing", 2, 4000
    told.compaction_ended = 5 * SECOND
    plain, found = (await page.get("channels?sort=name"))["rows"]
    assert (plain["commit"], plain["compression"], plain["compaction"]) == ("synced", None, None)
    assert (plain["on_disk"], found["on_disk"]) == (True, False)
    assert (found["commit"], found["compression"]) == ("replicated", {"clear": 900, "kept": 300})
    assert found["compaction"] == {
        "stays": "newest",
        "until": 8,
        "here": 7,
        "tombstones_until": 3,
        "held": 6,
        "held_by": "billing",
        "passes": 2,
        "saved": 4000,
        "ended": 5000,
    }


async def test_channels_are_searched_and_ordered(fake, page):
    for number, name in enumerate([b"orders.eu", b"orders.us", b"audit", b"Orders.X"]):
        fake.add_channel(name, number).ttl = number * SECOND // 2
    found = await page.get("channels?search=ORDERS&sort=-messages")
    assert [row["name"] for row in found["rows"]] == ["Orders.X", "orders.us", "orders.eu"]
    assert [row["ttl"] for row in found["rows"]] == [1.5, 0.5, 0]
    assert found["matching"] == 3
    refused = await page.get("channels?sort=colour", 400)
    assert "sort: one of name" in refused["error"]
    await page.get("channels?offset=x", 400)
    await page.get("channels?limit=-1", 400)


async def test_groups_that_nobody_answers_for_are_told_and_the_rest_is_shown(fake, page):
    for name in (b"a", b"b", b"c"):
        fake.add_channel(name, 1)
    fake.leaderless = {fake.channels[b"b"].group}
    found = await page.get("channels")
    assert [row["name"] for row in found["rows"]] == ["a", "c"]
    assert found["missing"] == [fake.channels[b"b"].group]


async def test_names_of_any_bytes_are_keys_that_lead_back_to_them(fake, page):
    name = b"\xff<svg\x0conload=alert(1)%41&x=1#?"
    fake.add_message(name, b"hello")
    (row,) = (await page.get("channels"))["rows"]
    assert row["name"] == "�<svg\x0conload=alert(1)%41&x=1#?"
    found = await page.get(f"channel?name={quote(row['key'], safe='')}")
    assert found["uid"] == row["uid"]


async def test_channel_tells_pace_and_readers(fake, page):
    for number in range(5):
        fake.add_message(b"orders", b"%d" % number)
        fake.data[b"orders"][-1].timestamp -= 20 * SECOND
    fake.add_durable(b"orders", b"billing", waiting=5, pending=2)
    found = await page.get("channel?name=orders")
    assert round(sum(rate for _, rate in found["pace"]) * 5) == 5
    assert [(row["name"], row["lag"], row["state"]) for row in found["durables"]] == [("billing", 5, "catching up")]
    for name in ("nope", "", "%3E", "a..b"):
        assert (await page.get(f"channel?name={name}", 404))["error"] == "stan: unknown channel"


async def test_messages_from_the_end_a_sequence_and_a_time(fake, page):
    for number in range(1, 101):
        fake.add_message(b"orders", b"m%d" % number)
        fake.data[b"orders"][-1].timestamp = number * SECOND

    async def seen(more):
        found = await page.get(f"messages?name=orders&limit=3{more}")
        assert (found["first"], found["last"]) == (1, 100)
        return [base64.b64decode(message["data"]) for message in found["messages"]]

    assert await seen("") == [b"m98", b"m99", b"m100"]
    assert await seen("&sequence=5") == [b"m5", b"m6", b"m7"]
    assert await seen("&sequence=5&last=6") == [b"m5", b"m6"]
    assert await seen("&time=42000") == [b"m42", b"m43", b"m44"]
    await page.get("messages?name=orders&sequence=0", 400)
    await page.get("messages?name=orders&sequence=5&last=4", 400)
    await page.get("messages?name=nope", 404)


async def test_large_message_comes_in_part_and_whole_when_asked_for(fake, page):
    body = bytes(range(256)) * 100
    fake.add_message(b"big", body)
    (message,) = (await page.get("messages?name=big"))["messages"]
    assert not message["whole"]
    assert message["size"] == len(body)
    assert base64.b64decode(message["data"]) == body[: limits.DASHBOARD_PREVIEW_BYTES]
    async with page.session.get(f"{page.url}/api/v1/payload?name=big&sequence=1") as answer:
        assert await answer.read() == body
        assert answer.headers["Content-Disposition"].startswith("attachment")
        assert answer.headers["Content-Type"] == "application/octet-stream"
    await page.get("payload?name=big&sequence=9", 404)


async def test_key_and_headers_are_told_and_bounded(fake, page):
    fake.add_message(b"orders", b"plain")
    short = wire.Header(key=b"trace", value=b"\xff1")
    fake.add_message(b"orders", b"keyed", key="größe".encode(), headers=[short])
    long = wire.Header(key=b"n" * 1000, value="ü".encode() * 1000)
    fake.add_message(b"orders", b"much", key=b"k" * 1024, headers=[long] * 100)
    plain, keyed, much = (await page.get("messages?name=orders"))["messages"]
    assert (plain["key"], plain["headers"], plain["more_headers"]) == ("", [], 0)
    assert (keyed["key"], keyed["headers"], keyed["more_headers"]) == ("größe", [["trace", "�1"]], 0)
    at_most = limits.DASHBOARD_TEXT_CHARS
    assert much["key"] == "k" * at_most + "…"
    assert much["headers"] == [["n" * at_most + "…", "ü" * at_most + "…"]] * limits.DASHBOARD_HEADERS_MAX
    assert much["more_headers"] == 100 - limits.DASHBOARD_HEADERS_MAX


async def test_clients_cluster_options_and_durables(fake, page):
    fake.clients.append(fake_client(b"me"))
    fake.add_durable(b"orders", b"billing", client=b"me", waiting=7)
    fake.add_durable(b"orders", b"audit", client=b"other", paused=True)
    (client,) = (await page.get("clients?sort=-lag"))["rows"]
    assert (client["name"], client["subscriptions"], client["lag"]) == ("me", 1, 7)
    cluster = await page.get("cluster")
    assert [node["name"] for node in cluster["nodes"]] == ["n1", "n2", "n3"]
    roles = [node["groups"]["1"]["role"] for node in cluster["nodes"]]
    assert sorted(roles) == ["follower", "follower", "leader"]
    options = await page.get("options")
    assert ["cluster_id", "test-cluster", "default"] in options["nodes"][0]["options"]
    durables = await page.get("durables?state=paused")
    assert [row["name"] for row in durables["rows"]] == ["audit"]
    assert durables["states"] == {"paused": 1, "catching up": 1}


async def test_windows_of_a_channel_s_cursors_are_told_over_time(fake, page):
    fake.add_durable(b"orders", b"billing")
    (told,) = (await page.get("channel?name=orders"))["durables"]
    assert (told["window"], told["window_now"], told["members"][0]["window_now"]) == (10, 10, 10)
    fake.cursors[0].members[0].window_now = 3
    (told,) = (await page.get("channel?name=orders"))["durables"]
    assert (told["window"], told["window_now"], told["members"][0]["window_now"]) == (10, 3, 3)
    assert {window for _, window in told["windows"][:-1]} == {10}
    assert told["windows"][-1][1] == 3


def fake_client(name):
    from stan_protocol.proto import admin_pb2 as admin  # noqa: PLC0415

    return admin.ClientStatus(client_id=name, protocol=1, ping_interval_s=5, ping_max_out=3)


async def test_many_who_look_at_once_ask_the_cluster_once(fake, page):
    fake.add_channel(b"a", 1)
    await page.get("channels")
    before = fake.asked.count("admin.channels")
    await asyncio.gather(*(page.get("channels") for _ in range(20)))
    assert fake.asked.count("admin.channels") - before <= 1


async def test_ten_thousand_channels_are_one_page_like_any_other(fake, page):
    for number in range(10_000):
        fake.add_channel(b"channel.%d" % number, number)
    found = await page.get("channels?sort=-messages&search=99")
    assert found["total"] == 10_000
    assert found["rows"][0]["name"] == "channel.9999"
    assert len(found["rows"]) == 50


# --- what is no longer known ------------------------------------------------------------------------------------------------


async def test_after_a_minute_of_nobody_nothing_is_told_that_was_not_asked_again(fake, page):
    fake.add_durable(b"orders", b"billing", waiting=5)
    assert (await page.get("overview"))["state"] == "ok"

    async def settled():
        return (await page.get("news"))["sentence"].endswith("worst lag 5 on orders / billing.")

    await eventually(settled)
    fake.held = lambda kind, _payload: kind != "admin.nodes"
    fake.ahead += 120 * SECOND
    found = await page.get("news")
    assert found["state"] == "ok"
    assert found["sentence"] == "Everything works: 3 of 3 nodes, all 9 groups have leaders."
    fake.held = None
    await eventually(settled)


async def test_node_that_dies_is_told_since_the_first_time_that_it_failed_to_answer(fake, page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_TICK", SECOND // 20)
    assert (await page.get("overview"))["state"] == "ok"
    fake.ahead += 600 * SECOND  # nobody looks
    before = time.time_ns() // 1_000_000
    fake.silent = {"n3"}

    async def told():
        fake.ahead += 3 * SECOND
        return (await page.get("overview"))["sentence"].startswith("Node n3 does not answer")

    await eventually(told)
    problem = next(one for one in (await page.get("overview"))["problems"] if one["text"].startswith("Node n3"))
    assert problem["since"] >= before
    (node,) = [one for one in (await page.get("cluster"))["nodes"] if one["id"] == "n3"]
    assert node["silent"] == problem["since"]
    assert fake.asked.count("admin.nodes") < 20


@pytest.fixture
def often(monkeypatch):
    """The dashboard looks often, although nobody watches: asked for before the page, which begins to look."""
    monkeypatch.setattr(limits, "DASHBOARD_IDLE_TICK", SECOND // 20)


@pytest.mark.usefixtures("often")
async def test_a_look_that_fails_is_logged_and_not_the_last(fake, page, monkeypatch):
    async def logged():
        fake.ahead += 60 * SECOND
        return fake.complaints

    with monkeypatch.context() as patch:
        patch.setattr(fake, "nodes", None)  # an error nobody expects
        await eventually(logged)
    assert "Error looking at the cluster for the dashboard: TypeError" in fake.complaints[0]
    fake.asked.clear()

    async def looked_again():
        fake.ahead += 60 * SECOND
        return "admin.nodes" in fake.asked

    await eventually(looked_again)


# --- news -----------------------------------------------------------------------------------------------------------------


async def test_news_come_as_a_stream_and_streams_are_bounded(page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_STREAMS_MAX", 1)
    monkeypatch.setattr(limits, "DASHBOARD_TICK", SECOND // 20)
    async with page.session.get(f"{page.url}/api/v1/live") as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        for _ in range(3):
            line = await stream.content.readline()
            assert json.loads(line.removeprefix(b"data: "))["sentence"]
            assert await stream.content.readline() == b"\n"
        assert "enough pages" in (await page.get("live", 503))["error"]
        assert (await page.get("news"))["sentence"]

    async def free():
        async with page.session.get(f"{page.url}/api/v1/live") as stream:
            return stream.status == 200

    await eventually(free)


# --- changes --------------------------------------------------------------------------------------------------------------


async def test_nothing_can_be_changed_unless_it_is_switched_on(fake, page):
    session = await page.get("session")
    assert (session["cluster"], session["actions"], session["token"]) == ("test-cluster", False, "")
    refused = await page.post("purge", {"channel": "orders", "keep": 0}, 403)
    assert "--dashboard_actions" in refused["error"]
    async with page.session.get(f"{page.url}/api/v1/actions/purge") as answer:
        assert answer.status == 404
    assert not fake.changes


async def test_changes_are_made_for_our_own_pages_only(fake, changing):
    fields = {"channel": "orders", "keep": 2}
    fake.add_channel(b"orders", 10)
    own = "changes are made by the dashboard's own pages only"
    for wrong in ({"Origin": "http://evil.example"}, {"Origin": None}, {"Origin": "null"}):
        assert (await changing.post("purge", fields, 403, **wrong))["error"] == own
    assert (await changing.post("purge", fields, 403, **{"Sec-Fetch-Site": "cross-site"}))["error"] == own
    wrong = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert "not its own" in (await changing.post("purge", fields, 403, **wrong))["error"]
    for token in ("", "x" * 43, "ü"):
        assert "load the page again" in (await changing.post("purge", fields, 403, **{TOKEN_HEADER: token}))["error"]
    assert "as JSON" in (await changing.post("purge", fields, 403, **{"Content-Type": "text/plain"}))["error"]
    assert not fake.changes
    assert await changing.post("purge", fields) == {"text": "8 messages removed"}
    ((kind, request),) = fake.changes
    assert (kind, request.channel, request.keep, request.version) == ("admin.purge", b"orders", 2, 1)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "localhost"])  # noqa: S104 - only told of
async def test_site_whose_name_points_here_reads_nothing_wherever_it_listens(fake, host):
    async with served(fake, fake.config(host=host)) as url, aiohttp.ClientSession() as session:
        await reads_nothing_by_strange_names(Page(session, url))


async def reads_nothing_by_strange_names(page):
    refused = await page.get("channels", 403, Host="evil.example")
    assert "not its own" in refused["error"]
    await page.get("session", 403, Host="evil.example:8222")
    await page.get("live", 403, Host="evil.example")
    await page.get("channels", 403, Host=f"{socket.gethostname()}.evil.example")
    for path in ("/dashboard/", "/dashboard/main.js", "/metrics"):
        async with page.session.get(page.url + path, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
            assert "--http_hosts" in await answer.text()
    for own in ("localhost:1", "127.0.0.1", "10.1.2.3:8222", "[::1]:8222", "a.localhost", socket.gethostname().upper()):
        await page.get("channels", Host=own)


async def test_names_that_the_server_is_told_of_are_its_own(fake):
    config = fake.config()
    config = replace(config, monitor=replace(config.monitor, hosts=("stan.example", "*.nodes.example")))
    assert not config.monitor.complaints()
    async with served(fake, config) as url, aiohttp.ClientSession() as session:
        page = Page(session, url)
        for own in ("stan.example", "STAN.example:8222", "stan.example.", "n1.nodes.example", "a.b.nodes.example"):
            await page.get("channels", Host=own)
        for other in ("example", "x.stan.example", "nodes.example", "evilnodes.example", "stan.example.evil"):
            await page.get("channels", 403, Host=other)


@pytest.mark.parametrize("name", ["a:8222", "http://a", "a b", "*.*", "a*", "1.2.3.4", "", ".a", "a..b", "ä"])
def test_name_that_is_none_is_complained_of(name):
    (complaint,) = MonitorConfig(hosts=(name,)).complaints()
    assert complaint == f"http_hosts: {name!r} is no name of a host (no port, no address)"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("purge", {"channel": "orders"}),
        ("purge", {"channel": "orders", "keep": -1}),
        ("purge", {"channel": "orders", "keep": True}),
        ("purge", {"channel": "orders", "keep": 1.5}),
        ("purge", {"channel": "", "keep": 1}),
        ("purge", {"channel": ["x"], "keep": 1}),
        ("purge", {"keep": 1}),
        ("delete_message", {"channel": "orders", "sequence": 0}),
        ("delete_channel", {"channel": "orders"}),
        ("move", {"channel": "orders", "cursor": "1"}),
        ("move", {"channel": "orders", "cursor": "1", "to": "sequence", "sequence": 1 << 70}),
        ("skip", {"channel": "orders", "cursor": "x", "sequence": 1}),
        ("publish", {"channel": "orders"}),
        ("nonsense", {}),
        ("purge", b"[]"),
        ("purge", b"{"),
        ("purge", b"[" * 100_000),
        ("purge", b"\xff"),
    ],
)
async def test_changes_that_make_no_sense_are_refused_before_anything_is_asked(fake, changing, name, fields):
    assert (await changing.post(name, fields, 400))["error"]
    assert not fake.changes


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("delete_message", {"channel": "orders", "sequence": 3}, "admin.delete_message"),
        ("create_channel", {"channel": "new"}, "admin.create_channel"),
        ("delete_channel", {"channel": "orders", "uid": 1}, "admin.delete_channel"),
        ("edit_limits", {"channel": "orders", "max_msgs": 5, "max_age": 1000}, "admin.edit_limits"),
        ("move", {"channel": "orders", "cursor": "1", "to": "first"}, "admin.move"),
        ("move", {"channel": "orders", "cursor": "1", "to": "time", "time": 1000}, "admin.move"),
        ("skip", {"channel": "orders", "cursor": "1", "sequence": 3}, "admin.skip"),
        ("redeliver", {"channel": "orders", "cursor": "1"}, "admin.redeliver"),
        ("pause", {"channel": "orders", "cursor": "1"}, "admin.pause"),
        ("resume", {"channel": "orders", "cursor": "1"}, "admin.resume"),
        ("evict_member", {"channel": "orders", "subscription": "7"}, "admin.evict_member"),
        ("delete_cursor", {"channel": "orders", "cursor": "1"}, "admin.delete_cursor"),
        ("evict_client", {"client": "me"}, "admin.evict_client"),
        ("step_down", {"group": 0}, "admin.step_down"),
        ("publish", {"channel": "orders", "text": "hellö"}, "batch"),
    ],
)
async def test_each_change_becomes_its_request(fake, changing, name, fields, kind):
    fake.add_durable(b"orders", b"billing")
    assert (await changing.post(name, fields))["text"]
    assert [change[0] for change in fake.changes] == [kind]


async def test_refusal_of_the_cluster_is_told(changing):
    assert (await changing.post("create_channel", {"channel": "a..b"}, 409))["error"] == "stan: invalid channel name"


# --- files ----------------------------------------------------------------------------------------------------------------


async def test_every_answer_has_the_rules_for_browsers(page):
    for path in ("/dashboard/", "/dashboard/main.js", "/dashboard/nope.js", "/api/v1/overview", "/api/v1/nope"):
        async with page.session.get(page.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("path", ["nothing", "a/b", "..%2fapp.css", "app.css.map"])
async def test_file_that_is_none_says_so(page, path):
    async with page.session.get(f"{page.url}/dashboard/{path}") as answer:
        assert answer.status == 404
        assert await answer.text() == "The dashboard has no such page: it begins at /dashboard/\n"


async def test_lists_known_last_stay_while_nobody_answers(fake, page, monkeypatch):
    fake.add_channel(b"orders", 7)
    before = await page.get("channels")
    monkeypatch.setattr(limits, "DASHBOARD_WAIT", SECOND // 100)
    fake.leaderless = set(range(1, 9))
    fake.ahead += 200 * SECOND
    again = await page.get("channels")
    assert [row["name"] for row in again["rows"]] == ["orders"]
    assert again["at"] == before["at"]
    overview = await page.get("overview")
    assert (overview["channels"], overview["messages"]) == (1, 7)
    assert overview["old"] == before["at"]


async def test_files_are_kept_by_browsers_while_they_do_not_change(page):
    async with page.session.get(f"{page.url}/dashboard") as answer:
        assert str(answer.url) == f"{page.url}/dashboard/"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        tag, text = answer.headers["ETag"], await answer.text()
    assert "http://" not in text
    assert "https://" not in text
    async with page.session.get(f"{page.url}/dashboard/", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304
    async with page.session.get(f"{page.url}/dashboard/..%2froutes.py") as answer:
        assert answer.status == 404


async def test_what_has_happened_to_a_message_is_told_in_sentences(fake, page):
    fake.add_channel(b"orders", 7)
    cursor = fake.add_durable(b"orders", b"billing").cursor_id
    found = await page.get(f"explain?name=orders&cursor={cursor}&sequence=1")
    assert [(step["time"], step["leader"], step["cause"]) for step in found["steps"]] == [
        (1000, "n1", "new"),
        (2000, "", "ack wait over"),
    ]
    assert found["steps"][0]["text"] == "sent to <b>me</b> (subscription 0) for the first time"
    assert found["steps"][1]["text"].endswith("as the delivery before was not acked in time; redelivery 1")
    assert found["state"] == "A member has it, and has not acked it yet."
    assert "may be missing" in found["note"]
    assert (await page.get(f"explain?name=orders&cursor={cursor}&sequence=2"))["steps"] == []
    for wrong in ("cursor=0&sequence=1", "cursor=1", "sequence=1", "cursor=x&sequence=1"):
        await page.get(f"explain?name=orders&{wrong}", 400)


async def test_of_a_message_that_is_not_settled_a_part_of_the_log_is_read(fake, page, monkeypatch):
    monkeypatch.setattr(limits, "EXPLAIN_ANSWERS_MAX", 1)
    fake.add_channel(b"orders", 7)
    cursor = fake.add_durable(b"orders", b"billing").cursor_id
    found = await page.get(f"explain?name=orders&cursor={cursor}&sequence=1")
    assert [step["cause"] for step in found["steps"]] == ["new"]
    assert "The log goes on" in found["note"]


# --- dead letters ---------------------------------------------------------------------------------------------------------


async def test_dead_letter_channels_have_a_page(fake, page):
    fake.add_channel(b"orders", 9)
    fake.add_channel(b"orders.dlq", 2)
    fake.add_channel(b"failed", 3)
    billing = fake.add_durable(b"orders", b"billing")
    billing.dead_letter_channel, billing.exhausted, billing.dead_letter_fault = b"failed", 4, b"no room"

    found = await page.get("dead_letters?sort=-messages")

    assert [(row["name"], row["messages"], row["sources"]) for row in found["rows"]] == [
        (
            "failed",
            3,
            [
                {
                    "channel": "orders",
                    "channel_key": "orders",
                    "name": "billing",
                    "exhausted": 4,
                    "dead_letters": 0,
                    "fault": "no room",
                }
            ],
        ),
        ("orders.dlq", 2, []),
    ]
    assert found["total"] == 2


async def test_a_position_that_the_broker_has_paused_says_why(fake, page):
    fake.add_channel(b"orders", 9)
    billing = fake.add_durable(b"orders", b"billing", waiting=3)
    billing.paused, billing.pause_reason = True, b"100 messages became dead letters within a minute"

    (row,) = (await page.get("durables"))["rows"]

    assert row["level"] == "warn"
    assert row["text"].startswith("The broker has paused it: 100 messages became dead letters within a minute. ")


async def test_dead_letters_are_put_back(fake, changing):
    fake.add_channel(b"orders.dlq", 2)

    answer = await changing.post("redrive", {"channel": "orders.dlq", "first": 1, "last": "2"})

    assert answer["text"].endswith("put back")
    kind, request = fake.changes[-1]
    assert (kind, request.channel, list(request.runs)) == ("admin.redrive", b"orders.dlq", [1, 2])


# --- channels with parts --------------------------------------------------------------------------------------------------


async def test_parts_of_a_channel_are_one_row_with_their_sums(fake, page):
    for name in (b"a", b"sales-old", b"z"):
        fake.add_channel(name, 1)
    fake.add_parts(b"sales", 5000, 10, 20, 30)
    fake.add_durable(b"sales.~1", b"ledger", waiting=7)
    fake.add_durable(b"sales.~3", b"ledger", waiting=9)
    await page.get("durables")
    found = await page.get("channels")
    assert [row["name"] for row in found["rows"]] == ["a", "sales", "sales-old", "z"]
    assert (found["total"], found["matching"]) == (4, 4)
    row = found["rows"][1]
    assert (row["messages"], row["bytes"], row["online"], row["lag"], row["cursors"]) == (5060, 506_000, 2, 9, 2)
    assert [(part["name"], part["messages"], part["lag"]) for part in row["parts"]] == [
        ("sales.~0", 5000, 0),
        ("sales.~1", 10, 7),
        ("sales.~2", 20, 0),
        ("sales.~3", 30, 9),
    ]
    assert row["of"] == 4
    assert "parts" not in found["rows"][0]
    busiest = await page.get("channels?sort=-messages&limit=1")
    assert [row["name"] for row in busiest["rows"]] == ["sales"]
    assert (await page.get("overview"))["channels"] == 7


async def test_rates_of_parts_are_summed(fake, page):
    parts = fake.add_parts(b"sales", 100, 100)
    await page.get("channels")
    for part in parts:
        part.last_sequence += 1000
    fake.ahead += 3 * SECOND
    (row,) = (await page.get("channels"))["rows"]
    rates = [part["rate"] for part in row["parts"]]
    assert rates[0] > 0
    assert row["rate"] == pytest.approx(sum(rates), abs=0.2)


async def test_a_channel_with_parts_tells_where_they_are_who_reads_them_and_what_is_wrong(fake, page):
    parts = fake.add_parts(b"sales", 5000, 10, 20, 30)
    parts[3].group = parts[2].group
    for number in range(3):
        fake.add_durable(b"sales.~%d" % number, b"ledger", waiting=number, pending=1)
    fake.add_channel(b"sales.more", 5)
    found = await page.get("channel?name=sales")
    assert (found["name"], found["messages"], found["of"]) == ("sales", 5060, 4)
    assert [part["leader"] for part in found["parts"]] == [fake.leader(part.group) for part in parts]
    (reader,) = found["durables"]
    assert (reader["name"], reader["lag"], reader["pending"], reader["parts"]) == ("ledger", 3, 3, 3)
    told = " ".join(fault["text"] for fault in found["faults"])
    assert "Part ~0 of channel sales has 5,000 of 5,060 messages" in told
    assert "2 parts of channel sales are in group" in told
    assert "reads 3 of the 4 parts" in told
    part = await page.get(f"channel?name={quote('sales.~1')}")
    assert (part["whole_name"], part["messages"]) == ("sales", 10)
    await page.get("channel?name=nothing", 404)
