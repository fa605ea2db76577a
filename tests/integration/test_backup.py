"""`stan backup` and `stan restore` between real servers: sequences, times, gaps, durables and what is pending are kept."""

import asyncio
import json
import threading
from datetime import UTC, datetime

import pytest
import stan_client
from stan_client.blocking import BlockingClient
from stan_protocol.admin_types import Compatibility, DeliveryPolicy, Limits
from typer.testing import CliRunner

from stan.cli.commands.archive import read_index
from stan.cli.main import app
from tests.kit.batches import full_messages, rows_of, rows_of_messages
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer, StanServer

COUNT = 2500
ACKED = 40


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A server with something to save."""
    with StanServer(tmp_path_factory.mktemp("origin"), "-mm", "0") as server:
        asyncio.run(_fill(server))
        yield server


@pytest.fixture
def other(tmp_path):
    with StanServer(tmp_path) as server:
        yield server


def stan(server, *arguments):
    done = CliRunner().invoke(app, [*arguments, "--server", server.url])
    return done.exit_code, done.output


async def _fill(server) -> None:
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        await direct.batches.publish("orders", rows_of([b"%d" % n for n in range(1, COUNT + 1)]), COUNT)
        await direct.batches.publish("full", rows_of_messages(full_messages(300)), 300)
        await direct.batches.publish("emptied", rows_of([b"x"] * 7), 7)
        await direct.admin.purge("emptied")
        await direct.admin.purge("orders", up_to=10)
        await direct.admin.delete_message("orders", 20)
        await direct.admin.edit_limits("orders", Limits(max_msgs=100_000))
    client = await stan_client.connect(server.url, client_id="ledger", cluster_id=server.cluster_id)
    await client.publish("single", b"one")
    await take(client, "orders", ACKED, 100, durable="book", start=stan_client.everything())
    await take(client, "orders", ACKED, 60, durable="kept", queue="crew", start=stan_client.everything())
    await client.close()


async def take(client, channel: str, acked: int, in_flight: int, **how) -> list[int]:
    """Sequences that a subscription gets; the first *acked* of them are acked, one window more is left."""
    got: list[int] = []
    there = asyncio.Event()

    def take_one(message) -> None:
        got.append(message.sequence)
        if len(got) <= acked:
            message.ack()
        if len(got) == acked + in_flight:
            there.set()

    sub = await client.subscribe(channel, take_one, manual_acks=True, max_in_flight=in_flight, ack_wait_s=60, **how)
    await asyncio.wait_for(there.wait(), 60)
    await sub.close()
    return got


def stored(server, channel):
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        found = [m for answer in client.read_range(channel, 1, 1 << 60) for m in answer.messages()]
        return [(m.sequence, m.timestamp_ns, m.data) for m in found]


async def positions(server) -> list[tuple]:
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        return [
            (one.channel, one.kind, one.durable_name, one.queue_group, one.last_sent, one.acked_up_to, one.pending)
            for one in await direct.admin.subscriptions()
        ]


def records(server, channel):
    """The bytes of all messages as they are stored."""
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        return b"".join(bytes(answer.records) for answer in client.read_range(channel, 1, 1 << 60))


def same(one, another) -> None:
    """Two servers hold the same."""
    assert records(another, "full") == records(one, "full")
    assert stored(another, "orders") == stored(one, "orders")
    assert stored(another, "single") == stored(one, "single")
    assert stored(another, "emptied") == []
    assert asyncio.run(positions(another)) == asyncio.run(positions(one))


def test_what_is_saved_is_put_back(origin, other, tmp_path) -> None:
    saved = str(tmp_path / "saved")
    code, output = stan(origin, "backup", saved)
    assert code == 0, output
    code, output = stan(other, "restore", saved, "--yes")
    assert code == 0, output
    same(origin, other)
    asyncio.run(_goes_on(origin, other))


async def _goes_on(origin, other) -> None:
    """The durable gets exactly what was pending, flagged, then what follows; sequences go on."""
    client = await stan_client.connect(other.url, client_id="ledger", cluster_id=other.cluster_id)
    assert await client.publish("emptied", b"next") is not None
    async with stan_client.Direct(other.url, cluster_id=other.cluster_id) as direct:
        infos = await direct.channels.info()
        assert infos["emptied"].last == 8
        (orders,) = await direct.admin.channels("orders")
        assert orders.edited.max_msgs == 100_000
    got: list[tuple[int, bool]] = []
    enough = asyncio.Event()

    def take_one(message) -> None:
        got.append((message.sequence, message.redelivered))
        if len(got) == 150:
            enough.set()

    await client.subscribe("orders", take_one, durable="book", max_in_flight=1000)
    await asyncio.wait_for(enough.wait(), 60)
    await client.close()
    kept = [sequence for sequence, *_ in stored(origin, "orders")]
    assert [sequence for sequence, _ in got[:150]] == kept[ACKED : ACKED + 150]
    assert [flag for _, flag in got[:150]] == [True] * 100 + [False] * 50


async def _has_policies_and_failures(server) -> None:
    """Two policies, and a durable with two messages that it has failed with three times."""
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        await direct.admin.set_policy("jobs", DeliveryPolicy(max_deliver=4, dead_letter=".dlq"))
        await direct.admin.set_policy("jobs", DeliveryPolicy(adaptive_window=True), name="worker")
    async with await stan_client.connect(server.url, client_id="failing", cluster_id=server.cluster_id) as client:
        for number in range(5):
            await client.publish("jobs", b"%d" % number)
        sub = await client.subscribe("jobs", durable="worker", start=stan_client.everything(), manual_acks=True)
        for _ in range(3 * 2 + 3):
            message = await sub.next(30)
            if message.sequence <= 2 and message.redelivery_count < 2:
                await message.nak()
            elif message.sequence > 2:
                await message.ack()
        await sub.close()


async def policies_and_failures(server):
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        found = await direct.admin.policies()
        (worker,) = await direct.admin.subscriptions("jobs")
    return (
        [(one.pattern, one.name, one.policy) for one in found.policies],
        list(worker.counted_runs),
        list(worker.counts),
    )


def test_policies_and_numbers_of_redeliveries_are_put_back(other, tmp_path) -> None:
    saved = str(tmp_path / "saved")
    (tmp_path / "failed").mkdir()
    with StanServer(tmp_path / "failed") as failed:
        asyncio.run(_has_policies_and_failures(failed))
        before = asyncio.run(policies_and_failures(failed))
        assert (len(before[0]), before[1:]) == (2, ([(1, 2)], [2]))
        assert stan(failed, "backup", saved)[0] == 0
    code, output = stan(other, "restore", saved, "--yes", "--json")
    assert code == 0, output
    assert asyncio.run(policies_and_failures(other)) == before


def test_schemas_are_put_back_under_their_numbers(other, tmp_path) -> None:
    saved = str(tmp_path / "saved")
    texts = [b'{"type": "object", "title": "%d"}' % number for number in range(3)]

    async def fill(server) -> None:
        async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
            for text in texts:
                await direct.admin.add_schema("jobs.*", text, compatibility=Compatibility.FULL)
            await direct.admin.remove_schema("jobs.*", 2)
            await direct.admin.add_schema("others", texts[0])
            await direct.admin.set_policy("jobs.*", DeliveryPolicy(schema=2))

    async def there(server) -> list[tuple[str, int, bytes, int]]:
        async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
            found = await direct.admin.schemas()
        return [(one.pattern, one.schema_version, one.text, one.compatibility) for one in found]

    async def change(server, text: bytes) -> None:
        async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
            await direct.admin.remove_schema("jobs.*", 3)
            await direct.admin.add_schema("jobs.*", text, version=3)

    (tmp_path / "from").mkdir()
    with StanServer(tmp_path / "from") as server:
        asyncio.run(fill(server))
        before = asyncio.run(there(server))
        assert [one[:2] for one in before] == [("jobs.*", 1), ("jobs.*", 3), ("others", 1)]
        assert stan(server, "backup", saved)[0] == 0
        assert stan(server, "backup", f"{saved}-part", "--channels", "jobs.*")[0] == 0
    assert [one.version for one in read_index(tmp_path / "saved-part").schemas] == [1, 3]
    for _ in range(2):
        code, output = stan(other, "restore", saved, "--yes")
        assert code == 0, output
        assert asyncio.run(there(other)) == before
    asyncio.run(change(other, texts[1]))
    code, output = stan(other, "restore", saved, "--yes")
    assert (code, "Version 3 of the schema of jobs.* is another one here" in output.replace("\n", " ")) == (1, True)


def test_restore_again_changes_nothing_and_a_channel_in_use_is_refused(origin, other, tmp_path) -> None:
    saved = str(tmp_path / "saved")
    assert stan(origin, "backup", saved)[0] == 0
    assert stan(other, "restore", saved, "--yes", "--channels", "orders")[0] == 0
    code, output = stan(other, "restore", saved, "--yes", "--channels", "orders")
    assert stored(other, "orders") == stored(origin, "orders"), output
    with BlockingClient(other.url, cluster_id=other.cluster_id) as client:
        client.publish_batch("single", rows_of([b"mine"]), 1)
    code, output = stan(other, "restore", saved, "--yes", "--channels", "single")
    assert code == 1
    assert "single" in output
    assert [data for *_, data in stored(other, "single")] == [b"mine"]


def test_damaged_backup_is_refused_before_anything_is_restored(origin, other, tmp_path) -> None:
    saved = tmp_path / "saved"
    assert stan(origin, "backup", str(saved))[0] == 0
    channel = next(one for one in read_index(saved).channels if one.name == "orders")
    path = saved / f"{channel.file}.messages"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    code, output = stan(other, "restore", str(saved), "--yes")
    assert code == 1
    assert "offset" in output
    with BlockingClient(other.url, cluster_id=other.cluster_id) as client:
        assert client.info() == {}
    (saved / "backup.json").unlink()
    assert "not finished" in stan(other, "restore", str(saved), "--yes")[1]


def test_nothing_is_done_without_yes_and_a_full_directory_is_refused(origin, other, tmp_path) -> None:
    saved = tmp_path / "saved"
    assert stan(origin, "backup", str(saved))[0] == 0
    code, output = stan(other, "restore", str(saved))
    assert code == 2
    assert "--yes" in output
    code, output = stan(other, "restore", str(saved), "--channels", "nobody.*", "--yes")
    assert code == 1
    assert "No channel of the backup matches 'nobody.*'. It has: " in output
    assert stan(origin, "backup", str(saved))[0] == 2


def test_backup_while_messages_are_published_and_acked_skips_nothing(other, tmp_path) -> None:
    """Whatever the positions in the backup say is sent is in it, and what is not acked comes again."""
    with StanServer(_made(tmp_path / "busy"), "-mm", "0") as busy:
        begun, ended = threading.Event(), threading.Event()
        load = threading.Thread(target=lambda: asyncio.run(_busy(busy, begun, ended)))
        load.start()
        try:
            assert begun.wait(60)
            for number in range(3):
                code, output = stan(busy, "backup", str(tmp_path / f"saved{number}"))
                assert code == 0, output
        finally:
            ended.set()
            load.join()
    code, output = stan(other, "restore", str(tmp_path / "saved2"), "--yes", "--json")
    assert code == 0, output
    (channel,) = json.loads(output[output.index("{") :])["channels"]
    (position,) = asyncio.run(positions(other))
    assert position[4] <= channel["last_sequence"]
    assert [sequence for sequence, *_ in stored(other, "busy")] == list(range(1, channel["last_sequence"] + 1))


async def _busy(server, begun: threading.Event, ended: threading.Event) -> None:
    client = await stan_client.connect(server.url, client_id="busy", cluster_id=server.cluster_id)
    await client.subscribe("busy", lambda _message: None, durable="d", start=stan_client.everything())
    while not ended.is_set():
        await asyncio.gather(*(client.publish("busy", b"x") for _ in range(50)))
        begun.set()
    await client.close()


def _made(directory):
    directory.mkdir()
    return directory


@pytest.mark.timeout(180)
def test_backup_is_restored_into_a_cluster(origin, tmp_path) -> None:
    saved = str(tmp_path / "saved")
    assert stan(origin, "backup", saved)[0] == 0
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        code, output = stan(cluster, "restore", saved, "--yes")
        assert code == 0, output
        same(origin, cluster)
        cluster.kill9(cluster.leader_of("orders"))
        same(origin, cluster)


async def _delay(server, *delays) -> list[int]:
    async with await stan_client.connect(server.url, client_id="later", cluster_id=server.cluster_id) as client:
        return [(await client.publish("later", b"%d" % n, delay_s=delay)).delayed_id for n, delay in enumerate(delays)]


async def _come(server, count) -> list[bytes]:
    async with await stan_client.connect(server.url, client_id="reader", cluster_id=server.cluster_id) as client:
        subscription = await client.subscribe("later", start=stan_client.everything())
        return [(await subscription.next(60)).data for _ in range(count)]


async def _waiting(server) -> list[tuple[int, int]]:
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        return [(one.id, one.due) for one in await direct.admin.delayed("later")]


async def _cancel(server, number) -> int:
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        return (await direct.admin.cancel_delayed("later", [number])).changed


def test_delayed_messages_are_saved_and_come_at_their_time_once(tmp_path) -> None:
    saved = str(tmp_path / "saved")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with StanServer(tmp_path / "one") as one:
        numbers = asyncio.run(_delay(one, 0.1, 6, 3600, 7))
        assert asyncio.run(_come(one, 1)) == [b"0"]
        before = asyncio.run(_waiting(one))
        code, output = stan(one, "backup", saved)
        assert code == 0, output
        assert "3 delayed messages" in output
    with StanServer(tmp_path / "two") as two:
        code, output = stan(two, "restore", saved, "--yes")
        assert code == 0, output
        assert asyncio.run(_waiting(two)) == before
        assert asyncio.run(_cancel(two, numbers[3])) == 1
        assert asyncio.run(_come(two, 2)) == [b"0", b"1"]
        assert asyncio.run(_waiting(two)) == [entry for entry in before if entry[0] == numbers[2]]
        assert [payload for *_, payload in stored(two, "later")] == [b"0", b"1"]


async def _publish_expiring(server) -> None:
    async with await stan_client.connect(server.url, client_id="brief", cluster_id=server.cluster_id) as client:
        for data, ttl_s in ((b"goes", 8), (b"stays", None), (b"long", 3600), (b"long too", 3600)):
            await client.publish("brief", data, ttl_s=ttl_s)
        await client.publish("brief", b"later", ttl_s=3600, delay_s=3600)


async def _expiring_rows(server) -> list[tuple[int, int]]:
    """(id, when it expires) of what waits for its time."""
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        page = await direct.admin.read_delayed("brief", 0)
        return [(one.id, one.expires_at) for one in page.messages]


async def _expiries(server, *, until_gone: bytes = b"") -> dict[bytes, datetime | None]:
    """When each message expires; if one is named, once that one is gone."""
    async with (
        asyncio.timeout(60),
        await stan_client.connect(server.url, client_id="reader", cluster_id=server.cluster_id) as client,
    ):
        while True:
            found = {message.data: message.expires_at async for message in client.read("brief")}
            if not until_gone or until_gone not in found:
                return found


def test_messages_expire_after_a_restore_when_they_would_have(tmp_path) -> None:
    saved = str(tmp_path / "saved")
    with StanServer(_made(tmp_path / "one")) as one:
        asyncio.run(_publish_expiring(one))
        before, waiting = asyncio.run(_expiries(one)), asyncio.run(_expiring_rows(one))
        assert ([*before], before[b"stays"]) == ([b"goes", b"stays", b"long", b"long too"], None)
        assert [expires_at > 0 for _, expires_at in waiting] == [True]
        code, output = stan(one, "backup", saved)
        assert code == 0, output
    end = before.pop(b"goes")
    for name in ("two", "late"):  # at the second restore its time is over
        with StanServer(_made(tmp_path / name)) as other:
            code, output = stan(other, "restore", saved, "--yes")
            assert code == 0, output
            assert asyncio.run(_expiries(other, until_gone=b"goes")) == before
            assert datetime.now(UTC) >= end
            assert asyncio.run(_expiring_rows(other)) == waiting
            assert [data for *_, data in stored(other, "brief")] == [*before]
