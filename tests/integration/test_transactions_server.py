"""Staged rows and their commits against a real server: readers see a commit whole or not at all, also after kill -9."""

import asyncio
import threading
from contextlib import suppress

import pytest
import stan_client
from stan_protocol import refusals

from tests.kit.batches import rows_of
from tests.kit.damage import log_bytes

ROWS = 5_000


def payloads(name, count=ROWS, size=100):
    return [(b"%b-%d-" % (name.encode(), number)).ljust(size, b".") for number in range(count)]


def stored(client, channel):
    found = client.fetch_batch(channel, count=1)
    if not found.last_sequence:
        return []
    batches = client.read_range(channel, 1, found.last_sequence)
    return [message.data for batch in batches for message in batch.messages()]


def stage(client, app, version, txn, channel, *parts):
    for number, part in enumerate(parts):
        client.stage(app, version, txn, number, channel, rows_of(part), len(part))


def test_rows_of_several_tasks_are_committed_at_once(client):
    tasks = {f"task-{number}": payloads(f"t{number}") for number in range(4)}

    def run(txn):
        stage(client, "app", 0, txn, "foo", tasks[txn][:2000], tasks[txn][2000:])

    threads = [threading.Thread(target=run, args=(txn,)) for txn in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored(client, "foo") == []

    done = client.commit("app", 0, {"foo": [(txn, 2) for txn in tasks]})
    assert done == {"foo": stan_client.Committed(already=False, first=1, last=4 * ROWS)}
    assert stored(client, "foo") == [row for rows in tasks.values() for row in rows]
    assert client.last_committed("app") == 0
    assert client.commit("app", 0, {"foo": [(txn, 2) for txn in tasks]})["foo"].already


def test_commit_to_several_channels_and_abort(client):
    assert client.last_committed("app") == -1
    for channel in ("a", "b"):
        stage(client, "app", 7, "kept", channel, payloads("kept", 10))
        stage(client, "app", 7, "lost", channel, payloads("lost", 10))
    client.abort({"a": ["lost"], "b": ["lost"]})
    with pytest.raises(stan_client.ServerError, match=refusals.STAGED_GONE):
        client.commit("app", 7, {"a": [("lost", 1)]})
    client.commit("app", 7, {"a": [("kept", 1)], "b": [("kept", 1)]})
    assert stored(client, "a") == stored(client, "b") == payloads("kept", 10)
    assert client.last_committed("app") == 7


def test_staged_rows_outlive_a_kill(server, client):
    stage(client, "app", 0, "t", "foo", payloads("x"))
    server.kill9()
    server.start()
    client.commit("app", 0, {"foo": [("t", 1)]})
    assert stored(client, "foo") == payloads("x")
    server.kill9()
    server.start()
    assert client.last_committed("app") == 0
    assert client.commit("app", 0, {"foo": [("t", 1)]})["foo"].already


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_kill_in_the_middle_of_a_commit(server, client, tmp_path, seen):
    """Killed as soon as the log has grown by some MiB; readers see all of it or nothing, in the end all, once."""
    parts = [payloads(f"p{number}", 4000, 200) for number in range(12)]
    stage(client, "app", 0, "t", "foo", *parts)
    store = tmp_path / "store"
    before = log_bytes(store)
    committing = threading.Thread(target=commit, args=(client, "app", 0, {"foo": [("t", len(parts))]}))
    committing.start()
    while log_bytes(store) < before + seen * 1_000_000 and committing.is_alive():
        pass
    server.kill9()
    server.start()
    rows = [row for part in parts for row in part]
    assert stored(client, "foo") in ([], rows)
    committing.join()
    client.commit("app", 0, {"foo": [("t", len(parts))]})
    assert stored(client, "foo") == rows


def commit(client, *arguments):
    with suppress(stan_client.StanClientError):
        client.commit(*arguments)


def test_subscribers_see_a_commit_whole_between_publishes(server, client):
    """Publishes that come while a commit is under way get their acks, and lie behind or before it."""
    parts = [payloads(f"p{number}", 4000, 200) for number in range(12)]
    stage(client, "app", 0, "t", "foo", *parts)

    async def run():
        got, more = [], asyncio.Event()

        def take(message):
            got.append(message.data)
            more.set()

        async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as publisher:
            await publisher.subscribe("foo", take)
            committing = asyncio.create_task(asyncio.to_thread(client.commit, "app", 0, {"foo": [("t", len(parts))]}))
            sent = []
            while not committing.done():
                sent.append(b"publish-%d" % len(sent))
                await publisher.publish("foo", sent[-1])
            expected = len(sent) + sum(map(len, parts))
            async with asyncio.timeout(30):
                while len(got) < expected:
                    more.clear()
                    await more.wait()
            return sent, got

    sent, got = asyncio.run(run())
    rows = [row for part in parts for row in part]
    at = got.index(rows[0])
    assert got[at : at + len(rows)] == rows
    assert got[:at] + got[at + len(rows) :] == sent
