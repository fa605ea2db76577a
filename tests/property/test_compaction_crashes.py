"""Compaction by key on a disk that loses power at any call: who folds what is left by key gets what the fold of all messages
gives, from the start and from wherever a reader has paused."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from stan_protocol.compaction import DELETE_HEADER, is_tombstone
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.compaction import Compaction
from stan.log.encryption import Cipher
from stan.log.files.filelog import FileLog
from stan.protocol.entries import encode_batch
from stan.protocol.jetstream.headers import takes_place
from stan.protocol.kernel import server as kernel
from tests.kit.batches import change, compressed, entry, rows_of_messages
from tests.kit.files import CrashingFiles, PowerCut

STORE = b"0123456789abcdef"
DIRECTORY = Path("/store/groups/1")
ALL = 10**9
COMPACTED, PLAIN = 1, 2
LONG = b"k" * 40
KEYS = [b"", b"a", b"b", b"c", LONG]


def folded(table, messages, *, keep_first):
    """The table that *messages*, (sequence, MsgProto) each, make of *table*; messages without a key are all kept."""
    table = dict(table)
    for sequence, message in messages:
        told = wire.MsgProto.FromString(message)
        if not told.key:
            table[sequence] = message
        elif keep_first:
            table.setdefault(told.key, message)
        elif is_tombstone(message):
            table.pop(told.key, None)
        else:
            table[told.key] = message
    return table


def folded_history(table, messages, *, history):
    """The newest *history* messages of each key, from the last one on that takes the place of those before it."""
    table = dict(table)
    for sequence, message in messages:
        told = wire.MsgProto.FromString(message)
        if not told.key:
            table[sequence] = message
        else:
            before = () if takes_place(told) else table.get(told.key, ())
            table[told.key] = (*before, message)[-history:]
    return table


def unpack(records):
    found = []
    while records:
        end = 4 + int.from_bytes(records[:4], "little")
        found.append(bytes(records[4:end]))
        records = records[end:]
    return found


class CompactionMachine(RuleBasedStateMachine):
    """Every rule may be cut short by a loss of power after some calls; then the log is opened again from what is left."""

    keep_first = False
    history = 1
    compressed = False
    keys_max = 1000

    @initialize()
    def start(self):
        self.files = CrashingFiles()
        self.index = 0
        self.messages = {COMPACTED: [], PLAIN: []}  # (sequence, MsgProto), all that were ever committed
        self.mark = Compaction(0, 0, 0, self.keep_first, earlier=self.history - 1)
        self.readers = []  # (position, table): what paused readers have made of it
        self.open()

    def cipher(self):
        """With what this life of the log encrypts."""

    def open(self):
        self.log, report = FileLog.open(
            DIRECTORY, 1, STORE, files=self.files, segment_bytes_max=600, tail_cache_bytes_max=300, cipher=self.cipher()
        )
        assert report.quarantined == []
        self.log._compactor.keys_max = self.keys_max
        self.log.commit(self.log.last_index)
        self.index = self.log.last_index
        self.log.release(self.index)

    def run(self, act, seed, calls):
        """Do something; if *calls* is not None the power goes after so many calls, and comes back."""
        if calls is None:
            act()
            return
        self.files.cut_power_after(calls)
        try:
            act()
        except PowerCut:
            self.files = self.files.crash(seed)
            self.open()
        self.files.cut_at = None

    cuts = st.none() | st.integers(0, 30)
    seeds = st.integers(0, 1000)

    @rule(
        shapes=st.lists(
            st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from("ppppttr")), min_size=1, max_size=4),
            min_size=1,
            max_size=6,
        ),
        plain=st.booleans(),
    )
    def append(self, shapes, plain):
        """Entries that are durable and committed; each has a batch of the compacted channel and now and then one of another."""
        for shape in shapes:
            self.index += 1
            parts = [self._batch(COMPACTED, shape)]
            if plain:
                parts.append(self._batch(PLAIN, [(b"x", "p")]))
            self.log.append([entry(self.index, *parts)])
        self.index += 1
        self.log.append([change(self.index)])
        self.log.sync()
        self.log.commit(self.index)

    def _batch(self, uid, shape):
        known = self.messages[uid]
        base = known[-1][0] + 1 if known else 1
        made = []
        if self.compressed:
            return self._compressed(uid, base, shape)
        for sequence, (key, kind) in enumerate(shape, base):
            dead = kind == "t" and key
            headers = [wire.Header(key=DELETE_HEADER, value=b"1")] if dead else []
            headers += [wire.Header(key=b"Nats-Rollup", value=b"sub")] if kind == "r" else []
            told = wire.MsgProto(
                sequence=sequence, subject=b"foo", data=b"" if dead else b"%d" % sequence, key=key, headers=headers
            )
            made.append(told.SerializeToString())
            known.append((sequence, made[-1]))
        records = b"".join(len(message).to_bytes(4, "little") + message for message in made)
        return b"".join(encode_batch(uid, base, len(made), self.index, 0, records))

    def _compressed(self, uid, base, shape):
        told = [
            wire.MsgProto(key=key, headers=[wire.Header(key=DELETE_HEADER)])
            if kind == "t" and key
            else wire.MsgProto(key=key, data=b"%d " % at * 30)
            for at, (key, kind) in enumerate(shape, base)
        ]
        rows = rows_of_messages(told)
        made = unpack(kernel.seal(b"foo", base, self.index, [rows]))
        self.messages[uid] += enumerate(made, base)
        return compressed(uid, base, len(made), self.index, rows)

    @rule(share=st.floats(0, 1), tombstones=st.floats(0, 1))
    def decide(self, share, tombstones):
        """More may be left out, as far as no tombstone is above a reader at once."""
        last = len(self.messages[COMPACTED])
        until = max(self.mark.until, int(last * share))
        gone = max(self.mark.tombstones_until, int(min([until, *self.positions()]) * tombstones))
        self.mark = Compaction(until, gone, 0, self.keep_first, self.index, self.history - 1)

    def folded(self, table, messages):
        if self.history > 1:
            return folded_history(table, messages, history=self.history)
        return folded(table, messages, keep_first=self.keep_first)

    def positions(self):
        return [position for position, _ in self.readers]

    @rule(share=st.floats(0, 1))
    def pause(self, share):
        """A reader from the beginning has read so far, and goes on later."""
        if len(self.readers) < 3:
            position = int(len(self.messages[COMPACTED]) * share)
            read = [message for message in self.replay(COMPACTED) if message[0] <= position]
            self.readers.append((position, self.folded({}, read)))

    def compact(self, log):
        passed = min([self.mark.tombstones_until, *self.positions()])
        log.compact({COMPACTED: self.mark._replace(tombstones_until=passed)})

    @rule()
    def go_on(self):
        if self.readers:
            self.readers.pop(0)

    @rule(seed=seeds, calls=cuts, late=st.booleans())
    def clean(self, seed, calls, late):
        log = self.log
        log.release(self.index)
        self.compact(log)
        self.run(log.clean, seed, calls)
        if not late and log is self.log:
            self.log.commit(self.index)

    @rule(seed=seeds, calls=st.none() | st.integers(0, 80))
    def clean_all(self, seed, calls):
        """Whole passes, until there is nothing to do; what is left of the sealed segments then is what has to be."""
        log = self.log

        def act():
            for _ in range(60):
                log.release(self.index)
                self.compact(log)
                log.clean()
            assert log._compactor.under_way is None

        self.run(act, seed, calls)

    @rule(seed=seeds)
    def crash(self, seed):
        self.files = self.files.crash(seed)
        self.open()

    @rule()
    def close_and_open(self):
        self.log.close()
        assert self.files.open_files == {}
        self.open()

    def replay(self, uid, after=0):
        """The messages of a channel as a reader gets them."""
        found = []
        for ref in self.log.channel(uid).refs(0, ALL, ALL, ALL):
            for sequence, message in enumerate(unpack(self.log.read(ref)), ref.base_sequence):
                assert wire.MsgProto.FromString(message).sequence == sequence
                if sequence > after:
                    found.append((sequence, message))
        return found

    @invariant()
    def folds_are_equal(self):
        everything = self.messages[COMPACTED]
        whole = self.folded({}, everything)
        for position, table in [(0, {}), *self.readers]:
            assert self.folded(table, self.replay(COMPACTED, position)) == whole
        assert set(self.replay(COMPACTED)) <= set(everything)
        above = [message for message in everything if message[0] > self.mark.until]
        assert self.replay(COMPACTED, self.mark.until) == above
        assert self.replay(PLAIN) == self.messages[PLAIN]

    @invariant()
    def index_is_right(self):
        for uid in (COMPACTED, PLAIN):
            index, messages = self.log.channel(uid), self.replay(uid)
            assert index.last_sequence == len(self.messages[uid])
            assert index.first_sequence == (messages[0][0] if messages else 0)
            assert index.bytes == sum(len(message) + 40 for _, message in messages)


class BoundedKeysMachine(CompactionMachine):
    """A pass has room for two keys, so that several are needed."""

    keys_max = 2


class KeepFirstMachine(CompactionMachine):
    """Of each key the oldest message stays."""

    keep_first = True
    keys_max = 2


class HistoryMachine(CompactionMachine):
    """Of each key the two newest messages stay."""

    history = 2


class LongHistoryMachine(CompactionMachine):
    """The three newest stay, and a pass has room for two keys."""

    history = 3
    keys_max = 2


class CompressedMachine(CompactionMachine):
    """Batches are compressed, and what is left of them is, too."""

    compressed = True


class EncryptedMachine(CompactionMachine):
    """Encrypted, each life with another cipher."""

    lives = 0

    def cipher(self):
        self.lives += 1
        return Cipher(b"a key", ("AES", "CHACHA")[self.lives % 2]).of(STORE, 1)


few = settings(max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(few, max_examples=60)
TestBoundedKeys = BoundedKeysMachine.TestCase
TestBoundedKeys.settings = few
TestKeepFirst = KeepFirstMachine.TestCase
TestKeepFirst.settings = few
TestHistory = HistoryMachine.TestCase
TestHistory.settings = few
TestLongHistory = LongHistoryMachine.TestCase
TestLongHistory.settings = few
TestCompressed = CompressedMachine.TestCase
TestCompressed.settings = few
TestEncrypted = EncryptedMachine.TestCase
TestEncrypted.settings = settings(few, max_examples=15)
