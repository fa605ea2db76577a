"""Turns a command line into the action and settings of `stan-server`; pure.

Promises: `parse` never prints, exits, or opens a file by itself; it returns the action, the exit code and the settings. All
bad values are reported together, those of configuration files with file and line. Modelled on the original's option
processing (STAN-SPEC 12.1, 12.2).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from stan_protocol.declared_options import filled
from stan_protocol.refusals import go_quote
from stan_protocol.units import INT64_MAX

from stan.config import (
    ChannelLimits,
    ClusterConfig,
    Config,
    EncryptionConfig,
    HeartbeatConfig,
    LogConfig,
    MonitorConfig,
    NatsConfig,
    RequestLimits,
    StoreConfig,
    StoreKind,
    StoreLimits,
    SyncKind,
    TracingConfig,
)
from stan.labels import NO_LABELS, parse_labels
from stan.permissions import Permissions
from stan.settings.effective_settings import effective_settings
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagError, scan
from stan.settings.nats_settings import OWN_USER, embedded_settings, message_bytes, nats_settings
from stan.settings.nats_users import Login
from stan.settings.settings_reader import SettingsReader, clustered

if TYPE_CHECKING:
    from stan.settings.stream_conf import Reader

_CLUSTER_ONLY = (
    *("cluster_node_id", "cluster_bootstrap", "cluster_peers", "cluster_labels", "cluster_log_path"),
    *("replicas", "cluster_raft_logging", "cluster_allow_add_remove_node"),
)
_NATS_LOGINS = frozenset(
    {"authorization", "accounts", "no_auth_user", "operator", "resolver", "trusted_keys", "system_account"}
)
"""Keys of NATS about logins."""
_STORES: dict[str, StoreKind] = {"MEMORY": "memory", "FILE": "file", "SQL": "sql"}


_SLICES = ("file_slice_max_msgs", "file_slice_max_bytes", "file_slice_max_age")
_FILE_BOUNDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("buffer size value must be a positive number", 0, INT64_MAX, ("file_buffer_size",)),
    ("read buffer size value must be a positive number", 0, INT64_MAX, ("file_read_buffer_size",)),
    ("compact interval value must at least be 1 seconds", 1, INT64_MAX, ("file_compact_interval",)),
    ("compact fragmentation value must at least be 1", 1, INT64_MAX, ("file_compact_frag",)),
    ("compact minimum file size value must be a positive number", 0, INT64_MAX, ("file_compact_min_size",)),
    ("crc polynomial should be between 1 and 4294967295", 1, 0xFFFFFFFF, ("file_crc_poly",)),
    ("slice max values must be positive numbers", 0, INT64_MAX, _SLICES),
    ("file descriptor limit must be a positive number", 0, INT64_MAX, ("file_fds_limit",)),
    ("parallel recovery value must be at least 1", 1, INT64_MAX, ("file_parallel_recovery",)),
)
"""Options that are checked for a FILE store, and the bounds of the options (STAN-SPEC 8.3), even those without effect here."""


class Action(Enum):
    """The action that the command line requests."""

    SERVE = "serve"
    HELP = "help"
    VERSION = "version"
    HELP_TLS = "help_tls"
    CHECK = "check"
    SIGNAL = "signal"
    REFUSE = "refuse"  # only `complaint` to show


_LOGINS = frozenset({"user", "pass", "auth", "nats_server"})
"""Flags beside which the users of a file do not count."""

_WORDS = {"version": Action.VERSION, "help": Action.HELP, "help_tls": Action.HELP_TLS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A command line, understood."""

    action: Action
    complaint: str = ""  # shown on standard error before anything else
    exit_code: int = 0
    config: Config = field(default_factory=Config)
    complaints: tuple[str, ...] = ()  # why these settings cannot be served
    signal: str = ""
    files: tuple[str, ...] = ()  # of settings, that the command line names


def parse(
    argv: Sequence[str],
    read: "Reader | None" = None,
    environ: Mapping[str, str] | None = None,
    own_password: str = "",
) -> Parsed:
    """Understand the arguments behind the program's name, and the files that they name as far as *read* reads them; secrets may
    come from *environ*. With *own_password* our connection is a user of its own where the embedded nats-server has users.

    A line that cannot be read asks for the help with exit code 0, as the original does (STAN-SPEC 12.5).
    """
    try:
        scanned = scan(argv, TABLE)
    except FlagError as error:
        return Parsed(action=Action.HELP, complaint=str(error))
    values = SettingsReader(scanned.values, environ=environ or {})
    for argument in scanned.arguments:
        if argument.lower() not in _WORDS:
            text = f"unrecognized command: {go_quote(argument)}"
            return Parsed(action=Action.REFUSE, complaint=text, exit_code=1)
        return Parsed(action=_WORDS[argument.lower()])
    for key, action in _WORDS.items():
        if values.flag(key):
            return Parsed(action=action)
    if values.text("signal"):
        return Parsed(action=Action.SIGNAL, signal=values.text("signal"))
    streaming, nats = values.path("stan_config"), values.path("config")
    if read is not None and (streaming or nats):
        from stan.settings.stream_conf import read_files  # noqa: PLC0415 - not needed without a file

        own = Login(OWN_USER, own_password) if own_password and not _LOGINS & scanned.values.keys() else None
        values = SettingsReader(scanned.values, read_files(streaming, nats, read, own), environ or {})
    values.own_password = own_password
    config = _config(values)
    config = replace(config, settings=tuple(effective_settings(config, values)))
    action = Action.CHECK if values.flag("t") else Action.SERVE
    files = tuple(dict.fromkeys(str(file) for file in (streaming, nats) if file))
    return Parsed(action=action, config=config, files=files, complaints=(*_refused(values), *values.complaints))


def _config(values: SettingsReader) -> Config:
    nats, monitor = nats_settings(values), _monitor(values)
    return filled(
        Config,
        values,
        store=_store(values),
        limits=filled(StoreLimits, values, default=filled(ChannelLimits, values), per_channel=values.file.channels),
        requests=filled(RequestLimits, values, **message_bytes(values)),
        heartbeat=filled(HeartbeatConfig, values),
        nats=nats,
        embedded=embedded_settings(values),
        monitor=monitor,
        tracing=filled(TracingConfig, values),
        log=_log(values),
        cluster=_cluster(values),
        encryption=_encryption(values),
        permissions=_permissions(values),
        jetstream_api=values.given.get("jetstream_api", False) is not False,
        jetstream_channels=_jetstream_channels(values),
        policies=tuple(values.file.policies),
        notices=tuple(_notices(values, nats, monitor)),
    )


def _jetstream_channels(values: SettingsReader) -> tuple[str, ...]:
    """The patterns of `jetstream_api`; none if that is a plain switch."""
    value = values.given.get("jetstream_api", False)
    if isinstance(value, str) and not value.strip():
        values.complaints.append(f"{values.name('jetstream_api')}: expected true, false or patterns of channels")
    return values.names("jetstream_api") if isinstance(value, str) else ()


def _store(values: SettingsReader) -> StoreConfig:
    name = values.text("store")
    kind = _STORES.get(name.upper())
    out_of_bounds = [*_out_of_bounds(values)]  # any store: a size that cannot be read is a complaint
    if kind is None:
        values.complaints.append(f"unsupported store type: {name}")
    elif kind == "file":
        values.complaints.extend(out_of_bounds)
    elif kind == "sql" and values.text("sql_driver").lower() not in {"", "sqlite", "sqlite3"}:
        driver = values.text("sql_driver")
        values.complaints.append(
            f"{values.name('sql_driver')}: a SQL store is a SQLite file here, {driver} is not served: use sqlite"
        )
    sync: SyncKind = "always"
    interval = values.number("file_auto_sync")
    if kind != "sql" and not values.flag("file_sync"):
        sync = "interval" if interval > 0 else "never"
    return filled(
        StoreConfig,
        values,
        kind=kind or "memory",
        directory=values.path("dir") or (values.path("cluster_log_path") if clustered(values) else None),
        sync=sync,
        sync_interval_ns=max(interval, 0),
    )


def _encryption(values: SettingsReader) -> EncryptionConfig | None:
    key = values.text("encryption_key")
    if not (key or values.flag("encrypt")):
        return None
    return filled(EncryptionConfig, values, key=key.encode("utf-8", "surrogateescape"))


def _permissions(values: SettingsReader) -> Permissions | None:
    permissions = values.file.permissions
    if permissions is None or not permissions.users:
        return permissions
    given = [values.name(flag) for flag in ("user", "pass", "auth") if values.text(flag)]
    given += [f"{name} ({where})" for name, where in values.file.nats.names.items() if name in _NATS_LOGINS]
    if given and not values.text("nats_server"):
        values.complaints.append(f"the users in permissions are all whom NATS lets in: leave out {', '.join(given)}")
    return permissions


def _out_of_bounds(values: SettingsReader) -> Iterator[str]:
    for text, least, most, keys in _FILE_BOUNDS:
        numbers = [values.number(key) for key in keys]
        if not all(least <= number <= most for number in numbers):
            yield text


def _cluster(values: SettingsReader) -> ClusterConfig | None:
    if not clustered(values):
        return None
    if values.text("ft_group"):
        values.complaints.append("fault tolerance groups and clustering exclude each other: leave out -ft_group")
    given = [values.name(key) for key in ("raft_groups", "replicas") if key in values.given]
    if values.flag("join") and given:
        values.complaints.append(f"a node that joins learns {' and '.join(given)} from the running cluster")
    peers = tuple(peer for peer in values.names("cluster_peers") if peer != values.text("cluster_node_id"))
    try:
        labels = parse_labels(values.names("cluster_labels"))
    except ValueError as error:
        values.complaints.append(f"{values.name('cluster_labels')}: {error}")
        labels = NO_LABELS
    return filled(ClusterConfig, values, peers=tuple(dict.fromkeys(peers)), labels=labels)


def _monitor(values: SettingsReader) -> MonitorConfig:
    plain, secure = values.number("http_port"), values.number("https_port")
    if plain and secure:
        values.complaints.append(f"can't specify both HTTP ({plain}) and HTTPs ({secure}) ports")
    files = values.file.nats.certificate
    return filled(
        MonitorConfig,
        values,
        host=values.text("http_host") or MonitorConfig().host,
        port=secure or plain,
        secure=bool(secure),
        certificate=values.path("tlscert") or files.get("cert_file"),
        key=values.path("tlskey") or files.get("key_file"),
        hosts=tuple(name.lower() for name in values.names("http_hosts")),
        logins=values.file.logins,
    )


def _log(values: SettingsReader) -> LogConfig:
    return filled(
        LogConfig,
        values,
        debug=values.flag("stan_debug"),
        trace=values.flag("stan_trace"),
        syslog=not values.text("log") and (values.flag("syslog") or bool(values.text("remote_syslog"))),
    )


def _refused(values: SettingsReader) -> list[str]:
    """Return a complaint for each option that this version does not serve and that has another value than its default."""
    return [
        f"{values.name(flag.key)}: {flag.refused}"
        for flag in TABLE
        if flag.refused and values.given.get(flag.key, flag.default) != flag.default
    ]


def _login_notices(values: SettingsReader, monitor: MonitorConfig) -> Iterator[str]:
    if monitor.logins is None:
        return
    if not monitor.port:
        yield f"{values.name('dashboard')} has no effect without a monitoring port: -m"
    loopback = monitor.on_loopback or not monitor.port
    yield from monitor.logins.notices(secure=monitor.secure, loopback=loopback, actions=monitor.dashboard_actions)


def _notices(values: SettingsReader, nats: NatsConfig, monitor: MonitorConfig) -> Iterator[str]:
    ignored = [values.name(flag.key) for flag in TABLE if flag.ignored and flag.key in values.given]
    yield from values.file.notices
    if nats.tls is not None and nats.tls.skip_verify:
        yield "TLS certificate chain and hostname will not be verified. DO NOT USE IN PRODUCTION!"
    ignored += [f"{name} ({where})" for name, where in values.file.ignored]
    if values.file.permissions is not None:
        yield from values.file.permissions.notices()
    yield from _login_notices(values, monitor)
    if values.sources.get("encryption_key") == "flag":
        yield "Others on this machine may have seen the encryption key of the command line: NATS_STREAMING_ENCRYPTION_KEY"
    if values.flag("encrypt") and values.text("store").upper() == "MEMORY":
        yield f"{values.name('encrypt')} has no effect with the MEMORY store, which writes nothing"
    if ignored:
        yield f"Options without effect in this version: {', '.join(ignored)}"
    if clustered(values):
        if values.text("dir") and values.text("cluster_log_path"):
            yield f"{values.name('cluster_log_path')} has no effect: one log for everything, in {values.text('dir')}"
        return
    lonely = [values.name(key) for key in _CLUSTER_ONLY if key in values.given]
    if lonely:
        yield f"Options without effect, as -clustered is not given: {', '.join(lonely)}"
