"""ProducerDedup of ids say what a plain model says, and their rows hold all of it, however they are written and loaded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stan.core.state import dedup as windows
from stan.core.state.dedup import ProducerDedup
from stan.limits import PRODUCER_AGE_MAX
from stan.protocol.proto import entries_pb2 as pb

HOUR = 3600 * 10**9

uids = st.integers(1, 2)
producers = st.sampled_from([b"p", b"pq", b"", b"\0"])
ids = st.lists(st.integers(0, 30), max_size=12, unique=True)
sent = st.tuples(st.just("send"), uids, producers, st.integers(0, 4), ids, st.integers(-2, 15))
steps = st.lists(
    sent | sent | sent | st.tuples(st.just("drop"), uids) | st.sampled_from([("flush",), ("restart",)]), max_size=25
)


def encoded(numbers):
    return b"".join(number.to_bytes(16, "big") for number in numbers)


class Model:
    """What is known, as plainly as it can be said."""

    def __init__(self):
        self.now = 0
        self.heard = {}
        self.known = {}  # (uid, producer) -> version -> ids

    def send(self, uid, producer, version, numbers, at):
        self.now = max(self.now, at)
        self.heard[uid, producer] = self.now
        kept = self.known.setdefault((uid, producer), {})
        kept.setdefault(version, set()).update(numbers)
        for old in sorted(kept)[:-2]:
            del kept[old]
        for named in [named for named, heard in self.heard.items() if heard <= self.now - PRODUCER_AGE_MAX]:
            del self.known[named], self.heard[named]

    def drop(self, uid):
        for named in [named for named in self.known if named[0] == uid]:
            del self.known[named], self.heard[named]


def disk_of(part):
    return {key: part.row(key) for key in sorted(part.keys())}


def loaded(rows):
    part = ProducerDedup()
    for key, state in rows:
        part.load(key, state)
    return part


@settings(deadline=None)
@given(steps, st.randoms(use_true_random=False), st.sampled_from([16, 64, 4096]))
def test_windows_and_their_rows(told, random, chunk_bytes):
    before, windows.CHUNK_BYTES = windows.CHUNK_BYTES, chunk_bytes
    try:
        run(told, random)
    finally:
        windows.CHUNK_BYTES = before


def run(told, random):
    part, model, disk, wall = ProducerDedup(), Model(), {}, 100 * HOUR
    for step in told:
        match step:
            case ("send", uid, producer, version, numbers, hours):
                wall += hours * HOUR
                new = part.missing(uid, producer, encoded(numbers))
                fresh = [number for number, wanted in zip(numbers, new, strict=True) if wanted]
                change = pb.RememberIds(uid=uid, producer=producer, version=version, ids=encoded(fresh), at=wall)
                part.apply("remember_ids", change, 1)
                model.send(uid, producer, version, fresh, wall)
            case ("drop", uid):
                part.drop_channel(uid)
                model.drop(uid)
            case _:
                for key in part.dirty:
                    row = part.row(key)
                    if row is None:
                        disk.pop(key, None)
                    else:
                        disk[key] = row
                part.dirty.clear()
                assert disk == disk_of(part)
                if step == ("restart",):
                    part = loaded(random.sample(sorted(disk.items()), len(disk)))
                    assert disk_of(part) == disk
        check(part, model)


def check(part, model):
    assert set(part.producers) == set(model.known)
    assert part.ids == sum(len(known) for kept in model.known.values() for known in kept.values())
    everything = list(range(31))
    for (uid, producer), kept in model.known.items():
        known = set().union(*kept.values())
        assert part.missing(uid, producer, encoded(everything)) == bytes(number not in known for number in everything)
        for version in range(5):
            assert part.is_past(uid, producer, version) == (len(kept) == 2 and version < min(kept))
