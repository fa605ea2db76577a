"""Re-encryption of another node's segments for this one: each batch is decrypted as of the sender's store and encrypted
again as of this one, because a batch is bound to its store, group and entry.

Promises: the new file takes the name of the old one once it is durable and complete; it has only batches that could be decrypted.
Blocking.
"""

from stan.errors import Damage
from stan.limits import SCAN_BYTES
from stan.log.encryption import Encryptor, LogCipher
from stan.log.files.disk import Files
from stan.log.files.recovery import REWRITE
from stan.log.files.segment import (
    SEGMENT_HEADER_SIZE,
    ReadWindow,
    SegmentScan,
    decode_segment_header,
    encode_entry_header,
)


def reencrypt(files: Files, path: str, theirs: LogCipher, ours: Encryptor) -> None:
    """Rewrite the segment at *path*. Raises Damage, WrongKey: a batch is not the encrypted one; OSError."""
    target = path + REWRITE
    source, copy = files.open(path), files.create(target)
    try:
        window = ReadWindow(files, source, files.size(source))
        header = decode_segment_header(window.get(0, SEGMENT_HEADER_SIZE))
        scan = SegmentScan(window, header)
        buffers, size, written = [header.encode()], SEGMENT_HEADER_SIZE, 0
        for entry in scan:
            try:
                encrypted = ours.encrypted(theirs.decrypted(entry.entry))
            except Damage as damage:
                raise type(damage)(f"{path}: position {entry.position}: {damage}") from damage
            buffers += (encode_entry_header(encrypted), bytes(encrypted.body))
            size += len(buffers[-2]) + len(buffers[-1])
            if size - written > SCAN_BYTES:
                files.pwritev(copy, buffers, written)
                buffers, written = [], size
        if scan.fault:
            raise Damage(f"{path}: position {scan.position}: {scan.fault}")
        files.pwritev(copy, buffers, written)
        files.fdatasync(copy)
    finally:
        files.close(copy)
        files.close(source)
    files.rename(target, path)
