"""The rules of a fetch: who answers it and when, which messages of a channel it may see, what an answer holds (DESIGN 9).

    request ─► router: whose is it ─► channel_of: may it be answered now ─► locate: which messages ─► answer

The leader of the channel's group answers, and only while no other node can lead; a read replica answers with what it has
applied. The caller (stan.edge.serving.fetching) finds and reads the messages. Pure: it reads the broker and changes nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from stan_protocol import fetches
from stan_protocol.fetches import FetchedBatch
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse
from stan_protocol.refusals import BUSY, INVALID_FETCH, MESSAGE_TOO_LARGE, UNKNOWN_CHANNEL, refused
from stan_protocol.scalars import ChannelUid, GroupId, Sequence, WallNanos

from stan.core.base.ready import Index
from stan.core.base.runs import Runs
from stan.core.boundary.view import BrokerView
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.table import Scope
from stan.core.state.tombstones import behind, below_newest
from stan.limits import FETCH_ANSWER_BYTES, KEY_BYTES_MAX

NO_END = (1 << 64) - 1


class Refusal(NamedTuple):
    """Why a request is refused; *retry*: the reason passes."""

    error: str
    retry: bool = False


AGAIN: Final = Refusal(BUSY, retry=True)


class Place(NamedTuple):
    """The messages [first, last] that a request asks for, by the index as it is now, at most *room* bytes of them."""

    response: FetchResponse
    first: Sequence
    last: Sequence
    room: int


class FramedBatch(NamedTuple):
    """A compressed batch."""

    first: int
    last: int
    length: int  # bytes that are kept of it
    size: int  # bytes of its records


class FetchRules:
    """The rules of a fetch on one node. *may_lead*: returns True if no other node can lead a group that this one leads, now."""

    def __init__(self, view: BrokerView, may_lead: Callable[[GroupId], bool]) -> None:
        self._view = view
        self._may_lead = may_lead

    def lags(self, accepted: AcceptedRequest) -> bool:
        """True if this node has to wait for newer metadata first, as the channel is unknown here."""
        return _of_leader(accepted) and accepted.request.channel not in self._view.meta.channels

    def holds(self, accepted: AcceptedRequest) -> bool:
        """True if no other node can lead the group whose leader is asked, and nothing has to go from the channel first."""
        return not _of_leader(accepted) or (
            self._may_lead(self._view.group_number(accepted.request.channel)) and not self._is_held(accepted)
        )

    def _is_held(self, accepted: AcceptedRequest) -> bool:
        info = self._view.meta.channels.get(accepted.request.channel)
        return info is not None and self._view.is_held(info.group, info.uid)

    def channel_of(self, accepted: AcceptedRequest) -> tuple[GroupId, ChannelUid] | Refusal:
        """The group and the uid of the channel that is asked for, or why this node may not answer now."""
        view, request = self._view, accepted.request
        info = view.meta.channels.get(request.channel)
        number = view.group_number(request.channel)
        if _of_leader(accepted) and not (view.leads(number) and self.holds(accepted)):
            return AGAIN
        return Refusal(UNKNOWN_CHANNEL) if info is None else (number, info.uid)

    def locate(self, accepted: AcceptedRequest, number: GroupId, uid: ChannelUid, index: Index) -> Place | Refusal:
        """The messages that are asked for and may be seen, by the *index* of the channel, or why the request is refused."""
        view = self._view
        place = locate(accepted.request, index, view.payload_bytes_max, view.deleted(number, uid))
        if place is None:
            return Refusal(INVALID_FETCH)
        place.response.uid, place.response.cluster = uid, view.cluster
        place.response.lost_until, place.response.tombstones_until = view.removed_until(number, uid)
        return place

    def is_gone(self, number: GroupId, uid: ChannelUid) -> Callable[[int], bool]:
        """Tells of a sequence whether its message was deleted, as of now."""
        deleted = self._view.deleted(number, uid)
        runs = [] if deleted is None else [(run.first, run.last) for run in deleted]
        return lambda sequence: any(first <= sequence <= last for first, last in runs)

    def as_kept(self, accepted: AcceptedRequest, place: Place) -> Callable[[FramedBatch], bool]:
        """Tells of compressed batches whether they go to who asks as they are kept."""
        view = self._view
        deleted = view.deleted(view.group_number(accepted.request.channel), ChannelUid(place.response.uid))
        return partial(goes_as_kept, accepted.request, place, view.payload_bytes_max, deleted)

    def answer(self, accepted: AcceptedRequest, place: Place, batches: list[FetchedBatch]) -> list[fetches.Records]:
        """The encoded answer, in pieces, from the batches that hold the messages of *place*. Check `holds` afterwards."""
        view = self._view
        deleted = view.deleted(view.group_number(accepted.request.channel), ChannelUid(place.response.uid))
        return answer(accepted.request, place, batches, view.payload_bytes_max, deleted)


def _of_leader(accepted: AcceptedRequest) -> bool:
    """False: of a read replica."""
    return accepted.kind.scope is Scope.CHANNEL


def locate(request: FetchRequest, seen: Index, payload_max: int, deleted: Runs | None = None) -> Place | None:
    """The messages that *request* asks for, of those that are *seen* in the channel's index and not *deleted*; None if it is
    invalid."""
    oldest, newest = seen.first_sequence, seen.last_sequence
    last = request.last or NO_END
    match request.WhichOneof("start"):
        case "from_sequence":
            first = request.from_sequence
            if not 0 < first <= last:
                return None
        case "from_time":
            first = seen.sequence_at(WallNanos(request.from_time))
        case "newest_of_key":
            if not 0 < len(request.newest_of_key) <= KEY_BYTES_MAX:
                return None
            first = max(oldest, 1)
        case "newest":
            first = below_newest(deleted, newest, request.newest) + 1
            if not request.newest:
                return None
        case _:
            first = newest + 1
    first, last = max(first, 1), min(last, newest)
    response = FetchResponse(
        first_sequence=oldest,
        last_sequence=newest,
        next_sequence=max(first, last + 1),
        timestamp_before=seen.timestamp_before(request.from_sequence),
        last_timestamp=seen.last_timestamp,
    )
    first = behind(deleted, max(first, oldest))
    room = min(request.max_bytes or FETCH_ANSWER_BYTES, payload_max)
    return Place(response, Sequence(first), Sequence(last), room)


def goes_as_kept(
    request: FetchRequest, place: Place, payload_max: int, deleted: Runs | None, batch: FramedBatch
) -> bool:
    """True if a compressed batch is answered as it is kept: all its messages may be seen, and the answer gets smaller."""
    count, response = batch.last - batch.first + 1, place.response
    wanted = min(place.last, batch.last) - max(place.first, batch.first) + 1
    wanted = min(wanted, request.max_messages or wanted)
    room = min(request.max_bytes or NO_END, payload_max - fetches.HEAD_ROOM)
    return (
        request.compressed
        and response.first_sequence <= batch.first
        and batch.last <= response.last_sequence
        and batch.length + 2 * fetches.RUN_ROOM <= room
        and batch.size <= (request.max_bytes or batch.size)
        and batch.length * count <= batch.size * wanted
        and (deleted is None or [*deleted.missing(batch.first, batch.last)] == [(batch.first, batch.last)])
    )


def answer(
    request: FetchRequest, place: Place, batches: list[FetchedBatch], payload_max: int, deleted: Runs | None = None
) -> list[fetches.Records]:
    """The encoded answer to *request*, in pieces; *batches*: those that hold the messages of *place*."""
    response, _, last, asked = place
    room = payload_max - fetches.HEAD_ROOM
    wanted = min(asked, room)
    chosen = _select(batches, place, deleted, request.max_messages or NO_END, wanted)
    if batches and not chosen:  # the first message alone is larger
        chosen = _select(batches, place, deleted, 1, room) or _select(batches, place, deleted, 1, NO_END)
    if not chosen:  # each message of the batches was deleted
        if batches:
            response.next_sequence = min(last, batches[-1].first + batches[-1].count - 1) + 1
        return fetches.encode(response, [])
    response.next_sequence = chosen[-1].first + chosen[-1].count
    size = sum(batch.room for batch in chosen)
    if size <= room:
        return fetches.encode(response, chosen)
    if size - fetches.RUN_ROOM + fetches.BARE_ROOM <= payload_max:
        # A bare message names no next sequence: it could not say whether the sequences before it are lost. So the client is told
        # first to go on behind them.
        if 0 < request.from_sequence < chosen[0].first:
            response.next_sequence = chosen[0].first
            return fetches.encode(response, [])
        return fetches.bare(chosen[0].records)
    return fetches.encode(refused(response, MESSAGE_TOO_LARGE), [])


def _select(
    batches: list[FetchedBatch], place: Place, deleted: Runs | None, messages_max: int, bytes_max: int
) -> list[FetchedBatch]:
    """As `fetches.select`, without the deleted messages."""
    if deleted is None or not batches:
        return fetches.select(batches, place.first, place.last, messages_max, bytes_max)
    chosen: list[FetchedBatch] = []
    end = min(place.last, batches[-1].first + batches[-1].count - 1)
    for first, last in deleted.missing(place.first, end):
        while batches and batches[0].first + batches[0].count <= first:
            batches = batches[1:]
        if batches[0].first > last:
            continue  # the log has no message there
        part = fetches.select(batches, first, last, messages_max, bytes_max)
        chosen += part
        messages_max -= sum(batch.count for batch in part)
        bytes_max -= sum(batch.room for batch in part)
        following = part[-1].first + part[-1].count if part else first
        if any(max(batch.first, following) <= min(last, batch.first + batch.count - 1) for batch in batches):
            break  # a bound is reached
    return chosen
