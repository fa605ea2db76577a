"""Moving in: the directories that a real server has left, and made ones with everything that can be wrong with them."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest
from stan_protocol.kernel.wire_py import number, text

from stan.core.state.cursors import CursorKind
from stan.errors import StartError
from stan.migration import target as target_module
from stan.migration.crypto import opener
from stan.migration.file_stores import file_stores
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan
from tests.kit import old_store
from tests.kit.old_store import ENCRYPTED, EPOCH, KEY, PLAIN, acked, durable, message, record, sent
from tests.kit.opened_store import Opened

MILLISECOND = 1_000_000


def run(source, target=None, **options):
    return move(
        MigrationPlan(source=file_stores([source]), target=target, **options), lambda _total: None, lambda _size: None
    )


def listed(report):
    return {channel.name: channel for channel in report.channels}


def sequences(messages):
    return [fields.number(1) for fields in messages]


def flat(runs):
    return [sequence for run in runs for sequence in range(run.first, run.last + 1)]


def check_fixture(new):
    orders = new.messages[b"orders"]
    assert sequences(orders) == list(range(1, 2601))
    assert [json.loads(fields.text(4)) for fields in orders] == [{"id": n, "total": n * 1.25} for n in range(1, 2601)]
    assert all(fields.text(2) == b"orders" for fields in orders)
    sensors = new.messages[b"sensors.room-1.temp"]
    assert [fields.text(4) for fields in sensors] == [bytes([n, 0, 255, 2 * n % 256, 13, 10]) for n in range(1, 41)]
    assert [fields.text(4).decode() for fields in new.messages[b"notes"]] == [f"nota número {n} ✓" for n in range(1, 8)]

    ledger, crew, bookmark = (new.cursors[name] for name in (b"ledger", b"crew:pool", b"bookmark"))
    assert (ledger.kind, ledger.client_id, ledger.last_sent) == (CursorKind.DURABLE, b"billing", 30)
    assert flat(ledger.to_redeliver) == [*range(2, 21, 2), *range(21, 31)]
    assert (ledger.settings.max_in_flight, ledger.settings.ack_wait_s) == (20, 30)
    assert (crew.kind, crew.last_sent) == (CursorKind.DURABLE_QUEUE, 40)
    assert ledger.past.start_sequence == crew.past.start_sequence == 0, (
        "the old server has sent what is before: moved back, they get it flagged"
    )
    assert (bookmark.client_id, bookmark.last_sent, flat(bookmark.to_redeliver)) == (b"reader", 5, [5])
    assert not any(cursor.members for cursor in new.cursors.values())


# --- what a real server has left --------------------------------------------------------------------------------------


@pytest.mark.parametrize("raft_groups", [1, 3])
def test_plain_store_is_moved_with_sequences_times_and_positions(tmp_path, raft_groups):
    report = run(PLAIN, tmp_path / "new", raft_groups=raft_groups)

    assert (report.messages, report.problem_count, report.cluster_id) == (2647, 0, "test-cluster")
    assert report.clients == ["loader", "billing", "worker-1", "worker-2", "reader"]
    new = Opened(tmp_path / "new", raft_groups)
    check_fixture(new)
    assert not new.unconfirmed
    assert new.messages[b"notes"][0].number(5) == 1795191688417695169


def test_encrypted_store_is_opened_with_its_key(tmp_path):
    report = run(ENCRYPTED, tmp_path / "new", key=KEY)

    assert report.problem_count == 0
    assert report.decrypted
    check_fixture(Opened(tmp_path / "new"))


@pytest.mark.parametrize(("key", "why"), [(b"", "look encrypted"), (b"another", "can be decrypted with this key")])
def test_encrypted_store_without_its_key_is_refused_before_anything_is_made(tmp_path, key, why):
    with pytest.raises(StartError, match=why):
        run(ENCRYPTED, tmp_path / "new", key=key)
    assert not (tmp_path / "new").exists()


def test_both_ciphers_and_plain_text_are_read_side_by_side():
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    of_channel = hashlib.sha256(bytes(36) + hashlib.sha256(KEY).digest() + b".foo").digest()
    nonce = bytes(range(12))
    sealed = b"\2" + nonce + aead.ChaCha20Poly1305(of_channel).encrypt(nonce, b"hello", None)

    open_payload = opener(KEY, b"foo")
    assert open_payload(sealed) == b"hello"
    assert open_payload(b"plain") == b"plain"
    for wrong in (b"\1short", sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(ValueError, match="decrypt"):
            open_payload(wrong)


def test_payload_that_cannot_be_decrypted_is_told_and_the_rest_is_moved(tmp_path):
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    cipher = aead.AESGCM(hashlib.sha256(bytes(36) + hashlib.sha256(KEY).digest() + b".foo").digest())
    payloads = [b"\1" + bytes(12) + cipher.encrypt(bytes(12), b"payload %d" % n, None) for n in range(1, 31)]
    payloads[9] = payloads[9][:-1] + bytes([payloads[9][-1] ^ 1])
    payloads[19] = b""
    channel = make(tmp_path / "old", payloads)
    report = run(tmp_path / "old", tmp_path / "new", key=KEY)

    (problem,) = report.problems
    offset = (channel / "msgs.1.dat").read_bytes().index(message(b"foo", 10, payloads[9], EPOCH + 10 * MILLISECOND)) - 8
    assert (problem.file, problem.offset) == (str(channel / "msgs.1.dat"), offset)
    found = Opened(tmp_path / "new").messages[b"foo"]
    kept = [n for n in range(1, 31) if n != 10]
    assert sequences(found) == kept
    assert [fields.text(4) for fields in found] == [b"payload %d" % n if n != 20 else b"" for n in kept]


def test_looking_makes_nothing_and_tells_the_same(tmp_path):
    before = {path: path.read_bytes() for path in PLAIN.rglob("*") if path.is_file()}
    assert run(PLAIN) == run(PLAIN, tmp_path / "new")
    assert {path: path.read_bytes() for path in PLAIN.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_logs_alone_give_the_same_state(tmp_path):
    run(PLAIN, tmp_path / "new")
    for path in (tmp_path / "new").glob("state.db*"):
        path.unlink()
    for path in (tmp_path / "new" / "groups").rglob("*.snap"):
        path.unlink()
    check_fixture(Opened(tmp_path / "new"))


# --- messages -------------------------------------------------------------------------------------------------------------


def make(directory, payloads, *, channel=b"foo", first=1, step=MILLISECOND, per_slice=1000, reply=b""):
    """A store of one channel; the payloads are consecutive messages."""
    old_store.write_server(directory)
    for number_of_slice, at in enumerate(range(0, len(payloads), per_slice), 1):
        part = payloads[at : at + per_slice]
        times = [EPOCH + (first + at + n) * step for n in range(len(part))]
        messages = [message(channel, first + at + n, data, times[n], reply) for n, data in enumerate(part)]
        old_store.write_slice(directory / channel.decode(), number_of_slice, messages, first + at, times)
    return directory / channel.decode()


@pytest.mark.parametrize(
    "sizes", [range(300), (127, 128, 129, 16383, 16384, 16385), (300_000, 0, 300_000), (5_000_000,)]
)
@pytest.mark.parametrize("first", [1, 120, 16380])
@pytest.mark.parametrize("reply", [b"", b"_INBOX.r"])
def test_messages_of_all_sizes_are_kept_to_the_byte(tmp_path, sizes, first, reply):
    payloads = [bytes([size % 251]) * size for size in sizes]
    make(tmp_path / "old", payloads, first=first, reply=reply, per_slice=100)
    report = run(tmp_path / "old", tmp_path / "new", plain=True)

    new = Opened(tmp_path / "new")
    assert report.problem_count == 0
    assert [fields.text(4) for fields in new.messages[b"foo"]] == payloads
    assert sequences(new.messages[b"foo"]) == list(range(first, first + len(payloads)))
    assert all(fields.text(3) == reply for fields in new.messages[b"foo"])
    assert [fields.number(5) - EPOCH for fields in new.messages[b"foo"]] == [
        n * MILLISECOND for n in range(first, first + len(payloads))
    ]
    assert new.first[b"foo"] == first


def test_search_by_time_misses_no_message_and_begins_less_than_17_ms_early(tmp_path):
    make(tmp_path / "old", [b"x"] * 500, step=3_700_000)
    run(tmp_path / "old", tmp_path / "new")

    batches = Opened(tmp_path / "new").batches[b"foo"]
    assert 50 < len(batches) < 250
    for ref in batches:
        assert ref.timestamp == EPOCH + (ref.base_sequence + ref.count - 1) * 3_700_000
        assert (ref.count - 1) * 3_700_000 < 1 << 24


def test_message_that_tells_another_channel_or_no_time_is_put_in_order(tmp_path):
    old_store.write_server(tmp_path / "old")
    odd = [message(b"bar", 1, b"a", EPOCH), message(b"foo", 2, b"b", 0), message(b"foo", 3, b"", 0)]
    old_store.write_slice(tmp_path / "old" / "foo", 1, odd, 1, [EPOCH, 0, 0])
    assert run(tmp_path / "old", tmp_path / "new").problem_count == 0

    found = Opened(tmp_path / "new").messages[b"foo"]
    assert [(fields.text(2), fields.text(4)) for fields in found] == [(b"foo", b"a"), (b"foo", b"b"), (b"foo", b"")]


def test_empty_channel_keeps_where_it_was(tmp_path):
    old_store.write_server(tmp_path / "old")
    old_store.write_subscriptions(tmp_path / "old" / "foo", durable(1, b"me", b"d", 40))
    report = run(tmp_path / "old", tmp_path / "new")

    new = Opened(tmp_path / "new")
    assert report.problem_count == 1
    assert (new.first[b"foo"], new.last[b"foo"], new.cursors[b"d"].last_sent) == (41, 40, 40)


# --- subscriptions -----------------------------------------------------------------------------------------------------


def test_subscriptions_are_replayed_by_the_rules(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 20)
    group = number(1, 2) + text(2, b"a") + text(3, b"dur:grp") + text(4, b"_INBOX.g") + number(6, 5) + number(7, 9)
    old_store.write_subscriptions(
        channel,
        durable(1, b"me", b"d"),
        *[sent(1, n) for n in range(1, 11)],
        *[acked(1, n) for n in (1, 2, 3, 7)],
        acked(99, 4),  # of nobody
        record(group + number(10, 1), 1),
        record(group.replace(b"\x08\x02\x12\x01a", b"\x08\x03\x12\x01b") + number(10, 1), 1),
        sent(2, 1),
        sent(3, 2),
        acked(2, 1),
        record(number(1, 4) + text(2, b"me") + text(4, b"_INBOX.p"), 1),  # a plain one
        durable(5, b"me", b"gone"),
        record(number(1, 5), 3),
    )
    report = run(tmp_path / "old", tmp_path / "new")

    cursors = Opened(tmp_path / "new").cursors
    assert report.problem_count == 0
    assert listed(report)["foo"].subscriptions_ended == 1
    assert set(cursors) == {b"d", b"dur:grp"}
    assert (cursors[b"d"].last_sent, flat(cursors[b"d"].to_redeliver)) == (10, [4, 5, 6, 8, 9, 10])
    assert (cursors[b"dur:grp"].last_sent, flat(cursors[b"dur:grp"].to_redeliver)) == (2, [2])


def test_damage_among_subscriptions_is_told_and_the_rest_counts(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 20)
    old_store.write_subscriptions(channel, durable(1, b"me", b"d"), sent(1, 1), sent(1, 2), sent(1, 3))
    path = channel / "subs.dat"
    data = bytearray(path.read_bytes())
    at = data.index(sent(1, 2))
    data[at + 9] ^= 0x40
    path.write_bytes(data)
    report = run(tmp_path / "old", tmp_path / "new")

    assert [(problem.file, problem.offset) for problem in report.problems] == [(str(path), at)]
    assert flat(Opened(tmp_path / "new").cursors[b"d"].to_redeliver) == [1, 3]


# --- damage ------------------------------------------------------------------------------------------------------------


def test_damaged_record_is_told_by_file_and_offset_and_the_rest_is_moved(tmp_path):
    channel = make(tmp_path / "old", [b"payload %d" % n for n in range(1, 101)], per_slice=50)
    path = channel / "msgs.1.dat"
    data = bytearray(path.read_bytes())
    at = data.index(b"payload 30") - 16
    data[data.index(b"payload 30")] ^= 1
    path.write_bytes(data)
    report = run(tmp_path / "old", tmp_path / "new")

    (problem,) = report.problems
    assert problem.file == str(path)
    assert abs(problem.offset - at) < 4
    assert "expected crc to be" in problem.text
    assert (listed(report)["foo"].messages, listed(report)["foo"].lost) == (99, 1)
    new = Opened(tmp_path / "new")
    assert sequences(new.messages[b"foo"]) == [n for n in range(1, 101) if n != 30]
    assert new.last[b"foo"] == 100


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x01\0\0\0"])
def test_damaged_size_does_not_hide_what_follows(tmp_path, size):
    channel = make(tmp_path / "old", [b"payload %d" % n for n in range(1, 101)])
    path = channel / "msgs.1.dat"
    data = bytearray(path.read_bytes())
    at = data.rindex(b"\x08\x1e\x12\x03foo", 0, data.index(b"payload 30")) - 8
    data[at : at + 4] = size
    path.write_bytes(data)
    report = run(tmp_path / "old", tmp_path / "new")

    assert [problem.offset for problem in report.problems] == [at]
    assert sequences(Opened(tmp_path / "new").messages[b"foo"]) == [n for n in range(1, 101) if n != 30]


def test_cut_end_is_told_and_its_sequences_are_not_given_out_again(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 100)
    old_store.write_subscriptions(channel, durable(1, b"me", b"d", 98))
    path = channel / "msgs.1.dat"
    path.write_bytes(path.read_bytes()[:-60])
    report = run(tmp_path / "old", tmp_path / "new")

    new = Opened(tmp_path / "new")
    kept = sequences(new.messages[b"foo"])
    assert "cut off" in report.problems[0].text
    assert kept[:-1] == list(range(1, len(kept)))
    assert kept[-1] == new.last[b"foo"] == 100
    assert new.messages[b"foo"][-1].text(4) == b""
    assert listed(report)["foo"].lost == 100 - len(kept) + 1


def test_room_that_was_never_used_is_no_damage(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 10)
    for path in channel.iterdir():
        path.write_bytes(path.read_bytes() + bytes(6400))
    assert run(tmp_path / "old").problem_count == 0


def test_missing_slice_is_a_hole(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 30, per_slice=10)
    (channel / "msgs.2.dat").unlink()
    report = run(tmp_path / "old", tmp_path / "new")

    assert [problem.text for problem in report.problems] == ["messages 11 to 20 are missing here"]
    assert sequences(Opened(tmp_path / "new").messages[b"foo"]) == [*range(1, 11), *range(21, 31)]


def test_missing_last_slice_is_told_by_its_index(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 30, per_slice=10)
    (channel / "msgs.3.dat").unlink()
    report = run(tmp_path / "old", tmp_path / "new")

    assert [problem.text for problem in report.problems] == ["messages 21 to 30 are missing at the end"]
    assert Opened(tmp_path / "new").last[b"foo"] == 30


def test_slice_that_is_empty_although_its_index_is_not_is_told(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 30, per_slice=10)
    (channel / "msgs.1.dat").write_bytes(b"")
    report = run(tmp_path / "old", tmp_path / "new")

    assert [(problem.file, problem.offset) for problem in report.problems] == [(str(channel / "msgs.1.dat"), 0)]
    assert "messages up to 10" in report.problems[0].text
    assert Opened(tmp_path / "new").first[b"foo"] == 11


def test_state_behind_a_hole_survives_the_loss_of_its_database(tmp_path):
    channel = make(tmp_path / "old", [b"x"] * 30, per_slice=10)
    old_store.write_subscriptions(channel, durable(1, b"me", b"d", 7))
    (channel / "msgs.2.dat").unlink()
    run(tmp_path / "old", tmp_path / "new")
    for path in (tmp_path / "new").glob("state.db*"):
        path.unlink()

    new = Opened(tmp_path / "new")
    assert new.cursors[b"d"].last_sent == 7
    assert sequences(new.messages[b"foo"]) == [*range(1, 11), *range(21, 31)]


def test_store_that_lost_its_identity_needs_the_cluster_id(tmp_path):
    shutil.copytree(PLAIN, tmp_path / "old")
    (tmp_path / "old" / "server.dat").write_bytes(b"\1\0\0\0garbage")
    with pytest.raises(StartError, match="--cluster-id"):
        run(tmp_path / "old", tmp_path / "new")

    report = run(tmp_path / "old", tmp_path / "new", cluster_id="test-cluster")
    assert [problem.file for problem in report.problems] == [str(tmp_path / "old" / "server.dat")]
    check_fixture(Opened(tmp_path / "new"))


# --- whole or not at all ---------------------------------------------------------------------------------------------


def test_interrupted_migration_is_no_store_and_begins_again(tmp_path, monkeypatch):
    class Cut(BaseException):
        pass

    def power_cut(*_args):
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(target_module, "write_manifest", power_cut)
        with pytest.raises(Cut):
            run(PLAIN, tmp_path / "new")
    with pytest.raises(StartError, match="was not finished; run stan migrate once more"):
        Opened(tmp_path / "new")

    run(PLAIN, tmp_path / "new")
    check_fixture(Opened(tmp_path / "new"))


@pytest.mark.parametrize("content", ["mine.txt", "stan.json"])
def test_directory_with_something_in_it_is_left_alone(tmp_path, content):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / content).write_text("kept")
    with pytest.raises(StartError, match="is not empty"):
        run(PLAIN, tmp_path / "new")
    assert (tmp_path / "new" / content).read_text() == "kept"


def test_finished_directory_is_not_overwritten(tmp_path):
    run(PLAIN, tmp_path / "new")
    with pytest.raises(StartError, match="is not empty"):
        run(PLAIN, tmp_path / "new")
    check_fixture(Opened(tmp_path / "new"))


def test_directory_that_a_server_has_locked_is_refused(tmp_path):
    shutil.copytree(PLAIN, tmp_path / "old")
    (tmp_path / "old" / "lost+found").mkdir()
    lock = tmp_path / "old" / ".rootdir.lck"
    lock.touch()
    assert len(run(tmp_path / "old").channels) == 3
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StartError, match="in use by another server"):
            run(tmp_path / "old")
        holder.communicate("\n")


@pytest.mark.parametrize("name", ["foo/msgs.1.idx", "clients.dat"])
def test_damage_to_what_is_written_again_or_not_moved_is_a_hint(tmp_path, name):
    old_store.write_many(tmp_path / "old", b"foo", 20, b"x", 20, MILLISECOND)
    path = tmp_path / "old" / name
    path.write_bytes(path.read_bytes() + b"\x17" * 32)
    report = run(tmp_path / "old", tmp_path / "new")
    assert (report.problem_count, report.messages, report.channels[0].problems) == (0, 20, 0)
    assert {hint.file for hint in report.hints} == {str(path)}


def test_other_directories_are_refused(tmp_path):
    run(PLAIN, tmp_path / "new")
    for wrong in (tmp_path, tmp_path / "new", tmp_path / "nowhere"):
        with pytest.raises(StartError):
            run(wrong)
    shutil.copytree(PLAIN, tmp_path / "old")
    with pytest.raises(StartError, match="must not lie in the old one"):
        run(tmp_path / "old", tmp_path / "old" / "new")


def test_a_node_of_a_cluster_without_its_raft_log_is_moved_without_durables_only(tmp_path):
    old_store.write_many(tmp_path / "old", b"orders", 20, b"x", 20, MILLISECOND)
    old_store.write_server(tmp_path / "old", node_id=b"a")
    with pytest.raises(StartError, match=r"Raft log of node a is not found .*--without-durables.* stan durable create"):
        run(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()

    report = run(tmp_path / "old", tmp_path / "new", without_durables=True)
    assert report.messages == 20
    assert any("skips everything that it had not acknowledged" in note for note in report.notes)
