"""Requests to change what an ack of a channel's publishes means, answered by the leader of the metadata: a channel without
messages is moved to a group of that kind (docs/decisions/0025).

Promises: of a channel that has messages nothing changes, whenever they came; the leader of its group looks last, when the channel
is held for the move (`MoveSource`). The answer names everything that stands in the way at once.
"""

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import EPHEMERAL_FROM_START, NOT_A_CLUSTER, UNKNOWN_CHANNEL, go_quote
from stan_protocol.scalars import GroupId

from stan.core.base.names import text
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.features.moves.target import ANSWER_PATIENCE
from stan.core.metadata.meta import ChannelInfo
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.policies import EPHEMERAL, GROUP_COMMITS
from stan.protocol.proto import entries_pb2 as entries

UNKNOWN_COMMIT = refusals.UNKNOWN_COMMIT.format(", ".join(GROUP_COMMITS))
NO_GROUPS = "there is no group for channels with commit {0}: stan cluster grow --commit {0}"
EACH_PART = refusals.COMMIT_REFUSED.format("channel {} has parts: change each of them")
WAS_IN_ALL = "the channel was in each group for channels with commit {} before, and cannot come back to one"
PINNED = "channel {} is pinned to group {}, which is not for that: take the pin back"
PLACED_WITH = "channel {} is kept where channel {} is: change that one"


class CommitRequests:
    """Handles operators' requests to change the commit of a channel."""

    def __init__(self, services: Services, moves: ChannelMoves) -> None:
        self.nats, self.node, self.placement = services.nats, services.node, services.placement
        self.requests = services.requests
        self.moves = moves

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {"admin.change_commit": self._change}

    def _change(self, accepted: AcceptedRequest) -> None:
        request = accepted.request
        info = self.node.meta.channels.get(request.channel)
        if not self.node.clustered:
            accepted.refuse(NOT_A_CLUSTER)
        elif request.commit == EPHEMERAL or (info is not None and info.is_ephemeral):
            accepted.refuse(EPHEMERAL_FROM_START)
        elif request.commit >= len(GROUP_COMMITS):
            accepted.refuse(UNKNOWN_COMMIT)
        elif self.node.meta.info is None:
            accepted.busy()
        elif info is None:
            parted = self.node.meta.channels.parted.by_name.get(request.channel)
            accepted.refuse(UNKNOWN_CHANNEL if parted is None else EACH_PART.format(go_quote(text(request.channel))))
        elif self._is_that(info, request.commit):
            accepted.answer(changed=0)
        else:
            self._ask(accepted, info)

    def _is_that(self, info: ChannelInfo, commit: int) -> bool:
        """True if the channel has that commit, or is being moved to get it."""
        return self.node.meta.commit_of(info.moving_to or info.group) == commit

    def _ask(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Ask the leader of the channel's group whether there are messages."""
        to, complaints = self._target(info, accepted.request)

        def answered(payload: bytes | None) -> None:
            try:
                answer = None if payload is None else entries.MoveAnswer.FromString(payload)
            except DecodeError:
                answer = None
            if answer is None:
                accepted.busy()
                return
            found = [*filter(None, (answer.waits_for,)), *complaints]
            if found:
                accepted.refuse(refusals.COMMIT_REFUSED.format("; ".join(found)))
            else:
                self._begin(accepted, info, to)

        body = entries.MoveQuestion(uid=info.uid).SerializeToString()
        subject = self.nats.subjects.moves.encode()
        self.requests.send(accepted.border, subject, ANSWER_PATIENCE, answered, body)

    def _target(self, info: ChannelInfo, request: pb.ChangeCommitRequest) -> tuple[GroupId, list[str]]:
        """The group for the channel, 0 if there is none, and what stands in the way besides messages."""
        name = go_quote(text(info.name))
        word, found = GROUP_COMMITS[request.commit], []
        everywhere = map(GroupId, range(1, self.placement.pool_open + 1))
        groups = [one for one in everywhere if self.node.meta.commit_of(one) == request.commit]
        free = [one for one in groups if one not in info.left]
        if not free:
            found.append(WAS_IN_ALL.format(word) if groups else NO_GROUPS.format(word))
        if (pin := self.node.meta.pins.get(info.name, GroupId(0))) and self.node.meta.commit_of(pin) != request.commit:
            found.append(PINNED.format(name, pin))
        if (placed_by := self.placement.placed_by(info.name)) != info.name and placed_by in self.node.meta.channels:
            found.append(PLACED_WITH.format(name, go_quote(text(placed_by))))
        home = self.placement.hashed(info.name, request.commit, self.placement.pool_open)
        return (home if home in free else free[0] if free else GroupId(0)), found

    def _begin(self, accepted: AcceptedRequest, info: ChannelInfo, to: GroupId) -> None:
        def begun(error: str, retry: bool) -> None:  # noqa: FBT001 - as Begun has it
            if error:
                accepted.refuse(error, retry=retry)
            else:
                accepted.answer(changed=1)

        if self.node.meta.by_uid.get(info.uid) is info:
            self.moves.begin(info, to, begun)
        else:
            accepted.refuse(refusals.BUSY, retry=True)
