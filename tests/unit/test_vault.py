"""Encryption of record batches: what is sealed opens with its key alone, unchanged, in its place."""

import pytest

from stan.errors import Damage, StartError, WrongKey
from stan.log.filelog import FileLog
from stan.log.vault import Sealer, Vault
from stan.protocol.entries import BATCH_HEADER, SEALED_BYTES, encode_change, encode_marks
from tests.kit.batches import batch, change, entry

KEY = b"secret key"
STORE = b"0123456789abcdef"


def open_log(path, vault=None, **more):
    return FileLog.open(path / "1", 1, STORE, vault=vault, tail_cache_bytes_max=0, **more)[0]


def one(text=b"hello"):
    return entry(1, batch(7, 1, 1, size=len(text)))


@pytest.mark.parametrize("cipher", ["AES", "CHACHA", "aes", ""])
def test_entry_opens_as_it_was(cipher):
    vault = Vault(KEY, cipher)
    plain = entry(1, batch(7, 1, 3), batch(8, 5, 2), *encode_marks(b"marks"), *encode_change(b"change"))
    sealed = Sealer(vault).sealed(plain)
    assert len(sealed.body) == len(plain.body) + 2 * SEALED_BYTES
    assert vault.opened(sealed) == plain
    assert Vault(KEY).opened(sealed) == plain  # whichever cipher it would use itself
    assert Sealer(vault).sealed(change(2, b"x")) == change(2, b"x")


def test_same_batch_is_never_sealed_alike():
    sealer = Sealer(Vault(KEY))
    assert len({sealer.sealed(one()).body, sealer.sealed(one()).body, Sealer(Vault(KEY)).sealed(one()).body}) == 3


def test_another_key_opens_nothing():
    sealed = Sealer(Vault(KEY)).sealed(one())
    with pytest.raises(WrongKey, match="another key"):
        Vault(b"another").opened(sealed)


@pytest.mark.parametrize("at", [0, 4, 14, 20, 45, 60, 70, 90])
def test_a_changed_bit_is_seen(at):
    sealed = Sealer(Vault(KEY)).sealed(one())
    body = bytearray(sealed.body)
    body[at] ^= 1
    with pytest.raises(WrongKey):
        Vault(KEY).opened(sealed._replace(body=bytes(body)))


def test_batch_of_another_channel_does_not_open_in_its_place():
    sealer = Sealer(Vault(KEY))
    sealed, other = (bytearray(sealer.sealed(entry(1, batch(uid, 1, 1))).body) for uid in (7, 8))
    sealed[BATCH_HEADER.size :] = other[BATCH_HEADER.size :]
    with pytest.raises(WrongKey):
        Vault(KEY).opened(one()._replace(body=bytes(sealed)))


def test_what_is_needed_is_said():
    with pytest.raises(StartError, match=r"^encryption key required$"):
        Vault(b"")
    with pytest.raises(StartError, match=r"^encryption cipher not supported$"):
        Vault(KEY, "ROT13")
    assert "secret" not in repr(Vault(KEY))


def test_check_fits_its_key_alone():
    check = Vault(KEY).check()
    assert Vault(KEY, "CHACHA").fits(check)
    for other in (
        Vault(b"another").fits(check),
        Vault(KEY).fits(""),
        Vault(KEY).fits("zz"),
        Vault(KEY).fits(check[:-2]),
    ):
        assert not other


def test_message_is_not_on_the_disk_and_its_place_tells_of_a_wrong_key(tmp_path):
    log = open_log(tmp_path, Vault(KEY))
    log.append([one()])
    log.commit(1)
    (ref,) = log.channel(7).refs(0, 9, 9, 9)
    written = log.read(ref)
    log.close()
    (file,) = (tmp_path / "1").glob("*.log")
    assert b"<7:1>" in written
    assert b"<7:1>" not in file.read_bytes()
    for vault, why in ((None, "no key was given"), (Vault(b"another"), "another key")):
        log = open_log(tmp_path, vault)
        log.commit(1)
        with pytest.raises(WrongKey, match=f"{file}: position .*{why}"):
            log.read(ref._replace(segment=1))
        with pytest.raises(WrongKey, match=f"{file}: position .*{why}"):
            log.check_key()
        log.close()


def test_wrong_key_is_no_damage(tmp_path):
    log = open_log(tmp_path, Vault(KEY))
    log.append([one()])
    log.close()
    damaged = []
    log = open_log(tmp_path, Vault(b"another"), on_damage=lambda: damaged.append(True))
    with pytest.raises(Damage):
        log.entries(1, 1, 9)
    log.close()
    assert not damaged


def test_plain_log_is_encrypted_from_now_on(tmp_path):
    log = open_log(tmp_path)
    log.append([one()])
    log.close()
    log = open_log(tmp_path, Vault(KEY))
    log.append([entry(2, batch(7, 2, 1))])
    log.close()
    log = open_log(tmp_path, Vault(KEY, "CHACHA"))
    log.append([entry(3, batch(7, 3, 1))])
    log.commit(3)
    log.check_key()
    assert [b"<7:%d>" % n in log.read(ref) for n, ref in enumerate(log.channel(7).refs(0, 9, 999, 9), 1)] == [True] * 3
    assert len(log.entries(1, 3, 999)) == 3
    log.close()
    (file,) = (tmp_path / "1").glob("*.log")
    assert [b"<7:%d>" % n in file.read_bytes() for n in (1, 2, 3)] == [True, False, False]
