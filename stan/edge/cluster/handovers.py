"""Leaderships that this node hands to others: for balance, because it drains, or because somebody says so.

Which ones, and to whom, balance decides. Promises: a group whose voters change, or that an operator had handed over lately, is
not moved for balance's sake; each handover begins between two turns.
"""

from collections.abc import Callable
from functools import partial

from stan import limits
from stan.edge.cluster.balance import Balance
from stan.edge.cluster.host import Host
from stan.types import GroupId, Nanos


class Handovers:
    """Of one node. *is_up*: whether messages reach a peer."""

    def __init__(self, node: Host, balance: Balance, is_up: Callable[[str], bool]) -> None:
        self.drained: Callable[[], None] | None = None  # called while this node leads nothing
        self._node = node
        self._balance = balance
        self._is_up = is_up
        self._transfer_cooldowns: dict[GroupId, Nanos] = {}  # until when

    def handed_over_lately(self, now: Nanos) -> list[GroupId]:
        """Groups that an operator had this node hand over within TRANSFER_COOLDOWN; the other nodes hear of them in its hellos."""
        return [number for number, until in self._transfer_cooldowns.items() if until > now]

    def spread(self, now: Nanos) -> None:
        """Begin what is due."""
        node = self._node
        if not node.leaderships.led:
            if self.drained is not None:
                self.drained()
            return
        cooling = set() if node.membership.me.draining else node.membership.in_transfer_cooldown(now)
        led = {
            number: leadership.since
            for number, leadership in node.leaderships.led.items()
            if number not in cooling
            and not node.groups[number].transferring
            and not node.groups[number].change_under_way
            and (node.groups[number].is_steady or node.membership.me.draining)
        }
        lag = {number: self.lag_of_voters(number) for number in led}
        moves = self._balance.moves(now, led, node.membership.alive_since(now), node.membership.draining(now), lag)
        for number, to in moves:  # between two turns, so that none is half in the old role
            node.environment.runtime.soon(partial(self.hand_over, number, to))

    def lag_of_voters(self, number: GroupId) -> dict[str, int]:
        """Of those who are there and can catch up by entries alone: who needs the state first takes its time, and so would a
        handover."""
        group = self._node.groups[number]
        able = set(filter(self._is_up, group.members)) - set(group.followers_needing_snapshot())
        return {peer: missing for peer, missing in group.lag().items() if peer in able}

    def start_transfer_cooldown(self, number: GroupId) -> None:
        """An operator had the group handed over: for a while nobody moves it for the balance's sake."""
        now = self._node.environment.runtime.now()
        self._transfer_cooldowns[number] = Nanos(now + limits.TRANSFER_COOLDOWN)
        self._node.membership.update(now, resting=[*self._transfer_cooldowns])

    def hand_over(self, number: GroupId, to: str, told: Callable[[bool], None] | None = None) -> None:
        """Hand a group's leadership to another voter, if this node still leads it; *told* gets True if it does not lead anymore.

        Not while its voters change: who takes over would have to hand over, too."""
        node = self._node
        if number not in node.leaderships.led or number not in node.groups:
            if told is not None:
                told(True)  # noqa: FBT003 - the answer
            return
        ended = told or partial(self._handed_over, number, to)
        if node.groups[number].change_under_way:
            ended(False)  # noqa: FBT003 - the answer
            return
        node.environment.note("DBG", f"group {number}: is handed over to {to}")
        node.groups[number].transfer(to, ended)

    def _handed_over(self, number: GroupId, to: str, done: bool) -> None:  # noqa: FBT001 - an answer
        if not done:
            self._node.environment.note("DBG", f"group {number}: {to} did not take it over")
