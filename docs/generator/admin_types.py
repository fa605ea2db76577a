"""Writes stan_protocol/admin_types.py, the dataclasses of answers to operators: `python -m docs.generator.admin_types`.

They come from admin.proto with its comments. What a protobuf field cannot say stands in the tables here: which bytes are no
text, which numbers are choices.
"""

import json
import re
import textwrap
from collections.abc import Container, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import stan_protocol
from google.protobuf.descriptor import FieldDescriptor
from stan_protocol.ack_levels import AckLevel
from stan_protocol.choices import Commit, Compact, Compress, SchemaCheck
from stan_protocol.proto import admin_pb2
from stan_protocol.records import is_runs
from stan_protocol.schemas.kinds import Compatibility, SchemaKind

from docs.generator.requests import Comments, comments

PATH: Final = Path(stan_protocol.__file__).with_name("admin_types.py")
HEAD: Final = '''"""Dataclasses of what servers answer operators, and of what requests of these are made of. Pure.

Made from admin.proto by `python -m docs.generator.admin_types`: change that. Times are Unix ns, and durations ns, unless they say
otherwise.
"""

from dataclasses import dataclass
from enum import IntEnum

from stan_protocol.ack_levels import AckLevel
from stan_protocol.choices import Commit, Compact, Compress, SchemaCheck
from stan_protocol.records import MessageRecord
from stan_protocol.schemas.kinds import Compatibility, SchemaKind
'''
NAMES: Final = {"Which": "CursorRef", "Kind": "CursorKind"}
"""Messages and enums that are called otherwise here."""
KNOWN: Final[dict[str, type[IntEnum]]] = {"SchemaKind": SchemaKind, "SchemaCompatibility": Compatibility}
"""Enums that there are already."""
CHOICES: Final[dict[str, type[IntEnum]]] = {
    "commit": Commit,
    "compact": Compact,
    "compress": Compress,
    "schema": SchemaCheck,
    "ack_level": AckLevel,
    "AckedMessages.level": AckLevel,
}
"""Numbers that are choices, by field, or by message and field."""
BINARY: Final = {"rows", "state_hash", "SchemaStatus.text"}
"""Bytes that are no text."""
EMPTY: Final = {"limits", "edited", "PolicyStatus.policy", "redriven"}
"""Messages that are empty where they are not set; the others are None."""
ANSWERS: Final = {"ChangeResponse", "VerifyResponse", "ReadDelayedResponse", "ReadStreamResponse"}
"""Answers that are shown as they are; the others are lists."""
INSIDE: Final = {"ExplainPlace", "Backoff", *KNOWN}
"""Messages and enums that nobody but the client sees, or that are something else in Python."""
LEFT_OUT: Final = {"error", "error_code", "retry"}
"""Fields of answers that became an exception."""
_SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "str",
    FieldDescriptor.TYPE_STRING: "str",
}
_ENUMS: Final = {each.__name__: each for each in (*CHOICES.values(), *KNOWN.values())}
_CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)
_AS_IT_IS: Final = re.compile(r"ns\b|\w*[:_/]")
_ZEROS: Final = {"bool": "False", "str": '""', "bytes": 'b""', "int": "0"}


def _is_shown(message: Any) -> bool:
    answer = message.name.endswith("Response") and message.name not in ANSWERS
    return not answer and not message.name.endswith("Request") and message.name not in INSIDE


def _inner_first(messages: list[Any]) -> list[Any]:
    """Messages behind those of their fields."""
    found: dict[str, Any] = {}

    def add(message: Any) -> None:
        for field in message.fields:
            if field.message_type is not None and _is_shown(field.message_type):
                add(field.message_type)
        found.setdefault(message.name, message)

    for message in messages:
        add(message)
    return list(found.values())


def _in_table(table: Container[str], field: Any) -> str | None:
    names = field.name, f"{field.containing_type.name}.{field.name}"
    return next((name for name in names if name in table), None)


def _type(field: FieldDescriptor) -> str:
    """The type of one value of a field."""
    inner = field.message_type or field.enum_type
    if inner is not None:
        return KNOWN[inner.name].__name__ if inner.name in KNOWN else NAMES.get(inner.name, inner.name)
    if choice := _in_table(CHOICES, field):
        return CHOICES[choice].__name__
    return "bytes" if _in_table(BINARY, field) else _SCALARS.get(field.type, "int")


def _annotated(field: FieldDescriptor) -> str:
    """The type of a field and its default."""
    one = _type(field)
    if field.is_repeated:
        return f"tuple[{'tuple[int, int]' if is_runs(field) else one}, ...] = ()"
    if one == "Backoff":
        return "tuple[int, ...] | None = None"
    if _in_table(EMPTY, field):
        return f"{one} = {one}()"
    if field.has_presence:
        return f"{one} | None = None"
    if field.enum_type is not None and one not in _ENUMS:
        return f"{one} = {one}.{field.enum_type.values[0].name}"
    return f"{one} = {_ZEROS.get(one) or f'{one}.{next(iter(_ENUMS[one])).name}'}"


def _doc(text: str) -> str:
    """A comment as a docstring, which begins with a capital letter and ends with a full stop."""
    if not text:
        raise ValueError("admin.proto says nothing about it")
    begun = text if _AS_IT_IS.match(text) else text[0].upper() + text[1:]
    lines = "\n    ".join(textwrap.wrap(begun, 113, break_long_words=False, break_on_hyphens=False))
    return f'    """{lines}{"" if text.endswith(".") else "."}"""'


def _classes(known: Comments) -> Iterator[str]:
    file = admin_pb2.DESCRIPTOR
    for enum in file.enum_types_by_name.values():
        if enum.name not in INSIDE:
            values = "".join(f"    {value.name} = {value.number}\n" for value in enum.values)
            yield f"class {NAMES.get(enum.name, enum.name)}(IntEnum):\n{_doc(known.blocks[enum.name])}\n\n{values}"
    for message in _inner_first([one for one in file.message_types_by_name.values() if _is_shown(one)]):
        name = NAMES.get(message.name, message.name)
        lines = [
            f"@dataclass(frozen=True, slots=True)\nclass {name}(MessageRecord):",
            _doc(known.blocks[message.name]),
            "",
        ]
        for field in message.fields:
            if field.name not in LEFT_OUT:
                lines.append(f"    {field.name}: {_annotated(field)}")
                if comment := known.fields.get(f"{message.name}.{field.name}"):
                    lines.append(_doc(comment))
        yield "\n".join(lines) + "\n"


def admin_types() -> str:
    """The text of the module."""
    classes = list(_classes(comments()))
    names = sorted({*_ENUMS, *(each for text in classes for each in _CLASS.findall(text))})
    return "\n\n".join((HEAD + f"\n__all__ = {json.dumps(names, indent=4)[:-2]},\n]\n", *classes))


if __name__ == "__main__":
    PATH.write_text(admin_types(), encoding="utf-8")
