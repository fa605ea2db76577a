"""Waiting until this node's copy of the metadata is as new as what its leader has told the world (DESIGN 5).

A client that the leader of the metadata has let in speaks at once to the leaders of channels, whose copies may lag behind. They
ask for the leader's applied index and wait until their own has reached it: one question for everything that waits meanwhile.

Promises: calls come in the order in which they were made, each once; `call(True)` when the copy is new enough, `call(False)` when
that could not be had in time. On a leader that knows that it still leads, and alone, at once.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from stan import limits
from stan.core.context import META_GROUP, BrokerContext
from stan.core.requests.pending_clients import PendingClients
from stan.protocol.frames import Sender
from stan.protocol.proto import entries_pb2 as pb
from stan.types import Nanos, RaftIndex

INDEX_DIGITS_MAX = 20


class _Waiting(NamedTuple):
    until: Nanos
    call: Callable[[bool], None]


class ReadIndex:
    """See the module's docstring."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self._round: list[_Waiting] = []  # wait for the answer under way
        self._later: list[_Waiting] = []  # came after that question
        self._question = 0  # number of the newest; what comes for an older one says nothing about this round
        self._target: RaftIndex | None = None  # the answer
        self._pending_clients = PendingClients(context) if context.config.partitioning else None

    def wait(self, call: Callable[[bool], None], publishers: Iterable[Sender] = ()) -> None:
        """See the module's docstring; *publishers*: who should be known then."""
        context = self.context
        if self._pending_clients is not None:
            self._pending_clients.wait(publishers, call)
            return
        if (not context.clustered or self._surely_leads) and not self._round:
            call(True)  # noqa: FBT003 - the answer
            return
        waiting = _Waiting(Nanos(context.clock.now + limits.CATCHUP_PATIENCE), call)
        if self._round:
            self._later.append(waiting)
        else:
            self._round = [waiting]
            self._ask()

    @property
    def _surely_leads(self) -> bool:
        """Whether this node leads the metadata and nobody else can by now."""
        return self.context.leads_meta and self.context.meta_lease

    def applied(self) -> None:
        """The metadata went on, or this node leads it now."""
        context = self.context
        if self._pending_clients is not None:
            self._pending_clients.applied()
        while self._round and (
            self._surely_leads or (self._target is not None and context.meta.applied >= self._target)
        ):
            done, self._round, self._later, self._target = self._round, self._later, [], None
            self._question += 1
            for waiting in done:
                waiting.call(True)  # noqa: FBT003
            if self._round and not self._surely_leads:
                self._ask()
                return

    def answer(self, reply: bytes) -> None:
        """Another node asks; only a leader that knows that it still leads may answer."""
        if self._surely_leads:
            self.context.respond(reply, b"%d" % self.context.meta.applied, (META_GROUP,))

    def _ask(self) -> None:
        context = self.context
        self._question += 1
        self._target = None
        body = pb.MetaChange().SerializeToString()
        answered = partial(self._answered, self._question)
        context.request(context.subjects.meta.encode(), limits.FORWARD_INTERVAL, answered, body)

    def _answered(self, question: int, answer: bytes | None) -> None:
        if question != self._question or not self._round:
            return
        if answer is not None and answer.isdigit() and len(answer) <= INDEX_DIGITS_MAX:
            self._target = RaftIndex(int(answer))
            self.applied()
            if question == self._question and self._round:
                self.context.timers.at(self._round[-1].until, partial(self._late, question))
        else:
            self._give_up()

    def _late(self, question: int, _now: Nanos) -> None:
        """The answer is known, and this copy did not get there."""
        if question == self._question and self._round:
            self._give_up()

    def _give_up(self) -> None:
        """Ask again, for those whose patience is not at its end."""
        now = self.context.clock.now
        late = [waiting for waiting in self._round if waiting.until <= now]
        self._round = [waiting for waiting in self._round if waiting.until > now]
        if not self._round:
            self._round, self._later = self._later, []
        if self._round:
            self._ask()
        for waiting in late:
            waiting.call(False)  # noqa: FBT003
