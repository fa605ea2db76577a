"""The history of figures: its two tiers and their bounds, its file across restarts, and what damages it."""

import asyncio
import math

import aiohttp
import pytest

from stan import limits
from stan.config import Config, StoreConfig
from stan.monitor.dashboard.history_file import HistoryFile, history_path
from stan.monitor.dashboard.measured_history import COLUMNS, FILE_BYTES_MAX, SPANS, HistoryTier, MeasuredHistory
from tests.kit.dashboard import served
from tests.kit.fake_broker import eventually
from tests.kit.fake_cluster import SECOND, FakeCluster

RATE, LAG = COLUMNS.index("messages_in"), COLUMNS.index("lag")


def values(tier, column):
    return [point.values[column] for point in tier.points]


def test_a_step_has_the_mean_of_rates_and_the_largest_lag():
    tier = HistoryTier(10 * SECOND, 5)
    for at, figures in (
        (20, {"messages_in": 4, "lag": 7}),
        (23, {"messages_in": 8}),
        (29, {"messages_in": 6, "lag": 3}),
    ):
        tier.note(at * SECOND, figures)
    tier.note(31 * SECOND, {"lag": 1})
    assert [point.at for point in tier.points] == [20 * SECOND, 30 * SECOND]
    assert values(tier, RATE)[0] == 6
    assert math.isnan(values(tier, RATE)[1])
    assert values(tier, LAG) == [7, 1]


def test_a_tier_holds_so_many_points_and_no_more():
    tier = HistoryTier(SECOND, 3)
    for at in range(10):
        tier.note(at * SECOND, {"lag": at})
    assert values(tier, LAG) == [7, 8, 9]


def test_a_clock_that_is_put_back_drops_the_points_of_its_future():
    tier = HistoryTier(SECOND, 9)
    for at in (5, 6, 7, 6):
        tier.note(at * SECOND, {"lag": at})
    assert values(tier, LAG) == [5, 6]


def test_points_are_joined_when_there_are_more_than_a_chart_shows():
    tier = HistoryTier(SECOND, 100)
    for at in range(100):
        tier.note(at * SECOND, {"messages_in": at, "lag": at})
    found = tier.since(50 * SECOND, 10)
    assert len(found) == 10
    assert (found[0].at, found[0].values[RATE], found[0].values[LAG]) == (50 * SECOND, 52, 54)


def test_history_is_the_same_after_it_was_written_and_read():
    history, again = MeasuredHistory(), MeasuredHistory()
    now = 10**18
    for step in range(4000):
        history.note(now + step * 2 * SECOND, {"messages_in": step, "lag": 2 * step})
    data = history.encoded()
    assert len(data) <= FILE_BYTES_MAX <= 224 * 1024
    again.restore(data, now + 8000 * SECOND)
    assert values(again.tiers["hour"], RATE) == values(history.tiers["hour"], RATE)
    assert [len(tier.points) for tier in again.tiers.values()] == [1800, 27]
    again.note(now + 8002 * SECOND, {"lag": 1})
    assert again.tiers["hour"].points[-1].values[LAG] == 1


def test_points_that_are_too_old_or_in_the_future_are_not_taken_over():
    history, again = MeasuredHistory(), MeasuredHistory()
    history.note(10**18, {"lag": 1})
    again.restore(history.encoded(), 10**18 - 600 * SECOND)
    assert not again.tiers["week"].points
    again.restore(history.encoded(), 10**18 + 3 * 3600 * SECOND)
    assert [len(tier.points) for tier in again.tiers.values()] == [0, 1]


def test_a_restart_within_a_step_loses_nothing_of_it():
    history, again = MeasuredHistory(), MeasuredHistory()
    now = 10**18
    history.note(now, {"lag": 20, "messages_in": 4})
    again.note(now + 1, {"lag": 3, "messages_in": 2})
    again.restore(history.encoded(), now + 2)
    for tier in again.tiers.values():
        (point,) = tier.points
        assert (point.values[LAG], point.values[RATE]) == (20, 3)


@pytest.mark.parametrize(
    "cut", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: b"x" * 40]
)
def test_history_that_is_damaged_is_refused(cut):
    history = MeasuredHistory()
    history.note(10**18, {"lag": 1})
    with pytest.raises(ValueError, match=r"wrong size|damaged"):
        MeasuredHistory().restore(cut(history.encoded()), 10**18)


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (StoreConfig(kind="memory"), None),
        (StoreConfig(kind="file", directory="D"), "D/dashboard-history"),
        (StoreConfig(kind="sql", source="S.db"), "S.db.dashboard-history"),
    ],
)
def test_history_lies_beside_the_store(tmp_path, store, name):
    fields = {field: tmp_path / value for field in ("directory", "source") if (value := getattr(store, field))}
    path = history_path(StoreConfig(kind=store.kind, **fields))
    assert (None if path is None else str(path.relative_to(tmp_path))) == name


async def test_figures_of_the_cluster_survive_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_TICK", SECOND // 20)
    fake = FakeCluster()
    fake.add_durable(b"orders", b"billing", waiting=17)
    fake.add_durable(b"orders", b"audit", waiting=3)
    config = Config(store=StoreConfig(kind="file", directory=tmp_path, raft_groups=fake.groups))

    async def history(session, url):
        async with session.get(f"{url}/api/v1/history?span=week") as answer:
            return await answer.json()

    async with served(fake, config) as url, aiohttp.ClientSession() as session:

        async def measured():
            await session.get(f"{url}/api/v1/overview")
            points = (await history(session, url))["points"]
            return points and points[-1][1 + LAG] == 20 and points[-1][1 + RATE]

        await eventually(measured)
    assert (tmp_path / "dashboard-history").stat().st_mode & 0o777 == 0o600
    async with served(FakeCluster(), config) as url, aiohttp.ClientSession() as session:

        async def there():
            return (await history(session, url))["points"]

        await eventually(there)
        assert (await history(session, url))["points"][0][1 + LAG] == 20
        async with session.get(f"{url}/api/v1/history?span=year") as answer:
            assert answer.status == 400


async def test_a_file_that_cannot_be_used_costs_only_the_history_and_is_told_once(tmp_path):
    path = tmp_path / "gone" / "dashboard-history"
    lines: list[str] = []
    history = MeasuredHistory()
    task = asyncio.create_task(HistoryFile(path, history, lines.append, SECOND // 100).run())

    async def told():
        return bool(lines)

    await eventually(told)
    assert "is not written" in lines[0]
    path.parent.mkdir()

    async def written():
        return path.exists()

    await eventually(written)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(lines) == 1
    path.write_bytes(b"nonsense")
    task = asyncio.create_task(HistoryFile(path, history, lines.append, SECOND // 100).run())

    async def begins_again():
        return any("begins again" in line for line in lines)

    await eventually(begins_again)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_spans_are_an_hour_and_a_week():
    assert [step * count for step, count in SPANS.values()] == [3600 * SECOND, 7 * 24 * 3600 * SECOND]
