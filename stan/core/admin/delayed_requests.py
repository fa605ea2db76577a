"""Operators' requests about delayed messages, those that wait for a time which their publishers have told: listed and cancelled.

Promises: a message that was cancelled, as the answer counts it, is never delivered; one that is on its way is not counted.
"""

from functools import partial
from itertools import islice

from stan import limits
from stan.core.context import BrokerContext
from stan.core.publishing.deferrals import Deferrals
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.state.deferred import Deferred
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo
from stan.errors import INVALID_ADMIN
from stan.protocol.proto import admin_pb2 as admin
from stan.protocol.proto import entries_pb2 as pb


class DelayedRequests:
    """Handles the requests `delayed` and `cancel_delayed`."""

    def __init__(self, context: BrokerContext, lookup: ChannelLookup) -> None:
        self.context = context
        self.lookup = lookup

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        existing = self.lookup.existing
        return {"delayed": existing(self._list), "cancel_delayed": existing(self._cancel)}

    def _list(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        request: admin.DelayedRequest = accepted.request
        deferred = accepted.group.machine.part(Deferred)
        page = min(request.max or limits.DELAYED_PAGE_MAX, limits.DELAYED_PAGE_MAX)
        found = [*islice(deferred.listed(info.uid, request.after), page + 1)] if info.uid in deferred.counts else []
        accepted.answer(
            messages=[admin.DelayedMessage(id=sequence, due=due) for _, sequence, due in found[:page]],
            waiting=deferred.counts.get(info.uid, 0),
            more=len(found) > page,
        )

    def _cancel(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        ids = {*accepted.request.ids}
        if not 0 < len(ids) <= limits.DELAYED_PAGE_MAX:
            accepted.refuse(INVALID_ADMIN)
            return
        here = self.context.kept(accepted.number, Deferrals)
        listed = accepted.group.machine.part(Deferred).listed(info.uid)
        places = [
            number
            for first, sequence, _ in listed
            if sequence in ids and sequence not in here.moving
            for number in (first, sequence)
        ]
        if not places:
            accepted.answer()
            return
        here.cancelling.update(places[1::2])
        done = partial(self._done, accepted, here, places[1::2])
        self.context.change_group(accepted.number, done, deferred_gone=pb.DeferredGone(places=places))

    def _done(self, accepted: AcceptedRequest, here: Deferrals, ids: list[int], result: object, error: str) -> None:
        here.cancelling.difference_update(ids)
        if isinstance(result, GroupResult):
            accepted.answer(changed=result.of_part)
        else:
            accepted.refuse(error, retry=True)
