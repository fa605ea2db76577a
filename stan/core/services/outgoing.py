"""Everything that the parts of a broker want done or sent in this turn; the next Ready takes it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan_protocol.channels import publication
from stan_protocol.scalars import ChannelUid, GroupId, Sequence

from stan.core.base.ready import Fetch, LeafFrames, LeaseAnswer, Ready, Replay, WaitingAnswers
from stan.core.services.node import Node


@dataclass(slots=True)
class Outgoing:
    """Answers, reads and removals of this turn."""

    node: Node
    responses: list[bytes | LeaseAnswer | LeafFrames] = field(default_factory=list)
    pub_acks: list[bytes | LeaseAnswer] = field(default_factory=list)
    waiting: WaitingAnswers = field(default_factory=WaitingAnswers)  # for a lease
    trims: list[tuple[GroupId, ChannelUid, Sequence]] = field(default_factory=list)
    drops: list[tuple[GroupId, ChannelUid]] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)  # of messages that are to be copied
    replays: list[Replay] = field(default_factory=list)
    watched: set[ChannelUid] = field(default_factory=set)  # channels with a long poll that waits for new messages
    news: set[ChannelUid] = field(default_factory=set)  # watched channels that have new messages

    def respond(self, reply: bytes, payload: bytes, groups: tuple[GroupId, ...] = ()) -> None:
        """Answer a request; does nothing if *reply* is empty. *groups*: the answer depends on their current state, which only
        their leader knows, so it leaves only under their leases. Without groups the answer reports committed state and stays
        right."""
        if reply:
            answer = publication(reply, payload)
            self.responses.append(LeaseAnswer(answer, groups) if groups and self.node.clustered else answer)

    def answer_as_leader(self, number: GroupId, answers: bytes) -> None:
        """Send *answers* to publishes only while no other node can lead the group: refusals of messages that it might take, and
        acks of messages that are in this node's memory alone. Without the lease they wait for it as long as this node leads the
        group."""
        self.pub_acks.append(LeaseAnswer(answers, (number,)) if self.node.clustered else answers)

    def drain_into(self, ready: Ready, holds: Callable[[tuple[GroupId, ...]], bool]) -> None:
        """Move everything that must leave before deliveries into *ready*: answers, trims, drops and reads. *holds*: see
        `WaitingAnswers.release`."""
        if self.waiting.queue:
            ready.sends += self.waiting.release(holds)
        ready.sends += self.responses
        ready.trims += self.trims
        ready.drops += self.drops
        ready.fetches += self.fetches
        for emptied in (self.responses, self.trims, self.drops, self.fetches):
            emptied.clear()
