"""The gateway and the subjects of streams, which come and go while it runs."""

import json

import pytest

from stan.edge.nats.gateway import Gateway
from tests.kit import consumers
from tests.kit import jetstream as js


class Link:
    """A connection that remembers what was written."""

    up = True

    def __init__(self):
        self.subscriptions = {}
        self.written = b""

    def write(self, data):
        self.written += data
        return True

    def take(self):
        taken, self.written = self.written, b""
        return taken.decode().split("\r\n")


def listening(broker=None):
    """A broker with its gateway, which listens."""
    broker = broker or js.harness()
    gateway = Gateway(broker.broker, "_INBOX.x.>", lambda *_: None)
    gateway.read_buffer.wake = lambda: None
    gateway.connection = link = Link()
    gateway.listen()
    return broker, gateway, link


def sid_of(lines, subject):
    return next(line.split(" ")[-1] for line in lines if line.startswith(f"SUB {subject} "))


def create(broker, name, *subjects):
    assert "error" not in js.api(broker, f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects)})


def test_it_subscribes_to_the_subjects_of_a_stream_while_it_is_there():
    broker, gateway, link = listening()
    sid_of(link.take(), "$JS.API.>")
    create(broker, "S", "a.b", "c.*")
    made = link.take()
    numbers = {sid_of(made, "a.b"), sid_of(made, "c.*")}
    js.api(broker, "STREAM.DELETE.S")
    assert {line.split(" ")[1] for line in link.take() if line.startswith("UNSUB ")} == numbers
    create(broker, "S", "a.b")
    assert sid_of(link.take(), "a.b") not in numbers, "no number is used again"
    assert "a.b" in gateway.subscriptions.subjects.values()


def test_after_a_reconnection_it_listens_to_what_is_there_then():
    broker, gateway, link = listening()
    create(broker, "S", "a.b")
    assert link.subscriptions is gateway.subscriptions.subjects


def test_requests_of_clients_get_numbers_of_their_own():
    broker, gateway, _ = listening()
    create(broker, "S", "a.b")
    gateway.serve_requests("later", lambda _frame: None)
    numbers = list(gateway.subscriptions.subjects)
    assert len(numbers) == len(set(numbers))
    assert max(gateway.subscriptions.more.values()) == max(numbers)


def test_what_comes_on_them_is_stored_with_its_headers():
    broker, gateway, link = listening()
    create(broker, "S", "a.b")
    sid = sid_of(link.take(), "a.b").encode()
    block = b"NATS/1.0\r\nwho: me\r\n\r\n"
    with_header = b"HMSG a.b %b _INBOX.r %d %d\r\n%bone\r\n" % (sid, len(block), len(block) + 3, block)
    gateway.read_buffer.on_data(with_header + b"MSG a.b %b 3\r\ntwo\r\n" % sid)
    assert gateway.take_in()
    broker.turn()
    assert json.loads(js.answer_to(broker, "_INBOX.r").payload) == {"stream": "S", "seq": 1}
    assert broker.stored("a.b") == [b"one", b"two"]
    assert js.api(broker, "STREAM.MSG.GET.S", {"seq": 1})["message"]["hdrs"]


def test_an_answer_never_goes_where_servers_listen():
    broker, gateway, link = listening()
    create(broker, "S", "a.b")
    sid = sid_of(link.take(), "a.b").encode()
    gateway.read_buffer.on_data(b"MSG a.b %b _STAN.x.test-cluster.admin.purge 3\r\none\r\n" % sid)
    gateway.take_in()
    broker.turn()
    assert broker.stored("a.b") == []
    assert not broker.hear("_STAN.x.test-cluster.admin.purge")


def test_what_comes_late_for_a_stream_that_is_gone_is_left_alone():
    broker, gateway, link = listening()
    create(broker, "S", "a.b")
    sid = sid_of(link.take(), "a.b").encode()
    js.api(broker, "STREAM.DELETE.S")
    gateway.read_buffer.on_data(b"MSG a.b %b _INBOX.r 3\r\none\r\n" % sid)
    gateway.take_in()
    broker.turn()
    assert not broker.hear("_INBOX.r")


@pytest.mark.parametrize(("policy", "acked", "pending"), [("explicit", (1, 3, 4), 2), ("all", (2, 3), 2)])
def test_acks_of_one_read_are_done_together(policy, acked, pending):
    broker, gateway, link = listening(consumers.served())
    consumers.consumer(broker, "worker", ack_policy=policy)
    js.publish(broker, "orders.1", *[b"x"] * 5)
    got = consumers.pull(broker, "worker", 5)
    sid = sid_of(link.take(), "$JS.ACK.>").encode()
    said = [got[number - 1].ack.encode() for number in acked]
    odd = [b"$JS.ACK.ORDERS.worker.1.%d.1.1.0" % number for number in (0, 9, 10**17, 10**18, 10**25)]
    odd += [b"$JS.ACK.NONE.worker.1.5.1.1.0", b"$JS.ACK.ORDERS.nobody.1.5.1.1.0", b"$JS.ACK.ORDERS.worker.1.x.1.1.0"]
    odd += [b"$JS.ACK.ORDERS.worker.5", b"$JS.ACK.ORDERS.worker.1.5.1.1.0.more.more", b"$JS.ACK.\xff..1.5.1.1.0"]
    frames = [
        b"MSG %b %b %b\r\n" % (ack, sid, b"4\r\n+ACK" if at % 2 else b"0\r\n") for at, ack in enumerate(said + odd)
    ]
    gateway.read_buffer.on_data(b"".join(frames))
    assert gateway.take_in()
    broker.turn()
    assert consumers.info(broker, "worker")["num_ack_pending"] == pending


def test_a_message_with_another_header_stays_in_its_place():
    broker, gateway, link = listening()
    create(broker, "S", "a.b")
    sid = sid_of(link.take(), "a.b").encode()
    blocks = [b"", b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: i\r\n\r\n", b""]
    frames = [
        b"HMSG a.b %b _INBOX.r.%d %d %d\r\n%b%d\r\n" % (sid, at, len(block), len(block) + 1, block, at)
        for at, block in enumerate(blocks)
    ]
    gateway.read_buffer.on_data(b"".join(frames))
    gateway.take_in()
    broker.turn()
    assert broker.stored("a.b") == [b"0", b"1", b"2", b"3"]
    answers = [json.loads(js.answer_to(broker, f"_INBOX.r.{at}").payload) for at in range(4)]
    assert [answer["seq"] for answer in answers] == [1, 2, 3, 4]


def test_a_stream_whose_subjects_become_several_has_keys_from_then_on():
    broker, gateway, link = listening()
    create(broker, "S", "a.*")
    sid = sid_of(link.take(), "a.*")
    assert gateway.scope.streams[int(sid)].keyed
    js.api(broker, "STREAM.UPDATE.S", {"name": "S", "subjects": ["a.*", "c"]})
    assert {stream.keyed for stream in gateway.scope.streams.values()} == {True}
    assert len(gateway.scope.streams) == 2
