"""Requests about channels with parts, answered by the leader of the metadata: make one, delete one, list them."""

from stan_protocol import refusals
from stan_protocol.channels import part_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import DOUBLED_ALREADY, HAS_NO_PARTS, HAS_OTHER_PARTS, PART_MOVING, go_quote

from stan import limits
from stan.core.base.names import text
from stan.core.metadata.parted import NOT_THAT_MANY_PARTS, Parted, doubling_refusal, refusal
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.policies import EPHEMERAL
from stan.protocol.proto import entries_pb2 as entries

PASSING = (refusals.CHANNEL_DELETING, DOUBLED_ALREADY, PART_MOVING)


class PartRequests:
    """Handles requests about channels with parts."""

    def __init__(self, services: Services) -> None:
        self.nats, self.node, self.placement = services.nats, services.node, services.placement

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request of operators, by name."""
        return {
            "parts": self.listed,
            "admin.create_parts": self._create,
            "admin.delete_parts": self._delete,
            "admin.double_parts": self._double,
        }

    def _create(self, accepted: AcceptedRequest) -> None:
        request: pb.CreatePartsRequest = accepted.request
        meta, name = self.node.meta, go_quote(text(request.channel))
        known = meta.channels.parted.by_name.get(request.channel)
        if meta.info is None:
            accepted.busy()
        elif known is not None and known.row.dropping:
            accepted.refuse(refusals.CHANNEL_DELETING, retry=True)
        elif known is not None and (known.parts, known.row.key) != (request.parts, request.key):
            accepted.refuse(HAS_OTHER_PARTS.format(name, known.parts))
        elif known is not None:
            accepted.answer(changed=0)
        elif request.parts > limits.PARTS_MAX:
            accepted.refuse(NOT_THAT_MANY_PARTS)
        elif not self._owns_parts(request.channel, request.parts):
            accepted.refuse(refusals.PARTS_ELSEWHERE.format(text(request.channel)))
        elif self.placement.wanted_commit(request.channel) == EPHEMERAL:
            accepted.refuse(refusals.NOT_OF_EPHEMERAL.format(name, "parts"))
        else:
            create = self._change(request)
            error = refusal(create, meta.channels.parted, meta.channels.by_lower)
            if error:
                accepted.refuse(error)
            else:
                accepted.change_meta(lambda _result: {"changed": request.parts}, create_parted=create)

    def _owns_parts(self, channel: bytes, parts: int) -> bool:
        return all(self.placement.owns(part_name(channel, number)) for number in range(parts))

    def _change(self, request: pb.CreatePartsRequest) -> entries.CreateParted:
        return entries.CreateParted(
            name=request.channel,
            key=request.key,
            groups=[self.placement.home(part_name(request.channel, number)) for number in range(request.parts)],
            channels_max=self.node.channels_max,
        )

    def _double(self, accepted: AcceptedRequest) -> None:
        request: pb.DoublePartsRequest = accepted.request
        meta = self.node.meta
        known = meta.channels.parted.by_name.get(request.channel)
        if meta.info is None:
            accepted.busy()
        elif request.parts > limits.PARTS_MAX:
            accepted.refuse(NOT_THAT_MANY_PARTS)
        elif known is not None and _is_repeated(known, request.parts):
            accepted.answer(changed=0)
        elif not self._owns_parts(request.channel, 2 * request.parts):
            accepted.refuse(refusals.PARTS_ELSEWHERE.format(text(request.channel)))
        else:
            change = entries.DoubleParted(
                name=request.channel,
                groups=[self._home_of_half(request, number) for number in range(request.parts)],
                channels_max=self.node.channels_max,
                at=self.node.clock.wall,
            )
            error = doubling_refusal(change, meta.channels.parted, meta.channels)
            if error:
                accepted.refuse(error, retry=error in PASSING)
            else:
                accepted.change_meta(lambda _result: {"changed": request.parts}, double_parted=change)

    def _home_of_half(self, request: pb.DoublePartsRequest, number: int) -> int:
        """The group of the part that takes half of the keys of part *number*: acks mean the same in both, whatever a policy
        says now."""
        there = self.node.meta.channels.get(part_name(request.channel, number))
        name = part_name(request.channel, request.parts + number)
        if there is None or name in self.node.meta.pins:
            return self.placement.home(name)
        return self.placement.hashed(name, self.node.meta.commit_of(there.group), self.placement.pool_open)

    def _delete(self, accepted: AcceptedRequest) -> None:
        channel = accepted.request.channel
        known = self.node.meta.channels.parted.by_name.get(channel)
        if self.node.meta.info is None:
            accepted.busy()
        elif known is None:
            accepted.refuse(HAS_NO_PARTS.format(go_quote(text(channel))))
        elif known.row.dropping:
            accepted.answer(changed=0)
        else:
            accepted.change_meta(lambda _result: {"changed": known.parts}, drop_parted=entries.DropParted(name=channel))

    def listed(self, accepted: AcceptedRequest) -> None:
        """A PartsRequest."""
        request: pb.PartsRequest = accepted.request
        by_name, response = self.node.meta.channels.parted.by_name, pb.PartsResponse()
        names = [name for name in sorted(by_name) if name > request.after and request.channel in (b"", name)]
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for name in names[: min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)]:
            found = by_name[name]
            shown = pb.PartedStatus(
                channel=name,
                parts=found.parts,
                key=found.row.key,
                deleting=found.row.dropping,
                doubling=found.row.doubling > 0,
                splits=[pb.PartSplitStatus(parts=split.parts, last=split.last) for split in found.row.splits],
            )
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.channels:
                break
            response.channels.append(shown)
        response.more = len(response.channels) < len(names)
        accepted.answer_with(response)


def _is_repeated(known: Parted, parts: int) -> bool:
    """Whether a channel that had so many *parts* is being doubled, or has just been: the answer to the first request was lost."""
    before = known.row.splits[-1].parts if known.row.splits else 0
    return known.parts == parts if known.row.doubling else known.parts == 2 * parts and before == parts
