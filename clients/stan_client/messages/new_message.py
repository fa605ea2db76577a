"""A message before it is stored: headers, key, delay and time to live, their encoding, and the result of publishing.

Promises that a key or headers which no server takes are refused before anything is sent, with an error that names the bound.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from stan_protocol.ack_levels import TOLD, AckLevel
from stan_protocol.kernel.client import encode_more
from stan_protocol.kernel.wire_py import varint
from stan_protocol.limits import DELAY_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, TTL_MAX
from stan_protocol.scalars import SECOND

from stan_client.errors import InvalidDelayError, InvalidHeadersError, InvalidKeyError, InvalidTtlError

Headers = Mapping[str, str | bytes]
"""Values by name; text is sent as UTF-8."""

DUE_TAG: Final = b"\x90\x01"
"""PubMsg.deliver_at (18), as a varint."""
TTL_TAG: Final = b"\x98\x01"
"""PubMsg.ttl (19), as a varint."""
REPLY_TAG: Final = b"\x1a"
"""MsgProto.reply (3), as bytes."""
DATA_TAG: Final = b"\x22"
"""MsgProto.data (4), as bytes."""
NOTHING: Final[Headers] = MappingProxyType({})


class NewMessage(NamedTuple):
    """A message that is to be published: data, headers, key and reply subject."""

    data: bytes
    headers: Headers = NOTHING
    key: str | bytes = ""  # empty: none
    reply: str = ""  # a subject of the program's own; the server passes it on

    def with_headers(self, headers: Headers) -> "NewMessage":
        """Return this message with further headers; of two with one name the given one counts."""
        return self._replace(headers={**self.headers, **headers})


class Published(NamedTuple):
    """A message that a server has accepted: its guid, its sequence, and its durability when its ack was sent.

    A named tuple, as there is one for each ack: it costs no more than its parts.
    """

    guid: str
    sequence: int | None = None
    """Its place in the channel, from 1 on. None: it has none yet, it was not requested, or not reported."""
    delayed_id: int = 0
    """Of a delayed message: by which number operators find and cancel it; 0 for all others."""
    ack_level: int = 0

    @property
    def acked_as(self) -> str:
        """The message's durability when its ack was sent: `synced`, on the disks of a majority of the channel's nodes, or of a
        server alone; `replicated`, in the memory of a majority; `memory`, in that of a server alone. "": not reported, as
        `sequence` may be, or the message was in the leader's log already."""
        return AckLevel(self.ack_level).word if self.ack_level in TOLD else ""


def encode_context(headers: Headers | None, key: str | bytes) -> bytes:
    """Encode headers and key, for `PublishPath.encode`; b"" if there is nothing.

    Raises:
        InvalidHeadersError: a name that is not text, or is empty; a value that is neither text nor bytes; or more than
            HEADERS_BYTES_MAX bytes as encoded. InvalidKeyError: not text or bytes, or more than KEY_BYTES_MAX bytes.
    """
    if not headers and not key:
        return b""
    encoded = encode_more(_pairs(headers), b"", numbered=False) if headers else b""
    if len(encoded) > HEADERS_BYTES_MAX:
        raise InvalidHeadersError(
            f"stan: headers of {len(encoded)} bytes as encoded; a message has at most {HEADERS_BYTES_MAX}"
        )
    name = _encoded_key(key)
    return encoded + encode_more((), name, numbered=False) if name else encoded


def encode_due(delay_s: float | None, deliver_at: datetime | None) -> bytes:
    """Encode the time when a message is due, to stand before the bytes of `encode_context`; b"": at once.

    Raises:
        InvalidDelayError: both are given; the delay is negative or longer than a year; the time has no offset from UTC.
    """
    if delay_s is None and deliver_at is None:
        return b""
    if deliver_at is not None and (delay_s is not None or deliver_at.utcoffset() is None):
        raise InvalidDelayError("stan: tell either a delay or a time, and that with its offset from UTC")
    seconds = (delay_s or 0) if deliver_at is None else max(deliver_at.timestamp() - time.time(), 0)
    if not 0 <= seconds <= DELAY_MAX // SECOND:
        raise InvalidDelayError(f"stan: a message is delayed by 0 to {DELAY_MAX // SECOND} seconds")
    due = time.time_ns() + round(seconds * SECOND) if deliver_at is None else round(deliver_at.timestamp() * SECOND)
    return DUE_TAG + varint(max(due, 1))


def encode_ttl(ttl_s: float | None) -> bytes:
    """Encode how long a message is to live, to stand before all that the other functions give; b"": for ever.

    Raises:
        InvalidTtlError: it is 0, negative, no number, or longer than a server takes.
    """
    if ttl_s is None:
        return b""
    if not 0 < ttl_s <= TTL_MAX // SECOND:
        raise InvalidTtlError(f"stan: a message lives more than 0 and at most {TTL_MAX // SECOND} seconds")
    return TTL_TAG + varint(max(round(ttl_s * SECOND), 1))


def encode_rows(messages: Iterable[NewMessage | bytes]) -> bytes:
    """Encode messages as the rows of `Batches.publish` and `Transactions.stage`.

    Raises:
        InvalidHeadersError, InvalidKeyError: as of `encode_context`.
    """
    rows = []
    for message in messages:
        data, headers, key, reply = message if isinstance(message, NewMessage) else NewMessage(message)
        row = encode_context(headers, key)  # stored messages have headers and key in the same fields as published ones
        for tag, value in ((DATA_TAG, data), (REPLY_TAG, bytes_of(reply))):
            row = tag + varint(len(value)) + value + row if value else row
        rows.append(len(row).to_bytes(4, "little") + row)
    return b"".join(rows)


def _pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    pairs = []
    for name, value in headers.items():
        if not isinstance(name, str) or not name:
            raise InvalidHeadersError(f"stan: the name of a header is text that is not empty, not {name!r}")
        if not isinstance(value, str | bytes):
            raise InvalidHeadersError(f"stan: the value of header {name!r} is text or bytes, not {value!r}")
        try:
            pairs.append((bytes_of(name), bytes_of(value)))
        except UnicodeEncodeError:
            raise InvalidHeadersError(f"stan: header {name!r} cannot be encoded as UTF-8") from None
    return pairs


def _encoded_key(key: str | bytes) -> bytes:
    if not isinstance(key, str | bytes):
        raise InvalidKeyError(f"stan: a key is text or bytes, not {key!r}")
    try:
        encoded = bytes_of(key)
    except UnicodeEncodeError:
        raise InvalidKeyError("stan: the key cannot be encoded as UTF-8") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise InvalidKeyError(f"stan: a key of {len(encoded)} bytes; a message's has at most {KEY_BYTES_MAX}")
    return encoded


def bytes_of(text: str | bytes) -> bytes:
    """Text as bytes; surrogates are the bytes that were not UTF-8 in a message that came."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
