"""Requests without registration, beside servers in a few lines: what is asked again, what is not, and what is put together."""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest
import stan_client
from stan_client.reading.connected import Connected
from stan_client.requests import requester
from stan_client.requests.requester import together
from stan_protocol import refusals
from stan_protocol.compression import rows_of
from stan_protocol.frames import Frame
from stan_protocol.limits import COMMIT_TXNS_MAX
from stan_protocol.proto import extension_pb2 as pb

from stan.limits import REQUEST_PARTS_MAX

NOBODY = Frame(1, b"in", b"", b"NATS/1.0 503\r\n\r\n", b"")
SILENCE = None
BUSY = {"error": refusals.BUSY.encode(), "retry": True}
REFUSED = {"error": b"stan: no"}
REQUESTS = {
    "info": (pb.InfoRequest, pb.InfoResponse),
    "seq_at_time": (pb.SeqAtTimeRequest, pb.SeqAtTimeResponse),
    "batch": (pb.BatchRequest, pb.BatchResponse),
    "stage": (pb.StageRequest, pb.StageResponse),
    "commit": (pb.CommitRequest, pb.CommitResponse),
    "abort": (pb.AbortRequest, pb.AbortResponse),
    "finish": (pb.FinishRequest, pb.FinishResponse),
    "last_committed": (pb.LastCommittedRequest, pb.LastCommittedResponse),
    "cursor_set": (pb.CursorSetRequest, pb.CursorSetResponse),
    "cursors": (pb.CursorsRequest, pb.CursorsResponse),
}


class Servers:
    """An inbox: each request takes the next item of its kind's script, or what `answer` says: a dict of one answer's fields, a
    list of them for one answer of each leader, NOBODY, or SILENCE."""

    def __init__(self):
        self.link = SimpleNamespace(connected=True, max_payload=100_000)
        self.script = {kind: [] for kind in REQUESTS}
        self.asked = []
        self.silences = []
        self.answer = lambda _kind, _request: {}

    async def ready(self):
        return self

    async def ask(self, subject, payload, timeout_s):
        got = []
        await self.ask_all(subject, payload, lambda frame: got.append(frame) or True, timeout_s)
        return got[0] if got else None

    async def ask_all(self, subject, payload, take, timeout_s):
        kind = subject.decode().removeprefix("_STAN.x.c.")
        kind_of_request, kind_of_answer = REQUESTS[kind]
        request = kind_of_request.FromString(payload)
        self.asked.append((kind, request))
        self.silences.append(timeout_s)
        await asyncio.sleep(0)
        script = self.script[kind]
        found = script.pop(0) if script else self.answer(kind, request)
        if found is NOBODY:
            take(NOBODY)
        elif found is not SILENCE:
            for fields in found if isinstance(found, list) else [found]:
                if take(Frame(1, b"in", b"", b"", kind_of_answer(**fields).SerializeToString())):
                    return

    def kinds(self):
        return [kind for kind, _ in self.asked]


def client_of(servers, patience_s=30.0):
    return Connected(servers.ready, "c", patience_s, int)


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setattr(requester, "RETRY_FIRST_S", 0.0001)
    return Servers()


@pytest.fixture
def client(servers):
    return client_of(servers)


CALLS = {
    "seq_at_time": lambda client: client.channels.sequence_at("foo", 1),
    "batch": lambda client: client.batches.publish("foo", b"rows", 1, producer="p", ids=b"i" * 16),
    "stage": lambda client: client.transactions.stage("app", 1, "txn", 0, "foo", b"rows", 1),
    "commit": lambda client: client.transactions.commit("app", 1, {"foo": [("txn", 1)]}),
    "finish": lambda client: client.transactions.commit("app", 1, {}),
    "abort": lambda client: client.transactions.abort({"foo": ["txn"]}),
    "last_committed": lambda client: client.transactions.last_committed("app"),
    "cursor_set": lambda client: client.bookmarks.set("name", {"foo": 1}),
    "info": lambda client: client.channels.info(["foo"]),
    "cursors": lambda client: client.bookmarks.all(),
}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("first", [BUSY, NOBODY, SILENCE], ids=["busy", "nobody", "late"])
async def test_what_may_pass_is_asked_again_as_it_was(servers, client, kind, first) -> None:
    servers.script[kind] = [first] * 3
    servers.answer = lambda *_: {"pool": 1, "groups": [1]} if kind in ("info", "cursors") else {}
    await CALLS[kind](client)
    repeated = [request for asked, request in servers.asked if asked == kind]
    assert len(repeated) == 4
    assert all(request == repeated[0] for request in repeated)


@pytest.mark.parametrize("kind", CALLS)
async def test_what_does_not_pass_is_told_at_once(servers, client, kind) -> None:
    servers.script[kind] = [REFUSED]
    with pytest.raises(stan_client.ServerError, match="stan: no"):
        await CALLS[kind](client)
    assert servers.kinds().count(kind) == 1


@pytest.mark.parametrize("kind", CALLS)
async def test_patience_ends_with_what_was_said_last(servers, kind) -> None:
    servers.answer = lambda *_: BUSY
    with pytest.raises(stan_client.RequestTimeoutError, match=f"{kind} request timeout .* busy"):
        await CALLS[kind](client_of(servers, 0.05))
    servers.answer = lambda *_: NOBODY
    with pytest.raises(stan_client.RequestTimeoutError, match="nobody listens"):
        await CALLS[kind](client_of(servers, 0.05))


@pytest.mark.parametrize("kind", CALLS)
async def test_a_cluster_that_nobody_serves_is_an_error_long_before_the_patience_ends(servers, kind) -> None:
    servers.answer = lambda *_: NOBODY
    client = client_of(servers, 3600)
    client._requester.unserved_s = 0.05
    with pytest.raises(stan_client.NobodyListensError, match=f"no server listens to {kind} requests"):
        await CALLS[kind](client)


async def test_a_silence_between_is_no_sign_that_nobody_serves(servers) -> None:
    servers.script["stage"] = [NOBODY, SILENCE, NOBODY, BUSY, NOBODY]
    client = client_of(servers, 3600)
    client._requester.unserved_s = 0.001
    await CALLS["stage"](client)


async def test_silence_is_borne_longer_and_longer(servers, client) -> None:
    servers.script["stage"] = [SILENCE] * 5
    await CALLS["stage"](client)
    assert servers.silences == [2, 4, 8, 10, 10, 10]


async def test_nothing_is_asked_while_there_is_no_connection(servers) -> None:
    servers.link.connected = False
    with pytest.raises(stan_client.RequestTimeoutError):
        await CALLS["stage"](client_of(servers, 0.05))
    assert servers.asked == []


async def test_request_that_nats_would_not_take_is_not_sent(servers, client) -> None:
    with pytest.raises(stan_client.MessageTooLargeError):
        await client.batches.publish("foo", b"x" * 100_001, 1, compress=False)
    with pytest.raises(stan_client.MessageTooLargeError):
        await client.batches.publish("foo", Random(1).randbytes(100_001), 1)
    assert servers.asked == []


async def test_malformed_answers_are_told(servers, client) -> None:
    async def ask_all(_subject, _payload, take, _timeout_s):
        take(Frame(1, b"in", b"", b"", b"\xff"))

    servers.ask_all = ask_all
    for kind in ("stage", "info"):
        with pytest.raises(stan_client.ServerError, match="malformed"):
            await CALLS[kind](client)


# --- a batch without ids --------------------------------------------------------------------------------------------------


async def test_batch_without_ids_is_not_repeated_after_a_silence(servers, client) -> None:
    servers.script["batch"] = [BUSY, NOBODY, SILENCE]
    with pytest.raises(stan_client.OutcomeUnknownError):
        await client.batches.publish("foo", b"rows", 1)
    assert len(servers.asked) == 3
    assert servers.silences == [30.0] * 3


async def test_batch_without_ids_that_was_never_taken_has_a_known_outcome(servers) -> None:
    servers.answer = lambda *_: BUSY
    with pytest.raises(stan_client.RequestTimeoutError) as caught:
        await client_of(servers, 0.05).batches.publish("foo", b"rows", 1)
    assert not isinstance(caught.value, stan_client.OutcomeUnknownError)


async def test_batch_tells_where_it_is(servers, client) -> None:
    servers.script["batch"] = [{"first_sequence": 5, "last_sequence": 6, "duplicates": 1}]
    ack = await client.batches.publish("foo", b"rows", 3, producer="p", version=7, ids=b"i" * 48)
    assert ack == stan_client.BatchAck(5, 6, 1)
    ((_, request),) = servers.asked
    assert request == pb.BatchRequest(channel=b"foo", count=3, producer=b"p", version=7, ids=b"i" * 48, rows=b"rows")


async def test_rows_travel_compressed_if_they_may(servers, client) -> None:
    rows = b"a row like others" * 100
    await client.batches.publish("foo", rows, 3)
    await client.batches.publish("foo", rows, 3, compress=False)
    told = [
        (rows_of(asked.compressed_rows, 1 << 20) if asked.compressed_rows else b"", asked.rows)
        for _, asked in servers.asked
    ]
    assert told == [(rows, b""), (b"", rows)]


# --- staged rows ----------------------------------------------------------------------------------------------------------


def rows_for(*channels):
    return [stan_client.StagedRows(channel, 0, b"rows", 1) for channel in channels]


async def test_rows_of_channels_are_staged_by_group_which_is_remembered(servers, client) -> None:
    groups = {b"a": 1, b"b": 2, b"c": 2, b"d": 1}

    def answer(_, request):
        group = groups[request.channel]
        others = [each.channel for each in request.more if groups[each.channel] != group]
        return {
            "group": group,
            "elsewhere": [pb.ElsewhereChannel(channel=each, group=groups[each]) for each in others],
        }

    servers.answer = answer
    for _ in range(2):
        await client.transactions.stage_together("app", 4, "t", rows_for("a", "b", "c", "d"))
    asked = [[one.channel, *(each.channel for each in one.more)] for _, one in servers.asked]
    assert asked == [[b"a", b"b", b"c", b"d"], [b"b", b"c"], [b"a", b"d"], [b"b", b"c"]]
    groups[b"d"] = 2  # it has moved
    await client.transactions.stage_together("app", 5, "t", rows_for("a", "d"))
    assert [one.channel for _, one in servers.asked[4:]] == [b"a", b"d"]
    assert servers.asked[-1][1] == pb.StageRequest(app=b"app", version=5, txn=b"t", channel=b"d", count=1, rows=b"rows")


async def test_rows_of_one_channel_are_staged_alone_and_a_refusal_is_an_error(servers, client) -> None:
    servers.script["stage"] = [BUSY, SILENCE]
    await client.transactions.stage("app", 4, "t", 3, "a", b"rows", 2)
    told = pb.StageRequest(app=b"app", version=4, txn=b"t", part=3, channel=b"a", count=2, rows=b"rows")
    assert [one for _, one in servers.asked] == [told] * 3
    servers.answer = lambda *_: REFUSED
    with pytest.raises(stan_client.ServerError, match="stan: no"):
        await client.transactions.stage_together("app", 4, "t", rows_for("a", "b"))


# --- commits --------------------------------------------------------------------------------------------------------------


async def test_version_is_finished_after_all_channels_are_committed(servers, client) -> None:
    servers.script["commit"] = [BUSY, SILENCE, BUSY]
    other = pb.CommittedChannel(channel=b"b", first_sequence=1, last_sequence=2)
    done = {"first_sequence": 1, "last_sequence": 2, "group": 1, "more": [other]}
    servers.answer = lambda _, request: done if isinstance(request, pb.CommitRequest) else {}
    committed = await client.transactions.commit("app", 4, {"a": [("t1", 2), ("t2", 1)], "b": []})
    assert committed == {name: stan_client.Committed(already=False, first=1, last=2, group=1) for name in "ab"}
    assert servers.kinds() == ["commit"] * 4 + ["finish"]
    assert servers.asked[-1][1] == pb.FinishRequest(app=b"app", version=4)
    together = pb.CommitRequest(
        app=b"app",
        version=4,
        channel=b"a",
        txns=[b"t1", b"t2"],
        parts=[0, 2, 1, 1],
        more=[pb.ChannelTxns(channel=b"b")],
    )
    assert together in [request for _, request in servers.asked]


async def test_a_commit_of_more_txns_than_a_server_reads_is_several_requests(servers, client) -> None:
    txns = {f"c{number}": [(f"t{task}", 1) for task in range(200)] for number in range(300)}
    txns["wide"] = [(f"t{task}", 1) for task in range(COMMIT_TXNS_MAX + 1)]
    done = lambda request: {"more": [pb.CommittedChannel(channel=each.channel) for each in request.more]}  # noqa: E731
    servers.answer = lambda _, request: done(request) if isinstance(request, pb.CommitRequest) else {}
    await client.transactions.commit("app", 4, txns)
    requests = [request for _, request in servers.asked if isinstance(request, pb.CommitRequest)]
    named = [(len(request.parts) + sum(len(each.parts) for each in request.more)) // 2 for request in requests]
    assert sorted(named)[-2:] == [COMMIT_TXNS_MAX, COMMIT_TXNS_MAX + 1]
    assert sum(named) == 60_000 + COMMIT_TXNS_MAX + 1
    assert [*requests[named.index(COMMIT_TXNS_MAX + 1)].more] == []


async def test_version_is_not_finished_if_a_channel_is_refused_and_the_others_are_committed(servers, client) -> None:
    elsewhere = [pb.ElsewhereChannel(channel=b"b", group=2), pb.ElsewhereChannel(channel=b"c", group=3)]
    answers = {b"a": {"group": 1, "elsewhere": elsewhere}, b"b": REFUSED}
    servers.answer = lambda _, request: answers.get(request.channel, {})
    with pytest.raises(stan_client.ServerError, match="stan: no"):
        await client.transactions.commit("app", 4, {"a": [], "b": [], "c": []})
    assert sorted(request.channel for _, request in servers.asked) == [b"a", b"b", b"c"]


async def test_nothing_else_of_a_group_is_asked_for_once_its_commit_is_refused(servers, client) -> None:
    servers.answer = lambda *_: REFUSED
    with pytest.raises(stan_client.ServerError, match="stan: no"):
        await client.transactions.commit("app", 4, {"a": [], "b": []})
    assert servers.kinds() == ["commit"]


async def test_last_committed_is_minus_one_if_there_is_none(servers, client) -> None:
    assert await client.transactions.last_committed("app") == -1
    servers.answer = lambda *_: {"known": True, "version": 0}
    assert await client.transactions.last_committed("app") == 0


async def test_only_so_many_at_once() -> None:
    under_way, most = 0, 0

    async def one(item):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return -item

    assert await together(one, range(500)) == [-item for item in range(500)]
    assert most == requester.TOGETHER_MAX


# --- answers of several leaders -----------------------------------------------------------------------------------------


def info(name, last=1, **fields):
    return {"name": name.encode(), "last_sequence": last, **fields}


async def test_answers_of_leaders_are_put_together(servers, client) -> None:
    one = {"pool": 3, "groups": [1, 3], "channels": [info("a"), info("c")]}
    other = {"pool": 3, "groups": [2], "channels": [info("b", 2, uid=7, bytes=9)]}
    servers.script["info"] = [[one], BUSY, [other, one]]
    found = await client.channels.info(pattern=">")
    assert sorted(found) == ["a", "b", "c"]
    assert found["b"] == stan_client.ChannelInfo("b", 7, 0, 2, 9, 0, 0)
    assert len(servers.asked) == 3


async def test_leaders_need_not_all_answer_if_the_channels_are_known(servers, client) -> None:
    servers.answer = lambda *_: {"pool": 3, "groups": [1], "channels": [info("a")]}
    assert list(await client.channels.info(["a"])) == ["a"]
    assert len(servers.asked) == 1


async def test_without_names_everything_is_told(servers, client) -> None:
    servers.answer = lambda *_: {"pool": 1, "groups": [1]}
    assert await client.channels.info() == {}
    assert servers.asked[0][1].pattern == b">"


async def test_pages_are_asked_for_until_there_is_no_more(servers, client) -> None:
    everything = [f"c{number:02}" for number in range(20)]
    leaders = {1: everything[:10], 2: everything[10:]}

    def answer(_, request):
        answers = []
        for group, mine in leaders.items():
            left = [name for name in mine if name.encode() > request.after]
            page = left[: 2 * group]
            answers.append(
                {"pool": 2, "groups": [group], "channels": list(map(info, page)), "more": len(left) > 2 * group}
            )
        return answers

    servers.answer = answer
    assert sorted(await client.channels.info(pattern="c*")) == everything
    assert sorted(await client.channels.info(pattern="c*", newer_than={"c00": 0}, wait_s=5)) == everything


async def test_cursors_are_put_together_page_by_page(servers, client) -> None:
    def answer(_, request):
        after = (request.after_name, request.after_channel)
        mine = [(b"n", b"a"), (b"n", b"b"), (b"m", b"a")]
        left = sorted(pair for pair in mine if pair > after)
        cursors = [{"name": name, "channel": channel, "sequence": 5, "last_sequence": 8} for name, channel in left[:2]]
        return [{"pool": 2, "groups": [1], "cursors": cursors, "more": len(left) > 2}, {"pool": 2, "groups": [2]}]

    servers.answer = answer
    five = stan_client.Bookmark(5, 8)
    assert await client.bookmarks.all() == {"n": {"a": five, "b": five}, "m": {"a": five}}


# --- waiting --------------------------------------------------------------------------------------------------------------


async def test_the_next_message_of_a_position_is_asked_for_without_waiting(servers, client) -> None:
    row = pb.ChannelInfo(name=b"a", last_sequence=9, next_sequence=7)
    servers.answer = lambda *_: [{"pool": 1, "groups": [1], "channels": [row]}]
    assert (await client.channels.info(pattern="a", newer_than={"a": 4}))["a"].next == 7
    ((_, request),) = servers.asked
    assert request == pb.InfoRequest(pattern=b"a", newer_than=[pb.Position(channel=b"a", sequence=4)])


async def test_wait_ends_with_the_first_news_and_everything_is_told(servers, client) -> None:
    news = {"pool": 2, "groups": [1], "channels": [info("a", 6)]}
    servers.script["info"] = [[news]]
    servers.answer = lambda *_: [news, {"pool": 2, "groups": [2], "channels": [info("b", 3)]}]
    found = await client.channels.info(["a", "b"], newer_than={"a": 5, "b": 3}, wait_s=7)
    assert {name: told.last for name, told in found.items()} == {"a": 6, "b": 3}
    (_, waiting), (_, plain) = servers.asked
    assert 1000 < waiting.wait_ms <= 2000
    assert sorted(position.channel for position in waiting.newer_than) == [b"a", b"b"]
    assert not plain.wait_ms
    assert servers.silences[0] > 3


async def test_one_request_is_enough_if_the_news_are_all_that_was_asked_for(servers, client) -> None:
    servers.answer = lambda *_: {"pool": 2, "groups": [1], "channels": [info("a", 6)]}
    assert (await client.channels.info(newer_than={"a": 5}, wait_s=7))["a"].last == 6
    assert len(servers.asked) == 1


async def test_wait_goes_on_step_by_step_until_its_time_is_over(servers, client) -> None:
    servers.script["info"] = [BUSY]
    servers.answer = lambda *_: {"pool": 1, "groups": [1], "channels": [info("a", 5)]}
    assert (await client.channels.info(newer_than={"a": 5}, wait_s=0.5))["a"].last == 5
    assert len(servers.asked) > 2
    waits = [request.wait_ms for _, request in servers.asked]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] <= 500


@pytest.mark.parametrize("pattern", ["", "*"])
@pytest.mark.parametrize("size", [8, 200])
async def test_more_positions_than_a_request_may_have_are_sent_in_portions(servers, client, pattern, size) -> None:
    positions = {f"{number:0{size}}": number for number in range(9000)}
    there = [name for name, number in positions.items() if number % 1000]

    def answer(_, request):
        chosen = sorted(name.decode() for name in request.channels) or there
        at = {position.channel.decode(): position.sequence for position in request.newer_than}
        rows = [{**info(name, 5), "timestamp_at": at.get(name, 0)} for name in chosen if name in positions]
        return {"pool": 1, "groups": [1], "channels": [row for row in rows if row["name"].decode() in there]}

    servers.answer, servers.link.max_payload = answer, 1 << 20
    found = await client.channels.info(pattern=pattern, newer_than=positions, wait_s=0.01)
    assert {name: told.position_time_ns for name, told in found.items()} == {name: positions[name] for name in there}
    assert max(4 * len(request.newer_than) for _, request in servers.asked) <= REQUEST_PARTS_MAX


async def test_news_of_which_there_is_more_are_told_whole(servers, client) -> None:
    def answer(_, request):
        left = [name for name in ("a", "b", "c") if name.encode() > request.after]
        return {"pool": 1, "groups": [1], "channels": list(map(info, left[:1])), "more": len(left) > 1}

    servers.answer = answer
    assert sorted(await client.channels.info(pattern="*", newer_than={"a": 0}, wait_s=5)) == ["a", "b", "c"]
