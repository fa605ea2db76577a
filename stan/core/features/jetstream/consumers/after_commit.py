"""Answers of acks, and advisories, which clients of the consumers of one group get once an entry is committed."""

from collections.abc import Sequence as Seq
from functools import partial

from stan_protocol.channels import publication
from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.runs import Run
from stan.core.base.shares import Shares
from stan.core.features.jetstream.consumers.advising import ConsumerAdvisories
from stan.core.leader.cursors import LiveCursor
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.leader.local_group import Leadership
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.protocol.jetstream.pulls import AckNumbers


class AfterCommit(LeaderPart):
    """Sends them behind the next entry of the group: its progress, with the acks in it, is written before any change."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.advisories, self._leaves = ConsumerAdvisories(services), services.leaves
        self.group.dispatch.redelivery.on_spent = self._spent
        self._synced: list[bytes] = []  # reply subjects of acks
        self._shares = Shares()  # of these
        self._stores = False  # an entry is about to be written

    def answer(self, live: LiveCursor, replies: Seq[bytes]) -> None:
        """Answer acks of a consumer; those for which there is no room are not, and their senders ask again."""
        user = self._leaves.of(live.cursor.user).user  # b"" without users
        replies = replies[: max(0, self._shares.left(user, limits.STREAM_CONSUMER_SYNCED_MAX))]
        if not replies:
            return
        self._synced += replies
        self._shares.add(user, len(replies))
        self.group.dispatch.reports.mark(live)  # they may be among acks that wait for more of them
        self._store_soon()

    def terminated(self, consumer: LiveConsumer, numbers: AckNumbers, reason: bytes) -> None:
        """Tell that a client does not want a message any more."""
        self.advisories.terminated(consumer, numbers, reason)
        self._store_soon()

    def _spent(self, consumer: LiveConsumer, run: Run) -> None:
        """Messages of a consumer were delivered as often as it allows."""
        self.advisories.spent(consumer, run)
        self._store_soon()

    def _store_soon(self) -> None:
        """Have an entry written in this turn, behind the progress of the group."""
        if not self._stores:
            self._stores = True
            self.at(self.node.clock.now, self._store)

    def _store(self, _now: Nanos) -> None:
        replies, self._synced, self._shares, self._stores = self._synced, [], Shares(), False
        advisories = self.advisories.take_waiting()
        if replies or advisories:
            self.change(partial(self._stored, replies, advisories))

    def _stored(self, replies: list[bytes], advisories: list[bytes], result: object, _error: str) -> None:
        if result is not None:
            self.outgoing.responses += [publication(reply, b"") for reply in replies]
            self.outgoing.responses += advisories
