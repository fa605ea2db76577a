"""A group moves from one node to another: what arrives equals what was sent, whatever happens on the way."""

import dataclasses
import errno
import random

import pytest
from stan_protocol.scalars import SECOND, GroupId

from stan import limits
from stan.edge.storage.manifest import read_manifest, write_manifest
from stan.edge.storage.transfer_codec import Header, Offer, OfferedSegment, Verb, decode, encode
from stan.errors import Damage, NotNow, StartError, WrongKey
from stan.log.encryption import Cipher
from stan.log.files.disk import OsFiles
from stan.log.files.segment import SEGMENT_HEADER_SIZE, decode_segment_header
from stan.testing.loop import run_now
from tests.kit.batches import batch, entry
from tests.kit.files import CrashingFiles
from tests.kit.storage import StorageNode, TransferError, carry
from tests.sim.database import SimDatabase

ONE = GroupId(1)


@pytest.fixture
def a():
    """The one who sends: many segments, a hole at the beginning, a cleaned segment in the middle."""
    node = StorageNode("a").boot()
    node.subscribe("d")
    for _ in range(3):
        node.publish(12)
        for _ in range(4):  # another channel, whose messages stay
            node.write([entry(node.log.last_index + 1, batch(9, node.log.channel(9).last_sequence + 1, 1, size=10))])
    node.trim(40)
    node.publish(8)
    settle(node)
    yield node
    node.medium.close()


@pytest.fixture
def b():
    node = StorageNode("b").boot()
    yield node
    node.medium.close()


def settle(node):
    """Flush, release and clean until there is nothing to do."""
    for _ in range(8):
        node.flush()
        node.release()
        node.log.commit(node.log.last_index)


def assert_equal(a, b, index=None):
    """*b* has what *a* has, up to an index."""
    index = index or a.log.last_index
    assert (b.log.first_index, b.log.last_index) == (a.log.first_index, index)
    assert b.entries() == [one for one in a.entries() if one.index <= index]
    assert b.log.term_at(index) == a.log.term_at(index)
    if index == a.log.last_index:
        assert b.state() == a.state()
        assert b.messages() == a.messages()
    assert b.storage.is_intact(1)


def test_log_that_is_sent_has_holes(a):
    """Or else the other tests test little."""
    generations = [extent.generation for extent in a.log._segments.extents(a.log.last_index)]
    assert max(generations) > 0
    assert a.entries()[0].index > 1 or len(a.entries()) < a.log.last_index
    assert len(generations) > 5


def test_empty_member_gets_everything(a, b):
    b.receive(a.sender())
    assert_equal(a, b)
    assert b.storage.applied[1] == a.storage.applied[1]
    assert b.storage.members[ONE].hard_state.term == 0
    assert not [path for path in a.files.paths() if "outgoing" in path]
    assert not [path for path in b.files.paths() if "incoming" in path or "lost+found" in path]
    b.flush()
    b.close()
    assert_equal(a, b.boot())
    assert not b.storage.rows._stale


def test_what_was_received_is_there_after_a_power_loss_before_the_first_flush(a, b):
    b.receive(a.sender())
    assert_equal(a, b.power_cut(1).boot())
    b.flush()
    assert run_now(b.medium.open().snapshot(1)) == a.state()


@pytest.mark.parametrize("index", range(1, 54))
def test_offer_ends_with_the_entry_that_is_applied(a, b, index):
    """Whatever segment it lies in."""
    if index < a.log.first_index - 1:
        return
    term = a.log.term_at(index)
    a.storage.applied[1] = (index, term)
    b.receive(a.sender())
    assert_equal(a, b, index)
    b.log.append([entry(index + 1, term=max(term, 1))])
    assert b.log.sync() == index + 1


def test_messages_that_come_while_it_travels_are_not_part_of_it(a, b):
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    before, last = a.messages(), a.log.last_index

    def busy(answers):
        if a.log.last_index < last + 40:
            a.publish(4)
            a.trim(a.log.channel(7).last_sequence - 1)
            settle(a)
        return answers

    carry(receiver, sender, wire=busy)
    receiver.finish()
    b.install()
    assert b.log.last_index == last
    assert b.messages() == before
    assert a.messages() != before


def test_answers_lost_repeated_and_out_of_order_do_no_harm(a, b):
    choice = random.Random(3)
    late = []

    def wire(answers):
        late.extend(answers)
        choice.shuffle(late)
        come = [answer for answer in late if choice.random() < 0.5]
        return come + choice.choices(late, k=min(2, len(late)))

    receiver = b.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 64
    carry(receiver, a.sender(), wire=wire)
    receiver.finish()
    b.install()
    assert_equal(a, b)


def test_answers_that_are_spoilt_on_the_way_are_asked_for_again(a, b):
    choice = random.Random(5)

    def wire(answers):
        for answer in answers:
            kind = choice.randrange(4)
            spoilt = bytearray(answer)
            spoilt[choice.randrange(len(spoilt))] ^= 1 << choice.randrange(8)
            yield (bytes(spoilt), answer[: choice.randrange(len(answer))], b"", answer)[kind]

    carry(b.storage.receiver(ONE), a.sender(), wire=wire)
    b.storage.receiver(ONE).finish()
    b.install()
    assert_equal(a, b)


def rewritten(answers, change):
    """Answers whose content somebody changed and signed again."""
    for answer in answers:
        header, content = decode(answer)
        yield encode(*change(header, content))


def spoil(part, change):
    """A wire that changes the content of one part's answers."""

    def wire(answers):
        return rewritten(
            answers,
            lambda header, content: (
                header,
                change(bytes(content)) if (header.verb, header.part) == (Verb.READ, part) else content,
            ),
        )

    return wire


def flip(at):
    def change(content):
        changed = bytearray(content)
        changed[at] ^= 1
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (0, flip(0)),
        (0, flip(4)),
        (0, flip(28)),
        (0, flip(-1)),
        (1, flip(1)),
        (1, lambda content: content[:-1]),
        (2, flip(3)),
        (2, flip(60)),
        (3, flip(-1)),
        (3, lambda content: content[:-1]),
        (3, lambda content: content + b"x"),
        (4, lambda content: bytes(len(content))),
        (5, lambda content: b""),
    ],
)
def test_content_that_is_not_what_the_log_holds_never_becomes_one(a, b, part, change):
    b.publish(1)
    receiver = b.storage.receiver(ONE)
    with pytest.raises((TransferError, Damage)):  # noqa: PT012 - either notices
        carry(receiver, a.sender(), wire=spoil(part, change))
        receiver.finish()
    with pytest.raises(NotNow):
        b.storage.install(ONE)
    assert len(b.entries()) == 1

    b.receive(a.sender(), session=2)  # and the next try is not spoilt by it
    assert_equal(a, b)


def test_parts_of_two_transfers_are_not_mixed(a, b):
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 100
    heard = []
    with pytest.raises(TransferError, match="gone"):
        carry(receiver, sender, wire=lambda answers: heard.extend(answers) or give_up_after(answers, heard, 20))
    a.publish(5)
    old = heard[:]
    carry(receiver, sender, session=2, wire=lambda answers: old + answers)
    receiver.finish()
    b.install()
    assert_equal(a, b)


def give_up_after(answers, heard, count):
    if len(heard) < count:
        return answers
    header = decode(answers[0])[0]
    return [encode(header._replace(status=1), b"gone")]


def test_next_try_goes_on_with_what_is_complete(a, b):
    a.publish(100)
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 500
    heard = []
    with pytest.raises(TransferError):
        carry(receiver, sender, wire=lambda answers: heard.extend(answers) or give_up_after(answers, heard, 40))
    again = carry(receiver, sender, session=2)
    receiver.finish()
    b.install()
    assert_equal(a, b)
    assert again < a.log.size * 0.8


def test_what_was_cleaned_is_sent_again_as_two_nodes_clean_at_different_times(a, b):
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    carry(receiver, sender)
    cleaned = {2 + at for at, part in enumerate(receiver.offer.segments) if part.generation}
    asked = set()

    def wire(answers):
        asked.update(header.part for header, _ in map(decode, answers) if header.verb == Verb.READ)
        return answers

    carry(receiver, sender, session=2, wire=wire)
    assert cleaned
    assert asked == {0, 1, *cleaned}


def test_log_that_is_being_cleaned_is_sent_after_that(a, b):
    a.log._cleaner.segment = a.log._segments.all[0]
    with pytest.raises(TransferError, match="is being cleaned"):
        b.receive(a.sender())
    a.log._cleaner.segment = None
    b.receive(a.sender(), session=2)
    assert_equal(a, b)


def test_sender_keeps_files_for_a_lease_only(a, b):
    clock = [0]
    sender = a.sender(lambda: clock[0])
    receiver = b.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 100
    for request in receiver.begin(1):
        receiver.accept(sender.handle(request))
    assert [path for path in a.files.paths() if "outgoing" in path]
    clock[0] += limits.TRANSFER_LEASE - 1
    (request,) = receiver.repeat()[:1]
    assert receiver.accept(sender.handle(request)).failed == ""
    clock[0] += limits.TRANSFER_LEASE
    sender.expire()
    assert not [path for path in a.files.paths() if "outgoing" in path]
    request = receiver.repeat()[0]
    assert receiver.accept(sender.handle(request)).failed == "no such transfer"
    assert not receiver.repeat()


def test_start_forgets_what_was_on_its_way(a, b):
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    receiver._requests.chunk_bytes = 100
    for request in receiver.begin(1):
        step = receiver.accept(sender.handle(request))
    for request in step.requests:
        receiver.accept(sender.handle(request))
    a.power_cut(1).boot()
    b.power_cut(1).boot()
    assert not [path for path in [*a.files.paths(), *b.files.paths()] if "outgoing" in path or "incoming" in path]


def test_number_of_transfers_is_bounded(a):
    sender = a.sender()
    for session in range(limits.TRANSFER_SESSIONS_MAX):
        header, _ = decode(sender.handle(encode(Header(Verb.OPEN, 0, 1, session, 0, 0, 0))))
        assert not header.status
    _, text = decode(sender.handle(encode(Header(Verb.OPEN, 0, 1, 999, 0, 0, 0))))
    assert text == b"too many transfers at once"
    sender.close()
    assert not [path for path in a.files.paths() if "outgoing" in path]


@pytest.mark.parametrize(
    "header",
    [
        Header(Verb.READ, 0, 1, 1, 0, 1, 0),
        Header(Verb.READ, 0, 2, 7, 0, 1, 0),
        Header(Verb.READ, 0, 1, 7, 99, 1, 0),
        Header(Verb.READ, 0, 1, 7, 1, limits.TRANSFER_CHUNK_BYTES + 1, 0),
        Header(Verb.OPEN, 0, 9, 1, 0, 0, 0),
        Header(77, 0, 1, 1, 0, 0, 0),
    ],
)
def test_senseless_requests_are_refused(a, header):
    sender = a.sender()
    sender.handle(encode(Header(Verb.OPEN, 0, 1, 7, 0, 0, 0)))
    assert decode(sender.handle(encode(header)))[0].status == 1
    assert sender.handle(b"what?") == b""


@pytest.mark.parametrize(
    "change",
    [
        {"segments": ()},
        {"segments": (OfferedSegment(4, 100, 0), OfferedSegment(4, 100, 0))},
        {"segments": (OfferedSegment(5, 100, 0), OfferedSegment(4, 100, 0))},
        {"segments": (OfferedSegment(12, 100, 0),)},
        {"segments": (OfferedSegment(1, 100, 0), OfferedSegment(12, 100, 0))},
        {"segments": (OfferedSegment(1, 10, 0),)},
        {"segments": (OfferedSegment(0, 100, 0),)},
        {"first_index": 12},
        {"first_index": 0},
    ],
)
def test_senseless_offers_are_refused(change):
    good = Offer(GroupId(1), 10, 1, 4, 100, (OfferedSegment(1, 100, 1), OfferedSegment(4, 100, 0)))
    assert Offer.decode(good.encode()) == good
    with pytest.raises(Damage):
        Offer.decode(dataclasses.replace(good, **change).encode())
    for cut in range(1, 60):
        with pytest.raises(Damage):
            Offer.decode(good.encode()[:-cut])


def test_log_that_is_not_whole_is_not_sent(a, b):
    a.storage.members[1].intact = False
    with pytest.raises(TransferError, match="not whole"):
        b.receive(a.sender())


def test_log_that_lost_entries_is_mended_and_the_old_one_kept(a, b):
    b.receive(a.sender())
    b.storage.files.raft.mark_damaged(ONE)
    b.close()
    assert not b.boot().storage.is_intact(1)
    a.publish(3)
    b.receive(a.sender())
    assert_equal(a, b)
    assert [path for path in b.files.paths() if path.startswith("/b/lost+found/group-1/")]
    b.close()
    assert b.boot().storage.is_intact(1)


def test_entries_behind_the_offer_are_carried_over(a, b):
    b.receive(a.sender())
    newest = [entry(a.log.last_index + n, batch(7, a.log.channel(7).last_sequence + n, 1), term=2) for n in (1, 2, 3)]
    sender, receiver = a.sender(), b.storage.receiver(ONE)
    carry(receiver, sender, session=2)
    receiver.finish()
    b.log.append(newest)
    b.install()
    assert b.storage.applied[1] == a.storage.applied[1]
    assert b.entries() == a.entries() + newest
    assert b.log.durable_index == newest[-1].index


def test_entries_that_contradict_the_offer_are_put_aside_with_their_log(a, b):
    b.receive(a.sender())
    b.log.append([entry(b.log.last_index + 1, term=2), entry(b.log.last_index + 2, term=2)])
    b.log.sync()
    a.publish(1, term=3)
    b.receive(a.sender())
    assert_equal(a, b)
    assert [path for path in b.files.paths() if path.startswith("/b/lost+found/group-1/")]


def test_offer_that_ends_before_the_log_begins_is_refused(a, b):
    a.storage.applied[1] = (a.log.first_index + 3, 1)
    receiver = b.storage.receiver(ONE)
    carry(receiver, a.sender())
    receiver.finish()
    b.publish(100)
    b.trim(200)
    settle(b)
    before = b.entries()
    assert b.log.first_index > a.storage.applied[1][0] + 1
    with pytest.raises(NotNow, match="the log here holds"):
        b.storage.install(ONE)
    assert b.entries() == before


def test_full_disk_fails_the_transfer_and_the_next_try_works(a, b):
    receiver = b.storage.receiver(ONE)
    b.files.fail("pwritev", 3, errno.ENOSPC)
    with pytest.raises(TransferError, match="No space"):
        carry(receiver, a.sender())
    b.receive(a.sender(), session=2)
    assert_equal(a, b)


def test_full_disk_while_entries_are_carried_over_leaves_the_old_log(a, b):
    b.receive(a.sender())
    b.log.append([entry(b.log.last_index + 1)])
    receiver = b.storage.receiver(ONE)
    carry(receiver, a.sender(), session=2)
    receiver.finish()
    before = b.entries()
    b.files.fail("pwritev", 0, errno.ENOSPC)
    with pytest.raises(NotNow):
        b.storage.install(ONE)
    assert b.entries() == before
    b.receive(a.sender(), session=3)
    assert b.entries() == before


def forget_the_term(header, content):
    """As after a truncation into a hole, when a log does not know what came before."""
    if header.verb == Verb.READ and header.part == 2:
        first = decode_segment_header(content)
        assert first.previous_term == 5
        content = dataclasses.replace(first, previous_term=0).encode() + content[SEGMENT_HEADER_SIZE:]
    return header, content


@pytest.mark.parametrize("change", [lambda *same: same, forget_the_term])
def test_log_of_which_everything_was_let_go_arrives_empty_and_goes_on(a, b, change):
    a.trim(a.log.channel(7).last_sequence + 1)
    a.log.drop(9)
    a.write([entry(a.log.last_index + 1, batch(7, a.log.channel(7).last_sequence + 1, 1, size=700), term=5)])
    index = a.log.last_index  # the next one begins a segment
    a.trim(a.log.channel(7).last_sequence + 1, term=5)
    settle(a)
    assert a.log.first_index == index + 1
    assert a.log.term_at(index) == 5
    a.storage.applied[1] = (index, 5)
    b.receive(a.sender(), wire=lambda answers: rewritten(answers, change))

    assert (b.log.first_index, b.log.last_index, b.log.last_term) == (index + 1, index, 5)
    assert b.log.term_at(index) == 5
    assert b.log.entries(1, 10**6, 10**6) == [one for one in a.entries() if one.index <= index]
    b.log.append([entry(index + 1, term=6)])
    b.log.sync()
    b.close()
    b.boot()
    assert (b.log.last_index, b.log.term_at(index), b.log.last_term) == (index + 1, 5, 6)


def test_flush_between_install_and_load_writes_nothing_of_the_group(a, b):
    b.subscribe("old")
    b.publish(1)
    b.flush()
    rows = run_now(b.medium.open().snapshot(1))
    carry(b.storage.receiver(ONE), a.sender())
    b.storage.receiver(ONE).finish()
    b.storage.install(ONE)
    assert ONE not in b.storage.applied
    b.flush()
    b.release()
    b.storage.files.snapshots.write(ONE, 2, rows.SerializeToString())  # a release that began before
    assert run_now(b.medium.open().snapshot(1)) == rows
    b.load_again()
    b.flush()
    assert run_now(b.medium.open().snapshot(1)) == a.state()
    assert_equal(a, b)


def test_rows_on_their_way_while_the_group_is_installed_are_replaced(a, b):
    b.subscribe("old")
    b.publish(1)
    carry(b.storage.receiver(ONE), a.sender())
    b.storage.receiver(ONE).finish()
    flush = b.storage.offload

    async def install_meanwhile(call):
        b.storage.offload = flush
        call()
        b.storage.install(ONE)

    b.storage.offload = install_meanwhile
    b.storage.logs[2].append([entry(1)])
    b.flush()
    b.load_again()
    b.flush()
    assert run_now(b.medium.open().snapshot(1)) == a.state()


def test_old_log_touches_nothing_of_the_new_one(a, b):
    """Whoever still holds it: the names of its files may be those of the new one's."""
    b.receive(a.sender())
    old, places = b.log, b.log.channel(7).refs(0, 10**9, 10**9, 10**9)
    a.publish(2)
    b.receive(a.sender())
    old.trim(7, 10**6)
    old.drop(9)
    old.release(10**9)
    assert old.clean() is None
    assert old.entries(1, 10**9, 10**9) == []
    with pytest.raises(NotNow, match="gone"):
        old.read(places[0])
    b.close()
    assert_equal(a, b.boot())


def test_on_a_real_disk_a_hundred_segments_arrive_whole(tmp_path):
    nodes = []
    for name in "ab":
        node = StorageNode(name, files=OsFiles(), segment_bytes=100_000, directory=str(tmp_path / name))
        nodes.append(node.boot())
    a, b = nodes
    a.log.append([entry(1, batch(7, 1, 1))])
    for number in range(300):
        a.log.append([entry(number + 2, batch(7, number * 100 + 2, 100, size=400))])
    a.log.sync()
    a.apply(a.log.last_index)
    b.receive(a.sender(lambda: SECOND))
    assert_equal(a, b)
    for node in nodes:
        run_now(node.storage.close(clean=True))
        node.medium.close()


def test_encrypted_log_is_carried_between_nodes_with_the_same_key_only():
    a, b, c, d = (
        StorageNode(name, cipher=cipher)
        for name, cipher in zip("abcd", (Cipher(b"k"), Cipher(b"k", "CHACHA"), Cipher(b"other"), None), strict=True)
    )
    for node in (a, b, c, d):
        node.boot()
    a.publish(20)
    a.flush()
    b.receive(a.sender())
    assert b.messages() == a.messages()
    assert b.entries() == a.entries()
    assert b.storage.directory.manifest.sealed_from == {}
    for other in (c, d):
        receiver = other.storage.receiver(GroupId(1))
        carry(receiver, a.sender())
        with pytest.raises(WrongKey, match="encrypted"):
            receiver.finish()
    for node in (a, b, c, d):
        node.close()


def test_what_is_in_clear_where_all_is_encrypted_goes_to_no_other_node():
    a, b = (StorageNode(name, cipher=Cipher(b"k")).boot() for name in "ab")
    a.publish(2)
    a.flush()
    a.log._encryptor = a.log._reader._cipher = None  # somebody without the key writes to the disk
    a.publish(1)
    a.flush()
    receiver = b.storage.receiver(GroupId(1))
    carry(receiver, a.sender())
    with pytest.raises(Damage, match="not encrypted as everything from entry 1 of group 1 on is"):
        receiver.finish()
    for node in (a, b):
        node.close()
        node.medium.close()


def test_a_store_that_was_in_clear_is_encrypted_from_where_it_ended(node_in_clear):
    node = node_in_clear
    node.publish(3)
    node.flush()
    node.close()
    node.cipher = Cipher(b"k")
    node.boot()
    assert node.storage.directory.manifest.sealed_from == {"1": 4}
    node.publish(2)
    before = node.messages()
    node.flush()
    node.close()
    assert node.boot().messages() == before
    other = StorageNode("b", cipher=Cipher(b"k")).boot()
    other.receive(node.sender())
    assert other.messages() == before
    assert other.storage.directory.manifest.sealed_from == {}
    assert b"<7:" not in b"".join(other.files.content(p) for p in other.files.paths() if p.endswith(".log"))
    other.close()
    other.medium.close()


def test_what_stan_json_says_of_the_encryption_cannot_be_changed_without_the_key(node_in_clear):
    node = node_in_clear
    node.cipher = Cipher(b"k")
    node.files, node.medium = CrashingFiles(), SimDatabase()
    node.boot()
    node.close()
    manifest = read_manifest("/a", node.files)
    assert manifest.sealed_from == {}
    for harm in ({"sealed_from": {"1": 99}}, {"store_id": "c" * 32}, {"sealed_from": None}):
        write_manifest("/a", dataclasses.replace(manifest, **harm), node.files)
        with pytest.raises(StartError, match="another key than the one given, or what this file says"):
            node.boot()
    write_manifest("/a", manifest, node.files)
    node.boot()


@pytest.fixture
def node_in_clear():
    made = StorageNode("a").boot()
    yield made
    made.close()
    made.medium.close()
