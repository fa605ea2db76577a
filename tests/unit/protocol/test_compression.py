"""Compressed batches: what comes back is what went in; what is no frame, or tells of too much, costs nothing."""

import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.compression import Compressor, rows_of, zstd_module

from stan.errors import Damage
from stan.limits import COMPRESSED_BYTES_MAX, COMPRESSED_BYTES_MIN
from stan.protocol.compressed_batches import BatchCompressor, in_clear, parts_of, records_of, stored_form, stored_rows
from stan.protocol.entries import CIPHER_MASK, decode_batches, encode_batch
from stan.protocol.kernel import server as kernel
from tests.kit.batches import full_messages, rows_of_messages

EVENTS = rows_of_messages(full_messages(200))
SEALED = kernel.seal(b"foo", 7, 1_700_000_000_000_000_000, [EVENTS])


def test_what_is_compressed_comes_back_as_if_it_had_never_been() -> None:
    stored, size = BatchCompressor().stored_form(b"foo", EVENTS, SEALED)
    assert size == len(SEALED)
    assert 3 * len(stored) < len(SEALED)
    [batch] = decode_batches(b"".join(encode_batch(5, 7, 200, 1_700_000_000_000_000_000, 1, stored, size)))
    assert (batch.size, bytes(in_clear(batch))) == (size, SEALED)
    assert stored_rows(stored, size) == EVENTS
    with pytest.raises(Damage, match="announced"):
        records_of(stored, 1 << 40, 1_700_000_000_000_000_000, size + 1)


def test_a_batch_in_clear_is_as_it_was() -> None:
    [batch] = decode_batches(b"".join(encode_batch(5, 7, 200, 1, 1, SEALED)))
    assert (batch.size, in_clear(batch)) == (0, SEALED)


@pytest.mark.parametrize(
    "rows",
    [EVENTS[: COMPRESSED_BYTES_MIN - 1], Random(7).randbytes(4000)],
    ids=["few", "dense"],
)
def test_what_does_not_get_smaller_stays(rows) -> None:
    assert Compressor().frame(rows) == b""
    assert BatchCompressor().stored_form(b"foo", rows, SEALED) == (SEALED, 0)


def test_a_size_that_the_header_has_no_room_for_is_not_compressed() -> None:
    huge = bytes(COMPRESSED_BYTES_MAX + 1)
    assert stored_form(b"foo", b"a frame", huge) == (huge, 0)
    assert stored_form(b"foo", b"a frame", huge[1:])[1] == COMPRESSED_BYTES_MAX
    assert (COMPRESSED_BYTES_MAX << 8) & CIPHER_MASK == 0


zstd = zstd_module()
BOMB = zstd.compress(bytes(64 << 20))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"no frame",
        zstd.compress(b"x" * 2000)[:-3],
        zstd.compress(b"x" * 2000) + b"more",
        BOMB,
        zstd.compress(b"x" * 2000, options={zstd.CompressionParameter.content_size_flag: 0}),
        # tells of 2 bytes and holds 2000
        zstd.compress(b"x" * 2)[:5] + b"\x02" + zstd.compress(b"x" * 2000)[7:],
    ],
    ids=["empty", "garbage", "cut off", "too long", "bomb", "size not told", "wrong size"],
)
def test_frames_that_are_refused(frame) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"."):
        rows_of(frame, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@given(st.binary(max_size=60))
def test_any_bytes_give_damage(data) -> None:
    with pytest.raises(Damage):
        records_of(data, 1, 1, 1000)
    with pytest.raises(Damage):
        records_of(b"\x01\x03\x00foo" + data, 1, 1, 1000)


@given(st.integers(0, 8 * 1000), st.integers(0, 7))
def test_no_flipped_bit_gives_more_than_was_announced(at, bit) -> None:
    stored, size = BatchCompressor().stored_form(b"foo", EVENTS, SEALED)
    broken = bytearray(stored)
    broken[at % len(stored)] ^= 1 << bit
    with suppress(Damage):
        assert len(records_of(bytes(broken), 7, 1_700_000_000_000_000_000, size)) == size


def test_a_codec_that_is_not_known_is_named() -> None:
    with pytest.raises(Damage, match=r"not know \(9\)"):
        parts_of(b"\x09\x00\x00frame")
