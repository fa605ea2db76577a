"""The client of the requests of operators, beside servers in a few lines: pages put together, nodes that do not answer."""

import asyncio
from types import SimpleNamespace

import pytest
import stan_client
from stan_client.admin_types import CursorRef
from stan_client.requests import requester
from stan_client.requests.admin import Admin
from stan_client.requests.requester import Requester
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2 as pb

REQUESTS = {
    "channels": (pb.ChannelsRequest, pb.ChannelsResponse),
    "subscriptions": (pb.SubscriptionsRequest, pb.SubscriptionsResponse),
    "clients": (pb.ClientsRequest, pb.ClientsResponse),
    "nodes": (pb.NodesRequest, pb.NodeStatus),
    "options": (pb.OptionsRequest, pb.OptionsResponse),
    "explain": (pb.ExplainRequest, pb.ExplainResponse),
    "purge": (pb.PurgeRequest, pb.ChangeResponse),
    "double_parts": (pb.DoublePartsRequest, pb.ChangeResponse),
    "_STAN.x.c.parts": (pb.PartsRequest, pb.PartsResponse),
    "move": (pb.MoveRequest, pb.ChangeResponse),
}


class Servers:
    """An inbox: `answer` gives for each request the answers of all servers, or None if nobody listens."""

    def __init__(self):
        self.link = self
        self.connected = True
        self.max_payload = 100_000
        self.asked = []
        self.answer = lambda _kind, _request: []
        self.handlers = {}

    async def ready(self):
        return SimpleNamespace(link=self, ask=self.ask, ask_all=self.ask_all)

    async def ask(self, subject, payload, timeout_s):
        got = []
        await self.ask_all(subject, payload, lambda frame: got.append(frame) or True, timeout_s)
        return got[0] if got else None

    async def ask_all(self, subject, payload, take, _timeout_s):
        kind = subject.decode().removeprefix("_STAN.x.c.admin.")
        request = REQUESTS[kind][0].FromString(payload)
        self.asked.append((kind, request))
        await asyncio.sleep(0)
        answers = self.answer(kind, request)
        if answers is None:
            take(Frame(1, b"in", b"", b"NATS/1.0 503\r\n\r\n", b""))
        for answer in answers or ():
            if take(Frame(1, b"in", b"", b"", answer.SerializeToString())):
                return

    async def listen(self, subject, handler):
        self.handlers[subject] = handler
        return len(self.handlers)

    async def unlisten(self, sid):
        self.handlers.clear()


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setattr(requester, "RETRY_FIRST_S", 0.0001)
    return Servers()


@pytest.fixture
def admin(servers):
    return Admin(Requester(servers.ready, "c", 5.0))


async def test_pages_of_all_leaders_make_one_list(servers, admin) -> None:
    of_leader = {1: [b"a", b"c", b"e"], 2: [b"b", b"d"]}

    def answer(_kind, request):
        for group, names in of_leader.items():
            left = [name for name in names if name > request.after]
            shown = [pb.ChannelStatus(name=name, group=group) for name in left[:1]]
            yield pb.ChannelsResponse(pool=2, groups=[group], channels=shown, more=len(left) > 1)

    servers.answer = answer
    assert [channel.name for channel in await admin.channels()] == ["a", "b", "c", "d", "e"]
    assert {request.version for _, request in servers.asked} == {1}


async def test_subscriptions_come_by_channel_and_id(servers, admin) -> None:
    rows = [(b"a", 7), (b"a", 9), (b"b", 1)]

    def answer(_kind, request):
        left = [row for row in rows if row > (request.after_channel, request.after_cursor)]
        shown = [pb.CursorStatus(channel=channel, cursor_id=number) for channel, number in left[:2]]
        return [pb.SubscriptionsResponse(pool=1, groups=[1], cursors=shown, more=len(left) > 2)]

    servers.answer = answer
    found = await admin.subscriptions(name="dur", client_id="me", durable_only=True)
    assert [(cursor.channel, cursor.cursor_id) for cursor in found] == [("a", 7), ("a", 9), ("b", 1)]
    request = servers.asked[0][1]
    assert (request.pattern, request.name, request.client_id, request.durable_only) == (b">", b"dur", b"me", True)


async def test_clients_come_in_pages(servers, admin) -> None:
    names = [b"a", b"b", b"c"]

    def answer(_kind, request):
        left = [name for name in names if name > request.after]
        return [pb.ClientsResponse(clients=[pb.ClientStatus(client_id=name) for name in left[:2]], more=len(left) > 2)]

    servers.answer = answer
    assert [client.client_id for client in await admin.clients()] == ["a", "b", "c"]


async def test_all_nodes_answer(servers, admin) -> None:
    servers.answer = lambda _kind, _request: [
        pb.NodeStatus(node=name, nodes=["a", "b"], read_replicas=["r"]) for name in ("b", "r", "a", "never")
    ]
    found = await admin.nodes()
    assert ([answer.node for answer in found.answers], found.missing) == (["a", "b", "r"], [])


async def test_a_node_that_does_not_answer_is_missing(servers, admin) -> None:
    servers.answer = lambda _kind, _request: [pb.NodeStatus(node="a", nodes=["a", "b"])]
    found = await admin.nodes(patience_s=0.1)
    assert ([answer.node for answer in found.answers], found.missing) == (["a"], ["b"])


async def test_what_was_said_of_nodes_before_does_not_count(servers, admin) -> None:
    """A node that lags still names one that was taken out."""
    servers.answer = lambda _kind, _request: [
        pb.NodeStatus(node="a", nodes=["a", "b", "gone"], nodes_version=1),
        pb.NodeStatus(node="b", nodes=["a", "b"], nodes_version=2),
    ]
    assert (await admin.nodes()).missing == []


async def test_nobody_at_all_is_an_error(servers, admin) -> None:
    servers.answer = lambda _kind, _request: None
    with pytest.raises(stan_client.RequestTimeoutError, match="nobody listens"):
        await admin.nodes(patience_s=0.1)


async def test_options_of_all_nodes_that_are_there(servers, admin) -> None:
    def answer(kind, _request):
        if kind == "nodes":
            return [pb.NodeStatus(node=name, nodes=["a", "b"]) for name in ("a", "b")]
        return [pb.OptionsResponse(node=name, options=[pb.Option(name="dir", value=name)]) for name in ("b", "a")]

    servers.answer = answer
    found = await admin.options()
    assert [(node, options[0].value) for node, options in found.items()] == [("a", "a"), ("b", "b")]


async def test_a_change_is_asked_for_again_until_it_is_made(servers, admin) -> None:
    said = [[pb.ChangeResponse(error=b"busy", retry=True)], None, [pb.ChangeResponse(changed=3)]]
    servers.answer = lambda _kind, _request: said.pop(0)
    assert (await admin.purge("foo", up_to=7)).changed == 3
    assert [(kind, request.channel, request.up_to) for kind, request in servers.asked] == [("purge", b"foo", 7)] * 3


async def test_a_refusal_is_an_error(servers, admin) -> None:
    servers.answer = lambda _kind, _request: [pb.ChangeResponse(error=b"stan: unknown channel")]
    with pytest.raises(stan_client.ServerError, match="unknown channel"):
        await admin.move(CursorRef("foo", durable_name="dur", client_id="me"), sequence=4)


async def test_events_are_heard(servers, admin) -> None:
    events = admin.events()
    first = asyncio.ensure_future(anext(events))
    while not servers.handlers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    (subject, handler), *_ = servers.handlers.items()
    handler([Frame(1, b"", b"", b"", b"\xff"), Frame(1, b"", b"", b"", pb.Event(kind="leader").SerializeToString())])
    assert (subject, (await first).kind) == ("_STAN.x.c.events.*", "leader")
    await events.aclose()
    assert not servers.handlers


@pytest.mark.parametrize("error", [stan_client.ConnectionClosedError, stan_client.BadConnectionError])
async def test_events_end_with_the_client(servers, monkeypatch, error) -> None:
    monkeypatch.setattr(requester, "LINK_LOOK_S", 0.001)
    closed = []

    async def ready():
        if closed:
            raise error
        return SimpleNamespace(link=servers)

    events = Admin(Requester(ready, "c", 1)).events()
    first = asyncio.ensure_future(anext(events))
    while not servers.handlers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    closed.append(True)
    with pytest.raises(error):
        await first
    assert not servers.handlers


async def test_events_go_on_with_the_connection_that_takes_the_place_of_another(servers, monkeypatch) -> None:
    monkeypatch.setattr(requester, "LINK_LOOK_S", 0.001)
    links = [servers]

    async def ready():
        return SimpleNamespace(link=links[-1])

    events = Admin(Requester(ready, "c", 1)).events()
    first = asyncio.ensure_future(anext(events))
    while not servers.handlers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    links.append(Servers())
    while not links[-1].handlers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    (handler,) = links[-1].handlers.values()
    handler([Frame(1, b"", b"", b"", pb.Event(kind="leader").SerializeToString())])
    assert (await first).kind == "leader"
    await events.aclose()


async def test_a_message_is_explained_until_the_log_ends_or_so_many_answers_are_there(servers, admin) -> None:
    def answer(_kind, request):
        at = getattr(request, "from").index
        place = pb.ExplainPlace(index=at + 1)
        return [
            pb.ExplainResponse(
                steps=[pb.ExplainStep(index=at)], more=at < 4, next=place, begins_late=not at, state="pending"
            )
        ]

    servers.answer = answer
    for answers, steps, goes_on in ((0, 5, False), (5, 5, False), (4, 4, True), (1, 1, True)):
        told = await admin.explain(CursorRef("c", cursor_id=1), 1, answers=answers)
        assert [step.index for step in told.steps] == list(range(steps))
        assert (told.goes_on, told.begins_late, told.state) == (goes_on, True, "pending")


# --- changes whose answer does not come ----------------------------------------------------------------------------------

BUSY = pb.ChangeResponse(error=b"busy", retry=True)


@pytest.mark.parametrize(
    ("answers", "unknown"), [([BUSY], True), ([], True), (None, False)], ids=["busy", "silence", "nobody"]
)
async def test_a_change_without_an_answer_may_have_been_made_unless_nobody_got_it(servers, answers, unknown) -> None:
    servers.answer = lambda _kind, _request: answers
    with pytest.raises(stan_client.RequestTimeoutError) as caught:
        await Admin(Requester(servers.ready, "c", 0.05)).purge("a")
    assert isinstance(caught.value, stan_client.OutcomeUnknownError) == unknown
    assert ("it may have been done" in str(caught.value)) == unknown


async def test_a_doubling_that_was_accepted_says_so_when_its_leaders_do_not_answer(servers) -> None:
    servers.answer = lambda kind, _request: [pb.ChangeResponse(changed=1)] if kind == "double_parts" else []
    with pytest.raises(stan_client.RequestTimeoutError, match="the change was accepted and goes on"):
        await Admin(Requester(servers.ready, "c", 0.05)).double_parts("a", 2)
