"""Reads and checks the TOML file of a pipeline; needs neither Spark nor Java nor a broker.

Promises to report together all mistakes that show without them, each with its key and line, and that a file which passes
has everything that `run` needs. Paths in a file are relative to the file's directory. Secrets are never shown.
"""

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pyspark_stan.errors import OptionsError
from pyspark_stan.options import source_options
from pyspark_stan.pipeline.lines import KeyLines
from pyspark_stan.pipeline.payload import METADATA, Payload, avro_schema_of, payload_of
from pyspark_stan.pipeline.queries import Query, query_of
from pyspark_stan.pipeline.tables import Complaint, Secret, TomlTable

Mode = Literal["append", "update", "complete"]
MODES: Final = ("append", "update", "complete")
DELIVERIES: Final = ("transactional", "idempotent", "at-least-once")
_DURATION: Final = re.compile(r"\d+ (millisecond|second|minute|hour|day|week)s?")
_DURATION_WANTED: Final = "must be a duration such as '500 milliseconds', '10 seconds' or '1 hour'"
_AT: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


class PipelineConfigError(Exception):
    """The file cannot be used; `complaints` are all its mistakes, ordered by line."""

    def __init__(self, complaints: list[Complaint]) -> None:
        self.complaints = sorted(complaints)
        super().__init__("\n".join(map(str, self.complaints)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConnection:
    """Address and login of the broker."""

    servers: str
    cluster_id: str
    user: str
    password: Secret
    token: Secret
    creds: str
    nkey: str
    tls: Mapping[str, str]

    def options(self) -> dict[str, str]:
        """Return the options for the data source, including secrets."""
        options = {
            "servers": self.servers,
            "clusterId": self.cluster_id,
            "user": self.user,
            "password": self.password.reveal(),
            "token": self.token.reveal(),
            "creds": self.creds,
            "nkey": self.nkey,
            **{f"tls.{name}": path for name, path in self.tls.items()},
        }
        return {name: value for name, value in options.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource:
    """The messages that are read."""

    channels: tuple[str, ...]
    pattern: str
    more: Mapping[str, str]  # further options of the data source

    @property
    def title(self) -> str:
        """The channels, as shown to the user."""
        return ", ".join(self.channels) or f"channels like {self.pattern}"

    def reads(self, channel: str) -> bool:
        """Return True if the source reads *channel*; a pattern that is not a valid expression matches no channel."""
        with contextlib.suppress(re.error):
            return channel in self.channels or bool(self.pattern and re.fullmatch(self.pattern, channel))
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """Messages that are read, and how they become rows of a view."""

    view: str
    source: PipelineSource
    payload: Payload
    watermark: tuple[str, str] | None  # column, delay


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """A table for the results."""

    format: Literal["delta", "iceberg"]
    name: str  # a directory or URL; of Iceberg the name with that of its namespace
    catalog: Mapping[str, str] = field(repr=False)  # of Iceberg; secrets are in it
    keys: tuple[str, ...]
    order: str
    deletes: str  # a condition in SQL
    app: str  # whose batches these are; "": the query's


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The destination of the results: a channel or a table."""

    channel: str
    mode: Mode
    value: Literal["json", "avro", "raw"]
    avro: str  # the schema of values in Avro, as JSON
    more: Mapping[str, str]
    table: TableSink | None

    @property
    def title(self) -> str:
        """The channel or table, as shown to the user."""
        return f"the {self.table.format} table {self.table.name}" if self.table else self.channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """Settings of the Spark session."""

    master: str
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole pipeline: its name, and one field or table for each table of the file."""

    name: str
    checkpoint: str
    every: str  # interval of the batches, in Spark's words; empty: each starts when the one before has ended
    available_now: bool  # read the messages that exist now, then end
    connection: PipelineConnection
    inputs: tuple[PipelineInput, ...]
    query: Query
    sink: Sink
    spark: Spark

    @property
    def title(self) -> str:
        """The channels, and the place of the results, as shown to the user."""
        return f"{', '.join(each.source.title for each in self.inputs)} to {self.sink.title}"

    def source_options(self, of: PipelineInput) -> dict[str, str]:
        """Return the options of the data source for reading, including secrets."""
        source, payload = of.source, of.payload
        chosen = {"subscribe": ",".join(source.channels)} if source.channels else {"subscribePattern": source.pattern}
        typed = {"schema": "auto", "malformed": payload.malformed} if payload.format == "registered" else {}
        return {**self.connection.options(), **chosen, **source.more, **typed}

    def sink_options(self) -> dict[str, str]:
        """Return the options of the data source for publishing, including secrets."""
        return {**self.connection.options(), "channel": self.sink.channel, **self.sink.more}


def read_pipeline(file: Path, environment: Mapping[str, str]) -> Pipeline:
    """Return the pipeline that *file* describes; *environment* has the variables for `${NAME}`.

    Raises:
        PipelineConfigError: has all mistakes.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise PipelineConfigError([Complaint(0, "", f"cannot read {file}: {reason}")]) from error
    return parse_pipeline(text, file.parent, environment)


def parse_pipeline(text: str, directory: Path, environment: Mapping[str, str]) -> Pipeline:
    """Return the pipeline that the TOML *text* describes; paths in it are relative to *directory*. Errors as of
    `read_pipeline`."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        raise PipelineConfigError(
            [Complaint(int(at[1]) if at else 0, "", f"not TOML: {_AT.sub('', str(error))}")]
        ) from error
    complaints: list[Complaint] = []
    root = TomlTable(values, (), KeyLines(text), complaints, environment)
    pipeline = _pipeline(root, directory)
    if complaints:
        raise PipelineConfigError(complaints)
    return pipeline


def _pipeline(root: TomlTable, directory: Path) -> Pipeline:
    trigger = root.table("trigger")
    query = query_of(root.table("query"), directory)
    pipeline = Pipeline(
        name=root.text("name", required=True),
        checkpoint=_place(root.text("checkpoint", required=True), directory),
        every=_duration(trigger, "every"),
        available_now=trigger.flag("available_now", default=False),
        connection=_connection(root.table("connection"), directory),
        inputs=_inputs(root, directory, query),
        query=query,
        sink=_sink(root.table("sink"), directory),
        spark=_spark(root.table("spark")),
    )
    if pipeline.every and pipeline.available_now:
        trigger.complain("every", "give every or available_now, not both")
    trigger.finish()
    root.finish()
    if not root.complained_of("connection"):
        _ask_the_options(pipeline, root)
    if pipeline.sink.channel and any(each.source.reads(pipeline.sink.channel) for each in pipeline.inputs):
        root.table("sink").complain("channel", "is read by this pipeline: it would read its own results for ever")
    return pipeline


def _connection(table: TomlTable, directory: Path) -> PipelineConnection:
    servers = table.text("servers", "nats://127.0.0.1:4222")
    if "@" in servers:
        table.complain("servers", "has a user or password in it: write user and password_env")
        servers = "nats://127.0.0.1:4222"
    connection = PipelineConnection(
        servers=servers,
        cluster_id=table.text("cluster_id", "test-cluster"),
        user=table.text("user"),
        password=table.secret("password"),
        token=table.secret("token"),
        creds=_place(table.text("creds"), directory),
        nkey=_place(table.text("nkey"), directory),
        tls={name: _place(table.text(f"tls_{name}"), directory) for name in ("ca", "cert", "key")},
    )
    table.finish()
    return connection


def _inputs(root: TomlTable, directory: Path, query: Query) -> tuple[PipelineInput, ...]:
    """Read `source`, `payload` and `watermark`, or all of them for each table of `sources`."""
    if not root.given("sources"):
        payload = payload_of(root.table("payload"), directory)
        source, watermark = _source(root.table("source")), _watermark(root, payload)
        return (PipelineInput(view=query.view, source=source, payload=payload, watermark=watermark),)
    for key in ("source", "payload", "watermark"):
        if root.given(key):
            root.complain(key, "goes into the tables of sources, where there are some")
    if root.table("query").given("view"):
        root.table("query").complain("view", "has no meaning for several sources: the views have their names")
    inputs = []
    for name, table in root.table("sources").tables().items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            table.complain("", f"must be a name such as clicks, not {name!r}: a view gets it")
        payload = payload_of(table.table("payload"), directory)
        watermark = _watermark(table, payload)
        inputs.append(PipelineInput(view=name, source=_source(table), payload=payload, watermark=watermark))
    if not inputs:
        root.complain("sources", "has no tables, such as [sources.clicks]")
    return tuple(inputs)


_SOURCE_KEYS: Final = {"max_per_trigger": "maxOffsetsPerTrigger", "min_per_trigger": "minOffsetsPerTrigger"}


def _source(table: TomlTable) -> PipelineSource:
    channels, pattern = table.words("channels"), table.text("pattern")
    if bool(channels) == bool(pattern):
        if not (table.given("channels") or table.given("pattern")):
            table.complain("channels", 'is missing: write channels = ["..."], or pattern = "..."')
        elif channels:
            table.complain("pattern", "give channels or pattern, not both")
        else:
            for key in filter(table.given, ("channels", "pattern")):
                if not table.complained_of(key):
                    table.complain(key, "is empty")
    more = {"startingOffsets": _start(table)}
    for key, option in _SOURCE_KEYS.items():
        if table.given(key):
            more[option] = str(table.number(key))
    if not table.flag("fail_on_data_loss", default=True):
        more["failOnDataLoss"] = "false"
    source = PipelineSource(channels=channels, pattern=pattern, more={**more, **table.table("options").texts_by_key()})
    table.finish()
    return source


def _start(table: TomlTable) -> str:
    if table.holds("start", dict):
        return json.dumps(table.numbers("start"))
    return table.choice("start", ("earliest", "latest"), "earliest")


def _watermark(root: TomlTable, payload: Payload) -> tuple[str, str] | None:
    if not root.given("watermark"):
        return None
    table = root.table("watermark")
    column, delay = table.text("column", required=True), _duration(table, "delay", required=True)
    table.finish()
    columns = {**METADATA, **payload.columns}
    if column and payload.columns and column not in columns:
        table.complain("column", f"the payload has no column {column!r}; there are {', '.join(columns)}")
    elif column in columns and columns[column].lower() not in ("timestamp", "timestamp_ntz"):
        table.complain("column", f"{column!r} is {columns[column]}, and must be timestamp")
    return column, delay


VALUES: Final = ("json", "avro", "raw")
_OF_CHANNELS: Final = ("channel", "value", "delivery", "options", "schema", "schema_file")


def _sink(table: TomlTable, directory: Path) -> Sink:
    mode = table.choice("mode", MODES, "append")
    into = _table_sink(table, directory, mode)
    more = {}
    if table.given("delivery"):
        more["delivery"] = table.choice("delivery", DELIVERIES, DELIVERIES[0])
    value = table.choice("value", VALUES, "json")
    schema = avro_schema_of(table, directory) if value == "avro" and not into else None
    sink = Sink(
        channel=table.text("channel", required=into is None),
        mode=mode,  # type: ignore[arg-type] # one of MODES
        value=value,  # type: ignore[arg-type] # one of VALUES
        avro=schema.text.decode() if schema else "",
        more={**more, **table.table("options").texts_by_key()},
        table=into,
    )
    if sink.channel and (set(sink.channel) & set("*> \t\r\n") or not all(sink.channel.split("."))):
        table.complain("channel", f"{sink.channel!r} is no channel's name")
    table.finish()
    return sink


def _table_sink(table: TomlTable, directory: Path, mode: str) -> TableSink | None:
    """Read the keys of a table; None if the results go to a channel."""
    named = [key for key in ("delta", "iceberg") if table.given(key)]
    keys, order, deletes, app = table.words("keys"), table.text("order"), table.text("deletes"), table.text("app")
    catalog = table.table("catalog").texts_by_key()
    if not named:
        for key in filter(table.given, ("keys", "order", "deletes", "app", "catalog")):
            table.complain(key, "goes with delta or iceberg")
        return None
    kind = named[0]
    for key in (*named[1:], *filter(table.given, _OF_CHANNELS)):
        table.complain(key, f"does not go with {kind}")
    for key in filter(table.given, ("order", "deletes")):
        if not keys:
            table.complain(key, "goes with keys")
    if mode == "complete":
        table.complain("mode", "complete does not go with a table: update with keys keeps it up to date")
    if mode == "update" and not keys:
        table.complain("keys", "is missing: which columns identify a row that is updated")
    name = table.text(kind, required=True)
    if kind == "iceberg" and "." not in name:
        table.complain(kind, f"must be a name with that of its namespace, such as shop.orders, not {name!r}")
    if kind == "delta" and catalog:
        table.complain("catalog", "goes with iceberg")
    return TableSink(
        format=kind,  # type: ignore[arg-type] # one of both
        name=_place(name, directory) if kind == "delta" else name,
        catalog=catalog,
        keys=keys,
        order=order,
        deletes=deletes,
        app=app,
    )


def _spark(table: TomlTable) -> Spark:
    master = table.text("master", "local[*]")
    if not re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn", master):
        table.complain("master", f"must be local[*], local[2], spark://..., k8s://... or yarn, not {master!r}")
    spark = Spark(master=master, conf=table.table("conf").texts_by_key())
    table.finish()
    return spark


def _ask_the_options(pipeline: Pipeline, root: TomlTable) -> None:
    """Let the source and the sink check their options now, as they would at run time."""
    checks: list[tuple[TomlTable, Callable[[], object]]] = []
    several = root.given("sources")
    for each in pipeline.inputs:
        if each.source.channels or each.source.pattern:
            table = root.table("sources").table(each.view) if several else root.table("source")
            checks.append((table, lambda each=each: source_options(pipeline.source_options(each), "stream")))  # type: ignore[misc]
    with contextlib.suppress(ImportError):  # the check of the sink's options needs pyspark, because some name columns
        from pyspark_stan.writing.sink_options import sink_options  # noqa: PLC0415 - not installed everywhere

        if pipeline.sink.channel and not root.complained_of("sink"):
            checks.append((root.table("sink"), lambda: sink_options(pipeline.sink_options(), None, "stream")))
        into = pipeline.sink.table
        if into and not root.complained_of("sink"):
            from pyspark_stan.tables.upserts import upserts_of  # noqa: PLC0415 - it needs pyarrow

            checks.append((root.table("sink"), lambda: upserts_of(into.format, into.keys, into.order, into.deletes)))
    reported: set[str] = set()
    for table, check in checks:
        try:
            check()
        except OptionsError as error:
            for complaint in error.complaints:
                if complaint not in reported:
                    table.complain("", complaint)
                reported.add(complaint)


def _duration(table: TomlTable, key: str, *, required: bool = False) -> str:
    value = table.text(key, required=required)
    if value and not _DURATION.fullmatch(value):
        table.complain(key, f"{_DURATION_WANTED}, not {value!r}")
    return value


def _place(path: str, directory: Path) -> str:
    """Return *path* relative to the file's *directory* as an absolute path; URLs such as hdfs://... stay as they are."""
    if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        return path
    return str((directory / path).absolute())


def summary(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """Describe the pipeline for people, as names and texts, without secrets."""
    mode = {
        "append": "each result once, when it is final",
        "update": "each result again when it has changed",
        "complete": "all results again and again",
    }[pipeline.sink.mode]
    trigger = "what is there now, then end" if pipeline.available_now else f"every {pipeline.every or 'moment'}"
    several = len(pipeline.inputs) > 1
    inputs = []
    for each in pipeline.inputs:
        view = f" as {each.view}" if several else ""
        inputs += [
            ("read", f"{each.source.title} from {each.source.more['startingOffsets']}, {trigger}{view}"),
            ("decode", each.payload.title),
        ]
        if each.watermark:
            inputs.append(("wait", f"{each.watermark[1]} for late events, by {each.watermark[0]}"))
    return [
        *inputs,
        ("broker", f"{pipeline.connection.servers}, cluster {pipeline.connection.cluster_id}"),
        ("transform", pipeline.query.title),
        ("publish", f"to {pipeline.sink.title}, {pipeline.sink.mode}: {mode}"),
        ("remember", f"in {pipeline.checkpoint}"),
        ("run", f"on Spark at {pipeline.spark.master}"),
    ]
