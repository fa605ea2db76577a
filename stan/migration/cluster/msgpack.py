"""Values in msgpack, as the Raft log of a NATS Streaming Server has them: numbers, texts, lists, maps; a time stays bytes."""

from struct import Struct, error
from typing import Any

_DEPTH_MAX = 8
_SIZES = {1: Struct(">B"), 2: Struct(">H"), 4: Struct(">I"), 8: Struct(">Q")}
_SIGNED = {0xD0: Struct(">b"), 0xD1: Struct(">h"), 0xD2: Struct(">i"), 0xD3: Struct(">q")}
_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_TEXTS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes) -> Any:
    """Return the value in *data*; texts are bytes. Raises ValueError: it is none."""
    try:
        return _Reader(data).value(0)
    except (error, IndexError, TypeError):
        raise ValueError("not a value in msgpack") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int) -> Any:
        """The next value."""
        if depth > _DEPTH_MAX:
            raise ValueError("a value in msgpack is too deep")
        code = self._data[self._at]
        self._at += 1
        if code <= 0x7F or code >= 0xE0:
            return code if code <= 0x7F else code - 0x100
        if code <= 0x8F or code in (0xDE, 0xDF):
            size = code & 0x0F if code <= 0x8F else self._number(2 if code == 0xDE else 4)
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(size)}
        if code <= 0x9F or code in (0xDC, 0xDD):
            size = code & 0x0F if code <= 0x9F else self._number(2 if code == 0xDC else 4)
            return [self.value(depth + 1) for _ in range(size)]
        if code <= 0xBF or code in _TEXTS:
            return self._bytes(code & 0x1F if code <= 0xBF else self._number(_TEXTS[code]))
        return self._scalar(code)

    def _scalar(self, code: int) -> Any:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _UNSIGNED:
            return self._number(_UNSIGNED[code])
        if code in _SIGNED:
            form = _SIGNED[code]
            self._at += form.size
            return form.unpack_from(self._data, self._at - form.size)[0]
        if code in _FIXED_EXTENSIONS or code in _EXTENSIONS:
            size = _FIXED_EXTENSIONS.get(code) or self._number(_EXTENSIONS[code])
            return self._bytes(1 + size)
        if code in (0xCA, 0xCB):
            return self._bytes(4 if code == 0xCA else 8)
        raise ValueError("not a value in msgpack")

    def _number(self, size: int) -> int:
        self._at += size
        return int(_SIZES[size].unpack_from(self._data, self._at - size)[0])

    def _bytes(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise ValueError("a value in msgpack is cut off")
        self._at += size
        return self._data[self._at - size : self._at]
