"""Conformance checklist H and I as far as they show on a running server: limits, idle channels, what is found at the start."""

import asyncio
import json

import pytest
import stan_client
from stan_protocol.proto import wire_pb2 as pb

from tests.conformance.wire import DISCOVER, FIRST, LAST_RECEIVED, NEW_ONLY, SEQUENCE, TIME_DELTA, speaking, unique
from tests.kit.server import StanServer


@pytest.mark.parametrize("store", ["FILE", "SQL", "MEMORY"])
async def test_139_140_36_messages_bytes_and_channels_are_limited(tmp_path, store):
    with StanServer(tmp_path, "-mm", "10", "-mb", "2KB", "-mc", "2", store=store) as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("c")
            await me.publish("foo", *[b"x"] * 20)
            await me.publish("bar", *[b"x" * 500] * 5)

            assert await (await me.subscribe("foo")).sequences(10) == list(range(11, 21))
            assert await (await me.subscribe("bar")).sequences(3) == [3, 4, 5]
            assert await me.publish("one.too.many", b"x") == ["too many channels"]
            assert (await me.subscribe("one.too.many")).error == "too many channels"
            assert await me.publish("foo", b"x") == [""]
        assert server.log().count('Reached limits for store "foo"') == 1


@pytest.mark.parametrize("store", ["FILE", "SQL", "MEMORY"])
async def test_141_old_messages_vanish_and_the_numbers_go_on(tmp_path, store):
    with StanServer(tmp_path, "-ma", "1s", store=store) as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("c")
            await me.publish("foo", b"1", b"2", b"3")

            async with asyncio.timeout(20), stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
                while (info := (await direct.channels.info(["foo"]))["foo"]).first <= info.last:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            subs = [
                await me.subscribe("foo", start=start, sequence=1, delta=10**10)
                for start in (NEW_ONLY, LAST_RECEIVED, TIME_DELTA, SEQUENCE, FIRST)
            ]
            await me.publish("foo", b"4")
            for sub in subs:
                assert await sub.sequences(1) == [4]
            if store == "MEMORY":
                return
            server.restart()
            await talk.back()
            await me.publish("foo", b"5")
            for sub in subs:
                while (message := await sub.next()).sequence != 5:
                    assert message.sequence == 4


@pytest.mark.parametrize("store", ["FILE", "SQL", "MEMORY"])
async def test_152_to_158_idle_channel_is_removed_and_begins_at_one(tmp_path, store):
    with StanServer(tmp_path, "-mi", "1s", store=store) as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("c")
            kept = await me.subscribe("kept")
            await me.publish("idle", b"1", b"2")
            offline = await me.subscribe("idle", durable="d")
            await offline.sequences(2)
            await offline.leave()
            await talk.until(lambda: 'Channel "idle" has been deleted' in server.log(), "its end")
            await me.publish("idle", b"new")
            again = await me.subscribe("idle", durable="d")
            message = await again.next()
            assert (message.sequence, message.data, message.redelivered) == (1, b"new", False)
            await me.publish("kept", b"1")
            assert await kept.sequences(1) == [1]
            if store == "FILE":
                server.restart()
                await talk.back()
                await me.publish("idle", b"2")
                await talk.until(lambda: any(m.sequence == 2 for m in again.came), "the second")
            await me.close()
            for channel in ("idle", "kept"):
                line = f'Channel "{channel}" has been deleted'
                wanted = 2 if channel == "idle" else 1
                await talk.until(lambda line=line, wanted=wanted: server.log().count(line) == wanted, line)


def refused(tmp_path, *flags):
    """Start a server that must not come up; returns its log."""
    server = StanServer(tmp_path, *flags)
    with pytest.raises(AssertionError) as why:
        server.start()
    return str(why.value)


async def test_161_162_data_of_another_cluster_is_refused_and_left_alone(tmp_path):
    with StanServer(tmp_path) as server:
        async with speaking(server.url) as talk:
            await (await talk.connect("c")).publish("foo", b"1")

    text = refused(tmp_path, "-cid", "other")

    assert 'Failed to start: cluster ID "other" does not match recovered value of "test-cluster"' in text
    with StanServer(tmp_path) as server:
        async with speaking(server.url) as talk:
            assert "Recovered 1 channel(s)" in server.log()
            me = await talk.connect("d")
            assert await (await me.subscribe("foo")).sequences(1) == [1]


@pytest.mark.parametrize("damage", ["missing", "format", "garbage"])
def test_163_164_differs_identity_card_that_is_wrong_stops_the_start(tmp_path, damage):
    """The original makes a new one when it is missing; ours would not know whose messages these are."""
    with StanServer(tmp_path):
        pass
    card = tmp_path / "store" / "stan.json"
    content = json.loads(card.read_text())
    if damage == "missing":
        card.unlink()
    else:
        card.write_text(json.dumps(content | {"format": 99}) if damage == "format" else "{")

    assert "Failed to start: " in refused(tmp_path)
    assert (tmp_path / "store" / "groups").is_dir()
    card.write_text(json.dumps(content))
    with StanServer(tmp_path):
        pass


async def test_212_clusters_with_different_ids_on_one_nats_do_not_meet(tmp_path):
    (tmp_path / "other").mkdir()
    with (
        StanServer(tmp_path, store="MEMORY") as server,
        StanServer(tmp_path / "other", "-cid", "other", store="MEMORY", nats_url=server.url),
    ):
        async with speaking(server.url) as talk:
            me = await talk.connect(unique("c"))
            request = pb.ConnectRequest(client_id=me.client_id.encode(), heartbeat_inbox=b"hb")
            response = await talk.ask(DISCOVER.replace("test-cluster", "other"), request, pb.ConnectResponse)
            assert response.pub_prefix == b"_STAN.pub.other"
            assert not response.error
