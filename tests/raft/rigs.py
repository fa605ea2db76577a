"""Two rigs with virtual time and messages in the hand: PySyncObj as published, and the project's groups around it."""

import random
from collections import deque
from pathlib import Path

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from stan_protocol.scalars import MILLISECOND, SECOND, GroupId, RaftIndex

from stan import limits
from stan.log.files.filelog import FileLog
from stan.raft.group import GroupPorts, RaftGroup
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.transport import codec
from tests.kit.files import CrashingFiles

REGULAR_NOTHING = b"\x01"
"""A command that the bare library replicates and does nothing with."""


class _Clock:
    """The bare library's time, in the hand from the first call of `set` to `release`."""

    def __init__(self):
        self.own = library.monotonicTime
        self.now = 0.0

    def __call__(self):
        return self.now

    def set(self, now):
        self.now, library.monotonicTime = now, self

    def release(self):
        library.monotonicTime = self.own


CLOCK = _Clock()


class _Outgoing(Transport):
    def __init__(self, sent, me):
        super().__init__(None, None, None)
        self.sent, self.me = sent, me

    def send(self, node, message):
        self.sent.append((self.me, node.id, message))
        return True


class Stock:
    """Nodes of the bare library. `sent` holds (source, target, message) until somebody delivers it."""

    def __init__(self, count, cls=SyncObj, seed=1, **options):
        random.seed(seed)
        self.now = 1000.0
        CLOCK.set(self.now)
        self.sent = deque()
        self.options = {"autoTick": False, "connectionTimeout": 10, "commandsWaitLeader": False} | options
        self.names = [f"n{at}" for at in range(count)]
        self.cls = cls
        self.nodes = {}

    def start(self, name, **options):
        CLOCK.set(self.now)
        others = [Node(other) for other in self.names if other != name]
        conf = SyncObjConf(**(self.options | options))
        node = self.cls(Node(name), others, conf, transport=_Outgoing(self.sent, name))
        for other in others:
            node._SyncObj__onNodeConnected(other)
        self.nodes[name] = node
        return node

    def start_all(self, **options):
        for name in self.names:
            self.start(name, **options)
        return self

    def give(self, target, source, **message):
        """A message for *target*; returns what it says to that."""
        CLOCK.set(self.now)
        before = len(self.sent)
        self.nodes[target]._SyncObj__onMessageReceived(Node(source), message)
        return [said for _, _, said in list(self.sent)[before:]]

    def tick(self, seconds=0.05):
        self.now += seconds
        CLOCK.set(self.now)
        for node in self.nodes.values():
            node.doTick(0.0)

    def deliver(self, drop=lambda *_: False):
        """Hand out what was sent so far; what is said to that waits."""
        for _ in range(len(self.sent)):
            source, target, message = self.sent.popleft()
            if target in self.nodes and not drop(source, target, message):
                self.nodes[target]._SyncObj__onMessageReceived(Node(source), message)

    def run(self, seconds, drop=lambda *_: False):
        for _ in range(int(seconds / 0.05)):
            self.tick()
            self.deliver(drop)
            self.deliver(drop)

    def elect(self, name="n0"):
        """Let *name* win with everybody's vote."""
        node = self.nodes[name]
        node._SyncObj__raftElectionDeadline = 0.0
        node.doTick(0.0)
        self.sent.clear()
        for other in self.names:
            if other != name and not node._isLeader():
                self.give(name, other, type="response_vote", term=node.raftCurrentTerm)
        assert node._isLeader()
        return node


def entry(index, term):
    return (REGULAR_NOTHING, index, term)


class SafeNode:
    """One life of a node with one group."""

    def __init__(self, rig, name, files, applied):
        self.rig, self.name, self.files = rig, name, files
        self.log, _ = FileLog.open(Path("/g/log"), GroupId(1), b"s" * 16, files=files)
        self.hard_state = HardState.open(files, "/g")
        self.handed, self.lacking = [], []
        self.replaced = 0  # how often the group's object was, by one with other voters
        self.ports = GroupPorts(
            self.send,
            lambda: rig.now,
            random.Random(name),
            lambda group: None,
            lambda level, text: rig.notes.append(text),
            lambda group, peer: self.lacking.append(peer),
        )
        self.group = self._group(applied)

    def _group(self, applied):
        configured, voters = self.rig.members.get(self.name, (0, self.rig.voters))
        return RaftGroup(
            GroupId(1),
            self.name,
            voters,
            self.log,
            self.hard_state,
            self.ports,
            observers=[name for name in self.rig.voters + self.rig.observers if name not in voters],
            applied=RaftIndex(applied),
            configured=configured,
            sync="always",
        )

    def send(self, group, peer, message):
        self.rig.sent.append((self.name, peer, message))

    def sync(self):
        if not self.group.failed:
            self.group.synced(self.log.sync())

    def take(self):
        while entries := self.group.take_committed():
            self.log.commit(entries[-1].index)
            self.handed += entries
        if self.group.reconfigured is not None and self.rig.replaces:
            self._replace_group()

    def _replace_group(self):
        """Other voters are in force."""
        self.rig.members[self.name] = self.group.reconfigured
        self.group.close()
        self.group = self._group(self.handed[-1].index)
        self.replaced += 1
        for other in self.rig.nodes:
            if other != self.name:
                self.group.peer_up(other)

    def applied(self):
        return [e.body for e in self.handed if e.body]


class Safe:
    """Groups of the project. Messages pass the codec; a sync happens when `sync` or `run` says so."""

    def __init__(self, count, observers=0):
        self.now = 10 * SECOND
        self.sent = deque()
        self.notes = []
        self.voters = [f"n{at}" for at in range(count)]
        self.observers = [f"o{at}" for at in range(observers)]
        self.members = {}  # node -> entry and voters of the change that is in force there
        self.replaces = True
        self.nodes = {}

    def start(self, name, files=None, applied=0, *, found=True):
        node = self.nodes[name] = SafeNode(self, name, files or CrashingFiles(), applied)
        if found:
            node.group.bootstrap()
        for other in self.voters + self.observers:
            if other != name:
                node.group.peer_up(other)
        return node

    def start_all(self):
        for name in self.voters + self.observers:
            self.start(name)
        return self

    def wait(self):
        """Until nobody is bound any more by what a leader may have been promised."""
        self.now += limits.RAFT_ELECTION_TIMEOUT_MIN

    def give(self, target, source, message):
        """A message for *target*; returns what it says to that, before any sync."""
        before = len(self.sent)
        ((_, copy),) = codec.decode(b"".join(codec.encode(GroupId(1), message)))
        self.nodes[target].group.receive(source, copy)
        return [said for _, _, said in list(self.sent)[before:]]

    def tick(self, milliseconds=50):
        self.now += milliseconds * MILLISECOND
        for node in self.nodes.values():
            node.group.turn()

    def deliver(self, drop=lambda *_: False):
        for _ in range(len(self.sent)):
            source, target, message = self.sent.popleft()
            if target in self.nodes and not drop(source, target, message):
                self.give(target, source, message)

    def run(self, seconds, drop=lambda *_: False):
        for _ in range(int(seconds / 0.05)):
            self.tick()
            for _ in range(3):
                self.deliver(drop)
                for node in self.nodes.values():
                    node.sync()
                    node.take()
                self.tick(0)

    def elect(self, name="n0"):
        """Let *name* win with everybody's vote; nothing else is delivered, nothing synced."""
        group = self.nodes[name].group
        self.now += 2 * SECOND
        group.turn()
        for pre in (True, False):
            for other in self.voters:
                if other != name:
                    term = group.term + 1 if pre else group.term
                    self.give(name, other, codec.VoteAnswer(term, pre, granted=True))
            group.turn()
        assert group._raft.library.is_leader
        self.sent.clear()
        return group

    def leader(self):
        (name,) = [name for name, node in self.nodes.items() if node.group.leads]
        return self.nodes[name]


__all__ = ["Safe", "Stock", "entry"]
