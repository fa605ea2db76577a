"""Configuration files of the streaming server: every key, precedence, complaints with their lines, and NATS's share."""

import re
import subprocess
from pathlib import Path

import pytest

from stan.config import ChannelOverride, ClusterConfig, Config, TlsConfig
from stan.edge.nats.nats_process import find_binary
from stan.policies import PolicyRule
from stan.settings.file_schema import CHANNEL, CLUSTER, FILE, LIMITS, NATS, SECTIONS, SQL, TLS, TOP, Want
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.policies import BY_KEY
from stan.settings.settings import Parsed, parse

SECOND = 1_000_000_000


def understand(text: str, *argv: str, nats: str | None = None, **environ: str) -> Parsed:
    """What `-sc s.conf` makes of *text*, with `-c n.conf` where *nats* is given."""
    files = {"s.conf": text, "n.conf": nats}

    def read(file: Path):
        content = files[str(file)]
        assert content is not None
        return parse_conf(content.encode(), str(file), environ)

    return parse(["-sc", "s.conf", *(("-c", "n.conf") if nats is not None else ()), *argv], read)


def serve(text: str, *argv: str, nats: str | None = None, **environ: str) -> Config:
    parsed = understand(text, *argv, nats=nats, **environ)
    assert parsed.complaints == ()
    return parsed.config


def complaints(text: str, *argv: str, nats: str | None = None) -> list[str]:
    return list(understand(text, *argv, nats=nats).complaints)


def handed(config: Config) -> str | None:
    """What nats-server reads instead of the file, as one line."""
    text = config.embedded.config_text
    return None if text is None else " ".join(text.decode().split())


WHOLE = """
streaming {
  id: c, discover_prefix: d, store: file, dir: "data", sd: true, sv: on
  nats_server: "nats://h:1", credentials: x.creds, secure: true
  hbi: "7s", hbt: "8s", hbf: 9
  syslog_name: n, replace_durable: true, reply_prefixes: ["a.", "b.c."], username: u, password: p, token: t, nkey_seed_file: seed
  tls { client_cert: cert, client_key: key, client_ca: ca, server_name: host, skip_verify: yes }
  store_limits {
    mc: 1, msu: 2, mm: 3, mb: 4kb, ma: "5s", mi: "6s"
    channels {
      foo { mm: 10, mb: 0, ma: "0" }
      "bar.*": { msu: -1, mi: "1h", MB: 1k }
      "Baz.>" {}
    }
  }
}
"""


def test_every_setting_reaches_the_config():
    config = serve(WHOLE)
    limits, nats, beat, log = config.limits, config.nats, config.heartbeat, config.log
    assert (config.cluster_id, config.discover_prefix, config.store.kind) == ("c", "d", "file")
    assert config.reply_prefixes == ("a.", "b.c.")
    assert (config.store.directory, config.replace_durable, log.syslog_name) == (Path("data"), True, "n")
    assert (log.debug, log.trace, nats.urls) == (True, True, ("nats://h:1",))
    assert (nats.credentials, nats.nkey_seed_file) == (Path("x.creds"), Path("seed"))
    assert (nats.user, nats.password, nats.token) == ("u", "p", "t")
    assert nats.tls == TlsConfig(
        client_cert=Path("cert"), client_key=Path("key"), client_ca=Path("ca"), server_name="host", skip_verify=True
    )
    assert (beat.interval_ns, beat.timeout_ns, beat.fail_count) == (7 * SECOND, 8 * SECOND, 9)
    default = limits.default
    assert (limits.channels, default.subscriptions, default.msgs, default.bytes) == (1, 2, 3, 4096)
    assert (default.age_ns, default.inactivity_ns) == (5 * SECOND, 6 * SECOND)
    assert limits.per_channel == {
        "foo": ChannelOverride(msgs=10, bytes=-1, age_ns=-1),
        "bar.*": ChannelOverride(subscriptions=-1, inactivity_ns=3600 * SECOND, bytes=1000),
        "Baz.>": ChannelOverride(),
    }
    assert (limits.for_channel("foo").bytes, limits.for_channel("foo").subscriptions) == (0, 2)
    assert config.validate() == []
    assert (config.embedded.user, config.embedded.config_file) == ("", None)
    assert config.notices == ("TLS certificate chain and hostname will not be verified. DO NOT USE IN PRODUCTION!",)


@pytest.mark.parametrize(
    ("value", "on", "patterns"),
    [
        ("true", True, ()),
        ("false", False, ()),
        ('"orders.>"', True, ("orders.>",)),
        ('["orders.>", "KV_*"]', True, ("orders.>", "KV_*")),
    ],
)
def test_clients_of_jetstream_are_served_for_all_channels_or_for_some(value, on, patterns):
    config = serve(f"streaming {{ jetstream_api: {value} }}")
    assert (config.jetstream_api, config.jetstream_channels) == (on, patterns)


def test_a_file_without_streaming_block_is_read_whole():
    assert serve("store: FILE\nDIR: d\nStore_Limits { Max_Channels: 3 }").limits.channels == 3


def test_cluster_block_makes_a_cluster():
    text = """
    store: file, dir: d
    cluster {
      node_id: a, peers: ["a", "b", "c"], bootstrap: true, raft_logging: true, replicas: 5, raft_groups: 16
    }"""
    config = serve(text)
    assert config.cluster == ClusterConfig(node_id="a", peers=("b", "c"), bootstrap=True, raft_logging=True, replicas=5)
    assert (config.store.raft_groups, config.validate(), config.notices) == (16, [], ())
    assert serve(text, "-clustered=false").cluster is None
    assert serve("st: file, cluster { log_path: p }").store.directory == Path("p")
    assert serve("st: file, dir: d, cluster {}", nats="").cluster == ClusterConfig()
    assert serve("streaming { st: file, dir: d, cluster {} }").cluster == ClusterConfig()
    assert serve("st: file, dir: d, cluster { join: true }").cluster == ClusterConfig(join=True)
    assert serve("st: file, dir: d, cluster { replica: true }").cluster == ClusterConfig(replica=True)


def test_cluster_options_without_effect_are_noticed():
    text = (
        "st: file\ndir: d\ncluster {\n sync: true\n raft_lease_timeout: '1s'\n bolt_free_list_sync: on\n node_id: a }"
    )
    (notice,) = serve(text).notices
    names = "sync (s.conf:4), raft_lease_timeout (s.conf:5), bolt_free_list_sync (s.conf:6)"
    assert notice == f"Options without effect in this version: {names}"


def test_file_options_are_those_of_the_flags():
    config = serve("st: file, dir: d, file { sync: false, auto_sync: '2s', fds_limit: 5, buffer_size: 1kb }")
    assert (config.store.sync, config.store.sync_interval_ns) == ("interval", 2 * SECOND)
    (notice,) = config.notices
    assert notice == "Options without effect in this version: buffer_size (s.conf:1), fds_limit (s.conf:1)"
    assert complaints("st: file, dir: d, file { buffer_size: -1 }") == ["buffer size value must be a positive number"]


def test_flags_win_over_the_file():
    text = "id: f, store: file, dir: d, sd: true, sv: true, hbi: '1s', limits { mc: 1, channels { a { mm: 1 } } }"
    config = serve(text, "-cid", "x", "-mc", "2", "-SDV=false", "-dir", "e")
    assert (config.cluster_id, config.limits.channels, config.store.directory) == ("x", 2, Path("e"))
    assert (config.log.debug, config.log.trace, config.heartbeat.interval_ns) == (False, False, SECOND)
    assert config.limits.per_channel == {"a": ChannelOverride(msgs=1)}
    assert serve(text, "-SD=false").log.trace


def test_credentials_of_nats_come_before_those_of_streaming_and_flags_before_all():
    text = "username: s, password: sp, token: st"
    nats = "authorization { user: n, password: np }"
    own = serve(text, nats=nats).nats
    assert (own.user, own.password, own.token) == ("n", "np", "st")
    own = serve(text, "-user", "f", "-pass", "fp", nats=nats).nats
    assert (own.user, own.password, own.token) == ("f", "fp", "st")
    hashed = serve(text, nats="authorization { user: n, password: $2a$10$abc }").nats
    assert (hashed.user, hashed.password) == ("n", "sp")


def test_variables_may_stand_outside_of_the_streaming_block():
    config = serve("NODE: a\nstreaming { id: $NODE, dir: $DIR, st: file }\n", DIR="/d")
    assert (config.cluster_id, config.store.directory, config.notices) == ("a", Path("/d"), ())
    assert (config.embedded.config_file, config.embedded.config_text) == (None, None)


# --- complaints -------------------------------------------------------------------------------------------------------

TABLES = {
    "%s": TOP,
    "tls { %s }": TLS,
    "limits { %s }": LIMITS,
    "limits { channels { foo { %s } } }": CHANNEL,
    "file { %s }": FILE,
    "sql { %s }": SQL,
    "cluster { %s }": CLUSTER,
}
EACH_KEY = [(block, name, want) for block, keys in TABLES.items() for name, (_, want) in keys.items()]
SAMPLES = {"string": "'x'", "bool": "true", "int64": "3", "slice": "['x']", "map": "{}", "float64": "1.5"}


@pytest.mark.parametrize(("block", "name", "want"), EACH_KEY, ids=lambda each: getattr(each, "name", each))
def test_every_key_refuses_every_wrong_type_with_its_line(block, name, want):
    kind = "string" if want is Want.DURATION else want.value
    for other, sample in SAMPLES.items():
        if other not in kind.replace(" or ", ", ").split(", ") and (want, other) != (Want.SHARE, "int64"):
            text = "\n" + block % f"{name}: {sample}"
            expected = f's.conf:2: parameter "{name}" value is expected to be {kind}, got {other}'
            assert expected in complaints(text, nats="")


@pytest.mark.parametrize(("block", "name", "want"), EACH_KEY, ids=lambda each: getattr(each, "name", each))
def test_every_key_takes_its_type_in_any_case(block, name, want):
    samples = {Want.STRING: "file", Want.DURATION: "'1s'", Want.BOOL: "true", Want.INT: "3", Want.LIST: "[a]"} | {
        Want.SWITCH: "[a]"
    }
    sample = samples.get(want, "0.5")
    parsed = understand(block % f"{name.upper()}: {sample}", nats="")
    assert not any("is expected" in each for each in parsed.complaints)
    assert not any("unknown" in each for each in (*parsed.complaints, *parsed.config.notices))


@pytest.mark.parametrize(
    ("name", "what"),
    [("streaming", "streaming section"), *((name, what) for name, (what, _) in SECTIONS.items())],
)
@pytest.mark.parametrize(("value", "shown"), [("1", "1"), ("true", "true"), ("[a, 1]", "[a 1]")])
def test_block_that_is_none_is_told(name, what, value, shown):
    assert complaints(f"{name}: {value}", nats="") == [f"s.conf:1: expected {what} to be a map/struct, got {shown}"]


def test_limits_of_channels_that_are_no_blocks_are_told():
    assert complaints("limits { channels: 1 }") == ["s.conf:1: expected per channel limits to be a map/struct, got 1"]
    assert complaints("limits { channels { a: b } }") == ["s.conf:1: expected channel limits to be a map/struct, got b"]


def test_all_complaints_come_at_once():
    text = "id: 1\nstore: tape\nhbi: '5'\nlimits {\n mc: x\n}\ncluster {\n peers: [a, 1]\n}\nfile: 5\n"
    assert complaints(text, "-mb", "12abc", nats="a: {") == [
        's.conf:1: parameter "id" value is expected to be string, got int64',
        "s.conf:2: unknown store type: tape",
        's.conf:3: time: missing unit in duration "5"',
        's.conf:5: parameter "mc" value is expected to be int64, got string',
        's.conf:8: parameter "peers" value is expected to be string, got int64',
        "s.conf:10: expected file options to be a map/struct, got 5",
        "n.conf:1: the end was reached, `}` is missing",
        "max_bytes should be a size, got '12abc'",
    ]


def test_text_that_is_not_utf8_is_refused_where_it_matters():
    parsed = parse(["-sc", "s"], lambda file: parse_conf(b"# \xff\nid: 'x\xff'", str(file)))
    assert parsed.complaints == ('s:2: parameter "id" value is not UTF-8',)


def test_file_that_cannot_be_opened_is_told():
    def read(_file: Path):
        raise FileNotFoundError(2, "No such file or directory")

    assert parse(["-sc", "x"], read).complaints == ("open x: no such file or directory",)
    assert len(parse(["-sc", "x", "-c", "y"], read).complaints) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "store: sql, sql { driver: mysql }",
            "driver (s.conf:1): a SQL store is a SQLite file here, mysql is not served: use sqlite",
        ),
        ("file { slice_archive: x }", "slice_archive (s.conf:1): this version runs no archive script"),
    ],
)
def test_what_this_version_does_not_serve_is_refused(text, complaint):
    assert complaints(text) == [complaint]


def test_what_is_refused_may_be_switched_off():
    assert complaints("encrypt: false, partitioning: false, encryption_key: '', sql {}") == []


def test_partitioning_in_a_cluster_is_refused_in_original_words():
    text = "stan: channels partitioning in clustering mode is not supported"
    assert text in understand("partitioning: true, st: file, dir: d", "-clustered").config.validate()
    assert text not in understand("partitioning: true").config.validate()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5", 'time: missing unit in duration "5"'),
        ("1h5", 'time: missing unit in duration "1h5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1.5 s", 'time: unknown unit " s" in duration "1.5 s"'),
        ("", 'time: invalid duration ""'),
        ("x", 'time: invalid duration "x"'),
        (".s", 'time: invalid duration ".s"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
    ],
)
def test_bad_duration_is_told_as_go_tells_it(text, problem):
    assert complaints(f"hbi: '{text}'") == [f"s.conf:1: {problem}"]


# --- unknown keys, and what is NATS's ---------------------------------------------------------------------------------


def test_unknown_keys_are_ignored_with_a_notice_each():
    text = "streaming {\n foo: 1\n tls { cert: x }\n limits { channels { a { mc: 3 } } }\n}"
    assert serve(text).notices == (
        's.conf:2: unknown option "foo" is ignored',
        's.conf:3: unknown option "cert" is ignored',
        's.conf:4: unknown option "mc" is ignored',
    )
    assert serve("streaming { NAME: a, id: $NAME }").notices == ()
    assert serve("foo: 1", nats="").notices == ('s.conf:1: unknown option "foo" is ignored',)


def test_file_without_streaming_options_is_handed_over_whole():
    text = (
        "port: 1\ncluster { name: x }\ntls { cert_file: c, insecure: true }\nauthorization { user: u, password: p }\n"
    )
    for argv in (["-sc", "f"], ["-c", "f"], ["-sc", "f", "-c", "f"]):
        config = parse(argv, lambda file: parse_conf(text.encode(), str(file))).config
        assert config.embedded.config_file == Path("f")
        assert handed(config) == (
            '"port": 1 "cluster": { "name": "x" } "tls": { "cert_file": "c" "insecure": true } '
            '"authorization": { "user": "u" "password": "p" }'
        )
        assert (config.cluster, config.nats.tls, config.nats.user) == (None, TlsConfig(pinned=Path("c")), "u")


def test_either_file_stands_for_the_other():
    text = b"id: x\nport: 1\n"
    for flag in ("-sc", "-c"):
        config = parse([flag, "f"], lambda file: parse_conf(text, str(file))).config
        assert (config.cluster_id, config.embedded.config_file) == ("x", Path("f"))
        assert handed(config) == '"port": 1'


def test_streaming_block_and_what_only_it_needs_stay_away_from_nats():
    text = """
    port: 1
    NAME: a
    server_name: n1
    streaming { id: $NAME, cluster { node_id: $server_name }, st: file, dir: d }
    cluster { name: x
      routes: [ "nats://h:1" ] }
    ADMIN: u
    store: memory
    authorization { user: $ADMIN, password: "p" }"""
    config = serve(text)
    assert (config.cluster_id, config.cluster.node_id, config.store.kind) == ("a", "n1", "file")
    assert config.notices == ("s.conf:9: store has no effect beside a streaming block",)
    assert (config.nats.user, config.nats.password) == ("u", "p")
    assert handed(config) == (
        '"port": 1 "server_name": "n1" "cluster": { "name": "x" "routes": [ "nats://h:1" ] } "ADMIN": "u" '
        '"authorization": { "user": $ADMIN "password": "p" }'
    )
    assert config.embedded.config_places == tuple(f"s.conf:{line}" for line in (2, 4, 6, 6, 7, 7, 8, 10, 10, 10))


def test_blocks_that_nats_has_too_are_shared_by_their_keys():
    text = "st: file, dir: d, cluster { name: x, node_id: a }, tls { insecure: on, client_ca: ca }"
    config = serve(text)
    assert (config.cluster.node_id, config.nats.tls.skip_verify) == ("a", True)
    assert handed(config) == '"cluster": { "name": "x" }'
    assert 's.conf:1: unknown option "name" is ignored' in serve(text, nats="").notices


def test_streaming_options_in_the_file_of_c_have_no_effect_beside_sc():
    config = serve("id: x", nats="id: y\nport: 1\nstreaming { id: z }\n")
    assert (config.cluster_id, handed(config)) == ("x", '"port": 1')
    assert config.embedded.config_file == Path("n.conf")
    assert config.notices == (
        "n.conf:1: id has no effect, as -sc names s.conf",
        "n.conf:3: streaming has no effect, as -sc names s.conf",
    )


def test_unknown_keys_of_natss_part_are_ignored_with_a_notice_each():
    text = "port: 1\nmax_conections: 5\nSIZE: 7, LEFT: 8\nmax_payload: $SIZE\nnope { a: b }\nstreaming { hbf: $LEFT }"
    config = serve(text)
    assert config.notices == (
        's.conf:2: unknown option "max_conections" is ignored',
        's.conf:5: unknown option "nope" is ignored',
    )
    assert handed(config) == '"port": 1 "SIZE": 7 "max_payload": $SIZE'
    assert not [setting for setting in config.shown() if "max_conections" in setting.name or "nope" in setting.name]


LOGGED = """log_file: l, logfile_size_limit: 1MB, logtime: false, logtime_utc: true, pid_file: p, ports_file_dir: d
syslog: true, remote_syslog: "udp://h:1", debug: true"""


def test_log_and_process_files_of_natss_part_are_those_of_both_servers():
    config = serve(f"{LOGGED}\nstreaming {{ id: x }}")
    log = config.log
    assert (log.file, log.file_bytes_max, log.logtime, log.logtime_utc) == (Path("l"), 1_048_576, False, True)
    assert (config.pid_file, config.embedded.ports_file_dir) == (Path("p"), Path("d"))
    assert (log.syslog, log.remote_syslog) == (False, "udp://h:1")
    assert handed(config) == '"debug": true'
    assert set(config.embedded.extra_args) == {"--logtime=false", "--logtime_utc=true"}
    shown = {setting.name: setting for setting in config.shown()}
    assert (shown["log"].value, shown["log"].source, shown["pid"].source) == ("l", "s.conf:1", "s.conf:1")
    assert not [name for name in shown if name.startswith("nats.")]


def test_syslog_of_natss_part_is_that_of_both_servers():
    config = serve('syslog: true, remote_syslog: "udp://h:1"', nats="")
    assert not config.log.syslog  # the file of the streaming server has no such option
    config = serve("id: x", nats='syslog: true\nremote_syslog: "udp://h:1"')
    assert (config.log.syslog, config.log.remote_syslog) == (True, "udp://h:1")
    assert set(config.embedded.extra_args) == {"--syslog=true", "--remote_syslog=udp://h:1"}


def test_flags_win_over_the_log_options_of_natss_part():
    config = serve(LOGGED, "-l", "other", "-P", "mine", "-T=true")
    assert (config.log.file, config.pid_file, config.log.logtime) == (Path("other"), Path("mine"), True)


@pytest.mark.parametrize(
    ("entry", "kind"), [("log_file: 5", "string"), ("syslog: 'true'", "bool"), ("log_size_limit: '1MB'", "int64")]
)
def test_log_options_of_natss_part_of_a_wrong_type_are_refused(entry, kind):
    (complaint,) = complaints(f"port: 1\n{entry}")
    assert complaint.startswith("s.conf:2: parameter ")
    assert f"is expected to be {kind}" in complaint


@pytest.mark.parametrize("name", sorted(NATS))
def test_keys_of_nats_are_known_to_the_nats_server_inside(name, tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text(f"{name}: no-such-value")
    done = subprocess.run([find_binary(), "-t", "-c", file], capture_output=True, text=True, check=False, timeout=60)
    assert "unknown field" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("max_connections: 0", "65536"),  # the default
        ("max_conn: -1", "2147483647"),  # no limit
        ("MAX: 0, max_connections: $MAX", "65536"),
        ("max_connections: 7", "7"),
        ("max_connections: false", "false"),  # of which nats-server complains
    ],
)
def test_number_of_connections_means_what_it_did_at_the_original(entry, expected):
    assert handed(serve(entry)).rpartition(": ")[2] == expected


def test_variable_with_a_name_of_ours_is_put_in_where_nats_needs_it():
    config = parse(["-c", "f"], lambda file: parse_conf(b"TOKEN: t\nauthorization { token: $TOKEN }", str(file))).config
    assert handed(config) == '"authorization": { "token": "t" }'
    assert (config.nats.token, config.notices) == ("t", ())


@pytest.mark.parametrize(
    ("text", "argv", "expected"),
    [
        ("http: 8222", (), ("127.0.0.1", 8222, False)),
        ('http: "0.0.0.0:8222"', (), ("0.0.0.0", 8222, False)),  # noqa: S104
        ('HTTP: "[::1]:8222"', (), ("::1", 8222, False)),
        ('http: ":8222"', (), ("127.0.0.1", 8222, False)),
        ("monitor_port: 8222", (), ("127.0.0.1", 8222, False)),
        ("http_port: -1", (), ("127.0.0.1", -1, False)),
        ('http: "h:8222"', ("-m", "9"), ("h", 9, False)),
        ('http: "h:8222"', ("--http_host", "::"), ("::", 8222, False)),
        ("https: 8443, tls { cert_file: c, key_file: k }", (), ("127.0.0.1", 8443, True)),
        ("", (), ("127.0.0.1", 0, False)),
    ],
)
def test_where_the_monitoring_pages_are_is_for_us_and_not_for_nats(text, argv, expected):
    config = serve("port: 4222\n" + text, *argv)
    monitor = config.monitor
    assert (monitor.host, monitor.port, monitor.secure) == expected
    assert config.validate() == []
    assert config.embedded.pages is bool(monitor.port)
    assert "http" not in (handed(config) or "").lower()
    if monitor.secure:
        assert (monitor.certificate, monitor.key) == (Path("c"), Path("k"))
        assert "cert_file" in handed(config)


def test_pages_that_cannot_be_are_refused():
    assert complaints("port: 1\nhttp: true") == [
        "s.conf:2: could not parse http: expected a port or host:port, got true"
    ]
    assert complaints('http: "h:p"') == ["s.conf:1: could not parse http: expected a port or host:port, got h:p"]
    assert complaints("http: 1", "-ms", "2") == ["can't specify both HTTP (1) and HTTPs (2) ports"]
    assert serve("http: 70000").validate() == ["port must be between -1 and 65535, not 70000"]
    (complaint,) = serve("https: 1").validate()
    assert complaint.startswith("HTTPS monitoring needs a certificate")


def test_without_a_reader_no_file_is_looked_at():
    assert parse(["-sc", "/none", "-c", "f"]).config.embedded.config_file == Path("f")


def test_file_of_the_page_about_configuration_is_accepted():
    page = (Path(__file__).parents[3] / "docs/configuration.md").read_text(encoding="utf-8")
    text = re.search(r"^```conf\n(port: .*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    config = serve(text, NODE="a")
    assert (config.validate(), config.notices) == ([], ())
    assert (config.cluster.voters("a"), config.limits.for_channel("orders.x").bytes) == (("a", "b", "c"), 0)
    assert handed(config) == '"port": 4222'
    assert (config.monitor.host, config.monitor.port) == ("127.0.0.1", 8222)


POLICIES = """
policies {
  "orders.>" { max_deliver: 5, backoff: ["1s", "1m"], max_hold: "10m", window: adaptive }
  "orders.eu" {
    durables { billing { max_deliver: 3 } }
  }
}
"""


@pytest.mark.parametrize("text", [POLICIES, f"streaming {{ {POLICIES} }}"])
def test_policies_of_delivery(text):
    config = serve(text)
    assert config.policies == (
        PolicyRule(
            pattern="orders.>",
            max_deliver=5,
            backoff=(SECOND, 60 * SECOND),
            max_hold=600 * SECOND,
            adaptive_window=True,
            where="s.conf:3",
        ),
        PolicyRule(pattern="orders.eu", name="billing", max_deliver=3, where="s.conf:5"),
    )
    assert config.validate() == []
    assert [setting for setting in config.shown() if setting.name.startswith("policies.")] == [
        ("policies.orders.>.max_deliver", "5", "s.conf:3"),
        ("policies.orders.>.backoff", "1s,1m0s", "s.conf:3"),
        ("policies.orders.>.max_hold", "10m0s", "s.conf:3"),
        ("policies.orders.>.window", "adaptive", "s.conf:3"),
        ("policies.orders.eu.durables.billing.max_deliver", "3", "s.conf:5"),
    ]
    assert not any("policies" in notice for notice in config.notices)


def test_every_option_of_a_policy_can_be_configured():
    config = serve("""policies {
  "jobs.in5m" { delay: "5m", target: jobs, max_late: "1h" }
  jobs { dead_letter: .dlq, dead_letter_rate: 10
    durables { "billing:all" { mode: failover, order: key, dead_letter: none } } }
}""")
    assert config.validate() == []
    assert config.policies == (
        PolicyRule(pattern="jobs.in5m", delay=300 * SECOND, target="jobs", max_late=3600 * SECOND, where="s.conf:2"),
        PolicyRule(pattern="jobs", dead_letter=".dlq", dead_letter_rate=10, where="s.conf:3"),
        PolicyRule(
            pattern="jobs", name="billing:all", failover=True, ordered_by_key=True, dead_letter="", where="s.conf:4"
        ),
    )
    asked = serve('policies { jobs { schema: valid }, a { schema: "known" } }')
    assert [rule.schema for rule in asked.policies] == [2, 1]
    wrong = serve('policies { jobs { durables { billing { delay: "1s" } } } }')
    assert wrong.validate() == ["s.conf:1: delay is for whole channels, not for one durable"]


def test_checks_that_this_server_cannot_make_are_refused_at_start(monkeypatch):
    monkeypatch.setattr("stan_protocol.schemas.json_data.AVAILABLE", False)
    parsed = understand("policies { a { schema: known }, b { schema: valid }, c { schema: most } }")
    assert list(parsed.complaints) == [
        "s.conf:1: schema: to check JSON, each server needs the package jsonschema-rs (pip install jsonschema-rs)",
        "s.conf:1: expected schema to be valid or known or off",
    ]


def test_every_mistake_in_policies_is_told_with_its_line():
    parsed = understand("""policies {
  "a..b" { max_deliver: 1000001 }
  b { max_deliver: often, backoff: [soon],
    window: wide, max_hold: 5
    retries: 3
  }
  c: 5
  e { commit: fast }
  d { durables { x { durables {} } }
      backoff: "-1s" }
}""")
    assert list(parsed.complaints) == [
        "s.conf:3: expected max_deliver to be a number",
        's.conf:3: expected backoff to be a duration such as "10s" or "1h30m"',
        "s.conf:4: expected window to be adaptive or fixed",
        's.conf:4: expected max_hold to be a duration such as "10s" or "1h30m"',
        f's.conf:5: a policy has {", ".join(BY_KEY)}, durables, not "retries"',
        's.conf:7: expected the policy of "c" to be a map in braces',
        "s.conf:8: expected commit to be ephemeral or replicated or synced",
        f's.conf:9: a policy has {", ".join(BY_KEY)}, not "durables"',
    ]
    assert parsed.config.validate() == [
        's.conf:2: invalid channel name "a..b"',
        "s.conf:2: max_deliver must be between 0 and 1000000, not 1000001",
        "s.conf:9: backoff: a pause must be between 0 and 168h0m0s, not -1s",
    ]


def test_what_the_file_says_of_slow_clients_of_nats_counts():
    given = serve('max_pending: 1MB\nwrite_deadline: "2s"\nstreaming { hbi: 1s }').embedded
    assert (given.max_pending, given.write_deadline) == (0, 0)  # what the file says
    assert serve("streaming { hbi: 1s }").embedded.max_pending > 0
