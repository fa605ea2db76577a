"""Checks of the data of a message by its schema, by kind. The data is untrusted: time and memory are bounded by its size."""

from collections.abc import Callable
from typing import Final

from stan_protocol.schemas import avro, json_data, protobuf
from stan_protocol.schemas.kinds import SchemaKind
from stan_protocol.schemas.rules import SchemaText

Check = Callable[[bytes], str]
"""Returns the path to the misfit, and the reason; "" if the data fits."""

_MAKERS: Final[dict[SchemaKind, Callable[[SchemaText], Check]]] = {
    SchemaKind.JSON: lambda schema: json_data.checker(schema.text),
    SchemaKind.AVRO: lambda schema: avro.checker(avro.parse(schema.text)),
    SchemaKind.PROTOBUF: lambda schema: protobuf.checker(protobuf.parse(schema.text, schema.message)),
}


def checker(schema: SchemaText) -> Check:
    """The check of data by a schema.

    Raises:
        SchemaError: it is none, or this program cannot check by it.
    """
    return _MAKERS[schema.kind](schema)
