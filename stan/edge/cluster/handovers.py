"""Leaderships that this node hands to other nodes: to balance the load, because it drains, or for an operator.

stan.edge.cluster.balance chooses groups and nodes. Promises: a group whose voters change is not handed over;
a group that an operator had handed over lately is not moved for balance's sake; each handover begins between two turns, and
after the progress of the group: the deliveries are in the log, and no more are sent until the handover has ended.
"""

from collections.abc import Callable
from functools import partial

from stan_protocol.scalars import GroupId, Nanos, Term

from stan import limits
from stan.edge.cluster.balance import Balance
from stan.edge.cluster.host import Host


class Handovers:
    """The handovers of one node."""

    def __init__(self, node: Host, balance: Balance, is_up: Callable[[str], bool]) -> None:
        """*is_up*: True if messages reach a peer."""
        self.drained: Callable[[], None] | None = None  # called with each `spread` while this node leads no group
        self._node = node
        self._balance = balance
        self._is_up = is_up
        self._transfer_cooldowns: dict[GroupId, Nanos] = {}  # by group: the end
        self._under_way: dict[GroupId, Term] = {}  # by group: the term to end

    def handed_over_lately(self, now: Nanos) -> list[GroupId]:
        """Groups that this node handed over for an operator within TRANSFER_COOLDOWN; its hellos name them to the other nodes."""
        return [number for number, until in self._transfer_cooldowns.items() if until > now]

    def spread(self, now: Nanos) -> None:
        """Begin the handovers that are due: to balance the load, or of all groups if this node drains."""
        node = self._node
        if not node.leaderships.led:
            if self.drained is not None:
                self.drained()
            return
        cooling = set() if node.membership.me.draining else node.membership.hellos.in_transfer_cooldown(now)
        led = {
            number: leadership.since
            for number, leadership in node.leaderships.led.items()
            if number not in cooling
            and self._may_begin(number)
            and (node.groups[number].is_steady or node.membership.me.draining)
        }
        lag: dict[GroupId, dict[str, int]] = {}
        for number in led:
            node.within(number, self._note_lag, number, lag)
        moves = self._balance.moves(
            now,
            {number: led[number] for number in lag},
            node.membership.hellos.alive_since(now),
            node.membership.hellos.draining(now),
            lag,
        )
        for number, to in moves:  # between two turns, so that no turn changes a role halfway
            hand_over = partial(self.hand_over, number, to)
            node.environment.runtime.soon(partial(node.driver.faults.within, number, hand_over))

    def _note_lag(self, number: GroupId, lag: dict[GroupId, dict[str, int]]) -> None:
        lag[number] = self.lag_of_voters(number)

    def lag_of_voters(self, number: GroupId) -> dict[str, int]:
        """Entries that each voter lacks of a group that this node leads.

        Without voters that messages do not reach, and those that need the group's state first: receiving it takes time, and
        so would the handover."""
        group = self._node.groups[number]
        able = set(filter(self._is_up, group.members)) - set(group.followers_needing_snapshot())
        return {peer: missing for peer, missing in group.lag().items() if peer in able}

    def start_transfer_cooldown(self, number: GroupId) -> None:
        """Start the time in which no node moves the group for balance's sake, as an operator had it handed over."""
        now = self._node.environment.runtime.now()
        self._transfer_cooldowns[number] = Nanos(now + limits.TRANSFER_COOLDOWN)
        self._node.membership.update(now, resting=[*self._transfer_cooldowns])

    def hand_over(self, number: GroupId, to: str, report: Callable[[bool], None] | None = None) -> None:
        """Hand a group's leadership to another voter, if this node still leads it; *report* gets True if it leads no more.

        Not while its voters change: the new leader would have to hand the group over, too."""
        node = self._node
        if number not in node.leaderships.led or number not in node.groups:
            if report is not None:
                report(True)  # noqa: FBT003 - the answer
            return
        ended = report or partial(self._handed_over, number, to)
        if not self._may_begin(number):
            ended(False)  # noqa: FBT003 - the answer
            return
        node.environment.note("DBG", f"group {number}: is handed over to {to}")
        self._under_way[number] = node.groups[number].term
        node.broker.stops.step_handover(number, under_way=True)
        runtime, begin = node.environment.runtime, partial(node.within, number, self._begin, number, to, ended)
        node.broker.step_alarm(runtime.now(), lambda _now: runtime.soon(begin), number)
        node.driver.turns.wake()  # the next turn writes the group's progress

    def _may_begin(self, number: GroupId) -> bool:
        """True if nothing prevents a handover of a group that this node leads."""
        group = self._node.groups[number]
        return not (group.change_under_way or group.transferring or self._under_way.get(number) == group.term)

    def _begin(self, number: GroupId, to: str, report: Callable[[bool], None]) -> None:
        node, ended = self._node, partial(self._ended, number, report)
        if number not in node.leaderships.led or number not in node.groups:
            ended(True)  # noqa: FBT003 - the answer
        elif node.groups[number].change_under_way or node.groups[number].transferring:
            ended(False)  # noqa: FBT003 - the answer
        else:
            node.groups[number].transfer(to, ended)

    def _ended(self, number: GroupId, report: Callable[[bool], None], done: bool) -> None:  # noqa: FBT001 - an answer
        self._under_way.pop(number, None)
        self._node.broker.stops.step_handover(number, under_way=False)
        self._node.driver.turns.wake()
        report(done)

    def _handed_over(self, number: GroupId, to: str, done: bool) -> None:  # noqa: FBT001 - an answer
        if not done:
            self._node.environment.note("DBG", f"group {number}: {to} did not take it over")
