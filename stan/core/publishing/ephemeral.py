"""Ephemeral channels of the groups that this node leads: epochs are begun, and what is published is kept in memory.

    publish, subscription ─► no epoch of this leadership: propose one, and wait ─► applied: the channel is empty
    seal ─► EphemeralStores ─► cursors, acks under the lease                 sequences run out: propose more, and wait

Promises: nothing is sealed under a sequence that is not the epoch's by an applied entry which this leadership has proposed; an
ack leaves only while no other node can lead the group. Why: docs/decisions/0028.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from stan_protocol.ack_levels import AckLevel
from stan_protocol.frames import Publishes
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import ChannelUid, Nanos, Sequence, WallNanos

from stan import limits
from stan.core.base.names import text
from stan.core.base.ready import ReadResult
from stan.core.leader.ephemeral_messages import EphemeralMessages
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.core.state.ephemeral import BLOCK_BITS
from stan.core.state.group_state import GroupResult
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb

BODIES_OF, COUNT_OF = attrgetter("bodies"), attrgetter("count")
MORE_BEFORE: Final = 1 << BLOCK_BITS - 1
"""More sequences are proposed when an epoch has fewer than this left: long before they run out."""

Opened = Callable[[str], None]
"""Called with "", or with why the channel cannot be used now."""


class EphemeralChannels(LeaderPart):
    """The epochs of one group's ephemeral channels, and the messages in them, while this node leads the group."""

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels) -> None:
        super().__init__(services, leadership)
        self.channels = channels
        self._epochs: dict[ChannelUid, list[Opened]] = {}  # that are proposed, and who waits for them
        self._more: dict[ChannelUid, list[Opened]] = {}  # more sequences that are proposed, and who waits
        self._unsealed: set[ChannelUid] = set()  # channels whose messages wait for one of these

    # --- epochs -----------------------------------------------------------------------------------------------------------

    def open(self, channel: LiveChannel, opened: Opened) -> None:
        """Call *opened* once this node has begun an epoch of the channel, at once if it has; never if it leads no more."""
        if channel.info.uid in self.channels.stores.by_uid:
            opened("")
            return
        uid = channel.info.uid
        if uid in self._epochs:
            self._epochs[uid].append(opened)
        else:
            self._epochs[uid] = [opened]
            self._begin(channel)

    def waits(self, channel: LiveChannel) -> bool:
        """True if its messages wait for an epoch, or for more sequences: `wait` was called, and has not called back."""
        return channel.info.uid in self._unsealed

    def wait(self, channel: LiveChannel, opened: Opened) -> None:
        """Its messages wait: call *opened* once the channel has an epoch, or more sequences in it."""
        uid = channel.info.uid
        self._unsealed.add(uid)

        def goes_on(error: str) -> None:
            self._unsealed.discard(uid)
            opened(error)

        store = self.channels.stores.by_uid.get(uid)
        if store is None:
            self.open(channel, goes_on)
        else:
            self._need_more(channel, store)
            self._more[uid].append(goes_on)

    def _begin(self, channel: LiveChannel) -> None:
        epoch = pb.EphemeralEpoch(uid=channel.info.uid, at=self.node.clock.wall)
        done, in_doubt = partial(self._begun, channel), partial(self._in_doubt, channel)
        self.change(done, in_doubt, ephemeral_epoch=epoch)

    def _in_doubt(self, channel: LiveChannel) -> None:
        """Nobody knows whether the epoch begins: if this node leads the channel on, another one does."""
        uid = channel.info.uid

        def again(_now: Nanos) -> None:
            if self.channels.by_uid.get(uid) is not channel:  # it has left, and whoever waits with it
                self._epochs.pop(uid, None)
            elif uid in self._epochs:
                self._begin(channel)

        self.at(self.node.clock.now + limits.FORWARD_INTERVAL, again)

    def _begun(self, channel: LiveChannel, result: object, error: str) -> None:
        """The entry was applied, or is not written."""
        info = channel.info
        waiting = self._epochs.pop(info.uid, [])
        if isinstance(result, GroupResult):
            error = result.error
        if not error and self.channels.by_uid.get(info.uid) is channel:
            epoch = self.group.machine.epochs.of(info.uid)
            self.channels.keep_messages(channel, epoch)
            if epoch.number > 1:
                name = go_quote(text(info.name))
                self.reports.note(
                    "INF", f"Ephemeral channel {name} is empty: this node leads it now (epoch {epoch.number})"
                )
                self.reports.emit("channel_emptied", f"channel {name} is empty", channel=info.name, group=info.group)
        for opened in waiting:
            opened(error)

    def _need_more(self, channel: LiveChannel, store: EphemeralMessages) -> None:
        """Propose another block of sequences."""
        uid = channel.info.uid
        if uid in self._more:
            return
        self._more[uid] = []
        epoch = pb.EphemeralEpoch(uid=uid, more=store.epoch.number, block=store.epoch.block)
        done, in_doubt = partial(self._given, channel), partial(self._given, channel, None, "")
        self.change(done, in_doubt, ephemeral_epoch=epoch)

    def _given(self, channel: LiveChannel, result: object, error: str) -> None:
        """The entry was applied, or is not written, or nobody knows: who waits for sequences asks again, if there are too few."""
        info = channel.info
        waiting = self._more.pop(info.uid, [])
        store = self.channels.stores.by_uid.get(info.uid)
        if isinstance(result, GroupResult):
            error = result.error
            epoch = self.group.machine.epochs.of(info.uid)
            if store is not None and epoch.number == store.epoch.number:
                self.channels.stores.begin(info.uid, epoch)
        for opened in waiting:
            opened(error)

    # --- messages ---------------------------------------------------------------------------------------------------------

    def seal(self, channel: LiveChannel, batches: list[Publishes | RowBatch]) -> bool:
        """Give messages their sequences, keep them, and acknowledge them; there is an epoch. Returns False if it has too few
        sequences left: nothing was sealed."""
        info = channel.info
        stores, count = self.channels.stores, sum(map(COUNT_OF, batches))
        store, base = stores.by_uid[info.uid], channel.next_sequence
        left = store.epoch.last - base + 1
        if left < MORE_BEFORE + count:
            self._need_more(channel, store)
            if left < count:
                return False
        timestamp = WallNanos(max(self.node.clock.wall, channel.last_timestamp))
        records = kernel.seal(info.name, base, timestamp, [*map(BODIES_OF, batches)])
        first = self.channels.retention.first_after(channel, store, count, store.accounted(len(records), count))
        stores.add(info.uid, Sequence(base), count, timestamp, records)
        stores.trim(info.uid, first)
        channel.next_sequence, channel.last_timestamp = base + count, timestamp
        channel.idle_since = self.node.clock.now
        self._acknowledge(batches, base)
        if info.uid in self.outgoing.watched:
            self.outgoing.news.add(info.uid)
        dispatch = self.group.dispatch
        if dispatch.cursors.by_channel.get(info.uid):
            dispatch.committed(info.uid, ReadResult(base, count, records))
        self._make_room()
        return True

    def _acknowledge(self, batches: list[Publishes | RowBatch], base: int) -> None:
        acked = 0
        acks: list[bytes] = []
        for batch in batches:
            if isinstance(batch, RowBatch):
                batch.on_done(StoreResult(base, base + batch.count - 1, in_memory=True))
            else:
                found = batch.acks
                acks.append(kernel.number(found, batch.replied, base, AckLevel.MEMORY) if batch.numbered else found)
                acked += batch.count - (batch.replied.count(0) if batch.replied else 0)
            base += batch.count
        joined = b"".join(acks)
        if joined:
            self.outgoing.answer_as_leader(self.number, joined)
        self.reports.totals.acked_in_memory += acked

    def _make_room(self) -> None:
        uid = self.channels.stores.make_room()
        channel = None if uid is None else self.channels.by_uid.get(uid)
        if channel is not None and channel.info.uid not in self.channels.retention.warned:
            self.channels.retention.warned.add(channel.info.uid)
            self.reports.note(
                "WRN",
                f"Ephemeral channels of this node have more than {limits.EPHEMERAL_BYTES_MAX} bytes together: "
                f"the oldest messages of {go_quote(text(channel.info.name))} are dropped",
            )
