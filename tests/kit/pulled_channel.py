"""A channel in memory that is pulled as stan_client does it: fetch, and waiting for more, without NATS and without a server."""

import asyncio
import random
from types import SimpleNamespace

from stan_protocol import fetches, refusals
from stan_protocol.frames import Frame
from stan_protocol.proto.extension_pb2 import ChannelInfo, FetchRequest, FetchResponse, InfoRequest, InfoResponse

from stan.protocol.kernel import server as kernel

LEADER, REPLICA = b"_STAN.x.c.fetch", b"_STAN.x.c.replica.fetch"
UNKNOWN = FetchResponse(error=refusals.UNKNOWN_CHANNEL.encode())


class PulledChannel:
    """An inbox whose channel holds the messages 1 to `last`, in batches of seven; `script` answers first; with uid 0
    there is none."""

    link = SimpleNamespace(max_payload=100_000)

    def __init__(self, last=0):
        self.last = last
        self.uid = 1
        self.script = []
        self.asked = []
        self.waits = []  # sequences behind which something was waited for
        self.under_way = self.most_under_way = 0
        self.chance = random.Random(1)
        self.lag = {REPLICA: 0}
        self.first = 1  # what is below was removed
        self.lost_until = None  # by limits, up to here; None: all of it
        self.others_from, self.later = 1, 0  # messages from there on took the place of earlier ones, so much later
        self.answers_max = 1 << 60  # what is asked after so many gets no answer

    def time_of(self, sequence):
        """The timestamp of a message, which is that of the first one in its batch; later from `others_from` on."""
        at = max(sequence - 1, 0) // 7 * 7 + 1
        return (at + self.later * (at >= self.others_from)) * (sequence > 0)

    async def ready(self):
        return self

    async def ask(self, subject, payload, timeout_s=None):
        request = FetchRequest.FromString(payload)
        self.asked.append((subject, request))
        number = len(self.asked)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        for _ in range(self.chance.randrange(5)):
            await asyncio.sleep(0)
        if number > self.answers_max:
            await asyncio.Event().wait()
        self.under_way -= 1
        answer = self.script.pop(0) if self.script else self.answer(request, self.last - self.lag.get(subject, 0))
        return Frame(1, b"in", b"", b"", answer.SerializeToString()) if isinstance(answer, FetchResponse) else answer

    async def ask_all(self, subject, payload, take, timeout_s):
        (position,) = InfoRequest.FromString(payload).newer_than
        self.waits.append(position.sequence)
        while self.last <= position.sequence and self.uid:  # noqa: ASYNC110 - tests just set `last`
            await asyncio.sleep(0)
        told = InfoResponse(channels=[ChannelInfo(name=position.channel, last_sequence=self.last)])
        assert take(Frame(1, b"in", b"", b"", told.SerializeToString()))

    def answer(self, request, newest):
        if not self.uid:
            return UNKNOWN
        first, last = request.from_sequence or newest + 1, min(request.last or newest, newest)
        response = FetchResponse(
            uid=self.uid,
            first_sequence=self.first,
            lost_until=self.first - 1 if self.lost_until is None else self.lost_until,
            last_sequence=newest,
            next_sequence=max(first, last + 1),
            last_timestamp=self.time_of(newest),
            timestamp_before=self.time_of(min(request.from_sequence - 1, newest)),
        )
        first = max(first, self.first)
        batches = [
            fetches.FetchedBatch(at, 7, self.time_of(at), sealed(at, 7, self.time_of(at)))
            for at in range(1, newest + 1, 7)
        ]
        chosen = fetches.select(batches, first, last, 1 << 60, request.max_bytes or 1 << 60)
        if chosen:
            response.next_sequence = chosen[-1].first + chosen[-1].count
        return FetchResponse.FromString(b"".join(fetches.encode(response, chosen)))


def sealed(first, count, timestamp=0):
    return kernel.seal(b"ch", first, timestamp or first, [b"\x03\0\0\0\x22\1x" * count])
