"""Partitioned channels: the names of their parts, and the part of a message. Pure.

A channel with N parts is N ordinary channels, `<channel>.~0` to `<channel>.~<N-1>`. The part of a key is its slot, as in a
key-ordered queue group, modulo N. So when N doubles, the keys of part p are in p or in p + N then, and no others are.
"""

import json
import re
from typing import Any, Final

from stan_protocol.channels import is_channel_name, part_name, whole_of
from stan_protocol.limits import (
    CHANNEL_NAME_BYTES_MAX,
    KEY_BYTES_MAX,
    KEY_DATA_BYTES_MAX,
    KEY_PATH_BYTES_MAX,
    KEY_PATH_NAMES_MAX,
)

SLOTS: Final = 32 * 1024
"""Slots of a key-ordered queue group: so many that few of the keys in flight share one."""
NO_SLOT: Final = 0xFFFF
"""Instead of a slot: the message has no key."""
_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
"""FNV-1a, 32 bits."""
_ROOM: Final = len(part_name(b"", 999_999))
_PATH: Final = re.compile(r"\$(?:\.[^\s.$*\[\]'\"]+)+")


def can_have_parts(channel: bytes) -> bool:
    """True if a channel of this name can have parts: the names of the parts are none too long, and it is no part itself."""
    return is_channel_name(channel) and len(channel) <= CHANNEL_NAME_BYTES_MAX - _ROOM and whole_of(channel) == channel


def slot_of_key(key: bytes) -> int:
    """The slot of a key, as the server kernel has it of a message with that key; off the hot path."""
    hashed = _FNV_BASIS
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) % SLOTS


def part_of(key: bytes, parts: int) -> int:
    """The part to which a key belongs, of a channel with so many parts."""
    return slot_of_key(key) % parts


def key_path(path: bytes) -> tuple[str, ...] | None:
    """The names in `$.a.b`, where JSON data has the key of a message; () for b"": nowhere. None: that is no such path."""
    if not path:
        return ()
    try:
        shown = path.decode()
    except UnicodeDecodeError:
        return None
    names = tuple(shown.split(".")[1:])
    fits = len(path) <= KEY_PATH_BYTES_MAX and len(names) <= KEY_PATH_NAMES_MAX
    return names if fits and _PATH.fullmatch(shown) else None


def key_in(data: bytes, path: tuple[str, ...]) -> bytes:
    """The key of a message by its JSON data: the text or whole number at *path*; b"" if there is none, if the data is no JSON,
    or longer than is looked at."""
    if not path or len(data) > KEY_DATA_BYTES_MAX or not data.lstrip().startswith(b"{"):
        return b""
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return b""
    for name in path:
        if not isinstance(value, dict):
            return b""
        value = value.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return b""
    try:
        key = str(value).encode("utf-8", "surrogatepass")
    except ValueError:  # a number of more digits than Python writes
        return b""
    return key if len(key) <= KEY_BYTES_MAX else b""
