"""Decodes answers of the broker into typed columns, by the schemas that are registered for their channels.

JSON goes through Arrow, without Python code per message; Avro, protobuf, and the messages that Arrow does not read are decoded
one by one. A message with an unknown version makes the decoder request the newest ones from the broker.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from stan_protocol.compaction import DELETE_HEADER
from stan_protocol.schemas.kinds import HEADER

from pyspark_stan.errors import MalformedError
from pyspark_stan.options import SourceOptions
from pyspark_stan.payloads.schema import MALFORMED
from pyspark_stan.payloads.types import parse_type
from pyspark_stan.payloads.values import fitting_fields
from pyspark_stan.reading.decode import Decoder, mask, numbers
from pyspark_stan.reading.json_rows import TooManyOddError, patched, reader_of
from pyspark_stan.reading.registry import ABOUT, Registered, for_channel, registered_of
from pyspark_stan.schema import COLUMNS, NULLABLE
from pyspark_stan.transport import PASSING, with_retries

if TYPE_CHECKING:
    from stan_client import Fetched

Read = Callable[[bytes], Mapping[str, Any]]
_HEADER: Final = HEADER.decode()
_DELETE_HEADER: Final = DELETE_HEADER.decode()


class TypedDecoder:
    """Makes record batches with the columns of the payload, and those about the message."""

    def __init__(
        self,
        schema: StructType,
        schemas: Iterable[Registered],
        options: SourceOptions,
    ) -> None:
        """Make a decoder.

        Args:
            schema: the columns, all or some of those of `registry.typed_columns`.
            schemas: those registered when the read began.
            options: of the read.
        """
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        kinds = {field.name: parse_type(field.dataType.simpleString()) for field in schema if field.name not in ABOUT}
        self._fit = fitting_fields(kinds)
        self._payload = pa.struct([self._arrow.field(name) for name in kinds])
        self._json = reader_of(self._payload)
        self._schemas = {each.pattern: each for each in schemas}
        self._options = options
        self._may_ask = True  # once for each answer: a message may name any version
        self._readers: dict[tuple[str, int], Read] = {}
        self._plain = Decoder(_plain_schema("headers", *(name[1:] for name in schema.names if name in ABOUT)))
        self._without_headers = Decoder(_plain_schema(*(name[1:] for name in schema.names if name in ABOUT)))

    def batch(self, answer: "Fetched") -> pa.RecordBatch:
        """Return the messages of an answer as one record batch.

        Raises:
            MalformedError: by the option malformed. ImportError: Avro needs fastavro. ValueError: the answer is damaged.
        """
        self._may_ask = True
        registered = for_channel(self._schemas.values(), answer.channel) or self._requested(answer.channel)
        by_json = registered is not None and registered.versions[registered.newest].format == "json"
        plain = (self._without_headers if by_json else self._plain).batch(answer)
        decoded = self._by_arrow if by_json else self._one_by_one
        payload, wrong = decoded(answer.channel, registered, plain)
        self._refuse(answer.channel, plain, wrong)
        batch = self._put_together(plain, payload, wrong)
        if wrong and self._options.malformed == "drop":
            batch = batch.filter(pc.invert(mask(answer.count, wrong)))
        return batch

    def _by_arrow(
        self, channel: str, registered: Registered | None, plain: pa.RecordBatch
    ) -> tuple[pa.StructArray, dict[int, str]]:
        """Return the payloads, and the reasons of those that could not be decoded, by row."""
        if not self._payload.num_fields:
            return pa.nulls(len(plain), self._payload), {}
        try:
            payload, odd = self._json.read(plain.column("value"))
        except (TooManyOddError, pa.ArrowException, NotImplementedError, KeyError):
            return self._one_by_one(channel, registered, plain)
        if not odd:
            return payload, {}
        by_hand, wrong = self._one_by_one(channel, registered, plain.take(numbers(odd)))
        return patched(payload, odd, by_hand), {odd[at]: why for at, why in wrong.items()}

    def _put_together(self, plain: pa.RecordBatch, payload: pa.StructArray, wrong: dict[int, str]) -> Any:
        names = plain.schema.names
        arrays = []
        for field in self._arrow:
            if field.name == MALFORMED:
                nothing = pa.nulls(len(plain), pa.binary())
                arrays.append(pc.if_else(mask(len(plain), wrong), plain.column("value"), nothing))
            elif field.name in ABOUT and field.name[1:] in names:
                arrays.append(plain.column(field.name[1:]).cast(field.type))
            else:
                arrays.append(pc.struct_field(payload, field.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _one_by_one(
        self, channel: str, registered: Registered | None, plain: pa.RecordBatch
    ) -> tuple[pa.StructArray, dict[int, str]]:
        """Return the same as `_by_arrow`, of any format."""
        if not self._payload.num_fields:
            return pa.nulls(len(plain), self._payload), {}
        rows: list[dict[str, Any] | None] = []
        wrong = {}
        headers = plain.column("headers").to_pylist() if "headers" in plain.schema.names else None
        for row, value in enumerate(plain.column("value").to_pylist()):
            try:
                pairs = headers[row] if headers else None
                read = self._reader(channel, registered, _version(pairs))
                rows.append({} if not value and _is_deleted(registered, pairs) else self._fit(read(value)))
            except (ImportError, *PASSING):
                raise
            except Exception as error:  # noqa: BLE001 - malformed bytes may raise any exception
                rows.append(None)
                wrong[row] = str(error) or type(error).__name__
        return pa.array(rows, self._payload), wrong

    def _reader(self, channel: str, registered: Registered | None, version: int) -> Read:
        """Return the decoder for messages of a version; 0: the newest."""
        number = version or (registered.newest if registered else 0)
        key = (registered.pattern if registered else "", number)
        if key not in self._readers:
            if registered is None or number not in registered.versions:
                registered = self._requested(channel)
            if registered is None or number not in registered.versions:
                raise ValueError(f"no version {number} of its schema is registered")
            self._readers[registered.pattern, number] = registered.versions[number].reader()
            key = (registered.pattern, number)
        return self._readers[key]

    def _requested(self, channel: str) -> Registered | None:
        if not self._may_ask:
            return None
        self._may_ask = False
        options = self._options
        registered = with_retries(
            options.connection,
            options.retries,
            options.retry_pause_s,
            lambda client: registered_of(client, channel),
        )
        if registered is not None:
            self._schemas[registered.pattern] = registered
        return registered

    def _refuse(self, channel: str, plain: pa.RecordBatch, wrong: dict[int, str]) -> None:
        if wrong and self._options.malformed == "fail":
            row, why = next(iter(wrong.items()))
            raise MalformedError(
                f"stan: message {plain.column('sequence')[row].as_py()} of {channel} is not what its schema says: {why}; "
                "malformed=drop goes on without such messages, malformed=keep has them in the column _malformed"
            )


def _version(headers: list[dict[str, Any]] | None) -> int:
    """The version that a message's headers name; 0: none."""
    value = next((pair["value"] for pair in headers or () if pair["key"] == _HEADER), b"")
    return int(value) if value.isdigit() else 0


def _is_deleted(registered: Registered | None, headers: list[dict[str, Any]] | None) -> bool:
    """True if a message without data is a tombstone: of protobuf it may be a message, of other formats it cannot."""
    if registered is None or registered.versions[registered.newest].format != "protobuf":
        return True
    return any(pair["key"] == _DELETE_HEADER for pair in headers or ())


def _plain_schema(*names: str) -> StructType:
    """The columns of the data source that a decoder needs."""
    read = {"value", "sequence", *names} & COLUMNS.keys()
    schema = StructType()
    for name in COLUMNS:
        if name in read:
            schema.add(name, COLUMNS[name], name in NULLABLE)
    return schema
