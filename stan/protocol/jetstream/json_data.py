"""JSON of JetStream's requests and answers: bounded before it is read, and its fields by type."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from stan import limits
from stan.protocol.jetstream.errors import RequestError, invalid_json

_INTEGER_END: Final = 1 << 63
_OF_SERVERS: Final = "_nats."
"""How names of metadata begin that servers add to their answers."""


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def read_object(payload: bytes) -> dict[str, Any]:
    """Return the object in *payload*; an empty payload is an empty one.

    Raises:
        RequestError: it is larger than API_REQUEST_BYTES_MAX or deeper than API_NESTED_MAX brackets, or no JSON object.
    """
    if not payload.strip():
        return {}
    if len(payload) > limits.API_REQUEST_BYTES_MAX:
        raise RequestError(invalid_json(f"more than {limits.API_REQUEST_BYTES_MAX} bytes"))
    if payload.count(b"{") + payload.count(b"[") > limits.API_NESTED_MAX:
        raise RequestError(invalid_json(f"more than {limits.API_NESTED_MAX} objects and lists"))
    try:
        found = json.loads(payload, parse_constant=_no_number)
    except ValueError as error:
        raise RequestError(invalid_json(str(error))) from error
    if not isinstance(found, dict):
        raise RequestError(invalid_json("no object"))
    return found


def encode(document: Mapping[str, object]) -> bytes:
    """Return the JSON text of an answer, without spaces."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


class Fields:
    """The fields of an object, each read once by its type; what nobody has read is not known."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = dict(document)

    def _typed(self, name: str, kind: type, default: Any) -> Any:
        value = self._document.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RequestError(invalid_json(f"json: {name} is of another type"))
        return value

    def text(self, name: str, default: str = "") -> str:
        """The text of a field; *default* if it is not there. Raises RequestError: no text, or one that UTF-8 cannot have."""
        found: str = self._typed(name, str, default)
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise RequestError(invalid_json(f"json: {name} is no text")) from error
        return found

    def number(self, name: str, default: int = 0) -> int:
        """The integer of a field, of 64 bits with a sign. Raises RequestError."""
        found: int = self._typed(name, int, default)
        if not -_INTEGER_END <= found < _INTEGER_END:
            raise RequestError(invalid_json(f"json: {name} is out of range"))
        return found

    def switch(self, name: str, *, default: bool = False) -> bool:
        """The truth value of a field. Raises RequestError."""
        found: bool = self._typed(name, bool, default)
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """The list of texts of a field; empty if it is not there. Raises RequestError."""
        return tuple(Fields({name: one}).text(name) for one in self.items(name))

    def items(self, name: str) -> list[Any]:
        """The list of a field; empty if it is not there. Raises RequestError."""
        found: list[Any] = self._typed(name, list, [])
        return found

    def table(self, name: str) -> dict[str, Any]:
        """The object of a field; empty if it is not there. Raises RequestError."""
        found: dict[str, Any] = self._typed(name, dict, {})
        return found

    def metadata(self) -> dict[str, str]:
        """The texts of the field `metadata` by their names, without those that servers add. Raises RequestError."""
        read = Fields(self.table("metadata"))
        found = {name: read.text(name) for name in list(read._document)}
        if any(not name.isprintable() for name in found):
            raise RequestError(invalid_json("json: a key of metadata is not printable"))
        return {name: value for name, value in found.items() if not name.startswith(_OF_SERVERS)}

    def take_set(self, *names: str) -> str:
        """The first of *names* with a value that is not null, false, 0 or empty, "" if there is none; reads all of them."""
        given = [name for name in names if self._document.pop(name, None)]
        return given[0] if given else ""

    def end(self) -> None:
        """Every field that is known has been read. Raises RequestError: there is another one."""
        for name in sorted(self._document):
            raise RequestError(invalid_json(f'json: unknown field "{name[: limits.API_SHOWN_CHARS]}"'))
