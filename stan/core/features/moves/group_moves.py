"""The moves of channels from and to one group, on its leader (see `channel_moves`)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, ChannelUid, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.clients.clients import Clients
from stan.core.clients.subscription_requests import SubscriptionRequests
from stan.core.features.moves.source import MoveSource, end_move
from stan.core.features.moves.steps import MoveAction, MoveEvent, MoveStep, next_step
from stan.core.features.moves.target import MoveTarget
from stan.core.leader.local_group import Leadership
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
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
        subscribing: SubscriptionRequests,
        watch: MoveWatch,
    ) -> None:
        super().__init__(services, leadership)
        self.source = source
        self.clients = clients
        self.subscribing = subscribing
        self._target = target
        self._watch = watch
        self._due: dict[tuple[MoveAction, int], int] = {}  # by action and number of a move or channel: Nanos
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
                self.group.dispatch.members.mark_unconfirmed(info.uid)
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
        for move, infos in meta.moves().items() if meta.by_uid.moving else ():
            if infos[0].moving_to == self.number:
                self._target.look(move, infos)
        for uid, state in list(machine.moves.by_channel.items()):
            if meta.applied < state.move:  # this copy of the metadata is behind
                self._watch.restless = True
            elif (event := self._event(state, uid)) is not None:
                self._act(next_step(MoveStep[state.stage.name], event)[1], state, uid)

    def _event(self, state: MoveStage, uid: ChannelUid) -> MoveEvent | None:
        """The news of the metadata about a channel that has come or goes."""
        now, meta, comes = self.node.clock.now, self.node.meta, state.stage not in (Stage.HELD, Stage.GONE)
        info = meta.by_uid.get(uid)
        if info is None:
            return MoveEvent.DELETED if uid < meta.next_uid else None
        if info.move != state.move:
            return MoveEvent.GOES if (info.group == self.number) == comes else MoveEvent.STAYS
        if state.stage is Stage.HELD:
            since = self._watch.held_at.setdefault(state.move, now)
            return MoveEvent.HOPELESS if now - since > limits.MOVE_HOLD_MAX else None
        return MoveEvent.WAKE if state.stage is Stage.ARRIVED else None  # what is copied, the target looks after

    def _act(self, action: MoveAction, state: MoveStage, uid: ChannelUid) -> None:
        move = state.move
        match action:
            case MoveAction.NOTHING:
                return
            case MoveAction.CANCEL | MoveAction.FINISH:
                if self._is_due(action, move, limits.FORWARD_INTERVAL):
                    end_move(self.proposals, move, done=action is MoveAction.FINISH)
            case MoveAction.DROP_CHANNEL:
                self._propose(action, int(uid), pb.DropChannel(uid=uid))
            case _:
                self._propose(action, move, pb.Moving(move=move, uids=self._of_move(state)))

    def _of_move(self, state: MoveStage) -> list[ChannelUid]:
        by_channel = self.group.machine.moves.by_channel
        return sorted(uid for uid, known in by_channel.items() if known == state)

    def _is_due(self, action: MoveAction, number: int, wait: int) -> bool:
        """True if an action was not done a moment ago; it is due again in *wait* ns. *number*: of its move or channel."""
        self._watch.restless = True
        now = self.node.clock.now
        if self._due.get((action, number), 0) > now:
            return False
        self._due[action, number] = now + wait
        return True

    def _propose(self, action: MoveAction, number: int, change: pb.Moving | pb.DropChannel) -> None:
        """Propose a change, unless it is on its way."""

        def done(_result: object, _error: str) -> None:
            self._due.pop((action, number), None)

        if self._is_due(action, number, SECOND):
            self.change(done, nobody_waits, **{action.value: change})
