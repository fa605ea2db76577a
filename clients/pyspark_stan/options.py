"""Reads and checks options of the data source: those that source and sink share, and those of the source.

Promises to report all mistakes together in one OptionsError, each with the option's name as documented; an unknown option is a
mistake. Spark passes keys in lower case, so their case never matters. Needs neither pyspark nor a broker.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, Literal

from stan_protocol.channels import is_channel_name
from stan_protocol.declared_options import filled, option
from stan_protocol.patterns import ONE, REST, literal, valid_name
from stan_protocol.scalars import MILLISECOND, SECOND
from stan_protocol.units import duration_ns

from pyspark_stan.errors import OptionsError

EARLIEST: Final = -2
LATEST: Final = -1
"""EARLIEST and LATEST stand for a sequence in JSON, as in Spark's Kafka source."""
SEQUENCE_MAX: Final = (1 << 63) - 1
"""Largest value of Spark's long; the broker's sequences have one bit more."""
TIME_MAX_NS: Final = (1 << 63) - 1
"""A moment in the year 2262, the largest Unix time in ns; later times are replaced by it."""

OF_SPARK: Final = {
    *("path", "checkpointlocation", "queryname"),
    *("provider", "owner", "comment", "location", "external", "is_managed_location", "collation"),  # of CREATE TABLE
}
"""Options that Spark itself adds."""
OF_CATALOG: Final = "option."
"""CREATE TABLE gives each option a second time, with this in front of its name."""
NONE_GIVEN: Final = (
    "no options at all: Spark passes those of CREATE TABLE on to no query, so say FROM name WITH (servers = '...', ...), "
    "or name such a query by CREATE VIEW"
)
OF_NATS: Final = {
    "connect_timeout": float,
    "reconnect_time_wait": float,
    "max_reconnect_attempts": int,
    "ping_interval": int,
    "max_outstanding_pings": int,
    "inbox_prefix": str,
    "tls_hostname": str,
    "name": str,
}
OF_NATS_FLAGS: Final = ("tls_handshake_first", "dont_randomize")
"""Arguments of nats-py's connect that may be given as `stan.<name>`, and those of them that are true or false."""
LOGINS: Final = {
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "user_credentials",
    "nkey": "nkeys_seed",
}
"""Options of the login, and what the client calls them."""
OF_TLS: Final = {
    "tls.ca": "tls_ca",
    "tls.cert": "tls_cert",
    "tls.key": "tls_key",
    "tls.ciphers": "tls_ciphers",
    "tls.minVersion": "tls_min_version",
}
"""Options of TLS, and what the client calls them."""


OF_KAFKA: Final = {
    "kafka.bootstrap.servers": ("servers", "NATS URLs"),
    "topic": ("channel", ""),
    "groupidprefix": ("consumerName", "the broker keeps no group for a query"),
    "kafka.group.id": ("consumerName", "the broker keeps no group for a query"),
    "kafka.client.id": ("stan.name", ""),
    "kafka.auto.offset.reset": ("startingOffsets", ""),
    "kafka.isolation.level": ("", "only committed rows are read"),
    "fetchoffset.numretries": ("fetch.numRetries", ""),
    "fetchoffset.retryintervalms": ("fetch.retryIntervalMs", ""),
    "kafkaconsumer.polltimeoutms": ("requestTimeoutMs", ""),
    "kafka.request.timeout.ms": ("requestTimeoutMs", ""),
    "kafka.fetch.max.bytes": ("fetchBytes", ""),
    "kafka.max.partition.fetch.bytes": ("fetchBytes", ""),
    "kafka.max.poll.records": ("maxRecordsPerPartition", ""),
    "kafka.acks": ("delivery", "a task always waits for all acks"),
    "kafka.enable.idempotence": ("delivery", ""),
    "kafka.transactional.id": ("txnAppId", ""),
    "kafka.batch.size": ("batchBytes", ""),
    "kafka.max.in.flight.requests.per.connection": ("maxInFlight", ""),
    "kafka.delivery.timeout.ms": ("ackTimeoutMs", ""),
    "kafka.retries": ("publish.numRetries", ""),
    "kafka.security.protocol": ("tls.ca", "and tls:// in servers"),
    "kafka.ssl.truststore.location": ("tls.ca", "a file in PEM"),
    "kafka.ssl.truststore.certificates": ("tls.ca", "a file in PEM"),
    "kafka.ssl.keystore.location": ("tls.cert", "and tls.key, files in PEM"),
    "kafka.ssl.keystore.key": ("tls.key", "and tls.cert, files in PEM"),
    "kafka.ssl.cipher.suites": ("tls.ciphers", "in OpenSSL's words"),
    "kafka.ssl.enabled.protocols": ("tls.minVersion", ""),
    "kafka.sasl.jaas.config": ("user", "and password, or token, creds or nkey"),
    "kafka.sasl.mechanism": ("user", "and password, or token, creds or nkey"),
}
"""Options of Spark's Kafka source and sink, in lower case: what they are called here, and more about it."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Address and login of the broker. Hashable, so that connections can be shared; secrets are not shown."""

    servers: tuple[str, ...]
    cluster_id: str = "test-cluster"
    timeout_s: float = 30.0
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # the client's arguments of LOGINS
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # those of OF_TLS
    nats: tuple[tuple[str, str | int | float], ...] = ()  # more arguments of nats-py's connect


class OptionReader:
    """Reads options one by one and collects complaints, which `finish` raises."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {key.lower(): str(value) for key, value in options.items()}
        self._known: dict[str, str] = {}  # lower case -> as documented
        self._complaints: list[str] = []

    def given(self, name: str) -> bool:
        """Return True if the user has given the option."""
        self._known[name.lower()] = name
        return name.lower() in self._options

    def text(self, name: str, default: str = "") -> str:
        """Return an option's text without spaces around it."""
        return self._options[name.lower()].strip() if self.given(name) else default

    def number(self, name: str, default: int, least: int = 0, most: int = SEQUENCE_MAX) -> int:
        """Return an option that must be a whole number from *least* to *most*."""
        if not self.given(name):
            return default
        try:
            value = int(self.text(name))
        except ValueError:
            self.complain(f"{name}: {self.text(name)!r} is not a whole number")
            return default
        if not least <= value <= most:
            self.complain(f"{name}: {value} is not between {least} and {most}")
            return default
        return value

    def option(self, kind: type, name: str, default: Any, *bounds: int) -> object:
        """Read a field of options by its type."""
        if kind is bool:
            return self.flag(name, default=default)
        if kind is float:
            return self.seconds(name, default)
        return self.number(name, default, *bounds) if kind is int else self.text(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that must be true or false."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """Return the word of *allowed* that an option names, in upper or lower case."""
        value = self.text(name, default)
        for word in allowed:
            if word.lower() == value.lower():
                return word
        self.complain(f"{name}: {value!r} is not one of {', '.join(allowed)}")
        return default

    def json(self, name: str) -> Any:
        """Parse an option's JSON; None if it is not valid."""
        try:
            return json.loads(self.text(name))
        except ValueError as error:
            self.complain(f"{name}: not JSON ({error})")
            return None

    def seconds(self, name: str, default: float) -> float:
        """Return an option's duration in seconds; Spark writes `15m`, `500ms` or `1.5s`, and a number alone is milliseconds."""
        if not self.given(name):
            return default
        try:
            return duration_ns(self.text(name).lower().replace(" ", ""), bare=MILLISECOND) / SECOND
        except ValueError as error:
            self.complain(f"{name}: {error}")
            return default

    def complain(self, text: str) -> None:
        """Add a complaint."""
        self._complaints.append(text)

    def connection(self) -> ConnectionOptions:
        """Read the options with the address and login of the broker."""
        servers = tuple(filter(None, (part.strip() for part in self.text("servers").split(","))))
        if not servers:
            self.complain("servers: required, for example nats://127.0.0.1:4222")
        if any("@" in server for server in servers):
            self.complain("servers: Spark's plans show a login in a URL; use user and password, token, creds or nkey")
        secrets = tuple((argument, self.text(name)) for name, argument in LOGINS.items() if self.given(name))
        if self.given("user") != self.given("password"):
            self.complain("user and password: one goes with the other")
        if sum(map(self.given, ("user", "token", "creds", "nkey"))) > 1:
            self.complain("user, token, creds and nkey: give one of them")
        if self.given("tls.minVersion"):
            self.choice("tls.minVersion", ("1.2", "1.3"), "1.2")
        tls = tuple((argument, text) for name, argument in OF_TLS.items() if (text := self.text(name)))
        if bool(self.text("tls.cert")) != bool(self.text("tls.key")):
            self.complain("tls.cert and tls.key: one goes with the other")
        timeout_s = self.number("requestTimeoutMs", 30_000, 1) / 1000
        return ConnectionOptions(
            servers, self.text("clusterId", "test-cluster"), timeout_s, secrets, tls, self._nats_arguments()
        )

    def _nats_arguments(self) -> tuple[tuple[str, str | int | float], ...]:
        arguments: list[tuple[str, str | int | float]] = []
        for name, kind in OF_NATS.items():
            key = f"stan.{name}"
            if self.given(key):
                try:
                    arguments.append((name, kind(self.text(key))))
                except ValueError:
                    self.complain(f"{key}: {self.text(key)!r} is not a number")
        flags = [
            (name, self.flag(f"stan.{name}", default=False)) for name in OF_NATS_FLAGS if self.given(f"stan.{name}")
        ]
        return (*arguments, *flags)

    def finish(self) -> None:
        """Complain about the options that were never read: they are unknown. Raises OptionsError if there are any complaints."""
        if not self._options:
            self.complain(NONE_GIVEN)
        for key in sorted(self._options.keys() - self._known.keys() - OF_SPARK):
            if key.startswith(OF_CATALOG) and key.removeprefix(OF_CATALOG) in self._options:
                continue
            self.complain(f"{key}: {self._unknown(key)}")
        if self._complaints:
            raise OptionsError(self._complaints)

    def _unknown(self, key: str) -> str:
        """Return the complaint about an unknown option."""
        here, more = OF_KAFKA.get(key, ("", ""))
        if here.lower() in self._known:
            return f"an option of Kafka; here it is {here}" + (f" ({more})" if more else "")
        if key.startswith(("kafka.", "kafkaconsumer.")):
            return "an option of Kafka, " + (more if more and not here else "which has no use here")
        import difflib  # noqa: PLC0415 - a worker has no mistakes to explain

        near = difflib.get_close_matches(key, self._known, 1)
        return "no such option" + (f"; {self._known[near[0]]}?" if near else "")


@dataclass(frozen=True, slots=True)
class ReadBound:
    """The start or the end of a read, for each channel."""

    default: int = EARLIEST  # EARLIEST or LATEST, for channels without a sequence or time of their own
    sequences: Mapping[str, int] = field(default_factory=dict)  # a sequence, EARLIEST or LATEST
    time_ns: int = 0  # Unix time for all channels; 0: none
    times_ns: Mapping[str, int] = field(default_factory=dict)
    latest_if_later: bool = False  # a time after the newest message means the channel's end, and is not a mistake


FETCH_BYTES: Final = 2 << 20


Malformed = Literal["fail", "drop", "keep"]
MALFORMED: Final[tuple[Malformed, ...]] = ("fail", "drop", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The source's options, checked."""

    connection: ConnectionOptions
    channels: tuple[str, ...]  # by name, sorted; empty with a pattern
    pattern: str  # or those whose whole name matches this regular expression
    asked: str  # the narrowest pattern of NATS that covers all channels which `pattern` may match
    start: ReadBound
    end: ReadBound
    rows_per_trigger: int = option("maxOffsetsPerTrigger", 0, 1)  # 0: no limit, as below
    bytes_per_trigger: int = option("maxBytesPerTrigger", 0, 1)
    rows_at_least: int = option("minOffsetsPerTrigger", 0, 1)
    trigger_delay_s: float = option("maxTriggerDelay", 15 * 60.0)
    parallelism: int = option("parallelism", 0, 1, 1 << 20)  # of Spark's tasks; 0: the CPUs that the driver may use
    partitions_at_least: int = option("minPartitions", 0, 1, 1 << 20)
    rows_per_partition: int = option("maxRecordsPerPartition", 0, 1)  # 0: as planning.rows_of_partition says
    fail_on_data_loss: bool = option("failOnDataLoss", True)
    wait_for_channels: bool = option("waitForChannels", False)
    headers: bool = option("includeHeaders", False)
    key: bool = option("includeKey", False)
    partition: bool = option("includePartition", False)
    fetch_bytes: int = option("fetchBytes", FETCH_BYTES, 1024, 1 << 30)
    retries: int = option("fetch.numRetries", 5)
    retry_pause_s: float
    consumer: str = option("consumerName", "")
    from_replica: bool = option("fromReplica", False)
    pushdown: bool = option("pushdown", False)
    cold: str = option("cold", "")  # a lake with the older messages
    typed: bool  # columns by the schemas that are registered for the channels
    malformed: Malformed  # the fate of a message that does not fit its schema


STREAM_ONLY: Final = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"),
    *("maxTriggerDelay", "consumerName", "waitForChannels"),
)
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
STRATEGIES: Final = ("error", "latest")


def source_options(options: Mapping[str, str], kind: Literal["batch", "stream", "any"] = "any") -> SourceOptions:
    """Return the checked options of a read; *kind* "any": a batch or a stream, not known yet.

    Raises:
        OptionsError: has all mistakes in *options*.
    """
    reader = OptionReader(options)
    connection = reader.connection()
    channels, pattern, asked, assigned = _chosen(reader)
    wrong_kind = {"batch": STREAM_ONLY, "stream": BATCH_ONLY, "any": ()}[kind]
    other = "batch" if kind == "stream" else "streaming"
    for name in filter(reader.given, wrong_kind):
        reader.complain(f"{name}: of {other} reads only")
    default_start = LATEST if kind == "stream" else EARLIEST
    start = _start(reader, channels, default_start)
    end = _end(reader, channels, start)
    if assigned:
        for name in ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", *BATCH_ONLY[:3]):
            if reader.given(name):
                reader.complain(f"{name}: assign says already where to start and end")
        start = ReadBound(default_start, {channel: first for channel, (first, _) in assigned.items()})
        end = ReadBound(LATEST, {channel: last for channel, (_, last) in assigned.items()})
        if kind == "stream" and set(end.sequences.values()) - {LATEST}:
            reader.complain("assign: a stream has no end")
    if kind == "batch" and (start.default == LATEST or LATEST in start.sequences.values()):
        reader.complain("startingOffsets: a batch cannot start at latest")
    checked = filled(
        SourceOptions,
        reader,
        connection=connection,
        channels=channels,
        pattern=pattern,
        asked=asked,
        start=start,
        end=end,
        retry_pause_s=reader.number("fetch.retryIntervalMs", 200) / 1000,
        typed=reader.choice("schema", ("auto", "off"), "off") == "auto",
        malformed=next(each for each in MALFORMED if each == reader.choice("malformed", MALFORMED, "fail")),
    )
    _check_typed(reader, checked)
    if checked.rows_per_trigger and checked.rows_at_least > checked.rows_per_trigger:
        reader.complain("minOffsetsPerTrigger: more than maxOffsetsPerTrigger")
    if reader.given("maxTriggerDelay") and not reader.given("minOffsetsPerTrigger"):
        reader.complain("maxTriggerDelay: goes with minOffsetsPerTrigger")
    reader.finish()
    return checked


def _check_typed(reader: OptionReader, options: SourceOptions) -> None:
    """Complain about options that do not go with typed columns, or only with them."""
    if options.cold and options.typed:
        reader.complain("cold: not with schema 'auto'")
    if reader.given("malformed") and not options.typed:
        reader.complain("malformed: goes with schema 'auto'")


def _chosen(reader: OptionReader) -> tuple[tuple[str, ...], str, str, dict[str, tuple[int, int]]]:
    """Return the names of the channels, or the pattern with that of NATS for requests; and the first and last sequence of each
    channel from `assign`."""
    ways = [name for name in ("path", "subscribe", "subscribePattern", "assign") if reader.given(name)]
    assigned: dict[str, tuple[int, int]] = {}
    if len(ways) != 1:
        given = " and ".join("load(path)" if name == "path" else name for name in ways) or "none is given"
        reader.complain(f"subscribe, subscribePattern, assign or load(path): one of them, but {given}")
    if "assign" in ways:
        assigned = _assigned(reader)
    names = [part.strip() for part in f"{reader.text('subscribe')},{reader.text('path')}".split(",")]
    channels = tuple(sorted({*filter(None, names), *assigned}))
    pattern = reader.text("subscribePattern")
    if len(ways) == 1 and not (channels or pattern):
        reader.complain(f"{ways[0]}: no channel")
    for channel in channels:
        if not (is_channel_name(channel.encode()) or (not assigned and valid_name(channel, wildcards=True))):
            reader.complain(f"{'assign' if assigned else 'subscribe'}: {channel!r} is no channel's name")
    if not assigned and not all(map(literal, channels)):
        return (), "|".join(map(_regular, channels)), _covering(channels), assigned
    try:
        re.compile(pattern)
    except re.error as error:
        reader.complain(f"subscribePattern: {pattern!r} is no regular expression ({error})")
        return channels, "", "", assigned
    return channels, pattern, _covering([_first_tokens(pattern)]) if pattern else "", assigned


def _regular(name: str) -> str:
    """Return a regular expression for a channel's name, which covers its parts, too, or for a pattern of NATS."""
    words = {ONE: "[^.]+", REST: ".+"}
    parts = r"(\.~\d+)?" if literal(name) else ""
    return r"\.".join(words.get(token) or re.escape(token) for token in name.split(".")) + parts


def _covering(names: Sequence[str]) -> str:
    """Return the pattern of NATS that covers all *names*, which may be patterns, and little else."""
    if len(names) == 1:
        return names[0]
    tokens = [name.split(".") for name in names]
    columns = zip(*tokens, strict=False)
    common = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    common = common[: min(map(len, tokens)) - 1]  # `orders.>` does not cover `orders`
    while common and common[-1] == REST:
        common.pop()
    return ".".join([*common, REST])


def _first_tokens(pattern: str) -> str:
    """Return the pattern of NATS for the whole tokens with which every match of a regular expression begins."""
    prefix = ""
    at = 0
    while at < len(pattern) and "|" not in pattern:
        escaped = pattern[at : at + 2] == r"\."
        if not escaped and not (pattern[at].isalnum() or pattern[at] in "_-"):
            break
        prefix += "." if escaped else pattern[at]
        at += 1 + escaped
        if pattern[at : at + 1] in {"?", "*", "{"}:  # the last one may not be there
            prefix = prefix[:-1]
            break
    return ".".join([*prefix.split(".")[:-1], REST])


def _assigned(reader: OptionReader) -> dict[str, tuple[int, int]]:
    places = reader.json("assign")
    assigned: dict[str, tuple[int, int]] = {}
    if isinstance(places, dict):
        for channel, value in places.items():
            first, last = value if isinstance(value, list) and len(value) == 2 else (value, LATEST)
            if not (_is_sequence(first) and _is_sequence(last)):
                reader.complain(f"assign: {channel!r} needs a sequence, or two of them")
            elif first == 0 and isinstance(value, list):
                reader.complain(f"assign: {channel!r} starts at 0, and sequences begin at 1; these are no partitions")
            elif 0 <= last < first:
                reader.complain(f"assign: {channel!r} ends at {last}, before it starts at {first}")
            else:
                assigned[channel] = (first, last)
    elif places is not None:
        reader.complain('assign: JSON such as {"orders": 1} or {"orders": [1, 1001]}')
    return assigned


def _start(reader: OptionReader, channels: Sequence[str], default: int) -> ReadBound:
    later = reader.choice("startingOffsetsByTimestampStrategy", STRATEGIES, "error") == "latest"
    names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    return _place(reader, names, channels, default, latest_if_later=later)


def _end(reader: OptionReader, channels: Sequence[str], start: ReadBound) -> ReadBound:
    names = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    place = _place(reader, names, channels, LATEST, latest_if_later=True)
    if place.default == EARLIEST or EARLIEST in place.sequences.values():
        reader.complain("endingOffsets: a batch cannot end at earliest")
    for channel, last in place.sequences.items():
        if 0 <= last < (first := start.sequences.get(channel, 0)):
            reader.complain(f"endingOffsets: {channel!r} ends at {last}, before it starts at {first}")
    return place


def _place(
    reader: OptionReader, names: tuple[str, str, str], channels: Sequence[str], default: int, *, latest_if_later: bool
) -> ReadBound:
    by_sequence, by_time, by_times = names
    given = [name for name in names if reader.given(name)]
    if len(given) > 1:
        reader.complain(f"{' and '.join(given)}: give one of them")
    sequences: dict[str, int] = {}
    times: dict[str, int] = {}
    word = reader.text(by_sequence).lower()
    if word in ("earliest", "latest"):
        default = EARLIEST if word == "earliest" else LATEST
    elif word:
        sequences = _per_channel(reader, by_sequence, channels)
        for channel in [channel for channel, value in sequences.items() if not _is_sequence(value)]:
            wrong = sequences.pop(channel)
            of_kafka = "; a channel has no partitions, and its parts are channels" if isinstance(wrong, dict) else ""
            reader.complain(f"{by_sequence}: {wrong!r} of {channel!r} is no sequence, nor -2 or -1{of_kafka}")
        default = EARLIEST if by_sequence == "startingOffsets" else LATEST
    if reader.given(by_times):
        for channel, value in _per_channel(reader, by_times, channels).items():
            times[channel] = _nanoseconds(reader, by_times, str(value))
    time_ns = _nanoseconds(reader, by_time, reader.text(by_time)) if reader.given(by_time) else 0
    return ReadBound(default, sequences, time_ns, times, latest_if_later)


def _per_channel(reader: OptionReader, name: str, channels: Sequence[str]) -> dict[str, Any]:
    """Return an option that is a JSON object with a key for each of *channels*; for any channel if there is a pattern."""
    values = reader.json(name)
    if not isinstance(values, dict):
        if values is not None:
            reader.complain(f"{name}: not a JSON object with channels as keys")
        return {}
    if channels and set(values) != set(channels):
        missing, foreign = sorted(set(channels) - set(values)), sorted(set(values) - set(channels))
        for text, names in (("nothing is said about", missing), ("not subscribed:", foreign)):
            if names:
                reader.complain(f"{name}: {text} {', '.join(names)}")
    return values


def _is_sequence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and EARLIEST <= value <= SEQUENCE_MAX


def _nanoseconds(reader: OptionReader, name: str, text: str) -> int:
    """Return Unix ns of *text*, which is Unix milliseconds or ISO 8601; a time without a zone is UTC."""
    try:
        if re.fullmatch(r"\d+", text):
            return min(max(int(text), 1) * 1_000_000, TIME_MAX_NS)
        when = datetime.fromisoformat(text)
    except ValueError:
        reader.complain(f"{name}: {text!r} is neither milliseconds since 1970 nor ISO 8601")
        return 0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    return min(max(nanoseconds, 1), TIME_MAX_NS)
