"""Encryption of record batches: what is encrypted opens with its key alone, unchanged, in its place."""

import zlib

import pytest

from stan.errors import Damage, StartError, WrongKey
from stan.log.encryption import NEVER, Cipher, Encryptor
from stan.log.files.filelog import FileLog
from stan.log.files.segment import ENTRY_HEADER_SIZE, SEGMENT_HEADER_SIZE
from stan.protocol.entries import BATCH_HEADER, ENCRYPTION_BYTES, encode_change, encode_fingerprints
from tests.kit.batches import batch, change, entry

KEY = b"secret key"
STORE = b"0123456789abcdef"


def open_log(path, cipher=None, **more):
    return FileLog.open(path / "1", 1, STORE, cipher=cipher, tail_cache_bytes_max=0, **more)[0]


def of(key=KEY, algorithm="", *, store=STORE, group=1, since=NEVER, fits=False):
    return Cipher(key, algorithm).of(store, group, since, fits=fits)


def one(text=b"hello"):
    return entry(1, batch(7, 1, 1, size=len(text)))


@pytest.mark.parametrize("algorithm", ["AES", "CHACHA", "aes", ""])
def test_entry_opens_as_it_was(algorithm):
    cipher = of(KEY, algorithm)
    plain = entry(1, batch(7, 1, 3), batch(8, 5, 2), *encode_fingerprints(b"marks"), *encode_change(b"change"))
    encrypted = Encryptor(cipher).encrypted(plain)
    assert len(encrypted.body) == len(plain.body) + 2 * ENCRYPTION_BYTES
    assert cipher.decrypted(encrypted) == plain
    assert of().decrypted(encrypted) == plain  # whichever algorithm it would use itself
    assert Encryptor(cipher).encrypted(change(2, b"x")) == change(2, b"x")


def test_same_batch_is_never_sealed_alike():
    encryptor = Encryptor(of())
    assert (
        len({encryptor.encrypted(one()).body, encryptor.encrypted(one()).body, Encryptor(of()).encrypted(one()).body})
        == 3
    )


def test_another_key_opens_nothing():
    encrypted = Encryptor(of()).encrypted(one())
    with pytest.raises(WrongKey, match="another key"):
        of(b"another").decrypted(encrypted)


@pytest.mark.parametrize("at", [0, 4, 14, 20, 45, 60, 70, 90])
def test_a_changed_bit_is_seen(at):
    encrypted = Encryptor(of()).encrypted(one())
    body = bytearray(encrypted.body)
    body[at] ^= 1
    with pytest.raises(WrongKey):
        of().decrypted(encrypted._replace(body=bytes(body)))


def test_batch_of_another_channel_does_not_open_in_its_place():
    encryptor = Encryptor(of())
    encrypted, other = (bytearray(encryptor.encrypted(entry(1, batch(uid, 1, 1))).body) for uid in (7, 8))
    encrypted[BATCH_HEADER.size :] = other[BATCH_HEADER.size :]
    with pytest.raises(WrongKey):
        of().decrypted(one()._replace(body=bytes(encrypted)))


def test_what_is_needed_is_said():
    with pytest.raises(StartError, match=r"^encryption key required$"):
        Cipher(b"")
    with pytest.raises(StartError, match=r"^encryption cipher not supported$"):
        Cipher(KEY, "ROT13")
    assert "secret" not in repr(Cipher(KEY))


def test_check_fits_its_key_alone():
    for note in (None, b"note"):
        check = Cipher(KEY).check(note)
        assert Cipher(KEY, "CHACHA").fits(check, note)
        for other in (
            Cipher(b"another").fits(check, note),
            Cipher(KEY).fits(check, b"another note"),
            Cipher(KEY).fits("", note),
            Cipher(KEY).fits("zz", note),
            Cipher(KEY).fits(check[:-2], note),
        ):
            assert not other


def test_message_is_not_on_the_disk_and_its_place_tells_of_a_wrong_key(tmp_path):
    log = open_log(tmp_path, of())
    log.append([one()])
    log.commit(1)
    (ref,) = log.channel(7).refs(0, 9, 9, 9)
    written = log.read(ref)
    log.close()
    (file,) = (tmp_path / "1").glob("*.log")
    assert b"<7:1>" in written
    assert b"<7:1>" not in file.read_bytes()
    for cipher, why in ((None, "no key was given"), (of(b"another"), "another key")):
        log = open_log(tmp_path, cipher)
        log.commit(1)
        with pytest.raises(WrongKey, match=f"{file}: position .*{why}"):
            log.read(ref._replace(segment=1))
        with pytest.raises(WrongKey, match=f"{file}: position .*{why}"):
            log.check_key()
        log.close()


def test_wrong_key_is_no_damage(tmp_path):
    log = open_log(tmp_path, of())
    log.append([one()])
    log.close()
    damaged = []
    log = open_log(tmp_path, of(b"another"), on_damage=lambda: damaged.append(True))
    with pytest.raises(Damage):
        log.entries(1, 1, 9)
    log.close()
    assert not damaged


def test_plain_log_is_encrypted_from_now_on(tmp_path):
    log = open_log(tmp_path)
    log.append([one()])
    log.close()
    log = open_log(tmp_path, of())
    log.append([entry(2, batch(7, 2, 1))])
    log.close()
    log = open_log(tmp_path, of(KEY, "CHACHA"))
    log.append([entry(3, batch(7, 3, 1))])
    log.commit(3)
    log.check_key()
    assert [b"<7:%d>" % n in log.read(ref) for n, ref in enumerate(log.channel(7).refs(0, 9, 999, 9), 1)] == [True] * 3
    assert len(log.entries(1, 3, 999)) == 3
    log.close()
    (file,) = (tmp_path / "1").glob("*.log")
    assert [b"<7:%d>" % n in file.read_bytes() for n in (1, 2, 3)] == [True, False, False]


# --- in its place, and nothing in clear -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elsewhere", [of(group=2), of(store=b"another store 16")], ids=["another group", "another store of the same key"]
)
def test_batch_of_another_place_is_damage(elsewhere):
    encrypted = Encryptor(elsewhere).encrypted(one())
    assert elsewhere.decrypted(encrypted) == one()
    with pytest.raises(Damage, match="not the batch that was encrypted as a part of entry 1") as caught:
        of(fits=True).decrypted(encrypted)
    assert not isinstance(caught.value, WrongKey)
    with pytest.raises(WrongKey):
        of().decrypted(encrypted)  # it may be the key, as far as anybody knows


def test_batch_of_another_entry_is_damage():
    encrypted = Encryptor(of()).encrypted(one())
    with pytest.raises(Damage, match="entry 2"):
        of(fits=True).decrypted(encrypted._replace(index=2))


def test_where_all_is_encrypted_a_batch_in_clear_is_damage():
    cipher = of(since=5, fits=True)
    clear = entry(4, batch(7, 1, 1))
    assert cipher.decrypted(clear) == clear
    beside = entry(5, *encode_fingerprints(b"marks"), *encode_change(b"change"))
    assert cipher.decrypted(beside) == beside  # never was encrypted
    with pytest.raises(Damage, match="not encrypted as everything from entry 5 of group 1 on is"):
        cipher.decrypted(clear._replace(index=5))


def put(path, at, data):
    """Change what lies in the only segment of a log, as somebody does it who knows the format and has no key."""
    (file,) = (path / "1").glob("*.log")
    content = bytearray(file.read_bytes())
    content[at : at + len(data)] = data
    start, found = SEGMENT_HEADER_SIZE, []
    while start < len(content):
        front = bytearray(content[start : start + ENTRY_HEADER_SIZE])
        end = start + ENTRY_HEADER_SIZE + int.from_bytes(front[4:8], "little")
        crc = zlib.crc32(content[start + ENTRY_HEADER_SIZE : end], zlib.crc32(front[12:], zlib.crc32(front[:8])))
        content[start + 8 : start + 12] = crc.to_bytes(4, "little")
        found.append((start, end))
        start = end
    file.write_bytes(bytes(content))
    return found


def filled(path, *entries):
    """A log with these entries; what lies where in its segment."""
    log = open_log(path, of(since=1))
    log.append(entries)
    log.close()
    (file,) = (path / "1").glob("*.log")
    return file, put(path, 0, b"")


@pytest.mark.parametrize("how", ["in clear", "from another entry"])
def test_batch_that_was_replaced_on_the_disk_is_damage_at_every_reading(tmp_path, how):
    first, second = batch(7, 1, 1, size=50), batch(7, 2, 1, size=50)
    beside = batch(8, 1, 1, size=50), batch(8, 2, 1, size=50)
    file, ((_, _), (start, _)) = filled(tmp_path, entry(1, first, beside[0]), entry(2, second, beside[1]))
    at = start + ENTRY_HEADER_SIZE
    uid, base, count, time, oldest, length, _, _ = BATCH_HEADER.unpack_from(file.read_bytes(), at)
    if how == "in clear":
        records = entry(2, second).body[BATCH_HEADER.size :].ljust(length, b"\0")
        harm = BATCH_HEADER.pack(uid, base, count, time, oldest, length, zlib.crc32(records), 0) + records
    else:  # the same sequence lay there in a life of the log that others did not take part in
        (tmp_path / "other").mkdir()
        other, (_, _, (lies, _)) = filled(tmp_path / "other", entry(1, first), entry(2, beside[0]), entry(3, second))
        lies += ENTRY_HEADER_SIZE
        harm = other.read_bytes()[lies : lies + BATCH_HEADER.size + length]
    put(tmp_path, at, harm)

    damaged = []
    log = open_log(tmp_path, of(since=1, fits=True), on_damage=lambda: damaged.append(True))
    with pytest.raises(Damage, match=f"{file}: position "):
        log.entries(2, 2, 999)
    log.commit(2)
    good, bad = log.channel(7).refs(0, 9, 999, 9)
    for _ in range(2):
        damaged.clear()
        with pytest.raises(Damage, match=f"{file}: position {bad.position}: not "):
            log.read(bad)
        assert damaged
    assert [b"<7:1>" in log.read(good)] + [b"<8:" in log.read(ref) for ref in log.channel(8).refs(0, 9, 999, 9)] == [
        True
    ] * 3
    log.close()


def test_cleaned_segments_open(tmp_path):
    log = open_log(tmp_path, of(since=1), segment_bytes_max=600)
    for at in range(1, 20):
        log.append([entry(at, batch(7 + at % 2, (at + 1) // 2, 1, size=80))])
    log.sync()
    log.commit(19)
    log.trim(7, 9)
    log.release(19)
    while log.clean():
        log.release(19)
    refs = log.channel(8).refs(0, 99, 9999, 99)
    assert len([log.read(ref) for ref in refs]) == 10
    log.close()
