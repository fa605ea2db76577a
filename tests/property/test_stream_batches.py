"""Messages for streams that come as batches become what they become one by one: the same messages, the same answers."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.scalars import SECOND

from stan.edge.nats.gateway import Gateway
from tests.kit import jetstream as js

LITERAL = {"name": "S", "subjects": ["a.b"]}
KEYED = {"name": "S", "subjects": ["a.>", "b"]}
MORE = st.fixed_dictionaries(
    {},
    optional={
        "max_msg_size": st.sampled_from([20, 60]),
        "max_msgs": st.just(8),
        "max_bytes": st.just(400),
        "discard": st.sampled_from(["old", "new"]),
        "duplicate_window": st.just(2 * SECOND),
        "allow_rollup_hdrs": st.booleans(),
    },
)
IDS = st.sampled_from(["1", "1", "2", "3", "long " * 5, ""])
PLAIN = st.sampled_from([[], [], [("who", "me")]])
WITH_ID = st.builds(lambda one, more: [("Nats-Msg-Id", one), *more], IDS, PLAIN)
EXPECTING = st.tuples(
    st.tuples(
        st.sampled_from(["Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Sequence"]),
        st.integers(0, 6).map(str),
    )
    | st.tuples(st.just("Nats-Expected-Last-Msg-Id"), IDS)
    | st.tuples(st.just("Nats-Rollup"), st.sampled_from(["sub", "all"]))
).map(list)


class Published(NamedTuple):
    """A message of a client."""

    subject: str
    fields: list[tuple[str, str]]
    payload: bytes
    answered: bool


class Read(NamedTuple):
    """What comes in one read."""

    messages: list[Published]
    committed: bool  # at once; else with a later read
    later: int  # than the read before, ns


def messages(fields: st.SearchStrategy[list[tuple[str, str]]]) -> st.SearchStrategy[Published]:
    """Messages with such headers."""
    payloads = st.sampled_from([b"", b"x", b"y" * 20, b"z" * 70])
    return st.builds(
        Published, st.sampled_from(["a.b", "a.b", "a.c", "b"]), fields, payloads, st.sampled_from([True, True, False])
    )


READS = st.builds(
    Read,
    st.one_of(
        st.lists(messages(PLAIN), min_size=1, max_size=6),
        st.lists(messages(WITH_ID), min_size=1, max_size=4),
        st.lists(messages(EXPECTING), min_size=1, max_size=3),
        st.lists(messages(PLAIN) | messages(WITH_ID) | messages(EXPECTING), min_size=1, max_size=8),
    ),
    st.booleans(),
    st.sampled_from([0, 0, 0, SECOND, 3 * SECOND]),
)


class Link:
    """A connection to nobody."""

    up = True

    def __init__(self) -> None:
        self.subscriptions: dict[int, str] = {}

    def write(self, _data: bytes) -> bool:
        return True


class Told:
    """A broker with a stream, and what it has told."""

    def __init__(self, config: dict[str, object], *, batches: bool) -> None:
        self.broker = js.harness()
        self.gateway = Gateway(self.broker.broker, "_INBOX.x.>", lambda *_: None)
        self.gateway.read_buffer.wake = lambda: None
        self.gateway.connection = Link()  # type: ignore[assignment]
        self.gateway.listen()
        assert "error" not in js.api(self.broker, "STREAM.CREATE.S", config)
        if not batches:
            self.gateway.scope.streams = {}
        self.sent = 0

    def read(self, read: Read) -> None:
        self.broker.now += read.later
        self.broker.hold = not read.committed
        self.gateway.read_buffer.on_data(b"".join(self._frame(one) for one in read.messages))
        self.gateway.take_in()
        self.broker.turn()

    def _frame(self, one: Published) -> bytes:
        self.sent += 1
        sids = [sid for pattern, sid in self.gateway.subscriptions.more.items() if js.covers(pattern, one.subject)]
        if not sids:
            return b""
        reply = b" _INBOX.r.%d" % self.sent if one.answered else b""
        block = "".join(f"{name}: {value}\r\n" for name, value in one.fields).encode()
        block = b"NATS/1.0\r\n%b\r\n" % block if block else b""
        sizes = b"%d %d" % (len(block), len(block) + len(one.payload)) if block else b"%d" % len(one.payload)
        verb = b"HMSG" if block else b"MSG"
        return b"%b %b %d%b %b\r\n%b%b\r\n" % (verb, one.subject.encode(), sids[0], reply, sizes, block, one.payload)

    def outcome(self) -> object:
        """What is stored, and every answer, by its subject."""
        self.broker.hold = False
        self.broker.turn()
        answers = sorted((said.subject, said.payload) for said in self.broker.hear() if "_INBOX.r" in said.subject)
        state = js.api(self.broker, "STREAM.INFO.S")["state"]
        state.pop("num_subjects", None)  # told only if somebody has asked for the index
        messages = [js.api(self.broker, "STREAM.MSG.GET.S", {"seq": at}) for at in range(1, state["last_seq"] + 1)]
        return answers, state, messages


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([LITERAL, KEYED]), st.just({}) | MORE, st.lists(READS, min_size=1, max_size=6))
def test_batches_become_what_single_messages_become(config, more, reads):
    together, singly = Told(config | more, batches=True), Told(config | more, batches=False)
    for read in reads:
        together.read(read)
        singly.read(read)
        assert together.broker.stored("a.b" if config is LITERAL else "S") == singly.broker.stored(
            "a.b" if config is LITERAL else "S"
        )
    assert together.outcome() == singly.outcome()
