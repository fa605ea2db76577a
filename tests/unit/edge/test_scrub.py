"""Scrubbed copies: what one node reads and answers, and how the command compares what nodes answer."""

import json
import re
import zlib

import pytest
from stan_client.requests.admin import Nodes
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.kernel import client as client_kernel
from stan_protocol.proto import admin_pb2 as pb
from typer.testing import CliRunner

from stan import errors, limits
from stan.cli.main import app
from stan.cli.support import session
from stan.config import Config
from stan.core.broker.broker import Broker
from stan.edge.nats.gateway import Gateway
from stan.edge.serving.scrub import Scrubber
from stan.errors import Damage
from stan.level import KNOWN
from stan.log.index import BatchIndex
from stan.log.types import BatchRow, StaleRef
from stan.policies import EPHEMERAL
from stan.protocol.entries import Kind
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import RecordingLink
from tests.kit.fake_operator import FakeDirect, channel

GROUP = 1
ROW = b"\x03\0\0\0\x22\1x"
FIRST = kernel.seal(b"foo", 1, 10, [ROW * 3])
SECOND = kernel.seal(b"foo", 4, 20, [ROW * 2])


class Log:
    """One channel with two batches, messages 1 to 3 and 4 to 5."""

    def __init__(self):
        self.index = BatchIndex(1, 40)
        self.index.add(BatchRow(1, 1, 3, 10, 0, 0, len(FIRST)), 1, raft_index=2, hole=0)
        self.index.add(BatchRow(1, 4, 2, 20, 0, 500, len(SECOND)), 1, raft_index=3, hole=0)
        self.faults = {}
        self.reads = []

    def channel(self, uid):
        return self.index if uid == 1 else BatchIndex(uid, 40)

    def read(self, ref, *, stored=False):
        assert stored, "never from a cache"
        self.reads.append(ref.base_sequence)
        fault = self.faults.get(ref.base_sequence)
        if isinstance(fault, list):
            fault = fault.pop(0) if fault else None
        if fault is not None:
            raise fault
        return FIRST if ref.base_sequence == 1 else SECOND


class Runtime:
    """Work is done when the test says so."""

    def __init__(self):
        self.waiting = []

    def work(self, call, done):
        self.waiting.append((call, done))

    def finish(self):
        call, done = self.waiting.pop(0)
        problem = None
        try:
            call()
        except errors.StanError as error:
            problem = error
        done(problem)


class Node:
    def __init__(self, name=""):
        self.broker = Broker(Config(), lambda *_: BatchIndex(1, 40), b"_INBOX.n.", [GROUP])
        self.gateway = Gateway(self.broker, "_INBOX.x.>", lambda *note: self.notes.append(note))
        self.notes = []
        self.gateway.connection = RecordingLink()
        self.log = Log()
        self.runtime = Runtime()
        group = type("Group", (), {"log": self.log})()
        Scrubber(self.broker, {GROUP: group}, self.gateway, self.runtime, name)
        register(self.broker)

    def ask(self, reply=b"r", payload=None, **told):
        request = pb.VerifyRequest(**{"version": 1, "channel": b"foo", "from": 1, "to": 5, **told})
        subject = b"_STAN.x.test-cluster.admin.verify"
        sid = next(sid for sid, name in self.gateway.subscriptions.subjects.items() if name.encode() == subject)
        data = request.SerializeToString() if payload is None else payload
        self.gateway.subscriptions.handlers[sid](Frame(sid, subject, reply, b"", data))

    def answers(self):
        _, frames = client_kernel.split(self.gateway.connection.written.replace(b"PUB r ", b"MSG r 1 "), 0)
        self.gateway.connection.written = b""
        return [pb.VerifyResponse.FromString(frame.payload) for frame in frames]

    def answer(self, **told):
        self.ask(**told)
        while self.runtime.waiting:
            self.runtime.finish()
        (answer,) = self.answers()
        return answer


def register(broker):
    """A channel foo, uid 1, of the group, and an ephemeral one."""
    founded = entries.MetaChange(cluster_info=entries.ClusterInfo(level=KNOWN))
    broker.entries.step_committed(0, 1, Kind.META, founded.SerializeToString())
    ephemeral = entries.Channel(name=b"brief", uid=2, group=GROUP, commit=EPHEMERAL)
    created = entries.CreateChannels(channels=[entries.Channel(name=b"foo", uid=1, group=GROUP), ephemeral])
    broker.entries.step_committed(0, 2, Kind.META, entries.MetaChange(create_channels=created).SerializeToString())


def test_a_copy_is_counted_and_summed_up():
    found = Node().answer()
    whole = FIRST + SECOND
    assert (found.messages, found.bytes, found.crc) == (5, len(whole), zlib.crc32(whole))
    assert (found.first_sequence, found.last_sequence, found.next_sequence, found.uid) == (1, 5, 6, 1)


def test_a_part_goes_on_with_the_sum_of_what_was_before():
    node = Node()
    first = node.answer(to=2)
    second = node.answer(**{"from": 3}, crc=first.crc)
    assert (first.messages, first.next_sequence, second.messages) == (2, 3, 3)
    assert second.crc == zlib.crc32(FIRST + SECOND)


def test_damage_is_told_with_its_place_and_the_rest_is_read():
    node = Node()
    node.log.faults[1] = Damage("/data/1.log: position 17: wrong")
    found = node.answer()
    assert [(one.first_sequence, one.last_sequence, one.text) for one in found.damaged] == [
        (1, 3, "/data/1.log: position 17: wrong")
    ]
    assert (found.messages, found.next_sequence) == (2, 6)
    assert "position 17" in node.notes[0][1]


def test_a_place_that_moved_is_looked_up_again():
    node = Node()
    node.log.faults[1] = [StaleRef("rewritten")]
    assert node.answer().messages == 5
    node.log.faults[1] = StaleRef("rewritten for ever")
    found = node.answer()
    assert (found.error.decode(), found.retry) == (refusals.BUSY, True)


def test_more_than_a_bounded_number_of_bytes_is_left_for_the_next_request(monkeypatch):
    monkeypatch.setattr(limits, "VERIFY_BYTES_MAX", len(FIRST))
    found = Node().answer()
    assert (found.messages, found.next_sequence) == (3, 4)


def test_requests_that_are_refused():
    node = Node()
    for told in ({"from": 0}, {"from": 6}, {"payload": b"\xff\xff"}):
        node.ask(**told)
        assert node.answers()[0].error.decode() == refusals.INVALID_ADMIN
    node.ask(version=2)
    assert node.answers()[0].error.decode() == refusals.UNKNOWN_VERSION
    node.ask(channel=b"brief")
    assert node.answers()[0].error.decode() == refusals.NOT_OF_EPHEMERAL.format('"brief"', "a verification")
    node.ask(channel=b"nothing")
    assert node.answers()[0].retry
    node.ask(uid=9)
    assert node.answers()[0].retry
    node.ask(node="other")
    node.ask(reply=b"")
    assert node.answers() == []
    for _ in range(limits.VERIFIES_UNDER_WAY_MAX):
        node.ask()
    node.ask()
    assert node.answers()[0].error.decode() == refusals.BUSY


# --- the command ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = FakeDirect()
    fake.admin.all_channels = [channel()]
    nodes = [pb.NodeStatus(node=name, groups=[pb.GroupStatus(group=1)]) for name in ("a", "b")]
    fake.admin.all_nodes = Nodes(nodes, [])
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


def found(**told):
    return pb.VerifyResponse(
        **{"first_sequence": 1, "last_sequence": 10, "messages": 10, "bytes": 90, "crc": 5, "next_sequence": 11, **told}
    )


def verify(servers, a, b, *options):
    servers.admin.verified = {"a": a, "b": b}
    done = CliRunner().invoke(app, ["channel", "verify", "orders", "--json", *options])
    return done.exit_code, json.loads(done.stdout)["channels"][0]


def test_copies_that_are_the_same(servers):
    slices = [found(messages=4, next_sequence=5, crc=3), found(messages=6, bytes=0, crc=5)]
    code, told = verify(servers, [found()], slices)
    assert (code, told["result"]) == (0, "the same everywhere")
    assert ("verify", "b", 5, 10, 3) in servers.admin.asked


def test_copies_that_differ_or_are_damaged(servers):
    code, told = verify(servers, [found()], [found(crc=6)])
    assert (code, told["ok"]) == (1, False)
    assert "copies differ: a 00000005, b 00000006" in told["result"]
    damage = [pb.DamagedMessages(first_sequence=2, last_sequence=3, text="/x: position 9")]
    code, told = verify(servers, [found()], [found(damaged=damage)])
    assert (code, told["copies"][1]["damaged"]) == (1, [{"first": 2, "last": 3, "text": "/x: position 9"}])


def test_a_copy_that_retention_shortens_is_read_again(servers):
    code, _ = verify(
        servers, [found(), found(messages=6)], [found(first_sequence=5, messages=0, next_sequence=5), found(messages=6)]
    )
    assert code == 0
    assert [asked[2] for asked in servers.admin.asked] == [1, 1, 5, 5]


def test_a_copy_that_stays_behind_is_told(servers, monkeypatch):
    monkeypatch.setattr("stan.cli.commands.verify.LAG_PATIENCE_S", 0.0)
    monkeypatch.setattr("stan.cli.commands.verify.LAG_PAUSE_S", 0.001)
    behind = found(last_sequence=8, messages=8, next_sequence=9)
    stays = found(last_sequence=8, messages=0, next_sequence=9)
    code, told = verify(servers, [found()], [behind, *[stays] * 50])
    assert code == 1
    assert "ends with message 8, 10 is the newest" in told["result"]


def test_an_ephemeral_channel_has_no_copies_and_is_no_failure(servers):
    servers.admin.all_channels = [channel(commit=EPHEMERAL, last_sequence=2**32, first_sequence=2**32 + 1, messages=0)]
    code, told = verify(servers, [], [])
    assert (code, told["ok"], told["result"]) == (0, True, "ephemeral: has no copies")
    assert servers.admin.asked == []


def advised(servers, **copies):
    """The advice on copies of three nodes."""
    servers.admin.all_nodes = Nodes([pb.NodeStatus(node=name, groups=[pb.GroupStatus(group=1)]) for name in copies], [])
    servers.admin.verified = copies
    text = CliRunner().invoke(app, ["channel", "verify", "orders"], env={"COLUMNS": "300"}).stdout
    removed = re.search(r"One after the other of (.*): stop it", text)
    keeps = "keep all data directories" in text
    return removed.group(1) if removed else "", keeps


def damaged():
    return found(damaged=[pb.DamagedMessages(first_sequence=2, last_sequence=3, text="/x: position 9")])


def test_a_data_directory_is_to_be_moved_away_only_if_another_copy_is_good(servers):
    assert advised(servers, a=[found()], b=[damaged()], c=[found()]) == ("b", False)
    assert advised(servers, a=[found()], b=[found(crc=6)], c=[found()]) == ("b", False)
    assert advised(servers, a=[found()], b=[damaged()], c=[damaged()]) == ("b, c", False)
    assert advised(servers, a=[found()], b=[found(crc=6)]) == ("", True), "nobody knows which is right"
    assert advised(servers, a=[damaged()], b=[damaged()], c=[damaged()]) == ("", True)
    assert advised(servers, a=[found()], b=[found()]) == ("", False)


def test_a_copy_that_is_behind_is_no_reason_to_move_a_data_directory_away(servers, monkeypatch):
    monkeypatch.setattr("stan.cli.commands.verify.LAG_PATIENCE_S", 0.0)
    behind = found(last_sequence=8, messages=8, next_sequence=9)
    assert advised(servers, a=[found()], b=[behind, *[behind] * 5], c=[found()]) == ("", False)


def test_a_node_that_is_away_is_no_success(servers):
    servers.admin.all_nodes = servers.admin.all_nodes._replace(missing=["c"])
    assert verify(servers, [found()], [found()])[0] == 1
    assert CliRunner().invoke(app, ["channel", "verify"]).exit_code == 2
