"""The schemas that are registered for the channels of a read, and the columns which all of their versions have together."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stan_protocol.patterns import REST, matches, overlap
from stan_protocol.schemas.kinds import SchemaKind

from pyspark_stan.errors import OptionsError
from pyspark_stan.options import SourceOptions
from pyspark_stan.payloads.schema import MALFORMED, Format, PayloadSchema
from pyspark_stan.payloads.types import ColumnType, ddl, merged_fields, parse_type
from pyspark_stan.reading.parts import whole_in
from pyspark_stan.transport import with_retries

if TYPE_CHECKING:
    from pyspark.sql.types import StructType
    from stan_client.blocking import BlockingClient

_FORMATS: Final[dict[int, Format]] = {SchemaKind.JSON: "json", SchemaKind.AVRO: "avro", SchemaKind.PROTOBUF: "protobuf"}


class Registered(NamedTuple):
    """The versions of the schema of one pattern of channels, by their numbers."""

    pattern: str
    versions: Mapping[int, PayloadSchema]

    @property
    def newest(self) -> int:
        """The number of the newest version, by which messages without a version are written."""
        return max(self.versions)


def registered_for(options: SourceOptions) -> list[Registered]:
    """Ask the broker for the schemas of the channels that *options* read.

    Raises:
        OptionsError: a channel, or the whole pattern, has none. Others as of `with_retries`.
    """
    statuses: list[Any] = []
    complaints = []
    for channel in options.channels or ("",):
        matching = with_retries(
            options.connection,
            options.retries,
            options.retry_pause_s,
            lambda client, channel=channel: client.schemas(channel),  # type: ignore[misc]
        )
        if options.pattern:
            matching = [each for each in matching if _may_cover(each.pattern, options.asked)]
        if not matching:
            complaints.append(f"schema: none is registered for {channel or options.asked}")
        statuses += matching
    if complaints:
        raise OptionsError(complaints)
    return grouped(statuses)


def _may_cover(pattern: str, channels: str) -> bool:
    """Return True if some of *channels*, a pattern, has the schema of *pattern*, by its own name or as a part."""
    return overlap(pattern, channels) or (not pattern.endswith(REST) and overlap(f"{pattern}.~0", channels))


def registered_of(client: "BlockingClient", channel: str) -> Registered | None:
    """Return the schemas registered for *channel* now; None: there are none."""
    return next(iter(grouped(client.schemas(whole_in(channel)))), None)


def grouped(statuses: Iterable[Any]) -> list[Registered]:
    """Return the versions by their patterns; *statuses* are the broker's."""
    by_pattern: dict[str, dict[int, PayloadSchema]] = {}
    for each in statuses:
        versions = by_pattern.setdefault(each.pattern, {})
        versions[each.schema_version] = PayloadSchema(_FORMATS[each.kind], each.text, each.message)
    return [Registered(pattern, versions) for pattern, versions in sorted(by_pattern.items())]


def for_channel(schemas: Iterable[Registered], channel: str) -> Registered | None:
    """Return the schema whose pattern covers *channel*, or that of which it is a part: at most one does."""
    whole = whole_in(channel)
    return next((each for each in schemas if matches(each.pattern, whole)), None)


def typed_columns(options: SourceOptions, schemas: Iterable[Registered]) -> dict[str, ColumnType]:
    """Return the columns of a typed read: those of all versions, then those about the message.

    Raises:
        OptionsError: a version has no columns, or a name is there twice for Spark.
    """
    complaints = []
    columns: dict[str, ColumnType] = {}
    for each in schemas:
        for number, schema in sorted(each.versions.items()):
            try:
                columns = merged_fields(columns, schema.columns())
            except ValueError as error:
                complaints.append(f"schema: version {number} of {each.pattern}: {error}")
    about = _about(options)
    lowered = [name.lower() for name in (*columns, *about)]
    complaints += [
        f"schema: {name} is there twice, for Spark, in the registered versions and the columns {', '.join(about)}"
        for name in columns
        if lowered.count(name.lower()) > 1
    ]
    if complaints:
        raise OptionsError(complaints)
    return {**columns, **about}


def check_typed(options: SourceOptions, schemas: Iterable[Registered], schema: "StructType") -> None:
    """Refuse columns that a typed read does not have; it may have some of them only.

    Raises:
        OptionsError: has all mistakes in *schema*; others as of typed_columns.
    """
    known = typed_columns(options, schemas)
    complaints = []
    for field in schema:
        kind = known.get(field.name)
        given = field.dataType.simpleString()
        if kind is None:
            complaints.append(f"schema: no column {field.name}; there are {', '.join(known)}")
        elif parse_type(given) != kind:
            complaints.append(f"schema: {field.name} is {kind}, not {given}")
    if complaints:
        raise OptionsError(complaints)


def _about(options: SourceOptions) -> dict[str, ColumnType]:
    optional = {
        "_headers": options.headers,
        "_key": options.key,
        "_partition": options.partition,
        MALFORMED: options.malformed == "keep",
    }
    return {name: kind for name, kind in ABOUT.items() if optional.get(name, True)}


ABOUT: Final = {
    "_channel": ColumnType("string"),
    "_sequence": ColumnType("bigint"),
    "_timestamp": ColumnType("timestamp"),
    "_headers": ColumnType(
        "array", (ColumnType("struct", (ColumnType("string"), ColumnType("binary")), ("key", "value")),)
    ),
    "_key": ColumnType("binary"),
    "_partition": ColumnType("int"),
    MALFORMED: ColumnType("binary"),
}
"""Columns about the message, beside those of its payload."""


def typed_schema(options: SourceOptions) -> str:
    """Return the columns of a typed read as a schema in Spark's DDL syntax. Errors as of registered_for and typed_columns."""
    return ddl(typed_columns(options, registered_for(options)))
