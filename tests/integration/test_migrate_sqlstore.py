"""SQL stores of the original are moved out of real databases: dumps that it has written, and rows with everything that can be
wrong with them."""

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

import pytest
import stan_client
from stan_protocol.kernel.wire_py import number, text

from stan.core.state.cursors import CursorKind
from stan.errors import StartError
from stan.migration.crypto import OVERHEAD
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan
from stan.migration.sqlstore.database import SqlAddress
from stan.migration.sqlstore.store import SqlStore, sql_store
from tests.integration.test_migrate import migrate
from tests.kit.databases import KINDS, PASSWORD
from tests.kit.old_store import EPOCH, KEY, message
from tests.kit.opened_store import Opened
from tests.kit.original import ORIGINAL, needs_original
from tests.kit.ports import accepts, free_port
from tests.kit.server import until
from tests.kit.sql_store import DUMPS, SqlStoreWriter, durable

MILLISECOND = 1_000_000
LATE_FIRST = 1 << 40


@pytest.fixture(scope="module", params=KINDS)
def database(request):
    with KINDS[request.param]() as running:
        yield running


@pytest.fixture
def old(database):
    return SqlStoreWriter(database)


def run(old, target=None, **options):
    done = options.pop("progress", lambda _size: None)
    plan = MigrationPlan(source=sql_store(old.database.url, PASSWORD), target=target, **options)
    return move(plan, lambda _total: None, done)


def listed(report):
    return {channel.name: channel for channel in report.channels}


def sequences(messages):
    return [fields.number(1) for fields in messages]


def flat(runs):
    return [sequence for run in runs for sequence in range(run.first, run.last + 1)]


def problems(report):
    return [(problem.file, problem.key) for problem in report.problems]


# --- what the original has written ------------------------------------------------------------------------------------------


@pytest.fixture
def dumped(old):
    """A store that the original has written, and its key."""
    (dump,) = DUMPS.glob(f"{'postgres' if old.database.url.startswith('postgres') else 'mariadb'}*.sql")
    old.database.script(dump)
    return old, KEY if "aes" in dump.name else b""


def test_store_of_the_original_is_moved_with_sequences_times_and_positions(dumped, tmp_path):
    old, key = dumped
    report = run(old, tmp_path / "new", key=key)

    assert (report.messages, report.problem_count, report.cluster_id) == (197, 0, "test-cluster")
    assert report.clients == ["billing", "loader", "reader", "worker-1", "worker-2"]
    assert report.decrypted == bool(key)
    assert listed(report)["notes"].subscriptions_ended == 1
    new = Opened(tmp_path / "new")
    orders = new.messages[b"orders"]
    assert sequences(orders) == list(range(1, 151))
    assert [fields.text(4) for fields in orders] == [
        b'{"id":%d,"total":%d}' % (n, n * 3) + b"x" * (n % 50) for n in range(1, 151)
    ]
    assert [fields.text(4).decode() for fields in new.messages[b"notes"]] == [f"nota número {n} ✓" for n in range(1, 8)]
    assert [fields.text(4) for fields in new.messages[b"sensors.room-1.temp"]] == [
        bytes([n, 0, 255, 13, 10]) for n in range(1, 41)
    ]
    times = [fields.number(5) for fields in orders]
    assert times == sorted(times)
    assert times[0] // 10**14 == 17960
    assert (new.first[b"old"], new.last[b"old"]) == (6, 5), "it was emptied by its limit"
    ledger, crew, bookmark = (new.cursors[name] for name in (b"ledger", b"crew:pool", b"bookmark"))
    assert (ledger.kind, ledger.client_id, ledger.last_sent) == (CursorKind.DURABLE, b"billing", 150)
    assert flat(ledger.to_redeliver) == [*range(2, 21, 2), *range(141, 151)]
    assert (crew.kind, crew.last_sent) == (CursorKind.DURABLE_QUEUE, 40)
    assert flat(crew.to_redeliver) == list(range(5, 41, 5))
    assert (bookmark.client_id, bookmark.last_sent, flat(bookmark.to_redeliver)) == (b"reader", 5, [5])
    assert set(new.cursors) == {b"ledger", b"crew:pool", b"bookmark"}


def test_looking_reports_the_same_and_makes_nothing(dumped, tmp_path):
    old, key = dumped
    looked, moved = run(old, key=key), run(old, tmp_path / "new", key=key)
    assert looked == moved


def test_encrypted_store_needs_its_key(dumped, tmp_path):
    old, key = dumped
    if not key:
        pytest.skip("this one is plain")
    for wrong, why in ((b"", "look encrypted"), (b"another", "can be decrypted with this key")):
        with pytest.raises(StartError, match=why):
            run(old, tmp_path / "new", key=wrong)
    assert not (tmp_path / "new").exists()


def test_payload_encrypted_with_either_cipher_is_opened(old, tmp_path):
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    of_channel = hashlib.sha256(bytes(36) + hashlib.sha256(KEY).digest() + b".foo").digest()
    sealed = [
        b"\1" + bytes(12) + aead.AESGCM(of_channel).encrypt(bytes(12), b"one", None),
        b"\2" + bytes(12) + aead.ChaCha20Poly1305(of_channel).encrypt(bytes(12), b"two", None),
        b"\2" + bytes(OVERHEAD),
    ]
    old.server()
    old.channel(1, "foo", sealed)
    report = run(old, tmp_path / "new", key=KEY)
    assert problems(report) == [("Messages", "id=1 seq=3")]
    assert [fields.text(4) for fields in Opened(tmp_path / "new").messages[b"foo"]][:2] == [b"one", b"two"]


@needs_original
@pytest.mark.parametrize("flags", [(), ("--sql_no_caching",), ("--sql_bulk_insert_limit", "50")])
async def test_store_of_the_original_itself_is_as_its_pages_say(old, tmp_path, flags):
    old.tables()
    parts = urllib.parse.urlsplit(old.database.url)
    password = urllib.parse.quote(PASSWORD, safe="")
    source = f"postgres://{parts.username}:{password}@127.0.0.1:{parts.port}{parts.path}?sslmode=disable"
    if parts.scheme == "mysql":
        source = f"{parts.username}:{PASSWORD}@tcp(127.0.0.1:{parts.port}){parts.path}"
    port, pages = free_port(), free_port()
    sql = ("-st", "SQL", "--sql_driver", parts.scheme, "--sql_source", source, *flags)
    command = [ORIGINAL, "-p", str(port), "-m", str(pages), "-a", "127.0.0.1", "-cid", "test-cluster", *sql]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await asyncio.to_thread(until, lambda: accepts(port) and accepts(pages), 60)
        client = await stan_client.connect(f"nats://127.0.0.1:{port}", client_id="me", connect_timeout_s=20)
        await client.publish_many("foo", [b"%d" % n for n in range(1, 501)])
        options = {"start": stan_client.everything(), "manual_acks": True, "max_in_flight": 40}
        for names in ({"durable": "d"}, {"durable": "d", "queue": "q"}):
            subscription = await client.subscribe("foo", **options, **names)
            for _ in range(100):
                message = await anext(subscription)
                if message.sequence % 4:
                    message.ack()
            await subscription.close()
        url = f"http://127.0.0.1:{pages}/streaming/channelsz?channel=foo&subs=1"
        page = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(url)))
        await client.close()
    finally:
        server.terminate()
        await server.wait()
    report = await asyncio.to_thread(run, old, tmp_path / "new")
    channel = listed(report)["foo"]
    assert (report.problem_count, channel.first, channel.last) == (0, page["first_seq"], page["last_seq"])
    shown = sorted((one["last_sent"], one["pending_count"]) for one in page["subscriptions"])
    assert sorted((one.last_sent, one.pending) for one in channel.positions) == shown
    assert len(shown) == 2
    new = await asyncio.to_thread(Opened, tmp_path / "new")
    assert [fields.text(4) for fields in new.messages[b"foo"]] == [b"%d" % n for n in range(1, 501)]


# --- messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 120, LATE_FIRST])
@pytest.mark.parametrize("reply", [b"", b"_INBOX.r"])
def test_messages_of_all_sizes_are_kept_to_the_byte(old, tmp_path, first, reply):
    payloads = [bytes([size % 251]) * size for size in (0, 1, 126, 127, 128, 16_200, 16_350, 16_384, 300_000, 0, 5)]
    old.server()
    old.channel(1, "foo", payloads, first=first, reply=reply)
    report = run(old, tmp_path / "new")

    new = Opened(tmp_path / "new")
    assert (report.problem_count, new.first[b"foo"]) == (0, first)
    assert [fields.text(4) for fields in new.messages[b"foo"]] == payloads
    assert sequences(new.messages[b"foo"]) == list(range(first, first + len(payloads)))
    assert all(fields.text(3) == reply for fields in new.messages[b"foo"])
    assert [fields.number(5) - EPOCH for fields in new.messages[b"foo"]] == [
        n * MILLISECOND for n in range(first, first + len(payloads))
    ]


def test_pages_join_without_a_seam_and_holes_are_loss(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"payload %d" % n for n in range(1, 3501)], step=3_700_000)
    old.channel(7, "bar", [b"x"] * 30)
    old.database.execute("DELETE FROM Messages WHERE id = 1 AND (seq BETWEEN 990 AND 1010 OR seq = 2000)")
    report = run(old, tmp_path / "new")

    assert [(problem.file, problem.key, problem.text) for problem in report.problems] == [
        ("Messages", "id=1 seq=1011", "messages 990 to 1010 are missing before it"),
        ("Messages", "id=1 seq=2001", "messages 2000 to 2000 are missing before it"),
    ]
    assert (listed(report)["foo"].lost, listed(report)["bar"].lost) == (22, 0)
    new = Opened(tmp_path / "new")
    assert sequences(new.messages[b"foo"]) == [*range(1, 990), *range(1011, 2000), *range(2001, 3501)]
    for ref in new.batches[b"foo"]:
        assert ref.timestamp == EPOCH + (ref.base_sequence + ref.count - 1) * 3_700_000
        assert (ref.count - 1) * 3_700_000 < 1 << 24


def test_row_counts_where_its_message_bears_another_sequence_or_channel(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"a"])
    old.message(1, 2, message(b"bar", 2, b"b", EPOCH))
    old.message(1, 3, message(b"foo", 9, b"c", EPOCH))
    report = run(old, tmp_path / "new")

    assert report.problem_count == 0
    assert any("2 messages had another sequence or channel" in note for note in report.notes)
    found = Opened(tmp_path / "new").messages[b"foo"]
    assert [(one.number(1), one.text(2), one.text(4)) for one in found] == [
        (1, b"foo", b"a"),
        (2, b"foo", b"b"),
        (3, b"foo", b"c"),
    ]


def test_what_is_stored_meanwhile_is_of_another_moment(old):
    old.server()
    old.channel(1, "a", [b"x"] * 3000)
    old.channel(2, "b", [b"x"] * 10)

    def store_more(_size):
        if not stored:
            stored.append(True)
            old.message(2, 11, message(b"b", 11, b"late", EPOCH))

    stored = []
    assert listed(run(old, stopped=True, progress=store_more))["b"].last == 10
    assert stored


def test_empty_channel_goes_on_where_it_was(old, tmp_path):
    old.server()
    old.channel(1, "by-row", maxseq=40)
    old.channel(2, "by-position")
    old.subscription(2, 1, durable(1, b"me", b"d", last_sent=7), last_sent=9)
    old.channel(3, "new")
    report = run(old, tmp_path / "new")

    new = Opened(tmp_path / "new")
    assert report.problem_count == 0
    assert [(new.first[name], new.last[name]) for name in (b"by-row", b"by-position")] == [(41, 40), (10, 9)]
    assert new.last[b"new"] == 0
    assert new.cursors[b"d"].last_sent == 9


# --- subscriptions --------------------------------------------------------------------------------------------------------


def test_subscriptions_are_read_by_the_rules(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 20)
    old.subscription(1, 1, durable(1, b"me", b"listed"))
    old.pending(1, 1, last_sent=8, sent=[8, 1, 2, 3, 4, 5, 6, 7])
    old.pending(1, 2, last_sent=10, sent=[9, 10], acked=[1, 2, 9])
    old.pending(1, 3, last_sent=10, acked=[7, 77], sent=b"null")
    old.subscription(1, 2, durable(2, b"me", b"single"), last_sent=12)
    old.single_pending(2, (3, 11, 5), first_row=4)
    old.subscription(1, 3, durable(3, b"a", b"dur", group=b"grp"))
    old.subscription(1, 4, durable(4, b"b", b"dur", group=b"grp", last_sent=6))
    old.pending(3, 1, last_sent=5, sent=[4, 5])
    old.pending(4, 1, last_sent=6, sent=[6])
    old.subscription(1, 5, number(1, 5) + text(2, b"me") + text(4, b"_INBOX.p"))
    old.subscription(1, 6, durable(6, b"me", b"gone"), deleted=True)
    report = run(old, tmp_path / "new")

    cursors = Opened(tmp_path / "new").cursors
    assert report.problem_count == 0
    assert listed(report)["foo"].subscriptions_ended == 1
    assert {name: (one.last_sent, flat(one.to_redeliver)) for name, one in cursors.items()} == {
        b"listed": (10, [3, 4, 5, 6, 8, 10]),
        b"single": (12, [3, 5, 11]),
        b"dur:grp": (6, [4, 5, 6]),
    }


def test_thousands_of_rows_of_pending_messages_are_read_page_by_page(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 1000)
    old.subscription(1, 1, durable(1, b"me", b"d"))
    old.single_pending(1, range(1, 1001, 2))
    run(old, tmp_path / "new")
    assert flat(Opened(tmp_path / "new").cursors[b"d"].to_redeliver) == list(range(1, 1001, 2))


def test_channels_and_subscriptions_that_were_deleted_are_left_out(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 3)
    old.channel(2, "gone", [b"x"] * 3, deleted=True)
    report = run(old, tmp_path / "new")
    assert report.problem_count == 0
    assert any("left out: 1 channel" in note for note in report.notes)
    assert set(Opened(tmp_path / "new").messages) == {b"foo"}


# --- damage ---------------------------------------------------------------------------------------------------------------

DAMAGE = {
    "message that is none": (
        "UPDATE Messages SET data = '~~~' WHERE id = 1 AND seq = 5",
        ("Messages", "id=1 seq=5"),
        1,
    ),
    "message that is NULL": ("UPDATE Messages SET data = NULL WHERE id = 1 AND seq = 5", ("Messages", "id=1 seq=5"), 1),
    "last messages": ("DELETE FROM Messages WHERE id = 1 AND seq > 15", ("Channels", "id=1"), 5),
    "subscription that is none": ("UPDATE Subscriptions SET proto = '~~~'", ("Subscriptions", "id=1 subid=1"), 0),
    "subscription that is NULL": ("UPDATE Subscriptions SET proto = NULL", ("Subscriptions", "id=1 subid=1"), 0),
    "pending that is no JSON": ("UPDATE SubsPending SET pending = '[1,2'", ("SubsPending", "subid=1 row=1"), 0),
    "pending that is no list": ("UPDATE SubsPending SET pending = '7'", ("SubsPending", "subid=1 row=1"), 0),
    "pending with other values": ("UPDATE SubsPending SET pending = '[1.5,-2]'", ("SubsPending", "subid=1 row=1"), 0),
    "acks that are nested": (
        "UPDATE SubsPending SET acks = CAST(REPEAT('[', 60000) AS {bytes})",
        ("SubsPending", "subid=1 row=1"),
        0,
    ),
    "acks that are too long": (
        "UPDATE SubsPending SET acks = CAST(REPEAT('1', 70000) AS {bytes})",
        ("SubsPending", "subid=1 row=1"),
        0,
    ),
    "name that is none": ("UPDATE Channels SET name = 'a..b' WHERE id = 1", ("Channels", "id=1"), None),
    "channel without a row": ("DELETE FROM Channels WHERE id = 1", ("Messages", "id=1"), None),
    "identity": ("UPDATE ServerInfo SET proto = '~~~'", ("ServerInfo", "uniquerow=1"), 0),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_reported_with_table_and_key_and_the_rest_is_moved(old, tmp_path, what):
    statement, expected, lost = DAMAGE[what]
    binary = "BYTEA" if old.database.url.startswith("postgres") else "BINARY"
    old.server()
    old.channel(1, "foo", [b"payload %d" % n for n in range(1, 21)])
    old.channel(2, "other", [b"x"] * 3, maxseq=3)
    old.subscription(1, 1, durable(1, b"me", b"d", last_sent=20))
    old.pending(1, 1, last_sent=20, sent=[19, 20])
    old.database.execute(statement.format(bytes=binary))
    report = run(old, tmp_path / "new")

    assert problems(report) == [expected]
    new = Opened(tmp_path / "new")
    assert sequences(new.messages[b"other"]) == [1, 2, 3]
    if lost is None:
        assert set(new.messages) == {b"other"}
    else:
        assert listed(report)["foo"].lost == lost
        assert new.last[b"foo"] == 20, "no lost sequence is given out again"


def test_many_problems_are_counted_and_reading_is_bounded(old):
    old.server()
    old.channel(1, "foo", [b"x"] * 1100)
    old.database.execute("UPDATE Messages SET data = '~~~'")
    report = run(old)
    assert (len(report.problems), report.problem_count) == (1000, 1100)


def test_other_databases_are_refused(old, tmp_path):
    with pytest.raises(StartError, match="cannot be read"):
        run(old, tmp_path / "new")
    old.server(version=2)
    with pytest.raises(StartError, match="version 2"):
        run(old, tmp_path / "new")
    old.database.execute("DELETE FROM ServerInfo")
    with pytest.raises(StartError, match="--cluster-id"):
        run(old, tmp_path / "new")
    assert problems(run(old, tmp_path / "new", cluster_id="test-cluster")) == [("ServerInfo", "uniquerow=1")]
    with pytest.raises(StartError, match="does not let us in") as refused:
        SqlStore(SqlAddress.parse(old.database.url, "wrong"))
    assert PASSWORD not in str(refused.value)


def test_a_node_of_a_cluster_is_refused_as_its_durables_are_not_in_its_store(old, tmp_path):
    old.server(node_id="a")
    old.channel(1, "foo", [b"x"] * 3)
    with pytest.raises(StartError, match=r"node a of a cluster.*--without-durables"):
        run(old, tmp_path / "new")
    assert run(old, tmp_path / "new", without_durables=True).messages == 3


# --- a server that still runs ---------------------------------------------------------------------------------------------


def test_store_whose_lock_is_renewed_is_not_moved(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 3)
    old.lock("holder", 1)
    ended, ticked = threading.Event(), threading.Event()

    def renew():
        while not ended.wait(0.05):
            old.database.execute("UPDATE StoreLock SET tick = tick + 1")
            ticked.set()

    holder = threading.Thread(target=renew)
    holder.start()
    try:
        assert ticked.wait(20)
        with pytest.raises(StartError, match=r"seems to run: (it renews the lock|a session of user)"):
            run(old, tmp_path / "new", watch_s=1)
        assert any("StoreLock" in note or "a session" in note for note in run(old, watch_s=1).notes)
        assert run(old, tmp_path / "new", stopped=True).messages == 3
    finally:
        ended.set()
        holder.join()


def test_lock_of_a_server_that_was_killed_does_not_matter(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 3)
    old.lock("holder", 77)
    assert run(old, tmp_path / "new").messages == 3


def test_store_with_another_session_is_not_moved(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 3)
    with old.database.connected():
        with pytest.raises(StartError, match=r"a session of user stan from .*--stopped"):
            run(old, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    assert run(old, tmp_path / "new").messages == 3


def test_right_to_select_is_enough_and_shows_sessions_of_other_users(old, tmp_path):
    old.server()
    old.channel(1, "foo", [b"x"] * 3)
    if old.database.url.startswith("mysql"):
        pytest.skip("there it takes the privilege PROCESS")
    old.database.execute(
        f"DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"
    )
    url = old.database.url.replace("stan@", "reader@")
    plan = MigrationPlan(source=sql_store(url, PASSWORD), target=tmp_path / "new")
    try:
        with old.database.connected(), pytest.raises(StartError, match="a session of user stan"):
            move(plan, lambda _total: None, lambda _size: None)
        assert move(plan, lambda _total: None, lambda _size: None).messages == 3
    finally:
        old.database.execute("DROP OWNED BY reader; DROP ROLE reader")


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


def test_command_moves_and_names_no_password(old, tmp_path, password_file):
    old.server()
    old.client("me")
    old.channel(1, "foo", [b"x"] * 3)
    old.subscription(1, 1, durable(1, b"me", b"d", last_sent=3))
    old.message(1, 4, b"~")
    command = ["--store", "stan-sqlstore", old.database.url, "--password-file", password_file]
    looked = migrate(*command, "--dry-run", "--json")
    assert looked.returncode == 5, looked.stderr
    facts = json.loads(looked.stdout)
    assert [(one["name"], one["last"]) for one in facts["channels"]] == [("foo", 3)]
    assert facts["problems"][0].keys() == {"table", "key", "text"}
    old.database.execute("DELETE FROM Messages WHERE seq = 4")
    moved = migrate(*command, "--to", tmp_path / "new")
    assert moved.returncode == 0, moved.stderr
    assert "me/d: sent 3" in moved.stdout
    assert PASSWORD not in looked.stdout + looked.stderr + moved.stdout + moved.stderr
    assert sequences(Opened(tmp_path / "new").messages[b"foo"]) == [1, 2, 3]


def test_command_without_the_password_is_refused(old, tmp_path):
    refused = migrate("--store", "stan-sqlstore", old.database.url, "--to", tmp_path / "new")
    assert refused.returncode == 1
    assert "does not let us in" in refused.stderr


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgres://me:secret@h/db", "--password-file"),
        ("postgres://me@h/db?password=secret", "--password-file"),
        ("mysql://me:secret@h/db", "--password-file"),
        ("sqlite://h/db", "postgres://USER@HOST"),
        ("mysql://me@h", "postgres://USER@HOST"),
        ("mysql://me@h/db?local_infile=1", "local_infile"),
        ("mysql://me@h:port/db", "is wrong"),
    ],
)
def test_wrong_urls_are_refused_and_not_repeated(url, why):
    with pytest.raises(StartError, match=why) as refused:
        SqlAddress.parse(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "module", "package"), [("postgres://h/db", "psycopg", "psycopg"), ("mysql://h/db", "pymysql", "PyMySQL")]
)
def test_missing_driver_is_named_with_the_extra(monkeypatch, url, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StartError, match=rf"{package}.*stan-broker\[sqlstore\]"):
        SqlAddress.parse(url).snapshot()


def test_password_is_not_in_the_address_as_text():
    assert PASSWORD not in repr(SqlAddress.parse("mysql://me@h/db", PASSWORD))
