"""The page with all requests beside the STAN protocol: fields from the descriptors, words from their source."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from stan_protocol.proto import admin_pb2, extension_pb2

from docs.generator.markdown import code, codes, page, shown, table
from stan.core.requests.table import REQUESTS, RequestKind

SOURCES: Final = (admin_pb2, extension_pb2)
_BLOCK: Final = re.compile(r"(\s*)(message|enum|oneof) (\w+) \{")
_FIELD: Final = re.compile(r"\s*(?:optional |repeated )?(?:[\w.]+ )?(\w+) = \d+(?: \[[^]]*\])?;(?:\s*//\s*(.*))?")
_COMMENT: Final = re.compile(r"\s*//\s?(.*)")
_LINE: Final = re.compile(r"-{3,}")
_TYPES: Final = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


class Comments(NamedTuple):
    """The comments of messages and enums, and of their fields and values ("Message.field")."""

    blocks: dict[str, str]
    fields: dict[str, str]


def comments() -> Comments:
    """Comments of the files of requests."""
    known = Comments({}, {})
    for module in SOURCES:
        _read(Path(str(module.__file__)).parent / Path(module.DESCRIPTOR.name).name, known)
    return known


def _read(path: Path, known: Comments) -> None:
    above: list[str] = []
    inside = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        comment, begun, field = _COMMENT.fullmatch(line), _BLOCK.match(line), _FIELD.match(line)
        if comment is not None:
            above.append(comment[1])
            continue
        if begun is not None and begun[2] != "oneof":
            inside = begun[3]
            known.blocks[inside] = "" if any(map(_LINE.search, above)) else " ".join(above)
        elif field is not None:
            known.fields[f"{inside}.{field[1]}"] = " ".join(filter(None, (*above, field[2])))
        above = []


def _type(field: FieldDescriptor) -> str:
    inner = field.message_type or field.enum_type
    told = f"[{code(inner.name)}](#{inner.name.lower()})" if inner is not None else code(_TYPES[field.type])
    return f"list of {told}" if field.is_repeated else told


def _fields(message: Any, known: Comments) -> str:
    rows = []
    for field in message.fields:
        choice = field.containing_oneof
        one_of = (
            "" if choice is None or choice.name.startswith("_") else f"One of {codes(f.name for f in choice.fields)}. "
        )
        rows.append((code(field.name), _type(field), one_of + shown(known.fields[f"{message.name}.{field.name}"])))
    return table(("field", "type", "what"), rows)


def _about(kind: RequestKind, known: Comments) -> Iterator[str]:
    yield f"### {kind.name}"
    told = known.blocks[kind.request.DESCRIPTOR.name]
    if told:
        yield shown(told)
    rows = [
        ("subject", code(f"_STAN.x.CLUSTER.{kind.name}")),
        ("answered by", shown(kind.scope.value)),
        ("right", " or ".join(code(right.name.lower()) for right in kind.rights)),
        ("invalid", code(kind.invalid)),
    ]
    if kind.of_logs:
        rows.append(("ephemeral channels", f"refuse it: {shown(kind.of_logs)} cannot be had of them"))
    yield table(("", ""), rows)
    for message in (kind.request.DESCRIPTOR, kind.response.DESCRIPTOR):
        yield (
            f"[{code(message.name)}](#{message.name.lower()})"
            if message.name in SHARED
            else f"**{code(message.name)}**"
        )
        if message.name not in SHARED and message.fields:
            yield _fields(message, known)


def _used(descriptors: list[Any]) -> dict[str, Any]:
    """Messages and enums in the fields of messages, and in theirs, by name."""
    found: dict[str, Any] = {}
    while descriptors:
        for field in getattr(descriptors.pop(), "fields", ()):
            inner = field.message_type or field.enum_type
            if inner is not None and inner.name not in found:
                found[inner.name] = inner
                descriptors.append(inner)
    return dict(sorted(found.items()))


_ALL: Final = [message.DESCRIPTOR for kind in REQUESTS.values() for message in (kind.request, kind.response)]
SHARED: Final = frozenset(message.name for message in _ALL if _ALL.count(message) > 1)
"""Requests and answers of several kinds, which are described once."""


def _parts(known: Comments) -> Iterator[str]:
    used = _used([*_ALL]) | {message.name: message for message in _ALL if message.name in SHARED}
    for name, each in sorted(used.items()):
        yield f"### {name}"
        yield shown(known.blocks[name])
        if hasattr(each, "values"):
            rows = [
                (code(value.name), str(value.number), shown(known.fields.get(f"{name}.{value.name}", "")))
                for value in each.values
            ]
            yield table(("value", "number", "what"), rows)
        else:
            yield _fields(each, known)


def requests() -> str:
    """The page."""
    known = comments()
    operators = [kind for kind in REQUESTS.values() if kind.by_operators]
    return page(
        "Requests",
        "Every request that servers answer beside the STAN protocol, from the table by which they answer. All are NATS "
        "requests with a protobuf message in and out; `CLUSTER` is the cluster id. How to ask, who answers and what "
        "errors mean is told in [requests and HTTP](../admin-api.md).",
        "## Of clients",
        *(part for kind in REQUESTS.values() if not kind.by_operators for part in _about(kind, known)),
        "## Of operators",
        *(part for kind in operators for part in _about(kind, known)),
        "## Parts of messages",
        *_parts(known),
    )
