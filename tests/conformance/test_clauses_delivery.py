"""Conformance checklist E, F and G: durables, queue groups, redelivery, restarts (STAN-SPEC 5, 6, 16 E to G), byte by byte."""

import asyncio

import pytest
from stan_protocol.proto import wire_pb2 as pb

from tests.conformance.wire import FIRST, NEW_ONLY, speaking, unique
from tests.kit.server import StanServer


@pytest.fixture(scope="module", params=["FILE", "SQL", "MEMORY"])
def server(request, tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0", store=request.param) as server:
        yield server


def flags(messages):
    return [(m.sequence, m.redelivered, m.redelivery_count) for m in messages]


# --- E: durables ----------------------------------------------------------------------------------------------------------


async def test_76_81_durable_online_is_refused_and_a_resumed_one_has_a_new_ack_inbox(talk, me):
    sub = await me.subscribe(unique("ch"), durable="d")
    assert (await me.subscribe(sub.channel, durable="d")).error == "stan: duplicate durable registration"
    await me.publish(sub.channel, b"1", b"2")
    assert flags(await sub.many(2)) == [(1, False, 0), (2, False, 0)]
    await sub.ack(1)
    await sub.leave()
    again = await me.subscribe(sub.channel, durable="d")

    assert again.response.ack_inbox != sub.response.ack_inbox
    assert flags(await again.many(1)) == [(2, True, 1)]
    await again.ack(2)
    await again.leave()
    last = await me.subscribe(sub.channel, durable="d")
    await me.publish(sub.channel, b"3")
    assert flags(await last.many(1)) == [(3, False, 0)]


async def test_82_83_unacked_messages_come_before_new_ones_and_all_arrive(me):
    channel = unique("ch")
    sub = await me.subscribe(channel, durable="d", in_flight=50)
    await me.publish(channel, *[b"x"] * 50)
    await sub.sequences(50)
    await sub.ack(*range(1, 11))
    await sub.leave()
    running = True

    async def publish():
        while running:
            await me.publish(channel, b"new")

    publisher = asyncio.ensure_future(publish())
    again = await me.subscribe(channel, durable="d", in_flight=100)
    got = await again.many(60)
    running = False
    await publisher

    assert [m.sequence for m in got] == list(range(11, 71))
    assert [m.redelivered for m in got] == [True] * 40 + [False] * 20


async def test_84_ack_and_close_in_one_write_leave_nothing_pending(talk, me):
    sub = await me.subscribe(unique("ch"), durable="d")
    await me.publish(sub.channel, b"1", b"2")
    await sub.sequences(2)
    await asyncio.gather(sub.ack(1, 2), sub.leave())
    again = await me.subscribe(sub.channel, durable="d")
    await me.publish(sub.channel, b"3")

    assert flags(await again.many(1)) == [(3, False, 0)]


async def test_88_replace_durable_gives_the_messages_to_the_second_handle_only(tmp_path):
    with StanServer(tmp_path, "-replace_durable", store="MEMORY") as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("c")
            first = await me.subscribe("foo", durable="d")
            second = await me.subscribe("foo", durable="d")
            await me.publish("foo", b"1")

            assert second.error == ""
            assert await second.sequences(1) == [1]
            assert first.rest() == []
            assert await first.leave() == "stan: invalid subscription"
            assert await second.leave() == ""


async def test_91_ack_wait_of_a_resumed_durable_runs(me):
    sub = await me.subscribe(unique("ch"), durable="d", in_flight=1, wait=30)
    await me.publish(sub.channel, b"1", b"2")
    await sub.sequences(1)
    await sub.leave()
    again = await me.subscribe(sub.channel, durable="d", in_flight=1, wait=1)

    assert flags(await again.many(2)) == [(1, True, 1), (1, True, 2)]
    await again.ack(1)
    assert flags(await again.many(1)) == [(2, False, 0)]


# --- F: queue groups ------------------------------------------------------------------------------------------------------


async def test_93_94_103_each_message_goes_to_one_member_of_each_group(talk, me):
    channel, count = unique("ch"), 2000
    members = [await me.subscribe(channel, queue="q", in_flight=10, acking=True) for _ in range(4)]
    durable = await me.subscribe(channel, queue="q", durable="d", in_flight=10, acking=True)
    await asyncio.gather(*(me.publish(channel, b"x") for _ in range(count)))
    await talk.until(lambda: sum(len(sub.came) for sub in members) >= count and len(durable.came) >= count, "all", 30)

    assert sorted(m.sequence for sub in members for m in sub.came) == list(range(1, count + 1))
    assert [m.sequence for m in durable.came] == list(range(1, count + 1))
    assert min(len(sub.came) for sub in members) > 0


@pytest.mark.parametrize("unsubscribe", [True, False])
async def test_96_group_without_durable_name_starts_anew_after_its_last_member(me, unsubscribe):
    channel = unique("ch")
    await me.publish(channel, b"1", b"2")
    sub = await me.subscribe(channel, queue="q")
    await sub.sequences(2)
    await sub.leave(unsubscribe=unsubscribe)

    assert await (await me.subscribe(channel, queue="q", start=FIRST)).sequences(2) == [1, 2]


async def test_97_98_durable_group_outlives_a_close_and_not_an_unsubscribe(talk, me):
    channel = unique("ch")
    other = await talk.connect(unique("c"))
    sub = await other.subscribe(channel, queue="q", durable="d")
    await me.publish(channel, b"1", b"2")
    await sub.sequences(2)
    await sub.ack(1)
    await other.close()
    await me.publish(channel, b"3")
    again = await me.subscribe(channel, queue="q", durable="d", start=NEW_ONLY)
    assert flags(await again.many(2)) == [(2, True, 1), (3, False, 0)]

    await again.leave(unsubscribe=True)
    anew = await me.subscribe(channel, queue="q", durable="d", start=FIRST)
    assert flags(await anew.many(3)) == [(1, False, 0), (2, False, 0), (3, False, 0)]


async def test_99_100_member_that_leaves_hands_its_messages_over_at_once(me):
    channel = unique("ch")
    first = await me.subscribe(channel, queue="q", wait=60)
    await me.publish(channel, b"1")
    assert await first.sequences(1) == [1]
    second = await me.subscribe(channel, queue="q", wait=60)
    await first.leave()

    assert flags(await second.many(1)) == [(1, True, 1)]


async def test_101_102_stalled_members_are_passed_over_and_an_ack_or_a_new_member_goes_on(me):
    channel = unique("ch")
    slow = await me.subscribe(channel, queue="q", in_flight=1)
    fast = await me.subscribe(channel, queue="q", in_flight=5)
    await me.publish(channel, *[b"x"] * 8)
    assert len(await slow.many(1)) == 1
    assert len(await fast.many(5)) == 5
    assert slow.rest() + fast.rest() == []
    await slow.ack(slow.came[0].sequence)
    assert await slow.sequences(1) == [7]
    third = await me.subscribe(channel, queue="q", in_flight=5)

    assert await third.sequences(1) == [8]


async def test_112_113_117_count_is_of_the_group_and_a_late_ack_of_the_former_member_counts(talk, me):
    channel = unique("ch")
    one = await me.subscribe(channel, queue="q", wait=1, in_flight=1)
    await me.publish(channel, b"x")
    await one.next()
    two = await me.subscribe(channel, queue="q", wait=1, in_flight=1)
    await talk.until(lambda: len(one.came) + len(two.came) == 3, "two redeliveries")
    counts = sorted(m.redelivery_count for m in one.came + two.came)
    for sub in (one, two):
        await sub.ack(1)
    await me.publish(channel, b"y", b"z")
    await talk.until(lambda: {2, 3} <= {m.sequence for m in one.came + two.came}, "the new ones")

    assert counts == [0, 1, 2]
    assert all(m.redelivery_count == 0 for m in one.came + two.came if m.sequence > 1)


# --- G: redelivery ------------------------------------------------------------------------------------------------------------


async def test_118_119_121_124_unacked_message_comes_again_the_same_and_counted_until_the_ack(talk, me):
    channel = unique("ch")
    sub = await me.subscribe(channel, wait=1)
    good = await me.subscribe(channel, wait=1)
    await me.publish(channel, b"payload")
    await good.next()
    await good.ack(1)
    first, second, third = await sub.many(3)
    await sub.ack(1)
    await me.publish(channel, b"2")
    assert flags(await sub.many(2)) == [(2, False, 0), (2, True, 1)]  # a whole ack wait later

    assert [(m.redelivered, m.redelivery_count) for m in (first, second, third)] == [(False, 0), (True, 1), (True, 2)]
    assert {(m.sequence, m.data, m.timestamp) for m in (first, second, third)} == {(1, b"payload", first.timestamp)}
    assert [m.sequence for m in good.came].count(1) == 1


async def test_122_123_window_of_one_is_redelivered_while_stalled_and_opened_by_the_ack(me):
    sub = await me.subscribe(unique("ch"), in_flight=1, wait=1)
    await me.publish(sub.channel, b"1", b"2")
    assert flags(await sub.many(2)) == [(1, False, 0), (1, True, 1)]
    await sub.ack(1)

    assert flags(await sub.many(1)) == [(2, False, 0)]


async def test_133_ack_that_belongs_to_nothing_changes_nothing(talk, me):
    sub = await me.subscribe(unique("ch"), wait=1)
    await me.publish(sub.channel, b"1")
    await sub.next()
    inbox = sub.response.ack_inbox
    for subject in (inbox, inbox + b"9", inbox.rpartition(b".")[0] + b".x", inbox + b".1.2"):
        for payload in (b"dummy", b"", pb.Ack(subject=b"never", sequence=99).SerializeToString()):
            await talk.nats.publish(subject.decode(), payload)

    assert flags(await sub.many(1)) == [(1, True, 1)]
    await sub.ack(1)
    assert await me.ping() == ""


async def test_ack_names_its_message_by_inbox_and_sequence_only(me):
    """The original looks the channel of the ack up as well; ours is told by the inbox, and a wrong name changes nothing."""
    sub = await me.subscribe(unique("ch"), in_flight=1)
    await me.publish(sub.channel, b"1", b"2")
    await sub.next()
    payload = pb.Ack(subject=b"another", sequence=1).SerializeToString()
    await me.wire.nats.publish(sub.response.ack_inbox.decode(), payload)

    assert await sub.sequences(1) == [2]


# --- restarts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["terminate", "kill9"])
async def test_85_to_87_110_125_to_128_everything_goes_on_after_a_restart(tmp_path, ending):
    with StanServer(tmp_path) as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("me")
            unacked = await me.subscribe("foo", wait=1, in_flight=5)
            acked = await me.subscribe("foo", wait=1)
            stalled = await me.subscribe("foo", wait=30, in_flight=2)
            online = await me.subscribe("foo", durable="on")
            closed = await me.subscribe("foo", durable="off")
            shadow = await me.subscribe("foo", queue="q", durable="dq")
            await me.publish("foo", b"1", b"2")
            for sub in (unacked, acked, stalled, online, closed, shadow):
                assert flags(await sub.many(2)) == [(1, False, 0), (2, False, 0)]
            assert flags(await unacked.many(2)) == [(1, True, 1), (2, True, 1)]
            for sub in (acked, online):
                await sub.ack(1, 2)
            await shadow.ack(1)
            await closed.leave()
            await shadow.leave()
            acked.rest()
            await me.publish("other", b"flush")  # what was acked before it is written before it

            getattr(server, ending)()
            server.start()
            await talk.back()
            for sub in (unacked, acked, stalled, online, closed, shadow):
                sub.rest()
            assert [(m.sequence, m.redelivered) for m in await unacked.many(2)] == [(1, True), (2, True)]
            await me.publish("foo", b"3")
            assert flags(await online.many(1)) == [(3, False, 0)]
            fresh = await me.subscribe("foo")
            assert flags(await fresh.many(3)) == [(1, False, 0), (2, False, 0), (3, False, 0)]
            assert stalled.rest() == closed.rest() == shadow.rest() == []
            await stalled.ack(1, 2)
            assert flags(await stalled.many(1)) == [(3, False, 0)]
            assert (await me.subscribe("foo", durable="on")).error == "stan: duplicate durable registration"
            resumed = await me.subscribe("foo", durable="off", start=NEW_ONLY)
            assert flags(await resumed.many(3)) == [(1, True, 1), (2, True, 1), (3, False, 0)]
            joined = await me.subscribe("foo", queue="q", durable="dq")
            assert flags(await joined.many(2)) == [(2, True, 1), (3, False, 0)]
            assert {m.sequence for m in acked.came[acked.taken :]} == {3}


async def test_107_members_of_a_durable_group_before_and_after_a_restart(tmp_path):
    with StanServer(tmp_path) as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("me")
            one = await me.subscribe("foo", queue="q", durable="d")
            two = await me.subscribe("foo", queue="q", durable="d")
            await me.publish("foo", b"1", b"2")
            await talk.until(lambda: len(one.came) + len(two.came) == 2, "both")
            for sub in (one, two):
                for message in sub.came:
                    await sub.ack(message.sequence)
            await one.leave()
            await me.publish("foo", b"3")
            await talk.until(lambda: two.came[-1].sequence == 3, "the third")
            await two.leave()

            server.restart()
            await talk.back()
            joined = await me.subscribe("foo", queue="q", durable="d")
            await me.publish("foo", b"4")
            assert flags(await joined.many(2)) == [(3, True, 1), (4, False, 0)]


async def test_37_151_case_and_limits_after_a_restart(tmp_path):
    with StanServer(tmp_path, "-mc", "1", "-msu", "1") as server:
        async with speaking(server.url) as talk:
            me = await talk.connect("me")
            assert await me.publish("Foo", b"x") == [""]
            await me.subscribe("Foo", durable="d")
            for _ in range(2):
                (error,) = await me.publish("foo", b"x")
                assert error == (await me.subscribe("foo")).error
                assert (
                    error == 'rejecting channel "foo" because channel "Foo" alreay exists (different cases not allowed)'
                )
                assert await me.publish("bar", b"x") == ["too many channels"]
                assert (await me.subscribe("Foo")).error == "too many subscriptions per channel"
                assert await me.publish("Foo", b"x") == [""]
                server.restart()
                await talk.back()
