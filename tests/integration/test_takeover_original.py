"""`stan takeover` of the original, where STAN_ORIGINAL names its program: what only it does as it does."""

import asyncio
import contextlib
import os

import pytest
import stan_client

from tests.integration.test_cli_operator import stan, stan_error
from tests.integration.test_takeover import pending_of, read, sequences
from tests.kit.certificates import Authority
from tests.kit.fake_broker import eventually
from tests.kit.original import needs_original
from tests.kit.original_server import Original, OriginalCluster, read_subscribed
from tests.kit.server import CLUSTER_ID, NatsServer, StanServer

pytestmark = needs_original
FENCED = ("--fence-command", "true", "--yes")


@pytest.fixture
def new(tmp_path):
    (tmp_path / "new").mkdir()
    with StanServer(tmp_path / "new", "-mc", "0") as server:
        yield server


def client_of(server, client_id="p"):
    return stan_client.connect(server.url, client_id=client_id, cluster_id=CLUSTER_ID)


def command(old, *more):
    return ["takeover", old.url, "--pages", old.pages, "--cluster-id", CLUSTER_ID, *more]


async def take(subscription, count, *, ack):
    """Take *count* messages, and acknowledge those whose sequences *ack* accepts."""
    for _ in range(count):
        message = await anext(subscription)
        if ack(message.sequence):
            message.ack()


@pytest.mark.parametrize("store", ["FILE", "MEMORY"])
async def test_each_kind_of_subscription_goes_on_where_it_was(new, tmp_path, store):
    options = {"start": stan_client.everything(), "manual_acks": True, "max_in_flight": 20, "ack_wait_s": 60}
    with Original(tmp_path / "old", store=store) as old:
        async with contextlib.AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(await client_of(old))
            await publisher.publish_many("a.b.c", [b"%d" % number for number in range(100)])
            clients = {
                name: await client_of(old, name) for name in ("online", "offline", "closed", "m1", "m2", "plain")
            }
            for name in ("online", "offline", "closed"):
                durable = await clients[name].subscribe("a.b.c", durable="d", **options)
                await take(durable, 30, ack=lambda sequence: sequence % 2)
                if name == "closed":  # its client stays connected
                    await durable.close()
            await clients.pop("offline").close()
            for name in ("m1", "m2"):
                member = await clients[name].subscribe("a.b.c", durable="g", queue="q", **options)
                await take(member, 10, ack=lambda sequence: sequence % 2)
            await clients["plain"].subscribe("a.b.c", queue="nameless", **options)
            document = await asyncio.to_thread(stan, new.url, tmp_path, *command(old, *FENCED, "--json"))
            assert "1 subscription without a durable name" in document
            assert await read(new, "a.b.c") == await old.read("a.b.c", 100)
            pending = await pending_of(new, "a.b.c")
            for name in ("online", "offline", "closed"):
                unacked, last = pending[name, "d", ""]
                assert {*range(2, 31, 2)} <= {*unacked}
                assert last == unacked[-1]
                got = await sequences(new, name, "a.b.c", 100 - last + len(unacked), durable="d")
                assert got == [(one, True) for one in unacked] + [(one, False) for one in range(last + 1, 101)]
            unacked, last = pending["", "g", "q"]
            assert len(unacked) == sum(bool(one) for one in unacked) <= 40
            got = await sequences(new, "m3", "a.b.c", 100 - last + len(unacked), durable="g", queue="q")
            assert [one for one, again in got if again] == unacked
            for client in clients.values():
                with contextlib.suppress(stan_client.StanClientError):
                    await client.close()


async def test_limits_expiry_and_empty_channels(new, tmp_path):
    limits = tmp_path / "limits.conf"
    limits.write_text(
        "streaming: {store_limits: {max_msgs: 70, channels: {"
        "'a.>': {max_msgs: 30}, 'a.b': {max_msgs: -1}, short: {max_age: '3s'}, gone: {max_inactivity: '1s'}}}}"
    )
    with Original(tmp_path / "old", "-sc", str(limits)) as old:
        async with await client_of(old) as client, await client_of(old, "reader") as reader:
            for channel in ("a.b", "a.c", "d", "short", "gone"):
                await client.publish_many(channel, [b"x"] * 100)
            empty = await client.subscribe("empty", durable="d")
            pending = await reader.subscribe("short", durable="d", start=stan_client.everything(), manual_acks=True)
            await take(pending, 10, ack=lambda _sequence: False)  # what is pending expires
            await asyncio.to_thread(
                stan, new.url, tmp_path, *command(old, "--yes", "--fence-command", "exit 1"), code=1
            )
            await eventually(lambda: old.page("channelsz?channel=short")["msgs"] == 0)
            await client.publish("short", b"new")
            await empty.close()
            await reader.close()
            await asyncio.to_thread(stan, new.url, tmp_path, *command(old, *FENCED))
        async with stan_client.Direct(new.url, cluster_id=CLUSTER_ID) as direct:
            found = {one.name: one for one in await direct.admin.channels()}
        assert [found[name].limits.max_msgs for name in ("a.b", "a.c", "d")] == [0, 30, 70]
        assert (found["a.c"].first_sequence, found["a.c"].last_sequence) == (71, 100)
        assert (found["d"].first_sequence, found["short"].last_sequence, found["empty"].last_sequence) == (31, 101, 0)
        assert found["short"].limits.max_age == 3 * 10**9
        for channel in ("a.b", "a.c", "d"):
            assert await read(new, channel) == await old.read(channel, 100)


async def test_large_messages_replies_and_very_many_channels(new, tmp_path):
    large = os.urandom((1 << 20) - 200)  # about as much as the protocol lets through
    with Original(tmp_path / "old", "-mc", "0") as old:
        async with await client_of(old) as client:
            await client.publish_many("large", [large, b"", large])
            await asyncio.gather(*(client.publish(f"c.{number}", b"%d" % number) for number in range(1100)))
        await asyncio.to_thread(stan, new.url, tmp_path, *command(old, *FENCED))
        assert await read(new, "large") == await old.read("large", 3)
        assert [data for _, _, data, _ in await read(new, "c.1099")] == [b"1099"]
        async with stan_client.Direct(new.url, cluster_id=CLUSTER_ID) as direct:
            assert len(await direct.admin.channels()) == 1101


LOGINS = {"user": ("-user", "me", "-pass", "secret"), "token": ("-auth", "secret"), "none": ()}


@pytest.mark.parametrize("login", LOGINS)
def test_logins_and_wrong_words_are_one_sentence(new, tmp_path, login):
    with Original(tmp_path / "old", *LOGINS[login]) as old:
        words = ["--cluster-id", CLUSTER_ID, "--dry-run"]
        where = old.url.replace(
            "nats://", {"user": "nats://me:secret@", "token": "nats://secret@", "none": "nats://"}[login]
        )
        stan(new.url, tmp_path, "takeover", where, "--pages", old.pages, *words)
        said = stan_error(new.url, tmp_path, "takeover", where, "--pages", old.pages, "--old-cluster-id", "x", *words)
        assert "has the cluster id 'test-cluster', not 'x'" in said
        said = stan_error(new.url, tmp_path, "takeover", where, "--pages", "http://127.0.0.1:1", *words)
        assert "option -m opens their port" in said
        if login != "none":
            said = stan_error(new.url, tmp_path, "takeover", old.url, "--pages", old.pages, *words, code=3)
            assert "Cannot connect to the old server" in said
            assert "secret" not in said


def test_tls_needs_the_authority_of_the_old_server(new, tmp_path):
    ours = Authority(tmp_path)
    server, client = ours.sign("server", host="127.0.0.1"), ours.sign("client")
    options = [
        "-tls",
        "-tlscert",
        str(server.cert),
        "-tlskey",
        str(server.key),
        "-secure",
        "-tls_client_cacert",
        str(ours.ca),
    ]
    options += ["-tls_client_cert", str(client.cert), "-tls_client_key", str(client.key)]
    with Original(tmp_path / "old", *options) as old:
        words = [old.url.replace("nats://", "tls://"), "--pages", old.pages, "--cluster-id", CLUSTER_ID, "--dry-run"]
        stan(new.url, tmp_path, "takeover", *words, "--old-tls-ca", str(ours.ca))
        assert "--old-tls-ca" in stan_error(new.url, tmp_path, "takeover", *words, code=3)


async def test_a_cluster_is_taken_over_by_its_leader_whichever_page_is_named_first(new, tmp_path):
    with NatsServer(tmp_path) as nats, OriginalCluster(tmp_path / "old", nats.url) as old:
        async with await client_of(old, "p") as publisher:
            await publisher.publish_many("orders", [b"%d" % number for number in range(500)])
            client = await client_of(old, "c")
            durable = await client.subscribe(
                "orders", durable="d", start=stan_client.everything(), manual_acks=True, max_in_flight=9
            )
            await take(durable, 9, ack=lambda sequence: sequence > 3)
            (leader,) = old.leaders()
            stop = [*command(old, "--yes"), "--fence-command", "exit 1"]
            await asyncio.to_thread(stan, new.url, tmp_path, *stop, code=1)
            follower = next(node for name, node in old.nodes.items() if name != leader)
            only = ["takeover", old.url, "--pages", follower.pages, "--dry-run"]
            assert "pages of the leader" in await asyncio.to_thread(stan_error, new.url, tmp_path, *only)
            await asyncio.to_thread(old.kill9)

            async def taken_over():
                with contextlib.suppress(AssertionError):
                    return await asyncio.to_thread(stan, new.url, tmp_path, *command(old, *FENCED))

            await eventually(taken_over)
        assert await read(new, "orders") == await read_subscribed(old.url, "orders", 500)
        pending = await pending_of(new, "orders")
        assert {1, 2, 3} <= {*pending["c", "d", ""][0]}
