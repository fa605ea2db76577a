"""Search of messages and their schemas over HTTP: what is found, the bounds, the end by a browser that leaves, decoded data."""

import contextlib
import io
import json

import aiohttp
import fastavro
import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.logins import Logins, PageUser
from tests.kit.dashboard import served
from tests.kit.fake_broker import eventually
from tests.kit.fake_cluster import FakeCluster

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "string"}],
}


def written(value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def avro(pattern: bytes, number: int, schema=ORDER) -> admin.SchemaStatus:
    text = json.dumps(schema).encode()
    return admin.SchemaStatus(pattern=pattern, kind=2, schema_version=number, text=text, size=len(text), at=10**18)


class Page:
    def __init__(self, session, url):
        self.session, self.url = session, url

    async def get(self, path, status=200, **headers):
        async with self.session.get(f"{self.url}/api/v1/{path}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def search(self, query):
        """The messages that are found, and the last step."""
        async with self.session.get(f"{self.url}/api/v1/search?{query}") as answer:
            assert answer.status == 200, await answer.text()
            steps = [json.loads(line) for line in (await answer.text()).splitlines()]
        return [step["message"] for step in steps if "message" in step], steps[-1]


@pytest.fixture
def fake():
    fake = FakeCluster(fetched=3)
    for number in range(1, 21):
        headers = [wire.Header(key=b"kind", value=b"odd" if number % 2 else b"even")]
        fake.add_message(
            b"orders", b'{"n": %d, "To": "M\xc3\xbcnchen"}' % number, key=b"k%d" % (number % 5), headers=headers
        )
    for at, message in enumerate(fake.data[b"orders"]):
        message.timestamp = (at + 1) * 10**9
    return fake


@pytest.fixture
async def page(fake):
    async with served(fake) as url, aiohttp.ClientSession() as session:
        yield Page(session, url)


@pytest.mark.parametrize(
    ("query", "sequences"),
    [
        ("text=%22n%22: 7,", [7]),
        ("text=m%C3%9Cnchen&sequence=19", []),  # letters that are no ASCII count as they are
        ("text=to&sequence=19", [19, 20]),
        ("text=to&sequence=19&case=1", []),
        ("key=k1", [1, 6, 11, 16]),
        ("header=kind=odd&last=5", [1, 3, 5]),
        ("header=kind&since=18000&until=19000", [18, 19]),
        ("key=k1&header=kind=even", [6, 16]),
    ],
)
async def test_messages_are_found_by_text_key_header_and_time(page, query, sequences):
    found, end = await page.search(f"name=orders&{query}")
    assert [message["sequence"] for message in found] == sequences
    assert end["looked"]["done"]
    assert end["looked"]["next"] == 0
    assert end["looked"]["matches"] == len(sequences)


async def test_search_ends_at_its_matches_and_says_where_to_go_on(page):
    found, end = await page.search("name=orders&header=kind=odd&limit=2")
    assert [message["sequence"] for message in found] == [1, 3]
    assert (end["looked"]["next"], end["looked"]["messages"]) == (4, 3)
    found, _ = await page.search("name=orders&header=kind=odd&limit=2&sequence=4")
    assert [message["sequence"] for message in found] == [5, 7]


@pytest.mark.parametrize(
    ("bound", "value"),
    [("DASHBOARD_SEARCH_MESSAGES_MAX", 4), ("DASHBOARD_SEARCH_BYTES_MAX", 100), ("DASHBOARD_SEARCH_TIME", 0)],
)
async def test_search_ends_at_each_of_its_bounds(page, monkeypatch, bound, value):
    monkeypatch.setattr(limits, bound, value)
    found, end = await page.search("name=orders&text=nothing")
    assert not found
    assert end["looked"]["done"]
    assert end["looked"]["messages"] < 20


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("name=orders", 400, "say what to search for"),
        ("name=orders&header==x", 400, "header:"),
        ("name=orders&text=x&sequence=-1", 400, "sequence:"),
        (f"name=orders&text={'x' * 2000}", 400, "at most"),
    ],
)
async def test_search_that_makes_no_sense_is_refused(page, query, status, error):
    assert error in (await page.get(f"search?{query}", status))["error"]


async def test_channel_that_is_not_there_is_an_error_of_the_search(page):
    _, end = await page.search("name=nothing&text=x")
    assert end == {"error": "stan: unknown channel"}


async def test_a_browser_that_leaves_ends_its_search(fake, page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_SEARCHES_MAX", 1)
    for number in range(20_000):
        fake.data[b"orders"].append(wire.MsgProto(sequence=21 + number, data=b"x" * 2000, timestamp=30 * 10**9))
    fake.channels[b"orders"].last_sequence = 20_020
    answer = await page.session.get(f"{page.url}/api/v1/search?name=orders&text=x&limit=200&sequence=30")
    assert (await answer.content.readline()).startswith(b'{"message"')
    long = await page.session.get(f"{page.url}/api/v1/search?name=orders&text=unseen")
    refused = long if long.status == 503 else None
    long.close()
    answer.close()
    asked = len(fake.asked)

    async def ended():
        nonlocal asked
        before, asked = asked, len(fake.asked)
        return before == asked and fake.asked[-1] == "fetch"

    await eventually(ended)
    assert refused is None or refused.status == 503
    assert fake.asked.count("fetch") < 6000
    await page.search("name=orders&key=k1&last=5")


async def test_so_many_searches_run_at_once_and_no_more(page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_SEARCHES_MAX", 0)
    assert "enough searches" in (await page.get("search?name=orders&text=x", 503))["error"]


# --- schemas --------------------------------------------------------------------------------------------------------------


async def test_messages_are_decoded_by_the_version_that_they_name(fake, page):
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "long", "default": 0}]}
    fake.schemas = [avro(b"bills.*", 1), avro(b"bills.*", 2, newer)]
    named = [wire.Header(key=b"stan-schema", value=b"1")]
    fake.add_message(b"bills.eu", written({"id": 7, "to": "me"}), headers=named)
    fake.add_message(b"bills.eu", b"\x02")
    fake.add_message(b"bills.eu", b"{}", headers=[wire.Header(key=b"stan-schema", value=b"9")])
    first, second, third = (await page.get("messages?name=bills.eu"))["messages"]
    assert first["decoded"] == {"version": 1, "kind": "avro", "text": '{"id": 7, "to": "me"}', "whole": True}
    assert second["decoded"] == {"version": 2, "kind": "avro", "misfit": "/to: is cut off"}
    assert third["decoded"] is None


async def test_large_data_is_not_decoded(fake, page, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_DECODED_BYTES_MAX", 10)
    fake.schemas = [avro(b"bills", 1)]
    fake.add_message(b"bills", written({"id": 7, "to": "somebody far away"}))
    assert (await page.get("messages?name=bills"))["messages"][0]["decoded"] is None


async def test_search_looks_at_decoded_data_too(fake, page):
    fake.schemas = [avro(b"bills", 1)]
    for number in (40, 41, 42):
        fake.add_message(b"bills", written({"id": number, "to": "me"}))
    found, _ = await page.search("name=bills&text=%22id%22: 41")
    assert [message["sequence"] for message in found] == [2]
    assert found[0]["decoded"]["text"] == '{"id": 41, "to": "me"}'


async def test_schemas_are_listed_and_shown(fake, page):
    fake.schemas = [avro(b"bills.*", 1), avro(b"bills.*", 2)]
    rows = (await page.get("schemas"))["rows"]
    assert [(row["pattern"], row["version"], row["kind"]) for row in rows] == [
        ("bills.*", 1, "avro"),
        ("bills.*", 2, "avro"),
    ]
    found = await page.get("schema?name=bills.*")
    assert [one["version"] for one in found["versions"]] == [2, 1]
    assert json.loads(found["versions"][0]["text"]) == ORDER
    await page.get("schema?name=other", 404)


@contextlib.asynccontextmanager
async def limited(fake):
    token = "0123456789abcdef"  # noqa: S105 - of a test
    logins = Logins(users=(PageUser(name="a", token=token, channels=("bills.>",)),))
    bearer = {"Authorization": f"Bearer {token}"}
    async with served(fake, fake.config(logins=logins)) as url, aiohttp.ClientSession(headers=bearer) as session:
        yield Page(session, url)


async def test_searches_and_schemas_outside_the_rights_of_a_user_are_not_there(fake):
    fake.schemas = [avro(b"bills.*", 1), avro(b"orders", 1), avro(b">", 1)]
    async with limited(fake) as page:
        assert [row["pattern"] for row in (await page.get("schemas"))["rows"]] == ["bills.*"]
        await page.get("schema?name=orders", 404)
        await page.get("search?name=orders&text=x", 404)
