"""From a command line to what `stan-server` shall do; pure.

Promises: `parse` never prints, exits, or opens a file by itself; it tells what to do, the exit code and the settings. All
bad values are found at once, those of configuration files with file and line. Modelled on the original's option
processing (STAN-SPEC 12.1, 12.2).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, cast

from stan.cli.filekeys import ENVIRONMENT, FILE_ONLY
from stan.cli.flags import NO_PARTITIONING, TABLE
from stan.cli.goflags import FlagError, Kind, Value, parse_size, scan
from stan.cli.shown import shown
from stan.config import (
    ChannelLimits,
    ClusterConfig,
    Config,
    EmbeddedConfig,
    EncryptionConfig,
    HeartbeatConfig,
    LogConfig,
    MonitorConfig,
    NatsConfig,
    StoreConfig,
    StoreKind,
    StoreLimits,
    SyncKind,
    TlsConfig,
    parse_nats_urls,
)
from stan.errors import ConfigError, go_quote
from stan.permissions import Permissions
from stan.types import MICROSECOND

if TYPE_CHECKING:
    from stan.cli.streamconf import FileSettings, Reader

_CLUSTER_ONLY = (
    *("cluster_node_id", "cluster_bootstrap", "cluster_peers", "cluster_log_path", "replicas"),
    "cluster_raft_logging",
)
_LOGINS = frozenset(
    {"authorization", "accounts", "no_auth_user", "operator", "resolver", "trusted_keys", "system_account"}
)
"""Keys of NATS that tell whom it lets in."""
_STORES: dict[str, StoreKind] = {"MEMORY": "memory", "FILE": "file", "SQL": "sql"}


class Action(Enum):
    """What the command line asks for."""

    SERVE = "serve"
    HELP = "help"
    VERSION = "version"
    HELP_TLS = "help_tls"
    CHECK = "check"
    SIGNAL = "signal"
    REFUSE = "refuse"  # only `complaint` to show


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


def parse(argv: Sequence[str], read: "Reader | None" = None, environ: Mapping[str, str] | None = None) -> Parsed:
    """Understand the arguments behind the program's name, and the files that they name as far as *read* reads them; secrets may
    come from *environ*.

    A line that cannot be read asks for the help with exit code 0, as the original does (STAN-SPEC 12.5).
    """
    try:
        scanned = scan(argv, TABLE)
    except FlagError as error:
        return Parsed(action=Action.HELP, complaint=str(error))
    values = _Values(scanned.values, environ=environ or {})
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
        from stan.cli.streamconf import read_files  # noqa: PLC0415 - not needed without a file

        values = _Values(scanned.values, read_files(streaming, nats, read), environ or {})
    config = _config(values)
    config = replace(config, settings=tuple(shown(config, values.given, values.sources, values.file)))
    action = Action.CHECK if values.flag("t") else Action.SERVE
    return Parsed(action=action, config=config, complaints=(*_refused(values), *values.complaints))


class _Values:
    """Typed access to values of the command line over those of files over defaults; collects what cannot be used."""

    def __init__(
        self, flags: Mapping[str, Value], file: "FileSettings | None" = None, environ: Mapping[str, str] | None = None
    ) -> None:
        told = dict(file.values) if file else {}
        if "SDV" in flags:  # decides over both
            told = {key: value for key, value in told.items() if key not in {"stan_debug", "stan_trace"}}
        self.file = file
        self.given: dict[str, Value] = {**told, **flags}
        self.sources: dict[str, str] = {key: file.places[key].where for key in told if file and key in file.places}
        self.sources |= dict.fromkeys(flags, "flag")
        self._environment({} if environ is None else environ)
        self.complaints: list[str] = list(file.complaints) if file else []
        self._flags = flags
        self._defaults: dict[str, Value] = {**{flag.key: flag.default for flag in TABLE}, **FILE_ONLY}

    def _environment(self, environ: Mapping[str, str]) -> None:
        """Take keys of the environment, which win over all others, where they are asked for (STAN-SPEC 8.10)."""
        for key, (switch, names) in ENVIRONMENT.items():
            found = next((environ[name] for name in names if environ.get(name)), None)
            if found is not None and (self.given.get(switch) or self.given.get(key)):
                self.given[key], self.sources[key] = found, "environment"

    def name(self, key: str) -> str:
        """How the user has called the setting: `-dir`, `dir (stan.conf:3)`."""
        if self.file is None or key in self._flags or key not in self.file.places:
            return f"-{key}"
        name, where = self.file.places[key]
        return f"{name} ({where})"

    def flag(self, key: str) -> bool:
        return cast("bool", self._get(key))

    def number(self, key: str) -> int:
        return cast("int", self._get(key))

    def text(self, key: str) -> str:
        return cast("str", self._get(key))

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return Path(text) if text else None

    def size(self, key: str) -> int:
        text = self.text(key)
        try:
            return parse_size(text)
        except ValueError:
            self.complaints.append(f"{key} should be a size, got '{text}'")
            return parse_size(str(self._defaults[key]))

    def _get(self, key: str) -> Value:
        return self.given.get(key, self._defaults[key])


def _config(values: _Values) -> Config:
    return Config(
        cluster_id=values.text("cluster_id"),
        discover_prefix=values.text("discover_prefix"),
        store=_store(values),
        limits=_limits(values),
        heartbeat=HeartbeatConfig(
            interval_ns=values.number("hb_interval"),
            timeout_ns=values.number("hb_timeout"),
            fail_count=values.number("hb_fail_count"),
        ),
        nats=_nats(values),
        embedded=_embedded(values),
        monitor=_monitor(values),
        log=_log(values),
        cluster=_cluster(values),
        ft_group=values.text("ft_group"),
        encryption=_encryption(values),
        permissions=_permissions(values),
        replace_durable=values.flag("replace_durable"),
        io_batch_size=values.number("io_batch_size"),
        io_sleep_ns=values.number("io_sleep_time") * MICROSECOND,
        pid_file=values.path("pid"),
        notices=tuple(_notices(values)),
    )


def _store(values: _Values) -> StoreConfig:
    name = values.text("store")
    kind = _STORES.get(name.upper())
    if kind is None:
        values.complaints.append(f"unsupported store type: {name}")
    elif kind == "file":
        values.complaints.extend(_file_complaints(values))
    sync: SyncKind = "always"
    interval = values.number("file_auto_sync")
    if not values.flag("file_sync"):
        sync = "interval" if interval > 0 else "never"
    return StoreConfig(
        kind=kind or "memory",
        directory=values.path("dir") or (values.path("cluster_log_path") if _clustered(values) else None),
        sync=sync,
        sync_interval_ns=max(interval, 0),
        raft_groups=values.number("raft_groups"),
    )


def _encryption(values: _Values) -> EncryptionConfig | None:
    key = values.text("encryption_key")
    if not (key or values.flag("encrypt")):
        return None
    return EncryptionConfig(key=key.encode("utf-8", "surrogateescape"), cipher=values.text("encryption_cipher"))


def _permissions(values: _Values) -> Permissions | None:
    found = values.file.permissions if values.file else None
    if found is None or not found.users or values.file is None:
        return found
    given = [values.name(flag) for flag in ("user", "pass", "auth") if values.text(flag)]
    given += [f"{name} ({where})" for name, where in values.file.nats_names.items() if name in _LOGINS]
    if given and not values.text("nats_server"):
        values.complaints.append(f"the users in permissions are all whom NATS lets in: leave out {', '.join(given)}")
    return found


def _file_complaints(values: _Values) -> Iterator[str]:
    """Check options of the FILE store, also those without effect here (STAN-SPEC 8.3)."""
    if values.size("file_buffer_size") < 0:
        yield "buffer size value must be a positive number"
    if values.size("file_read_buffer_size") < 0:
        yield "read buffer size value must be a positive number"
    if values.number("file_compact_interval") < 1:
        yield "compact interval value must at least be 1 seconds"
    if values.number("file_compact_frag") < 1:
        yield "compact fragmentation value must at least be 1"
    if values.size("file_compact_min_size") < 0:
        yield "compact minimum file size value must be a positive number"
    if not 1 <= values.number("file_crc_poly") <= 0xFFFFFFFF:
        yield "crc polynomial should be between 1 and 4294967295"
    slices = values.number("file_slice_max_msgs"), values.size("file_slice_max_bytes")
    if min(*slices, values.number("file_slice_max_age")) < 0:
        yield "slice max values must be positive numbers"
    if values.number("file_fds_limit") < 0:
        yield "file descriptor limit must be a positive number"
    if values.number("file_parallel_recovery") < 1:
        yield "parallel recovery value must be at least 1"


def _clustered(values: _Values) -> bool:
    return any(values.flag(key) for key in ("clustered", "join", "replica"))


def _cluster(values: _Values) -> ClusterConfig | None:
    if not _clustered(values):
        return None
    if values.text("ft_group"):
        values.complaints.append("fault tolerance groups and clustering exclude each other: leave out -ft_group")
    told = [values.name(key) for key in ("raft_groups", "replicas") if key in values.given]
    if values.flag("join") and told:
        values.complaints.append(f"a node that joins learns {' and '.join(told)} from the running cluster")
    node_id = values.text("cluster_node_id")
    peers = [peer for name in values.text("cluster_peers").split(",") if (peer := name.strip())]
    return ClusterConfig(
        node_id=node_id,
        peers=tuple(dict.fromkeys(peer for peer in peers if peer != node_id)),
        bootstrap=values.flag("cluster_bootstrap"),
        join=values.flag("join"),
        replica=values.flag("replica"),
        replicas=values.number("replicas"),
        allow_add_remove=values.flag("cluster_allow_add_remove_node"),
        raft_logging=values.flag("cluster_raft_logging"),
    )


def _limits(values: _Values) -> StoreLimits:
    return StoreLimits(
        channels=values.number("max_channels"),
        default=ChannelLimits(
            msgs=values.number("max_msgs"),
            bytes=values.size("max_bytes"),
            age_ns=values.number("max_age"),
            subscriptions=values.number("max_subs"),
            inactivity_ns=values.number("max_inactivity"),
        ),
        per_channel=values.file.channels if values.file else {},
    )


def _nats(values: _Values) -> NatsConfig:
    urls: tuple[str, ...] = ()
    if values.text("nats_server"):
        try:
            urls = parse_nats_urls(values.text("nats_server"))
        except ConfigError as error:
            values.complaints.extend(error.complaints)
    tls = None
    files = [values.path(key) for key in ("tls_client_cert", "tls_client_key", "tls_client_cacert")]
    if values.flag("secure") or any(files):
        tls = TlsConfig(
            client_cert=files[0],
            client_key=files[1],
            client_ca=files[2],
            server_name=values.text("tls_server_name"),
            skip_verify=values.flag("tls_skip_verify"),
        )
    told = any(values.text(flag) for flag in ("user", "pass", "auth"))
    login = values.file.login if values.file and not told else {}
    user, password, token = (
        values.text(flag) or login.get(flag) or values.text(option)
        for flag, option in (("user", "username"), ("pass", "password"), ("auth", "token"))
    )
    return NatsConfig(
        urls=urls,
        user=user,
        password=password,
        token=token,
        credentials=values.path("credentials"),
        nkey_seed_file=values.path("nkey_seed_file"),
        tls=tls,
    )


def _embedded(values: _Values) -> EmbeddedConfig:
    config_file = values.file.nats_file if values.file else values.path("config")
    if values.text("routes") and not (config_file or {"cluster", "cluster_listen"} & values.given.keys()):
        values.complaints.append("solicited routes require cluster capabilities, e.g. --cluster")
    return EmbeddedConfig(
        host=values.text("addr"),
        port=values.number("port"),
        pages=bool(values.number("http_port") or values.number("https_port")),
        user=values.text("user"),
        password=values.text("pass"),
        token=values.text("auth"),
        config_file=config_file,
        config_text=values.file.nats_text if values.file else None,
        ports_file_dir=values.path("ports_file_dir"),
        extra_args=tuple(_passed(values, named=config_file is not None)),
    )


def _monitor(values: _Values) -> MonitorConfig:
    plain, secure = values.number("http_port"), values.number("https_port")
    if plain and secure:
        values.complaints.append(f"can't specify both HTTP ({plain}) and HTTPs ({secure}) ports")
    files = values.file.certificate if values.file else {}
    return MonitorConfig(
        host=values.text("http_host") or MonitorConfig().host,
        port=secure or plain,
        secure=bool(secure),
        certificate=values.path("tlscert") or files.get("cert_file"),
        key=values.path("tlskey") or files.get("key_file"),
    )


def _passed(values: _Values, *, named: bool) -> Iterator[str]:
    """Spell the flags that are nats-server's business for it; *named*: its file may name the NATS cluster."""
    for flag in TABLE:
        if flag.passed and flag.key in values.given:
            value = values.given[flag.key]
            text = str(value).lower() if flag.kind is Kind.BOOL else str(value)
            yield f"--{flag.key}={text}"
    routed = {"routes", "cluster", "cluster_listen"} & values.given.keys()
    if _clustered(values) and routed and not (named or "cluster_name" in values.given):
        # Servers that begin together would each invent a name, and refuse each other's routes for a while.
        yield f"--cluster_name={values.text('cluster_id')}"


def _log(values: _Values) -> LogConfig:
    both = values.flag("DV") or values.flag("DVV")
    streaming = values.flag("SDV")
    return LogConfig(
        debug=values.flag("stan_debug") if "stan_debug" in values.given else streaming,
        trace=values.flag("stan_trace") if "stan_trace" in values.given else streaming,
        nats_debug=values.flag("debug") or both,
        nats_trace=values.flag("trace") or values.flag("VV") or both,
        file=values.path("log"),
        file_bytes_max=values.number("log_size_limit"),
        logtime=values.flag("logtime"),
        logtime_utc=values.flag("logtime_utc"),
        syslog=values.flag("syslog") or bool(values.text("remote_syslog")),
        remote_syslog=values.text("remote_syslog"),
        syslog_name=values.text("syslog_name"),
    )


def _refused(values: _Values) -> list[str]:
    """One complaint for each option that this version does not serve and that was set to something else than unset."""
    found = [
        f"{values.name(flag.key)}: {flag.refused}"
        for flag in TABLE
        if flag.refused and values.given.get(flag.key, flag.default) != flag.default
    ]
    if values.text("store").upper() == "SQL":
        found.append(f"{values.name('store').replace('-store', '-store SQL')}: this version has no SQL store")
    if values.flag("partitioning"):
        found.append(f"{values.name('partitioning')}: {NO_PARTITIONING}")
        if _clustered(values):
            found.append("stan: channels partitioning in clustering mode is not supported")
    return found


def _notices(values: _Values) -> Iterator[str]:
    idle = [values.name(flag.key) for flag in TABLE if flag.idle and flag.key in values.given]
    if values.file:
        yield from values.file.notices
        if values.flag("tls_skip_verify"):
            yield "TLS certificate chain and hostname will not be verified. DO NOT USE IN PRODUCTION!"
        idle += [f"{name} ({where})" for name, where in values.file.idle]
        if values.file.permissions is not None:
            yield from values.file.permissions.notices()
    if values.sources.get("encryption_key") == "flag":
        yield "Others on this machine may have seen the encryption key of the command line: NATS_STREAMING_ENCRYPTION_KEY"
    if values.flag("encrypt") and values.text("store").upper() == "MEMORY":
        yield f"{values.name('encrypt')} has no effect with the MEMORY store, which writes nothing"
    if idle:
        yield f"Options without effect in this version: {', '.join(idle)}"
    if _clustered(values):
        if values.text("dir") and values.text("cluster_log_path"):
            yield f"{values.name('cluster_log_path')} has no effect: one log for everything, in {values.text('dir')}"
        return
    lonely = [values.name(key) for key in _CLUSTER_ONLY if key in values.given]
    if lonely:
        yield f"Options without effect, as -clustered is not given: {', '.join(lonely)}"
