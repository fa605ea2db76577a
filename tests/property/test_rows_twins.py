"""The rows kernel's twins agree byte for byte, and both with protobuf, whatever arrives."""

from array import array
from hashlib import blake2b
from itertools import accumulate
from struct import iter_unpack
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.kernel import rows, rows_py
from stan_protocol.parted import NO_SLOT, SLOTS
from stan_protocol.proto import wire_pb2

try:
    import _stan_rows_kernel
except ImportError:
    _stan_rows_kernel = None

MODULES = [rows_py] if _stan_rows_kernel is None else [rows_py, _stan_rows_kernel]
both = pytest.mark.parametrize("twin", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
relaxed = settings(deadline=None)  # a busy machine is no failure
needs_compiled = pytest.mark.skipif(_stan_rows_kernel is None, reason="the compiled kernels are not installed")

small = st.binary(max_size=6)
texts = small | st.binary(min_size=120, max_size=140)
pairs = st.lists(st.tuples(small, small), max_size=3)
contents = st.lists(st.tuples(texts, small, pairs, small), max_size=8)  # data, reply, headers, key
signed = st.integers(-(1 << 63), (1 << 63) - 1)


def outcome(function, *arguments, **named):
    """What a call returns, or that it refuses."""
    try:
        return function(*arguments, **named)
    except ValueError:
        return ValueError


def same(name: str, *arguments, **named):
    """Both twins' outcome, which is the same."""
    plain = outcome(getattr(rows_py, name), *arguments, **named)
    assert plain == outcome(getattr(_stan_rows_kernel, name), *arguments, **named)
    return plain


def column(values: list[bytes]) -> tuple[bytes, bytes]:
    places = [0]
    for value in values:
        places.append(places[-1] + len(value))
    return array("i", places).tobytes(), b"".join(values)


def packed(twin: ModuleType, sent) -> bytes:
    replies = column([reply for _, reply, _, _ in sent])
    return twin.pack_rows(
        *column([data for data, _, _, _ in sent]),
        0,
        len(sent),
        replies=(*replies, 0),
        headers=[headers or None for _, _, headers, _ in sent],
        keys=(*column([b"not taken", *(key for _, _, _, key in sent)]), 1),
    )


def prefixed(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "little") + body for body in bodies)


def damaged(draw, data: bytes) -> bytes:
    """*data* with bytes changed, its end cut off, or something behind it; often as it is."""
    changed = bytearray(data)
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=2)):
        if changed:
            changed[place % len(changed)] = byte
    kept = draw(st.just(len(changed)) | st.integers(0, len(changed)))
    return bytes(changed[:kept]) + draw(st.just(b"") | small)


@st.composite
def some_rows(draw):
    """Rows, often many that look alike, often damaged, and how many are said to be there."""
    sent = draw(contents)
    if sent and draw(st.booleans()):
        sent = sent[:1] * draw(st.integers(1, 5)) + sent
    data = damaged(draw, packed(rows_py, sent)) if draw(st.booleans()) else packed(rows_py, sent)
    return data, draw(st.just(len(sent)) | st.integers(0, 9))


unknown = st.sampled_from([b"\x78\x05", b"\x7d1234", b"\x79" + b"8" * 8, b"\x7a\x00"])


@st.composite
def keyed_messages(draw: st.DrawFn) -> bytes:
    """A MsgProto, with a key or without one."""
    key = draw(st.sampled_from([b"", b"", b"a", b"b"]) | st.binary(max_size=20))
    message = wire_pb2.MsgProto(sequence=draw(st.integers(1, 300)), data=draw(small), key=key)
    return draw(st.just(b"") | unknown) + message.SerializeToString() + draw(st.just(b"") | unknown)


@needs_compiled
@relaxed
@given(st.lists(keyed_messages() | st.binary(max_size=40), max_size=6), small)
def test_slots_twins_agree_on_any_records(parts, tail):
    same("slots", prefixed(parts))
    same("slots", prefixed(parts) + tail)


@both
@relaxed
@given(st.lists(keyed_messages(), max_size=6))
def test_slots_are_of_keys_and_ends_are_where_records_end(twin, parts):
    slots, ends = twin.slots(prefixed(parts))
    found = [slot for (slot,) in iter_unpack("<H", slots)]
    keys = [wire_pb2.MsgProto.FromString(part).key for part in parts]
    assert [slot == NO_SLOT for slot in found] == [not key for key in keys]
    assert len({*zip(keys, found, strict=True)}) == len(set(keys)), "a key has one slot"
    assert all(slot < SLOTS or not key for slot, key in zip(found, keys, strict=True))
    sizes = [4 + len(part) for part in parts]
    assert [end for (end,) in iter_unpack("<I", ends)] == list(accumulate(sizes))


@needs_compiled
@relaxed
@given(small, st.integers(1, 300), signed, st.lists(st.lists(texts, max_size=4).map(prefixed) | small, max_size=3))
def test_seal_twins_agree_on_any_bodies(channel, base, timestamp, bodies):
    same("seal", channel, base, timestamp, bodies)


@st.composite
def some_records(draw):
    """Stored messages, often damaged, and how many are said to be there."""
    sent = draw(contents)
    if sent and draw(st.booleans()):
        one = sent[0]
        sent += [(draw(st.binary(min_size=len(one[0]), max_size=len(one[0]))), *one[1:]) for _ in range(4)]
    base = draw(st.integers(1, 300) | st.integers(1, (1 << 63) - 20))
    records = rows_py.seal(draw(small), base, draw(signed), [packed(rows_py, sent)])
    extra = draw(st.lists(st.sampled_from([b"", b"\x08\x05", b"\x30\x01\x38\x07", b"\x78\x01", b"\x21" + b"d" * 8])))
    bodies = [wire_pb2.MsgProto(sequence=7, data=b"x").SerializeToString() + tail for tail in extra]
    bodies += draw(st.lists(st.binary(max_size=12), max_size=1))
    records += prefixed(bodies)
    count = len(sent) + len(bodies)
    if draw(st.booleans()):
        records = damaged(draw, records)
    return records, draw(st.just(count) | st.integers(0, 9))


@both
@relaxed
@given(contents, st.integers(1, 300) | st.integers(1, (1 << 63) - 20), signed)
def test_rows_become_messages_and_columns_again(twin, sent, base, timestamp):
    data = packed(twin, sent)
    assert twin.check_rows(data, len(sent)) == -1
    records = rows_py.seal(b"a", base, timestamp, [data])
    expected = prefixed(
        [
            wire_pb2.MsgProto(
                sequence=base + row,
                subject=b"a",
                reply=reply,
                data=text,
                timestamp=timestamp,
                headers=[wire_pb2.Header(key=key, value=value) for key, value in headers],
                key=name,
            ).SerializeToString()
            for row, (text, reply, headers, name) in enumerate(sent)
        ]
    )
    assert sorted(records) == sorted(expected)  # the same fields in another order
    found = twin.columns(memoryview(records), len(sent), headers=True, keys=True)
    assert found.sequences == array("q", range(base, base + len(sent))).tobytes()
    assert found.timestamps == array("q", [timestamp] * len(sent)).tobytes()
    assert (found.data_offsets, found.data) == column([text for text, _, _, _ in sent])
    assert (found.reply_offsets, found.replies) == column([reply for _, reply, _, _ in sent])
    assert found.headers == [tuple(headers) for _, _, headers, _ in sent]
    assert found.keys == column([key for _, _, _, key in sent])
    assert twin.columns(records, len(sent)) == found._replace(headers=None, keys=None)


@both
@relaxed
@given(st.lists(texts, min_size=1, max_size=8), st.data())
def test_pack_rows_takes_a_part_of_a_column(twin, values, data):
    first = data.draw(st.integers(0, len(values)))
    count = data.draw(st.integers(0, len(values) - first))
    whole = prefixed([wire_pb2.MsgProto(data=value).SerializeToString() for value in values[first : first + count]])
    assert twin.pack_rows(*map(memoryview, column(values)), first, count) == whole
    same_for_all = rows_py.encode_headers([(b"k", b"v")])
    told = twin.pack_rows(*column(values), first, count, headers=same_for_all)
    assert told == twin.pack_rows(*column(values), first, count, headers=[[(b"k", b"v")]] * count)


@needs_compiled
@relaxed
@given(
    st.lists(st.integers(-2, 9), max_size=5), small, st.integers(-1, 3), st.integers(-1, 5), st.none() | st.just([None])
)
def test_pack_rows_twins_agree_on_any_offsets(places, data, first, count, headers):
    offsets = array("i", places).tobytes()
    same("pack_rows", offsets, data, first, count, headers=headers)
    same("pack_rows", offsets + b"..", data, first, count, replies=(offsets, data, 0))


@needs_compiled
@relaxed
@given(some_rows(), st.data())
def test_twins_agree_on_any_rows(told, data):
    rows_there, count = told
    same("check_rows", rows_there, count)
    same("pick_rows", rows_there, data.draw(st.binary(min_size=count, max_size=count)))


@needs_compiled
@relaxed
@given(st.binary(max_size=40), st.integers(0, 3))
def test_twins_agree_on_noise(noise, count):
    same("check_rows", noise, count)
    same("check_rows", prefixed([noise]), 1)
    same("columns", noise, count, headers=True)
    same("columns", prefixed([noise]), 1)
    header = wire_pb2.MsgProto(sequence=1).SerializeToString() + b"\x82\x01" + bytes([len(noise)]) + noise
    same("columns", prefixed([header]), 1, headers=True)
    same("check_rows", prefixed([header[2:]]), 1)
    key = wire_pb2.MsgProto(sequence=1).SerializeToString() + b"\x8a\x01" + bytes([len(noise)]) + noise
    same("columns", prefixed([key]), 1, keys=True)
    same("check_rows", prefixed([key[2:]]), 1)


@needs_compiled
@relaxed
@given(some_records())
def test_twins_agree_on_any_records(told):
    same("columns", *told)
    same("columns", *told, headers=True)
    same("columns", *told, keys=True)


@both
@relaxed
@given(contents.filter(len), st.data())
def test_check_rows_finds_the_row_that_is_wrong(twin, sent, data):
    good = packed(twin, sent)
    place = data.draw(st.integers(0, len(sent)))
    wrong = data.draw(
        st.sampled_from(
            [
                *(b"\x1a\x00", b"\x22\x00", b"\x22\x01a\x1a\x01a", b"\x08\x01", b"\x82\x01\x02\x12\x00", b"\x22\x05a"),
                *(b"\x8a\x01\x00", b"\x8a\x01\x01k\x82\x01\x00", b"\x8a\x01\x81\x08" + b"k" * 1025, b"\x8a\x01\x02k"),
            ]
        )
    )
    rows_there = packed(twin, sent[:place]) + prefixed([wrong]) + packed(twin, sent[place:])
    assert twin.check_rows(rows_there, len(sent) + 1) == place
    assert twin.check_rows(good, len(sent) + 1) == len(sent)
    assert twin.check_rows(good, len(sent) - 1) == len(sent) - 1
    assert twin.check_rows(good[:-1], len(sent)) in (len(sent) - 1, -1 if not good else len(sent) - 1)


@both
@relaxed
@given(contents, st.data())
def test_pick_rows_keeps_what_the_mask_tells(twin, sent, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(sent), max_size=len(sent)))
    kept = [row for row, wanted in zip(sent, mask, strict=True) if wanted]
    assert twin.pick_rows(packed(twin, sent), bytes(mask)) == packed(twin, kept)


ids = st.lists(st.binary(min_size=1, max_size=1).map(lambda one: one * 16), max_size=60).map(b"".join) | st.binary(
    max_size=33
)


@needs_compiled
@relaxed
@given(st.lists(st.tuples(ids, st.booleans()), max_size=6))
def test_id_sets_twins_agree_on_any_ids(calls):
    plain, compiled = rows_py.IdSet(), _stan_rows_kernel.IdSet()
    for told, adds in calls:
        name = "add" if adds else "missing"
        mask = outcome(getattr(plain, name), told)
        assert mask == outcome(getattr(compiled, name), told)
        assert len(plain) == len(compiled)
        if mask is not ValueError:
            same("pick_ids", told, mask)
        same("pick_ids", told, b"\1")


@both
def test_id_set_grows_and_forgets_none(twin):
    known = twin.IdSet()
    many = b"".join(place.to_bytes(16, "big") for place in range(5000))
    for at in range(0, len(many), 1600):
        part = many[at : at + 1600]
        assert known.add(part + part[:16]) == b"\1" * (len(part) // 16) + b"\0"
    assert known.missing(many + b"x" * 16) == b"\0" * 5000 + b"\1"
    assert len(known) == 5000


def test_the_chosen_twin_is_of_the_same_version():
    assert rows.NAME in ("python", "compiled")
    assert all(module.KERNEL_VERSION == rows_py.KERNEL_VERSION for module in MODULES)


@needs_compiled
@relaxed
@given(
    st.lists(small | st.binary(min_size=120, max_size=140) | st.binary(min_size=250, max_size=260), max_size=6),
    *(st.binary(max_size=17), st.binary(max_size=17), st.integers(-1, 7), st.integers(-1, 7)),
)
def test_twins_make_the_same_ids_of_values(values, salt, person, first, count):
    found = same("digests", *column(values), first, count, salt=salt, person=person)

    if found is not ValueError:
        assert len(found) == rows_py.ID_BYTES * count


@both
def test_ids_of_values_are_those_of_blake2b(twin):
    values = [b"", b"a", bytes(127), bytes(128), bytes(129), b"x" * 256, b"y" * 1000]

    found = twin.digests(*column([b"before", *values]), 1, len(values), salt=b"salt", person=b"person")

    assert found == b"".join(
        blake2b(value, digest_size=16, salt=b"salt", person=b"person").digest() for value in values
    )


@needs_compiled
@relaxed
@given(some_rows(), st.integers(-1, 400), st.integers(-1, 9), st.integers(-1, 400))
def test_twins_walk_over_the_same_records(told, at, count, most):
    same("behind", told[0], at, count, most)


@both
def test_walk_over_records_ends_at_the_number_the_bytes_or_the_end(twin):
    records = prefixed([b"one", b"", b"three"])

    assert twin.behind(records, 0, 3, 100) == (3, len(records))
    assert twin.behind(records, 0, 2, 100) == (2, 11)
    assert twin.behind(records, 7, 3, 4) == (1, 11)
    assert twin.behind(memoryview(records), 0, 3, 6) == (0, 0)
    assert twin.behind(records, len(records), 0, 0) == (0, len(records))
    with pytest.raises(ValueError, match="record cut off"):
        twin.behind(records, 11, 2, 100)
    with pytest.raises(ValueError, match="no such place"):
        twin.behind(records, len(records) + 1, 0, 0)
