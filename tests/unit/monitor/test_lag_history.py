"""The lag of single positions over a week: the largest of each step, its bounds, and its file across restarts."""

import aiohttp
import pytest
from stan_protocol.admin_types import CursorStatus

from stan.config import Config, StoreConfig
from stan.monitor.dashboard.lag_history import LAG_FILE_BYTES_MAX, OF_A_STEP, STEP, STEPS, LagHistory
from tests.kit.dashboard import served
from tests.kit.fake_broker import eventually
from tests.kit.fake_cluster import FakeCluster

NOW = 10**18 // STEP * STEP


def position(number, waiting=0):
    return CursorStatus(channel="orders", cursor_id=number, waiting=waiting)


def test_a_step_has_the_largest_lag_of_each_position():
    history = LagHistory()
    for second, lag in ((0, 5), (2, 9), (4, 7)):
        history.note([position(1, lag), position(2)], NOW + second * 10**9)
    history.note([position(1, 3)], NOW + STEP)
    assert history.points(position(1)) == [(NOW, 9), (NOW + STEP, 3)]
    assert history.points(position(2)) == []


def test_only_the_largest_lags_of_a_step_are_remembered():
    history = LagHistory()
    history.note([position(number, number) for number in range(1, 100)], NOW)
    history.note([], NOW + STEP)
    assert [number for number in range(1, 100) if history.points(position(number))] == list(range(100 - OF_A_STEP, 100))


def test_history_is_a_week_and_bounded_in_bytes():
    history, again = LagHistory(), LagHistory()
    rows = [position(number, number) for number in range(1, 30)]
    for step in range(STEPS + 50):
        history.note(rows, NOW + step * STEP)
    end = NOW + (STEPS + 49) * STEP
    assert history.points(position(29))[0][0] >= end - STEPS * STEP
    data = history.encoded()
    assert len(data) <= LAG_FILE_BYTES_MAX < 600_000
    again.restore(data, end)
    assert again.points(position(29))[-STEPS + 1 :] == history.points(position(29))[-STEPS + 1 :]
    late = LagHistory()
    late.restore(data, end + 2 * STEPS * STEP)
    assert late.points(position(29)) == []


def test_a_clock_that_is_put_back_drops_the_steps_of_its_future():
    history = LagHistory()
    for step in (5, 6, 7, 6):
        history.note([position(1, step)], NOW + step * STEP)
    assert history.points(position(1)) == [(NOW + 5 * STEP, 5), (NOW + 6 * STEP, 6)]


@pytest.mark.parametrize(
    "cut", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: b"x" * 40]
)
def test_what_is_damaged_is_refused(cut):
    history = LagHistory()
    history.note([position(1, 1)], NOW)
    with pytest.raises(ValueError, match=r"wrong size|damaged"):
        LagHistory().restore(cut(history.encoded()), NOW)


async def test_lag_of_a_durable_survives_a_restart(tmp_path):
    fake = FakeCluster()
    durable = fake.add_durable(b"orders", b"billing", waiting=17)
    config = Config(store=StoreConfig(kind="file", directory=tmp_path, raft_groups=fake.groups))

    async def week(url, session):
        await session.get(f"{url}/api/v1/durables")
        async with session.get(f"{url}/api/v1/channel?name=orders") as answer:
            return (await answer.json())["durables"][0]["week"]

    async with served(fake, config) as url, aiohttp.ClientSession() as session:

        async def noted():
            return await week(url, session)

        await eventually(noted)
    durable.waiting = 0
    async with served(fake, config) as url, aiohttp.ClientSession() as session:

        async def there():
            return [lag for _, lag in await week(url, session)] == [17]

        await eventually(there)
