"""Every key of a configuration file that the streaming server has a meaning for: names, kind, and the flag it is like.

Promises: the keys of STAN-SPEC 8.3, 9.8 and 12.3 under all their names, and those of this version's own options. Names are
lower case here and in any case in a file. Holds no code that acts.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from stan.config import KEY_VARIABLES
from stan.settings.go_flags import Value

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
"""What no flag can say, with its default."""


ENVIRONMENT: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "encryption_key": ("encrypt", KEY_VARIABLES),
}
"""Secrets that the environment gives, over file and flags: key, the switch that asks for it, names of variables."""


class Want(Enum):
    """What the value of a key must be; durations are strings that must be readable."""

    STRING = "string"
    DURATION = "string of time"
    BOOL = "bool"
    INT = "int64"
    LIST = "slice"


Keys = dict[str, tuple[str, Want]]


def _keys(want: Want, names: Mapping[str, str]) -> Keys:
    return {name: (key, want) for key, all_names in names.items() for name in all_names.split()}


TOP: Final = (
    _keys(
        Want.STRING,
        {
            "cluster_id": "id cid cluster_id",
            "discover_prefix": "discover_prefix",
            "store": "st store_type store storetype",
            "dir": "dir datastore",
            "nats_server": "ns nats_server nats_server_url",
            "credentials": "credentials",
            "ft_group": "ft_group ft_group_name",
            "syslog_name": "syslog_name",
            "encryption_cipher": "encryption_cipher",
            "encryption_key": "encryption_key",
            "username": "username user",
            "password": "password pass",
            "token": "token",
            "nkey_seed_file": "nkey_seed_file",
        },
    )
    | _keys(
        Want.BOOL,
        {
            "stan_debug": "sd stan_debug",
            "stan_trace": "sv stan_trace",
            "secure": "secure",
            "partitioning": "partitioning",
            "encrypt": "encrypt",
            "dashboard_actions": "dashboard_actions",
            "replace_durable": "replace_durable replace_durables replace_duplicate_durable replace_duplicate_durables",
        },
    )
    | _keys(
        Want.DURATION,
        {
            "hb_interval": "hbi hb_interval server_to_client_hb_interval",
            "hb_timeout": "hbt hb_timeout server_to_client_hb_timeout",
        },
    )
    | _keys(Want.LIST, {"http_hosts": "http_hosts", "reply_prefixes": "reply_prefixes"})
    | _keys(Want.INT, {"hb_fail_count": "hbf hb_fail_count server_to_client_hb_fail_count"})
)
TLS: Final = _keys(
    Want.STRING,
    {
        "tls_client_cert": "client_cert",
        "tls_client_key": "client_key",
        "tls_client_cacert": "client_ca client_cacert",
        "tls_server_name": "server_name server_hostname",
    },
) | _keys(Want.BOOL, {"tls_skip_verify": "skip_verify insecure"})
CHANNEL: Final = _keys(
    Want.INT,
    {
        "max_subs": "msu max_subs max_subscriptions maxsubscriptions",
        "max_msgs": "mm max_msgs maxmsgs max_count maxcount",
        "max_bytes": "mb max_bytes maxbytes",
    },
) | _keys(Want.DURATION, {"max_age": "ma max_age maxage", "max_inactivity": "mi max_inactivity maxinactivity"})
LIMITS: Final = CHANNEL | _keys(
    Want.INT,
    {
        "max_channels": "mc max_channels maxchannels",
        "max_clients": "max_clients",
        "max_msg_bytes": "max_msg_bytes",
        "max_request_rate": "max_request_rate",
        "max_client_request_rate": "max_client_request_rate",
    },
)
FILE: Final = (
    _keys(
        Want.BOOL,
        {
            "file_compact_enabled": "compact compact_enabled",
            "file_crc": "crc do_crc",
            "file_sync": "sync do_sync sync_on_flush",
        },
    )
    | _keys(
        Want.INT,
        {
            "file_compact_frag": "compact_frag compact_fragmentation",
            "file_compact_interval": "compact_interval",
            "file_compact_min_size": "compact_min_size",
            "file_buffer_size": "buffer_size",
            "file_read_buffer_size": "file_read_buffer_size read_buffer_size",
            "file_crc_poly": "crc_poly",
            "file_slice_max_msgs": "slice_max_msgs slice_max_count slice_msgs slice_count",
            "file_slice_max_bytes": "slice_max_bytes slice_max_size slice_bytes slice_size",
            "file_fds_limit": "file_descriptors_limit fds_limit",
            "file_parallel_recovery": "parallel_recovery",
        },
    )
    | _keys(
        Want.DURATION,
        {
            "file_auto_sync": "file_auto_sync auto_sync",
            "file_slice_max_age": "slice_max_age slice_age slice_max_time slice_time_limit",
        },
    )
    | _keys(Want.STRING, {"file_slice_archive_script": "slice_archive_script slice_archive slice_script"})
)
SQL: Final = (
    _keys(Want.STRING, {"sql_driver": "driver", "sql_source": "source"})
    | _keys(Want.BOOL, {"sql_no_caching": "no_caching"})
    | _keys(Want.INT, {"sql_max_open_conns": "max_open_conns max_conns", "sql_bulk_insert_limit": "bulk_insert_limit"})
)
CLUSTER: Final = (
    _keys(Want.STRING, {"cluster_node_id": "node_id", "cluster_log_path": "log_path"})
    | _keys(Want.LIST, {"cluster_peers": "peers"})
    | _keys(
        Want.BOOL,
        {
            "cluster_bootstrap": "bootstrap",
            "cluster_sync": "sync",
            "cluster_raft_logging": "raft_logging",
            "cluster_allow_add_remove_node": "allow_add_remove_node",
            "cluster_proceed_on_restore_failure": "proceed_on_restore_failure",
            "join": "join",
            "replica": "replica",
            "": "bolt_free_list_sync bolt_free_list_map nodes_connections",
        },
    )
    | _keys(
        Want.INT,
        {
            "cluster_log_cache_size": "log_cache_size",
            "cluster_log_snapshots": "log_snapshots",
            "cluster_trailing_logs": "trailing_logs",
            "replicas": "replicas",
            "raft_groups": "raft_groups",
        },
    )
    | _keys(
        Want.DURATION,
        {"": "raft_heartbeat_timeout raft_election_timeout raft_lease_timeout raft_commit_timeout"},
    )
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
SHARED_BLOCKS = {"tls": TLS.keys() - {"insecure"}, "cluster": CLUSTER.keys()}
"""Blocks that NATS has as well, with the keys in them that it has not."""

STREAMING = {"streaming", "permissions", *TOP, *SECTIONS} - SHARED_BLOCKS.keys()

NATS = frozenset(
    """
    port host net listen server_name client_advertise http http_port https https_port debug trace logtime log_file logfile
    pid_file pidfile ports_file_dir max_payload max_pending max_connections max_control_line ping_interval ping_max
    write_deadline store_dir prof_port syslog remote_syslog http_base_path authorization accounts cluster tls
    """.split()  # noqa: SIM905 - shorter
)
"""Keys of NATS that somebody may use as variables for the streaming server, too."""

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
