"""The replicated groups of this node as the driver sees them: led groups, permission to propose and to send.

    before_commit: roles that ended       after_commit: roles that begin, gates       run: replicate, one frame per peer

Promises: entries between the end of one leadership and the beginning of the next are applied as a follower applies them; a
leadership begins only when every earlier entry is applied; nothing is sent without a lease.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stan_protocol.scalars import GroupId, Nanos, RaftIndex, Term

from stan import limits
from stan.core.broker.broker import Broker
from stan.core.services.node import META_GROUP
from stan.edge.nats.gateway import Gateway
from stan.errors import NotNow, Shortage
from stan.raft.group import RaftGroup
from stan.raft.scheduler import Scheduler

NEVER = Nanos(2**63)
"""Later than any time."""


@dataclass(slots=True)
class LedGroup:
    """This node's leadership of one group."""

    since: Nanos
    term: Term
    lease_until: Nanos
    """End of the lease, as last read; the lease ends earlier only if this node hands the leadership over."""
    holds: bool | None = None
    """Whether the lease holds, as last reported to the broker."""
    closed: bool | None = None
    """Whether the group takes no proposals, as last reported to the broker."""
    full: bool | None = None
    """Whether entries wait, as last reported to the broker."""
    waiting: bool = False
    """Whether the disk is full, no other node is within reach, and a new attempt is due."""
    left_open: NotNow | None = None
    """The reason why the group writes nothing until its next leadership, if it has left a proposal unanswered."""
    restart_pending: bool = False
    """Whether the next turn ends this leadership, and begins another one if the group still leads."""

    def is_over(self, group: RaftGroup) -> bool:
        """True if this leadership has to end now."""
        return self.restart_pending or not group.leads or group.term != self.term


class GroupEvents(NamedTuple):
    """The node's callbacks for events in a group."""

    configured: Callable[[GroupId, RaftIndex, bytes], None]  # an entry with the group's voters is committed
    fault: Callable[[GroupId, Exception], None]  # the program failed in the group


class Leaderships:
    """Begins and ends this node's leaderships, and checks their leases and room for proposals.

    The mapping *groups* may change: a group is replaced after a transfer of its state."""

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
        self._leases_end = NEVER  # of `led`; 0 if one of them does not hold
        self._broker = broker
        self._groups = groups
        self.scheduler = scheduler
        self._gateway = gateway
        self._nuid = nuid
        self._now = now
        self._note = note
        self._entered = False  # a leadership began in this turn
        self.events: GroupEvents

    def is_at_rest(self, now: Nanos) -> bool:
        """True if nothing has happened since `settle` that concerns the broker."""
        if self.scheduler.owner.has_news or (now >= self._leases_end and self.check_leases(now)):
            return False
        for number in self.scheduler.owner.touched & self.led.keys():
            if self.led[number].closed or self.led[number].full:  # perhaps no longer
                return False
        return True

    def settle(self, *, synced: bool) -> bool:
        """End a turn: leave only those touched groups that still need work. Returns True if there are any.

        There is none after the last round, unless a group had news since, a log was *synced* since, or a leadership began, and
        others wait for the next turn."""
        touched, led = self.scheduler.owner.touched, self.led
        if not (synced or self._entered or self.scheduler.owner.has_news):
            touched.clear()
            return False
        self._entered = self.scheduler.owner.has_news = False
        for number in sorted(touched):
            group = self._groups.get(number)
            if group is None or not (
                group.has_committed or (led[number].is_over(group) if number in led else group.leads)
            ):
                touched.remove(number)
        return bool(touched)

    def before_commit(self) -> None:
        """End the leaderships that this node has lost."""
        groups, led = self._groups, self.led
        self.scheduler.owner.has_news = False
        for number in sorted(self.scheduler.owner.touched & led.keys()):
            group = groups.get(number)
            if group is not None and led[number].is_over(group):
                self.leave(number)
        if not led.keys() <= groups.keys():
            for number in led.keys() - groups.keys():
                self.leave(number)

    def leave(self, number: GroupId) -> None:
        """End this node's leadership of the group, if it has it."""
        if self.led.pop(number, None) is None:
            return
        broker = self._broker
        broker.stops.step_room(number, closed=False, full=False)
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

    def after_commit(self, now: Nanos) -> None:
        """Begin at most one new leadership, and report to the broker the groups led whose leases hold, those that take
        proposals and those with room for more."""
        for number in sorted(self.scheduler.owner.touched):
            group = self._groups.get(number)
            if group is None:
                continue
            if number not in self.led and group.leads and not self._entered and _is_settled(group):
                self._begin(number, group)
            led = self.led.get(number)
            if led is None:
                continue
            if led.left_open is not None and not group.transferring and not led.waiting:
                led.restart_pending = True
            led.lease_until = group.lease_until()
            self._leases_end = min(self._leases_end, led.lease_until)
            closed = group.transferring
            full = not closed and not group.has_room
            if closed != led.closed or full != led.full:
                led.closed, led.full = closed, full
                self._broker.stops.step_room(number, closed=closed, full=full)
        if now >= self._leases_end:
            self.check_leases(now)

    def _begin(self, number: GroupId, group: RaftGroup) -> None:
        self._entered = True  # one per turn: each scans the replay buffer, and links need a turn in between
        try:
            self._enter(number, group)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.events.fault(number, error)

    def _enter(self, number: GroupId, group: RaftGroup) -> None:
        self.led[number] = LedGroup(self._now(), group.term, group.lease_until())
        self._leases_end = Nanos(0)
        self._note("INF", f"group {number}: leads in term {group.term}")
        broker = self._broker
        broker.emit("leader", f"node {broker.view.node} leads group {number} in term {group.term}", group=number)
        if number == META_GROUP:
            broker.roles.lead_meta(self._nuid)
        else:
            broker.roles.lead_group(number, unconfirmed=True)
        self._gateway.scope.roles_changed()
        self._gateway.replay(number, self.scheduler.heartbeat_if_due)

    def check_leases(self, now: Nanos) -> bool:
        """Report to the broker the leases that hold; True if that has changed. Costs nothing before a lease may have ended.

        Also called before input is handled: in a process that was stopped and continued, the leases have expired. A node that
        does not listen to clients yet delivers nothing either, because their acks would be lost."""
        if now < self._leases_end and self.led.keys() <= self._groups.keys():
            return False
        changed, self._leases_end = False, NEVER
        for number, led in self.led.items():
            group = self._groups.get(number)
            led.lease_until = Nanos(0) if group is None else group.lease_until()
            holds = led.lease_until > now and (number == META_GROUP or self._gateway.listens)
            self._leases_end = min(self._leases_end, led.lease_until if holds else Nanos(0))
            if holds != led.holds:
                led.holds = holds
                self._broker.stops.step_lease(number, holds=holds)
                changed = True
        return changed

    def lapsed(self, groups: Iterable[GroupId]) -> set[GroupId]:
        """Groups of *groups* that this node leads with an expired lease, or led and no longer has.

        They are reported to the broker at once, also if a lease has ended early, as after a failed hand-over: else it
        would send the same again in this turn, and in the next."""
        now, lapsed = self._now(), set()
        for number in groups:
            if number in self.led:
                group = self._groups.get(number)
                if group is None or group.lease_until() <= now:
                    lapsed.add(number)
                    self.led[number].holds = False
                    self._broker.stops.step_lease(number, holds=False)
        if lapsed:
            self._leases_end = Nanos(0)
        return lapsed

    def is_left_to_successor(self, number: GroupId, error: NotNow) -> bool:
        """After a refused proposal: True if it must stay unanswered because another leader may still accept it.

        On a full disk leadership is transferred. With no successor within reach the node retries later and answers nothing, as it
        may have been replaced without knowing it. A sole voter answers the refusal. What is left open has sequences that no entry
        gets: until the leadership has ended, whatever node leads then, nothing of the group is written."""
        group, led = self._groups[number], self.led.get(number)
        if isinstance(error, Shortage) and not group.transferring and len(group.members) > 1:
            self._hand_over_full_disk(number, group, error)
        elif not group.transferring and (led is None or led.left_open is None):
            return False
        if led is not None:
            led.left_open = error if led.left_open is None else led.left_open
        return True

    def _hand_over_full_disk(self, number: GroupId, group: RaftGroup, error: Shortage) -> None:
        """Let another node lead the group, as the disk is full, or try again later."""
        to, led = group.best_successor(), self.led.get(number)
        if to is not None:
            self._trouble(number, f"{error}; {to} is to lead")
            self._broker.stops.step_handover(number, under_way=True)  # until this leadership ends
            group.transfer(to, partial(self._transfer_ended, number, group.term))
        elif led is not None and not led.waiting:
            led.waiting = True
            self._trouble(number, f"{error}; nobody else is there to lead")
            later = self._now() + limits.FULL_DISK_RETRY
            self._broker.step_alarm(later, partial(self._look_again, number, led), number)

    def _trouble(self, number: GroupId, what: str) -> None:
        self._note("WRN", f"group {number}: {what}")
        self._broker.emit("trouble", f"group {number}: {what}", group=number)

    def _look_again(self, number: GroupId, led: LedGroup, _now: Nanos) -> None:
        """Try again after a full disk without a successor: there may be room now."""
        led.waiting = False
        self._transfer_ended(number, led.term, done=False)

    def _transfer_ended(self, number: GroupId, term: Term, done: bool) -> None:  # noqa: FBT001 - an answer
        """If no other node took over, begin the leadership again here: frames left open for the next leader are replayed."""
        led = self.led.get(number)
        if not done and led is not None and led.term == term:
            led.restart_pending = True
            self.scheduler.owner.touch(number)
            self._gateway.read_buffer.wake()

    def freeze(self, number: GroupId, why: str) -> None:
        """Freeze a group after a failure of its disk or of the program."""
        self.scheduler.owner.touch(number)
        self._groups[number].freeze(why)


def _is_settled(group: RaftGroup) -> bool:
    """True if all entries of the log are committed. A leadership that begins again in the same term may have written some: their
    sequences are used, which a live view made before their commit does not know."""
    return group.commit_index >= group.log.last_index
