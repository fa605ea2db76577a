"""The gateway: what NATS would not take is not written, what it sends is not trusted."""

from types import SimpleNamespace

import pytest
from stan_protocol.compression import zstd_module
from stan_protocol.kernel import client as client_kernel
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.core.base.ready import Delivery, LeaseAnswer
from stan.core.broker.broker import Broker
from stan.edge.cluster.links import PeerLinks
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.subscriptions import PUB_SID
from stan.errors import FAULT
from stan.invariant import InvariantError
from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.protocol.kernel import server as kernel
from stan.protocol.user_subjects import ack_subjects
from tests.kit.core_harness import Index, Node


class Link:
    """A connection that remembers what was written."""

    def __init__(self):
        self.written = b""
        self.broken = False
        self.up = True

    def write(self, data):
        self.written += data
        return True

    def break_off(self):
        self.broken = True


def gateway():
    notes = []
    made = Gateway(Broker(Config(), lambda *_: Index(), b"_INBOX.n."), "_INBOX.x.>", lambda *note: notes.append(note))
    made.read_buffer.wake = lambda: None
    made.connection = Link()
    return made, notes


def records(*sizes):
    bodies = b"".join(
        (len(field := b"\x22" + varint(size) + b"x" * size)).to_bytes(4, "little") + field for size in sizes
    )
    return kernel.seal(b"foo", 1, 1, [bodies])


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def sent(link):
    _, frames = client_kernel.split(link.written.replace(b"PUB in ", b"MSG in 1 "), 0)
    return [client_kernel.decode_message(frame.payload)[0] for frame in frames]


def test_stored_messages_above_a_lowered_payload_limit_are_left_out_and_the_rest_is_sent():
    made, _ = gateway()
    made.broker.step_payload_limit(1000)
    batch = records(10, 2000, 20, 30, 5000)
    made.send([Delivery(b"in", batch, 1, 1, 5, 0, 1, 1)])
    assert sent(made.connection) == [1, 3, 4]

    made.connection.written = b""
    made.send([Delivery(b"in", batch, 1, 2, 2, 1, 1, 1), b"", Delivery(b"in", batch, 1, 4, 5, 0, 1, 1)])
    assert sent(made.connection) == [4]


def test_messages_within_the_limit_are_sent_whole():
    made, _ = gateway()
    made.send([Delivery(b"in", records(10, 20, 30), 1, 2, 3, 0, 1, 1)])

    assert sent(made.connection) == [2, 3]


def test_who_must_be_silent_is_asked_when_nothing_is_left_to_be_done_but_to_write(monkeypatch):
    """A process may be stopped at any step before, and another node lead when it goes on."""
    made, _ = gateway()
    steps = []
    frames, write = kernel.frames, made.connection.write
    monkeypatch.setattr(kernel, "frames", lambda *told: steps.append("rendered") or frames(*told))
    monkeypatch.setattr(made.connection, "write", lambda data: steps.append("written") or write(data))
    deliveries = [Delivery(b"in", records(10, 20), 1, 1, 2, 0, group, 1) for group in (1, 2)]
    sends = [
        b"PUB ack 1\r\na\r\n",
        LeaseAnswer(b"PUB both 1\r\na\r\n", (2, 3)),
        LeaseAnswer(b"PUB own 1\r\na\r\n", (2,)),
        *deliveries,
    ]

    lost = made.send(sends, lambda groups: steps.append("asked") or {1, 3})

    assert steps == ["rendered", "rendered", "asked", "written"]
    assert lost == [sends[1], deliveries[0]]
    assert made.connection.written.startswith(b"PUB ack 1\r\na\r\nPUB own 1\r\na\r\nPUB in ")
    assert made.connection.written.count(b"PUB in ") == 2, "the second delivery has two messages"
    assert made.send(sends[2:3], lambda _groups: {1, 3}) == []


def test_garbage_from_nats_breaks_the_connection_off_and_says_so():
    made, notes = gateway()
    made.read_buffer.on_data(b"HELLO world\r\n")
    made.take_in()

    assert made.connection.broken
    assert notes[0][0] == "ERR"


def test_half_a_frame_waits_for_its_rest_but_not_over_a_lost_connection():
    made, notes = gateway()
    made.read_buffer.on_data(b"PI")
    made.take_in()
    made.read_buffer.on_data(b"NG\r\n")
    made.take_in()
    assert made.connection.written == b"PONG\r\n"

    made.read_buffer.on_data(b"PI")
    made.read_buffer.on_down()
    made.read_buffer.on_data(b"PING\r\n")
    made.take_in()
    assert made.connection.written == b"PONG\r\nPONG\r\n"
    assert not made.connection.broken
    assert not notes


# --- a turn's share ---------------------------------------------------------------------------------------------------------


def asked_by(made):
    """What is asked from now on, and a function that makes the frame of a request."""
    asked = []
    made.serve_requests("test", lambda frame: asked.append(frame.payload))
    sid = max(made.subscriptions.subjects)

    def frame(payload, sender=""):
        subject = f"_STAN.from.{sender}.test" if sender else "test"
        return b"MSG %b %d %d\r\n%b\r\n" % (subject.encode(), sid, len(payload), payload)

    return asked, frame


A_TURN = limits.TURN_BYTES_MAX // limits.REQUEST_WORK


def test_a_turn_takes_a_bounded_number_of_requests_in_their_order():
    made, _ = gateway()
    asked, frame = asked_by(made)
    said = [b"%d" % number for number in range(3 * A_TURN)]
    made.read_buffer.on_data(b"".join(map(frame, said)) + b"PI")
    made.take_in()
    assert A_TURN - 5 < len(asked) <= A_TURN
    made.read_buffer.on_data(b"NG\r\n" + frame(b"last"))
    turns = 1
    while made.read_buffer.backlog.size:
        before = len(asked)
        made.take_in()
        turns += 1
        assert len(asked) - before <= A_TURN
    assert asked == [*said, b"last"]
    assert made.connection.written == b"PONG\r\n"
    assert turns == 4


def test_a_turn_counts_what_compressed_rows_may_become():
    made, _ = gateway()
    asked, frame = asked_by(made)
    bomb = b"rows: " + zstd_module().compress(bytes(limits.COMPRESSED_ROWS_BYTES_MAX))
    made.read_buffer.on_data(12 * frame(bomb) + b"PI")
    most = limits.TURN_BYTES_MAX // limits.COMPRESSED_WORK
    for asked_before in range(0, 12, most):
        assert len(asked) == asked_before
        made.take_in()
    assert asked == 12 * [bomb]


def test_who_asks_little_is_heard_in_the_next_turn_however_much_others_have_asked_before():
    made = open_gateway(with_users())
    asked, frame = asked_by(made)
    floods = [[b"%b %d" % (name, number) for number in range(5 * A_TURN)] for name in (b"mallory", b"eve")]
    for flood, sender in zip(floods, ("mallory", "eve"), strict=True):
        made.read_buffer.on_data(b"".join(frame(payload, sender) for payload in flood))
    made.take_in()
    made.read_buffer.on_data(frame(b"alice 1", "alice") + frame(b"alice 2", "alice"))
    made.take_in()
    assert b"alice 2" in asked[A_TURN - 5 : 2 * A_TURN]
    while made.read_buffer.backlog.size:
        made.take_in()
    assert [one for one in asked if one.startswith(b"alice")] == [b"alice 1", b"alice 2"]
    for flood in floods:
        assert [one for one in asked if one.startswith(flood[0].split()[0])] == flood


def test_frames_that_wait_are_handled_before_those_of_the_next_connection():
    made, _ = gateway()
    asked, frame = asked_by(made)
    said = [b"%d" % number for number in range(2 * A_TURN)]
    made.read_buffer.on_data(b"".join(map(frame, said)) + b"PI")
    made.take_in()
    made.read_buffer.on_down()
    made.read_buffer.on_up()
    made.read_buffer.on_data(frame(b"next"))
    while made.read_buffer.backlog.size or len(made.read_buffer.runs) > 1:
        made.take_in()
    assert asked == [*said, b"next"]
    assert not made.connection.broken


def test_all_that_was_read_is_one_turn_in_a_cluster():
    node = Node()
    frames = [node.request("_STAN.discover.test-cluster", b"\xff", "_INBOX.x")] * 2 * A_TURN
    node.gateway.read_buffer.on_data(b"".join(frames))
    node.gateway.take_in()
    assert not node.gateway.read_buffer.backlog.size


# --- what clients name ----------------------------------------------------------------------------------------------------

NATS_LINE_MAX = 4096
"""Of nats-server, as it is delivered: it ends a connection that sends a longer one."""


def open_gateway(permissions=None, **more):
    made = Gateway(
        Broker(Config(permissions=permissions, **more), lambda *_: Index(), b"_INBOX.n."),
        "_INBOX.x.>",
        lambda *_note: None,
    )
    made.read_buffer.wake = lambda: None
    made.connection = Link()
    made.connection.subscriptions = {}
    made.broker.lead(SECOND, SECOND, unconfirmed=False)
    return made


def lines_of(made):
    """All control lines that leave."""
    ready = made.broker.ready(2 * SECOND, 2 * SECOND, 1 << 20)
    made.send(ready.sends)
    said, made.connection.written = made.connection.written, b""
    lines = []
    while said:
        line, _, rest = said.partition(b"\r\n")
        lines.append(line)
        said = rest[int(line.split()[-1]) + 2 :]
    return lines


def with_users():
    rule = Rule(rights=dict.fromkeys(Right, ("foo",)))
    return Permissions([rule], [NatsUser(name="u" * 64)])


def test_with_users_clients_are_received_under_their_names_only():
    """An account of NATS that adds no name brings nothing here."""
    made = open_gateway(with_users())
    said = [made.subscriptions.subjects[sid] for sid in (PUB_SID, *made.admission.judged)]
    said.append(ack_subjects(Config(permissions=with_users()), b"nuid"))
    assert len(said) > 10
    plain = [subject for subject in said if not subject.startswith("_STAN.from.*._STAN.")]
    assert plain == ["_STAN.discover.test-cluster"]  # other servers ask there; a client is refused


@pytest.mark.parametrize("users", [False, True], ids=["without", "with"])
def test_publishes_are_answered_where_clients_are_and_on_configured_prefixes_only(users):
    for prefixes, answered in (((), ["_INBOX.x", "_STAN.acks.x"]), (("my.",), ["_INBOX.x", "_STAN.acks.x", "my.x"])):
        made = open_gateway(with_users() if users else None, reply_prefixes=prefixes)
        said, account = (b"_STAN.from.alice.", "_STAN.to.alice.") if users else (b"", "")
        payload = wire.PubMsg(client_id=b"nobody", guid=b"g", subject=b"foo", data=b"x").SerializeToString()
        heard = []
        for reply in ("_INBOX.x", "_STAN.acks.x", "my.x", "_STAN.sub.test-cluster", "$SYS.x", "foo"):
            subject = said + b"_STAN.pub.test-cluster.foo"
            made.read_buffer.on_data(
                b"MSG %b %d %b %d\r\n%b\r\n" % (subject, PUB_SID, reply.encode(), len(payload), payload)
            )
            made.take_in()
            lines = [line.split()[1].decode() for line in lines_of(made) if line.startswith(b"PUB ")]
            assert set(lines) <= {account + reply}
            heard += [reply] if lines else []
        assert heard == answered


@pytest.mark.parametrize("permissions", [None, with_users()], ids=["without", "with"])
@pytest.mark.parametrize("size", [1024, 1025, 3900])
def test_no_line_is_longer_than_nats_takes_whatever_reply_is_named(permissions, size):
    """The user's name stands before it; what no answer could be sent to is not handled."""
    made = open_gateway(permissions)
    answered = set()
    for sid, heard in sorted(made.subscriptions.subjects.items()):
        subject = heard.split(" ")[0].replace(".*.", f".{'u' * 64}.", 1).replace("*", "x").replace(">", "foo.1.2")
        for payload in (b"", b"\xff", wire.PubMsg(guid=b"g", subject=b"foo.1.2").SerializeToString()):
            made.read_buffer.on_data(
                b"MSG %b %d %b %d\r\n%b\r\n" % (subject.encode(), sid, b"r" * size, len(payload), payload)
            )
            made.take_in()
            lines = lines_of(made)
            assert all(len(line) <= NATS_LINE_MAX for line in lines)
            answered |= {sid} if any(b"r" * size in line for line in lines) else set()
    assert bool(answered) is (size <= 1024)


def test_a_question_that_the_program_fails_in_is_told_and_others_are_answered():
    made, notes = gateway()
    heard = []

    def ask(frame):
        if frame.payload == b"bad":
            raise InvariantError("what never happens has happened")
        heard.append(frame.payload)

    made.serve_requests("_STAN.x.c.test", ask)
    sid = next(sid for sid, subject in made.subscriptions.subjects.items() if subject == "_STAN.x.c.test")
    for payload in (b"one", b"bad", b"two"):
        made.read_buffer.on_data(b"MSG _STAN.x.c.test %d _INBOX.r 3\r\n%b\r\n" % (sid, payload))
    made.take_in()
    assert heard == [b"one", b"two"]
    notes += made.broker.ready(SECOND, SECOND, 0).notes
    (note,) = notes
    assert note[0] == "ERR"
    assert "_STAN.x.c.test" in note[1]
    assert FAULT in note[1]


def test_acks_that_are_none_fill_no_log():
    made, notes = gateway()
    for number in range(2000):
        subject = b"_INBOX.x.%d.%s" % (number, b"y" * 3000)
        made.read_buffer.on_data(b"MSG %b 2 3\r\nabc\r\n" % subject + b"MSG _INBOX.x.1.1 2 3\r\nabc\r\n")
    made.take_in()
    while made.read_buffer.backlog.size:
        made.take_in()
    made.broker.lead(SECOND, SECOND, unconfirmed=False)
    notes += made.broker.ready(2 * SECOND, 2 * SECOND, 0).notes
    assert len(notes) == limits.COMPLAINTS_MAX
    assert all(len(text) <= limits.COMPLAINT_CHARS_MAX + 30 for _, text in notes)
    minute_later = 63 * SECOND
    later = made.broker.ready(minute_later, minute_later, 0).notes
    assert later == [("WRN", f"{4000 - limits.COMPLAINTS_MAX} more lines about what clients have sent were left out")]


def test_what_nats_complains_about_again_and_again_is_told_once():
    made, notes = gateway()
    made.read_buffer.on_data(b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n" * 1000)
    made.take_in()
    assert notes == [("ERR", "NATS: 'Permissions Violation for Publish to \"x\"'")]


def test_links_that_somebody_resets_again_and_again_fill_no_log():
    made, notes = gateway()
    note = lambda *note: notes.append(note)  # noqa: E731
    links = SimpleNamespace(_complain=made.complain, _note=note, _raft_logging=False)
    for _ in range(1000):
        PeerLinks._noted(links, "WRN", "link to b is reset: a frame that is none")
        PeerLinks._noted(links, "INF", "link to b is up")
    assert [note for note in notes if note[0] != "DBG"] == [("WRN", "link to b is reset: a frame that is none")]
