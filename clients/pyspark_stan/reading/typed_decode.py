"""Decodes answers of the broker into typed columns, by the schemas that are registered for their channels.

JSON goes through Arrow, without Python code per message, as long as all messages of an answer fit their schema; Avro,
protobuf, and answers with other messages are decoded one by one. A message with an unknown version makes the
decoder request the newest ones from the broker.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from stan_protocol.compaction import DELETE_HEADER
from stan_protocol.schemas.kinds import HEADER

from pyspark_stan.errors import MalformedError
from pyspark_stan.options import SourceOptions
from pyspark_stan.payloads.schema import MALFORMED
from pyspark_stan.payloads.types import parse_type
from pyspark_stan.payloads.values import fitting_fields
from pyspark_stan.reading.decode import Decoder, numbers, text_array
from pyspark_stan.reading.registry import ABOUT, Registered, for_channel, registered_of
from pyspark_stan.schema import COLUMNS, NULLABLE
from pyspark_stan.transport import PASSING, with_retries

if TYPE_CHECKING:
    from stan_client import Fetched

Read = Callable[[bytes], Mapping[str, Any]]
_TRIM: Final = pc.TrimOptions(" \t\r\n")
_BEGIN: Final = pc.MatchSubstringOptions("{")
_END: Final = pc.MatchSubstringOptions("}")
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
        self._as_json = pa.schema([field.with_type(_in_json(field.type)) for field in self._payload])
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
        payload = self._by_arrow(plain.column("value")) if by_json and self._payload.num_fields else None
        wrong: dict[int, str] = {}
        if payload is None and self._payload.num_fields:
            payload, wrong = self._one_by_one(answer.channel, registered, plain)
        self._refuse(answer.channel, plain, wrong)
        batch = self._put_together(plain, payload, wrong)
        if wrong and self._options.malformed == "drop":
            keep = pa.array(row not in wrong for row in range(answer.count))
            batch = batch.filter(keep)
        return batch

    def _put_together(self, plain: pa.RecordBatch, payload: "pa.StructArray | None", wrong: dict[int, str]) -> Any:
        names = plain.schema.names
        arrays = []
        for field in self._arrow:
            if field.name == MALFORMED:
                mask = pa.array([row in wrong for row in range(len(plain))], pa.bool_())
                arrays.append(pc.if_else(mask, plain.column("value"), pa.scalar(None, pa.binary())))
            elif field.name in ABOUT and field.name[1:] in names:
                arrays.append(plain.column(field.name[1:]).cast(field.type))
            else:
                arrays.append(pc.struct_field(payload, field.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    # --- JSON by Arrow -----------------------------------------------------------------------------------------------

    def _by_arrow(self, values: pa.Array) -> "pa.StructArray | None":
        """Return the payloads; None if one of them does not fit the schema, or has types that Arrow does not read.

        Each message is an object that begins and ends, and no text goes over a line's end: as many rows as messages means one for
        each."""
        try:
            texts = pc.ascii_trim(values.cast(pa.string()), options=_TRIM)
            if not pc.all(pc.and_(pc.starts_with(texts, options=_BEGIN), pc.ends_with(texts, options=_END))).as_py():
                return None
            lines = pa.ListArray.from_arrays(numbers([0, len(texts)]), texts)
            joined = pc.binary_join(lines, text_array([b"\n"]))[0].as_buffer()
            table = pyarrow.json.read_json(
                pa.BufferReader(joined),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._as_json, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(values):
                return None
            columns = [
                table.column(field.name).combine_chunks().cast(field.type)
                if table.num_rows
                else pa.nulls(0, field.type)
                for field in self._payload
            ]
        except (pa.ArrowException, NotImplementedError, KeyError):
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self._payload))

    # --- one by one --------------------------------------------------------------------------------------------------

    def _one_by_one(
        self, channel: str, registered: Registered | None, plain: pa.RecordBatch
    ) -> tuple[pa.StructArray, dict[int, str]]:
        """Return the payloads, and the reasons of those that could not be decoded, by row."""
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


def _in_json(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's reader of JSON reads it, before it is cast to *kind*."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_json(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_json(kind.value_type))
    return kind
