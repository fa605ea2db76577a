"""The command line: Go's flag syntax, the table, and what becomes of each option."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.units import parse_duration, parse_size

from stan.config import ClusterConfig, Config
from stan.labels import Labels
from stan.server.help import help_text
from stan.settings.flags import GROUPS, TABLE
from stan.settings.go_flags import Flag, FlagError, FlagKind, parse_bool, parse_int, scan
from stan.settings.settings import Action, parse

SECOND = 1_000_000_000


def values(*argv):
    return scan(argv, TABLE).values


def serve(*argv) -> Config:
    parsed = parse(argv)
    assert parsed.action is Action.SERVE
    assert not parsed.complaints
    return parsed.config


@pytest.mark.parametrize("argv", [["-cid", "x"], ["--cid", "x"], ["-cid=x"], ["--cid=x"], ["-cluster_id", "x"]])
def test_spellings_of_one_flag_mean_the_same(argv):
    assert values(*argv) == {"cluster_id": "x"}


@pytest.mark.parametrize(("text", "value"), [("-D", True), ("-D=true", True), ("--debug=f", False), ("-D=0", False)])
def test_switch_takes_its_value_only_behind_equals(text, value):
    assert values(text, "-p", "1") == {"debug": value, "port": 1}


def test_switch_followed_by_word_ends_the_flags():
    scanned = scan(["-D", "true", "-p", "1"], TABLE)
    assert (scanned.values, scanned.arguments) == ({"debug": True}, ("true", "-p", "1"))


def test_double_dash_ends_the_flags_and_last_value_wins():
    scanned = scan(["-p", "1", "-port=2", "--", "-x"], TABLE)
    assert (scanned.values, scanned.arguments) == ({"port": 2}, ("-x",))


def test_value_may_start_with_dash():
    assert values("-mc", "-1", "-dir", "-x") == {"max_channels": -1, "dir": "-x"}


def test_case_tells_store_dir_from_stan_debug():
    assert values("-sd", "x", "-SD") == {"store_dir": "x", "stan_debug": True}


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-xyz"], "flag provided but not defined: -xyz"),
        (["--xyz=1"], "flag provided but not defined: -xyz"),
        (["-p"], "flag needs an argument: -p"),
        (["---p"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
        (["-p", "x"], 'invalid value "x" for flag -p: parse error'),
        (["-hbi", "5"], 'invalid value "5" for flag -hbi: parse error'),
        (["-mc=99999999999999999999"], 'invalid value "99999999999999999999" for flag -mc: value out of range'),
        (["-D=maybe"], 'invalid boolean value "maybe" for -D: parse error'),
    ],
)
def test_bad_command_line_complains_as_go_does_and_asks_for_help(argv, text):
    with pytest.raises(FlagError) as caught:
        scan(argv, TABLE)
    assert str(caught.value) == text
    parsed = parse(argv)
    assert (parsed.action, parsed.complaint, parsed.exit_code) == (Action.HELP, text, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("017", 15), ("0x1F", 31), ("-0b11", -3), ("0o17", 15), ("1_000", 1000), ("+7", 7)],
)
def test_int_is_read_as_go_reads_it(text, value):
    assert parse_int(text) == value


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1__0", "_1", "08", "1.0", "٣", "0x"])
def test_bad_int_is_refused(text):
    with pytest.raises(ValueError, match="parse error"):
        parse_int(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_is_read_back(value):
    assert parse_int(str(value)) == value


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("0s", 0),
        ("1h30m", 5400 * SECOND),
        ("500ms", SECOND // 2),
        ("1.5s", 3 * SECOND // 2),
        (".5s", SECOND // 2),
        ("1.s", SECOND),
        ("-2us", -2000),
        ("+1µs", 1000),
        ("1\N{GREEK SMALL LETTER MU}s", 1000),
        ("3ns", 3),
        ("2m0.25s", 120 * SECOND + SECOND // 4),
    ],
)
def test_duration_is_read_as_go_reads_it(text, nanos):
    assert parse_duration(text) == nanos


@pytest.mark.parametrize("text", ["", "-", "1", "s", "1x", "1 s", ".s", "1s2", "1d", "9999999h"])
def test_bad_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"^time: "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("7", 7),
        ("-1", -1),
        ("1k", 1000),
        ("100KB", 102_400),
        ("1ki", 1024),
        ("1KiB", 1024),
        ("2m", 2_000_000),
        ("2mb", 2 * 1024**2),
        ("1g", 10**9),
        ("1gib", 1024**3),
        ("1T", 10**12),
        ("1pb", 1024**5),
        ("1e", 10**18),
    ],
)
def test_size_takes_suffixes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "12abc", "100a", "k", "1 k", "1.5k", "1kk", "99e", "1b"])
def test_bad_size_is_refused(text):
    with pytest.raises(ValueError, match=r"parse error|out of range"):
        parse_size(text)


def test_bad_bool_is_refused():
    with pytest.raises(ValueError, match="parse error"):
        parse_bool("yes")


def test_bad_sizes_are_complaints_with_the_flags_name():
    parsed = parse(["-mb", "12abc", "-st", "FILE", "-dir", "d", "--file_buffer_size", "100a"])
    assert parsed.complaints == (
        "file_buffer_size should be a size, got '100a'",
        "max_bytes should be a size, got '12abc'",
    )


def test_bad_size_is_a_complaint_whatever_the_store():
    assert parse(["--file_buffer_size", "100a"]).complaints == ("file_buffer_size should be a size, got '100a'",)
    assert parse(["--file_buffer_size", "-5"]).complaints == ()


def test_no_arguments_give_the_default_config():
    assert serve() == Config()


def test_streaming_flags_reach_the_config():
    config = serve(
        *("-cid", "c", "-st", "file", "-dir", "d", "-mc", "1", "-msu", "2", "-mm", "3", "-mb", "4k", "-ma", "5s"),
        *("-mi", "6s", "-hbi", "7s", "-hbt", "8s", "-hbf", "9", "-replace_durable"),
        *("-P", "pid", "-reply_prefixes", "my.inbox., other."),
    )
    limits = config.limits.default
    assert (config.cluster_id, config.store.kind, config.store.directory) == ("c", "file", Path("d"))
    assert (config.limits.channels, limits.subscriptions, limits.msgs, limits.bytes) == (1, 2, 3, 4000)
    assert (limits.age_ns, limits.inactivity_ns) == (5 * SECOND, 6 * SECOND)
    beat = config.heartbeat
    assert (beat.interval_ns, beat.timeout_ns, beat.fail_count) == (7 * SECOND, 8 * SECOND, 9)
    assert config.replace_durable
    assert config.reply_prefixes == ("my.inbox.", "other.")
    assert config.pid_file == Path("pid")
    assert config.validate() == []


def test_nats_flags_reach_both_sides():
    config = serve("-user", "u", "-pass", "p", "-auth", "t", "-a", "h", "-p", "1", "-m", "2", "-c", "f")
    embedded, nats = config.embedded, config.nats
    assert (embedded.user, embedded.password, embedded.token) == ("u", "p", "t")
    assert (nats.user, nats.password, nats.token, nats.urls, nats.tls) == ("u", "p", "t", (), None)
    assert (embedded.host, embedded.port, embedded.pages, config.monitor.port) == ("h", 1, True, 2)
    assert embedded.config_file == Path("f")


def test_flags_of_nats_server_are_passed_on():
    argv = ["-n", "me", "-js", "-sd", "dir", "-DV", "-VV=false", "--tls", "--routes", "nats://a:1", "--cluster", "x"]
    expected = "--DV=true --VV=false --cluster=x --jetstream=true --routes=nats://a:1 --server_name=me --store_dir=dir"
    assert sorted(serve(*argv).embedded.extra_args) == [*expected.split(), "--tls=true"]


def test_routes_of_a_cluster_have_its_name_unless_told_another():
    routes = ("--cluster", "nats://a:1", "--routes", "nats://b:1")
    assert "--cluster_name=c" in serve(*NODE, *routes, "-cid", "c").embedded.extra_args
    named = serve(*NODE, *routes, "--cluster_name", "x").embedded.extra_args
    assert [argument for argument in named if "cluster_name" in argument] == ["--cluster_name=x"]
    for argv in ((*NODE,), (*NODE, *routes, "-c", "f"), routes):
        assert not [argument for argument in serve(*argv).embedded.extra_args if "cluster_name" in argument]


def test_client_tls_flags_make_a_tls_config():
    assert serve().nats.tls is None
    assert serve("-secure").nats.tls is not None
    tls = serve("-tls_client_key", "k", "-tls_client_cert", "c", "-tls_client_cacert", "a").nats.tls
    assert tls is not None
    assert (tls.client_key, tls.client_cert, tls.client_ca) == (Path("k"), Path("c"), Path("a"))


@pytest.mark.parametrize(
    ("argv", "sync", "interval"),
    [
        ([], "always", 60 * SECOND),
        (["-file_sync=false"], "interval", 60 * SECOND),
        (["-file_sync=false", "-file_auto_sync", "2s"], "interval", 2 * SECOND),
        (["-file_sync=false", "-file_auto_sync", "0"], "never", 0),
        (["-file_sync=false", "-file_auto_sync", "-1s"], "never", 0),
    ],
)
def test_file_sync_decides_the_sync_mode(argv, sync, interval):
    config = serve("-st", "FILE", "-dir", "d", *argv)
    assert (config.store.sync, config.store.sync_interval_ns) == (sync, interval)


@pytest.mark.parametrize(
    ("argv", "debug", "trace"),
    [([], False, False), (["-SDV"], True, True), (["-SDV=false"], False, False), (["-SD"], True, False)],
)
def test_streaming_log_flags(argv, debug, trace):
    log = serve(*argv).log
    assert (log.debug, log.trace) == (debug, trace)


def test_log_flags_reach_the_config():
    log = serve("-l", "f", "-T=false", "-r", "udp://h:1", "-syslog_name", "n", "-D", "-VV", "-log_size_limit", "5").log
    assert (log.file, log.logtime, log.remote_syslog) == (Path("f"), False, "udp://h:1")
    assert (log.syslog_name, log.file_bytes_max) == ("n", 5)


def test_a_log_file_wins_over_the_syslog_for_both_servers():
    for flags in (["-s"], ["-r", "udp://h:1"], ["-s", "-r", "udp://h:1"]):
        assert serve(*flags).log.syslog
        assert "syslog" in " ".join(serve(*flags).embedded.extra_args)
        config = serve("-l", "f", *flags)
        assert not config.log.syslog
        assert "syslog" not in " ".join(config.embedded.extra_args)


@pytest.mark.parametrize("flag", [flag for flag in TABLE if flag.refused], ids=lambda flag: flag.key)
def test_unserved_flag_is_refused_by_name_and_its_default_is_not(flag):
    other = {FlagKind.BOOL: str(not flag.default).lower(), FlagKind.INT: "77", FlagKind.TEXT: "x"}[flag.kind]
    assert parse([f"-{flag.key}={other}"]).complaints == (f"-{flag.key}: {flag.refused}",)
    assert parse([f"-{flag.key}={str(flag.default).lower()}"]).complaints == ()


NODE = ("-clustered", "-st", "FILE", "-dir", "d")


@pytest.mark.parametrize("told", ["zone", "zone=a,zone=b", "colour=red", "zone=", "rack=a b", f"host={'h' * 65}"])
def test_labels_that_are_none_are_refused(told):
    (complaint,) = parse([*NODE, "-cluster_labels", told]).complaints
    assert complaint.startswith("-cluster_labels: ")


@pytest.mark.parametrize(
    ("flags", "on", "patterns"),
    [
        ((), False, ()),
        (("-jetstream_api",), True, ()),
        (("-jetstream_api=false",), False, ()),
        (("--jetstream_api=orders.>, KV_*,$KV.>",), True, ("orders.>", "KV_*", "$KV.>")),
    ],
)
def test_clients_of_jetstream_are_served_for_all_channels_or_for_some(flags, on, patterns):
    config = serve(*flags)
    assert (config.jetstream_api, config.jetstream_channels) == (on, patterns)
    (shown,) = [one.value for one in config.settings if one.name == "jetstream_api"]
    assert shown == (flags[0].partition("=")[2] or "true" if flags else "false")


@pytest.mark.parametrize("patterns", ["", "a b", "a..b", "a.>.b", ",".join(f"p{number}" for number in range(101))])
def test_what_are_no_patterns_of_channels_is_refused(patterns):
    (complaint,) = parse([f"-jetstream_api={patterns}"]).complaints or serve(f"-jetstream_api={patterns}").validate()
    assert "jetstream_api" in complaint


def test_labels_reach_the_config():
    labels = serve(*NODE, "-cluster_labels", "rack=3, zone=a").cluster.labels
    assert (labels, str(labels)) == (Labels("a", "3"), "zone=a,rack=3")


def test_cluster_flags_reach_the_config():
    config = serve(
        *(*NODE, "-cluster_node_id", "a", "-cluster_peers", "b, c", "-cluster_bootstrap", "-cluster_raft_logging"),
        *("--replicas", "5", "--raft_groups", "16"),
    )
    assert config.cluster == ClusterConfig(
        node_id="a",
        peers=("b", "c"),
        bootstrap=True,
        replicas=5,
        raft_logging=True,
    )
    assert config.store.raft_groups == 16
    assert config.validate() == []
    assert config.notices == ()


def test_clustered_alone_has_the_defaults_of_a_cluster():
    config = serve(*NODE)
    assert config.cluster == ClusterConfig()
    assert (config.cluster.joins, config.store.raft_groups) == (True, 8)
    assert serve("--raft_groups", "4").store.raft_groups == 4


def test_own_id_and_repeats_are_no_peers():
    assert serve(*NODE, "-cluster_node_id", "a", "-cluster_peers", "a,b,c,b,").cluster.peers == ("b", "c")


@pytest.mark.parametrize("flag", ["--join", "--replica"])
def test_who_joins_or_replicates_is_clustered(flag):
    config = serve(flag, "-st", "FILE", "-dir", "d")
    assert config.cluster == ClusterConfig(join=flag == "--join", replica=flag == "--replica")
    assert config.validate() == []


def test_cluster_in_memory_is_refused_in_original_words():
    text = "stan: clustering mode not supported with MEMORY store type"
    assert serve("-clustered").validate() == [text]


def test_log_path_is_the_directory_where_none_is_given():
    assert serve("-clustered", "-st", "FILE", "-cluster_log_path", "p").store.directory == Path("p")
    both = serve(*NODE, "-cluster_log_path", "p")
    assert both.store.directory == Path("d")
    assert both.notices == ("-cluster_log_path has no effect: one log for everything, in d",)


def test_cluster_options_of_a_lone_node_are_noticed():
    config = serve("-st", "FILE", "-cluster_log_path", "p", "-cluster_peers", "a,b")
    assert (config.cluster, config.store.directory) == (None, None)
    (notice,) = config.notices
    assert notice == "Options without effect, as -clustered is not given: -cluster_peers, -cluster_log_path"


@pytest.mark.parametrize("flag", ["-cluster_raft_logging", "-cluster_allow_add_remove_node"])
def test_switch_of_a_lone_node_is_noticed_by_its_name(flag):
    assert serve(flag).notices == (f"Options without effect, as -clustered is not given: {flag}",)


def test_what_a_sql_store_cannot_is_refused():
    (missing,) = serve("-st", "sql").validate()
    assert "a SQLite file must be named" in missing
    found = serve("-st", "sql", "-sql_source", "f", "-clustered", "-encryption_key", "k").validate()
    assert [text for text in found if "clustering mode not supported with SQL store type" in text]
    assert [text for text in found if "not encrypted" in text]


def test_fault_tolerance_group_in_a_cluster_is_refused():
    text = "fault tolerance groups and clustering exclude each other: leave out -ft_group"
    assert text in parse([*NODE, "-ft_group", "x"]).complaints


def test_groups_and_replicas_of_a_cluster_that_is_joined_are_not_told():
    text = "a node that joins learns -raft_groups and -replicas from the running cluster"
    assert parse([*NODE, "--join", "--raft_groups", "4", "--replicas", "3"]).complaints == (text,)
    assert parse([*NODE, "--join"]).complaints == ()


def test_store_types_are_told_apart():
    store = serve("-st", "sql", "-sql_source", "d/stan.db", "-sql_driver", "SQLite", "-file_sync=false").store
    assert (store.kind, store.source, store.place, store.sync) == ("sql", Path("d/stan.db"), Path("d"), "always")
    refused = "-sql_driver: a SQL store is a SQLite file here, postgres is not served: use sqlite"
    assert parse(["-st", "sql", "-sql_driver", "postgres"]).complaints == (refused,)
    assert parse(["-st", "tape"]).complaints == ("unsupported store type: tape",)
    assert serve("-st", "MeMoRy").store.kind == "memory"


@pytest.mark.parametrize("flag", [flag for flag in TABLE if flag.ignored], ids=lambda flag: flag.key)
def test_ignored_flag_is_accepted_with_a_notice(flag):
    (notice,) = serve(f"-{flag.key}={str(flag.default).lower()}").notices
    assert notice == f"Options without effect in this version: -{flag.key}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-file_buffer_size=-1", "buffer size value must be a positive number"),
        ("-file_read_buffer_size=-1", "read buffer size value must be a positive number"),
        ("-file_compact_interval=0", "compact interval value must at least be 1 seconds"),
        ("-file_compact_frag=0", "compact fragmentation value must at least be 1"),
        ("-file_compact_min_size=-1", "compact minimum file size value must be a positive number"),
        ("-file_crc_poly=0", "crc polynomial should be between 1 and 4294967295"),
        ("-file_crc_poly=4294967296", "crc polynomial should be between 1 and 4294967295"),
        ("-file_slice_max_msgs=-1", "slice max values must be positive numbers"),
        ("-file_slice_max_bytes=-1", "slice max values must be positive numbers"),
        ("-file_slice_max_age=-1s", "slice max values must be positive numbers"),
        ("-file_fds_limit=-1", "file descriptor limit must be a positive number"),
        ("-file_parallel_recovery=0", "parallel recovery value must be at least 1"),
    ],
)
def test_bad_file_option_is_refused_for_the_file_store_only(text, complaint):
    assert parse(["-st", "FILE", "-dir", "d", text]).complaints == (complaint,)
    assert parse([text]).complaints == ()


def test_routes_without_cluster_are_refused():
    text = "solicited routes require cluster capabilities, e.g. --cluster"
    assert parse(["--routes", "nats://a:1"]).complaints == (text,)


def test_bad_nats_url_is_a_complaint():
    assert parse(["-ns", "127.0.0.1:5223"]).complaints == ("malformed url: 127.0.0.1:5223",)


@pytest.mark.parametrize(
    ("argv", "action"),
    [
        (["-v"], Action.VERSION),
        (["--version"], Action.VERSION),
        (["version"], Action.VERSION),
        (["-p", "1", "VERSION"], Action.VERSION),
        (["-h"], Action.HELP),
        (["--help"], Action.HELP),
        (["help"], Action.HELP),
        (["--help_tls"], Action.HELP_TLS),
        (["-t", "-c", "f"], Action.CHECK),
    ],
)
def test_words_and_flags_that_ask_instead_of_serve(argv, action):
    parsed = parse(argv)
    assert (parsed.action, parsed.complaint, parsed.exit_code) == (action, "", 0)


def test_signal_flag_asks_for_a_signal():
    parsed = parse(["-sl", "quit=12"])
    assert (parsed.action, parsed.signal) == (Action.SIGNAL, "quit=12")


def test_other_word_is_an_unrecognized_command():
    parsed = parse(["serve"])
    assert (parsed.action, parsed.exit_code) == (Action.REFUSE, 1)
    assert parsed.complaint == 'unrecognized command: "serve"'


def test_names_and_keys_of_the_table_are_unique():
    names = [name for flag in TABLE for name in flag.names]
    assert len(names) == len(set(names))


def test_default_of_each_flag_has_the_flags_kind():
    kinds = {FlagKind.BOOL: bool, FlagKind.INT: int, FlagKind.DURATION: int, FlagKind.TEXT: str, FlagKind.SIZE: str}
    kinds[FlagKind.SWITCH] = bool
    wrong = [flag.key for flag in TABLE if type(flag.default) is not kinds[flag.kind]]
    assert wrong == []


def test_help_lists_each_group_and_each_listed_flag():
    text = help_text()
    for title, flags in GROUPS:
        assert f"{title}:\n" in text
        for flag in flags:
            assert (f"-{flag.key}" in text) or not flag.help
    assert "io_batch_size" not in text


def test_help_has_what_the_original_does_not_know():
    text = help_text()
    assert all(f"    --{name}" in text for name in ("join", "replica ", "replicas <count>", "raft_groups"))


ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(page for folder in ("docs", "docs/features") for page in sorted((ROOT / folder).glob("*.md"))),
]
COMMANDS = [
    command
    for page in PAGES
    for command in re.findall(
        r"^ *\S*stan-server (-.*?)(?: &)?$", page.read_text(encoding="utf-8").replace("\\\n", ""), re.MULTILINE
    )
]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_pages_are_accepted(line):
    parsed = parse(shlex.split(line, comments=True))
    if parsed.action is Action.SERVE:
        assert (parsed.complaints, parsed.config.validate(), parsed.config.notices) == ((), [], ())


def test_pages_start_nodes_of_clusters():
    clusters = [parse(shlex.split(line)).config.cluster for line in COMMANDS if "-clustered" in line]
    assert [cluster.node_id for cluster in clusters] == ["a", "b", "c", "a", "d", "r"]
    assert {cluster.voters(cluster.node_id) for cluster in clusters if not cluster.joins} == {("a", "b", "c")}
    assert [cluster.joins for cluster in clusters] == [False, False, False, False, True, True]
    assert [cluster.allow_add_remove for cluster in clusters] == [False, False, False, False, True, False]


@given(st.lists(st.text(max_size=8), max_size=5))
def test_any_command_line_is_understood_or_refused(argv):
    assert isinstance(parse(argv).action, Action)


def test_flag_key_is_its_longest_name():
    assert Flag(("a", "bc"), FlagKind.INT, 0).key == "bc"
