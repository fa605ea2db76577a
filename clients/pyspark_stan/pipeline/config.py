"""Reads and checks the TOML file of a pipeline; needs neither Spark nor Java nor a broker.

Promises to report together all mistakes that can be found without them, each with its key and line, and that a file which passes
has everything that `run` needs. Paths in a file are relative to the file's directory. Secrets are never shown.
"""

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark_stan.options import OptionsError, source_options
from pyspark_stan.pipeline.lines import KeyLines
from pyspark_stan.pipeline.payload import METADATA, Payload, payload_of
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
    tls: Mapping[str, str]

    def options(self) -> dict[str, str]:
        """Return the options for the data source, including secrets."""
        found = {
            "servers": self.servers,
            "clusterId": self.cluster_id,
            "user": self.user,
            "password": self.password.reveal(),
            "token": self.token.reveal(),
            "creds": self.creds,
            **{f"tls.{name}": path for name, path in self.tls.items()},
        }
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource:
    """Which messages are read."""

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
class Sink:
    """The destination of the results."""

    channel: str
    mode: Mode
    value: Literal["json", "raw"]
    more: Mapping[str, str]


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
    source: PipelineSource
    payload: Payload
    watermark: tuple[str, str] | None  # column, delay
    query: Query
    sink: Sink
    spark: Spark

    def source_options(self) -> dict[str, str]:
        """Return the options of the data source for reading, including secrets."""
        chosen = (
            {"subscribe": ",".join(self.source.channels)}
            if self.source.channels
            else {"subscribePattern": self.source.pattern}
        )
        return {**self.connection.options(), **chosen, **self.source.more}

    def sink_options(self) -> dict[str, str]:
        """Return the options of the data source for publishing, including secrets."""
        return {**self.connection.options(), "channel": self.sink.channel, **self.sink.more}


def read_pipeline(file: Path, environment: Mapping[str, str]) -> Pipeline:
    """Return the pipeline that *file* describes; *environment* has the variables for `${NAME}`.

    Raises:
        PipelineConfigError: has all mistakes that were found.
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
    payload = payload_of(root.table("payload"), directory)
    pipeline = Pipeline(
        name=root.text("name", required=True),
        checkpoint=_place(root.text("checkpoint", required=True), directory),
        every=_duration(trigger, "every"),
        available_now=trigger.flag("available_now", default=False),
        connection=_connection(root.table("connection"), directory),
        source=_source(root.table("source")),
        payload=payload,
        watermark=_watermark(root, payload),
        query=query_of(root.table("query"), directory),
        sink=_sink(root.table("sink")),
        spark=_spark(root.table("spark")),
    )
    if pipeline.every and pipeline.available_now:
        trigger.complain("every", "give every or available_now, not both")
    trigger.finish()
    root.finish()
    if not root.complained_of("connection"):
        _ask_the_options(pipeline, root)
    if pipeline.sink.channel and pipeline.source.reads(pipeline.sink.channel):
        root.table("sink").complain("channel", "is read by this pipeline: it would read its own results for ever")
    return pipeline


def _connection(table: TomlTable, directory: Path) -> PipelineConnection:
    servers = table.text("servers", "nats://127.0.0.1:4222")
    if "@" in servers:
        table.complain("servers", "has a user or password in it: write user and password_env")
        servers = "nats://127.0.0.1:4222"
    found = PipelineConnection(
        servers=servers,
        cluster_id=table.text("cluster_id", "test-cluster"),
        user=table.text("user"),
        password=table.secret("password"),
        token=table.secret("token"),
        creds=_place(table.text("creds"), directory),
        tls={name: _place(table.text(f"tls_{name}"), directory) for name in ("ca", "cert", "key")},
    )
    table.finish()
    return found


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
    found = PipelineSource(channels=channels, pattern=pattern, more={**more, **table.table("options").texts_by_key()})
    table.finish()
    return found


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


def _sink(table: TomlTable) -> Sink:
    mode = table.choice("mode", MODES, "append")
    more = {}
    if table.given("delivery"):
        more["delivery"] = table.choice("delivery", DELIVERIES, DELIVERIES[0])
    found = Sink(
        channel=table.text("channel", required=True),
        mode=mode,  # type: ignore[arg-type] # one of MODES
        value=table.choice("value", ("json", "raw"), "json"),  # type: ignore[arg-type] # one of both
        more={**more, **table.table("options").texts_by_key()},
    )
    if found.channel and (set(found.channel) & set("*> \t\r\n") or not all(found.channel.split("."))):
        table.complain("channel", f"{found.channel!r} is no channel's name")
    table.finish()
    return found


def _spark(table: TomlTable) -> Spark:
    master = table.text("master", "local[*]")
    if not re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn", master):
        table.complain("master", f"must be local[*], local[2], spark://..., k8s://... or yarn, not {master!r}")
    found = Spark(master=master, conf=table.table("conf").texts_by_key())
    table.finish()
    return found


def _ask_the_options(pipeline: Pipeline, root: TomlTable) -> None:
    """Let the source and the sink check their options now, as they would at run time."""
    checks: list[tuple[str, Callable[[], object]]] = []
    if pipeline.source.channels or pipeline.source.pattern:
        checks.append(("source", lambda: source_options(pipeline.source_options(), "stream")))
    with contextlib.suppress(ImportError):  # the check of the sink's options needs pyspark, because some name columns
        from pyspark_stan.writing.sink_options import sink_options  # noqa: PLC0415 - not installed everywhere

        if pipeline.sink.channel and not root.complained_of("sink"):
            checks.append(("sink", lambda: sink_options(pipeline.sink_options(), None, "stream")))
    told: set[str] = set()
    for key, check in checks:
        try:
            check()
        except OptionsError as error:
            for complaint in error.complaints:
                if complaint not in told:
                    root.table(key).complain("", complaint)
                told.add(complaint)


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
    return [
        ("read", f"{pipeline.source.title} from {pipeline.source.more['startingOffsets']}, {trigger}"),
        ("broker", f"{pipeline.connection.servers}, cluster {pipeline.connection.cluster_id}"),
        ("decode", pipeline.payload.title),
        *(
            [("wait", f"{pipeline.watermark[1]} for late events, by {pipeline.watermark[0]}")]
            if pipeline.watermark
            else []
        ),
        ("transform", pipeline.query.title),
        ("publish", f"to {pipeline.sink.channel}, {pipeline.sink.mode}: {mode}"),
        ("remember", f"in {pipeline.checkpoint}"),
        ("run", f"on Spark at {pipeline.spark.master}"),
    ]
