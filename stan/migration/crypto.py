"""Decrypting payloads of a NATS Streaming Server (STAN-SPEC 8.10), each with cipher and nonce in front."""

import hashlib
from collections.abc import Callable

from stan.errors import StartError

OVERHEAD = 29
"""Cipher code, nonce and tag."""
CIPHERS = ("AES", "CHACHA")
ENCRYPTED = "the payloads look encrypted: set NATS_STREAMING_ENCRYPTION_KEY or give --encryption-key, or --plain if they are not"
WRONG_KEY = "no payload can be decrypted with this key"


Opener = Callable[[bytes], bytes]
"""Opens the payloads of one channel. Raises ValueError: another key, or damage."""


def opener(key: bytes, channel: bytes) -> Opener:
    """Return a function that decrypts payloads of *channel*. Raises StartError if the package `cryptography` is missing."""
    # The run of zeros is an accident of the original, and part of every key.
    salted = bytes(32 + 1 + len(channel)) + hashlib.sha256(key).digest() + b"." + channel
    return _opener(hashlib.sha256(salted).digest())


def log_opener(key: bytes) -> Opener:
    """Return a function that decrypts entries of a Raft log. Raises StartError as `opener`."""
    return _opener(hashlib.sha256(key).digest())


def _opener(secret: bytes) -> Opener:
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra, of use here only
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305  # noqa: PLC0415
    except ImportError as error:
        raise StartError("encrypted payloads need the package cryptography: pip install cryptography") from error
    ciphers: dict[int, AESGCM | ChaCha20Poly1305] = {1: AESGCM(secret), 2: ChaCha20Poly1305(secret)}

    def open_payload(payload: bytes) -> bytes:
        cipher = ciphers.get(payload[0]) if payload else None
        if cipher is None:
            return payload
        if len(payload) < OVERHEAD:
            raise ValueError(f"trying to decrypt data that is not (len={len(payload)})")
        try:
            return cipher.decrypt(payload[1:13], payload[13:], None)
        except InvalidTag:
            raise ValueError("the payload cannot be decrypted: another key, or damage") from None

    return open_payload


def looks_encrypted(payload: bytes) -> bool:
    """Return True if *payload* may be encrypted."""
    return len(payload) >= OVERHEAD and payload[0] in (1, 2)
