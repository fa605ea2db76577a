"""Streams whose messages go with their acks, on the leader of their group.

    work queue: acks ─► one removal of everything that was acked meanwhile ─► committed ─► settled, gone from the stream, answered
    interest:   positions of all consumers, as the log has them ─► now and then: one removal of everything up to the slowest one

Promises of work queues: a message is removed only if it was sent to the consumer that acks it, and is not settled; the entry that
removes it is its ack, so that no crash leaves one without the other. Where it cannot be removed, as the stream has too many gaps,
it is settled, and stays. No two consumers of a work queue get the same message.
Promises of interest: a message goes only when every consumer that is there has settled or passed it, by committed entries;
without a consumer everything goes. A message that is stored behind the entry of a consumer goes to it.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import partial

from stan_protocol.channels import publication
from stan_protocol.patterns import overlap
from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.base.runs import Run, Runs
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.local_group import Leadership
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.core.state.consuming import cursor_of_consumer
from stan.core.state.group_state import GroupResult
from stan.core.state.tombstones import behind
from stan.protocol.jetstream import consumer_errors as errors
from stan.protocol.jetstream.consumers import ALL, EXPLICIT, NO_ACKS, ConsumerConfig
from stan.protocol.jetstream.errors import UNAVAILABLE, ApiError
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class _Acked:
    """Acks of the consumers of one stream that wait for the next removal."""

    runs: Runs = field(default_factory=Runs)
    by_member: list[tuple[LiveMember, list[tuple[int, int]]]] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)


class WorkQueues(LeaderPart):
    """The work queues of one group, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels) -> None:
        super().__init__(services, leadership)
        self.tiers = channels.policies.tiers
        self.making: set[ChannelUid] = set()  # streams of which a consumer is being made
        self._waiting: dict[ChannelUid, _Acked] = {}
        self._under_way: set[ChannelUid] = set()  # streams whose removal is on its way into the log

    # --- consumers ----------------------------------------------------------------------------------------------------

    def refusal(self, uid: ChannelUid, config: ConsumerConfig) -> ApiError | None:
        """Why a work queue cannot have one more consumer; None if it can."""
        if config.ack_policy != EXPLICIT:
            without = config.ack_policy == NO_ACKS and not config.pushes
            return errors.PULL_WITHOUT_ACKS if without else errors.QUEUE_WITHOUT_ACKS
        if uid in self.making:
            return UNAVAILABLE
        for other in self.group.machine.consumers.of(uid).values():
            if not config.filters:
                return errors.QUEUE_HAS_CONSUMER
            if not other.config.filters or any(
                overlap(own, theirs) for own in config.filters for theirs in other.config.filters
            ):
                return errors.QUEUE_FILTERS_OVERLAP
        return None if config.deliver_policy == ALL else errors.QUEUE_DELIVERS_ALL

    # --- acks ---------------------------------------------------------------------------------------------------------

    def acked(self, live: LiveCursor, member: LiveMember, ranges: Seq[tuple[int, int]], replies: Seq[bytes]) -> bool:
        """Remove what a consumer has acked; *replies*: where its clients want to hear of it. Returns False if all of it is
        settled already."""
        found = [piece for first, last in ranges for piece in _unsettled(live, first, last)]
        doubtful = [piece for first, last in ranges for piece in _doubtful(live, first, last)]
        if doubtful and member.consumer is not None and member.consumer.filters:
            replies = ()  # they may be others' messages: the consumer gets them again, if they are its own
        else:
            found += doubtful
        if not found:
            return bool(doubtful)
        uid = live.cursor.uid
        acked = self._waiting.setdefault(uid, _Acked())
        for first, last in found:
            acked.runs.merge(Run(first, last))
        acked.by_member.append((member, found))
        if len(acked.replies) < limits.STREAM_CONSUMER_SYNCED_MAX:
            acked.replies += replies
        if uid not in self._under_way:
            self._under_way.add(uid)
            self.at(self.node.clock.now, partial(self._remove, uid))
        return True

    def _remove(self, uid: ChannelUid, _now: Nanos) -> None:
        acked = self._waiting.pop(uid, None)
        if acked is None:
            self._under_way.discard(uid)
            return
        removal = pb.Removal(uid=uid, deleted=acked.runs.flat())
        done = partial(self._removed, uid, acked)
        self.change(done, partial(done, None, ""), removal=self.tiers.tell(removal))

    def _removed(self, uid: ChannelUid, acked: _Acked, result: object, _error: str) -> None:
        """Acked messages are gone, or cannot go now. If nobody knows, or the channel is moved, they come again."""
        now, wall = self.node.clock.now, self.node.clock.wall
        if isinstance(result, GroupResult) and result.error:
            for member, ranges in acked.by_member:
                self.group.dispatch.acks.ack(member.sub.ack_place, ranges, now, wall)
            if acked.replies:
                self.change(partial(self._answer, acked.replies))
        else:
            self._answer(acked.replies, result, "")
        self._remove(uid, now)

    def _answer(self, replies: list[bytes], result: object, _error: str) -> None:
        if result is not None:
            self.outgoing.responses += [publication(reply, b"") for reply in replies]


class InterestStreams(LeaderPart):
    """The streams with retention by interest of one group, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels) -> None:
        super().__init__(services, leadership)
        self.tiers = channels.policies.tiers
        self._armed = False
        self._under_way: set[ChannelUid] = set()  # streams whose removal is on its way into the log

    def refresh(self) -> None:
        """Streams may have come or changed: look at those of this group from now on, if there are any."""
        if not self._armed and any(map(self._is_mine, self.node.meta.streams.by_uid.values())):
            self._armed = True
            self.at(self.node.clock.now + limits.INTEREST_INTERVAL, self._look)

    def took_over(self, uid: ChannelUid) -> None:  # noqa: ARG002 - as LeaderPart has it
        """The group has taken a channel over from another one."""
        self.refresh()

    def _is_mine(self, stream: Stream) -> bool:
        info = self.node.meta.by_uid.get(stream.uid)
        return stream.config.by_interest and info is not None and info.group == self.number

    def _look(self, _now: Nanos) -> None:
        self._armed = False
        for stream in filter(self._is_mine, [*self.node.meta.streams.by_uid.values()]):
            self._remove_passed(stream.uid)
        self.refresh()

    def _remove_passed(self, uid: ChannelUid) -> None:
        """Remove the messages that all consumers of a stream have passed."""
        machine, index = self.group.machine, self.stored.indexes(self.number, uid)
        if uid in self._under_way or self.group.is_held(uid):
            return
        positions = [cursor_of_consumer(machine, uid, name).floor for name in machine.consumers.of(uid)]
        passed = min(positions, default=index.last_sequence)
        passed = min(passed, index.last_sequence)
        first = max(1, index.first_sequence, machine.first_sequence(uid))
        oldest = behind(self.stored.deleted(self.number, uid), first)
        if passed < oldest:
            return
        self._under_way.add(uid)
        removal = self.tiers.tell(self.tiers.purge(uid, oldest, passed))
        over = partial(self._under_way.discard, uid)
        self.change(lambda _result, _error: over(), over, removal=removal)


def _unsettled(live: LiveCursor, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The messages of [first, last] that were sent to a consumer and are not settled."""
    for runs in live.pending.everywhere:
        yield from ((run.first, run.last) for run in runs.within(first, last))


def _doubtful(live: LiveCursor, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The messages of [first, last] that an earlier leader may have sent, and nobody knows."""
    begin, end = max(first, live.last_sent + 1), min(last, live.ahead.maybe_sent_until)
    if begin <= end:
        yield begin, end
