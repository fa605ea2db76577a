"""A member of a consumer group against a client that answers as it is told to: what it releases, and when."""

import asyncio
from types import SimpleNamespace

import pytest
import stan_client
from stan_client import GroupConsumer
from stan_client.reading.connected import Connected
from stan_client.reading.fetching import Fetched
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.proto import extension_pb2 as pb

from tests.kit.fake_broker import eventually


class OneMessage(Fetched):
    """An answer with one message."""

    def __init__(self, channel, sequence):
        runs = [pb.Run(first_sequence=sequence, count=1)]
        super().__init__(channel, pb.FetchResponse(next_sequence=sequence + 1, runs=runs))

    def messages(self):
        return []


class FakeServers(Connected):
    """The client of a GroupConsumer, and the inbox of its answers. `tell` sets which channels are its own."""

    def __init__(self):
        super().__init__(self.ready, "c", 30.0, int)
        self.link = SimpleNamespace(connected=True, max_payload=100_000)
        self.assignment = 1
        self.channels_told = []
        self.released = []
        self.noted = []  # (channel, sequence, generation, claim)
        self.refusal = ""
        self.left = False
        self.reads = []  # channels
        self.news = asyncio.Event()

    @property
    def batches(self):
        return self

    async def ready(self):
        return self

    async def ask(self, subject, payload, _timeout_s):
        if subject.endswith(b"consumer_group"):
            answer = await self.renew(pb.ConsumerGroupRequest.FromString(payload))
        else:
            answer = self.note(pb.CursorSetRequest.FromString(payload))
        return Frame(1, b"in", b"", b"", answer.SerializeToString())

    def tell(self, *channels):
        """(channel, generation, release) of each; the uid is the generation."""
        self.assignment += 1
        self.channels_told = [
            pb.OwnedChannel(uid=generation, generation=generation, channel=channel.encode(), release=release)
            for channel, generation, release in channels
        ]
        self.news.set()

    async def renew(self, request):
        self.released += [(one.uid, one.generation) for one in request.released]
        self.left = self.left or request.leave
        if request.known == self.assignment and not request.leave:
            self.news.clear()
            await self.news.wait()
        return pb.ConsumerGroupResponse(assignment=self.assignment, channels=self.channels_told)

    def note(self, request):
        if self.refusal:
            return pb.CursorSetResponse(error=self.refusal.encode())
        self.noted.append((request.channel.decode(), request.sequence, request.generation, request.claim))
        return pb.CursorSetResponse(sequence=request.sequence)

    async def read(self, channel, *, start, **_options):
        self.reads.append(channel)
        first = start.fetch_start()["from_sequence"]
        for sequence in range(first, 4):
            yield OneMessage(channel, sequence)
        await asyncio.Event().wait()


@pytest.fixture
def servers():
    return FakeServers()


def member(servers, **more):
    return GroupConsumer(servers, "orders.*", group="ledger", **more)


async def test_channel_that_comes_with_its_release_is_released(servers) -> None:
    servers.tell(("orders.1", 7, True), ("orders.2", 7 + 1, False))
    async with member(servers) as consumer:
        await eventually(lambda: (7, 7) in servers.released)
        assert consumer.channels == ["orders.2"]


async def test_release_waits_for_the_batch_at_hand(servers) -> None:
    servers.tell(("orders.1", 7, False))
    async with member(servers, auto_commit=False) as consumer:
        batch = await anext(consumer)
        servers.tell(("orders.1", 7, True), ("orders.2", 9, False))
        await eventually(lambda: "orders.2" in consumer.channels)
        assert servers.released == []
        await batch.commit()
        await eventually(lambda: (7, 7) in servers.released)
        assert ("orders.1", 2, 7, False) in servers.noted
        assert (await anext(consumer)).channel == "orders.2"


async def test_batch_that_nobody_has_begun_with_is_given_up(servers) -> None:
    servers.tell(("orders.1", 7, False))
    async with member(servers) as consumer:
        await eventually(lambda: servers.reads == ["orders.1"])
        servers.tell(("orders.1", 7, True), ("orders.2", 9, False))
        await eventually(lambda: (7, 7) in servers.released)
        assert (await anext(consumer)).channel == "orders.2"
    assert servers.left


async def test_channel_is_committed_before_the_next_batch(servers) -> None:
    servers.tell(("orders.1", 7, False))
    async with member(servers) as consumer:
        for sequence in (1, 2, 3):
            assert (await anext(consumer)).next_sequence == sequence + 1
        assert servers.noted == [("orders.1", 1, 7, True), ("orders.1", 2, 7, False), ("orders.1", 3, 7, False)]


async def test_owner_that_was_replaced_goes_on_with_other_channels(servers) -> None:
    servers.tell(("orders.1", 7, False))
    async with member(servers) as consumer:
        batch = await anext(consumer)
        servers.refusal = refusals.OUTDATED_GENERATION
        pending = asyncio.ensure_future(anext(consumer))
        await eventually(lambda: (7, 7) in servers.released)
        assert not batch.valid
        with pytest.raises(stan_client.ChannelLostError):
            await batch.commit()
        servers.refusal = ""
        servers.tell(("orders.2", 9, False))
        assert (await pending).channel == "orders.2"


async def test_refused_membership_ends_the_iteration(servers) -> None:
    servers.tell(("orders.1", 7, False))
    async with member(servers) as consumer:
        await anext(consumer)

        async def refused(_request):
            return pb.ConsumerGroupResponse(error=refusals.MEMBER_OF_ANOTHER.encode(), error_code="member_of_another")

        servers.renew = refused
        servers.tell()

        async def rest():
            async for _ in consumer:
                pass

        with pytest.raises(stan_client.ServerError, match=refusals.MEMBER_OF_ANOTHER):
            await rest()


async def test_run_ends_with_the_error_of_the_handler(servers) -> None:
    servers.tell(("orders.1", 7, False), ("orders.2", 9, False))
    async with member(servers) as consumer:
        done = []

        async def handle(batch):
            done.append(batch)
            if len(done) == 4:
                raise ValueError("four")

        with pytest.raises(ExceptionGroup) as raised:
            await consumer.run(handle, at_once=2)
        assert [str(error) for error in raised.value.exceptions] == ["four"]
        assert len(servers.noted) >= 4
