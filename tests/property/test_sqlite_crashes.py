"""Power lost at any moment under the real SQLite: what was durable is there, whole, and the state is never ahead of the log."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from stan_protocol.scalars import GroupId

from stan.edge.storage.state_loader import StateLoader
from stan.log.sql.sqlfile import SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.protocol.entries import STAGING_UID
from stan.protocol.staged import sealed
from stan.state.database import Changes, Database
from tests.kit.batches import batch, change, entry, records, references, rows_of, staged_batch, staged_records
from tests.kit.files import CrashingFiles
from tests.kit.power_loss import PowerLoss
from tests.kit.storage import StorageNode

ALL = 10**9
MOMENTS = 25


@pytest.fixture
def power():
    return PowerLoss()


def last_before(marks, moment):
    """The newest of (notes, what was so then) up to a moment."""
    return next((what for at, what in reversed(marks) if at <= moment), 0)


# --- the SQL store --------------------------------------------------------------------------------------------------------


class SqlRun:
    """Some lives of a SQL log of one channel, with rows that are staged for it, as far as they come before the power goes."""

    def __init__(self, power, path, seed):
        self.power, self.path, self.draw = power, path, random.Random(seed)
        self.entries = []
        self.batches = []  # index, base sequence, count, records
        self.sequence = 0
        self.staged = []  # records and number of rows of each part
        self.referring = []  # for each of the parts that are referred to, the index of the entry
        self.synced = []  # (notes, index): what sync returned for
        self.trims = []  # (notes, first sequence that is wanted): before anything of that is done
        self.releases = []

    def mark(self, where, what):
        where.append((len(self.power.notes), what))

    def lives(self):
        for _ in range(3):
            file = SqlFile(self.path)
            log = SqlLog(file, GroupId(1), tail_cache_bytes_max=0)
            for _ in range(self.draw.randint(3, 10)):
                self.write(log)
                self.remove(log)
            log.close()
            self.mark(self.synced, len(self.entries))
            file.note(clean="yes")
            file.close()

    def write(self, log):
        made = []
        for _ in range(self.draw.randint(1, 3)):
            index, count = len(self.entries) + 1, self.draw.randint(1, 3)
            size = self.draw.choice((10, 3000, 200_000))  # enough for checkpoints in the middle
            kind = self.draw.choice(("change", "batch", "batch", "stage", "refer"))
            if kind == "change":
                made.append(change(index, b"a change"))
            elif kind == "stage":
                rows = rows_of([bytes([index]) * size] * count)
                self.staged.append((staged_records(len(self.staged) + 1, b"foo", rows, 1), count))
                made.append(entry(index, staged_batch(len(self.staged), b"foo", rows)))
            elif kind == "refer" and len(self.referring) < len(self.staged):
                found, count = self.staged[len(self.referring)]
                self.referring.append(index)
                part = (found, len(self.referring), count)
                made.append(entry(index, references(part, uid=7, base=self.sequence + 1, timestamp=index)))
                self.add(index, count, sealed(found, self.sequence + 1, index))
            else:
                made.append(entry(index, batch(7, self.sequence + 1, count, size=size)))
                self.add(index, count, records(7, self.sequence + 1, count, size))
            self.entries.append(made[-1])
        log.append(made)
        if self.draw.random() < 0.7:
            self.mark(self.synced, log.sync())

    def add(self, index, count, made):
        self.batches.append((index, self.sequence + 1, count, made))
        self.sequence += count

    def remove(self, log):
        durable = self.synced[-1][1] if self.synced else 0
        log.commit(durable)
        log.trim(STAGING_UID, 1 + sum(index <= durable for index in self.referring))
        if self.draw.random() < 0.4:
            first = self.draw.randint(1, log.channel(7).last_sequence + 1)
            first = max(first, self.trims[-1][1] if self.trims else 1)
            self.mark(self.trims, first)
            log.trim(7, first)
        if self.draw.random() < 0.5:
            self.mark(self.releases, durable)
            log.release(durable)
            log.clean()

    def check(self, directory, moment):
        """What is found holds what was promised by then, and nothing else."""
        file = SqlFile(directory / self.path.name)
        try:
            assert file.rows("PRAGMA integrity_check") == [("ok",)]
            log = SqlLog(file, GroupId(1), tail_cache_bytes_max=0)
            assert last_before(self.synced, moment) <= log.last_index <= len(self.entries)
            assert log.first_index <= last_before(self.releases, moment) + 1
            assert log.entries(log.first_index, ALL, ALL) == self.entries[log.first_index - 1 : log.last_index]
            log.commit(log.last_index)
            wanted = max(1, last_before(self.trims, moment))
            log.trim(7, wanted)
            found = [(ref.base_sequence, log.read(ref)) for ref in log.channel(7).refs(0, ALL, ALL, ALL)]
            assert found == [
                (base, made)
                for index, base, count, made in self.batches
                if index <= log.last_index and base + count > wanted
            ]
            log.close()
        finally:
            file.close()


@pytest.mark.parametrize("seed", range(4))
def test_sql_store_keeps_what_a_sync_returned_for(tmp_path, power, seed):
    run = SqlRun(power, tmp_path / "stan.db", seed)
    with power.recording():
        run.lives()
    assert power.notes
    for moment in power.moments([at for at, _ in run.synced], MOMENTS, seed):
        power.leave(tmp_path / "left", moment, seed)
        run.check(tmp_path / "left", moment)


# --- the state ------------------------------------------------------------------------------------------------------------


class StateRun:
    """Some lives of a state database; after each flush all of what it should hold is known."""

    def __init__(self, power, path, seed):
        self.power, self.path, self.draw = power, path, random.Random(seed)
        self.states = [{}]  # by number of the flush
        self.flushed = []  # (notes, number): flushes that returned

    async def lives(self):
        for _ in range(3):
            database = await Database.open(self.path)
            await database.snapshot(1)  # from here on it knows what the rows add up to
            for _ in range(self.draw.randint(2, 8)):
                await database.flush(self.changes())
                self.flushed.append((len(self.power.notes), len(self.states) - 1))
            await database.close()

    def changes(self):
        changes, state = Changes(), dict(self.states[-1])
        for key in sorted(self.draw.sample(range(400), self.draw.choice((1, 5, 300)))):
            name = b"%d" % key
            state[name] = b"%d" % len(self.states) * self.draw.choice((1, 200))
            changes.put("parts", 1, "kind", name, state[name])
        changes.put("applied", 1, len(self.states), 1, 1)
        self.states.append(state)
        return changes

    async def check(self, directory, moment):
        database = await Database.open(directory / self.path.name)
        try:
            assert await database.rows("pragma_integrity_check", "integrity_check") == [("ok",)]
            applied = (await database.snapshot(1)).applied_index
            assert last_before(self.flushed, moment) <= applied
            assert dict(await database.rows("parts", "key, state")) == self.states[applied]
        finally:
            await database.close()


@pytest.mark.parametrize("seed", range(4))
def test_state_has_every_flush_that_returned_and_none_by_half(tmp_path, power, seed):
    run = StateRun(power, tmp_path / "state.db", seed)
    with power.recording():
        asyncio.run(run.lives())
    assert power.notes
    for moment in power.moments([at for at, _ in run.flushed], MOMENTS, seed):
        power.leave(tmp_path / "left", moment, seed)
        asyncio.run(run.check(tmp_path / "left", moment))


# --- both -----------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(files, path):
    """A node on such a disk, with the state in a file."""
    node = StorageNode(files=files).boot(load=False)
    node.storage.rows.database = await Database.open(path)
    node.make_broker()
    try:
        await StateLoader(node.storage, node.broker, replicated=True).load()
        yield node
    finally:
        await node.storage.close(clean=False)
        node.medium.close()


async def write_and_flush(node, draw):
    """Entries that only a flush makes durable, as without `sync=always`."""
    for _ in range(6):
        for _ in range(draw.randint(1, 12)):
            index, base = node.log.last_index + 1, node.log.channel(7).last_sequence + 1
            node.log.append([entry(index, batch(7, base, 2, size=60))])
            node.apply(index)
        if draw.random() < 0.5:
            node.trim(node.log.channel(7).last_sequence)
        await node.storage.flush(node.broker)
        await node.storage.release(node.broker)


@pytest.mark.parametrize("seed", range(4))
def test_state_and_log_that_lost_power_together_fit_together(tmp_path, power, seed):
    draw, disks = random.Random(seed), []

    async def life():
        async with opened(CrashingFiles(), tmp_path / "state.db") as node:
            before = len(power.notes)
            power.noted = lambda: disks.append(node.files.crash(draw.random()) if draw.random() < 0.2 else None)
            await write_and_flush(node, draw)
            power.noted = lambda: None
        return before

    async def look(disk):
        async with opened(disk, tmp_path / "left" / "state.db") as node:
            assert [note for note in node.notes if note.startswith("ERR")] == []
            assert node.storage.applied[1][0] <= node.log.last_index

    with power.recording():
        before = asyncio.run(life())
    for moment, disk in enumerate(disks, before + 1):
        if disk is not None:
            power.leave(tmp_path / "left", moment, seed)
            asyncio.run(look(disk))
    assert any(disks)
