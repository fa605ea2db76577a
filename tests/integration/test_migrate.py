"""`stan migrate` and what comes after it: a real server on the new directory, published clients that go on where they were."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import stan_client

from stan.log.files.disk import WRITING
from tests.conformance.clients import Client, javascript, sequences
from tests.integration.test_cli_pubsub import stan
from tests.kit.old_store import ENCRYPTED, EPOCH, KEY, PLAIN, write_many, write_server
from tests.kit.ports import free_port
from tests.kit.server import ROOT, StanServer, until

STAN = (sys.executable, "-m", "stan.cli.main")
PENDING = [*range(2, 21, 2), *range(21, 31)]
ENV = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}", "COLUMNS": "160"}


def migrate(*words, key=""):
    env = ENV | ({"NATS_STREAMING_ENCRYPTION_KEY": key} if key else {})
    where = () if {"--old-server", "--server"} & set(words) else nowhere()
    family, words = (words[1], words[2:]) if words[0] == "--store" else ("stan-filestore", words)
    command = [*STAN, "migrate", family, *map(str, words), *where]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env, cwd=ROOT)


@pytest.fixture(params=[PLAIN, ENCRYPTED], ids=["plain", "encrypted"])
def moved(request, tmp_path):
    """A running server on what was moved."""
    done = migrate(request.param, "--to", tmp_path / "store", key=KEY.decode() if request.param is ENCRYPTED else "")
    assert done.returncode == 0, done.stdout + done.stderr
    with StanServer(tmp_path) as server:
        yield server


async def take(sub, count, *, ack=True):
    got = []
    while len(got) < count:
        message = await asyncio.wait_for(anext(sub), 20)
        got.append(message)
        if ack:
            message.ack()
    return got


async def test_durable_gets_exactly_what_it_had_not_acked_and_goes_on(moved):
    client = await stan_client.connect(moved.url, client_id="billing")
    sub = await client.subscribe("orders", durable="ledger", manual_acks=True, max_in_flight=20)
    iterator = aiter(sub)

    again = await take(iterator, 20)
    assert [message.sequence for message in again] == PENDING
    assert all(message.redelivered for message in again)
    on = await take(iterator, 100)
    assert [message.sequence for message in on] == list(range(31, 131))
    assert not any(message.redelivered for message in on)
    assert json.loads(on[0].data) == {"id": 31, "total": 31 * 1.25}
    await client.close()


async def test_group_gets_its_rest_and_then_what_is_new(moved):
    client = await stan_client.connect(moved.url, client_id="worker-1")
    sub = await client.subscribe("sensors.room-1.temp", queue="pool", durable="crew", manual_acks=True)
    iterator = aiter(sub)
    rest = await take(iterator, 7)
    assert all(message.redelivered for message in rest)
    assert all(1 <= message.sequence <= 40 for message in rest)
    await client.publish("sensors.room-1.temp", b"new")
    (new,) = await take(iterator, 1)
    assert (new.sequence, new.redelivered, new.data) == (41, False, b"new")
    await client.close()


async def test_history_is_read_with_its_times(moved):
    client = await stan_client.connect(moved.url, client_id="somebody")
    sub = await client.subscribe("notes", start=stan_client.everything())
    found = await take(aiter(sub), 7, ack=False)
    assert [(message.sequence, message.data.decode()) for message in found] == [
        (n, f"nota número {n} ✓") for n in range(1, 8)
    ]
    assert [message.timestamp_ns for message in found] == sorted(message.timestamp_ns for message in found)
    assert found[0].timestamp_ns // 10**12 == 1795191
    await client.close()


def test_javascript_client_goes_on_where_it_was(moved):
    billing = Client(javascript(), moved.url, "test-cluster", "billing", (5, 3))
    reader = Client(javascript(), moved.url, "test-cluster", "reader", (5, 3))
    try:
        billing.wait("connected")
        reader.wait("connected")
        billing.subscribe("ledger", "orders", durable="ledger", manual=1, max_in_flight=20)
        first = billing.messages("ledger", 20)
        billing.ack("ledger", *sequences(first))
        billing.messages("ledger", 40)
        assert sequences(billing.seen("message", sub="ledger")) == [*PENDING, *range(31, 51)]
        assert [event["redelivered"] for event in billing.seen("message", sub="ledger")] == [True] * 20 + [False] * 20

        reader.subscribe("bookmark", "notes", durable="bookmark", max_in_flight=1)
        reader.messages("bookmark", 3)
        told = reader.seen("message", sub="bookmark")
        assert [(event["sequence"], event["redelivered"]) for event in told] == [(5, True), (6, False), (7, False)]
    finally:
        billing.release()
        reader.release()


def test_dry_run_tells_everything_and_makes_nothing(tmp_path):
    table = migrate(PLAIN, "--dry-run")
    assert table.returncode == 0
    for told in ("orders", "2,600", "billing/ledger: sent 30, 20 pending", "crew:pool", "can be moved"):
        assert told in table.stdout

    facts = json.loads(migrate(PLAIN, "--dry-run", "--json").stdout)
    assert [(channel["name"], channel["last"]) for channel in facts["channels"]] == [
        ("notes", 7),
        ("orders", 2600),
        ("sensors.room-1.temp", 40),
    ]
    assert not list(tmp_path.iterdir())


def test_exit_codes_tell_how_it_went(tmp_path):
    write_many(tmp_path / "old", b"foo", 1000, b"x", 500, 1000)
    slice_file = tmp_path / "old" / "foo" / "msgs.2.dat"
    slice_file.write_bytes(slice_file.read_bytes()[:-3])
    damaged = migrate(tmp_path / "old", "--to", tmp_path / "new")
    assert damaged.returncode == 5
    assert f"{slice_file}: offset" in damaged.stdout

    for words in (["--dry-run", "--to", tmp_path / "x"], [], ["--dry-run", "--encryption-cipher", "ROT13"]):
        assert migrate(tmp_path / "old", *words).returncode == 2
    refused = migrate(ENCRYPTED, "--to", tmp_path / "secret")
    assert refused.returncode == 1
    assert "--encryption-key" in refused.stderr
    assert not (tmp_path / "secret").exists()


def run_server(directory):
    command = [sys.executable, "-m", "stan.server.main", "-p", "-1", "-st", "FILE", "-dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=ENV)


def test_server_on_the_old_directory_names_the_command(tmp_path):
    write_many(tmp_path / "old", b"foo", 10, b"x", 10, 1000)
    refused = run_server(tmp_path / "old")
    assert refused.returncode == 1
    assert f"stan migrate stan-filestore {tmp_path / 'old'} --to" in refused.stderr
    assert migrate(tmp_path / "old", "--dry-run").returncode == 0


def test_killed_migration_leaves_no_store_and_begins_again(tmp_path):
    write_many(tmp_path / "old", b"foo", 200_000, b"x" * 512, 50_000, 1000)
    new = tmp_path / "store"
    process = subprocess.Popen(
        [*STAN, "migrate", "stan-filestore", str(tmp_path / "old"), "--to", str(new)],
        env=ENV, cwd=ROOT, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: process.poll() is not None or any(size(path) > 2**20 for path in new.glob("groups/1/*.log")))
        process.send_signal(signal.SIGKILL)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL, "it was done before it could be killed"
    assert not [path for path in new.iterdir() if path.name.endswith(WRITING)]

    refused = run_server(new)
    assert refused.returncode == 1
    assert "run stan migrate once more" in refused.stderr
    assert migrate(tmp_path / "old", "--to", new).returncode == 0
    with StanServer(tmp_path) as server:
        assert asyncio.run(last_message(server.url)) == (200_000, EPOCH + 200_000 * 1000)


# --- a server that still runs ---------------------------------------------------------------------------------------------

HOLDS = "import sys, time; held = open(sys.argv[1], 'r+b'); print('there', flush=True); time.sleep(600)"
WRITES = """
import sys, time
print("there", flush=True)
while True:
    with open(sys.argv[1], "ab") as file:
        file.write(bytes(4))
    time.sleep(0.05)
"""


@contextlib.contextmanager
def old_server(program, file):
    """A process that uses *file* of an old store as its server does."""
    process = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"there\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def old(tmp_path):
    return shutil.copytree(PLAIN, tmp_path / "old")


def nowhere():
    return "--old-server", f"nats://127.0.0.1:{free_port()}"


@pytest.mark.parametrize("name", ["clients.dat", "server.dat", "orders/msgs.3.dat", "notes/subs.dat"])
def test_store_whose_files_a_process_holds_open_is_not_moved(tmp_path, old, name):
    new = tmp_path / "new"
    with old_server(HOLDS, old / name) as pid:
        refused = migrate(old, "--to", new)
        assert refused.returncode == 1
        assert f"(process {pid}) has {old / name} open to write" in refused.stderr
        assert "stop it first" in refused.stderr
        assert "--stopped" in refused.stderr
        assert not new.exists()
        looked = migrate(old, "--dry-run")
        assert looked.returncode == 0
        assert f"process {pid}" in looked.stdout
        assert migrate(old, "--to", new, "--stopped").returncode == 0


def test_store_that_changes_while_it_is_moved_is_not_moved(tmp_path, old):
    new = tmp_path / "new"
    with old_server(WRITES, old / "orders" / "more"):
        refused = migrate(old, "--to", new)
        assert refused.returncode == 1
        assert str(old / "orders" / "more") in refused.stderr
    assert run_server(new).returncode == 1 if new.exists() else True
    moved = migrate(old, "--to", new)
    assert moved.returncode == 0
    assert "make sure that it is stopped" in moved.stdout


def test_store_whose_cluster_answers_on_nats_is_not_moved(tmp_path, old):
    new = tmp_path / "new"
    with StanServer(tmp_path, store="MEMORY") as server:
        refused = migrate(old, "--to", new, "--old-server", server.url)
        assert refused.returncode == 1
        assert f"a server of cluster test-cluster answers at {server.url}" in refused.stderr
        assert not new.exists()
        assert migrate(old, "--to", new, "--old-server", server.url, "--stopped").returncode == 0
    moved = migrate(old, "--to", tmp_path / "another", "--old-server", server.url)
    assert moved.returncode == 0
    assert "could not be asked" in moved.stdout


def test_reader_of_the_old_files_is_no_server(tmp_path, old):
    reads = HOLDS.replace("r+b", "rb")
    with old_server(reads, old / "clients.dat"):
        assert migrate(old, "--to", tmp_path / "new").returncode == 0


def size(path):
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


async def last_message(url):
    client = await stan_client.connect(url, client_id="somebody")
    sub = await client.subscribe("foo", start=stan_client.last_received())
    (message,) = await take(aiter(sub), 1, ack=False)
    await client.close()
    return message.sequence, message.timestamp_ns


async def test_durables_of_a_clustered_server_are_put_where_they_were_before_their_clients_come(tmp_path):
    write_many(tmp_path / "old", b"orders", 20, b"x", 20, 1_000_000)
    write_server(tmp_path / "old", node_id=b"a")
    refused = migrate(tmp_path / "old", "--to", tmp_path / "store", "--stopped")
    assert (refused.returncode, (tmp_path / "store").exists()) == (1, False)
    assert "--without-durables" in refused.stderr
    done = migrate(tmp_path / "old", "--to", tmp_path / "store", "--stopped", "--without-durables")
    assert done.returncode == 0, done.stdout + done.stderr
    with StanServer(tmp_path) as server:
        for name, family in (("billing/ledger", "durable"), ("crew:pool", "queue")):
            code, _, complaint = await stan(family, "create", "orders", name, "--at", "11", "-s", server.url)
            assert code == 0, complaint
        client = await stan_client.connect(server.url, client_id="billing")
        for names in ({"durable": "ledger"}, {"durable": "crew", "queue": "pool"}):
            sub = await client.subscribe("orders", manual_acks=True, **names)
            got = await take(aiter(sub), 10)
            assert [message.sequence for message in got] == list(range(11, 21))
            assert not any(message.redelivered for message in got)
        await client.close()
