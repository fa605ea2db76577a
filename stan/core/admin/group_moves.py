"""The moves of channels from and to one group, on its leader (see `channel_moves`)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, ChannelUid, Nanos

from stan import limits
from stan.core.admin.move_source import MoveSource, end_move
from stan.core.admin.move_target import MoveTarget
from stan.core.base.names import text
from stan.core.clients.clients import Clients
from stan.core.clients.subscribing import Subscribing
from stan.core.leader.local_group import Leadership
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.meta import ChannelInfo
from stan.core.state.moves import MoveStage, Stage
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class MoveWatch:
    """The state of a node's moves in all its groups."""

    restless: bool = False
    """A group that this node leads has something to do."""
    held_at: dict[int, Nanos] = field(default_factory=dict)
    """By move, when its channels were held, on every node: the next leader goes on waiting."""


class GroupMoves(LeaderPart):
    """Carries moves out, for one group that this node leads."""

    def __init__(
        self,
        services: Services,
        leadership: Leadership,
        source: MoveSource,
        target: MoveTarget,
        clients: Clients,
        subscribing: Subscribing,
        watch: MoveWatch,
    ) -> None:
        super().__init__(services, leadership)
        self.source = source
        self.clients = clients
        self.subscribing = subscribing
        self._target = target
        self._watch = watch
        self._asked: dict[tuple[str, int], int] = {}  # entry, move -> Nanos: not proposed again before
        self._unsent: set[ChannelUid] = set()
        """Channels that came in this leadership: no earlier leader has sent anything of them."""

    def arrived(self, uids: Iterable[ChannelUid]) -> None:
        """Everything of some channels has come to the group; they are not its own before the metadata say so."""
        self._unsent.update(uids)

    def take_over(self, uids: Iterable[int]) -> None:
        """Channels are the group's: it goes on with them as a new leader does. One that has come before this leadership may have
        been led by an earlier leader, who knew of it sooner."""
        infos = self.source.go_on(uids, anew=True)
        for info in infos:
            arrived = self.group.machine.moves.by_channel.get(info.uid)
            if arrived is not None and arrived.stage is Stage.ARRIVED and info.uid not in self._unsent:
                self.group.dispatch.mark_unconfirmed(info.uid)
            self.reports.note("INF", f"Channel {go_quote(text(info.name))} goes on in group {self.number}")
            for part in self.leadership.all(LeaderPart):
                part.took_over(info.uid)
        if infos:
            self.clients.lead_group(self.number)
            self.subscribing.lead_group(self.number)

    # --- going on -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the next step for the channels that come, go, or have come or gone."""
        machine, meta = self.group.machine, self.node.meta
        for move, infos in meta.moves().items() if meta.moving else ():
            if infos[0].moving_to == self.number:
                self._target.look(move, infos)
        for uid, state in list(machine.moves.by_channel.items()):
            if meta.applied < state.move:  # this copy of the metadata is behind
                self._watch.restless = True
            else:
                self._settle(uid, state, meta.by_uid.get(uid))

    def _settle(self, uid: ChannelUid, state: MoveStage, info: ChannelInfo | None) -> None:
        """Take the next step for one channel, as far as this group has to."""
        move = state.move
        if info is None:
            if uid < self.node.meta.next_uid and state.stage is not Stage.HELD:
                self._propose("drop_channel", int(uid), drop_channel=pb.DropChannel(uid=uid))
            return
        under_way = info.move == move
        if state.stage is Stage.HELD and under_way:
            since = self._watch.held_at.setdefault(move, self.node.clock.now)
            if self.node.clock.now - since > limits.MOVE_HOLD_MAX and self._may_ask("cancel", move):
                end_move(self._proposals, move, done=False)
        elif state.stage is Stage.HELD:
            name = "returned" if info.group == self.number else "departed"
            self._propose(name, move, **{name: pb.Moving(move=move, uids=self._of_move(state))})
        elif state.stage is Stage.ARRIVED and under_way:
            if self._may_ask("done", move):
                end_move(self._proposals, move, done=True)
        elif state.stage is Stage.ARRIVED and info.group != self.number:
            self._propose("dropped", move, arrival_dropped=pb.Moving(move=move, uids=self._of_move(state)))

    def _of_move(self, state: MoveStage) -> list[ChannelUid]:
        by_channel = self.group.machine.moves.by_channel
        return sorted(uid for uid, known in by_channel.items() if known == state)

    def _may_ask(self, what: str, move: int) -> bool:
        """True if that was not asked for in the last quarter of a second."""
        self._watch.restless = True
        now = self.node.clock.now
        if self._asked.get((what, move), 0) > now:
            return False
        self._asked[what, move] = now + limits.FORWARD_INTERVAL
        return True

    def _propose(self, what: str, move: int, **change: object) -> None:
        """Propose a change, unless it is on its way."""
        self._watch.restless = True
        now = self.node.clock.now
        if self._asked.get((what, move), 0) > now:
            return
        self._asked[what, move] = now + SECOND

        def done(_result: object, _error: str) -> None:
            self._asked.pop((what, move), None)

        self.change(done, nobody_waits, **change)
