"""Random damage to an old store: reading it never fails, invents nothing, and tells of every message that is not there."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stan.migration.file_stores import file_stores
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan
from tests.kit import old_store
from tests.kit.old_store import EPOCH, acked, durable, message, sent
from tests.kit.opened_store import Opened

FIRST, COUNT, PER_SLICE = 101, 60, 20
PAYLOADS = {n: b"payload %d of foo" % n * (n % 7) for n in range(FIRST, FIRST + COUNT)}
FILES = [f"foo/msgs.{n}.{ending}" for n in (1, 2, 3) for ending in ("dat", "idx")]
FILES += ["foo/subs.dat", "server.dat", "clients.dat"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store in order."""
    directory = tmp_path_factory.mktemp("whole")
    old_store.write_server(directory)
    for number in range(3):
        first = FIRST + number * PER_SLICE
        times = [EPOCH + n * 9_000_000 for n in range(first, first + PER_SLICE)]
        messages = [message(b"foo", first + n, PAYLOADS[first + n], times[n]) for n in range(PER_SLICE)]
        old_store.write_slice(directory / "foo", number + 1, messages, first, times)
    told = [sent(1, n) for n in range(FIRST, FIRST + 10)] + [acked(1, n) for n in range(FIRST, FIRST + 5)]
    old_store.write_subscriptions(directory / "foo", durable(1, b"me", b"d"), *told)
    return directory


def flip(data, at, _size):
    data[at] ^= 1 << at % 8


def zero(data, at, size):
    data[at : at + size] = bytes(len(data[at : at + size]))


def cut(data, at, _size):
    del data[at:]


def remove(data, at, size):
    del data[at : at + size]


def repeat(data, at, size):
    data[at:at] = data[at : at + size]


def scramble(data, at, size):
    data[at : at + size] = bytes(byte * 167 + 13 & 0xFF for byte in data[at : at + size])


def add(data, _at, size):
    data += bytes(n * 37 & 0xFF for n in range(size))


DAMAGE = st.tuples(
    st.sampled_from(FILES),
    st.sampled_from([flip, zero, cut, remove, repeat, scramble, add]),
    st.integers(0, 1 << 16),
    st.sampled_from([1, 4, 8, 33, 200, 5000]),
)


def damage(directory, name, how, at, size):
    path = directory / name
    data = bytearray(path.read_bytes())
    if data:
        how(data, at % len(data), size)
        path.write_bytes(data)


def run(source, target=None):
    plan = MigrationPlan(source=file_stores([source]), target=target, cluster_id="test-cluster", plain=True)
    return move(plan, lambda _total: None, lambda _size: None)


def check(directory, source):
    """Look, move and open; returns the report and what is in the new directory."""
    looked = run(source)
    report = run(source, directory / "new")
    assert looked == report
    assert all(problem.file.startswith(str(source)) and problem.offset >= 0 for problem in report.problems)
    new = Opened(directory / "new")
    (told,) = report.channels
    assert told.messages == len(new.messages[b"foo"])
    assert told.last == new.last[b"foo"]
    return report, new


@settings(max_examples=60, deadline=None)
@given(damages=st.lists(DAMAGE, min_size=1, max_size=6))
def test_damage_of_any_kind_is_survived_and_nothing_is_invented(whole, damages):
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "old"
        shutil.copytree(whole, source)
        for one in damages:
            damage(source, *one)
        _, new = check(Path(name), source)
        kept = {fields.number(1): fields.text(4) for fields in new.messages[b"foo"]}
        assert list(kept) == sorted(kept)
        last = max(kept, default=0)
        assert all(kept[n] == PAYLOADS.get(n) for n in kept if n != last)
        assert not kept or kept[last] in (PAYLOADS.get(last), b"")


@settings(max_examples=60, deadline=None)
@given(one=DAMAGE)
def test_every_message_that_one_damage_costs_is_told(whole, one):
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "old"
        shutil.copytree(whole, source)
        damage(source, *one)
        report, new = check(Path(name), source)
        kept = {fields.number(1): fields.text(4) for fields in new.messages[b"foo"]}
        if kept != PAYLOADS:
            assert report.problem_count
            assert one[0].startswith("foo/msgs.")
            assert one[0].endswith(".dat")
        assert new.last[b"foo"] == FIRST + COUNT - 1
        assert one[0] == "foo/subs.dat" or new.cursors[b"d"].last_sent == FIRST + 9
