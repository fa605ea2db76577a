"""Links and the mux: while a link is up messages come in order and once, whatever the wire does; else both ends hear of it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.scalars import MILLISECOND

from stan import limits
from stan.errors import ConfigError
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.transport.codec import AppendAnswer, AppendEntries, FrameError, Readmit, TimeoutNow, heartbeat
from stan.raft.transport.link import HEADER_BYTES, Link
from stan.raft.transport.mux import Mux
from stan.raft.transport.mux_nats import JOINED_BYTES_MAX, NatsWire


class Group:
    """A member that remembers."""

    def __init__(self):
        self.seen = []

    def receive(self, peer, message):
        self.seen.append((peer, message))

    def on_heartbeat(self, peer, term, commit, prev_term, seq):
        self.seen.append((peer, heartbeat(term, commit, prev_term, seq)))

    def answered(self, peer, answer):
        self.seen.append((peer, answer))

    def peer_up(self, peer):
        self.seen.append((peer, "up"))

    def peer_down(self, peer):
        self.seen.append((peer, "down"))


class Pair:
    """Two nodes and the frames between them."""

    def __init__(self, seed=1):
        self.now = 10**9
        self.random = random.Random(seed)
        self.on_the_way = []  # (source, target, frame)
        self.written = []
        self.notes = []
        self.muxes, self.groups = {}, {}
        for me in "ab":
            self.start(me)

    def start(self, me):
        other = "b" if me == "a" else "a"
        wire = type("W", (), {"write": lambda _, frames: self._write(me, frames)})()
        self.muxes[me] = Mux(
            [other],
            wire,
            now=lambda: self.now,
            random=self.random,
            note=lambda level, text: self.notes.append(text),
            wake=lambda: None,
        )
        self.groups[me] = Group()
        self.muxes[me].attach(1, self.groups[me])

    def _write(self, source, frames):
        sent = [(source, target, frame) for target, frame in frames]
        self.on_the_way += sent
        self.written += sent

    def pass_on(self):
        """Deliver until nobody has anything to say."""
        for _ in range(50):
            for mux in self.muxes.values():
                mux.flush()
            if not self.on_the_way:
                return
            frames, self.on_the_way = self.on_the_way, []
            for source, target, frame in frames:
                self.muxes[target].receive(source, frame)
        raise AssertionError("two links that never stop talking")

    def tick(self, milliseconds=50):
        self.now += milliseconds * MILLISECOND
        for mux in self.muxes.values():
            mux.tick()
        self.pass_on()

    def up(self):
        self.tick()
        assert self.muxes["a"].is_up("b")
        assert self.muxes["b"].is_up("a")
        return self

    def is_found_silent(self):
        """Whether a, which ticks in time and hears nothing, takes b for down when its timeout is over."""
        for _ in range(limits.RAFT_PEER_TIMEOUT // limits.RAFT_TICK_INTERVAL + 1):
            self.now += limits.RAFT_TICK_INTERVAL
            self.muxes["a"].tick()
        return not self.muxes["a"].is_up("b")

    def said(self, me="b"):
        return [m.term for _, m in self.groups[me].seen if isinstance(m, TimeoutNow)]


def test_link_comes_up_and_carries_messages_in_order():
    pair = Pair().up()
    for number in range(5):
        pair.muxes["a"].send(1, "b", TimeoutNow(number))
    pair.pass_on()

    assert pair.said() == [0, 1, 2, 3, 4]
    assert pair.groups["a"].seen == [("b", "up")]


def test_all_groups_of_a_turn_leave_in_one_frame():
    pair = Pair().up()
    more = [Group() for _ in range(8)]
    for number, group in enumerate(more, 2):
        pair.muxes["b"].attach(number, group)
    pair.written.clear()
    for number in range(1, 10):
        pair.muxes["a"].send(number, "b", TimeoutNow(number))
    pair.muxes["a"].flush()

    assert len(pair.written) == 1
    pair.pass_on()
    assert [len(group.seen) for group in more] == [2] * 8


def test_message_larger_than_a_frame_is_put_together():
    pair = Pair().up()
    body = random.Random(3).randbytes(3 * limits.RAFT_FRAME_BYTES_MAX + 5)
    message = AppendEntries(2, 0, 0, 0, 1, [Entry(1, 2, Kind.META, body)])
    pair.written.clear()
    pair.muxes["a"].send(1, "b", message)
    pair.muxes["a"].send(1, "b", TimeoutNow(9))
    pair.pass_on()

    assert max(len(frame) for _, _, frame in pair.written) <= HEADER_BYTES + limits.RAFT_FRAME_BYTES_MAX
    assert [m for _, m in pair.groups["b"].seen] == ["up", message, TimeoutNow(9)]


def test_lost_frame_takes_the_link_down_and_up_again_on_both_ends():
    pair = Pair().up()
    pair.muxes["a"].send(1, "b", TimeoutNow(1))
    pair.muxes["a"].flush()
    pair.on_the_way.clear()
    pair.muxes["a"].send(1, "b", TimeoutNow(2))
    pair.pass_on()
    pair.muxes["a"].send(1, "b", TimeoutNow(3))
    pair.pass_on()

    assert pair.said() == [3]
    for me, peer in ("ab", "ba"):
        assert [m for _, m in pair.groups[me].seen if isinstance(m, str)] == ["up", "down", "up"], peer


def test_repeated_frame_is_taken_once():
    pair = Pair().up()
    pair.muxes["a"].send(1, "b", TimeoutNow(1))
    pair.muxes["a"].flush()
    pair.on_the_way *= 3
    pair.pass_on()

    assert pair.said() == [1]


def test_silent_peer_is_down_after_its_timeout_and_up_again():
    pair = Pair().up()
    for _ in range(8):
        pair.now += 50 * MILLISECOND
        pair.muxes["a"].tick()
    assert pair.muxes["a"].is_up("b")
    pair.now += 60 * MILLISECOND
    pair.muxes["a"].tick()
    assert not pair.muxes["a"].is_up("b")
    assert pair.groups["a"].seen[-1] == ("b", "down")
    pair.up()


def test_who_was_busy_takes_nobody_for_silent_and_finds_out_later_who_is():
    pair = Pair().up()
    pair.now += limits.RAFT_PEER_TIMEOUT * 3
    pair.muxes["a"].tick()
    assert pair.muxes["a"].is_up("b"), "what it said meanwhile was not read yet"
    assert pair.is_found_silent()


def test_who_does_something_long_takes_nobody_for_silent_though_it_ticks():
    pair = Pair().up()
    for _ in range(100):
        pair.now += limits.RAFT_TICK_INTERVAL
        pair.muxes["a"].tick(reads_nothing=True)
    assert pair.muxes["a"].is_up("b")
    assert pair.is_found_silent()


def test_one_way_link_is_down_on_both_ends():
    pair = Pair().up()
    for _ in range(30):
        pair.now += 50 * MILLISECOND
        for mux in pair.muxes.values():
            mux.tick()
            mux.flush()
        frames, pair.on_the_way = pair.on_the_way, []
        for source, target, frame in frames:
            if source == "a":
                pair.muxes[target].receive(source, frame)
    assert not pair.muxes["a"].is_up("b")
    assert not pair.muxes["b"].is_up("a")


def test_frames_of_an_earlier_life_are_not_taken():
    pair = Pair().up()
    for number in range(3):
        pair.muxes["a"].send(1, "b", TimeoutNow(number))
    pair.muxes["a"].flush()
    late, pair.on_the_way = pair.on_the_way, []
    pair.start("a")
    pair.up()
    pair.on_the_way = late
    pair.pass_on()
    pair.up()

    assert pair.said() == []


def test_what_was_queued_for_a_peer_that_is_down_is_dropped():
    pair = Pair().up()
    pair.muxes["a"].send(1, "b", TimeoutNow(1))
    pair.muxes["a"].reset_all()
    pair.muxes["a"].send(1, "b", TimeoutNow(2))
    pair.up()
    assert pair.said() == []


@pytest.mark.parametrize(
    "garbage", [b"", b"x" * 20, bytes(HEADER_BYTES), b"\x52" * 60, bytes(limits.RAFT_FRAME_BYTES_MAX * 2)]
)
def test_garbage_resets_the_link_and_nothing_else(garbage):
    pair = Pair().up()
    pair.muxes["b"].receive("a", garbage)
    pair.muxes["b"].receive("stranger", garbage)
    pair.up()
    pair.muxes["a"].send(1, "b", TimeoutNow(1))
    pair.pass_on()
    assert pair.said() == [1]


def test_damaged_content_resets_the_link():
    pair = Pair().up()
    pair.muxes["a"].send(1, "b", TimeoutNow(1))
    pair.muxes["a"].flush()
    source, target, frame = pair.on_the_way.pop()
    pair.on_the_way.append((source, target, frame[:-1] + bytes([frame[-1] ^ 1])))
    pair.pass_on()

    assert any("wrong CRC" in text for text in pair.notes)
    assert pair.said() == []
    pair.up()


def test_tail_of_a_long_message_is_never_taken_for_a_message():
    random_source, now = random.Random(5), 0
    one, two = Link(random_source, now), Link(random_source, now)
    for _ in range(4):
        for source, target in ((one, two), (two, one)):
            for frame in source.frames(b"", now):
                target.accept(frame, now)
    frames = one.frames(b"z" * (limits.RAFT_FRAME_BYTES_MAX + 9), now)
    two.reset()
    for _ in range(2):
        for frame in two.frames(b"", now):
            with_reset = one.accept(frame, now)
            assert with_reset == b""
    late = Link(random_source, now)
    late._mine, late._theirs = one._theirs, one._mine
    tail = one.frames(b"z" * (limits.RAFT_FRAME_BYTES_MAX + 9), now)[1]
    with pytest.raises(FrameError, match="does not continue"):
        late.accept(tail, now)
    assert two.accept(frames[1], now) == b""


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_whatever_the_wire_does_what_arrives_is_in_order_and_once_and_links_recover(seed):
    pair, draw = Pair(seed), random.Random(seed)
    old, sent = [], 0
    for _ in range(60):
        pair.now += draw.choice((1, 30, 60)) * MILLISECOND
        if draw.random() < 0.05:
            pair.start(draw.choice("ab"))
        for me, peer in ("ab", "ba"):
            pair.muxes[me].tick()
            for _ in range(draw.randint(0, 3)):
                sent += 1
                pair.muxes[me].send(1, peer, TimeoutNow(sent))
            pair.muxes[me].flush()
        frames, pair.on_the_way = pair.on_the_way, []
        old += frames
        fate = draw.random()
        for source, target, frame in frames if fate < 0.8 else frames[1:]:
            pair.muxes[target].receive(source, frame)
        if fate < 0.3:
            for source, target, frame in draw.sample(old, min(3, len(old))):
                pair.muxes[target].receive(source, frame)
    pair.on_the_way.clear()
    for _ in range(40):
        pair.tick()
    pair.up()
    for me in "ab":
        said = pair.said(me)
        assert said == sorted(set(said))
    pair.muxes["a"].send(1, "b", TimeoutNow(sent + 1))
    pair.pass_on()
    assert pair.said()[-1] == sent + 1


# --- over NATS ---------------------------------------------------------------------------------------------------------


class NatsSink:
    def __init__(self):
        self.data, self.up = [], True

    def write(self, data):
        self.data.append(data)
        return self.up


def test_nats_wire_publishes_frames_on_the_subject_of_the_pair():
    sink = NatsSink()
    wire = NatsWire("blue", "n1", ["n2", "n3"])
    wire.publish = sink.write
    wire.write([("n3", b"\r\n\x00frame")])

    assert sink.data == [b"PUB _STAN.raft.blue.n3.n1 8\r\n\r\n\x00frame\r\n"]
    assert wire.subscription == "_STAN.raft.blue.n1.*"
    assert wire.sender(b"_STAN.raft.blue.n1.n3") == "n3"
    sink.up = False
    assert [wire.write([("n2", b"")]) for _ in range(2)] == [True, False], "it is lost once"


def test_nats_wire_joins_small_frames_and_copies_no_large_ones():
    sink = NatsSink()
    wire = NatsWire("blue", "n1", ["n2", "n3"])
    wire.publish = sink.write
    wire.write([("n2", b"a"), ("n3", b"bc")])
    assert sink.data == [b"PUB _STAN.raft.blue.n2.n1 1\r\na\r\nPUB _STAN.raft.blue.n3.n1 2\r\nbc\r\n"]
    sink.data.clear()
    wire.write([("n2", bytes(JOINED_BYTES_MAX)), ("n3", b"bc")])
    assert len(sink.data) == 2


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a\r\n"])
def test_nats_wire_refuses_names_that_would_change_the_subject(name):
    with pytest.raises(ConfigError):
        NatsWire("blue", "n1", [name])


@given(st.lists(st.sampled_from("bavn"), max_size=12))
def test_bundled_messages_keep_their_place_among_the_others(kinds):
    pair = Pair()
    pair.up()
    made = {
        "b": lambda n: heartbeat(9, n, 1, n),
        "a": lambda n: AppendAnswer(9, n, n, success=True, reset=False),
        "v": lambda n: Readmit(9, n),
        "n": TimeoutNow,
    }
    messages = [made[kind](number) for number, kind in enumerate(kinds)]
    pair.groups["b"].seen.clear()
    for message in messages:
        pair.muxes["a"].send(1, "b", message)
    pair.pass_on()
    assert [message for _, message in pair.groups["b"].seen] == messages


def test_many_whole_frames_are_no_long_content(monkeypatch):
    monkeypatch.setattr(limits, "RAFT_MESSAGE_BYTES_MAX", 100)
    monkeypatch.setattr(limits, "RAFT_FRAME_BYTES_MAX", 1000)
    pair = Pair().up()
    for number in range(200):
        pair.muxes["a"].send(1, "b", TimeoutNow(number))
        pair.pass_on()
    assert pair.said() == list(range(200))


# --- epochs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("of_a", "of_b"), [(0, 7), (7, 0), (7, 8)])
def test_nodes_of_two_epochs_do_not_hear_each_other(of_a, of_b):
    pair = Pair()
    pair.muxes["a"].begin_epoch(of_a)
    pair.muxes["b"].begin_epoch(of_b)
    for _ in range(5):
        pair.tick()
    assert not pair.muxes["a"].is_up("b")
    assert not pair.muxes["b"].is_up("a")
    assert pair.groups["a"].seen == pair.groups["b"].seen == []
    assert pair.notes == [], "a stranger causes no lines"


def test_a_link_ends_when_one_end_begins_another_epoch_and_comes_back_with_the_other():
    pair = Pair().up()
    pair.muxes["a"].begin_epoch(7)
    assert pair.groups["a"].seen[-1] == ("b", "down")
    pair.tick()
    assert not pair.muxes["a"].is_up("b")
    pair.muxes["b"].begin_epoch(7)
    pair.up()
    pair.muxes["a"].send(1, "b", TimeoutNow(3))
    pair.pass_on()
    assert pair.said() == [3]


@given(st.binary(max_size=80), st.integers(0, 3))
@settings(max_examples=200)
def test_any_bytes_are_taken_or_refused_in_any_epoch(frame, epoch):
    link = Link(random.Random(1), 0, epoch)
    try:
        assert link.accept(frame, 0) == b""
    except FrameError:
        assert not link.up
