"""A cluster in which channels are moved between groups while everything else happens to it."""

import re
from functools import partial

from stan_protocol.scalars import MILLISECOND, SECOND, GroupId

from stan.protocol.placement import channel_group
from tests.kit.broker_state import BrokerState, channel_moves
from tests.sim.cluster_node import values_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Reset
from tests.sim.scene import CHANNELS

PAUSE = 100 * MILLISECOND
GOES_ON = re.compile(r'Channel "(.+)" goes on in group (\d+)')


class Moved:
    """What a world knows of moves; put before a cluster. All that is promised of a channel holds wherever it is; a move is a
    cause of repeats as a change of leaders is."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.moved = 0  # moves that came to their end
        self._cursors = {}  # ack inbox -> position, as it was first found

    def run(self, safety_s=14):
        """Longer than in other worlds: a leader must have heard publishers for a while before channels go from its group."""
        return super().run(safety_s)

    def note(self, node, level, text):
        if goes_on := GOES_ON.fullmatch(text):
            name, group = goes_on[1], int(goes_on[2])
            if group != self.history.group_of[name]:
                self.moved += 1
                self.history.moved.add(name)
            self.history.group_of[name] = group
            self.history.events.append(Reset(self.loop.now, None))  # the checks know a channel by its last group
            self.history.cause(self.loop.now, self.loop.now, f"{name} is moved to group {group}")
        super().note(node, level, text)

    def cursor_of(self, ack_inbox):
        """The position of a subscription: one name for it, whichever group it is in and whenever its members have come."""
        for node in self.nodes.values():
            state = BrokerState(node.cluster_node.broker) if node.running else None
            for number in state.broker.view.groups if state is not None else ():
                for position in state.positions(number):
                    inboxes = [one.settings.ack_inbox for one in position.members]
                    if ack_inbox not in inboxes:
                        continue
                    known = next((self._cursors[one] for one in inboxes if one in self._cursors), ack_inbox)
                    self._cursors[ack_inbox] = known
                    return known
        return self._cursors.get(ack_inbox, f"of {ack_inbox}")

    def stored(self, node, batch):
        """As in other worlds, but that a batch of one group may be a part of one of another group."""
        if not batch.records:  # sequences that stay unused
            return
        told = values_of(bytes(batch.records))
        name = self.channel_of.setdefault(batch.uid, told[0][0])
        for sequence, (_, _, value) in enumerate(told, batch.base_sequence):
            known = self.history.stored[name].setdefault(sequence, value)
            if known != value:
                self.complain(f"C3 {name}:{sequence} is {known} and {value} on {node.name}")

    def _open_ends(self):
        leader = self.leader(0)
        moving = leader and [one for one in leader.cluster_node.broker.view.meta.by_uid.values() if one.move]
        return f"{len(moving)} channels are on their way" if moving else super()._open_ends()


class MoveWorld(Moved, ClusterWorld):
    """One run in which an operator moves channels."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.raft_groups = self.random.choice((3, 5, 8))
        self.history.group_of.update({name: channel_group(name.encode(), self.raft_groups) for name in CHANNELS})

    def begin(self):
        super().begin()
        self.loop.after(SECOND, self._move)

    def _move(self):
        """Begin to move a channel to another group, and seldom cancel the move."""
        leader = self.leader(0)
        if leader is not None and leader.running and not leader.pauses.until:
            broker = leader.cluster_node.broker
            info = broker.view.meta.channels.get(self.random.choice(CHANNELS).encode())
            left = info.left if info is not None else ()
            to = GroupId(self.random.choice([at for at in range(1, self.raft_groups + 1) if at not in left]))
            if info is not None:
                leader.run(partial(channel_moves(broker).begin, info, to, lambda *_told: None))
                if info.move and self.random.random() < 0.1:
                    leader.run(channel_moves(broker).cancel, info.move)
                leader.run(leader.driver.turns.wake)
        if not self.quiet:
            self.loop.after(self.random.choice((2, 5, 15)) * PAUSE, self._move)
