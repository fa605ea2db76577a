"""Descriptions of streams in answers: their configuration, and the state of their channels."""

from itertools import chain, islice
from typing import TYPE_CHECKING

from stan_protocol.scalars import WallNanos

from stan import limits
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.metadata.streams import Stream
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.services.node import Node
from stan.core.services.services import Services
from stan.core.state.tombstones import behind, deleted_from
from stan.protocol.jetstream.moments import shown_moment

if TYPE_CHECKING:
    from collections.abc import Callable


class StreamDescriptions:
    """Describes streams for answers."""

    def __init__(self, services: Services, policies: ChannelPolicies) -> None:
        self.leading, self.node, self.stored = services.leading, services.node, services.stored
        self.policies = policies
        self.count_consumers: Callable[[Stream], int] = lambda _stream: 0
        """The number of a stream's consumers; the room's consumers set it."""

    def holds(self, stream: Stream) -> bool:
        """True if this node has the messages of the stream's channel."""
        info = self.node.meta.by_uid.get(stream.uid)
        return info is not None and info.group in self.node.groups

    def state(self, stream: Stream) -> dict[str, object]:
        """The messages that the stream has, as far as this node knows; none if it does not have the channel."""
        info = self.node.meta.by_uid[stream.uid]
        if info.group not in self.node.groups:
            return _state(0, 0, 0, 0, 0, 0)
        index, deleted = self.stored.indexes(info.group, info.uid), self.stored.deleted(info.group, info.uid)
        last = index.last_sequence
        oldest = max(index.first_sequence, self.node.group_of(info).machine.channel(info.uid).first_sequence)
        first = min(behind(deleted, max(oldest, 1)), last + 1)
        count = last - first + 1 - deleted_from(deleted, first, last) if last else 0
        shown = self._shown(stream)
        if shown is not None and stream.config.history:  # compaction leaves gaps, and has not come to all of them
            count, first = shown[0], shown[1] or last + 1
        size, first_at = (index.bytes, index.first_timestamp) if count else (0, WallNanos(0))
        state = _state(count, size, first if last else 0, first_at, last, index.last_timestamp)
        if last and last - first + 1 > count:
            state["num_deleted"] = last - first + 1 - count
        if count and (stream.config.is_literal or shown is not None):
            state["num_subjects"] = 1 if shown is None else shown[2]
        return state | {"consumer_count": self.count_consumers(stream)}

    def _shown(self, stream: Stream) -> tuple[int, int, int] | None:
        """The messages of all subjects that are there, see `SubjectIndex.counts`; None if this node does not know them now."""
        info = self.node.meta.by_uid[stream.uid]
        reading = self.leading.part(info.group, StreamReading)
        known = None if reading is None or stream.config.is_literal else reading.current(stream)
        if known is None or known.overfull or reading is None:
            return None
        first, removed = reading.removals(stream)
        return known.counts(first, reading.is_there(stream), removed=removed > 0)

    def deleted(self, stream: Stream) -> list[int]:
        """The sequences of the stream that were deleted one by one, the first STREAM_DETAILS_MAX of them."""
        info = self.node.meta.by_uid[stream.uid]
        index, runs = self.stored.indexes(info.group, info.uid), self.stored.deleted(info.group, info.uid)
        first = behind(runs, max(index.first_sequence, 1))
        within = runs.within(first, index.last_sequence) if runs is not None else []
        each = chain.from_iterable(range(run.first, run.last + 1) for run in within)
        return [*islice(each, limits.STREAM_DETAILS_MAX)]

    def _config(self, stream: Stream) -> dict[str, object]:
        """The configuration, with the limits that are in force: those of the channel where the stream sets none."""
        told = stream.config.document()
        if self.holds(stream):
            room = self.policies.room_of(self.node.meta.by_uid[stream.uid])
            told |= {"max_msgs": room.msgs or -1, "max_bytes": room.bytes or -1}
            told["max_age"] = stream.config.max_age if stream.config.expires else room.age_ns
        return told

    def document(self, stream: Stream) -> dict[str, object]:
        """A stream in an answer, its state included."""
        return {
            "config": self._config(stream),
            "created": shown_moment(stream.created),
            "state": self.state(stream),
            "cluster": cluster_of(self.node),
            "ts": shown_moment(self.node.clock.wall),
        }


def cluster_of(node: Node) -> dict[str, object]:
    """The cluster and the node that answers: the leader of the channel's group, or of the metadata."""
    name = node.config.cluster_id
    return {"name": name, "leader": node.name or name} if node.clustered else {"leader": name}


def _state(count: int, size: int, first: int, first_at: int, last: int, last_at: int) -> dict[str, object]:
    return {
        "messages": count,
        "bytes": size,
        "first_seq": first,
        "first_ts": shown_moment(first_at),
        "last_seq": last,
        "last_ts": shown_moment(last_at),
        "consumer_count": 0,
    }
