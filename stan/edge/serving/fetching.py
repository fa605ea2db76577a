"""Fetch: a client pulls messages of a channel, as stored, without a subscription (DESIGN 9).

    request ─► look-up in the index ─► memory, or the disk off the loop ─► cut ─► one NATS message

The leader of the channel's group answers, and only while no other node can lead; a read replica answers with what it has
applied. Promises: every request that is for this node is answered once, if it can be; what an answer holds was committed;
nothing is done per message but stepping over the lengths of a batch that is wanted in part.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from google.protobuf.message import DecodeError

from stan import limits
from stan.core.base.ready import Fetched, Index
from stan.core.base.runs import Runs
from stan.core.broker import Broker
from stan.core.shared import shown
from stan.core.state.deleted import behind, below_newest
from stan.edge.nats.gateway import Gateway
from stan.edge.reads import ATTEMPTS, from_memory, refs_that_fill
from stan.edge.runtime import Runtime
from stan.errors import BUSY, INVALID_FETCH, MESSAGE_TOO_LARGE, UNKNOWN_CHANNEL, UNREADABLE
from stan.log.types import BatchRef, ChannelIndex, StaleRef
from stan.protocol import fetches
from stan.protocol.fetches import Batch
from stan.protocol.frames import Frame
from stan.protocol.proto.extension_pb2 import FetchRequest, FetchResponse
from stan.protocol.requests import because, decode
from stan.raft.consensus import Consensus
from stan.types import ChannelUid, GroupId, Sequence, WallNanos

REPLICA_QUEUE = "stan-replicas"
"""NATS queue group of the read replicas: one of them gets each request."""
NO_END = (1 << 64) - 1


class _Asked(NamedTuple):
    """A request that is for this node."""

    reply: bytes
    request: FetchRequest
    of_leader: bool


class _Place(NamedTuple):
    """What a request asks for, as the index sees it now."""

    response: FetchResponse
    first: Sequence
    last: Sequence
    refs: list[BatchRef]


class Fetching:
    """See the module's docstring. *may_lead*: whether no other node can lead a group that this one leads."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        gateway: Gateway,
        runtime: Runtime,
        may_lead: Callable[[GroupId], bool],
    ) -> None:
        self._broker = broker
        self._shared = shared = broker.shared
        self._groups = groups
        self._gateway = gateway
        self._runtime = runtime
        self._may_lead = may_lead
        self._under_way = 0
        gateway.take_requests(shared.subjects.fetch, partial(self._heard, of_leader=True))
        cluster = shared.config.cluster
        if cluster is not None and cluster.replica:
            subject = f"{shared.subjects.replica_fetch} {REPLICA_QUEUE}"
            gateway.take_requests(subject, partial(self._heard, of_leader=False))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _heard(self, frame: Frame, *, of_leader: bool) -> None:
        shared = self._shared
        if not frame.reply:
            return
        try:
            request = decode(FetchRequest, frame.payload)
        except DecodeError as problem:
            if not of_leader or shared.leads_meta:
                self._refuse(frame.reply, because(INVALID_FETCH, problem))
            return
        if of_leader and not shared.leads(shared.group_number(request.channel)):
            return  # its leader hears it too
        asked = _Asked(frame.reply, request, of_leader)
        unsent = self._gateway.connection.unsent
        if self._under_way >= limits.FETCHES_UNDER_WAY_MAX or unsent > limits.FETCH_UNSENT_BYTES_MAX:
            self._busy(asked)
        elif of_leader and request.channel not in shared.meta.channels:
            self._under_way += 1
            self._broker.catchup.wait(partial(self._caught_up, asked))
        else:
            self._look_up(asked, 1)

    def _caught_up(self, asked: _Asked, known: bool) -> None:  # noqa: FBT001 - an answer
        self._under_way -= 1
        if known:
            self._look_up(asked, 1)
        else:
            self._busy(asked)

    def _look_up(self, asked: _Asked, attempt: int) -> None:
        shared, request = self._shared, asked.request
        info = shared.meta.channels.get(request.channel)
        number = shared.group_number(request.channel)
        if asked.of_leader and not (shared.leads(number) and self._may_lead(number)):
            self._busy(asked)
            return
        if info is None:
            self._refuse(asked.reply, UNKNOWN_CHANNEL)
            return
        group = self._groups.get(number)
        if group is None:
            self._busy(asked)
            return
        log = group.log
        index = log.channel(info.uid)
        deleted = shared.deleted(number, info.uid)
        place = locate(request, index, shared.payload_bytes_max, shared.visible(number, info.uid, index), deleted)
        if place is None:
            self._refuse(asked.reply, INVALID_FETCH)
            return
        place.response.uid = info.uid
        found = from_memory(log, place.refs)
        if found is not None:
            self._answer(asked, place, found)
            return
        self._under_way += 1
        self._runtime.read(log, place.refs, partial(self._was_read, asked, place, attempt))

    def _was_read(self, asked: _Asked, place: _Place, attempt: int, result: list[Fetched] | Exception) -> None:
        self._under_way -= 1
        number = self._shared.group_number(asked.request.channel)
        if isinstance(result, StaleRef) and attempt < ATTEMPTS:
            self._look_up(asked, attempt + 1)
        elif isinstance(result, StaleRef) or (asked.of_leader and not self._may_lead(number)):
            self._busy(asked)
        elif isinstance(result, Exception):
            self._gateway.complain("ERR", f"Error reading channel {shown(asked.request.channel)} ({result})")
            self._refuse(asked.reply, UNREADABLE)
        else:
            self._answer(asked, place, result)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked, place: _Place, found: list[Fetched]) -> None:
        batches = [
            Batch(ref.base_sequence, ref.count, ref.timestamp, fetched.records)
            for ref, fetched in zip(place.refs, found, strict=True)
        ]
        shared = self._shared
        deleted = shared.deleted(shared.group_number(asked.request.channel), ChannelUid(place.response.uid))
        pieces = answer(asked.request, place, batches, shared.payload_bytes_max, deleted)
        if asked.of_leader and not self._may_lead(shared.group_number(asked.request.channel)):
            self._busy(asked)  # this process was stopped meanwhile
        else:
            self._write(asked.reply, pieces)

    def _busy(self, asked: _Asked) -> None:
        self._write(asked.reply, [FetchResponse(error=BUSY.encode(), retry=True).SerializeToString()])

    def _refuse(self, reply: bytes, error: str) -> None:
        self._write(reply, [FetchResponse(error=error.encode()).SerializeToString()])

    def _write(self, reply: bytes, pieces: list[fetches.Records]) -> None:
        size = sum(map(len, pieces))
        self._gateway.connection.write(b"".join((b"PUB %b %d\r\n" % (reply, size), *pieces, b"\r\n")))


def locate(
    request: FetchRequest,
    index: ChannelIndex,
    payload_max: int,
    visible: Index | None = None,
    deleted: Runs | None = None,
) -> _Place | None:
    """Where the messages lie that *request* asks for, of those that are *visible* (by default all) and not *deleted*; None if
    it makes no sense."""
    seen = visible or index
    oldest, newest = seen.first_sequence, seen.last_sequence
    last = request.last or NO_END
    match request.WhichOneof("start"):
        case "from_sequence":
            first = request.from_sequence
            if not 0 < first <= last:
                return None
        case "from_time":
            first = seen.sequence_at(WallNanos(request.from_time))
        case "newest":
            first = below_newest(deleted, newest, request.newest) + 1
            if not request.newest:
                return None
        case _:
            first = newest + 1
    first, last = max(first, 1), min(last, newest)
    response = FetchResponse(first_sequence=oldest, last_sequence=newest, next_sequence=max(first, last + 1))
    first = behind(deleted, max(first, oldest))
    room = min(request.max_bytes or payload_max, payload_max)
    begin, end = Sequence(first), Sequence(last)
    refs = refs_that_fill(index, begin, end, room, limits.FETCH_BATCHES_MAX) if first <= last else []
    return _Place(response, begin, end, refs)


def answer(
    request: FetchRequest, place: _Place, batches: list[Batch], payload_max: int, deleted: Runs | None = None
) -> list[fetches.Records]:
    """The encoded answer to *request*, in pieces; *batches* are those that *place* names."""
    response, first, last, _ = place
    room = payload_max - fetches.HEAD_ROOM
    wanted = min(request.max_bytes or room, room)
    chosen = _select(batches, place, deleted, request.max_messages or NO_END, wanted)
    if batches and not chosen:  # the first message alone is larger
        chosen = fetches.select(batches, first, last, 1, room) or fetches.select(batches, first, last, 1, NO_END)
    if not chosen:
        return fetches.encode(response, [])
    response.next_sequence = chosen[-1].first + chosen[-1].count
    size = sum(len(batch.records) + fetches.RUN_ROOM for batch in chosen)
    if size <= room:
        return fetches.encode(response, chosen)
    if size - fetches.RUN_ROOM + fetches.BARE_ROOM <= payload_max:
        if (
            response.first_sequence <= request.from_sequence < first
        ):  # alone it could not say that nothing is lost before it
            response.next_sequence = first
            return fetches.encode(response, [])
        return fetches.bare(chosen[0].records)
    response.error = MESSAGE_TOO_LARGE.encode()
    return fetches.encode(response, [])


def _select(
    batches: list[Batch], place: _Place, deleted: Runs | None, messages_max: int, bytes_max: int
) -> list[Batch]:
    """As `fetches.select`, without what was deleted."""
    if deleted is None or not batches:
        return fetches.select(batches, place.first, place.last, messages_max, bytes_max)
    chosen: list[Batch] = []
    end = min(place.last, batches[-1].first + batches[-1].count - 1)
    for first, last in deleted.missing(place.first, end):
        while batches and batches[0].first + batches[0].count <= first:
            batches = batches[1:]
        part = fetches.select(batches, first, last, messages_max, bytes_max)
        chosen += part
        messages_max -= sum(batch.count for batch in part)
        bytes_max -= sum(fetches.RUN_ROOM + len(batch.records) for batch in part)
        if not part or part[-1].first + part[-1].count <= last:
            break
    return chosen
