"""Fetch: a client pulls messages of a channel, as stored, without a subscription (DESIGN 9).

    request ─► look-up in the index ─► memory, or the disk off the loop ─► cut ─► one NATS message

stan.core.boundary.fetches chooses the answering node and the messages that a request may see. Promises: this node answers each
request that is for it, once; an answer holds committed messages only; the one work per message is skipping the lengths in a
batch of which only a part is requested.
"""

from collections.abc import Callable, Mapping
from functools import partial

from stan_protocol import fetches
from stan_protocol.compaction import keyed
from stan_protocol.fetches import FetchedBatch
from stan_protocol.refusals import UNREADABLE
from stan_protocol.scalars import ChannelUid, GroupId, Sequence

from stan import limits
from stan.core.base.names import shown
from stan.core.base.ready import ReadResult
from stan.core.boundary.fetches import FetchRules, FramedBatch, Place, Refusal
from stan.core.broker.broker import Broker
from stan.core.requests.request import AcceptedRequest
from stan.edge.batch_lookup import LOOKUP_ATTEMPTS, from_memory, refs_that_fill
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.errors import Damage
from stan.log.types import BatchRef, ChannelIndex, GroupLog, StaleRef
from stan.protocol.compressed_batches import framed
from stan.raft.consensus import Consensus

REPLICA_QUEUE = "stan-replicas"
"""NATS queue group of the read replicas: one of them gets each request."""


class Fetching:
    """Serves the `fetch` requests of this node.

    *may_lead* gets a group that this node leads, and returns True as long as no other node can lead it.
    """

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
        self._reading = 0  # bytes of records that are being read from the disk
        cluster = broker.view.config.cluster
        gateway.serve("fetch", self._on_request)
        if cluster is not None and cluster.replica:
            gateway.serve("replica.fetch", self._on_request, queue=REPLICA_QUEUE)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _on_request(self, accepted: AcceptedRequest) -> None:
        unsent = self._gateway.connection.unsent
        if self._under_way >= limits.FETCHES_UNDER_WAY_MAX or unsent > limits.FETCH_UNSENT_BYTES_MAX:
            accepted.busy()
        elif self._rules.lags(accepted):
            self._under_way += 1
            self._broker.catch_up(partial(self._caught_up, accepted), accepted.border)
        else:
            self._look_up(accepted, 1)

    def _caught_up(self, accepted: AcceptedRequest, known: bool) -> None:  # noqa: FBT001 - an answer
        self._under_way -= 1
        if known:
            self._look_up(accepted, 1)
        else:
            accepted.busy()

    def _look_up(self, accepted: AcceptedRequest, attempt: int) -> None:
        channel = self._rules.channel_of(accepted)
        if isinstance(channel, Refusal):
            accepted.refuse(channel.error, retry=channel.retry)
            return
        number, uid = channel
        group = self._groups.get(number)
        if group is None:
            accepted.busy()
            return
        log = group.log
        index = log.channel(uid)
        place = self._rules.locate(accepted, number, uid, index)
        if isinstance(place, Refusal):
            accepted.refuse(place.error, retry=place.retry)
            return
        if accepted.request.WhichOneof("start") == "newest_of_key":
            self._find(accepted, place, KeySearch(log, index, place, accepted.request.newest_of_key), attempt)
            return
        request = accepted.request
        if request.compressed:
            clear_max = min(request.max_bytes or limits.FETCH_CLEAR_BYTES_MAX, limits.FETCH_CLEAR_BYTES_MAX)
            refs = refs_of(place, index, self._rules.as_kept(accepted, place), clear_max)
        else:
            refs = refs_of(place, index)
        read = from_memory(log, refs)
        if read is not None:
            self._answer(accepted, place, refs, read)
            return
        size = size_of(refs)
        if self._reading and self._reading + size > limits.FETCH_BYTES_UNDER_WAY_MAX:
            accepted.busy()
            return
        self._under_way += 1
        self._reading += size
        self._runtime.read(log, refs, partial(self._was_read, accepted, place, refs, attempt))

    def _was_read(
        self,
        accepted: AcceptedRequest,
        place: Place,
        refs: list[BatchRef],
        attempt: int,
        result: list[ReadResult] | Exception,
    ) -> None:
        self._under_way -= 1
        self._reading -= size_of(refs)
        if isinstance(result, StaleRef) and attempt < LOOKUP_ATTEMPTS:
            self._look_up(accepted, attempt + 1)
        elif isinstance(result, StaleRef) or not self._rules.holds(accepted):
            accepted.busy()
        elif isinstance(result, Exception):
            self._unreadable(accepted, result)
        else:
            self._answer(accepted, place, refs, result)

    def _find(self, accepted: AcceptedRequest, place: Place, search: "KeySearch", attempt: int) -> None:
        """Look for the newest message of a key, off the loop."""
        uid = ChannelUid(place.response.uid)
        number = self._broker.view.group_number(accepted.request.channel)

        def done(problem: Exception | None) -> None:
            self._under_way -= 1
            if isinstance(problem, StaleRef) and attempt < LOOKUP_ATTEMPTS:
                self._look_up(accepted, attempt + 1)
            elif isinstance(problem, StaleRef) or not self._rules.holds(accepted):
                accepted.busy()
            elif problem is not None:
                self._unreadable(accepted, problem)
            else:
                place.response.searched_from = search.searched_from
                self._write_if_leading(accepted, self._rules.answer(accepted, search.place(), search.found))

        self._under_way += 1
        self._runtime.work(partial(search.run, self._rules.is_gone(number, uid)), done)

    def _unreadable(self, accepted: AcceptedRequest, problem: Exception) -> None:
        self._gateway.complain("ERR", f"Error reading channel {shown(accepted.request.channel)} ({problem})")
        accepted.refuse(UNREADABLE)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, accepted: AcceptedRequest, place: Place, refs: list[BatchRef], read: list[ReadResult]) -> None:
        batches = [
            FetchedBatch(ref.base_sequence, ref.count, ref.timestamp, fetched.records)
            for ref, fetched in zip(refs, read, strict=True)
        ]
        if any(fetched.kept for fetched in read):
            try:
                batches = [framed(one) if fetched.kept else one for one, fetched in zip(batches, read, strict=True)]
            except Damage as damage:
                self._unreadable(accepted, damage)
                return
        self._write_if_leading(accepted, self._rules.answer(accepted, place, batches))

    def _write_if_leading(self, accepted: AcceptedRequest, pieces: list[fetches.Records]) -> None:
        if self._rules.holds(accepted):
            self._write(accepted.reply, pieces)
        else:  # the lease has expired since, as in a process that was stopped and goes on
            accepted.busy()

    def _write(self, reply: bytes, pieces: list[fetches.Records]) -> None:
        size = sum(map(len, pieces))
        self._gateway.connection.write(b"".join((b"PUB %b %d\r\n" % (reply, size), *pieces, b"\r\n")))


class KeySearch:
    """Looks for the newest message of a key in the messages of *place*, from the end, as far as FIND_BYTES_MAX goes."""

    def __init__(self, log: GroupLog, index: ChannelIndex, place: Place, key: bytes) -> None:
        self._log = log
        self._place = place
        self._key = key
        last = place.last
        self._refs = index.refs_before(last, limits.FIND_BYTES_MAX, limits.FETCH_BATCHES_MAX) if last else []
        at_begin = not self._refs or not index.refs_before(Sequence(self._refs[-1].base_sequence - 1), 0, 1)
        self.searched_from = 1 if at_begin else self._refs[-1].base_sequence
        self.found: list[FetchedBatch] = []

    def run(self, is_gone: Callable[[int], bool]) -> None:
        """Search; for a worker. Raises Damage, StaleRef."""
        for ref in self._refs:
            records = self._log.read(ref)
            if self._key not in records:
                continue
            keys = keyed(records, ref.count).keys
            for place in range(ref.count - 1, -1, -1):
                sequence = ref.base_sequence + place
                if keys[place] == self._key and sequence <= self._place.last and not is_gone(sequence):
                    self.found = [FetchedBatch(ref.base_sequence, ref.count, ref.timestamp, records)]
                    self.searched_from = Sequence(sequence)
                    return

    def place(self) -> Place:
        """The place of the message; without one, a place without messages."""
        if not self.found:
            return self._place._replace(first=Sequence(self._place.last + 1))
        return self._place._replace(first=Sequence(self.searched_from), last=Sequence(self.searched_from))


def size_of(refs: list[BatchRef]) -> int:
    """Bytes of memory that the records of *refs* take."""
    return sum(ref.size or ref.length for ref in refs)


def refs_of(
    place: Place, index: ChannelIndex, as_stored: Callable[[FramedBatch], bool] | None = None, clear_max: int = 0
) -> list[BatchRef]:
    """Return the batches with the messages of *place*, as many as fit its room; none if it names no messages.

    Args:
        place: the messages.
        index: of the channel.
        as_stored: True for a compressed batch that is answered as it is stored; None: all are answered in clear.
        clear_max: bytes of the messages in the answer when they are decompressed.
    """
    first, last = place.first, place.last
    if first > last:
        return []
    refs = refs_that_fill(index, first, last, place.room, limits.FETCH_BATCHES_MAX)
    if as_stored is None or not any(ref.size for ref in refs):
        return refs
    chosen: list[BatchRef] = []
    room = place.room
    for ref in refs_that_fill(index, first, last, clear_max, limits.FETCH_BATCHES_MAX):
        end = ref.base_sequence + ref.count - 1
        stored = bool(ref.size) and as_stored(FramedBatch(ref.base_sequence, end, ref.length, ref.size))
        clear_max -= ref.size or ref.length
        if chosen:  # the first one, which may begin with earlier messages, is not counted
            room -= ref.length if stored else ref.size or ref.length
            if clear_max < 0:
                break
        chosen.append(ref._replace(as_stored=stored))
        if room < 0:
            break
    return chosen
