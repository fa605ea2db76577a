"""The replicated groups of this node as the driver sees them: which of them this node leads, what may be proposed and sent now.

    before_commit: roles that ended       after_commit: roles that begin, gates       run: replicate, one frame per peer

Promises: entries between the end of one leadership and the beginning of the next are applied as a follower applies them; a
leadership begins only when every earlier entry is applied; nothing is sent without a lease.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stan import limits
from stan.core.broker.broker import Broker
from stan.core.context import META_GROUP
from stan.edge.nats.gateway import Gateway
from stan.errors import DiskFull, NotNow
from stan.raft.group import RaftGroup
from stan.raft.scheduler import Scheduler
from stan.types import GroupId, Nanos, RaftIndex, Term


@dataclass(slots=True)
class LedGroup:
    """This node's leadership of one group."""

    since: Nanos
    term: Term
    lease_until: Nanos
    """End of the lease, as last read; the lease ends earlier only if this node hands the leadership over."""


class GroupEvents(NamedTuple):
    """What the node does when something has happened in a group."""

    configured: Callable[[GroupId, RaftIndex, bytes], None]  # an entry with the group's voters is committed
    fault: Callable[[GroupId, Exception], None]  # the program failed in the group


class Leaderships:
    """Begins and ends this node's leaderships, and checks their leases and room for proposals.

    The mapping *groups* may change meanwhile: a group is replaced after a transfer of its state."""

    def __init__(
        self,
        broker: Broker,
        groups: Mapping[GroupId, RaftGroup],
        scheduler: Scheduler,
        gateway: Gateway,
        *,
        nuid: bytes,
        now: Callable[[], Nanos],
        note: Callable[[str, str], None],
    ) -> None:
        """*nuid*: the identity of a cluster that this node founds."""
        self.led: dict[GroupId, LedGroup] = {}  # groups that this node leads
        self.touched: list[tuple[GroupId, RaftGroup]] = []
        """Groups in which something may have changed since `settle`, as of the last `look`; the others need no work."""
        self._broker = broker
        self._groups = groups
        self.scheduler = scheduler
        self._gateway = gateway
        self._nuid = nuid
        self._now = now
        self._note = note
        self._entered = False  # a leadership began in this turn
        self._waiting: set[GroupId] = set()  # groups with a full disk here and no successor
        self.events: GroupEvents

    def look(self) -> None:
        """Set `touched`; again after each run of the groups, before it is read."""
        self.touched = [
            (number, self._groups[number]) for number in sorted(self.scheduler.touched) if number in self._groups
        ]

    @property
    def at_rest(self) -> bool:
        """True if nothing has happened to any group since `settle`."""
        return not (self.scheduler.touched or self.scheduler.dirty)

    def woken(self) -> list[RaftGroup]:
        """Groups whose turn comes with the next `run`."""
        return [self._groups[number] for number in sorted(self.scheduler.dirty) if number in self._groups]

    def settle(self) -> bool:
        """End a turn: keep only those touched groups that still need work. Returns True if there are any."""
        self._entered = False
        self.look()
        self.scheduler.touched = {
            number
            for number, group in self.touched
            if group.has_committed or group.leads != (number in self.led) or self._has_ended(number, group)
        }
        return bool(self.scheduler.touched)

    def before_commit(self) -> None:
        """End the leaderships that this node has lost."""
        self.look()
        for number, group in self.touched:
            if self._has_ended(number, group):
                self.leave(number)
        for number in self.led.keys() - self._groups.keys():
            self.leave(number)

    def _has_ended(self, number: GroupId, group: RaftGroup) -> bool:
        return number in self.led and (not group.leads or group.term != self.led[number].term)

    def leave(self, number: GroupId) -> None:
        """End this node's leadership of the group, if it has it."""
        if self.led.pop(number, None) is None:
            return
        broker = self._broker
        broker.step_room(number, closed=False, full=False)
        self._note("INF", f"group {number}: leads no more")
        broker.emit("leader", f"node {broker.view.node} leads group {number} no more", group=number)
        try:
            if number == META_GROUP:
                self._broker.roles.follow_meta()
            else:
                self._broker.roles.follow_group(number)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.events.fault(number, error)
        self._gateway.scope.roles_changed()

    def after_commit(self) -> None:
        """Begin at most one new leadership, and update leases and room for proposals of the groups led."""
        for number, group in self.touched:
            if number not in self.led and group.leads and not self._entered:
                self._entered = True  # one per turn: each scans the replay buffer, and links need a turn in between
                try:
                    self._enter(number, group)
                except Exception as error:  # noqa: BLE001 - the border of the group
                    self.events.fault(number, error)
            if number in self.led:
                self.led[number].lease_until = group.lease_until()
                self._limit_proposals(number, group)
        self.check_leases()

    def _enter(self, number: GroupId, group: RaftGroup) -> None:
        self.led[number] = LedGroup(self._now(), group.term, group.lease_until())
        self._note("INF", f"group {number}: leads in term {group.term}")
        broker = self._broker
        broker.emit("leader", f"node {broker.view.node} leads group {number} in term {group.term}", group=number)
        if number == META_GROUP:
            broker.roles.lead_meta(self._nuid)
        else:
            broker.roles.lead_group(number, unconfirmed=True)
        self._gateway.scope.roles_changed()
        self._gateway.replay(number, self.scheduler.heartbeat_if_due)

    def _limit_proposals(self, number: GroupId, group: RaftGroup) -> None:
        """Report to the broker whether the group takes proposals and has room for more."""
        closed = group.transferring
        self._broker.step_room(number, closed=closed, full=not closed and not group.has_room)

    def check_leases(self) -> None:
        """Report to the broker which leases hold.

        Also called before input is handled: in a process that was stopped and continued, the leases have expired. A node that
        does not listen to clients yet delivers nothing either, because their acks would be lost."""
        now = self._now()
        for number, led in self.led.items():
            holds = led.lease_until > now and number in self._groups
            self._broker.step_lease(number, holds=holds and (number == META_GROUP or self._gateway.listens))

    def lapsed(self, groups: Iterable[GroupId]) -> set[GroupId]:
        """Groups of *groups* that this node leads with an expired lease, or led and does not hold anymore."""
        now = self._now()
        led = {number: self._groups.get(number) for number in groups if number in self.led}
        return {number for number, group in led.items() if group is None or group.lease_until() <= now}

    def is_left_open(self, number: GroupId, error: NotNow) -> bool:
        """After a refused proposal: True if it must stay unanswered because another leader may still accept it.

        On a full disk leadership is transferred. With no successor within reach the node retries later and answers nothing, as it
        may have been replaced without knowing it. A sole voter answers the refusal."""
        group = self._groups[number]
        if not isinstance(error, DiskFull) or group.transferring or len(group.members) == 1:
            return group.transferring
        to = group.best_successor()
        if to is not None:
            self._trouble(number, f"{error}; {to} is to lead")
            group.transfer(to, partial(self._transfer_ended, number, group.term))
        elif number not in self._waiting:
            self._waiting.add(number)
            self._trouble(number, f"{error}; nobody else is there to lead")
            later = self._now() + limits.FULL_DISK_RETRY
            self._broker.step_alarm(later, partial(self._look_again, number, group.term))
        return True

    def _trouble(self, number: GroupId, what: str) -> None:
        self._note("WRN", f"group {number}: {what}")
        self._broker.emit("trouble", f"group {number}: {what}", group=number)

    def _look_again(self, number: GroupId, term: Term, _now: Nanos) -> None:
        """Try again after a full disk without a successor: there may be room by now."""
        self._waiting.discard(number)
        self._transfer_ended(number, term, gone=False)

    def _transfer_ended(self, number: GroupId, term: Term, gone: bool) -> None:  # noqa: FBT001 - an answer
        """If no other node took over, begin the leadership anew here: what was left open for the next leader is replayed."""
        led = self.led.get(number)
        if not gone and led is not None and led.term == term:
            led.term = Term(-1)  # not the group's: the next turn ends this leadership and begins another
            self.scheduler.touched.add(number)
            self.look()
            self._gateway.read_buffer.wake()

    def freeze(self, number: GroupId, why: str) -> None:
        """Freeze a group after a failure of its disk or of the program."""
        self.scheduler.touched.add(number)
        self.look()
        self._groups[number].freeze(why)
