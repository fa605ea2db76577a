"""What single nodes answer to operators: how they are, with which settings they run, and to hand over. Beside a fake disk."""

import asyncio
import shutil
import threading
from types import SimpleNamespace

import pytest
from stan_protocol import refusals
from stan_protocol.ack_levels import AckLevel
from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import level, limits
from stan.config import Config, Setting, StoreConfig
from stan.core.clients.nodes import HeardNodes
from stan.core.requests.table import REQUESTS
from stan.edge.group_faults import LastingRefusal
from stan.labels import Labels, places_of
from stan.monitor.view import NodeView
from stan.protocol.proto.node_pb2 import NodeHello, NodeLabels
from stan.raft.group import RaftGroup
from stan.server.node_admin import NodeAdmin
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node

PREFIX = "_STAN.x.test-cluster.admin"
ANSWERS = {"nodes": pb.NodeStatus, "options": pb.OptionsResponse, "step_down": pb.ChangeResponse}


class FakeGroup(RaftGroup):
    """A replicated group that says what it is told to."""

    leader = "n1"
    leads = True
    term = 3
    commit_index = 6
    transferring = False
    members = ("n1", "n2", "n3")
    successor = "n2"

    def __init__(self, number, **told):
        self.group = number
        self.log = SimpleNamespace(last_index=7, decompression=SimpleNamespace(batches=0, again=0))
        self.transfers = []
        for name, value in told.items():
            setattr(self, name, value)

    def lease_until(self):
        return 1 << 62

    def progress(self):
        return {"n2": 7, "n3": 2}

    def best_successor(self):
        return self.successor


class Rig:
    """A node that never began: who asks it gets what it writes."""

    def __init__(self, tmp_path, *, clustered=False, settings=()):
        self.harness = Node() if clustered else CoreHarness()
        store = StoreConfig(kind="file", directory=tmp_path, raft_groups=1)
        config = Config(cluster=CLUSTERED.cluster if clustered else None, store=store, settings=tuple(settings))
        self.written = []
        self.handlers = {}
        self.soon = []
        self.rests = []
        self.groups = {0: FakeGroup(0), 1: FakeGroup(1)}
        if clustered:
            self.harness.broker.cluster.join("n1", (), HeardNodes(levels=lambda: {"n1": level.KNOWN}))
        gateway = SimpleNamespace(serve=self.serve, serve_early=self.serve)
        self.node = SimpleNamespace(
            broker=self.harness.broker,
            config=config,
            gateway=gateway,
            crash=SimpleNamespace(done=lambda: False),
            serving=True,
            connection=SimpleNamespace(up=True),
            driver=SimpleNamespace(
                turns=SimpleNamespace(stopped=False, wake=lambda: None),
                faults=SimpleNamespace(frozen={}, refusals={}, voteless=set()),
                groups=self.groups,
            ),
            storage=SimpleNamespace(
                node_id="n1",
                is_intact=lambda _: True,
                applied={0: (5, 3), 1: (5, 3)},
                differs={},
                rows=SimpleNamespace(hashes=lambda _: [(4, -2)]),
            ),
            runtime=SimpleNamespace(now=lambda: 100, wall=lambda: 200, soon=self.soon.append),
        )
        membership = SimpleNamespace(
            me=NodeHello(replica=False, own_labels=NodeLabels(zone="a")),
            hellos=SimpleNamespace(read_replicas=lambda _now: ["n1", "r1"], alive=lambda name, _now: name == "n2"),
        )
        self.member = None
        if clustered:
            hand_over = lambda number, to, told: self.groups[number].transfers.append((to, told))  # noqa: E731
            self.member = SimpleNamespace(
                reconfiguration=SimpleNamespace(names=("n1", "n2", "n3"), places={"n2": Labels("b", "7")}),
                membership=membership,
                groups=self.groups,
                handovers=SimpleNamespace(hand_over=hand_over, start_transfer_cooldown=self.rests.append),
            )
        view = NodeView(config, "SERVER", None, 7)
        view.node, view.pages = self.node, "http://127.0.0.1:8222"
        self.node_admin = NodeAdmin(view, self.node, self.member)

    def serve(self, name, handler):
        def send(reply, payload, _groups):
            self.written.append(publication(reply, payload))

        self.handlers[REQUESTS[name].subject(self.harness.broker.view.subjects)] = self.harness.broker.frames.receiver(
            name, handler, send
        )

    def ask(self, kind, request=b"", reply="answer"):
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        self.handlers[f"{PREFIX}.{kind}"](Frame(9, f"{PREFIX}.{kind}".encode(), reply.encode(), b"", payload))

    def answers(self, kind):
        written, self.written[:] = list(self.written), []
        payloads = [frame.partition(b"\r\n")[2].removesuffix(b"\r\n") for frame in written]
        return [ANSWERS[kind].FromString(payload) for payload in payloads]

    async def answer(self, kind, request=b""):
        self.ask(kind, request)
        async with asyncio.timeout(20):
            while not self.written:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        (found,) = self.answers(kind)
        return found


# --- how it is ----------------------------------------------------------------------------------------------------------


async def test_node_alone_tells_how_it_is(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", {tmp_path: SimpleNamespace(free=10, total=20)}.get)
    rig = Rig(tmp_path)
    rig.harness.connect()
    rig.harness.publish("foo", b"1", b"2")
    rig.harness.subscribe("foo", "in")
    rig.node.driver.faults.refusals[1] = LastingRefusal("disk full", short=True, since=90, newest=0, bytes=0, looked=0)
    rig.groups.update(
        {
            0: SimpleNamespace(
                log=SimpleNamespace(last_index=7, decompression=SimpleNamespace(batches=0, again=0)), leads=True
            )
        }
    )
    status = await rig.answer("nodes", pb.NodesRequest(version=1))
    assert (status.node, status.server_id, status.started, status.now) == ("", "SERVER", 7, 200)
    assert (status.disk_free, status.disk_total, status.store, status.sync) == (10, 20, "file", "always")
    assert (status.clients, status.channels, status.monitor) == (1, 1, "http://127.0.0.1:8222")
    assert (status.messages_in, status.messages_out, list(status.not_ready)) == (
        *(2, 2),
        ["group 1: it takes nothing: disk full"],
    )
    assert {one.level: one.messages for one in status.acked} == {
        AckLevel.SYNCED: 0,
        AckLevel.REPLICATED: 0,
        AckLevel.MEMORY: 2,
    }
    assert status.rss > 1_000_000
    first, second = status.groups
    assert (first.role, first.last_index, first.applied, first.trouble) == ("leader", 7, 5, "")
    assert (first.hashed, first.state_hash.hex(), first.differs) == (4, "fffffffffffffffe", "")
    told = (second.trouble, second.trouble_kind, second.trouble_since)
    assert told == ("it takes nothing: disk full", "full", 90)


async def test_node_of_a_cluster_tells_of_the_others(tmp_path) -> None:
    rig = Rig(tmp_path, clustered=True)
    rig.groups[1] = FakeGroup(1, leads=False, leader="n3")
    status = await rig.answer("nodes")
    assert (status.node, list(status.nodes), list(status.read_replicas)) == ("n1", ["n1", "n2", "n3"], ["r1"])
    assert status.labels == "zone=a"
    assert places_of(status.places) == {"n2": Labels("b", "7")}
    leads, follows = status.groups
    assert (leads.role, leads.leader, leads.term, leads.committed, list(leads.voters)) == (
        *("leader", "n1", 3, 6),
        ["n1", "n2", "n3"],
    )
    assert [(one.node, one.match, one.connected) for one in leads.replicas] == [("n2", 7, True), ("n3", 2, False)]
    assert (follows.role, follows.leader, len(follows.replicas)) == ("follower", "n3", 0)


@pytest.mark.parametrize(
    ("told", "role"), [({"leader": None}, "candidate"), ({"members": ("n2", "n3")}, "observer"), ({}, "follower")]
)
async def test_role_in_a_group(tmp_path, told, role) -> None:
    rig = Rig(tmp_path, clustered=True)
    rig.groups[1] = FakeGroup(1, **{"leads": False, "leader": "n3"} | told)
    status = await rig.answer("nodes")
    assert status.groups[1].role == role
    if told.get("leader", "") is None:
        assert list(status.not_ready) == ["group 1: it has no leader"]


async def test_disk_that_hangs_holds_no_answer_up(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "DISK_PATIENCE", SECOND // 100)
    hangs = threading.Event()
    monkeypatch.setattr(shutil, "disk_usage", lambda _directory: hangs.wait(60) and SimpleNamespace(free=10, total=20))
    rig = Rig(tmp_path)
    try:
        assert (await rig.answer("nodes")).disk_total == 0
        assert (await rig.answer("nodes")).disk_total == 0
    finally:
        hangs.set()
    async with asyncio.timeout(20):
        while not (await rig.answer("nodes")).disk_total:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_as_many_may_wait_as_the_limit_lets(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "NODE_ANSWERS_MAX", 1)
    rig = Rig(tmp_path)
    rig.ask("nodes")
    rig.ask("nodes")
    (busy,) = rig.answers("nodes")
    assert (busy.error.decode(), busy.retry) == (refusals.BUSY, True)


async def test_stopped_node_is_silent(tmp_path) -> None:
    rig = Rig(tmp_path)
    rig.node.driver.turns.stopped = True
    rig.ask("nodes")
    await rig.node_admin._answer_waiting()
    assert not rig.written


# --- its settings -------------------------------------------------------------------------------------------------------


async def test_options_are_those_in_force(tmp_path) -> None:
    rig = Rig(tmp_path, settings=[Setting("dir", "/data", "flag"), Setting("pass", "[REDACTED]", "stan.conf:3")])
    found = await rig.answer("options", pb.OptionsRequest(version=1))
    assert [(option.name, option.value, option.source) for option in found.options] == [
        ("dir", "/data", "flag"),
        ("pass", "[REDACTED]", "stan.conf:3"),
    ]


async def test_options_that_do_not_fit_are_counted(tmp_path) -> None:
    rig = Rig(tmp_path, settings=[Setting(f"channels.c{number}.max_msgs", "10", "stan.conf:3") for number in range(50)])
    rig.harness.broker.step_payload_limit(1000)
    found = await rig.answer("options")
    assert found.ByteSize() <= 1000
    assert found.options[-1].value == f"{51 - len(found.options)} more are left out"


@pytest.mark.parametrize("kind", ANSWERS)
async def test_garbage_and_unknown_versions_are_refused(tmp_path, kind) -> None:
    rig = Rig(tmp_path)
    rig.ask(kind, b"\xff")
    rig.ask(kind, pb.NodesRequest(version=2))
    assert [answer.error.decode() for answer in rig.answers(kind)] == [refusals.INVALID_ADMIN, refusals.UNKNOWN_VERSION]
    rig.ask(kind, reply="")
    assert not rig.written


# --- leadership ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def leader(tmp_path):
    rig = Rig(tmp_path, clustered=True)
    rig.harness.lead(0, 1)
    return rig


def step_down(rig, group, to=""):
    rig.ask("step_down", pb.StepDownRequest(version=1, group=group, to=to))
    while rig.soon:
        rig.soon.pop()()
    found = rig.answers("step_down")
    return (found[0].error.decode(), found[0].retry) if found else None


def test_leader_hands_over_to_whom_it_is_told_or_to_the_best(leader) -> None:
    assert step_down(leader, 1) is step_down(leader, 0, "n3") is None
    for number, to in ((1, "n2"), (0, "n3")):
        assert number not in leader.rests
        ((chosen, told),) = leader.groups[number].transfers
        assert chosen == to
        told(True)  # noqa: FBT003
        (answer,) = leader.answers("step_down")
        assert (answer.error, answer.changed) == (b"", 1)
        assert number in leader.rests


def test_who_does_not_take_over_is_named(leader) -> None:
    step_down(leader, 1, "n3")
    ((_, told),) = leader.groups[1].transfers
    told(False)  # noqa: FBT003
    (answer,) = leader.answers("step_down")
    assert (answer.error.decode(), answer.retry) == ("stan: node n3 did not take group 1 over", True)


def test_what_cannot_be_handed_over(leader) -> None:
    assert step_down(leader, 1, "n1") == ("", False)  # it leads already
    assert step_down(leader, 1, "x") == ("stan: node x has no vote in group 1: n1, n2, n3 have", False)
    assert step_down(leader, 9) == ("stan: there is no group 9", False)
    leader.groups[1].transferring = True
    assert step_down(leader, 1) == (refusals.BUSY, True)
    leader.groups[1].successor = None
    assert step_down(leader, 1) == ("stan: nobody else is there to lead", True)
    leader.harness.follow(1)
    assert step_down(leader, 1) is None


def test_node_alone_hands_nothing_over(tmp_path) -> None:
    assert step_down(Rig(tmp_path), 0) == (refusals.NOT_A_CLUSTER, False)
