"""Tables against scripted answers: what the fold is, and when a table is made anew because tombstones may have gone unread."""

import asyncio

import pytest
import stan_client
from stan_client.reading.fetching import Fetched
from stan_protocol.compaction import DELETE_HEADER
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.proto.extension_pb2 import FetchResponse

from tests.kit.fake_broker import eventually


def answer(*messages, last, gone=0, uid=7):
    """One answer with (sequence, key, data) each; data None: a tombstone. *gone*: tombstones up to there may be gone."""
    response = FetchResponse(
        uid=uid, first_sequence=1, last_sequence=last, next_sequence=last + 1, tombstones_until=gone
    )
    records = b""
    for sequence, key, data in messages:
        headers = [wire.Header(key=DELETE_HEADER, value=b"1")] if data is None else []
        told = wire.MsgProto(sequence=sequence, data=data or b"", key=key, headers=headers).SerializeToString()
        response.runs.add(first_sequence=sequence, count=1, position=len(records))
        records += len(told).to_bytes(4, "little") + told
    response.records = records
    return Fetched("ch", response)


class Scripted:
    """Answers one read after the other; the last one that follows waits for ever."""

    def __init__(self, *reads):
        self.reads = list(reads)
        self.asked = []
        self.batches = self

    async def read(self, channel, *, start=None, follow=False, uid=0, cluster="", read_ns=0):
        self.asked.append((start.sequence if start else 1, follow, uid))
        for found in self.reads.pop(0) if self.reads else ():
            if isinstance(found, Exception):
                raise found
            yield found
        if follow:
            await asyncio.Event().wait()


def rows(table):
    return {key: (message.sequence, message.data) for key, message in table.items()}


async def test_a_table_is_the_fold_and_goes_on() -> None:
    client = Scripted(
        [answer((1, b"a", b"1"), (2, b"b", b"2"), (3, b"", b"no key"), (4, b"a", b"3"), last=4)],
        [answer((5, b"b", None), last=5), answer((6, b"c", b"4"), (7, b"d", None), last=7)],
    )
    changes = []
    async with stan_client.Table(client, "ch", on_change=lambda *change: changes.append(change)) as table:
        assert rows(table) == {b"b": (2, b"2"), b"a": (4, b"3")}
        assert ("a" in table, b"c" in table, table["a"].data, len(table)) == (True, False, b"3", 2)
        await table.reached(7)
        assert rows(table) == {b"a": (4, b"3"), b"c": (6, b"4")}
        assert table.get("b") is None
        assert [list(table), list(table.keys()), [one.data for one in table.values()]] == [[b"a", b"c"]] * 2 + [
            [b"3", b"4"]
        ]
        with pytest.raises(KeyError):
            table["b"]
    told = [(key, message and message.data) for key, message in changes]
    assert told == [(b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"4"), (b"d", None)]
    assert client.asked == [(1, False, 0), (5, True, 7)]
    with pytest.raises(stan_client.ConnectionClosedError):
        await table.reached(8)


async def test_a_table_that_has_missed_tombstones_is_made_anew() -> None:
    client = Scripted(
        [answer((1, b"a", b"1"), (2, b"b", b"2"), last=2)],
        [answer((8, b"c", b"3"), last=8, gone=5)],
        [answer((2, b"b", b"2"), (8, b"c", b"3"), last=8, gone=5)],
    )
    changes = []
    async with stan_client.Table(client, "ch", on_change=lambda *change: changes.append(change)) as table:
        await eventually(lambda: len(client.asked) == 4)
        assert rows(table) == {b"b": (2, b"2"), b"c": (8, b"3")}
    assert [(key, message and message.sequence) for key, message in changes] == [
        *((b"a", 1), (b"b", 2)),
        *((b"a", None), (b"c", 8)),
    ]
    assert client.asked[-2:] == [(1, False, 7), (9, True, 7)]


async def test_a_channel_is_read_once_more_if_tombstones_go_meanwhile() -> None:
    client = Scripted(
        [answer((1, b"a", b"1"), last=1, gone=1), answer((9, b"b", b"2"), last=9, gone=6)],
        [answer((9, b"b", b"2"), last=9, gone=6)],
    )
    async with stan_client.Table(client, "ch") as table:
        assert rows(table) == {b"b": (9, b"2")}


async def test_trouble_passes_and_another_channel_of_the_name_is_another_table(monkeypatch) -> None:
    monkeypatch.setattr("stan_client.reading.table.PAUSE_S", 0)
    client = Scripted(
        [answer((1, b"a", b"1"), last=1)],
        [stan_client.FetchTimeoutError()],
        [answer((2, b"b", b"2"), last=2), stan_client.ServerError("stan: messages cannot be read")],
        [stan_client.ChannelReplacedError()],
        [answer((1, b"new", b"3"), last=1, uid=8)],
    )

    def broken(*_change):
        raise ZeroDivisionError

    async with stan_client.Table(client, "ch", on_change=broken) as table:
        await eventually(lambda: len(client.asked) == 6)
        assert rows(table) == {b"new": (1, b"3")}
        assert table.sequence == 1
    assert [uid for _, _, uid in client.asked] == [0, 7, 7, 7, 0, 8]


async def test_the_first_reading_tells_its_errors() -> None:
    with pytest.raises(stan_client.ServerError):
        async with stan_client.Table(Scripted([stan_client.ServerError("stan: unknown channel")]), "ch"):
            pass


async def test_leaving_a_table_is_cancelled_with_its_caller() -> None:
    released = asyncio.Event()

    class EndsSlowly(Scripted):
        async def read(self, channel, *, follow=False, **options):
            try:
                async for found in super().read(channel, follow=follow, **options):
                    yield found
            finally:
                if follow:
                    await released.wait()

    table = await stan_client.Table(EndsSlowly([answer((1, b"a", b"1"), last=1)]), "ch").__aenter__()
    await asyncio.sleep(0)
    leaving = asyncio.create_task(table.__aexit__(None, None, None))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    released.set()
