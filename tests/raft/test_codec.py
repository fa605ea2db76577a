"""Raft messages survive the wire; anything else is a FrameError, never another exception and never code that runs."""

import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stan import limits
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.transport import codec
from stan.raft.transport.codec import (
    AppendAnswer,
    AppendEntries,
    FrameError,
    Readmit,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)

U64 = st.integers(0, (1 << 63) - 1)
GROUP = st.integers(0, 65535)


@st.composite
def appends(draw):
    prev_index, prev_term = draw(U64), draw(st.integers(0, 1 << 40))
    term, entries = prev_term, []
    for at in range(draw(st.integers(0, 5))):
        term += draw(st.integers(0, 3))
        entries.append(
            Entry(prev_index + 1 + at, term, draw(st.sampled_from(list(Kind))), draw(st.binary(max_size=300)))
        )
    return AppendEntries(term + draw(st.integers(0, 9)), draw(U64), prev_index, prev_term, draw(U64), entries)


MESSAGES = st.one_of(
    appends(),
    st.builds(AppendAnswer, U64, U64, U64, st.booleans(), st.booleans(), st.booleans()),
    st.builds(VoteRequest, U64, U64, U64, st.booleans(), st.booleans()),
    st.builds(VoteAnswer, U64, st.booleans(), st.booleans()),
    st.builds(TimeoutNow, U64),
    st.builds(Readmit, U64, U64),
)


def encoded(*messages):
    return b"".join(b"".join(codec.encode(group, message)) for group, message in messages)


@given(st.lists(st.tuples(GROUP, MESSAGES), max_size=4))
def test_messages_come_back_as_they_were(messages):
    assert list(codec.decode(encoded(*messages))) == messages


@given(st.binary(max_size=400))
@settings(max_examples=400)
def test_garbage_is_a_frame_error(data):
    try:
        found = list(codec.decode(data))
    except FrameError:
        return
    assert encoded(*found) == data or not {codec.HEARTBEATS, codec.ANSWERS}.isdisjoint(
        kind for kind, _, _ in codec.split(data)[0]
    )


BEAT = st.builds(lambda term, commit, seq: AppendEntries(term, commit, commit, term, seq, []), U64, U64, U64)
SHORT = {
    codec.HEARTBEATS: BEAT,
    codec.ANSWERS: st.builds(AppendAnswer, U64, U64, U64, st.booleans(), st.booleans(), st.booleans()),
}


@given(st.sampled_from(list(SHORT)), st.data())
def test_bundled_messages_come_back_as_they_were(kind, data):
    messages = data.draw(st.lists(st.tuples(GROUP, SHORT[kind]), max_size=5))
    forms = [codec.short(*message) for message in messages]
    assert {form[0] for form in forms} <= {kind}
    bundle = b"".join(codec.bundle(kind, [form[1] for form in forms]))
    assert list(codec.decode(bundle)) == messages


@pytest.mark.parametrize("kind", list(SHORT))
def test_bundle_that_is_cut_off_or_of_one_group_is_refused(kind):
    part = codec.short(
        1, AppendAnswer(1, 2, 3, success=True, reset=False) if kind == codec.ANSWERS else codec.heartbeat(1, 2, 1, 4)
    )[1]
    for wrong in (codec.bundle(kind, [part, part[:-1]]), [struct.pack("<IHB", len(part), 1, kind), part]):
        with pytest.raises(FrameError):
            list(codec.decode(b"".join(wrong)))


def test_only_heartbeats_behind_the_commit_index_and_answers_are_bundled():
    assert codec.short(1, codec.heartbeat(1, 2, 1, 4)) is not None
    assert codec.short(1, codec.heartbeat(1, 2, 1, 4)._replace(prev_index=3)) is None
    assert codec.short(1, codec.heartbeat(1, 2, 1, 4)._replace(entries=[Entry(3, 1, Kind.NOOP, b"")])) is None
    assert codec.short(1, TimeoutNow(1)) is None


@given(st.tuples(GROUP, MESSAGES), st.data())
@settings(max_examples=400)
def test_damaged_message_is_a_frame_error_or_another_message(message, data):
    right = bytearray(encoded(message))
    at = data.draw(st.integers(0, len(right) - 1))
    right[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = list(codec.decode(bytes(right)))
    except FrameError:
        return
    assert [(group, type(part), part) for group, part in found] != [(message[0], type(message[1]), message[1])]


@given(st.tuples(GROUP, MESSAGES), st.data())
def test_cut_off_message_is_a_frame_error(message, data):
    right = encoded(message)
    with pytest.raises(FrameError):
        list(codec.decode(right[: data.draw(st.integers(1, len(right) - 1))]))


def test_entry_of_an_unknown_kind_is_refused():
    message = AppendEntries(3, 0, 0, 0, 1, [Entry(1, 3, 77, b"")])
    with pytest.raises(FrameError, match="kind 77"):
        list(codec.decode(encoded((1, message))))


@pytest.mark.parametrize("terms", [(2, 1), (4, 4)])
def test_entries_whose_terms_cannot_be_are_refused(terms):
    entries = [Entry(at, term, Kind.META, b"") for at, term in enumerate(terms, 1)]
    with pytest.raises(FrameError, match="term"):
        list(codec.decode(encoded((1, AppendEntries(3, 0, 0, 0, 1, entries)))))


def test_announced_lengths_cost_no_memory():
    head = struct.pack("<IHB", 1 << 31, 0, 1)
    with pytest.raises(FrameError, match="announced"):
        list(codec.decode(head + b"x"))
    fields = struct.pack("<QQQQQI", 1, 0, 0, 0, 1, limits.RAFT_APPEND_ENTRIES_MAX + 1)
    with pytest.raises(FrameError, match="entries in one message"):
        list(codec.decode(struct.pack("<IHB", len(fields), 0, 1) + fields))


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise AssertionError('code from the network was run')",)


def test_pickle_in_a_frame_is_only_bytes():
    with pytest.raises(FrameError):
        list(codec.decode(pickle.dumps(Bomb())))
    body = pickle.dumps(Bomb())
    message = AppendEntries(1, 0, 0, 0, 1, [Entry(1, 1, Kind.META, body)])
    assert list(codec.decode(encoded((0, message)))) == [(0, message)]
