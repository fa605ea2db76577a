"""What a node asks of the cluster: silence, "ask again", refusals and gaps; and what is asked once for many."""

import asyncio
import time

import pytest
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.core.broker.broker import Broker
from stan.edge.nats.cluster_client import ClusterClient
from stan.edge.nats.gateway import Gateway
from stan.errors import Refused, Unanswered
from stan.monitor.dashboard.cached import Cached, Work

NOBODY = b"NATS/1.0 503\r\n\r\n"


class Port:
    """Answers each question with the next of *rounds*, a list of answers, frames or garbage."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)
        self.asked = []

    async def ask_all(self, subject, _payload, take, _timeout_s):
        self.asked.append(subject)
        for answer in self.rounds.pop(0) if self.rounds else []:
            header = NOBODY if answer is None else b""
            body = answer if isinstance(answer, bytes) else b"" if answer is None else answer.SerializeToString()
            if take(Frame(3, b"r", b"", header, body)):
                return
        await asyncio.sleep(0.005)


def cluster_client(*rounds, patience_s=2.0):
    port = Port(*rounds)
    return ClusterClient(port, "test-cluster", patience_s), port


BUSY = admin.ChangeResponse(error=b"stan: busy", retry=True)
DONE = admin.ChangeResponse(changed=3)
PURGE = admin.PurgeRequest(version=1, channel=b"a", keep=0)


async def test_question_is_asked_until_it_is_answered():
    asker, port = cluster_client([None], [], [BUSY], [b"\xff\xff"], [DONE], patience_s=10)
    answer = await asker.ask("admin.purge", PURGE, admin.ChangeResponse)
    assert answer.changed == 3
    assert port.asked == ["_STAN.x.test-cluster.admin.purge"] * 5


async def test_refusal_stands_and_patience_ends_with_what_was_said_last():
    asker, port = cluster_client([admin.ChangeResponse(error=b"stan: unknown channel")])
    with pytest.raises(Refused, match="unknown channel"):
        await asker.ask("admin.purge", PURGE, admin.ChangeResponse)
    assert len(port.asked) == 1
    asker, _ = cluster_client(*[[BUSY]] * 100)
    with pytest.raises(Unanswered, match=r"no answer within 2 s, last: stan: busy"):
        await asker.ask("admin.purge", PURGE, admin.ChangeResponse)


def leader(*groups, pool=3):
    return admin.ChannelsResponse(pool=pool, groups=groups)


async def test_all_leaders_are_waited_for_and_gaps_are_told():
    request = admin.ChannelsRequest(version=1)
    asker, _ = cluster_client([leader(1), leader(2, 3)])
    answers, missing = await asker.ask_leaders("admin.channels", request, admin.ChannelsResponse)
    assert (len(answers), missing) == (2, set())
    asker, port = cluster_client([leader(1)], [leader(1), leader(3)], [leader(2)], patience_s=10)
    answers, missing = await asker.ask_leaders("admin.channels", request, admin.ChannelsResponse)
    assert (missing, len(port.asked)) == (set(), 3)
    asker, _ = cluster_client(*[[leader(1, 3)]] * 100)
    answers, missing = await asker.ask_leaders("admin.channels", request, admin.ChannelsResponse)
    assert answers
    assert missing == {2}
    asker, _ = cluster_client()
    with pytest.raises(Unanswered):
        await asker.ask_leaders("admin.channels", request, admin.ChannelsResponse)


async def test_nodes_that_fail_are_left_out():
    wrong = admin.NodeStatus(node="b", error=b"stan: unknown version")
    asker, _ = cluster_client([admin.NodeStatus(node="a"), wrong, admin.NodeStatus(node="c")])
    answers = await asker.ask_each(
        "admin.nodes", admin.NodesRequest(), admin.NodeStatus, lambda answers: len(answers) == 3, 1.0
    )
    assert [answer.node for answer in answers] == ["a", "c"]


async def test_nodes_that_refuse_for_now_are_told_apart_from_those_that_say_nothing():
    busy = admin.NodeStatus(node="b", error=b"stan: busy", retry=True)
    asker, _ = cluster_client([admin.NodeStatus(node="a"), busy])
    refused = []
    answers = await asker.ask_each(
        "admin.nodes", admin.NodesRequest(), admin.NodeStatus, lambda answers: len(answers) == 2, 1.0, refused
    )
    assert [[answer.node for answer in some] for some in (answers, refused)] == [["a"], ["b"]]


async def test_gateway_hands_answers_to_whom_they_are_for():
    made = Gateway(Broker(Config(), lambda *_: None, b"_INBOX.n."), "_INBOX.x.>", lambda *_: None)
    made.read_buffer.wake = lambda: None
    written = []

    class Link:
        def write(self, data):
            written.append(data)
            return True

    made.connection = Link()
    found = {name: [] for name in "ab"}

    def take(name):
        return lambda frame: found[name].append(frame.payload) or len(found[name]) == 2

    both = [asyncio.create_task(made.own_requests.ask_all("s", b"?", take(name), 20)) for name in "ab"]
    await asyncio.sleep(0)
    replies = [data.split()[2] for data in written]
    assert len(set(replies)) == 2
    for text in (b"1", b"2", b"3"):
        for reply in replies:
            made.read_buffer.on_data(b"MSG %b 3 2\r\n%b%b\r\n" % (reply, reply[-1:], text))
    made.take_in()
    await asyncio.gather(*both)
    assert [len(answers) for answers in found.values()] == [2, 2]
    made.read_buffer.on_data(b"MSG %b 3 1\r\nx\r\n" % replies[0])  # too late, for nobody
    made.take_in()


async def test_question_before_there_is_a_connection_is_not_answered_and_harms_nobody():
    made = Gateway(Broker(Config(), lambda *_: None, b"_INBOX.n."), "_INBOX.x.>", lambda *_: None)
    assert not made.connection.up
    assert await made.own_requests.ask("s", b"?", 0.01) is None


# --- asked once -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 1

    def __call__(self):
        return self.now


async def test_answer_is_shared_and_kept_for_a_while():
    clock, asked = Clock(), []

    async def ask():
        asked.append(clock.now)
        await asyncio.sleep(0)
        return len(asked)

    cached = Cached(ask, 10_000_000_000, clock)
    assert await asyncio.gather(*(cached.get() for _ in range(5))) == [1] * 5
    assert await cached.get() == 1
    clock.now += 10_000_000_001
    assert await cached.get() == 2
    cached.outdated()
    assert await cached.get() == 3


async def test_older_answer_is_shown_while_a_new_one_takes_long_but_not_after_a_change(monkeypatch):
    monkeypatch.setattr(limits, "DASHBOARD_WAIT", 1)
    clock, go = Clock(), asyncio.Event()
    go.set()
    made = iter(range(10))

    async def ask():
        found = next(made)
        await go.wait()
        return found

    cached = Cached(ask, 1000, clock)
    assert await cached.get() == 0
    go.clear()
    clock.now += limits.DASHBOARD_AGE_MAX
    assert await cached.get() == 0
    cached.outdated()
    waiting = asyncio.create_task(cached.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    assert await waiting == 2
    assert await cached.get() == 2


async def test_failure_is_told_to_all_who_wait_and_the_next_one_asks_again():
    outcomes = [Unanswered("no"), "yes"]

    async def ask():
        await asyncio.sleep(0)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    cached = Cached(ask)
    results = await asyncio.gather(cached.get(), cached.get(), return_exceptions=True)
    assert [type(result) for result in results] == [Unanswered, Unanswered]
    assert await cached.get() == "yes"


async def test_answer_is_kept_for_its_own_work_and_not_for_what_else_the_loop_did_meanwhile():
    clock, asked = Clock(), []

    async def ask():
        asked.append(clock.now)
        if len(asked) == 1:
            await asyncio.sleep(0)  # others have their turn
        else:
            work(50_000_000)
        return len(asked)

    def work(nanos):
        until = time.thread_time_ns() + nanos
        while time.thread_time_ns() < until:
            pass

    cached = Cached(ask, 1000, clock)
    asyncio.get_running_loop().call_soon(work, 200_000_000)
    assert await cached.get() == 1
    clock.now += SECOND
    assert await cached.get() == 2
    clock.now += SECOND
    assert await cached.get() == 2  # 50 ms of its own are worth 5 s


async def test_answer_that_nobody_has_renewed_is_not_told_as_how_things_are():
    clock = Clock()

    async def ask():
        return "so it is"

    cached = Cached(ask, 1000, clock)
    assert cached.recent is None
    await cached.get()
    assert cached.recent == "so it is"
    clock.now += limits.DASHBOARD_AGE_MAX + limits.DASHBOARD_GRACE
    assert cached.recent is None
    cached = Cached(ask, 1000, clock)
    await cached.get()
    cached.outdated()
    assert cached.recent is None


async def test_work_hands_on_what_is_awaited_results_errors_and_cancellations():
    seen = []

    async def doing():
        async with asyncio.timeout(20):
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.001))
        with pytest.raises(ValueError, match="x"):
            await failing()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def failing():
        await asyncio.sleep(0)
        raise ValueError("x")

    async def awaiting():
        return await Work(doing())

    task = asyncio.create_task(awaiting())
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
