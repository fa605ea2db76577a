"""Small files of a lake become few, as its clock goes on, and each message stays in it once, wherever its tierer dies."""

import os
import random
from collections import Counter
from dataclasses import replace

import pytest
from pyarrow import parquet
from stan_lake.manifest import DataFile
from stan_lake.merging import FAN_IN, due
from stan_lake.store import LocalStore
from stan_lake.table import LakeTable
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.lake import SECOND, UID, CrashError, CrashingStore, MemoryStore, OneChannel, parquet_files, rows_of

AGE_S = 15 * 60
BEGIN_S = 314_814 * FAN_IN * AGE_S
"""Where a window begins."""
YEAR = 366 * 24 * 4
"""Files that a channel makes which always waits for their age."""
FEW = 40
DAYS = int(os.environ.get("STAN_LAKE_DAYS", "3"))
"""Of a tierer that writes files; 366 of them take some minutes."""
TARGET = 128 << 20
MOMENTS_MAX = 2000


def small(number, **fields):
    """The file of a quarter of an hour."""
    at = (BEGIN_S + number * AGE_S) * SECOND
    numbers = {"first": number, "last": number, "rows": 1, "bytes": 1000, "message_bytes": 4000}
    return DataFile(**{"name": f"{number}", "first_time_ns": at, "last_time_ns": at, **numbers, **fields})


def merged(files, group):
    """Files after a merge, as the tierer has them."""
    place = files.index(group[0])
    assert files[place : place + len(group)] == list(group), "they are adjacent"
    one = replace(
        group[0],
        last=group[-1].last,
        last_time_ns=group[-1].last_time_ns,
        message_bytes=sum(file.message_bytes for file in group),
        rows=sum(file.rows for file in group),
    )
    return [*files[:place], one, *files[place + len(group) :]]


def as_time_goes_by(added):
    """The files after each round of a tierer, with the number of rows that were written again by then."""
    files, again = [], 0
    for file in added:
        files.append(file)
        group = due(files, TARGET, AGE_S)
        if group:
            again += sum(one.rows for one in group)
            files = merged(files, group)
        yield files, again


def test_a_slow_channel_of_a_year_has_few_files_at_any_time_and_writes_few_rows_again():
    rounds = list(as_time_goes_by(small(number) for number in range(1, YEAR + 1)))
    assert max(len(files) for files, _ in rounds) < FEW
    files, again = rounds[-1]
    assert sum(file.rows for file in files) == YEAR
    assert again < 6 * YEAR  # once for each length of window: 6 ** 6 quarters of an hour are more than a year


def test_files_that_make_full_ones_are_written_again_until_they_are_full_and_no_more():
    draw = random.Random(1)
    sizes = [draw.randrange(1 << 20, 40 << 20) for _ in range(2000)]
    added = (small(number, message_bytes=size) for number, size in enumerate(sizes, 1))
    *_, (files, again) = as_time_goes_by(added)
    assert all(file.message_bytes <= TARGET for file in files)
    assert len(files) < 2 * sum(sizes) / TARGET + FEW
    assert again < 3 * len(sizes)
    full = [small(number, message_bytes=TARGET) for number in range(1, 100)]
    assert not due(full, TARGET, AGE_S)


def test_files_with_messages_that_expire_stay_small_and_hold_up_no_others():
    files = [small(number, expires_at_ns=SECOND if number == 50 else 0) for number in range(1, 201)]
    while group := due(files, TARGET, AGE_S):
        files = merged(files, group)
    assert [file for file in files if file.expires_at_ns] == [small(50, expires_at_ns=SECOND)]
    assert len(files) < FEW


def test_a_time_that_is_not_over_has_its_files():
    assert not due([], TARGET, AGE_S)
    files = [small(number) for number in range(FAN_IN + 1)]
    assert not due(files[:-1], TARGET, AGE_S)
    assert due(files, TARGET, AGE_S) == (*files[:-1],)


# --- the tierer ---------------------------------------------------------------------------------------------------------


class Clock:
    """A channel that gets a message each quarter of an hour, and a tierer that looks at it then."""

    def __init__(self, store, channel):
        self.store, self.channel = store, channel
        self.now = BEGIN_S
        self.settings = TierSettings(name="lake", age_s=AGE_S, now=lambda: self.now)
        self.tierer = None

    async def quarter(self):
        self.now += AGE_S
        self.channel.publish(1, timestamp=self.now * SECOND)
        await self.step()

    async def step(self):
        """Make a round; a tierer that has died is followed by another one."""
        if self.tierer is None:
            tierer = ChannelTierer(LakeTable(self.store, self.channel.name, UID), self.channel, self.settings)
            await tierer.begin(self.channel.info)
            self.tierer = tierer
        await self.tierer.step(self.channel.info, self.channel.place)

    def check(self, store):
        """Each message is once in the lake, or in the broker still; removed ones are nowhere, once that is handled."""
        unhandled = self.channel.gone if self.channel.removed else ()
        cold = [at for at, _ in rows_of(store, self.channel.name) if at not in unhandled]
        after = LakeTable(store, self.channel.name, UID).manifest().next
        hot = [at for at in sorted(self.channel.messages) if at >= after]
        assert [*cold, *hot] == [at for at in range(1, self.channel.last + 1) if at not in self.channel.gone]


async def left_by(clock, gaps):
    """How many objects of each kind a channel leaves that has a message behind each of these gaps (s)."""
    for gap in gaps:
        clock.channel.publish(1, timestamp=clock.now * SECOND)
        clock.now += gap
        await clock.step()
    for _ in range(3):
        clock.now += 3600
        await clock.step()
    clock.check(clock.store)
    table = LakeTable(clock.store, clock.channel.name, UID)
    assert parquet_files(clock.store, table) == {file.name for file in table.manifest().files}
    return Counter(kind_of(path.split("/")[2:]) for path in clock.store.objects if path.startswith(table.path("")))


def kind_of(parts):
    """The directory, or the suffix of what lies in none."""
    return parts[0] if len(parts) > 1 else parts[0].rpartition(".")[2]


@pytest.mark.timeout(15 * 60)
async def test_a_channel_with_a_message_each_quarter_of_an_hour_leaves_few_files():
    left = await left_by(Clock(MemoryStore(), OneChannel()), DAYS * 24 * 4 * [AGE_S])
    assert {"parquet", "_manifest", "metadata"} == set(left)
    assert max(left.values()) < FEW, left


async def test_twenty_channels_with_a_message_now_and_then_leave_few_files_of_a_year():
    draw = random.Random(1)
    store = MemoryStore()
    for number in range(20):
        gaps = [0]
        while sum(gaps) < 365 * 86400:
            gaps.append(int(AGE_S * 4 ** draw.uniform(3, 6.5)))  # sixteen hours to three months
        left = await left_by(Clock(store, OneChannel(f"device.{number}")), gaps)
        assert max(left.values()) < FEW, left


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_a_tierer_that_dies_at_any_write_while_it_merges_has_each_message_once(after):
    for moment in range(1, MOMENTS_MAX):
        store = CrashingStore(MemoryStore())
        clock = Clock(store, OneChannel())
        store.dies_at, store.after, died = moment, after, False
        for number in range(2 * FAN_IN + 8):
            if number == FAN_IN + 2:
                clock.channel.remove(1, 3, clock.channel.last)
            if number > 2 * FAN_IN:
                clock.now += 3600  # what was replaced goes
            try:
                await (clock.quarter() if number < 2 * FAN_IN + 4 else clock.step())
            except CrashError:
                died, clock.tierer = True, None
                clock.check(store.inner)
        clock.check(store.inner)
        table = LakeTable(store.inner, "orders", UID)
        files = table.manifest().files
        assert parquet_files(store.inner, table) == {file.name for file in files}
        assert len(files) < FAN_IN + 3
        if not died:
            return
    pytest.fail("there are more moments than this")


async def test_deletions_reach_merged_files_and_what_they_have_replaced(tmp_path):
    store, channel = LocalStore(tmp_path), OneChannel()
    clock = Clock(store, channel)
    for _ in range(2 * FAN_IN):
        await clock.quarter()
    table = LakeTable(store, "orders", UID)
    assert any(file.rows > 2 for file in table.manifest().files)
    channel.remove(*range(2, FAN_IN + 4))
    await clock.step()
    clock.check(store)
    clock.now += 3600
    await clock.step()
    opened = [store.opened(table.path(name)) for name in parquet_files(store, table)]
    rows = [at for file in opened for at in parquet.read_table(file)["sequence"].to_pylist()]
    assert sorted(rows) == [at for at, _ in rows_of(store, "orders")]
