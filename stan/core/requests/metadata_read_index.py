"""Read index: wait until this node's copy of the metadata is as new as anything its leader has answered (DESIGN 5).

A client that the metadata's leader has just registered talks at once to the leaders of channels, whose copies of the metadata may
lag. They ask the metadata's leader for its applied index and wait until their copy has reached it: one question serves all calls
that wait meanwhile.

Promises: callbacks run in the order of the calls, each once; `call(True)` when the copy is new enough, `call(False)` when that
did not succeed in time. On a leader that holds its lease, and on a node alone, they run at once.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from stan_protocol.frames import Sender
from stan_protocol.scalars import GroupId, Nanos, RaftIndex

from stan import limits
from stan.core.requests.pending_clients import PendingClients
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services

INDEX_DIGITS_MAX = 20


class _Waiting(NamedTuple):
    until: Nanos
    call: Callable[[bool], object]


class MetadataReadIndex:
    """Callbacks that wait for a copy of the metadata that is new enough, served in rounds of one question each."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading = services.faults, services.leading
        self.nats, self.node = services.nats, services.node
        self.outgoing, self.requests, self.timers = services.outgoing, services.requests, services.timers
        self._round: list[_Waiting] = []  # wait for the current question
        self._later: list[_Waiting] = []  # came after that question was sent
        self._question = 0  # number of the current question; answers to older ones are ignored
        self._target: RaftIndex | None = None  # the answer: the index that this copy has to reach
        self._pending_clients = PendingClients(services) if services.node.config.partitioning else None

    def wait(self, call: Callable[[bool], None], group: GroupId, publishers: Iterable[Sender] = ()) -> None:
        """Call *call* once for *group*: True when this copy of the metadata is new enough, False if that did not succeed in time.
        *publishers*: the senders that should be registered by then; used only by servers that share a cluster's channels."""
        if self._pending_clients is not None:
            self._pending_clients.wait(publishers, call, group)
            return
        if (not self.node.clustered or self._surely_leads) and not self._round:
            call(True)  # noqa: FBT003 - the answer
            return
        until = Nanos(self.node.clock.now + limits.CATCHUP_PATIENCE)
        waiting = _Waiting(until, self.faults.bound(group, call))
        if self._round:
            self._later.append(waiting)
        else:
            self._round = [waiting]
            self._ask()

    @property
    def _surely_leads(self) -> bool:
        """True if this node leads the metadata and holds the lease, so that no other node can lead it."""
        return self.node.leads_meta and self.leading.meta_lease

    def applied(self) -> None:
        """A metadata entry was applied, or this node leads the metadata from now on: run the callbacks that are due."""
        if self._pending_clients is not None:
            self._pending_clients.applied()
        while self._round and (
            self._surely_leads or (self._target is not None and self.node.meta.applied >= self._target)
        ):
            done, self._round, self._later, self._target = self._round, self._later, [], None
            self._question += 1
            for waiting in done:
                waiting.call(True)  # noqa: FBT003
            if self._round and not self._surely_leads:
                self._ask()
                return

    def answer(self, reply: bytes) -> None:
        """Answer another node with the applied index; only a leader that holds its lease may answer."""
        if self._surely_leads and self.leading.concerns(META_GROUP):
            self.outgoing.respond(reply, b"%d" % self.node.meta.applied, (META_GROUP,))

    def _ask(self) -> None:
        self._question += 1
        self._target = None
        answered = partial(self._answered, self._question)
        self.requests.send(META_GROUP, self.nats.subjects.read_index.encode(), limits.FORWARD_INTERVAL, answered)

    def _answered(self, question: int, answer: bytes | None) -> None:
        if question != self._question or not self._round:
            return
        if answer is not None and answer.isdigit() and len(answer) <= INDEX_DIGITS_MAX:
            self._target = RaftIndex(int(answer))
            self.applied()
            if question == self._question and self._round:
                self.timers.at(self._round[-1].until, partial(self._late, question), META_GROUP)
        else:
            self._give_up()

    def _late(self, question: int, _now: Nanos) -> None:
        """The target is known, but this copy of the metadata did not reach it in time."""
        if question == self._question and self._round:
            self._give_up()

    def _give_up(self) -> None:
        """Call those whose time is over with False, and ask again for the others."""
        now = self.node.clock.now
        late = [waiting for waiting in self._round if waiting.until <= now]
        self._round = [waiting for waiting in self._round if waiting.until > now]
        if not self._round:
            self._round, self._later = self._later, []
        if self._round:
            self._ask()
        for waiting in late:
            waiting.call(False)  # noqa: FBT003
