"""The log on a disk that loses power at any call, beside a list: what a sync covered is there, the index equals the list."""

import errno
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stan.errors import DiskFull
from stan.log.encryption import Cipher
from stan.log.files.filelog import FileLog
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import STAGING_UID, Kind, decode_batches
from stan.protocol.staged import sealed
from tests.kit.batches import batch, change, compressed_batch, entry, references, rows_of, staged_batch
from tests.kit.files import CrashingFiles, PowerCut

STORE = b"0123456789abcdef"
DIRECTORY = Path("/store/groups/1")
ALL = 10**9
UIDS = [1, 2, 3]
SIZES = {1: 11, 2: 70, 3: 40}
"""Bytes of each message of a channel; the first is small, so that a segment that keeps only its messages is worth cleaning."""


REFERRED, NAME = 9, b"referred"
"""A channel whose messages all lie where they were staged."""


class LogMachine(RuleBasedStateMachine):
    """Every rule may be cut short by a loss of power after some calls; then the log is opened again from what is left."""

    @initialize()
    def start(self):
        self.files = CrashingFiles()
        self.written = []  # the entries of the log from index 1 on, those deleted since included
        self.tried = {}  # index -> every entry that was ever handed to append there
        self.synced = 0
        self.committed = 0
        self.released = 0
        self.trims = dict.fromkeys((*UIDS, REFERRED, STAGING_UID), 0)
        self.dropped = set()
        self.term = 1
        self.open()

    def cipher(self):
        """With what this life of the log encrypts."""

    def open(self):
        self.log, report = FileLog.open(
            DIRECTORY,
            1,
            STORE,
            files=self.files,
            segment_bytes_max=400,
            tail_cache_bytes_max=300,
            cipher=self.cipher(),
        )
        assert report.quarantined == []
        assert [path for path in self.files.paths() if "lost+found" in path] == []
        last = self.log.last_index
        assert self.synced <= last <= max([*self.tried, 0])
        found = {one.index: one for one in self.log.entries(1, last, ALL)}
        for index in range(max(self.released, self.committed) + 1, last + 1):
            assert index in found
        for index, one in found.items():
            assert one in self.tried[index]
            if index <= self.synced:
                assert one == self.written[index - 1]
        self.written = [found.get(at + 1, one) for at, one in enumerate(self.written[:last])]
        self.written += [found[index] for index in range(len(self.written) + 1, last + 1)]
        self.synced = last
        assert self.log.durable_index == last
        self.log.commit(self.committed)
        for uid in self.trims:
            if uid in self.dropped:
                self.log.drop(uid)
            else:
                self.log.trim(uid, self.trims[uid])
        self.log.release(self.released)

    def run(self, act, seed, calls):
        """Do something; if *calls* is not None the power goes after so many calls, and comes back."""
        if calls is None:
            return act()
        self.files.cut_power_after(calls)
        try:
            result = act()
        except PowerCut:
            self.files = self.files.crash(seed)
            self.open()
            return None
        self.files.cut_at = None
        return result

    def batches(self, uid, upto):
        """(base, count, timestamp, records) of a channel's batches in the entries up to an index."""
        found, hidden = [], {}
        for one in self.written[:upto]:
            for part in decode_batches(one.body) if one.kind == Kind.RECORDS else ():
                if part.staged:
                    records = sealed(hidden[part.staged], part.base_sequence, part.timestamp)
                else:
                    records = bytes(in_clear(part))
                if part.uid == STAGING_UID:
                    hidden[part.base_sequence] = records
                if part.uid == uid:
                    found.append((part.base_sequence, part.count, part.timestamp, records))
        return found

    def batch(self, uid, base, count, timestamp):
        return batch(uid, base, count, timestamp=timestamp, size=SIZES[uid])

    cuts = st.none() | st.integers(0, 12)
    seeds = st.integers(0, 1000)

    def make(self, shapes):
        """Entries that follow: each shape is a list of (uid, count), or None for an entry without records."""
        last = {uid: sum(count for _, count, _, _ in self.batches(uid, len(self.written))) for uid in UIDS}
        made = []
        for shape in shapes:
            index = len(self.written) + len(made) + 1
            if shape is None:
                made.append(change(index, b"some change", term=self.term))
                continue
            parts = []
            for uid, count in shape:
                if uid not in self.dropped:
                    parts.append(self.batch(uid, last[uid] + 1, count, index * 10))
                    last[uid] += count
            made.append(entry(index, *parts, term=self.term))
        for one in made:
            self.tried.setdefault(one.index, []).append(one)
        return made

    shapes = st.lists(
        st.none() | st.lists(st.tuples(st.sampled_from(UIDS), st.integers(1, 3)), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )

    @rule(shapes=shapes, seed=seeds, calls=cuts)
    def append(self, shapes, seed, calls):
        made = self.make(shapes)
        log = self.log
        self.run(lambda: log.append(made), seed, calls)
        if log is self.log:
            self.written += made

    @rule(shapes=shapes, call=st.sampled_from(["pwritev", "create"]), after=st.integers(0, 1))
    def append_on_a_full_disk(self, shapes, call, after):
        made = self.make(shapes)
        self.files.fail(call, after, errno.ENOSPC)
        try:
            self.log.append(made)
        except DiskFull:
            assert self.log.last_index == len(self.written)
            for one in made:  # whoever proposed it was told so: it never comes back
                self.tried[one.index].remove(one)
                if not self.tried[one.index]:
                    del self.tried[one.index]
        else:
            self.written += made
        self.files.faults.clear()

    @rule(seed=seeds, calls=cuts)
    def sync(self, seed, calls):
        log = self.log
        durable = self.run(self.log.sync, seed, calls)
        if log is self.log:
            assert durable == len(self.written)
            self.synced = durable

    @rule(share=st.floats(0, 1))
    def commit(self, share):
        self.synced = max(self.synced, self.log.durable_index)
        index = int(self.synced * share)
        self.log.commit(index)
        self.committed = max(self.committed, index)
        for uid in self.dropped:
            self.log.drop(uid)

    @rule(uid=st.sampled_from(UIDS), share=st.floats(0, 1))
    def trim(self, uid, share, most=ALL):
        if uid in self.dropped:
            return
        first = min(most, int((self.log.channel(uid).last_sequence + 1) * share))
        self.trims[uid] = max(self.trims[uid], first)
        self.log.trim(uid, first)

    @precondition(lambda self: len(self.dropped) < 2)
    @rule(uid=st.sampled_from(UIDS))
    def drop(self, uid):
        self.dropped.add(uid)
        self.log.drop(uid)

    @rule(order=st.permutations(UIDS), seed=seeds, calls=cuts)
    def grow(self, order, seed, calls):
        """A few segments at once, committed."""
        made = self.make([[(uid, 1)] for uid in order * 4])
        log = self.log
        for one in made:
            self.run(lambda one=one: log.append([one]), seed, None if one is not made[-1] else calls)
            if log is not self.log:
                return
            self.written.append(one)
        self.sync(seed=seed, calls=None)
        self.commit(share=1)

    @rule(uid=st.sampled_from(UIDS[1:]), seed=seeds, calls=cuts)
    def expire(self, uid, seed, calls):
        """All messages of a channel are gone, and nothing is held by the state."""
        self.trim(uid=uid, share=1)
        self.release(share=1, seed=seed, calls=calls)

    @rule(share=st.floats(0, 1), seed=seeds, calls=cuts)
    def release(self, share, seed, calls):
        index = int(self.committed * share)
        self.released = max(self.released, index)
        self.run(lambda: self.log.release(index), seed, calls)

    @rule(seed=seeds, calls=cuts, late=st.booleans())
    def clean(self, seed, calls, late):
        log = self.log
        self.run(self.log.clean, seed, calls)
        if not late and log is self.log:
            self.log.commit(self.committed)

    @rule(share=st.floats(0, 1), seed=seeds, calls=cuts)
    def truncate(self, share, seed, calls):
        index = self.committed + int((len(self.written) - self.committed) * share)
        log = self.log
        self.synced = min(self.synced, index)
        before = self.written
        self.run(lambda: self.log.truncate_after(index), seed, calls)
        if log is self.log:
            self.written = before[:index]
            self.synced = index
        self.term += 1

    @rule(seed=seeds)
    def crash(self, seed):
        self.files = self.files.crash(seed)
        self.open()

    @rule()
    def close_and_open(self):
        self.log.close()
        assert self.files.open_files == {}
        self.synced = len(self.written)
        self.open()

    @invariant()
    def log_equals_the_list(self):
        log = self.log
        assert log.last_index == len(self.written)
        assert log.first_index <= max(self.released, 0) + 1
        assert log.entries(log.first_index, ALL, ALL) == self.written[log.first_index - 1 :]
        for one in self.written[log.first_index - 1 :]:
            assert log.term_at(one.index) == one.term

    @invariant()
    def index_equals_the_list(self):
        for uid in self.trims:
            channel = self.log.channel(uid)
            batches = [] if uid in self.dropped else self.batches(uid, self.committed)
            last = batches[-1][0] + batches[-1][1] - 1 if batches else 0
            first = max(1, self.trims[uid]) if batches else 0
            assert (channel.first_sequence, channel.last_sequence) == (first, last)
            kept = [one for one in batches if one[0] + one[1] > first]
            sizes = [len(one[3]) + 36 * one[1] for one in kept]
            if kept and kept[0][0] < first:  # of a batch that is kept in part, messages count as equally large
                sizes[0] = -(-sizes[0] * (kept[0][0] + kept[0][1] - first) // kept[0][1])
            assert channel.bytes == sum(sizes)
            refs = channel.refs(0, ALL, ALL, ALL)
            assert [(ref.base_sequence, ref.count, ref.timestamp) for ref in refs] == [one[:3] for one in kept]
            assert [self.log.read(ref) for ref in refs] == [one[3] for one in kept]


class CompressedLogMachine(LogMachine):
    """Every second batch is compressed, where that makes it smaller; from the second life on they are encrypted, too."""

    lives = 0

    def cipher(self):
        self.lives += 1
        return Cipher(b"a key").of(STORE, 1) if self.lives > 1 else None

    def batch(self, uid, base, count, timestamp):
        if timestamp % 20:
            return super().batch(uid, base, count, timestamp)
        return compressed_batch(uid, base, count, timestamp, 3 * SIZES[uid])


class ReferenceLogMachine(LogMachine):
    """The same, with rows that are staged in the hidden channel, and entries that refer to them."""

    def free(self):
        """Sequences of committed parts that no entry refers to, and of those that one which is not committed refers to."""
        staged, taken, late = [], set(), []
        for one in self.written:
            for part in decode_batches(one.body) if one.kind == Kind.RECORDS else ():
                if part.uid == STAGING_UID and one.index <= self.committed:
                    staged.append(part.base_sequence)
                if part.staged:
                    taken.add(part.staged)
                    late += [part.staged] * (one.index > self.committed)
        floor = self.trims[STAGING_UID]
        return [sequence for sequence in staged if sequence >= floor and sequence not in taken], late

    def _append(self, one, seed, calls):
        self.tried.setdefault(one.index, []).append(one)
        log = self.log
        self.run(lambda: log.append([one]), seed, calls)
        if log is self.log:
            self.written.append(one)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), seed=LogMachine.seeds, calls=LogMachine.cuts)
    def stage(self, counts, seed, calls):
        index, at = len(self.written) + 1, len(self.batches(STAGING_UID, len(self.written))) + 1
        parts = []
        for sequence, count in enumerate(counts, at):
            rows = rows_of([b"%d of %d" % (row, sequence) for row in range(count)])
            parts.append(staged_batch(sequence, NAME, rows, index * 10, self.trims[STAGING_UID]))
        self._append(entry(index, *parts, term=self.term), seed, calls)

    @precondition(lambda self: REFERRED not in self.dropped and self.free()[0])
    @rule(data=st.data(), seed=LogMachine.seeds, calls=LogMachine.cuts)
    def refer(self, data, seed, calls):
        free, _ = self.free()
        chosen = data.draw(st.permutations(free))[: data.draw(st.integers(1, 3))]
        hidden = {base: found for base, _, _, found in self.batches(STAGING_UID, len(self.written))}
        before = self.batches(REFERRED, len(self.written))
        base, index = sum(count for _, count, _, _ in before) + 1, len(self.written) + 1
        parts = [(hidden[sequence], sequence, hidden[sequence].count(b" of ")) for sequence in chosen]
        made = references(*parts, uid=REFERRED, base=base, timestamp=index * 10, first=self.trims[REFERRED])
        self._append(entry(index, made, term=self.term), seed, calls)

    @rule(share=st.floats(0, 1))
    def unstage(self, share):
        """The parts that nobody will ask for are gone from the hidden channel."""
        self.trim(uid=STAGING_UID, share=share, most=min(self.free()[1], default=ALL))

    @rule(share=st.floats(0, 1))
    def trim_referred(self, share):
        self.trim(uid=REFERRED, share=share)

    @precondition(lambda self: REFERRED not in self.dropped)
    @rule(
        data=st.data(),
        seed=LogMachine.seeds,
        calls=LogMachine.cuts,
        share=st.sampled_from([0, 0.5, 0.9]),
        late=st.booleans(),
    )
    def clean_what_is_referred_to(self, data, seed, calls, share, late):
        """Parts are staged beside other messages, some of them are committed, and nothing else is kept."""
        self.stage(counts=[1, 2, 1], seed=seed, calls=None)
        self.grow(order=UIDS, seed=seed, calls=None)
        self.refer(data=data, seed=seed, calls=None)
        self.grow(order=UIDS, seed=seed, calls=None)
        for uid in UIDS:
            self.trim(uid=uid, share=1)
        self.unstage(share=1)
        self.trim_referred(share=share)
        self.release(share=1, seed=seed, calls=None)
        for _ in range(2):
            self.clean(seed=seed, calls=calls, late=late)

    @precondition(lambda self: not self.dropped)
    @rule()
    def drop_referred(self):
        if self.batches(REFERRED, self.committed):
            self.drop(uid=REFERRED)


class EncryptedReferenceLogMachine(ReferenceLogMachine):
    """The same, encrypted from its first entry on."""

    def cipher(self):
        return Cipher(b"a key").of(STORE, 1, 1)


class EncryptedLogMachine(LogMachine):
    """The same, encrypted from the second life on, with one cipher or the other."""

    lives = 0

    def cipher(self):
        self.lives += 1
        return Cipher(b"a key", ("AES", "CHACHA")[self.lives % 2]).of(STORE, 1) if self.lives > 1 else None


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCompressedLogMachine = CompressedLogMachine.TestCase
TestCompressedLogMachine.settings = TestLogMachine.settings
TestEncryptedLogMachine = EncryptedLogMachine.TestCase
TestEncryptedLogMachine.settings = TestLogMachine.settings
TestReferenceLogMachine = ReferenceLogMachine.TestCase
TestReferenceLogMachine.settings = TestLogMachine.settings
TestEncryptedReferenceLogMachine = EncryptedReferenceLogMachine.TestCase
TestEncryptedReferenceLogMachine.settings = TestLogMachine.settings
