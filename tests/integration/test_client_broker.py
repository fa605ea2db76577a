"""stan_client against the real broker: what the fake one cannot vouch for."""

import pytest
import stan_client

from stan import errors
from stan.cli.bench.bench_broker import own_broker
from tests.kit.fake_broker import eventually


@pytest.fixture
async def url():
    async with own_broker("test-cluster") as target:
        yield target.server


async def test_whole_life_of_a_client_with_the_real_broker(url) -> None:
    """Publish, window, durable, queue group, duplicate id and refusals, one broker start for all."""
    async with await stan_client.connect("test-cluster", "me", servers=url) as client:
        assert await client.publish_many("ch", [b"%d" % number for number in range(500)]) == 500

        plain: list[bytes] = []
        await client.subscribe(
            "ch", lambda message: plain.append(message.data), start=stan_client.everything(), max_in_flight=7
        )
        await eventually(lambda: len(plain) == 500)
        assert plain == [b"%d" % number for number in range(500)]

        durable = await client.subscribe("ch", durable="d", start=stan_client.from_sequence(499), manual_acks=True)
        first, second = await anext(durable), await anext(durable)
        first.ack()
        await durable.close()
        durable = await client.subscribe("ch", durable="d", manual_acks=True)
        again = await anext(durable)
        assert (again.sequence, again.redelivered, again.redelivery_count) == (second.sequence, True, 1)
        with pytest.raises(stan_client.ServerError, match=errors.DUPLICATE_DURABLE):
            await client.subscribe("ch", durable="d")

        shared: list[list[int]] = [[], []]
        for member in shared:
            await client.subscribe("ch", lambda message, member=member: member.append(message.sequence), queue="q")
        await client.publish_many("ch", [b"x"] * 100)
        await eventually(lambda: len(shared[0]) + len(shared[1]) == 100)
        assert sorted(shared[0] + shared[1]) == list(range(501, 601))

        with pytest.raises(stan_client.ServerError, match=errors.CLIENT_REGISTERED):
            await stan_client.connect("test-cluster", "me", servers=url)
        with pytest.raises(stan_client.ServerError, match=errors.INVALID_SUBJECT):
            await client.subscribe("a..b")
