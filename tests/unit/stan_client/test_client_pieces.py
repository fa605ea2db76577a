"""Frames in pieces: whatever the reads were, the same bytes come out, and a large frame only once it is whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_client.transport.pieces import LARGE, Pieces
from stan_protocol.kernel.client import split


def message(payload: bytes, line: bytes = b"MSG a.b 1") -> bytes:
    return b"%b %d\r\n%b\r\n" % (line, len(payload), payload)


def read(pieces: Pieces, data: bytes) -> list[bytes] | None:
    """The payloads of the frames that are whole after *data*; None: nobody has looked, as none can be."""
    whole = pieces.joined(data)
    if whole is None:
        return None
    consumed, frames = split(whole, 0)
    pieces.keep(whole[consumed:])
    return [frame.payload for frame in frames]


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.sampled_from([b"", b"small", bytes(LARGE - 20), b"x" * LARGE, b"\r\n" * LARGE]), max_size=5),
    st.lists(st.integers(1, 3 * LARGE), max_size=12),
)
def test_frames_come_out_as_they_went_in_however_they_were_cut(payloads, sizes):
    data, pieces, found = b"".join(map(message, payloads)), Pieces(), []
    for size in sizes:
        found += read(pieces, data[:size]) or []
        data = data[size:]
    found += read(pieces, data) or []

    assert found == payloads


@pytest.mark.parametrize("line", [b"MSG a.b 1", b"MSG a.b 1 _INBOX.x", b"HMSG a.b 1 12"])
def test_a_large_frame_is_looked_at_once_it_is_whole(line):
    header = b"NATS/1.0\r\n\r\n" if line.startswith(b"H") else b""
    frame, pieces = message(header + b"x" * (8 * LARGE), line), Pieces()
    looks = [read(pieces, frame[at : at + 2 * LARGE]) for at in range(0, len(frame), 2 * LARGE)]

    assert looks == [[], None, None, None, [b"x" * (8 * LARGE)]]


def test_what_follows_a_large_frame_in_one_read_is_not_lost():
    first, second = message(b"x" * (4 * LARGE)), message(b"y" * (4 * LARGE))
    pieces, data = Pieces(), first + second
    assert read(pieces, data[: 2 * LARGE]) == []
    assert read(pieces, data[2 * LARGE : 6 * LARGE]) == [b"x" * (4 * LARGE)]
    assert read(pieces, data[6 * LARGE :]) == [b"y" * (4 * LARGE)]


def test_garbage_without_an_end_of_line_is_looked_at_with_each_read():
    pieces = Pieces()
    pieces.keep(b"x" * (LARGE + 1))

    assert pieces.joined(b"y") == b"x" * (LARGE + 1) + b"y"
