"""Fetch: a client pulls messages of a channel, as stored, without a subscription (DESIGN 9).

    request ─► look-up in the index ─► memory, or the disk off the loop ─► cut ─► one NATS message

Whose a request is and what it may see: stan.core.boundary.fetches. Promises: every request that is for this node is answered
once, if it can be; what an answer holds was committed; nothing is done per message but stepping over the lengths of a batch that
is wanted in part.
"""

from collections.abc import Callable, Mapping
from functools import partial

from stan import limits
from stan.core.base.ready import ReadResult
from stan.core.boundary.fetches import AGAIN, FetchAsked, FetchRules, Place, Refusal
from stan.core.broker import Broker
from stan.core.context import shown
from stan.edge.batch_lookup import LOOKUP_ATTEMPTS, from_memory, refs_that_fill
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.errors import UNREADABLE
from stan.log.types import BatchRef, ChannelIndex, StaleRef
from stan.protocol import fetches
from stan.protocol.fetches import FetchedBatch
from stan.protocol.frames import Frame
from stan.protocol.proto.extension_pb2 import FetchResponse
from stan.raft.consensus import Consensus
from stan.types import GroupId

REPLICA_QUEUE = "stan-replicas"
"""NATS queue group of the read replicas: one of them gets each request."""


class Fetching:
    """Serves this node's `fetch` requests. *may_lead*: True if no other node can lead a group that this one leads."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        gateway: Gateway,
        runtime: Runtime,
        may_lead: Callable[[GroupId], bool],
    ) -> None:
        self._broker = broker
        self._rules = FetchRules(broker.view, may_lead)
        self._groups = groups
        self._gateway = gateway
        self._runtime = runtime
        self._under_way = 0
        subjects, cluster = broker.view.subjects, broker.view.config.cluster
        gateway.serve_requests(subjects.fetch, partial(self._on_request, of_leader=True))
        if cluster is not None and cluster.replica:
            gateway.serve_requests(
                f"{subjects.replica_fetch} {REPLICA_QUEUE}", partial(self._on_request, of_leader=False)
            )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _on_request(self, frame: Frame, *, of_leader: bool) -> None:
        if not frame.reply:
            return
        asked = self._rules.asked(frame, of_leader=of_leader)
        if asked is None:
            return
        if isinstance(asked, Refusal):
            self._refuse(frame.reply, asked)
            return
        unsent = self._gateway.connection.unsent
        if self._under_way >= limits.FETCHES_UNDER_WAY_MAX or unsent > limits.FETCH_UNSENT_BYTES_MAX:
            self._refuse(asked.reply, AGAIN)
        elif self._rules.lags(asked):
            self._under_way += 1
            self._broker.catch_up(partial(self._caught_up, asked))
        else:
            self._look_up(asked, 1)

    def _caught_up(self, asked: FetchAsked, known: bool) -> None:  # noqa: FBT001 - an answer
        self._under_way -= 1
        if known:
            self._look_up(asked, 1)
        else:
            self._refuse(asked.reply, AGAIN)

    def _look_up(self, asked: FetchAsked, attempt: int) -> None:
        channel = self._rules.channel_of(asked)
        if isinstance(channel, Refusal):
            self._refuse(asked.reply, channel)
            return
        number, uid = channel
        group = self._groups.get(number)
        if group is None:
            self._refuse(asked.reply, AGAIN)
            return
        log = group.log
        index = log.channel(uid)
        place = self._rules.locate(asked, number, uid, index)
        if isinstance(place, Refusal):
            self._refuse(asked.reply, place)
            return
        refs = refs_of(place, index)
        found = from_memory(log, refs)
        if found is not None:
            self._answer(asked, place, refs, found)
            return
        self._under_way += 1
        self._runtime.read(log, refs, partial(self._was_read, asked, place, refs, attempt))

    def _was_read(
        self,
        asked: FetchAsked,
        place: Place,
        refs: list[BatchRef],
        attempt: int,
        result: list[ReadResult] | Exception,
    ) -> None:
        self._under_way -= 1
        if isinstance(result, StaleRef) and attempt < LOOKUP_ATTEMPTS:
            self._look_up(asked, attempt + 1)
        elif isinstance(result, StaleRef) or not self._rules.holds(asked):
            self._refuse(asked.reply, AGAIN)
        elif isinstance(result, Exception):
            self._gateway.complain("ERR", f"Error reading channel {shown(asked.request.channel)} ({result})")
            self._refuse(asked.reply, Refusal(UNREADABLE))
        else:
            self._answer(asked, place, refs, result)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, asked: FetchAsked, place: Place, refs: list[BatchRef], found: list[ReadResult]) -> None:
        batches = [
            FetchedBatch(ref.base_sequence, ref.count, ref.timestamp, fetched.records)
            for ref, fetched in zip(refs, found, strict=True)
        ]
        pieces = self._rules.answer(asked, place, batches)
        if self._rules.holds(asked):
            self._write(asked.reply, pieces)
        else:  # this process was stopped meanwhile
            self._refuse(asked.reply, AGAIN)

    def _refuse(self, reply: bytes, why: Refusal) -> None:
        self._write(reply, [FetchResponse(error=why.error.encode(), retry=why.retry).SerializeToString()])

    def _write(self, reply: bytes, pieces: list[fetches.Records]) -> None:
        size = sum(map(len, pieces))
        self._gateway.connection.write(b"".join((b"PUB %b %d\r\n" % (reply, size), *pieces, b"\r\n")))


def refs_of(place: Place, index: ChannelIndex) -> list[BatchRef]:
    """Places of the batches that hold the messages which a place names."""
    first, last = place.first, place.last
    return refs_that_fill(index, first, last, place.room, limits.FETCH_BATCHES_MAX) if first <= last else []
