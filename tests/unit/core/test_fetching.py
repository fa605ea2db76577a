"""Fetch on one node, with a log and a disk of the test's own: who answers when, and what becomes of reads that fail."""

import pytest
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.kernel import client as client_kernel
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse

from stan import limits
from stan.config import ClusterConfig, Config
from stan.core.base.ready import ReadResult
from stan.core.broker.broker import Broker
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.subscriptions import FIRST_REQUEST_SID
from stan.edge.serving.fetching import Fetching
from stan.errors import Damage
from stan.log.index import BatchIndex
from stan.log.types import BatchRow, StaleRef
from stan.protocol.entries import Kind
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import RecordingLink

FETCH, REPLICA_FETCH = b"_STAN.x.test-cluster.fetch", b"_STAN.x.test-cluster.replica.fetch"
RECORDS = kernel.seal(b"foo", 1, 10, [b"\x03\0\0\0\x22\1x" * 3])
GROUP = 1


class Log:
    """One channel with one batch of three messages, on a disk."""

    def __init__(self):
        self.index = BatchIndex(1, 40)
        self.index.add(BatchRow(1, 1, 3, 10, 0, 0, len(RECORDS)), 1, raft_index=2, hole=0)

    def channel(self, uid):
        return self.index if uid == 1 else BatchIndex(uid, 40)

    def read_at_once(self, refs):
        return None


class Group:
    """A group with that log."""

    def __init__(self):
        self.log = Log()


class Disk:
    """The runtime: a read is done when the test says so."""

    def __init__(self):
        self.reads = []

    def read(self, log, refs, done):
        self.reads.append((refs, done))

    def finish(self, error=None):
        refs, done = self.reads.pop(0)
        done(error or [ReadResult(ref.base_sequence, ref.count, RECORDS) for ref in refs])


class Node:
    """A node that leads everything, or only has it."""

    def __init__(self, config, *, leads=True):
        self.broker = Broker(config, lambda *_: BatchIndex(1, 40), b"_INBOX.n.", [GROUP])
        self.notes = []
        self.gateway = Gateway(self.broker, "_INBOX.x.>", lambda *note: self.notes.append(note))
        self.link = self.gateway.connection = RecordingLink()
        self.disk = Disk()
        self.leases = {GROUP}
        Fetching(self.broker, {GROUP: Group()}, self.gateway, self.disk, lambda group: group in self.leases)
        created = pb.CreateChannels(channels=[pb.Channel(name=b"foo", uid=1, group=GROUP)])
        self.broker.entries.step_committed(0, 1, Kind.META, pb.MetaChange(create_channels=created).SerializeToString())
        if leads:
            self.broker.lead(0, 0, unconfirmed=False)

    def hear(self, subject, payload):
        sids = {name.split()[0].encode(): sid for sid, name in self.gateway.subscriptions.subjects.items()}
        frame = Frame(sids[subject], subject, b"answer", b"", payload)
        self.gateway.subscriptions.handlers[frame.sid](frame)

    def ask(self, subject=FETCH, **request):
        self.hear(subject, FetchRequest(**{"channel": b"foo", "from_sequence": 1} | request).SerializeToString())

    def answers(self):
        _, frames = client_kernel.split(self.link.written.replace(b"PUB answer ", b"MSG answer 1 "), 0)
        self.link.written = b""
        return [FetchResponse.FromString(frame.payload) for frame in frames]

    def answer(self):
        (answer,) = self.answers()
        return answer


@pytest.fixture
def node():
    return Node(Config())


def member(**changes):
    return Config(cluster=ClusterConfig(node_id="n1", peers=("n2", "n3"), **changes))


def test_messages_come_from_the_disk_as_stored(node):
    node.ask(from_sequence=2)
    assert not node.link.written
    node.disk.finish()

    answer = node.answer()
    assert [(run.first_sequence, run.count, run.timestamp) for run in answer.runs] == [(2, 2, 10)]
    assert RECORDS.endswith(answer.records)
    assert (answer.uid, answer.first_sequence, answer.last_sequence, answer.next_sequence) == (1, 1, 3, 4)


def test_requests_are_taken_once_the_node_listens_and_only_read_replicas_take_those_for_replicas():
    for config, replica in ((Config(), False), (member(), False), (member(replica=True), True)):
        gateway = Node(config, leads=False).gateway
        handlers = gateway.subscriptions.handlers
        taken = {name for sid, name in gateway.subscriptions.subjects.items() if sid in handlers and "fetch" in name}
        assert taken == {FETCH.decode()} | ({f"{REPLICA_FETCH.decode()} stan-replicas"} if replica else set())
        assert min(handlers) >= FIRST_REQUEST_SID
        assert not handlers.keys() & gateway.subscriptions.early().keys()


def test_only_the_leader_answers():
    node = Node(member(), leads=False)
    node.ask()
    node.hear(FETCH, b"\xff")

    assert not node.link.written
    assert not node.disk.reads


def test_leader_that_may_have_lost_its_role_asks_to_ask_again(node):
    node.leases.clear()
    node.ask()
    assert node.answer().retry

    node.leases.add(GROUP)
    node.ask()
    node.leases.clear()
    node.disk.finish()
    answer = node.answer()
    assert answer.retry
    assert not answer.records


def test_replica_answers_without_leading_anything():
    node = Node(member(replica=True), leads=False)
    node.leases.clear()
    node.ask(REPLICA_FETCH, newest=1)
    node.disk.finish()
    assert node.answer().runs[0].first_sequence == 3

    node.ask(REPLICA_FETCH, channel=b"later")
    assert node.answer().error.decode() == refusals.UNKNOWN_CHANNEL


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"channel": b"bar"}, refusals.UNKNOWN_CHANNEL),
        ({"from_sequence": 0}, refusals.INVALID_FETCH),
        ({"from_sequence": 3, "last": 2}, refusals.INVALID_FETCH),
        ({"newest": 0}, refusals.INVALID_FETCH),
    ],
)
def test_request_that_makes_no_sense_is_refused_for_good(node, wrong, error):
    if "newest" in wrong:
        node.hear(FETCH, FetchRequest(channel=b"foo", newest=0).SerializeToString())
    else:
        node.ask(**wrong)

    answer = node.answer()
    assert answer.error.decode() == error
    assert not answer.retry


def test_what_is_no_request_is_refused(node):
    node.hear(FETCH, b"\xff")
    assert node.answer().error.decode() == refusals.INVALID_FETCH


def test_request_without_reply_is_nothing(node):
    subscriptions = node.gateway.subscriptions
    (sid,) = (sid for sid in subscriptions.handlers if subscriptions.subjects[sid] == FETCH.decode())
    subscriptions.handlers[sid](Frame(sid, FETCH, b"", b"", FetchRequest(channel=b"foo").SerializeToString()))
    assert not node.link.written


def test_reads_under_way_are_bounded(node):
    for _ in range(limits.FETCHES_UNDER_WAY_MAX + 1):
        node.ask()
    assert len(node.disk.reads) == limits.FETCHES_UNDER_WAY_MAX
    assert node.answer().retry

    node.disk.finish()
    assert node.answer().records
    node.ask()
    assert len(node.disk.reads) == limits.FETCHES_UNDER_WAY_MAX


def test_bytes_that_are_read_are_bounded_but_one_request_is_always_read(node, monkeypatch):
    monkeypatch.setattr(limits, "FETCH_BYTES_UNDER_WAY_MAX", 1)
    node.ask()
    node.ask()
    assert len(node.disk.reads) == 1
    assert node.answer().retry

    node.disk.finish()
    assert node.answer().records
    node.ask()
    assert len(node.disk.reads) == 1


def test_unsent_bytes_are_bounded(node):
    node.link.unsent = limits.FETCH_UNSENT_BYTES_MAX + 1
    node.ask()
    assert node.answer().retry
    assert not node.disk.reads


def test_batch_that_was_moved_is_looked_up_again_but_not_for_ever(node):
    node.ask()
    node.disk.finish(StaleRef())
    node.disk.finish()
    assert node.answer().records

    node.ask()
    while node.disk.reads:
        node.disk.finish(StaleRef())
    assert node.answer().retry
    assert not node.notes


def test_damage_is_told_and_noted_and_counts_no_longer(node):
    for _ in range(limits.FETCHES_UNDER_WAY_MAX + 1):
        node.ask()
        node.disk.finish(Damage("segment 1, byte 2"))
        answer = node.answer()
        assert (answer.error.decode(), answer.retry) == (refusals.UNREADABLE, False)
    assert node.notes[0] == ("ERR", "Error reading channel foo (segment 1, byte 2)")
