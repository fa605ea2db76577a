"""What operators change about durables, with real servers and published clients; `kill -9` of servers and leaders in between."""

import asyncio
import time

import nats.errors
from stan_protocol.proto import admin_pb2 as admin

from tests.conformance.clients import payloads
from tests.conformance.wire import speaking, unique

PATIENCE_S = 60.0


async def change(talk, kind, channel, told=None, **which):
    """Ask until it is answered: there may be no leader for a moment."""
    named = {name: value.encode() for name, value in which.items()}
    request = getattr(admin, f"{kind}Request")(
        version=1, which=admin.Which(channel=channel.encode(), **named), **(told or {})
    )
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer = await talk.ask(
                f"_STAN.x.test-cluster.admin.{kind.lower()}", request, admin.ChangeResponse, seconds=2
            )
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
            answer = admin.ChangeResponse(retry=True)
        if not answer.retry:
            return answer
        assert time.monotonic() < end, "no leader"
        await asyncio.sleep(0.05)


async def changed(talk, kind, channel, told=None, **which):
    answer = await change(talk, kind, channel, told, **which)
    assert not answer.error, answer.error


def test_durable_of_a_published_client_moved_back_in_time_gets_those_messages_again(connect, name, shared_server):
    client = connect(f"{name}-me")
    client.subscribe("d", name, durable="dur", start="first")
    client.publish_and_wait(name, b"old")
    since = time.time_ns()
    client.publish_and_wait(name, b"new1", b"new2")
    first = client.messages("d", 3)

    async def move():
        async with speaking(shared_server.url) as talk:
            await changed(talk, "Move", name, {"time": since}, durable_name="dur", client_id=f"{name}-me")

    asyncio.run(move())

    again = client.messages("d", 5)[3:]
    assert not any(message["redelivered"] for message in first)
    assert (payloads(again), [message["redelivered"] for message in again]) == ([b"new1", b"new2"], [True, True])
    client.publish_and_wait(name, b"newer")
    assert not client.messages("d", 6)[5]["redelivered"]


async def test_paused_durable_gets_nothing_until_it_is_resumed_also_after_a_kill(stan_server):
    async with speaking(stan_server.url) as talk:
        me = await talk.connect(unique("c"))
        paused, other = await me.subscribe("foo", durable="d"), await me.subscribe("foo")
        which = {"durable_name": "d", "client_id": me.client_id}
        await changed(talk, "Pause", "foo", **which)
        assert await me.publish("foo", b"1") == [""]
        await other.next()
        await asyncio.to_thread(stan_server.kill9)
        await asyncio.to_thread(stan_server.start)
        await talk.back()
        assert await me.publish("foo", b"2") == [""]
        await talk.until(lambda: 2 in [message.sequence for message in other.came], "the second message")

        assert paused.came == []
        await changed(talk, "Resume", "foo", **which)
        assert await paused.sequences(2) == [1, 2]
        refused = await change(talk, "Pause", "foo", durable_name="no", client_id=me.client_id)
        assert refused.error.decode().startswith('stan: there is no durable "no"')


async def test_changes_of_durables_hold_when_the_leader_is_killed(cluster, name):
    """One was moved back, has to pass over a message, and goes on; the other one is paused."""
    async with speaking(cluster.url) as talk:
        me = await talk.connect(unique("c"))
        moved = await me.subscribe(name, durable="moved", in_flight=1, wait=2)
        paused, other = await me.subscribe(name, durable="paused", wait=2), await me.subscribe(name, acking=True)
        assert await me.publish(name, *[b"x"] * 6) == [""] * 6
        for sequence in range(1, 7):
            while (await moved.next()).sequence != sequence:  # one before, whose ack was late
                pass
            await moved.ack(sequence)
        await talk.until(lambda: {message.sequence for message in paused.came} == set(range(1, 7)), "all", PATIENCE_S)
        for sequence in range(1, 7):
            await paused.ack(sequence)
        mine = {"client_id": me.client_id}
        await changed(talk, "Pause", name, durable_name="paused", **mine)
        await changed(talk, "Move", name, {"sequence": 3}, durable_name="moved", **mine)
        await changed(talk, "Skip", name, {"runs": [5, 5]}, durable_name="moved", **mine)
        before = len(paused.came)

        await asyncio.to_thread(cluster.kill9, await asyncio.to_thread(cluster.leader_of, name))
        who = {"client_id": me.client_id.encode(), "conn_id": me.conn_id}
        assert not (await talk.publish(name, guid=b"seventh", data=b"7", **who)).error  # another guid: no repeat
        again = []
        while 7 not in again:
            message = await moved.next(PATIENCE_S)
            assert message.redelivered or message.sequence == 7
            again.append(message.sequence)
            await moved.ack(message.sequence)
        await talk.until(lambda: 7 in [message.sequence for message in other.came], "the newest", PATIENCE_S)

        assert set(again) == {3, 4, 6, 7}, "everything from where it was moved to, but for what it skips"
        assert [message.sequence for message in paused.came[before:]] == []
        await changed(talk, "Resume", name, durable_name="paused", **mine)
        await talk.until(lambda: 7 in [message.sequence for message in paused.came], "what it was owed", PATIENCE_S)
