"""What operators ask, over NATS: of one server with and without pages, and of a cluster whose leaders move and die."""

import asyncio
import contextlib

import pytest
import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.proto import admin_pb2 as pb

from tests.kit.fake_broker import eventually
from tests.kit.ports import free_port
from tests.kit.server import StanServer

PATIENCE_S = 60.0


@contextlib.asynccontextmanager
async def heard(admin, kind="*"):
    """Collects events meanwhile."""
    events = []

    async def listen():
        async for event in admin.events(kind):
            events.append(event)  # noqa: PERF401 - they are looked at meanwhile

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    await admin.clients()  # what was asked for after the subscription was answered: it is in force
    try:
        yield events
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


# --- one server ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    port = free_port()
    with StanServer(tmp_path, "-m", str(port), "-mc", "50") as server:
        server.pages = f"http://127.0.0.1:{port}"
        yield server


@pytest.fixture
async def direct(server):
    async with Direct(server.url, cluster_id=server.cluster_id) as direct:
        yield direct


async def test_server_alone_tells_everything(server, direct) -> None:
    admin = direct.admin
    async with heard(admin) as events:
        client = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
        await client.publish_many("foo", [b"x"] * 10)
        await client.publish("bar", b"x")
        subscription = await client.subscribe(
            "foo",
            lambda _message: None,
            durable="dur",
            start=stan_client.everything(),
            max_in_flight=4,
            manual_acks=True,
        )

        async def sent():
            (cursor,) = await admin.subscriptions("foo")
            return cursor if cursor.pending == 4 else None

        cursor = await eventually(sent)
        assert (cursor.durable_name, cursor.client_id, cursor.waiting, cursor.acked_up_to) == ("dur", "me", 6, 0)
        assert cursor.members[0].stalled
        assert [channel.name for channel in await admin.channels()] == ["bar", "foo"]
        found = await admin.channel("foo")
        assert (found.messages, found.subscriptions, found.limits.max_msgs) == (10, 1, 1_000_000)
        assert [one.client_id for one in await admin.clients()] == ["me"]
        await subscription.close()
        (cursor,) = await admin.subscriptions(durable_only=True)
        assert (cursor.owed, list(cursor.owed_runs), len(cursor.members)) == (4, [(1, 4)], 0)
        await client.close()
        assert await admin.clients() == []

        async def all_heard():
            return "client_closed" in [event.kind for event in events]

        await eventually(all_heard)
        assert [event.kind for event in events] == [
            *("client_connected", "channel_created", "channel_created", "subscribed", "unsubscribed", "client_closed")
        ]


async def test_server_alone_tells_of_itself(server, direct) -> None:
    found = await direct.admin.nodes()
    (node,), missing = found
    assert (node.node, missing, list(node.nodes), list(node.not_ready)) == ("", [], [], [])
    assert (node.monitor, node.store, node.sync, node.clients) == (server.pages, "file", "always", 0)
    assert 0 < node.disk_free <= node.disk_total
    assert node.rss > 1_000_000
    assert node.started < node.now
    assert {(group.group, group.role, group.trouble) for group in node.groups} >= {(0, "leader", "")}
    options = {option.name: option for option in (await direct.admin.options())[""]}
    assert (options["max_channels"].value, options["max_channels"].source) == ("50", "flag")


async def test_server_alone_hands_nothing_over(direct) -> None:
    admin = direct.admin
    for change in (admin.step_down(0), admin.add_node("n2"), admin.remove_node("n2")):
        with pytest.raises(stan_client.ServerError, match="alone"):
            await change


async def test_evicted_client_loses_its_session(server, direct) -> None:
    lost = asyncio.Event()
    options = {"servers": server.url, "resubscribe": False, "ping_interval_s": 1}
    client = await stan_client.connect(
        client_id="me", cluster_id=server.cluster_id, connection_lost=lambda _error: lost.set(), **options
    )
    assert (await direct.admin.evict_client("me")).changed == 1
    await asyncio.wait_for(lost.wait(), PATIENCE_S)
    assert await direct.admin.clients() == []
    await client.close()


async def test_unknown_versions_and_garbage_are_refused(direct) -> None:
    requester = direct.admin._requester
    for kind, request, answer in (
        ("nodes", pb.NodesRequest, pb.NodeStatus),
        ("options", pb.OptionsRequest, pb.OptionsResponse),
        ("step_down", pb.StepDownRequest, pb.ChangeResponse),
        ("clients", pb.ClientsRequest, pb.ClientsResponse),
    ):
        with pytest.raises(stan_client.ServerError, match="version"):
            await requester.ask(f"admin.{kind}", request(version=77), answer)


# --- a cluster ----------------------------------------------------------------------------------------------------------


async def test_cluster_tells_hands_over_and_misses_who_is_dead(cluster) -> None:
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        admin = direct.admin
        for number in range(12):
            await direct.batches.publish(
                f"c{number}", b"\x03\0\0\0\x22\x01x", 1, producer="test", version=1, ids=bytes([number] * 16)
            )
        names = [f"c{number}" for number in range(12)]
        assert [channel.name for channel in await admin.channels(page=2)] == sorted(names)

        async def all_lead():
            """All groups have one leader, whom all nodes know."""
            nodes = (await admin.nodes()).answers
            leaders = [{group.leader for node in nodes for group in node.groups if group.group == n} for n in range(9)]
            return nodes if len(nodes) == 3 and all(len(of) == 1 and "" not in of for of in leaders) else None

        nodes = await eventually(all_lead)
        assert [node.node for node in nodes] == cluster.names
        leading = {group.group: node.node for node in nodes for group in node.groups if group.role == "leader"}
        assert sorted(leading) == list(range(9))
        (status,) = [group for group in nodes[0].groups if group.group == 0]
        assert list(status.voters) == cluster.names

        async with heard(admin, "leader") as events:

            async def moved():
                """Leaderships also move by themselves: hand over until one is heard to begin where it was asked to."""
                nodes = (await admin.nodes()).answers
                leader = next(
                    (node.node for node in nodes for of in node.groups if (of.group, of.role) == (1, "leader")), ""
                )
                to = next(name for name in cluster.names if name != leader)
                await admin.step_down(1, to)
                return any((event.group, event.node) == (1, to) for event in events)

            await eventually(moved)
        with pytest.raises(stan_client.ServerError, match="no vote"):
            await admin.step_down(1, "nobody")
        with pytest.raises(stan_client.ServerError, match="no group 99"):
            await admin.step_down(99)

        dead = cluster.names[2]
        await asyncio.to_thread(cluster.kill9, dead)
        found = await eventually(lambda: _missing(admin, [dead]))
        assert [node.node for node in found.answers] == cluster.names[:2]
        assert [channel.name for channel in await admin.channels()] == sorted(names)

        async def tell():
            return sorted(await admin.options()) == cluster.names[:2]

        await eventually(tell)


async def _missing(admin, names):
    found = await admin.nodes(patience_s=2.0)
    return found if found.missing == names and len(found.answers) == 2 else None
