"""Typed channels of stan_client: classes of pydantic and msgspec, registered and not, against a real server."""

import asyncio
import dataclasses
import json

import msgspec
import pydantic
import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client.typed import NotRegisteredError, TypedChannel, WrongClassError
from stan_protocol.admin_types import Compatibility, DeliveryPolicy

from tests.kit.fake_broker import eventually


class Item(pydantic.BaseModel):
    """What is sold."""

    title: str
    count: int = pydantic.Field(1, ge=1)


class Order(pydantic.BaseModel):
    """One order."""

    id: int
    items: list[Item] = []


class BetterOrder(Order):
    """With a note."""

    note: str | None = None


class WorseOrder(Order):
    """Who writes orders today knows no customer."""

    customer: str


class Struct(msgspec.Struct):
    """The same in another package."""

    id: int
    note: str | None = None


@dataclasses.dataclass
class Point:
    """A class of neither package."""

    x: float


@pytest.fixture
async def client():
    async with (
        own_broker("test-cluster") as target,
        await stan_client.connect(target.server, client_id="me") as client,
    ):
        yield client


async def test_values_are_published_and_come_back(client) -> None:
    orders = TypedChannel(client, "orders", Order, register="orders")
    sent = [Order(id=number, items=[Item(title="cup", count=number + 1)]) for number in range(5)]
    told = await orders.publish(sent[0], key="k", headers={"a": "b"})
    assert told.sequence == 1
    assert await orders.publish_many(sent[1:]) == 4
    got: list[Order] = []
    done = asyncio.Event()

    async def handle(order: Order, message: stan_client.Message) -> None:
        assert message.headers["stan-schema"] == b"1"
        got.append(order)
        if len(got) == 5:
            done.set()

    await orders.subscribe(handle, start=stan_client.everything())
    await asyncio.wait_for(done.wait(), 30)
    assert got == sent
    assert [value async for value, _ in orders.read()] == sent
    (first,) = await client.fetch("orders", count=1)
    assert (first.key, first.headers["a"]) == (b"k", b"b")
    points = TypedChannel(client, "points.a", Point, register="points.*")
    await points.publish(Point(0.5))
    assert [value async for value, _ in points.read()] == [Point(0.5)]


async def test_a_class_that_is_not_registered_is_refused(client) -> None:
    with pytest.raises(NotRegisteredError, match=r"Order is none of the registered versions .there are none."):
        await TypedChannel(client, "orders", Order).publish(Order(id=1))
    assert await TypedChannel(client, "orders", Order, register="orders").version() == 1
    assert await TypedChannel(client, "orders", Order).version() == 1
    with pytest.raises(NotRegisteredError, match=r"BetterOrder is none .* .1. of the schema of channel orders"):
        await TypedChannel(client, "orders", BetterOrder).version()
    with pytest.raises(stan_client.ServerError, match="not backward compatible: it does not read version 1: /customer"):
        await TypedChannel(client, "orders", WorseOrder, register="orders").version()
    with pytest.raises(WrongClassError):
        TypedChannel(client, "orders", asyncio.Event)


async def test_old_and_new_classes_read_each_other(client) -> None:
    """Messages of three versions, of two packages, on a channel that checks them."""
    old = TypedChannel(client, "orders", Order, register="orders")
    new = TypedChannel(client, "orders", BetterOrder, register="orders")
    await old.publish(Order(id=1))
    await client.admin.set_policy("orders", DeliveryPolicy(schema=2))
    await new.publish(BetterOrder(id=2, note="soon"))
    struct = TypedChannel(client, "orders", Struct)
    with pytest.raises(NotRegisteredError):
        await struct.publish(Struct(3))
    await client.admin.add_schema("orders", struct.schema, compatibility=Compatibility.NONE)
    await struct.publish(Struct(3, "now"))
    assert [value.note async for value, _ in new.read()] == [None, "soon", "now"]
    assert [value.id async for value, _ in old.read()] == [1, 2, 3]
    assert [value async for value, _ in struct.read()] == [Struct(1), Struct(2, "soon"), Struct(3, "now")]
    assert [m.headers["stan-schema"] async for m in client.read("orders")] == [b"1", b"2", b"3"]
    with pytest.raises(stan_client.ServerError, match="/items/0/count: 0 is less than the minimum of 1"):
        await client.publish(
            "orders",
            json.dumps({"id": 4, "items": [{"title": "t", "count": 0}]}).encode(),
            headers={"stan-schema": "2"},
        )


async def test_data_that_is_no_value_fails_like_a_callback(client) -> None:
    orders = TypedChannel(client, "orders", Order, register="orders")
    await client.publish("orders", b"garbage")
    await orders.publish(Order(id=7))
    got: list[int] = []

    async def handle(order: Order, _message: stan_client.Message) -> None:
        got.append(order.id)

    await orders.subscribe(handle, start=stan_client.everything(), on_error="reject")
    await eventually(lambda: got == [7])
    with pytest.raises(ValueError, match="Invalid JSON"):
        [value async for value, _ in orders.read()]


def test_remarks_are_no_part_of_the_contract() -> None:
    def made(description):
        class Person(pydantic.BaseModel):
            """Another text each time."""

            title: str = pydantic.Field("x", description=description, title=description)

        return TypedChannel(None, "people", Person).schema

    assert made("one") == made("two")
    assert json.loads(made("one")) == {"type": "object", "properties": {"title": {"type": "string", "default": "x"}}}
