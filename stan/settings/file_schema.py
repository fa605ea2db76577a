"""Every key of a configuration file that the streaming server has a meaning for: its names, and the flag it is like.

Promises: the keys of STAN-SPEC 8.3, 9.8 and 12.3 under all their names, and those of this version's own options. Names are
lower case here and in any case in a file. Holds no code that acts.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from stan.config import KEY_VARIABLES
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagKind, Value

FILE_ONLY: Final[Mapping[str, Value]] = {
    "discover_prefix": "_STAN.discover",
    "partitioning": False,
    "credentials": "",
    "nkey_seed_file": "",
    "username": "",
    "password": "",
    "token": "",
    "tls_server_name": "",
    "tls_skip_verify": False,
}
"""Settings without a flag, with their defaults."""


ENVIRONMENT: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "encryption_key": ("encrypt", KEY_VARIABLES),
}
"""Secrets that the environment gives, over file and flags: key, the switch that asks for it, names of variables."""

DEFAULTS: Final = {"http_host": "STAN_HTTP_HOST"}
"""Settings that a variable of the environment gives where neither a flag nor a file does: an image has one for all its uses."""


class Want(Enum):
    """The type of the value of a key; durations are strings that must be readable."""

    STRING = "string"
    DURATION = "string of time"
    BOOL = "bool"
    INT = "int64"
    LIST = "slice"
    SHARE = "float64"
    SWITCH = "bool, string or slice"


Keys = dict[str, tuple[str, Want]]


_WANTS: Final = {
    FlagKind.BOOL: Want.BOOL,
    FlagKind.INT: Want.INT,
    FlagKind.SIZE: Want.INT,
    FlagKind.TEXT: Want.STRING,
    FlagKind.DURATION: Want.DURATION,
    FlagKind.SWITCH: Want.SWITCH,
}
_WANTED: Final = (
    {key: Want.BOOL if default is False else Want.STRING for key, default in FILE_ONLY.items()}
    | {flag.key: _WANTS[flag.kind] for flag in TABLE}
    | {"trace_sample": Want.SHARE}
    | dict.fromkeys(("cluster_peers", "cluster_labels", "http_hosts", "reply_prefixes"), Want.LIST)
)
"""A key of a file is of the same kind as its flag; texts with commas are lists."""


def _keys(names: Mapping[str, str]) -> Keys:
    return {name: (key, _WANTED[key]) for key, all_names in names.items() for name in all_names.split()}


TOP: Final = _keys(
    {
        "cluster_id": "id cid cluster_id",
        "discover_prefix": "discover_prefix",
        "store": "st store_type store storetype",
        "dir": "dir datastore",
        "nats_server": "ns nats_server nats_server_url",
        "credentials": "credentials",
        "ft_group": "ft_group ft_group_name",
        "syslog_name": "syslog_name",
        "encrypt": "encrypt",
        "encryption_cipher": "encryption_cipher",
        "encryption_key": "encryption_key",
        "username": "username user",
        "password": "password pass",
        "token": "token",
        "nkey_seed_file": "nkey_seed_file",
        "stan_debug": "sd stan_debug",
        "stan_trace": "sv stan_trace",
        "secure": "secure",
        "partitioning": "partitioning",
        "dashboard_actions": "dashboard_actions",
        "http_hosts": "http_hosts",
        "replace_durable": "replace_durable replace_durables replace_duplicate_durable replace_duplicate_durables",
        "reply_prefixes": "reply_prefixes",
        "jetstream_api": "jetstream_api",
        "jetstream_leaf": "jetstream_leaf",
        "trace_sample": "trace_sample",
        "trace_endpoint": "trace_endpoint",
        "hb_interval": "hbi hb_interval server_to_client_hb_interval",
        "hb_timeout": "hbt hb_timeout server_to_client_hb_timeout",
        "hb_fail_count": "hbf hb_fail_count server_to_client_hb_fail_count",
    }
)
TLS: Final = _keys(
    {
        "tls_client_cert": "client_cert",
        "tls_client_key": "client_key",
        "tls_client_cacert": "client_ca client_cacert",
        "tls_server_name": "server_name server_hostname",
        "tls_skip_verify": "skip_verify insecure",
    }
)
CHANNEL: Final = _keys(
    {
        "max_subs": "msu max_subs max_subscriptions maxsubscriptions",
        "max_msgs": "mm max_msgs maxmsgs max_count maxcount",
        "max_bytes": "mb max_bytes maxbytes",
        "max_age": "ma max_age maxage",
        "max_inactivity": "mi max_inactivity maxinactivity",
    }
)
LIMITS: Final = CHANNEL | _keys(
    {
        "max_channels": "mc max_channels maxchannels",
        "max_clients": "max_clients",
        "max_msg_bytes": "max_msg_bytes",
        "max_request_rate": "max_request_rate",
        "max_client_request_rate": "max_client_request_rate",
    }
)
FILE: Final = _keys(
    {
        "file_sync": "sync do_sync sync_on_flush",
        "file_auto_sync": "file_auto_sync auto_sync",
        "file_compact_enabled": "compact compact_enabled",
        "file_compact_frag": "compact_frag compact_fragmentation",
        "file_compact_interval": "compact_interval",
        "file_compact_min_size": "compact_min_size",
        "file_buffer_size": "buffer_size",
        "file_read_buffer_size": "file_read_buffer_size read_buffer_size",
        "file_crc": "crc do_crc",
        "file_crc_poly": "crc_poly",
        "file_slice_max_msgs": "slice_max_msgs slice_max_count slice_msgs slice_count",
        "file_slice_max_bytes": "slice_max_bytes slice_max_size slice_bytes slice_size",
        "file_slice_max_age": "slice_max_age slice_age slice_max_time slice_time_limit",
        "file_slice_archive_script": "slice_archive_script slice_archive slice_script",
        "file_fds_limit": "file_descriptors_limit fds_limit",
        "file_parallel_recovery": "parallel_recovery",
    }
)
SQL: Final = _keys(
    {
        "sql_driver": "driver",
        "sql_source": "source",
        "sql_no_caching": "no_caching",
        "sql_max_open_conns": "max_open_conns max_conns",
        "sql_bulk_insert_limit": "bulk_insert_limit",
    }
)
CLUSTER: Final = (
    _keys(
        {
            "cluster_node_id": "node_id",
            "cluster_log_path": "log_path",
            "cluster_peers": "peers",
            "cluster_labels": "labels",
            "cluster_bootstrap": "bootstrap",
            "cluster_sync": "sync",
            "cluster_raft_logging": "raft_logging",
            "cluster_allow_add_remove_node": "allow_add_remove_node",
            "cluster_proceed_on_restore_failure": "proceed_on_restore_failure",
            "join": "join",
            "replica": "replica",
            "replicas": "replicas",
            "raft_groups": "raft_groups",
            "cluster_log_cache_size": "log_cache_size",
            "cluster_log_snapshots": "log_snapshots",
            "cluster_trailing_logs": "trailing_logs",
        }
    )
    | dict.fromkeys(("bolt_free_list_sync", "bolt_free_list_map", "nodes_connections"), ("", Want.BOOL))
    | {f"raft_{what}_timeout": ("", Want.DURATION) for what in ("heartbeat", "election", "lease", "commit")}
)
"""Keys with "" are read and have no effect."""

_LIMIT_NAMES = ("limits", "store_limits", "storelimits")
PER_CHANNEL_NAMES = ("channels", "channels_limits", "channelslimits", "per_channel", "per_channel_limits")
SECTIONS: Final[dict[str, tuple[str, Keys]]] = (
    {"tls": ("TLS", TLS), "cluster": ("cluster", CLUSTER)}
    | dict.fromkeys(("file", "file_options"), ("file options", FILE))
    | dict.fromkeys(("sql", "sql_options"), ("SQL options", SQL))
    | dict.fromkeys(_LIMIT_NAMES, ("store limits", LIMITS))
)
SHARED_BLOCKS = {"tls": TLS.keys(), "cluster": CLUSTER.keys()}
"""Blocks that NATS has as well, with the keys in them that are the streaming server's."""
COMMON_KEYS = frozenset({"insecure"})
"""Those of these keys that NATS has, too."""

STREAMING = {"streaming", "permissions", "policies", "dashboard", *TOP, *SECTIONS} - SHARED_BLOCKS.keys()

LOGGED: Final = _keys(
    {
        "log": "log_file logfile",
        "log_size_limit": "log_size_limit logfile_size_limit",
        "logtime": "logtime",
        "logtime_utc": "logtime_utc",
        "syslog": "syslog",
        "remote_syslog": "remote_syslog",
        "pid": "pid_file pidfile",
        "ports_file_dir": "ports_file_dir",
    }
)
"""Keys of NATS about the log and the files of the process: of both servers, as there they were one process."""

NATS: Final = frozenset(
    """
    account_resolver accounts accounts_resolver allow_non_tls authorization client_advertise cluster connect_error_reports
    debug default_js_domain default_sentinel disable_sublist_cache feature_flags gateway host http_base_path
    jetstream lame_duck_duration lame_duck_grace_period leaf leafnodes listen log_max_num logfile_max_num
    mappings maps max_closed_clients max_conn max_connections max_control_line max_payload max_pending max_sub_tokens
    max_subs max_subscription_tokens max_subscriptions max_traced_msg_len mqtt net no_auth_user
    no_fast_producer_stall no_header_support no_sublist_cache no_sys_acc no_system no_system_account ocsp ocsp_cache
    operator operators ping_interval ping_max port prof_block_rate prof_port proxies proxy_protocol
    reconnect_error_reports resolver resolver_pinned_accounts resolver_preload resolver_tls root root_operator
    root_operators roots server_metadata server_name server_tags store_dir storedir system system_account tls trace
    trace_headers trace_verbose trusted trusted_keys websocket write_deadline write_timeout ws
    """.split()  # noqa: SIM905 - shorter
)
"""The other keys of nats-server at the top of a file; it refuses to start with one that it does not know."""

PAGES: Final = dict.fromkeys(("http", "http_port", "monitor_port"), "http_port") | dict.fromkeys(
    ("https", "https_port"), "https_port"
)
"""Keys of NATS that say where its monitoring pages are to be."""

OVERRIDES = {
    "max_msgs": "msgs",
    "max_bytes": "bytes",
    "max_age": "age_ns",
    "max_subs": "subscriptions",
    "max_inactivity": "inactivity_ns",
}
