"""Commits of staged rows, on the leader of the channels' group.

    request ─► decision (one entry) ─► one entry that refers to staged parts: they are batches of their channels where they lie

The group's machine decides when it applies the decision, in the order of the log: a leader proposes, and answers with the result.
The channels of a request that belong to one group are decided together, and their rows become visible together. What is decided
is carried out by whichever node leads. The CommitRequest is answered only when the commit is complete.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from stan_protocol import refusals
from stan_protocol.scalars import ChannelUid, Nanos, Sequence, WallNanos

from stan import limits
from stan.core.features.transactions.staging import PASSING
from stan.core.features.transactions.waiting_commit import WaitingCommit, waiting_commit
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.expiry_rows import expiring_change, expiry
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, Sealed, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.requests.request import AcceptedRequest
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.transactions import Decided, TransactionRefused, Transactions
from stan.protocol.entries import Reference, encode_references
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.staged import sealed_size


class Committing(StoringPart):
    """Proposes the commits of one group and carries them out, while this node leads it."""

    follows = frozenset({"commit", "drop_channel"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self._asked = defaultdict[int, list[WaitingCommit]](list)  # by decision, requests whose commit is under way
        self._on_their_way: set[int] = set()  # decisions whose rows are
        self._look_at = Nanos(0)
        if self._known.under_way:
            self._look_again(self.node.clock.now)

    @property
    def _known(self) -> Transactions:
        return self.group.machine.transactions

    # --- requests -----------------------------------------------------------------------------------------------------

    def commit(self, accepted: AcceptedRequest) -> None:
        """A CommitRequest."""
        waiting = waiting_commit(accepted)
        if isinstance(waiting, str):
            accepted.refuse(waiting)
            return
        for name in waiting.parts:
            if not waiting.over:
                self.channels.openings.open(name, partial(self._opened, waiting))

    def _opened(self, waiting: WaitingCommit, channel: LiveChannel | None, error: str) -> None:
        if waiting.over:
            return
        if channel is None:
            waiting.refuse(error, retry=error in PASSING)
            return
        waiting.channels[channel.info.uid] = channel
        if len(waiting.channels) < len(waiting.parts):
            return
        by_uid = self.channels.by_uid
        for uid, one in waiting.channels.items():  # those that were opened first may be gone, or in another group
            if by_uid.get(uid) is not one or one.closed or one.info.group != self.number:
                waiting.refuse(refusals.BUSY, retry=True)
                return
        self.change(partial(self._decided, waiting), commit=waiting.proposed(self.node.clock.wall))

    def _decided(self, waiting: WaitingCommit, result: object, error: str) -> None:
        outcome = result.of_part if isinstance(result, GroupResult) else TransactionRefused(error)
        if isinstance(outcome, Decided):
            waiting.already = outcome.already
            if outcome.decision:
                self._asked[outcome.decision].append(waiting)
            else:
                waiting.confirm(self._known)
            return
        why = outcome.error if isinstance(outcome, TransactionRefused) else refusals.BUSY
        for decision, commit in self._known.under_way.items() if why == refusals.BUSY else ():
            if waiting.repeats(commit):
                self._asked[decision].append(waiting)
                return
        waiting.refuse(why, retry=result is None or why == refusals.BUSY)

    def followed(self, change: pb.GroupChange) -> None:
        """A commit was decided, or a channel is gone: requests that wait for it are refused."""
        if change.HasField("commit"):
            self._carry_out()
            return
        uid = ChannelUid(change.drop_channel.uid)
        for decision, asked in self._asked.items():
            for waiting in [waiting for waiting in asked if uid in waiting.channels]:
                waiting.refuse(refusals.CHANNEL_DELETING, retry=True)
            self._asked[decision] = [waiting for waiting in asked if not waiting.over]

    # --- carrying out ---------------------------------------------------------------------------------------------------

    def _look_again(self, at: int) -> None:
        if self._look_at <= self.node.clock.now:
            self._look_at = Nanos(at)
            self.at(at, lambda _now: self._carry_out())

    def _carry_out(self) -> None:
        """Propose the rows of the commits under way. One with a channel that is being deleted, or that is not known to this copy
        of the metadata yet, is tried again later."""
        for decision, commit in self._known.under_way.items():
            if decision in self._on_their_way:
                continue
            found = [self.channels.by_uid.get(ChannelUid(share.uid)) for share in commit.channels]
            channels = [channel for channel in found if channel is not None and not channel.deleting]
            if len(channels) == len(found):
                self._propose(decision, commit, channels)
            else:
                self._look_again(self.node.clock.now + limits.COMMIT_RETRY)

    def _propose(self, decision: int, commit: pb.Commit, channels: list[LiveChannel]) -> None:
        entry, done = Sealed(self.leadership), pb.CommitDone(decision=decision)
        for channel, share in zip(channels, commit.channels, strict=True):
            first = channel.next_sequence
            self._refer(entry, channel, share.sequences)
            done.rows.add(uid=share.uid, first_sequence=first, last_sequence=channel.next_sequence - 1)
        change = pb.GroupChange(commit_done=done).SerializeToString()
        entry.rows.append((RowBatch(b"", 0, partial(self._stored, decision, channels), lambda _first: change), 0))
        self._on_their_way.add(decision)
        self.publishing.propose(entry)

    def _refer(self, entry: Sealed, channel: LiveChannel, sequences: Iterable[int]) -> None:
        """Put into *entry* that staged parts become batches of a channel."""
        info, wall, ttl = channel.info, self.node.clock.wall, self.channels.policies.ttls.get(channel.info.uid)
        timestamp, expires = max(wall, channel.last_timestamp), expiry(wall, ttl) if ttl else 0
        begin = base = channel.next_sequence
        parts = []
        for part in [self._known.staged[sequence] for sequence in sequences]:
            parts.append((part, base, sealed_size(info.name, part.bytes, part.count, base, timestamp, expires)))
            base += part.count
        index = self.stored.indexes(info.group, info.uid)
        size = index.accounted(sum(size for *_, size in parts), base - begin)
        first = Sequence(self.channels.retention.first_after(channel, index, base - begin, size))
        if change := self.channels.retention.limits_of_compacted(info, index, first):
            entry.rows.append((change, begin))
        entry.parts += encode_references(
            Reference(
                *(info.uid, Sequence(at), part.count, WallNanos(timestamp), first),
                *(Sequence(part.sequence), of_part, expires),
            )
            for part, at, of_part in parts
        )
        if expires:
            listed = partial(expiring_change, info.uid, [0, base - begin - 1], [expires])
            entry.rows.append((RowBatch(b"", 0, lambda _stored: None, listed), begin))
        self.publishing.reserve(channel)
        self.publishing.add_to(entry, channel, base, size)
        channel.last_timestamp, channel.idle_since = timestamp, self.node.clock.now

    def _stored(self, decision: int, channels: list[LiveChannel], stored: StoreResult) -> None:
        self._on_their_way.discard(decision)
        for channel in channels:
            self.publishing.release(channel)
        if stored.error:
            self._look_again(self.node.clock.now + limits.COMMIT_RETRY)
        for waiting in self._asked.pop(decision, ()):
            if stored.error:
                waiting.refuse(stored.error, retry=True)
            else:
                waiting.confirm(self._known)
