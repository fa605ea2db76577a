"""Proposed changes: made for a group, on their way to its log, each with the callbacks that wait for its outcome."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stan_protocol.channels import publication
from stan_protocol.scalars import SECOND, GroupId

from stan import limits
from stan.core.base.ready import Done, InDoubt, Proposal
from stan.core.base.timers import Timers
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.nats import NatsState
from stan.core.services.node import META_GROUP, Node
from stan.core.services.outgoing import Outgoing
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb


def nobody_waits(_result: object = None, _error: str = "") -> None:
    """A callback that does nothing: no request waits, the outcome shows in the replicated state."""


@dataclass(slots=True)
class ProposedChanges:
    """Changes that this node is about to propose, of all groups that it leads."""

    node: Node
    nats: NatsState
    outgoing: Outgoing
    timers: Timers
    changes: list[Proposal] = field(default_factory=list)  # not proposed yet

    def take(self, blocked: frozenset[GroupId]) -> list[Proposal]:
        """Take the changes that can be proposed now; those of *blocked* groups stay. Those of leaderships that have ended are
        dropped."""
        made = [change for change in self.changes if not change.leader.ended]
        self.changes = [change for change in made if change.group in blocked]
        return [change for change in made if change.group not in blocked]

    # --- the metadata -------------------------------------------------------------------------------------------------

    def change_meta(self, done: Done, **change: object) -> None:
        """Propose one META change, e.g. `connect=pb.Connect(...)`; only on the leader of the metadata."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.propose(META_GROUP, Kind.META, body, done)

    def forward_meta(self, **change: object) -> None:
        """Ask the leader of the metadata to propose a change. There is no answer: the change shows in the metadata, or never."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.outgoing.responses.append(publication(self.nats.subjects.meta.encode(), body))

    def ask_meta(self, done: Done = nobody_waits, **change: object) -> None:
        """Propose a META change if this node leads the metadata, with *done* for its outcome; else `forward_meta`."""
        if self.node.leads_meta:
            self.change_meta(done, **change)
        else:
            self.forward_meta(**change)

    # --- a channel group ----------------------------------------------------------------------------------------------

    def propose(self, group: GroupId, kind: Kind, body: bytes, done: Done, in_doubt: InDoubt = nobody_waits) -> None:
        """Propose an entry that is encoded already; unreported progress of the group is written before it."""
        leader = self.node.leader(group)
        if leader is None:  # another one has to take it
            in_doubt()
        else:
            self.changes.append(Proposal(group, kind, body, urgent=True, leader=leader, done=done, in_doubt=in_doubt))

    def change_group(self, group: GroupId, done: Done, in_doubt: InDoubt = nobody_waits, **change: object) -> None:
        """Propose one CHANGE of a channel group; unreported progress of the group is written before it. Nothing is proposed of a
        channel that is held for a move to another group: its next leader has received the request, too."""
        if self._is_held(self.node.groups[group], change):
            in_doubt()
            return
        change |= {"at": self.node.clock.wall, "node": self.node.name.encode()}
        body = pb.GroupChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.propose(group, Kind.CHANGE, body, done, in_doubt)

    @staticmethod
    def _is_held(group: ChannelGroup, change: dict[str, Any]) -> bool:
        """True if a change is about a channel that is held for a move."""
        departing, machine = group.dispatch.stops.departing, group.machine
        return bool(departing or machine.moves.held) and any(
            machine.is_held(name, about) or machine.uid_of(name, about) in departing for name, about in change.items()
        )

    def leave(self, group: GroupId, subscription_id: int, done: Done, *, unsubscribe: bool = False) -> None:
        """Propose that a subscription ends (closed, or unsubscribed); from now on nothing is sent to it."""
        found = self.node.groups[group].dispatch.cursors.by_subscription.get(subscription_id)
        if found is not None:
            found[1].leaving = True
        leave = pb.Leave(subscription_id=subscription_id, unsubscribe=unsubscribe)
        self.change_group(group, done, leave=leave)

    def end(self, group: GroupId, subscription_id: int, done: Callable[[], None] = lambda: None) -> None:
        """Close a subscription whose client is gone, or has no permission for it: `leave`, retried every second until it is
        written or another node leads the group; *done* is called once it is written."""

        def outcome(result: object, _error: str) -> None:
            if result is None:
                self.timers.at(self.node.clock.now + SECOND, lambda _now: self.end(group, subscription_id, done), group)
            else:
                done()

        if not self.node.leads(group):
            return
        leave = pb.Leave(subscription_id=subscription_id)
        if self._is_held(self.node.groups[group], {"leave": leave}):  # perhaps it stays here after all
            later = self.node.clock.now + limits.FORWARD_INTERVAL
            self.timers.at(later, lambda _now: self.end(group, subscription_id, done), group)
        else:
            self.leave(group, subscription_id, outcome)
