"""The gateway and the subjects of streams, which come and go while it runs."""

import json

from stan.edge.nats.gateway import Gateway
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


def listening():
    """A broker with its gateway, which listens."""
    broker = js.harness()
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
