"""`stan migrate` of clusters that the real NATS Streaming Server has left: what it showed, and what clients of ours then see."""

import asyncio
import contextlib
import signal
from typing import Any

import pytest
import stan_client

from tests.integration.test_migrate import migrate, take
from tests.kit.old_cluster import migrate as move
from tests.kit.old_cluster import moved
from tests.kit.old_store import KEY
from tests.kit.original import needs_original
from tests.kit.original_cluster import NODES, OriginalCluster, digest, original_cluster
from tests.kit.server import StanServer, until

pytestmark = needs_original

ENCRYPTED = ("-encrypt", "-encryption_key", KEY.decode(), "-encryption_cipher")
POSITIONS = {
    "orders": {"billing/ledger": [30, 20]},
    "jobs": {"crew:pool": [15, 10]},
    "small": {"reader/bookmark": [34, 3]},
}
"""Last sent and pending when the story has ended; the cluster keeps the newest 50 messages of `small`."""


async def publish(client: stan_client.Client) -> None:
    """The messages of the story; the channel `passing` is deleted a second later."""
    for channel, count in (("orders", 150), ("small", 80), ("passing", 1), ("jobs", 40)):
        for number in range(1, count + 1):
            await client.publish(channel, b"%b %d" % (channel.encode(), number))


async def consume(cluster: OriginalCluster) -> list[stan_client.Client]:
    """The subscriptions of the story: clients stay, go, close and unsubscribe, with messages that they do not acknowledge."""
    begin = {"manual_acks": True, "start": stan_client.everything()}
    billing, one, two, reader = [
        await stan_client.connect(cluster.url, client_id=name) for name in ("billing", "worker-1", "worker-2", "reader")
    ]
    ledger = aiter(await billing.subscribe("orders", durable="ledger", max_in_flight=20, **begin))
    for message in await take(ledger, 20, ack=False):
        if message.sequence % 2:
            message.ack()
    await take(ledger, 10, ack=False)
    for worker, count, acked in ((one, 5, 3), (two, 4, 2)):
        crew = aiter(await worker.subscribe("jobs", queue="pool", durable="crew", max_in_flight=5, **begin))
        for message in (await take(crew, count, ack=False))[:acked]:
            message.ack()
    bookmark = await reader.subscribe("small", durable="bookmark", max_in_flight=3, **begin)
    (message, *_) = await take(aiter(bookmark), 3, ack=False)
    message.ack()
    await take(aiter(bookmark), 1, ack=False)
    await bookmark.close()
    gone = await reader.subscribe("small", durable="unsubscribed", **begin)
    await take(aiter(gone), 3, ack=False)
    await gone.unsubscribe()
    await take(aiter(await reader.subscribe("small", start=stan_client.everything())), 50, ack=False)
    await two.close()  # what it had not acknowledged goes to the other worker
    await reader.close()
    return [billing, one]


async def seen(url: str, ends: dict[str, tuple[int, int]]) -> dict[str, str]:
    """The digest of what a client gets of each channel."""
    client = await stan_client.connect(url, client_id="auditor")
    digests = {}
    for channel, (first, last) in ends.items():
        sub = await client.subscribe(channel, start=stan_client.from_sequence(first))
        got = await take(aiter(sub), last - first + 1, ack=False)
        digests[channel] = digest((message.sequence, message.timestamp_ns, message.data) for message in got)
        await sub.unsubscribe()
    await client.close()
    return digests


def shows_all(cluster: OriginalCluster, node: str) -> bool:
    """Whether a node shows the positions of the story: a follower does once they are in its log."""
    return all(
        {name: list(pair) for name, pair in cluster.positions(node, channel).items()} == positions
        for channel, positions in POSITIONS.items()
    )


async def story(cluster: OriginalCluster, *, lags: bool) -> dict[str, Any]:
    """Let clients work, stop a node amid it if it *lags*; return what the leader shows at the end."""
    loader = await stan_client.connect(cluster.url, client_id="loader")
    await publish(loader)
    running = list(NODES)
    if lags:
        running.remove(next(node for node in NODES if node != cluster.leader()))
        cluster.stop(*set(NODES).difference(running))
    clients = [loader, *await consume(cluster)]
    await asyncio.to_thread(until, lambda: all(shows_all(cluster, node) for node in running))
    await asyncio.to_thread(until, lambda: set(cluster.ends(cluster.leader())) == set(POSITIONS))
    ends = cluster.ends(cluster.leader())
    hashes = await seen(cluster.url, ends)
    cluster.stop(*running, by=signal.SIGKILL)
    for client in clients:
        with contextlib.suppress(stan_client.StanClientError):
            await client.close()
    return {"ends": {name: list(pair) for name, pair in ends.items()}, "hashes": hashes, "positions": POSITIONS}


async def resumed(url: str) -> tuple[list[stan_client.Message], list[stan_client.Message]]:
    """What `ledger` gets that it had not acknowledged, and then."""
    client = await stan_client.connect(url, client_id="billing")
    ledger = aiter(await client.subscribe("orders", durable="ledger", manual_acks=True, max_in_flight=20))
    got = await take(ledger, 20), await take(ledger, 5)
    await client.close()
    return got


@pytest.mark.parametrize("lags", [False, True], ids=["whole", "lags"])
@pytest.mark.parametrize("cipher", ["", "AES", "CHACHA"], ids=["plain", "aes", "chacha"])
def test_clients_go_on_where_they_were_in_the_cluster(tmp_path, cipher, lags):
    flags = (*ENCRYPTED, cipher) if cipher else ()
    if flags:
        pytest.importorskip("cryptography")
    with original_cluster(tmp_path, *flags) as cluster:
        expected = asyncio.run(story(cluster, lags=lags))
    key = {"key": KEY} if flags else {}
    for nodes in ("abc", "ab", "bc"):
        report = move(tmp_path, nodes, tmp_path / nodes, **key)
        assert report.problem_count == 0
        assert moved(report, tmp_path / nodes, expected) == expected

    stores, logs = ([tmp_path / node / kind for node in NODES] for kind in ("store", "raft"))
    raft = [word for path in logs for word in ("--raft", path)]
    done = migrate(*stores, *raft, "--to", tmp_path / "store", key=KEY.decode() if flags else "")
    assert done.returncode == 0, done.stdout + done.stderr
    with StanServer(tmp_path) as server:
        assert asyncio.run(seen(server.url, expected["ends"])) == expected["hashes"]
        again, then = asyncio.run(resumed(server.url))
    assert [message.sequence for message in again] == [*range(2, 21, 2), *range(21, 31)]
    assert all(message.redelivered for message in again)
    assert [message.sequence for message in then] == list(range(31, 36))
