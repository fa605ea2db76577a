"""Operators' requests about delayed messages, those that wait for a time of their own: listed, saved, cancelled.

Promises: a message that was cancelled, as the answer counts it, is never delivered; one that is on its way is not counted. An
answer tells the end of the channel at the moment of what it lists: each message is in one of the two.
"""

from functools import partial
from itertools import islice

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import CHANNEL_RESTORING, INVALID_ADMIN, TOO_MANY_DELAYED, UNREADABLE

from stan import limits
from stan.core.base.ready import ReadResult
from stan.core.base.runs import runs_of
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.deferrals import Deferrals
from stan.core.publishing.row_batch import row_of
from stan.core.publishing.stored_reads import StoredReads, stored_messages
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.deferred import Listed
from stan.core.state.group_state import GroupResult
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb

_HEAD_BYTES = 256
"""Of an answer, beside its messages."""
_MESSAGE_BYTES = 36
"""Of an answer, for the id of a message, its time, and when it expires."""


class DelayedRequests:
    """Handles the requests `delayed`, `read_delayed` and `cancel_delayed`."""

    def __init__(self, services: Services, lookup: ChannelLookup) -> None:
        self.leading, self.nats, self.node = services.leading, services.nats, services.node
        self.proposals, self.stored = services.proposals, services.stored
        self.lookup = lookup

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        existing = self.lookup.existing
        return {
            "admin.delayed": existing(self._list),
            "admin.read_delayed": existing(self._fetch),
            "admin.cancel_delayed": existing(self._cancel),
        }

    def _listed(self, accepted: AcceptedRequest, info: ChannelInfo, most: int) -> list[Listed]:
        """What waits for a channel, from the place on that the request tells, one more than *most* at most."""
        deferred = accepted.group.machine.deferred
        return (
            [*islice(deferred.listed(info.uid, accepted.request.after), most + 1)]
            if info.uid in deferred.counts
            else []
        )

    def _list(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        request: admin.DelayedRequest = accepted.request
        page = min(request.max or limits.DELAYED_PAGE_MAX, limits.DELAYED_PAGE_MAX)
        found = self._listed(accepted, info, page)
        accepted.answer(
            messages=[admin.DelayedMessage(id=one.id, due=one.due) for one in found[:page]],
            waiting=accepted.group.machine.deferred.counts.get(info.uid, 0),
            more=len(found) > page,
        )

    # --- with their contents --------------------------------------------------------------------------------------------

    def _fetch(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        request: admin.ReadDelayedRequest = accepted.request
        if request.until:
            listed = accepted.group.machine.deferred.listed(info.uid)
            due = [*islice((one.id for one in listed if one.due <= request.until), limits.DELAYED_IDS_MAX + 1)]
            if len(due) > limits.DELAYED_IDS_MAX:
                accepted.refuse(TOO_MANY_DELAYED)
            else:
                self._answer(accepted, info, ids=due)
            return
        found = self._listed(accepted, info, limits.DELAYED_PAGE_MAX)
        page = found[: limits.DELAYED_PAGE_MAX]
        if not page:
            self._answer(accepted, info)
            return
        wanted = runs_of(one.sequence for one in page)[: limits.BATCHES_PER_READ_MAX]
        read = partial(self._read, accepted, info, page, wanted, len(found) > len(page))
        self.leading.leadership(info.group).part(StoredReads).ask(DEFERRED_UID, wanted, read)

    def _read(
        self,
        accepted: AcceptedRequest,
        info: ChannelInfo,
        page: list[Listed],
        wanted: tuple[tuple[int, int], ...],
        more: bool,  # noqa: FBT001 - bound by `partial`
        batches: list[ReadResult],
        error: str,
    ) -> None:
        """The log has answered: those of a page that wait still, as many as fit."""
        if error:
            accepted.refuse(UNREADABLE, retry=True)
            return
        read = dict(stored_messages(batches, wanted))
        end = max(read, default=wanted[-1][1])
        deferred, room = accepted.group.machine.deferred, self.nats.payload_bytes_max - _HEAD_BYTES
        taken: list[admin.DelayedMessage] = []
        rows: list[bytes] = []
        after = page[0].id - 1
        for one in page:
            row, expires_at = b"", 0
            if one.sequence in read and deferred.holds(one.first, one.sequence):
                message = wire.MsgProto.FromString(read[one.sequence])
                expires_at = message.expires_at
                message.ClearField("expires_at")
                row = row_of(message)
                room -= len(row) + _MESSAGE_BYTES
            if one.sequence > end or (taken and room < 0):
                more = True
                break
            after = one.id
            if row:
                taken.append(admin.DelayedMessage(id=one.id, due=one.due, expires_at=expires_at))
                rows.append(row)
        self._answer(accepted, info, messages=taken, rows=b"".join(rows), more=more, after=after)

    def _answer(self, accepted: AcceptedRequest, info: ChannelInfo, **told: object) -> None:
        last = self.stored.indexes(info.group, info.uid).last_sequence
        accepted.answer(last_sequence=last, now=self.node.clock.wall, **told)

    # --- cancelled ------------------------------------------------------------------------------------------------------

    def _cancel(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        ids = {*accepted.request.ids}
        if not 0 < len(ids) <= limits.DELAYED_PAGE_MAX:
            accepted.refuse(INVALID_ADMIN)
            return
        if accepted.group.machine.restores.under_way(info.uid):  # what was put back would come back by a repeat
            accepted.refuse(CHANNEL_RESTORING, retry=True)
            return
        here = self.leading.leadership(info.group).part(Deferrals)
        listed = accepted.group.machine.deferred.listed(info.uid)
        places = [
            number
            for one in listed
            if one.id in ids and one.sequence not in here.moving
            for number in (one.first, one.sequence)
        ]
        if not places:
            accepted.answer()
            return
        here.cancelling.update(places[1::2])
        done = partial(self._done, accepted, here, places[1::2])
        self.proposals.change_group(accepted.number, done, deferred_gone=pb.DeferredGone(places=places))

    def _done(self, accepted: AcceptedRequest, here: Deferrals, ids: list[int], result: object, error: str) -> None:
        here.cancelling.difference_update(ids)
        if isinstance(result, GroupResult):
            accepted.answer(changed=result.of_part)
        else:
            accepted.refuse(error, retry=True)
