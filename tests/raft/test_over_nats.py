"""Groups of three nodes over a real nats-server, with real logs and real time: elections, large entries, a node cut off."""

import asyncio
import os
import random
import re

import pytest
from stan_protocol.scalars import GroupId, RaftIndex

from stan.edge.runtime import AsyncRuntime
from stan.log.files.disk import OsFiles
from stan.log.files.filelog import FileLog
from stan.protocol.entries import Kind
from stan.raft.group import GroupPorts, RaftGroup
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.scheduler import Scheduler
from stan.raft.transport.mux import Mux
from stan.raft.transport.mux_nats import NatsWire
from tests.kit.fake_broker import eventually, nats_server

NAMES = ["a", "b", "c"]
_HEAD = re.compile(rb"MSG (\S+) \d+ (\d+)\r\n")


class NatsSocket(asyncio.Protocol):
    """Just enough of a NATS client: the outlet of one node."""

    def __init__(self, node):
        self.node = node
        self.transport = None
        self.buffer = bytearray()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b'CONNECT {"verbose":false}\r\n')
        transport.write(f"SUB {self.node.wire.subscription} 1\r\n".encode())

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n")) >= 0:
            line = bytes(self.buffer[: end + 2])
            head = _HEAD.fullmatch(line)
            if head is None:
                if line.startswith(b"PING"):
                    self.transport.write(b"PONG\r\n")
                del self.buffer[: end + 2]
                continue
            length = int(head[2])
            if len(self.buffer) < end + 4 + length:
                return
            payload = bytes(self.buffer[end + 2 : end + 2 + length])
            del self.buffer[: end + 4 + length]
            self.node.mux.receive(self.node.wire.sender(head[1]), payload)

    def connection_lost(self, _error):
        self.node.outlet = None


class Node:
    """A small owner of groups, as the driver will be."""

    def __init__(self, name, directory, groups):
        self.name, self.outlet = name, None
        self.applied = {number: [] for number in range(groups)}
        self.crashes = []
        runtime = self.runtime = AsyncRuntime(groups)
        self.scheduler = Scheduler(runtime, news=lambda: runtime.soon(self.drive), crashed=self.crashes.append)
        self.wire = NatsWire("blue", name, [n for n in NAMES if n != name])
        self.wire.publish = self.write
        draw = random.Random(name)
        others = [other for other in NAMES if other != name]
        self.mux = Mux(
            others, self.wire, now=runtime.now, random=draw, note=lambda *_: None, wake=self.scheduler.schedule
        )
        ports = GroupPorts(self.mux.send, runtime.now, draw, self.scheduler.wake, lambda *_: None, lambda *_: None)
        self.groups = {}
        for number in range(groups):
            log, _ = FileLog.open(directory / str(number) / "log", GroupId(number), b"s" * 16)
            state = HardState.open(OsFiles(), str(directory / str(number)))
            self.groups[number] = RaftGroup(
                GroupId(number), name, NAMES, log, state, ports, applied=RaftIndex(0), sync="always"
            )

    def write(self, data):
        """The outlet of the wire."""
        if self.outlet is None or self.outlet.transport.is_closing():
            return False
        self.outlet.transport.write(data)
        return True

    async def connect(self, url):
        host, port = url.removeprefix("nats://").split(":")
        _, self.outlet = await asyncio.get_running_loop().create_connection(lambda: NatsSocket(self), host, int(port))

    def drive(self):
        for number, group in self.groups.items():
            while entries := group.take_committed():
                group.log.commit(entries[-1].index)
                self.applied[number] += [entry.body for entry in entries if entry.kind != Kind.NOOP]
            if group.wants_sync:
                self.runtime.sync(group, lambda durable, why, group=group: self.synced(group, durable, why))

    def synced(self, group, durable, why):
        if durable is None:
            group.freeze(why)
        else:
            group.synced(durable)
        self.drive()

    def close(self):
        self.scheduler.stop()
        if self.outlet is not None:
            self.outlet.transport.abort()
        self.runtime.close()
        for group in self.groups.values():
            group.log.close()


def leader(nodes, number=0):
    """The one that leads; None while nobody does, or one of an earlier term still believes it."""
    leading = [node for node in nodes if node.groups[number].leads]
    return leading[0] if len(leading) == 1 else None


async def replicate(nodes, number, bodies):
    """Propose until it is applied everywhere; on a busy machine a leader may lose its role meanwhile."""

    def applied():
        return all(node.applied[number][-len(bodies) :] == bodies for node in nodes)

    while not applied():
        await eventually(lambda: leader(nodes, number))
        node = leader(nodes, number)
        if node is not None:
            group, term = node.groups[number], node.groups[number].term
            group.propose([(Kind.META, body) for body in bodies], urgent=True)
            await eventually(lambda group=group, term=term: group.term != term or applied(), 30)


@pytest.fixture
async def nodes(tmp_path):
    with nats_server() as url:
        nodes = [Node(name, tmp_path / name, 3) for name in NAMES]
        for node in nodes:
            node.url = url
            await node.connect(url)
            node.scheduler.start(node.mux, list(node.groups.values()))
            for group in node.groups.values():
                group.bootstrap()
        yield nodes
        for node in nodes:
            node.close()
        assert [node.crashes for node in nodes] == [[], [], []]


async def test_groups_replicate_over_nats(nodes):
    for number in range(3):
        await replicate(nodes, number, [os.urandom(size) for size in (1, 100, 200_000, 1 << 20, 3 << 20)])


async def test_node_that_lost_its_connection_loses_its_leadership_and_comes_back(nodes):
    await eventually(lambda: leader(nodes))
    old = leader(nodes)
    others = [node for node in nodes if node is not old]
    old.outlet.transport.abort()
    await eventually(lambda: leader(others))
    leader(others).groups[0].propose([(Kind.META, b"without")], urgent=True)
    await eventually(lambda: all(node.applied[0] == [b"without"] for node in others) and not old.groups[0].leads)
    await old.connect(old.url)
    await eventually(lambda: old.applied[0] == [b"without"] and leader(nodes))
