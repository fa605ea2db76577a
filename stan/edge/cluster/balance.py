"""Balance: the leaderships that this node should hand over now, and their new leaders. No IO, no clock.

Promises: all nodes that see the same live nodes choose one leader for each group, so handing over comes to an end; no group is
handed to a node that is away, draining, not a voter, or behind. For balance's sake at most BALANCE_MOVES_MAX groups are handed
over at a time, none whose leadership has just begun; a node that drains hands all over at once. A handover that did not happen
is tried again after a growing wait.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.raft.placement import Placement, spread


def leaders(placement: Mapping[GroupId, Placement], available: Collection[str]) -> dict[GroupId, str]:
    """Return the leader that each group should have: the preferred one if available; other groups spread evenly over the rest.

    Groups none of whose voters is available are left out.
    """
    stay = {group: placed.preferred for group, placed in placement.items() if placed.preferred in available}
    orphans = {
        group: [voter for voter in placed.voters if voter in available]
        for group, placed in placement.items()
        if group not in stay
    }
    return stay | spread(orphans, Counter(stay.values()))


@dataclass(slots=True)
class _Try:
    """The last handover of a group that was tried."""

    to: str
    at: Nanos
    wait: int  # ns until it is tried again


class Balance:
    """The decisions of one node, which remembers its tries."""

    def __init__(self, me: str, placement: Mapping[GroupId, Placement]) -> None:
        self._me = me
        self._placement = placement
        self._tries: dict[GroupId, _Try] = {}
        self._next_round = Nanos(0)

    def moves(
        self,
        now: Nanos,
        led: Mapping[GroupId, Nanos],
        alive: Mapping[str, Nanos],
        draining: Collection[str],
        lag: Mapping[GroupId, Mapping[str, int]],
    ) -> list[tuple[GroupId, str]]:
        """Handovers to begin now, as (group, node). Call often: a handover is not named again before its time.

        Args:
            now: monotonic.
            led: groups that this node leads, and the beginning of each leadership.
            alive: live nodes, and the time since which each was alive without a break; see `Hellos.alive_since`.
            draining: nodes that are to lead no group; may include this one.
            lag: for each group led, how many entries each other voter lacks; a voter that is left out gets no leadership.
        """
        for group in [group for group in led if group in self._tries and led[group] > self._tries[group].at]:
            del self._tries[group]  # the other node took over, and leadership came back
        if self._me in draining:
            return self._drain(now, led, set(alive) - set(draining), lag)
        settled = {node for node, since in alive.items() if now - since >= limits.BALANCE_SETTLE}
        chosen = leaders(self._placement, (settled | {self._me}) - set(draining))
        if now < self._next_round:
            return []
        moves = []
        for group in sorted(led):
            to = chosen.get(group, self._me)
            long_enough = now - led[group] >= limits.BALANCE_SETTLE
            if to != self._me and long_enough and _is_close(lag, group, to) and self._try(now, group, to):
                moves.append((group, to))
                if len(moves) == limits.BALANCE_MOVES_MAX:
                    break
        if moves:
            self._next_round = Nanos(now + limits.BALANCE_PAUSE)
        return moves

    def _drain(
        self, now: Nanos, led: Mapping[GroupId, Nanos], available: set[str], lag: Mapping[GroupId, Mapping[str, int]]
    ) -> list[tuple[GroupId, str]]:
        """Handovers of all groups at once: each to its leader among the *available* nodes, else to the voter least behind."""
        chosen = leaders(self._placement, available)
        moves = []
        for group in sorted(led):
            others = [
                node for node in self._placement[group].voters if node in available and _is_close(lag, group, node)
            ]
            tried = self._tries.get(group)
            if not others or (tried is not None and now - tried.at < limits.BALANCE_RETRY_MIN):
                continue
            failed = tried.to if tried is not None else ""
            to = min(others, key=lambda node: (node == failed, node != chosen[group], lag[group][node]))
            moves.append((group, to))
            self._tries[group] = _Try(to, now, limits.BALANCE_RETRY_MIN)
        return moves

    def _try(self, now: Nanos, group: GroupId, to: str) -> bool:
        """Note that the group is handed over now; False if the last try is too recent."""
        tried, wait = self._tries.get(group), limits.BALANCE_RETRY_MIN
        if tried is not None:
            again = tried.to == to
            if now - tried.at < (tried.wait if again else limits.BALANCE_RETRY_MIN):
                return False
            wait = min(2 * tried.wait, limits.BALANCE_RETRY_MAX) if again else wait
        self._tries[group] = _Try(to, now, wait)
        return True


def _is_close(lag: Mapping[GroupId, Mapping[str, int]], group: GroupId, node: str) -> bool:
    missing = lag.get(group, {}).get(node)
    return missing is not None and missing <= limits.BALANCE_LAG_MAX
