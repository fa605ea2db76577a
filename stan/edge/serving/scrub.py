"""Scrub: a node reads its own copy of a channel from disk and reports its findings (`.admin.verify`).

    request for this node ─► look-up in the index ─► the disk, off the loop ─► count, CRC-32, damage ─► answer

Promises: an answer covers a bounded number of bytes and has the beginning of the next request; no batch comes from a cache of
this process; damage is reported with file and position, and reading goes on after it; the event loop does no work per message.
"""

import zlib
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from stan_protocol import fetches
from stan_protocol.fetches import FetchedBatch
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import INVALID_ADMIN, UNKNOWN_CHANNEL
from stan_protocol.scalars import GroupId, Sequence

from stan import limits
from stan.core.base.names import shown
from stan.core.broker.broker import Broker
from stan.core.metadata.meta import ChannelInfo
from stan.core.requests.request import AcceptedRequest
from stan.edge.batch_lookup import LOOKUP_ATTEMPTS
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.errors import Damage
from stan.log.types import BatchRef, GroupLog, StaleRef
from stan.raft.consensus import Consensus


class Scrubber:
    """Serves the `.admin.verify` requests for this node. *node*: its name; "" outside of a cluster."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, Consensus],
        gateway: Gateway,
        runtime: Runtime,
        node: str,
    ) -> None:
        self._view = broker.view
        self._groups = groups
        self._gateway = gateway
        self._runtime = runtime
        self._node = node
        self._under_way = 0
        gateway.serve("admin.verify", self._on_request)

    def _on_request(self, accepted: AcceptedRequest) -> None:
        request = accepted.request
        if not 0 < getattr(request, "from") <= request.to:
            accepted.refuse(INVALID_ADMIN)
        elif self._under_way >= limits.VERIFIES_UNDER_WAY_MAX:
            accepted.busy()
        else:
            self._look_up(accepted, 1)

    def _look_up(self, accepted: AcceptedRequest, attempt: int) -> None:
        request: pb.VerifyRequest = accepted.request
        info = self._view.meta.channels.get(request.channel)
        if info is None or request.uid not in (0, info.uid):
            accepted.refuse(UNKNOWN_CHANNEL, retry=True)  # here: the metadata may not have come yet
            return
        group = self._groups.get(info.group)
        if group is None:
            accepted.busy()  # the channel is being taken over
            return
        scrub = Scrub(group.log, request, self._range(info, group.log, request))
        self._under_way += 1
        self._runtime.work(scrub.run, partial(self._scrubbed, accepted, scrub, attempt))

    def _range(self, info: ChannelInfo, log: GroupLog, request: pb.VerifyRequest) -> "ScrubRange":
        index = log.channel(info.uid)
        response = pb.VerifyResponse(
            node=self._node,
            group=info.group,
            uid=info.uid,
            first_sequence=index.first_sequence,
            last_sequence=index.last_sequence,
            crc=request.crc,
        )
        first = Sequence(max(getattr(request, "from"), index.first_sequence))
        last = Sequence(min(request.to, index.last_sequence))
        room = limits.VERIFY_BYTES_MAX
        refs = index.refs(first, last, room, limits.FETCH_BATCHES_MAX) if first <= last else []
        response.next_sequence = max(getattr(request, "from"), last + 1)
        return ScrubRange(response, first, last, refs)

    def _scrubbed(self, accepted: AcceptedRequest, scrub: "Scrub", attempt: int, problem: Exception | None) -> None:
        self._under_way -= 1
        if isinstance(problem, StaleRef) and attempt < LOOKUP_ATTEMPTS:
            self._look_up(accepted, attempt + 1)
        elif problem is not None:
            accepted.busy()
        else:
            for one in scrub.response.damaged:
                channel = shown(accepted.request.channel)
                self._gateway.complain("ERR", f"Verifying channel {channel}: {one.text}")
            accepted.answer_with(scrub.response)


class ScrubRange(NamedTuple):
    """The batches to read, of which only the messages [first, last] count, and the response so far."""

    response: pb.VerifyResponse
    first: Sequence
    last: Sequence
    refs: list[BatchRef]


class Scrub:
    """The reading of one range, for a worker thread; `response` is complete after `run`."""

    def __init__(self, log: GroupLog, request: pb.VerifyRequest, range_: ScrubRange) -> None:
        self._log = log
        self._crc = request.crc
        self._compared_from = request.compared_from
        self._range = range_
        self.response: pb.VerifyResponse = range_.response

    def run(self) -> None:
        """Read the batches and count their messages. Raises StaleRef if a batch has moved: look the range up again."""
        range_, response, crc = self._range, self.response, self._crc
        for ref in range_.refs:
            end = ref.base_sequence + ref.count
            if end <= range_.first:
                continue
            try:
                records = self._log.read(ref, stored=True)
                batch = FetchedBatch(ref.base_sequence, ref.count, ref.timestamp, records)
                part = fetches.cut(batch, range_.first, range_.last, ref.count, len(records))
            except StaleRef:
                raise
            except (Damage, ValueError) as damage:
                first, last = max(ref.base_sequence, range_.first), min(end - 1, range_.last)
                response.damaged.add(first_sequence=first, last_sequence=last, text=str(damage))
                if len(response.damaged) >= limits.VERIFY_DAMAGE_MAX:
                    response.next_sequence = last + 1
                    break
                continue
            if part.first < self._compared_from:
                part = fetches.cut(batch, max(range_.first, self._compared_from), range_.last, ref.count, len(records))
            response.messages += part.count
            response.bytes += len(part.records)
            crc = zlib.crc32(part.records, crc)
        else:
            if range_.refs:
                newest = range_.refs[-1]
                response.next_sequence = min(newest.base_sequence + newest.count - 1, range_.last) + 1
        response.crc = crc
