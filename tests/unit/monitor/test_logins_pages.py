"""Logins to the pages, over HTTP: who gets in, what each may see and change, sessions, failed tries, and what the log says."""

import contextlib
import json
import time

import aiohttp
import pytest
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.logins import Logins, PageProxy, PageUser
from stan.monitor.guard import TOKEN_HEADER
from stan.monitor.login.failed_tries import FailedTries
from stan.monitor.login.sessions import BrowserSessions
from stan.permissions import NatsUser, Permissions, Right, Rule
from tests.kit.dashboard import served
from tests.kit.fake_cluster import SECOND, FakeCluster

SECRET = "correct horse"  # noqa: S105 - of a test
TOKEN = "0123456789abcdef"  # noqa: S105
PERMISSIONS = Permissions(
    [
        Rule(
            user="alice",
            rights={
                Right.ADMIN_READ: ("orders.>",),
                Right.SUBSCRIBE: ("orders.eu",),
                Right.ADMIN_WRITE: ("orders.eu",),
            },
        ),
        Rule(user="ops", rights=dict.fromkeys(Right, (">",))),
    ],
    [NatsUser(name="alice", password=SECRET), NatsUser(name="ops", password=SECRET)],
)
LOGINS = Logins(
    users=(
        PageUser(name="alice", acts=True),
        PageUser(name="ops", token=TOKEN, acts=True),
        PageUser(name="guest", password=SECRET, channels=("public.>",)),
    ),
    proxy=PageProxy(addresses=("127.0.0.1",), channels=("public.>",)),
)


class Browser:
    """Asks as a browser does, with the cookies of its own."""

    def __init__(self, session, url):
        self.session, self.url = session, url

    async def get(self, path, status=200, **headers):
        async with self.session.get(f"{self.url}{path}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json() if "json" in answer.content_type else await answer.text()

    async def ask(self, path, status=200, **headers):
        return await self.get(f"/api/v1/{path}", status, **headers)

    async def post(self, path, fields, status=200, **headers):
        told = {"Origin": self.url, "Content-Type": "application/json", **headers}
        data = fields if isinstance(fields, bytes) else json.dumps(fields)
        async with self.session.post(f"{self.url}/api/v1/{path}", data=data, headers=told) as answer:
            assert answer.status == status, await answer.text()
            self.answer = answer
            return await answer.json()

    async def log_in(self, user, password=SECRET, status=200):
        return await self.post("login", {"user": user, "password": password}, status)

    async def act(self, name, fields, status=200):
        token = (await self.ask("session"))["token"]
        return await self.post(f"actions/{name}", fields, status, **{TOKEN_HEADER: token})


@contextlib.asynccontextmanager
async def browsing(fake, logins=LOGINS, permissions=PERMISSIONS):
    config = fake.config(logins=logins, permissions=permissions)
    jar = aiohttp.CookieJar(unsafe=True)
    async with served(fake, config) as url, aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Browser(session, url)


@pytest.fixture
def fake():
    fake = FakeCluster()
    for name, messages in ((b"orders.eu", 3), (b"orders.us", 4), (b"public.news", 5), (b"hidden", 6)):
        fake.add_channel(name, messages)
        fake.add_durable(name, b"reader", waiting=messages)
    fake.add_message(b"orders.eu", b"hello", key=b"k", headers=[wire.Header(key=b"h", value=b"v")])
    return fake


@pytest.fixture
async def browser(fake):
    async with browsing(fake) as browser:
        yield browser


# --- who gets in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["overview", "live", "session", "channels", "payload?name=orders.eu&sequence=4", "nothing"]
)
async def test_answers_are_for_those_who_have_logged_in(browser, path):
    found = await browser.ask(path, 401)
    assert found == {"error": "log in first", "login": "/api/v1/login"}


async def test_the_page_itself_is_for_everybody_as_it_asks_who_it_is(browser):
    assert "<title>stan</title>" in await browser.get("/dashboard/")
    assert await browser.get("/metrics", 401) == "log in first\n"


async def test_user_of_permissions_logs_in_with_its_password_there(browser):
    assert await browser.log_in("alice") == {"user": "alice"}
    cookie = browser.answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    session = await browser.ask("session")
    assert (session["user"], session["actions"], session["all"]) == ("alice", True, False)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", SECRET), ("", ""), ("guest", "")])
async def test_wrong_names_and_passwords_are_refused_alike(browser, user, password):
    found = await browser.log_in(user, password, 401)
    assert found["error"] == "no such user, or a wrong password or token"


async def test_token_is_a_login_and_goes_with_each_request_of_a_program(browser):
    assert await browser.ask("session", Authorization=f"Bearer {TOKEN}")
    assert await browser.get("/metrics", Authorization=f"Bearer {TOKEN}")
    await browser.ask("session", 401, Authorization="Bearer 0123456789abcdeF")
    assert await browser.post("login", {"token": TOKEN}) == {"user": "ops"}
    assert (await browser.ask("session"))["user"] == "ops"


async def test_proxy_names_people_by_its_header(browser):
    assert (await browser.ask("session", **{"X-Forwarded-User": "ops"}))["all"] is True
    stranger = await browser.ask("channels", **{"X-Forwarded-User": "eve@example.com"})
    assert [row["name"] for row in stranger["rows"]] == ["public.news"]
    await browser.ask("channels", 401, **{"X-Forwarded-User": ""})


async def test_header_of_anybody_else_names_nobody(fake):
    logins = Logins(users=LOGINS.users, proxy=PageProxy(addresses=("10.0.0.0/8",), channels=(">",)))
    async with browsing(fake, logins) as browser:
        await browser.ask("session", 401, **{"X-Forwarded-User": "ops"})


async def test_logging_out_ends_the_session(browser):
    await browser.log_in("alice")
    (cookie,) = list(browser.session.cookie_jar)
    await browser.post("logout", {})
    browser.session.cookie_jar.update_cookies({cookie.key: cookie.value}, aiohttp.client.URL(browser.url))
    await browser.ask("session", 401)


@pytest.mark.parametrize("headers", [{"Origin": "http://elsewhere.example"}, {"Content-Type": "text/plain"}])
async def test_other_sites_log_nobody_in(browser, headers):
    await browser.post("login", {"user": "alice", "password": SECRET}, 403, **headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_get_nothing_by_the_login_of_a_proxy(browser, site):
    named = {"X-Forwarded-User": "ops", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    await browser.ask("channels", 403, **named)
    await browser.get("/metrics?callback=f", 403, **{"X-Forwarded-User": "ops"})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"user": 1}', b"x" * 9000, b"[" * 8000])
async def test_logins_of_any_form_are_refused(browser, body):
    assert "error" in await browser.post("login", body, 400)


async def test_without_logins_nobody_is_asked(fake):
    async with browsing(fake, None, None) as browser:
        assert (await browser.ask("session"))["user"] == ""
        await browser.log_in("alice", status=404)


# --- what each may see ----------------------------------------------------------------------------------------------------


async def test_channels_that_a_user_may_not_see_are_in_no_list_search_or_count(browser):
    await browser.log_in("alice")
    found = await browser.ask("channels")
    assert [row["name"] for row in found["rows"]] == ["orders.eu", "orders.us"]
    assert (found["total"], found["matching"]) == (2, 2)
    assert (await browser.ask("channels?search=hidden"))["matching"] == 0
    durables = await browser.ask("durables")
    assert {row["channel"] for row in durables["rows"]} == {"orders.eu", "orders.us"}
    assert sum(durables["states"].values()) == durables["total"] == 2
    overview = await browser.ask("overview")
    assert (overview["channels"], overview["messages"], overview["durables"]) == (2, 8, 2)
    assert {row["channel"] for row in overview["worst"]} == {"orders.eu", "orders.us"}
    assert "hidden" not in json.dumps(overview)
    assert (overview["clients"], overview["rates"], overview["history"]) == (None, None, [])


async def test_a_stuck_durable_of_a_channel_that_a_user_may_not_see_is_no_problem_of_this_user(fake, browser):
    now = time.time_ns()
    stuck = {"waiting": 90, "pending": 10, "oldest_pending": now - 300 * SECOND, "last_ack": now - 240 * SECOND}
    fake.add_durable(b"hidden", b"hangs", client=b"x", **stuck)
    assert (await browser.ask("overview", Authorization=f"Bearer {TOKEN}"))["state"] == "warn"
    await browser.log_in("alice")
    assert (await browser.ask("overview"))["state"] == "ok"
    assert (await browser.ask("news"))["problems"] == []


async def test_a_channel_that_a_user_may_not_see_is_not_there(browser):
    await browser.log_in("alice")
    there = await browser.ask("channel?name=hidden", 404)
    assert there == await browser.ask("channel?name=neverwas", 404) == {"error": "stan: unknown channel"}
    await browser.ask("messages?name=hidden", 404)
    await browser.ask("explain?name=hidden&cursor=1&sequence=1", 404)


async def test_messages_need_their_own_right(browser):
    await browser.log_in("alice")
    assert (await browser.ask("messages?name=orders.eu"))["messages"]
    await browser.ask("messages?name=orders.us", 403)
    await browser.ask("payload?name=orders.us&sequence=1", 403)


@pytest.mark.parametrize("path", ["/api/v1/clients", "/api/v1/cluster", "/api/v1/options", "/metrics"])
async def test_what_belongs_to_no_channel_is_for_those_who_see_all(browser, path):
    await browser.log_in("alice")
    await browser.get(path, 403)
    assert await browser.get(path, Authorization=f"Bearer {TOKEN}")


# --- changes --------------------------------------------------------------------------------------------------------------


async def test_an_acting_user_changes_what_its_rights_allow(fake, browser):
    await browser.log_in("alice")
    assert (await browser.act("purge", {"channel": "orders.eu", "keep": 0}))["text"] == "4 messages removed"
    for name, fields in (
        ("purge", {"channel": "orders.us", "keep": 0}),
        ("purge", {"channel": "hidden", "keep": 0}),
        ("publish", {"channel": "orders.eu", "text": "x"}),
        ("redrive", {"channel": "orders.eu", "first": 1, "last": 1}),
        ("step_down", {"group": 1}),
        ("evict_client", {"client": "me"}),
    ):
        await browser.act(name, fields, 403)
    assert len(fake.changes) == 1


async def test_pages_know_what_a_user_may_do_with_a_channel(browser):
    await browser.log_in("alice")
    eu, us = [(await browser.ask(f"channel?name=orders.{place}"))["may"] for place in ("eu", "us")]
    assert eu == {"read": True, "change": True, "publish": False, "redrive": False}
    assert us == {"read": False, "change": False, "publish": False, "redrive": False}
    rows = (await browser.ask("durables?sort=name"))["rows"]
    assert [(row["channel"], row["may"]) for row in rows] == [("orders.eu", True), ("orders.us", False)]


async def test_a_reading_user_changes_nothing(fake, browser):
    await browser.log_in("guest")
    assert (await browser.ask("session"))["token"] == ""
    found = await browser.act("purge", {"channel": "public.news", "keep": 0}, 403)
    assert found["error"] == "you may only look: your role is read"
    assert not fake.changes
    assert 'Audit: "guest" at 127.0.0.1: purge: refused: you may only look: your role is read' in fake.notes


async def test_changes_are_in_the_log_with_who_made_them(fake, browser):
    await browser.log_in("alice")
    await browser.act("purge", {"channel": "orders.eu", "keep": 0})
    await browser.act("purge", {"channel": "hidden", "keep": 0}, 403)
    await browser.act("publish", {"channel": "orders.eu", "text": "private"}, 403)
    assert fake.notes == [
        'Audit: "alice" has logged in from 127.0.0.1',
        'Audit: "alice" at 127.0.0.1: purge channel="orders.eu" keep=0: 4 messages removed',
        'Audit: "alice" at 127.0.0.1: purge channel="hidden" keep=0: refused: you may not change this',
        'Audit: "alice" at 127.0.0.1: publish channel="orders.eu" text=(7 characters): refused: you may not change this',
    ]


# --- bounds ---------------------------------------------------------------------------------------------------------------


async def test_failed_tries_of_an_address_are_bounded(browser, fake, monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_MAX", 3)
    for _ in range(3):
        await browser.log_in("alice", "wrong", 401)
    found = await browser.log_in("alice", SECRET, 429)
    assert found["error"].startswith("too many failed logins: try again in")
    assert int(browser.answer.headers["Retry-After"]) > 0
    await browser.ask("session", 429, Authorization=f"Bearer {TOKEN}")
    assert next(note for note in fake.notes if "failed" in note) == 'Audit: login from 127.0.0.1 failed: user "alice"'


def test_failed_tries_of_all_addresses_bound_passwords_and_not_tokens(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_ALL_MAX", 5)
    now = [0]
    tries = FailedTries(lambda: now[0])
    for number in range(9):
        tries.note(f"10.0.0.{number}")
    assert tries.wait_s("10.9.9.9", guessable=True) == 60
    assert tries.wait_s("10.9.9.9", guessable=False) == 0
    now[0] = limits.LOGIN_WINDOW
    assert tries.wait_s("10.9.9.9", guessable=True) == 0


def test_addresses_of_one_network_of_ipv6_count_as_one(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_MAX", 2)
    tries = FailedTries(lambda: 0)
    tries.note("2001:db8::1")
    tries.note("2001:db8::2")
    assert tries.wait_s("2001:db8::3", guessable=False)
    assert not tries.wait_s("2001:db8:0:1::3", guessable=False)


def test_sessions_end_by_time_by_disuse_and_by_number(monkeypatch):
    monkeypatch.setattr(limits, "SESSIONS_OF_USER_MAX", 2)
    monkeypatch.setattr(limits, "SESSIONS_MAX", 3)
    now = [0]
    sessions = BrowserSessions(5 * limits.SESSION_IDLE, lambda: now[0])
    first, second, third = (sessions.begin("a") for _ in range(3))
    assert [sessions.use(token) for token in (first, second, third)] == ["", "a", "a"]
    others = [sessions.begin(user) for user in "bc"]
    assert [sessions.use(token) for token in (second, third, *others)] == ["", "a", "b", "c"]
    for hours in range(1, 9):
        now[0] = hours * (limits.SESSION_IDLE // 2)
        assert sessions.use(third) == "a"
    assert sessions.use(others[0]) == ""
    now[0] = 5 * limits.SESSION_IDLE
    assert sessions.use(third) == ""
