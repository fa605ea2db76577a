"""Encryption of a log: each record batch by itself, with AES-256-GCM or ChaCha20-Poly1305.

Promises: no two batches are encrypted with the same key and nonce, whatever crashes in between: every log that is opened draws
a new salt, which gives a key of its own, and counts its batches. A batch is authenticated together with its header and with the
store, the group and the entry that it lies in, so that no batch can take the place of another one. From the entry on at which
a log encrypts all batches, a batch in clear is damage. Encrypted records are ENCRYPTION_BYTES longer than those in clear; they
have salt, counter, ciphertext and tag.
Never shows the key. Only messages are encrypted: names, positions and times stay in clear (see docs/log-format.md).
"""

import hashlib
import hmac
import os
import platform
import zlib
from struct import Struct
from typing import TYPE_CHECKING, Final

from stan_protocol.scalars import GroupId, RaftIndex

from stan import limits
from stan.errors import Damage, StartError, WrongKey
from stan.log.types import Entry
from stan.protocol.entries import BATCH_HEADER, BESIDE_UID, CIPHER_MASK, ENCRYPTION_BYTES, Kind

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

CIPHERS: Final = {"AES": 1, "CHACHA": 2}
"""The number of each algorithm by its name in the settings; in the flags of a batch that is encrypted, those of one in clear are
0."""
_PLACE = Struct("<16sIQ")
NEVER: Final = RaftIndex(1 << 63)
"""An index above that of every entry."""
_SALT_BYTES = 16
_COUNTER = Struct(">Q")
_FRONT = _SALT_BYTES + _COUNTER.size
_CHECKED = b"stan: this is the key"
_AHEAD = b"\0\0\0\0"
"""The first bytes of a nonce, which has 12; the counter is the other 8."""


def cipher_of(name: str) -> int:
    """The number of an algorithm: without a name AES where processors have instructions for it. Raises StartError."""
    if not name:
        name = "AES" if platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"} else "CHACHA"
    number = CIPHERS.get(name.upper())
    if number is None:
        raise StartError("encryption cipher not supported")
    return number


class Cipher:
    """A key: makes the objects that encrypt and decrypt with it, with either algorithm. Usable from any thread."""

    def __init__(self, key: bytes, algorithm: str = "") -> None:
        """Derive the master key.

        Args:
            key: any bytes, the more random the better.
            algorithm: with which to encrypt, by name; "" for the one that suits this processor. Either can be decrypted.

        Raises:
            StartError: no key, no such algorithm, or the package `cryptography` is missing.
        """
        if not key:
            raise StartError("encryption key required")
        try:
            from cryptography.hazmat.primitives.ciphers import aead  # noqa: PLC0415 - an extra, of use here only
        except ImportError as error:
            raise StartError("encryption needs the package cryptography: pip install cryptography") from error
        self.algorithm = cipher_of(algorithm)
        self._kinds: dict[int, type[AESGCM | ChaCha20Poly1305]] = {1: aead.AESGCM, 2: aead.ChaCha20Poly1305}
        self._master = hashlib.sha256(b"stan record batches\0" + key).digest()
        self._known: dict[tuple[bytes, int], AESGCM | ChaCha20Poly1305] = {}

    def __repr__(self) -> str:
        return "<Cipher>"

    def aead(self, salt: bytes, algorithm: int) -> "AESGCM | ChaCha20Poly1305":
        """The object that encrypts and decrypts with the key of *salt*. Raises KeyError: no such algorithm."""
        known = self._known.get((salt, algorithm))
        if known is None:
            made = self._kinds[algorithm](hmac.digest(self._master, salt, "sha256"))
            if len(self._known) >= limits.CIPHER_KEYS_MAX:
                self._known.clear()
            known = self._known[salt, algorithm] = made
        return known

    def check(self, note: bytes | None) -> str:
        """A text by which `fits` recognizes the key and *note*, and that shows nothing of the key.

        A *note* of None goes with nothing else."""
        salt = os.urandom(_SALT_BYTES)
        return (salt + self.aead(salt, 1).encrypt(bytes(12), _CHECKED, note)).hex()

    def fits(self, check: str, note: bytes | None) -> bool:
        """True if *check* was made with this key and *note*."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - it is installed, else there would be no cipher

        try:
            data = bytes.fromhex(check)
            return self.aead(data[:_SALT_BYTES], 1).decrypt(bytes(12), data[_SALT_BYTES:], note) == _CHECKED
        except (InvalidTag, ValueError):
            return False

    def of(self, store_id: bytes, group: GroupId, since: RaftIndex = NEVER, *, fits: bool = False) -> "LogCipher":
        """The cipher of one log.

        Args:
            store_id: 16 bytes, the same in all logs of a store.
            group: of the log.
            since: entry from which on every batch is encrypted.
            fits: the key is proved to be the right one, so that a batch that cannot be decrypted is damaged.
        """
        return LogCipher(self, store_id, group, since, fits=fits)


class LogCipher:
    """Decrypts the batches of one log. Usable from any thread."""

    def __init__(self, cipher: Cipher, store_id: bytes, group: GroupId, since: RaftIndex, *, fits: bool) -> None:
        self.store_cipher = cipher
        self.since = since
        self._store_id = store_id
        self._group = group
        self._fits = fits

    def authenticated(self, header: bytes | memoryview, index: RaftIndex) -> bytes:
        """Return the data that authenticates a batch of the entry at *index*: its header with CRC 0, and its place."""
        *fields, flags = BATCH_HEADER.unpack(header)
        fields[6] = 0
        return BATCH_HEADER.pack(*fields, flags) + _PLACE.pack(self._store_id, self._group, index)

    def decrypt(self, header: bytes | memoryview, records: bytes | memoryview, index: RaftIndex) -> bytes | memoryview:
        """The records of a batch of the entry at *index*, in clear.

        Raises:
            Damage: they are not the encrypted ones of this entry, or are in clear where none may be.
            WrongKey: they cannot be decrypted, and the key is not proved to be the right one.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see Cipher

        flags = BATCH_HEADER.unpack(header)[7] & CIPHER_MASK
        if index >= self.since and not flags:
            raise Damage(f"not encrypted as everything from entry {self.since} of group {self._group} on is")
        if not flags:
            return records
        salt, counter = bytes(records[:_SALT_BYTES]), bytes(records[_SALT_BYTES:_FRONT])
        try:
            aead = self.store_cipher.aead(salt, flags)
            return aead.decrypt(_AHEAD + counter, records[_FRONT:], self.authenticated(header, index))
        except (InvalidTag, KeyError, ValueError):
            if self._fits:
                raise Damage(f"not the batch that was encrypted as a part of entry {index}") from None
            raise WrongKey("encrypted with another key than the one given, or in another place") from None

    def decrypted(self, entry: Entry) -> Entry:
        """The entry with all its record batches in clear. Raises Damage, WrongKey."""
        if entry.kind != Kind.RECORDS:
            return entry
        parts: list[bytes | memoryview] = []
        body, at, encrypted = memoryview(entry.body), 0, False
        while at < len(body):
            start = at + BATCH_HEADER.size
            header: bytes | memoryview = body[at:start]
            uid, base, count, timestamp, first, length, _, flags = BATCH_HEADER.unpack(header)
            records: bytes | memoryview = body[start : start + length]
            if uid != BESIDE_UID:
                records = self.decrypt(header, records, entry.index)
            if uid != BESIDE_UID and flags & CIPHER_MASK:
                encrypted = True
                header = _header(uid, base, count, timestamp, first, records, flags & ~CIPHER_MASK)
            parts += (header, records)
            at = start + length
        return entry._replace(body=b"".join(parts)) if encrypted else entry


class Encryptor:
    """Encrypts the entries of one log since it was opened; for one thread."""

    def __init__(self, cipher: LogCipher) -> None:
        self._cipher = cipher
        self._salt = os.urandom(_SALT_BYTES)
        self._aead = cipher.store_cipher.aead(self._salt, cipher.store_cipher.algorithm)
        self._flags = cipher.store_cipher.algorithm
        self._count = 0

    def encrypted(self, entry: Entry) -> Entry:
        """The entry with all its record batches encrypted."""
        if entry.kind != Kind.RECORDS:
            return entry
        parts: list[bytes | memoryview] = []
        body, at = memoryview(entry.body), 0
        while at < len(body):
            start = at + BATCH_HEADER.size
            header = body[at:start]
            uid, base, count, timestamp, first, length, _, flags = BATCH_HEADER.unpack(header)
            records = body[start : start + length]
            at = start + length
            if uid == BESIDE_UID:
                parts += (header, records)
                continue
            self._count += 1
            counter = _COUNTER.pack(self._count)
            flags |= self._flags
            made = BATCH_HEADER.pack(uid, base, count, timestamp, first, length + ENCRYPTION_BYTES, 0, flags)
            beside = self._cipher.authenticated(made, entry.index)
            hidden = b"".join((self._salt, counter, self._aead.encrypt(_AHEAD + counter, records, beside)))
            parts += (_header(uid, base, count, timestamp, first, hidden, flags), hidden)
        return entry._replace(body=b"".join(parts))


def _header(
    uid: int, base: int, count: int, timestamp: int, first: int, records: bytes | memoryview, flags: int
) -> bytes:
    return BATCH_HEADER.pack(uid, base, count, timestamp, first, len(records), zlib.crc32(records), flags)
