"""A request to stage rows, from its arrival to its answer."""

from dataclasses import dataclass, field

from stan_protocol import refusals
from stan_protocol.proto import extension_pb2 as ext

from stan import limits
from stan.core.features.transactions.waiting_commit import is_app
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.row_batch import refusal, sealed_size
from stan.core.requests.request import AcceptedRequest
from stan.core.services.leading import LED_ELSEWHERE


@dataclass(slots=True, eq=False)
class WaitingStage:
    """A StageRequest: the rows that it has for channels of this group, and which of these channels are open."""

    accepted: AcceptedRequest
    rows: dict[bytes, ext.StagedRows]  # by channel of this group; the one that the request is placed by comes first
    elsewhere: dict[
        bytes, int
    ]  # channels that it names, and that belong to other groups; 0: nobody's, or another server's
    channels: dict[bytes, LiveChannel] = field(default_factory=dict)  # opened so far
    over: bool = False  # it was answered

    def refuse(self, name: bytes, error: str, *, retry: bool = False) -> None:
        """Answer with an error of a channel, unless another node answers."""
        self.over = True
        if error == LED_ELSEWHERE and name != self.accepted.name:
            self.accepted.busy()  # nobody else answers for the others
        else:
            self.accepted.refuse(error, retry=retry)

    def confirm(self) -> None:
        """Answer that the rows are staged."""
        self.over = True
        answer = ext.StageResponse()
        for name, group in self.elsewhere.items():
            answer.elsewhere.add(channel=name, group=group)
        if self.accepted.request.more:
            answer.group = self.accepted.number
        self.accepted.answer_with(answer)


def waiting_stage(accepted: AcceptedRequest) -> WaitingStage | str:
    """Return the rows that a request wants to be staged; or why it is invalid, whatever its channels are."""
    request, services = accepted.request, accepted.services
    if len(request.more) >= limits.STAGE_CHANNELS_MAX:
        return refusals.TOO_MANY_STAGED.format(limits.STAGE_CHANNELS_MAX)
    first = ext.StagedRows(channel=request.channel, part=request.part, count=request.count, rows=request.rows)
    rows = {each.channel: each for each in (first, *request.more)}
    if (
        not is_app(request.app)
        or not 0 < len(request.txn) <= limits.TXN_BYTES_MAX
        or request.version < 0
        or len(rows) <= len(request.more)
    ):
        return refusals.INVALID_TRANSACTION
    size = 0
    for name, each in rows.items():
        packed = each.rows  # reading it makes a copy
        if error := refusal(name, packed, each.count, services.nats.message_payload_max(name)):
            return error
        size += sealed_size(name, len(packed), each.count)
    if size > limits.ROWS_BYTES_MAX:
        return refusals.TOO_MANY_ROWS
    groups = {name: services.placement.group_number(name) for name in rows}
    here = {name: one for name, one in rows.items() if name == request.channel or groups[name] == accepted.number}
    return WaitingStage(accepted, here, {name: max(groups[name], 0) for name in rows if name not in here})
