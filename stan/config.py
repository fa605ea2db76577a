"""Every setting a server needs, as frozen values: what the command line is parsed into and what the edge reads.

Promises: durations are nanoseconds (`_ns`), sizes are bytes, 0 means unlimited; `Config.validate` names every setting
that cannot work, in the original server's words where it has any (STAN-SPEC 7.1, 7.2, 8.1, 12.4). Never reads a
file, the environment or the command line. Secrets are left out of every repr.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal, NamedTuple

from stan_protocol.declared_options import option
from stan_protocol.patterns import RESERVED, ChannelLimits, ChannelOverride, inherit, literal, narrowest, valid_name
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND
from stan_protocol.units import go_duration

from stan import limits as bounds
from stan.errors import ConfigError
from stan.labels import NO_LABELS, Labels
from stan.logins import Logins
from stan.permissions import Permissions
from stan.policies import PolicyRule, policy_complaints

__all__ = [
    "ChannelLimits",
    "ChannelOverride",
    "ClusterConfig",
    "Config",
    "EmbeddedConfig",
    "EncryptionConfig",
    "HeartbeatConfig",
    "LogConfig",
    "MonitorConfig",
    "NatsConfig",
    "RequestLimits",
    "Setting",
    "StoreConfig",
    "StoreLimits",
    "TlsConfig",
    "TracingConfig",
    "parse_nats_urls",
]

StoreKind = Literal["memory", "file", "sql"]
SyncKind = Literal["always", "interval", "never"]

RAFT_GROUPS_ALONE: Final = 1
RAFT_GROUPS_CLUSTERED: Final = 8
"""Default number of groups of channels: few are faster than many, and a cluster spreads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits of the store: the number of channels, and what each may hold."""

    channels: int = option("max_channels", 100)
    default: ChannelLimits = field(default_factory=ChannelLimits)
    per_channel: Mapping[str, ChannelOverride] = field(default_factory=dict)
    _resolved: dict[str, ChannelLimits] = field(init=False, repr=False, compare=False, default_factory=dict)
    _known: dict[str, ChannelLimits] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._resolved.update(inherit(self.default, self.per_channel))

    def for_channel(self, name: str) -> ChannelLimits:
        """Effective limits of channel *name* (STAN-SPEC 7.3). Cost: O(1) when asked again, else O(patterns)."""
        if not self._resolved:
            return self.default
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= bounds.CHANNEL_LIMITS_CACHED_MAX:
                self._known.clear()
            found = self._known[name] = narrowest(self.default, self._resolved, name)
        return found

    def resolved(self) -> Mapping[str, ChannelLimits]:
        """Effective limits of each configured name or pattern."""
        return self._resolved

    def complaints(self) -> list[str]:
        """Return the mistakes in the limits, in the original's words (STAN-SPEC 7.1, 7.2)."""
        default = self.default
        values = (
            ("channels", self.channels, str),
            ("subscriptions", default.subscriptions, str),
            ("messages", default.msgs, str),
            ("bytes", default.bytes, str),
            ("age", default.age_ns, go_duration),
            ("inactivity", default.inactivity_ns, go_duration),
        )
        found = [f"max {what} limit cannot be negative ({show(value)})" for what, value, show in values if value < 0]
        names = self.per_channel
        found += [f"invalid channel name {go_quote(name)}" for name in names if not valid_name(name, wildcards=True)]
        literals = sum(literal(name) for name in names)
        if 0 < self.channels < literals:
            found.append(f"too many channels defined ({literals}). The max channels limit is set to {self.channels}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The store of messages, and when they are made durable."""

    kind: StoreKind = "memory"
    directory: Path | None = None
    source: Path | None = option("sql_source", None)  # the SQLite file of a SQL store
    sync: SyncKind = "always"
    sync_interval_ns: int = 60 * SECOND  # only for sync="interval"
    truncate_bad_eof: bool = option("file_truncate_bad_eof", False)  # go on without the lost end of a log
    raft_groups: int = option("raft_groups", 0)  # 0: what Config decides, RAFT_GROUPS_CLUSTERED or RAFT_GROUPS_ALONE

    @property
    def place(self) -> Path | None:
        """Directory on whose disk it is; None in memory."""
        return self.source.parent if self.kind == "sql" and self.source is not None else self.directory


_NODE_ID = re.compile(r"[A-Za-z0-9_-]+")


def is_node_id(name: str) -> bool:
    """Return True if *name* is valid for a node; the name becomes part of NATS subjects."""
    return _NODE_ID.fullmatch(name) is not None and len(name) <= bounds.NODE_NAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Settings of a node of a cluster (STAN-SPEC 9.7, 9.8)."""

    node_id: str = option("cluster_node_id", "")  # empty: the one kept in the directory, else a generated one
    peers: tuple[str, ...] = ()  # ids of the other nodes that vote; may hold the own one
    bootstrap: bool = option("cluster_bootstrap", False)  # a new cluster may be made without hearing all peers first
    join: bool = option("join", False)  # peers, groups and replicas are those of the running cluster
    replica: bool = option("replica", False)  # a copy of everything that serves reads and never votes
    labels: Labels = NO_LABELS  # of this node
    places: Mapping[str, Labels] = field(default_factory=dict)  # labels of all nodes, as the metadata has them
    nodes_version: int = 0  # not 0: the peers are all nodes, as the metadata has them since one was added or removed
    replicas: int = option("replicas", 3)  # nodes that hold each group
    allow_add_remove: bool = option("cluster_allow_add_remove_node", False)  # at request, while the cluster runs
    raft_logging: bool = option("cluster_raft_logging", False)  # what the groups say among themselves is logged too

    @property
    def joins(self) -> bool:
        """True if the node asks the running cluster for its members, because the settings do not name them (STAN-SPEC 9.7)."""
        return self.join or not (self.peers or self.bootstrap)

    def voters(self, node_id: str) -> tuple[str, ...]:
        """Return the names of all voters by the settings of node *node_id*: sorted, each once, with itself unless a replica."""
        if self.nodes_version:
            return tuple(sorted(self.peers))
        names = set(self.peers) | {node_id}
        return tuple(sorted(names - {node_id} if self.replica else names))

    def complaints(self) -> list[str]:
        """Return the mistakes in these settings that show without the others."""
        found = [
            f"invalid node ID {go_quote(name)}: only letters, digits, `-` and `_`, "
            f"{bounds.NODE_NAME_BYTES_MAX} at most, as it becomes part of NATS subjects"
            for name in dict.fromkeys((*filter(None, [self.node_id]), *self.peers))
            if not is_node_id(name)
        ]
        if len(self.peers) > bounds.CLUSTER_PEERS_MAX:
            found.append(f"a node has at most {bounds.CLUSTER_PEERS_MAX} peers, not {len(self.peers)}")
        if self.replica and self.bootstrap:
            found.append("a read replica does not vote, so it cannot bootstrap a cluster")
        if self.join and self.bootstrap:
            found.append("a node either joins a running cluster or bootstraps a new one")
        if self.join and self.peers:
            found.append("a node that joins learns its peers from the running cluster; give either")
        if self.replicas < 1:
            found.append(f"each group needs at least one replica, not {self.replicas}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatConfig:
    """Server to client heartbeats (STAN-SPEC 3.3); a client is dead on failure number fail_count + 1."""

    interval_ns: int = option("hb_interval", 30 * SECOND)
    timeout_ns: int = option("hb_timeout", 10 * SECOND)
    fail_count: int = option("hb_fail_count", 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of our own connection to NATS; with no files at all the system's authorities are trusted."""

    client_cert: Path | None = None
    client_key: Path | None = None
    client_ca: Path | None = None
    server_name: str = option("tls_server_name", "")  # overrides the host name that is verified
    skip_verify: bool = option("tls_skip_verify", False)
    # The exact certificate that the server must show, whatever its names: that of our own nats-server.
    pinned: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsConfig:
    """Our own connection to NATS; no `urls` means the embedded nats-server."""

    urls: tuple[str, ...] = field(default=(), repr=False)  # may hold passwords
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials: Path | None = option("credentials", None)
    nkey_seed_file: Path | None = option("nkey_seed_file", None)
    tls: TlsConfig | None = None
    own: bool = False  # only the embedded nats-server knows this user; another one of its cluster does not


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The nats-server that we start; empty host and port 0 leave it to `config_file`, else 0.0.0.0 and 4222."""

    host: str = option("addr", "")
    port: int = option("port", 0)  # -1: any free port
    pages: bool = False  # its own monitoring pages, on any free port of the loopback interface
    user: str = option("user", "")
    password: str = option("pass", "", shown=False)
    token: str = option("auth", "", shown=False)
    own_user: str = ""  # the user that our own connection is, beside the others; "" if it needs none
    own_password: str = field(default="", repr=False)
    routes: tuple[str, ...] = field(default=(), repr=False)  # URLs with passwords, which no process title may show
    listen_routes: str = field(default="", repr=False)  # the same of the URL that it listens on for routes
    leaf_user: str = ""  # of the leafnode connection that it takes on the loopback interface; "": it takes none
    leaf_password: str = field(default="", repr=False)
    leaf_port: int = 0  # chosen at each start
    joined: bool = False  # other nats-servers may be connected to it, with other brokers
    # Of the following three, 0: what its own configuration says.
    max_payload: int = bounds.EMBEDDED_PAYLOAD_BYTES_MAX
    max_pending: int = bounds.EMBEDDED_PENDING_BYTES_MAX
    write_deadline: int = bounds.EMBEDDED_WRITE_DEADLINE  # ns
    config_file: Path | None = None
    config_text: bytes | None = field(default=None, repr=False)  # to be read in place of what that file holds
    config_places: tuple[str, ...] = field(default=(), repr=False)  # of each of its lines, the user's file and line
    accounts: str = field(default="", repr=False)  # the block of that name, of users that have permissions
    ports_file_dir: Path | None = option("ports_file_dir", None)
    extra_args: tuple[str, ...] = field(default=(), repr=False)  # handed to nats-server as they are; may hold URLs


_HOST: Final = re.compile(r"\*|(?:\*\.)?(?=[^.]*[^0-9.])[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig:
    """Address and options of the monitoring pages: ours, and with them those of the embedded nats-server."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: nowhere; -1: any free port
    secure: bool = False  # HTTPS, with these files
    certificate: Path | None = None
    key: Path | None = None
    dashboard_actions: bool = option("dashboard_actions", False)  # the dashboard may change things, not only show them
    hosts: tuple[str, ...] = ()  # further names by which it may be asked, lower case; "*.name": all below it, "*": any
    logins: Logins | None = None  # None: whoever reaches the pages sees everything

    @property
    def on_loopback(self) -> bool:
        """True if only this machine reaches the pages."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def complaints(self, permissions: Permissions | None = None) -> list[str]:
        """Return the mistakes in these settings that show without the others but *permissions*."""
        found = [] if self.logins is None else self.logins.complaints(permissions)
        if not -1 <= self.port <= 65535:
            found.append(f"port must be between -1 and 65535, not {self.port}")
        if self.port and self.secure and not (self.certificate and self.key):
            found.append("HTTPS monitoring needs a certificate and its key: --tlscert, --tlskey or a tls block")
        found += [
            f"http_hosts: {name!r} is no name of a host (no port, no address)"
            for name in self.hosts
            if not _HOST.fullmatch(name)
        ]
        return found


KEY_VARIABLES: Final = ("STAN_ENCRYPTION_KEY", "NATS_STREAMING_ENCRYPTION_KEY")
"""Variables of the environment that give the encryption key; no process that we start gets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionConfig:
    """With what messages are encrypted on the disk."""

    key: bytes = field(default=b"", repr=False)
    cipher: str = option("encryption_cipher", "")  # AES or CHACHA; "": the better one of this machine

    def complaints(self) -> list[str]:
        """Return the mistakes in these settings that show without the others, in the original's words (STAN-SPEC 8.10)."""
        found = [] if self.key else ["encryption key required: give it in NATS_STREAMING_ENCRYPTION_KEY"]
        known = self.cipher.upper() in {"", "AES", "CHACHA"}
        return found if known else [*found, "encryption cipher not supported"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of the log: its contents and its destination."""

    debug: bool = False
    trace: bool = False
    file: Path | None = option("log", None)  # None: standard error
    file_bytes_max: int = option("log_size_limit", 0)  # the file is rotated once it holds this much; 0: never
    logtime: bool = option("logtime", True)
    logtime_utc: bool = option("logtime_utc", False)
    syslog: bool = False  # not beside a file
    remote_syslog: str = option("remote_syslog", "")  # udp://host:port, tcp://host:port; implies syslog
    syslog_name: str = option("syslog_name", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of clients' requests; 0 is no limit."""

    clients: int = option("max_clients", 0)  # connected at once
    message_bytes: int = option("max_msg_bytes", 0)  # payload and reply; NATS's own max_payload counts besides
    payload_bytes: int = bounds.MESSAGE_PAYLOAD_BYTES_MAX  # of a message as it is delivered, if NATS takes as much
    rate: int = option("max_request_rate", 0)  # connects, subscribes and requests of operators a second, at each node
    client_rate: int = option("max_client_request_rate", 0)  # connects and subscribes a second of each client

    def complaints(self) -> list[str]:
        """Return the mistakes in these settings that show without the others."""
        values = (
            ("clients", self.clients),
            ("message bytes", self.message_bytes),
            ("request rate", self.rate),
            ("client request rate", self.client_rate),
        )
        return [f"max {what} limit cannot be negative ({value})" for what, value in values if value < 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Of which messages traces are made, and who receives them."""

    sample: str = option("trace_sample", "")  # share of all messages, above 0 to 1; "" or 0: no tracing
    endpoint: str = option("trace_endpoint", "http://127.0.0.1:4318")  # URL of a receiver of OTLP over HTTP

    @property
    def period(self) -> int:
        """One in so many messages is traced; 0: no tracing."""
        share = self._share()
        return 0 if share is None or share <= 0 else round(1 / min(1, share))

    def _share(self) -> float | None:
        """The share as a number; None if it is none."""
        plain = re.fullmatch(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]{1,3})?", self.sample or "0", re.ASCII)
        share = float(plain[0]) if plain else None
        return share if share is not None and (share == 0 or bounds.TRACE_SHARE_MIN <= share <= 1) else None

    def complaints(self) -> list[str]:
        """Return the mistakes in these settings."""
        found = []
        if self._share() is None:
            found.append(
                f"trace_sample must be 0, or between {bounds.TRACE_SHARE_MIN:g} and 1, as 0.001 for one message in a "
                f"thousand, not {go_quote(self.sample)}"
            )
        if _ENDPOINT.fullmatch(self.endpoint) is None:
            found.append(f"trace_endpoint must be an http or https URL, not {go_quote(self.endpoint)}")
        return found


_ENDPOINT: Final = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?")


class Setting(NamedTuple):
    """One option in force, for people."""

    name: str  # as the command line calls it
    value: str  # as the command line takes it; secrets are masked
    source: str  # default, flag, environment, or file:line


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of one server."""

    cluster_id: str = option("cluster_id", "test-cluster")
    discover_prefix: str = option("discover_prefix", "_STAN.discover")
    store: StoreConfig = StoreConfig()
    limits: StoreLimits = field(default_factory=StoreLimits)
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    requests: RequestLimits = RequestLimits()
    nats: NatsConfig = NatsConfig()
    embedded: EmbeddedConfig = EmbeddedConfig()
    monitor: MonitorConfig = MonitorConfig()
    tracing: TracingConfig = TracingConfig()
    log: LogConfig = LogConfig()
    cluster: ClusterConfig | None = None  # None: alone
    partitioning: bool = option("partitioning", False)  # only channels that `limits.per_channel` names are served
    jetstream_api: bool = option("jetstream_api", False)  # clients of NATS's JetStream are served, too
    jetstream_channels: tuple[str, ...] = ()  # patterns of their channels and subjects; none: all
    jetstream_leaf: str = option("jetstream_leaf", "")  # host:port where the NATS outside listens for leafnodes
    ft_group: str = option("ft_group", "")  # servers that share one store, of which one is active; "": none
    encryption: EncryptionConfig | None = None  # None: messages are stored in clear
    permissions: Permissions | None = None  # None: everybody may do everything
    policies: tuple[PolicyRule, ...] = ()  # of delivery; those in the metadata come behind
    replace_durable: bool = option("replace_durable", False)
    reply_prefixes: tuple[str, ...] = option("reply_prefixes", ())  # of replies of publishes; each ends with a dot
    pid_file: Path | None = option("pid", None)
    notices: tuple[str, ...] = ()  # warnings to log once at start, such as options without effect
    settings: tuple[Setting, ...] = field(default=(), compare=False, repr=False)  # where they were read from anything

    def __post_init__(self) -> None:
        """Set the default number of groups if none is configured."""
        if self.store.raft_groups == 0:
            groups = RAFT_GROUPS_ALONE if self.cluster is None else RAFT_GROUPS_CLUSTERED
            object.__setattr__(self, "store", replace(self.store, raft_groups=groups))

    def shown(self) -> tuple[Setting, ...]:
        """Each option in force with its value and where it comes from, without secrets; none if nothing was read."""
        return self.settings

    def reloaded(self, wanted: "Config") -> "Config":
        """These settings with those of *wanted* that a running server takes over."""
        return replace(
            self,
            limits=wanted.limits,
            heartbeat=wanted.heartbeat,
            requests=wanted.requests,
            replace_durable=wanted.replace_durable,
            policies=wanted.policies,
            nats=self._reloaded_nats(wanted.nats),
            log=replace(self.log, debug=wanted.log.debug, trace=wanted.log.trace),
            settings=wanted.settings,
        )

    def _reloaded_nats(self, nats: NatsConfig) -> NatsConfig:
        """How to connect from now on: to an embedded nats-server, which is reloaded too, as *nats* says, but with accounts as
        our own user still, which no file names."""
        if self.nats.urls or nats.urls:
            return self.nats
        if not self.embedded.accounts:
            return nats
        ours = self.nats
        return replace(nats, user=ours.user, password=ours.password, token=ours.token, own=ours.own)

    def validate(self) -> list[str]:
        """Every complaint, one sentence each; an empty list means that the server may start."""
        found = self.limits.complaints() + self.requests.complaints()
        if self.store.kind == "file" and self.store.directory is None:
            found.append("for FILE stores, root directory must be specified")
        if not self.cluster_id or any(char.isspace() for char in self.cluster_id):
            found.append(f"invalid cluster ID {go_quote(self.cluster_id)}: it becomes part of NATS subjects")
        if not 1 <= self.store.raft_groups <= bounds.RAFT_GROUPS_MAX:
            found.append(
                f"there must be between 1 and {bounds.RAFT_GROUPS_MAX} groups of channels, not {self.store.raft_groups}"
            )
        if self.cluster is not None:
            found += self.cluster.complaints()
            if self.store.kind == "memory":
                found.append("stan: clustering mode not supported with MEMORY store type")
        found += self._mode_complaints()
        found += self._jetstream_complaints()
        found += self._reply_complaints()
        if self.encryption is not None:
            found += self.encryption.complaints()
        if self.permissions is not None:
            found += self.permissions.complaints()
        found += policy_complaints(self.policies)
        beat = self.heartbeat
        if beat.interval_ns <= 0 or beat.timeout_ns <= 0 or beat.fail_count < 0:
            found.append("heartbeat interval and timeout must be above 0 and the fail count not below 0")
        if not -1 <= self.embedded.port <= 65535:
            found.append(f"port must be between -1 and 65535, not {self.embedded.port}")
        return found + self.monitor.complaints(self.permissions) + self.tracing.complaints()

    def _reply_complaints(self) -> Iterator[str]:
        """Yield the mistakes in the subjects to which acks of publishes may go."""
        for prefix in self.reply_prefixes:
            if not _is_prefix(prefix):
                yield f"invalid reply prefix {go_quote(prefix)}: {_PREFIX}"
        if len(self.reply_prefixes) > bounds.REPLY_PREFIXES_MAX:
            yield f"there may be at most {bounds.REPLY_PREFIXES_MAX} reply prefixes, not {len(self.reply_prefixes)}"

    def _mode_complaints(self) -> Iterator[str]:
        """Yield the reasons against this kind of store, or against this way to share the work or the store with other servers."""
        if self.store.kind == "sql":
            if self.store.source is None:
                yield "for SQL stores, a SQLite file must be named: -sql_source, or source in the sql block"
            if self.cluster is not None:
                yield "stan: clustering mode not supported with SQL store type: each node keeps a FILE store of its own"
            if self.encryption is not None:
                yield "a SQL store is not encrypted by this version: leave the encryption out, or use a FILE store"
        if self.partitioning and not self.limits.per_channel:
            yield "stan: no configured channel"
        if self.partitioning and self.cluster is not None:
            yield "stan: channels partitioning in clustering mode is not supported"
        if self.ft_group and self.store.kind == "memory":
            yield "ft: only FILE or SQL stores supported in FT mode"
        if any(char.isspace() or char in "*>" for char in self.ft_group):
            yield f"invalid ft group {go_quote(self.ft_group)}: it becomes part of NATS subjects"

    def _jetstream_complaints(self) -> Iterator[str]:
        """Yield the reasons why clients of JetStream cannot be served."""
        if self.jetstream_api and self.partitioning:
            yield "jetstream_api is not supported together with partitioning: each server would answer for all streams"
        for pattern in self.jetstream_channels:
            if not _covers_names(pattern):
                yield f"jetstream_api is true, false or patterns of channels, and {go_quote(pattern)} is none"
        if len(self.jetstream_channels) > bounds.STREAM_PATTERNS_MAX:
            yield f"jetstream_api takes at most {bounds.STREAM_PATTERNS_MAX} patterns, not {len(self.jetstream_channels)}"
        host, colon, port = self.jetstream_leaf.rpartition(":")
        if self.jetstream_leaf and not (colon and host and port.isdigit() and 0 < int(port) < 65536):
            yield f"jetstream_leaf is host:port of a leafnode listener, not {go_quote(self.jetstream_leaf)}"


def _covers_names(pattern: str) -> bool:
    """True for a pattern of channels, in which `*` may be a part of a token, too."""
    tokens = [token if token in ("*", ">") else token.replace("*", "x") for token in pattern.split(".")]
    return valid_name(".".join(tokens), wildcards=True) and pattern.isprintable() and " " not in pattern


_PREFIX: Final = "a subject that ends with a dot, without wildcards, and none on which servers listen"


def _is_prefix(subject: str) -> bool:
    name = subject.removesuffix(".")
    plain = valid_name(name, wildcards=False) and name.isprintable() and " " not in name
    short = len(name) <= bounds.REPLY_PREFIX_CHARS_MAX
    return subject.endswith(".") and plain and short and not subject.startswith(RESERVED)


def parse_nats_urls(text: str) -> tuple[str, ...]:
    """Split what `-ns` takes into URLs (STAN-SPEC 12.4); `tls://` goes on asking for TLS.

    Raises:
        ConfigError: no scheme or no port where one is needed.
    """
    if "@" in text or "," in text:
        return tuple(url for part in text.split(",") if (url := part.strip()))
    scheme, mark, address = text.partition("://")
    if not mark:
        raise ConfigError([f"malformed url: {text}"])
    address = address.split("/", 1)[0]
    host, colon, port = address.rpartition(":")
    if not scheme or not colon or not port.isdigit() or port != port.strip() or host.endswith(":"):
        raise ConfigError([f"address {address}: missing port in address"])
    return (f"{'tls' if scheme.lower() == 'tls' else 'nats'}://{host}:{port}",)
