"""Reasons why groups send or take nothing at the moment, as the edge reports them."""

import contextlib

from stan_protocol.scalars import GroupId

from stan.core.base.interest import Change
from stan.core.broker.progress import ProgressWriter
from stan.core.broker.roles import GroupRoles
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services


class GroupStops:
    """Stops groups, and lets them go on."""

    def __init__(self, services: Services, roles: GroupRoles, progress: ProgressWriter) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.leaves = services.leaves
        self.roles = roles
        self.progress = progress

    def step_lease(self, number: GroupId, *, holds: bool) -> None:
        """Report the lease of a group that this node leads. *holds*: no other node can lead the group; otherwise this node sends
        nothing of it. The group may have left this node meanwhile."""
        if number == META_GROUP:
            self.leading.meta_lease = holds
        elif number in self.node.groups:
            self.node.groups[number].dispatch.stops.lease_lapsed = not holds

    def step_handover(self, number: GroupId, *, under_way: bool) -> None:
        """This node is about to hand a group over that it leads, or that has come to nothing. The next `ready` writes the group's
        progress, and nothing more of it is sent meanwhile: the next leader knows of all that was sent."""
        if number in self.node.groups:
            self.node.groups[number].dispatch.stops.handed_over = under_way

    def step_room(self, number: GroupId, *, closed: bool, full: bool) -> None:
        """Report backpressure of a group that this node leads. *closed*: the group takes no proposals; *full*: entries wait, so
        new messages are collected into larger batches."""
        if closed != (number in self.leading.write_blocked):
            self.leading.write_blocked = self.leading.write_blocked ^ {number}
        if full != (number in self.leading.saturated):
            self.leading.saturated = self.leading.saturated ^ {number}

    def step_no_room(self, number: GroupId) -> None:
        """The log of a group had no room for a progress entry: the group sends nothing until there is room. Call `ready` once
        more."""
        group = self.node.groups.get(number)
        if group is not None and group.leads:
            group.dispatch.stops.progress_blocked = True
            self.progress.retry_later(number, group)

    @property
    def without_room(self) -> set[GroupId]:
        """Groups that may send nothing because their logs had no room for a progress entry."""
        blocked = set()
        for number, group in self.leading.led:
            if group.dispatch.stops.progress_blocked:
                blocked.add(number)
        return blocked

    def step_leaf(self, changes: list[Change], *, up: bool, forgotten: bool, user: bytes = b"") -> None:
        """Report a leafnode connection, which deliveries of consumers leave by: whether it has room, and how NATS's interest has
        changed since the last call. *forgotten*: it was lost meanwhile, and all earlier interest counts no more. *user*: whose
        account it leads to; b"" without users."""
        self.leaves.change(user, changes, up=up, forgotten=forgotten)

    def step_frozen(self, number: GroupId) -> None:
        """A group's log failed and takes nothing until a restart: the group sends nothing either."""
        group = self.node.groups.get(number)
        if group is not None:
            group.dispatch.stops.frozen = True

    def step_failed(self, number: GroupId, why: str) -> None:
        """The program failed in a group, perhaps amid an entry: until a restart this node neither leads the group nor delivers
        or answers anything of it."""
        self.faults.faulty[number] = why
        self.step_frozen(number)
        if self.node.leads(number):
            with contextlib.suppress(Exception):  # the state that remains is not used again
                self.roles.follow_meta() if number == META_GROUP else self.roles.follow_group(number)
