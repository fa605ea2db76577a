"""Every flag of `stan-server`, one row each: names, kind, default, help, and treatment.

Promises: the flags of NATS Streaming Server 0.25.6 with the same spelling and defaults (STAN-SPEC 8.3, 9.8, 12.2).
A flag is served, passed on to nats-server, accepted without effect, or refused by name; never ignored.
Holds no code that acts.
"""
# ruff: noqa: FBT003 - a table of values

from stan.settings.go_flags import Flag, FlagKind

_BOOL, _INT, _TEXT, _DURATION, _SIZE = FlagKind.BOOL, FlagKind.INT, FlagKind.TEXT, FlagKind.DURATION, FlagKind.SIZE

NO_ARCHIVE = "this version runs no archive script"

_SERVER = (
    Flag(("cid", "cluster_id"), _TEXT, "test-cluster", "<name>", "Cluster id that clients connect to"),
    Flag(("st", "store"), _TEXT, "MEMORY", "<type>", "Where messages are kept: MEMORY, FILE or SQL"),
    Flag(("dir",), _TEXT, "", "<directory>", "Root directory of the FILE store"),
    Flag(("mc", "max_channels"), _INT, 100, "<count>", "Most channels, 0 for no limit"),
    Flag(("msu", "max_subs"), _INT, 1000, "<count>", "Most subscriptions of a channel, 0 for no limit"),
    Flag(("mm", "max_msgs"), _INT, 1_000_000, "<count>", "Most messages of a channel, 0 for no limit"),
    Flag(("mb", "max_bytes"), _SIZE, "1024000000", "<size>", "Most bytes of a channel's messages, 0 for no limit"),
    Flag(("ma", "max_age"), _DURATION, 0, "<duration>", "Age at which messages are dropped, 0 for never"),
    Flag(("mi", "max_inactivity"), _DURATION, 0, "<duration>", "Idle time after which a channel goes, 0 for never"),
    Flag(("max_clients",), _INT, 0, "<count>", "Most clients at once, 0 for no limit"),
    Flag(("max_msg_bytes",), _SIZE, "0", "<size>", "Most bytes of one message, 0 for what NATS takes"),
    Flag(
        ("max_request_rate",),
        _INT,
        0,
        "<count>",
        "Most connects, subscribes and admin requests a second, 0 for no limit",
    ),
    Flag(("max_client_request_rate",), _INT, 0, "<count>", "Most connects and subscribes a second of one client"),
    Flag(("ns", "nats_server"), _TEXT, "", "<url>[,<url>...]", "NATS to connect to, instead of the embedded one"),
    Flag(("sc", "stan_config"), _TEXT, "", "<file>", "Configuration file (default: that of -c)"),
    Flag(("hbi", "hb_interval"), _DURATION, 30_000_000_000, "<duration>", "Time between heartbeats to a client"),
    Flag(("hbt", "hb_timeout"), _DURATION, 10_000_000_000, "<duration>", "Time a client has to answer a heartbeat"),
    Flag(("hbf", "hb_fail_count"), _INT, 10, "<count>", "Missed heartbeats that a client survives"),
    Flag(("ft_group",), _TEXT, "", "<name>", "Share the store with the servers of this fault tolerance group"),
    Flag(
        ("sl", "signal"),
        _TEXT,
        "",
        "<signal>[=<pid>]",
        "Send stop, quit, term, ldm, reopen or reload to a running server (by pid or pid file) and exit",
    ),
    Flag(
        ("encrypt",),
        _BOOL,
        False,
        "<bool>",
        "Encrypt messages on the disk; the key is best given by $NATS_STREAMING_ENCRYPTION_KEY",
    ),
    Flag(("encryption_cipher",), _TEXT, "", "<cipher>", "AES or CHACHA (default: the better one here)"),
    Flag(("encryption_key",), _TEXT, "", "<key>", "Encryption key; others on this machine may see it here"),
    Flag(("replace_durable",), _BOOL, False, "<bool>", "A second subscription of a durable replaces the first"),
    Flag(
        ("reply_prefixes",),
        _TEXT,
        "",
        "<prefix>[,<prefix>...]",
        "Replies of publishes may also begin with these, beside _INBOX. and _STAN.acks.",
    ),
    Flag(
        ("jetstream_api",),
        FlagKind.SWITCH,
        False,
        "<bool>|<pattern>[,<pattern>...]",
        "Serve clients of NATS's JetStream, too; with patterns their streams have these channels and subjects alone",
    ),
    Flag(("jetstream_leaf",), _TEXT, "", "<host:port>", "Where a NATS outside listens for leafnodes"),
    Flag(("trace_sample",), _TEXT, "", "<share>", "Share of the messages that are traced, as 0.001 (default: none)"),
    Flag(("trace_endpoint",), _TEXT, "http://127.0.0.1:4318", "<url>", "Receiver of traces, OTLP over HTTP"),
    Flag(("io_batch_size",), _INT, 1024, "<count>", ignored=True),
    Flag(("io_sleep_time",), _INT, 0, "<microseconds>", ignored=True),
)

_CLUSTER = (
    Flag(("clustered",), _BOOL, False, "<bool>", "Run as a node of a cluster"),
    Flag(("cluster_node_id",), _TEXT, "", "<name>", "Id of this node (default: generated, kept in the directory)"),
    Flag(("cluster_bootstrap",), _BOOL, False, "<bool>", "Make a new cluster if none of the peers knows one"),
    Flag(("cluster_peers",), _TEXT, "", "<id>[,<id>...]", "Ids of the other voting nodes, the same on all nodes"),
    Flag(("cluster_labels",), _TEXT, "", "<key=value>[,...]", "Where this node stands: zone=, rack=, host="),
    Flag(("join",), _BOOL, False, "<bool>", "Ask the running cluster for peers, groups and replicas"),
    Flag(("replica",), _BOOL, False, "<bool>", "Keep a copy of everything that serves reads, without a vote"),
    Flag(("replicas",), _INT, 3, "<count>", "Nodes that hold each group of channels"),
    Flag(("raft_groups",), _INT, 0, "<count>", "Groups of channels, the same on all nodes (default: 8, alone 1)"),
    Flag(("cluster_log_path",), _TEXT, "", "<directory>", "Root directory where --dir is not given"),
    Flag(("cluster_raft_logging",), _BOOL, False, "<bool>", "Log what the groups say among themselves"),
    Flag(("cluster_allow_add_remove_node",), _BOOL, False, "<bool>", "Nodes may be added and removed at request"),
    Flag(("cluster_log_cache_size",), _INT, 512, "<count>", "Without effect", ignored=True),
    Flag(("cluster_log_snapshots",), _INT, 2, "<count>", "Without effect", ignored=True),
    Flag(("cluster_trailing_logs",), _INT, 10240, "<count>", "Without effect", ignored=True),
    Flag(("cluster_sync",), _BOOL, False, "<bool>", "Without effect: --file_sync decides, as alone", ignored=True),
    Flag(("cluster_proceed_on_restore_failure",), _BOOL, False, "<bool>", ignored=True),
)

_FILE = (
    Flag(("file_sync",), _BOOL, True, "<bool>", "Sync before acknowledging; false syncs in the background"),
    Flag(("file_auto_sync",), _DURATION, 60_000_000_000, "<duration>", "Without effect: syncs come every 250 ms"),
    Flag(("file_compact_enabled",), _BOOL, True, "<bool>", "Without effect", ignored=True),
    Flag(("file_compact_frag",), _INT, 50, "<percent>", "Without effect", ignored=True),
    Flag(("file_compact_interval",), _INT, 300, "<seconds>", "Without effect", ignored=True),
    Flag(("file_compact_min_size",), _SIZE, "1048576", "<size>", "Without effect", ignored=True),
    Flag(("file_buffer_size",), _SIZE, "2097152", "<size>", "Without effect", ignored=True),
    Flag(("file_read_buffer_size",), _SIZE, "2097152", "<size>", "Without effect", ignored=True),
    Flag(("file_crc",), _BOOL, True, "<bool>", "Without effect: checksums are always verified", ignored=True),
    Flag(("file_crc_poly",), _INT, 3_988_292_384, "<number>", "Without effect", ignored=True),
    Flag(("file_slice_max_msgs",), _INT, 0, "<count>", "Without effect", ignored=True),
    Flag(("file_slice_max_bytes",), _SIZE, "67108864", "<size>", "Without effect", ignored=True),
    Flag(("file_slice_max_age",), _DURATION, 0, "<duration>", "Without effect", ignored=True),
    Flag(("file_slice_archive_script",), _TEXT, "", "<program>", "Run when a slice is dropped", refused=NO_ARCHIVE),
    Flag(("file_fds_limit",), _INT, 0, "<count>", "Without effect", ignored=True),
    Flag(("file_parallel_recovery",), _INT, 1, "<count>", "Without effect", ignored=True),
    Flag(("file_truncate_bad_eof",), _BOOL, False, "<bool>", "Start without what a log has lost by damage of its end"),
)

_SQL = (
    Flag(("sql_driver",), _TEXT, "", "<name>", "sqlite, which is the only one here"),
    Flag(("sql_source",), _TEXT, "", "<file>", "SQLite file that holds everything, made if need be"),
    Flag(("sql_no_caching",), _BOOL, False, "<bool>", "Without effect: what is acknowledged is written", ignored=True),
    Flag(("sql_max_open_conns",), _INT, 0, "<count>", "Without effect", ignored=True),
    Flag(("sql_bulk_insert_limit",), _INT, 0, "<count>", "Without effect", ignored=True),
)

_CLIENT_TLS = (
    Flag(("secure",), _BOOL, False, "<bool>", "Use TLS towards NATS, without certificates of our own"),
    Flag(("tls_client_key",), _TEXT, "", "<file>", "Key of our certificate"),
    Flag(("tls_client_cert",), _TEXT, "", "<file>", "Our certificate"),
    Flag(("tls_client_cacert",), _TEXT, "", "<file>", "Authority that signed the certificate of NATS"),
)

_STREAMING_LOG = (
    Flag(("SD", "stan_debug"), _BOOL, False, "<bool>", "Debug lines of the streaming server"),
    Flag(("SV", "stan_trace"), _BOOL, False, "<bool>", "Trace lines of the streaming server"),
    Flag(("SDV",), _BOOL, False, "<bool>", "Both"),
    Flag(("syslog_name",), _TEXT, "", "<name>", "Name that the syslog shows"),
)

_EMBEDDED = (
    Flag(("a", "net", "addr"), _TEXT, "", "<host>", "Address to listen on (default: 0.0.0.0)"),
    Flag(("p", "port"), _INT, 0, "<port>", "Port to listen on, -1 for any (default: 4222)"),
    Flag(("P", "pid"), _TEXT, "", "<file>", "File that gets the process id"),
    Flag(("m", "http_port"), _INT, 0, "<port>", "Port of the HTTP monitoring pages"),
    Flag(("ms", "https_port"), _INT, 0, "<port>", "Port of the HTTPS monitoring pages"),
    Flag(("http_host",), _TEXT, "", "<host>", "Address that the monitoring pages listen on (default: 127.0.0.1)"),
    Flag(
        ("http_hosts",), _TEXT, "", "<name>[,<name>...]", "Further names by which the pages may be asked for; *.name, *"
    ),
    Flag(("dashboard_actions",), _BOOL, False, "<bool>", "The dashboard may change things, not only show them"),
    Flag(("c", "config"), _TEXT, "", "<file>", "Configuration file of the embedded NATS server (default: that of -sc)"),
    Flag(("t",), _BOOL, False),
    Flag(("n", "name", "server_name"), _TEXT, "", passed=True),
    Flag(("client_advertise",), _TEXT, "", passed=True),
    Flag(("ports_file_dir",), _TEXT, ""),
    Flag(("profile",), _INT, 0, passed=True),
    Flag(("js", "jetstream"), _BOOL, False, passed=True),
    Flag(("sd", "store_dir"), _TEXT, "", passed=True),
)

_LOG = (
    Flag(("l", "log"), _TEXT, "", "<file>", "File to log to (default: standard error)"),
    Flag(("T", "logtime"), _BOOL, True, "<bool>", "Time stamps in the log", passed=True),
    Flag(("s", "syslog"), _BOOL, False, "<bool>", "Log to the syslog", passed=True),
    Flag(("r", "remote_syslog"), _TEXT, "", "<url>", "Log to a syslog server, as udp://localhost:514", passed=True),
    Flag(("D", "debug"), _BOOL, False, "<bool>", "Debug lines of the embedded NATS server", passed=True),
    Flag(("V", "trace"), _BOOL, False, "<bool>", "Protocol trace of the embedded NATS server", passed=True),
    Flag(("DV",), _BOOL, False, "<bool>", "Both", passed=True),
    Flag(("VV",), _BOOL, False, passed=True),
    Flag(("DVV",), _BOOL, False, passed=True),
    Flag(("log_size_limit",), _INT, 0),
    Flag(("logtime_utc",), _BOOL, False, passed=True),
    Flag(("max_traced_msg_len",), _INT, 0, passed=True),
)

_AUTHORIZATION = (
    Flag(("user",), _TEXT, "", "<user>", "User that NATS connections need"),
    Flag(("pass",), _TEXT, "", "<password>", "Password that NATS connections need"),
    Flag(("auth",), _TEXT, "", "<token>", "Token that NATS connections need"),
)

_TLS = (
    Flag(("tls",), _BOOL, False, "<bool>", "TLS for clients, without verifying them", passed=True),
    Flag(("tlscert",), _TEXT, "", "<file>", "Certificate of the server", passed=True),
    Flag(("tlskey",), _TEXT, "", "<file>", "Key of that certificate", passed=True),
    Flag(("tlsverify",), _BOOL, False, "<bool>", "TLS, and clients must show a certificate", passed=True),
    Flag(("tlscacert",), _TEXT, "", "<file>", "Authority that signed the clients' certificates", passed=True),
)

_ROUTES = (
    Flag(("routes",), _TEXT, "", "<url>[,<url>...]", "NATS servers to connect to", passed=True),
    Flag(("cluster",), _TEXT, "", "<url>", "URL to listen on for routes", passed=True),
    Flag(("cluster_name",), _TEXT, "", passed=True),
    Flag(("cluster_listen",), _TEXT, "", passed=True),
    Flag(("cluster_advertise",), _TEXT, "", passed=True),
    Flag(("no_advertise",), _BOOL, False, passed=True),
    Flag(("connect_retries",), _INT, 0, passed=True),
)

_COMMON = (
    Flag(("h", "help"), _BOOL, False, "", "Show this text"),
    Flag(("v", "version"), _BOOL, False, "", "Show the version"),
    Flag(("help_tls",), _BOOL, False, "", "Show help on TLS"),
)

GROUPS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("Streaming Server Options", _SERVER),
    ("Streaming Server Clustering Options", _CLUSTER),
    ("Streaming Server File Store Options", _FILE),
    ("Streaming Server SQL Store Options", _SQL),
    ("Streaming Server TLS Options", _CLIENT_TLS),
    ("Streaming Server Logging Options", _STREAMING_LOG),
    ("Embedded NATS Server Options", _EMBEDDED),
    ("Logging Options", _LOG),
    ("Authorization Options", _AUTHORIZATION),
    ("TLS Options", _TLS),
    ("NATS Clustering Options", _ROUTES),
    ("Common Options", _COMMON),
)
"""The table as the help groups it."""

TABLE: tuple[Flag, ...] = tuple(flag for _, flags in GROUPS for flag in flags)
