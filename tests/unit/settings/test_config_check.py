"""`stan config check`: all that is wrong with a file, at once, with its lines."""

import json
import os
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stan.cli.main import app
from stan.settings.config_check import examine
from stan.settings.nats_conf import ConfError
from stan.settings.nats_conf import parse as parse_conf

ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "stan.conf"


def said(*argv: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["config", *map(str, argv)])
    return result.exit_code, result.output


WRONG = """port: 1
max_payload: "x"
include part.conf
hbf: ten
foo: $NOPE
bar: a b c
nkey_seed_file: "missing-seed"
nonsense: 1
"""


def test_everything_is_told_at_once_also_what_stands_in_included_files(file):
    file.write_text(WRONG)
    (file.parent / "part.conf").write_text("\nlimits {\n  max_age: soon\n}\nst: NONE\n")
    code, text = said("check", file)
    assert code == 1
    lines = [line.removeprefix("error: ").replace(str(file.parent) + "/", "") for line in text.splitlines()]
    assert lines == [
        'part.conf:3: time: invalid duration "soon"',
        "part.conf:5: unknown store type: NONE",
        "stan.conf:2: value is expected to be int64, got string",
        'stan.conf:4: parameter "hbf" value is expected to be int64, got string',
        "stan.conf:5: variable reference for 'NOPE' can not be found",
        'stan.conf:6: the value must end the line, but "b c" follows',
        "stan.conf:7: nkey_seed_file: missing-seed: no such file or directory",
        'warning: stan.conf:6: unknown option "bar" is ignored',
        'warning: stan.conf:8: unknown option "nonsense" is ignored',
        "stan.conf: 7 to mend",
    ]


def test_right_file_is_told_with_its_warnings(file):
    file.write_text("port: 1\nstreaming {\n store: FILE, dir: x\n nope: 1\n file { compact: true }\n}\n")
    text = (
        f'warning: {file}:4: unknown option "nope" is ignored\n'
        f"warning: Options without effect in this version: compact ({file}:5)\n"
        f"{file}: can be served\n"
    )
    assert said("check", file) == (0, text)


def test_flags_count(file):
    file.write_text("store: FILE\n")
    assert said("check", file)[0] == 1
    assert said("check", file, "--", "-dir", "x")[0] == 0
    code, text = said("check", file, "--", "-wrong")
    assert (code, "flag provided but not defined: -wrong" in text) == (1, True)


def test_answer_for_scripts(file):
    file.write_text("hbf: ten")
    code, text = said("check", file, "--json")
    assert (code, json.loads(text)["errors"]) == (
        1,
        [f'{file}:1: parameter "hbf" value is expected to be int64, got string'],
    )


def test_options_are_shown_with_where_they_come_from(file):
    file.write_text("store: FILE\ndir: x\npassword: hidden\n")
    code, text = said("show", file, "--json", "--", "-mm", "5")
    options = {option["name"]: (option["value"], option["source"]) for option in json.loads(text)["options"]}
    assert code == 0
    assert options["dir"] == ("x", f"{file}:2")
    assert options["max_msgs"] == ("5", "flag")
    assert "hidden" not in text


def test_options_of_natss_part_are_shown_as_they_are_in_force(file):
    file.write_text("""PASSWORD: hidden1
listen: "127.0.0.1:14231"
log_file: "nats.log"
authorization { user: joe, password: $PASSWORD }
cluster { name: c, routes: ["nats://a:hidden2@h:1", "nats://h:2"] }
accounts { A { users: [ { user: a, password: hidden3 } ] } }
websocket { port: 8080, no_tls: true }
debug: true
http: 8222
streaming { id: x }
""")
    code, text = said("show", file, "--json", "--", "--name", "flagged")
    options = {option["name"]: (option["value"], option["source"]) for option in json.loads(text)["options"]}
    assert code == 0
    assert "hidden" not in text
    expected = {
        "port": ("14231", f"{file}:2"),
        "addr": ("127.0.0.1", f"{file}:2"),
        "user": ("joe", f"{file}:4"),
        "pass": ("[REDACTED]", f"{file}:4"),
        "server_name": ("flagged", "flag"),
        "cluster_name": ("c", f"{file}:5"),
        "debug": ("true", f"{file}:8"),
        "http_port": ("8222", f"{file}:9"),
        "log": ("nats.log", f"{file}:3"),
        "nats.cluster.routes": ("[nats://a:[REDACTED]@h:1, nats://h:2]", f"{file}:5"),
        "nats.accounts.A.users": ("[{user: a, password: [REDACTED]}]", f"{file}:6"),
        "nats.websocket.port": ("8080", f"{file}:7"),
        "nats.websocket.no_tls": ("true", f"{file}:7"),
    }
    assert {name: options[name] for name in expected} == expected
    assert {name for name in options if name.startswith("nats.")} == {
        name for name in expected if name.startswith("nats.")
    }


@pytest.mark.parametrize(
    ("text", "flags", "port"),
    [
        ("max_connections: 5\n", (), "4222"),
        ("port: 1", (), "1"),
        ("port: 1", ("-p", "2"), "2"),
        ("port: 1", ("-ns", "nats://h:1"), "0"),
        ("id: x", (), "4222"),
    ],
)
def test_port_in_force_is_shown(file, text, flags, port):
    file.write_text(text)
    options = {
        option["name"]: option["value"]
        for option in json.loads(said("show", file, "--json", "--", *flags)[1])["options"]
    }
    assert options["port"] == port


def test_options_of_a_file_with_mistakes_are_not_shown_as_if_they_were_in_force(file):
    file.write_text(WRONG)
    code, text = said("show", file)
    assert code == 1
    assert f"{file}:8" in text.replace("\n", "") or ":4" in text
    assert "default" not in text


def test_certificates_that_cannot_be_used_are_told(file, tmp_path):
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    file.write_text(f'ns: "nats://h:1"\ntls {{ client_cert: "{bad}", client_key: "{bad}" }}')
    (complaint,) = examine(file, [], {}).complaints
    assert complaint.startswith(f"TLS towards NATS: {bad}: ")


def test_file_of_the_page_about_configuration_is_fine(file):
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    file.write_text(re.search(r"```conf\n(port: 4222 .*?)```", text, re.DOTALL)[1])
    assert examine(file, [], {"NODE": "a"}).complaints == ()


# --- what nats-server finds only when it starts ----------------------------------------------------------------------------

REFUSED = {
    "payload above pending": (
        "max_pending: 1MB\nmax_payload: 2MB",
        2,
        "max_payload (2097152) cannot be higher than max_pending",
    ),
    "websocket without TLS": ("ping_max: 3\nwebsocket { port: 8080 }", 2, "TLS configuration"),
    "unknown no_auth_user": (
        "no_auth_user: ghost\nauthorization { users: [ { user: a, password: b } ] }",
        1,
        "no_auth_user",
    ),
    "MQTT without JetStream": ("server_name: a\n\nmqtt { port: 1883 }", 3, "JetStream"),
    "gateway without a name": ("gateway {\n port: 7222\n}", 2, "gateway has no name"),
    "account of a leaf node": (
        "leafnodes {\n port: 7422\n authorization { user: u, password: p\n account: NOPE } }",
        4,
        "NOPE",
    ),
    "system account": ("accounts { A {} }\nsystem_account: NOPE", 2, "system account"),
    "grace period": ('lame_duck_duration: "30s"\nlame_duck_grace_period: "40s"', 2, "lame duck grace period"),
    "name with a space": ('port: 4222\nserver_name: "a b"', 2, "server name cannot contain spaces"),
    "port": ("ping_max: 2\nport: 70000", 2, "invalid port"),
    "port of the cluster": ("cluster {\n name: x\n port: 70000\n}", 3, "invalid port"),
    "address": ('ping_max: 2\nhost: "203.0.113.7"', 2, "203.0.113.7"),
    "log file": ('ping_max: 2\nlog_file: "DIR/none/nats.log"', 2, "is no file that can be written to"),
    "pid file": ('ping_max: 2\npid_file: "DIR/none/nats.pid"', 2, "is no file that can be written to"),
    "folder of JetStream": ('ping_max: 2\njetstream { store_dir: "DIR/stan.conf" }', 2, "JetStream"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nats_server_refuses_at_its_start_is_refused_with_its_line(file, name):
    text, line, words = REFUSED[name]
    file.write_text(text.replace("DIR", str(file.parent)))
    (complaint,) = examine(file, [], {}).complaints
    assert complaint.startswith(f"{file}:{line}: ")
    assert words in complaint
    assert [path.name for path in file.parent.iterdir()] == ["stan.conf"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("port: 5222\nhttp: 5222", 1, "port 5222 is that of FILE:2, too"),
        ("ping_max: 2\nhttp: 4222", 2, "the default port of clients: port 4222 is that of FILE:2, too"),
        ("port: 5222\ncluster {\n name: c, port: 5222 }", 3, "port 5222 is that of FILE:1, too"),
        (
            'leafnodes { listen: "127.0.0.1:7422" }\nwebsocket {\n port: 7422, no_tls: on }',
            3,
            "port 7422 is that of FILE:1, too",
        ),
        ("streaming {\n store: FILE, dir: FILE\n}", 2, "dir: FILE is no directory, or cannot be written to"),
        ("streaming {\n store: FILE, dir: FILE/x\n}", 2, "dir: FILE/x is no directory, or cannot be written to"),
        ("streaming {\n store: SQL\n sql { source: FILE/x.db }\n}", 3, "sql_source: FILE is no directory"),
        ("streaming {\n store: SQL\n sql { source: / }\n}", 3, "sql_source: / is no file that can be written to"),
    ],
)
def test_what_only_a_start_would_find_of_ports_and_places(file, text, line, words):
    file.write_text(text.replace("FILE", f"{file}").replace(f"store: {file}", "store: FILE"))
    (complaint,) = examine(file, [], {}).complaints
    assert words.replace("FILE", str(file)) in complaint
    assert complaint.startswith((f"{file}:{line}: ", "the default port"))


def test_users_of_permissions_are_those_whom_nats_server_is_to_let_in(file):
    text = """port: 4222
permissions {
  users: [ { user: ops, nkey: NKEY }, { user: app, password: p } ]
  allow: [ { user: app, publish: ">" } ]
}
"""
    file.write_text(text.replace("NKEY", "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"))
    assert examine(file, [], {}).complaints == ()
    file.write_text(text.replace("NKEY", "UDXU"))
    (complaint,) = examine(file, [], {}).complaints
    assert complaint == f"{file}: Not a valid public nkey for a user"


def test_different_addresses_may_have_the_same_port(file):
    file.write_text('listen: "127.0.0.2:5222"\nhttp: "127.0.0.1:5222"\nstreaming { store: FILE, dir: none/deeper }\n')
    assert examine(file, ["-l", f"{file.parent}/log"], {}).complaints == ()
    (complaint,) = examine(file, ["-l", f"{file.parent}/none/log"], {}).complaints
    assert complaint == f"-log: log: {file.parent}/none/log is no file that can be written to"
    (complaint,) = examine(file, ["-a", "127.0.0.1"], {}).complaints
    assert complaint == f"{file}:1: port 5222 is that of {file}:2, too"


def test_line_in_an_included_file_and_flags_without_one(file):
    (file.parent / "part.conf").write_text("\nwebsocket { port: 8080 }")
    file.write_text("include part.conf")
    (complaint,) = examine(file, [], {}).complaints
    assert complaint.startswith(f"{file.parent}/part.conf:2: ")
    file.write_text("port: 4222")
    (complaint,) = examine(file, ["-n", "a b"], {}).complaints
    assert complaint == f"{file}: server name cannot contain spaces"


def test_what_nats_server_takes_with_a_warning_is_a_warning(file):
    file.write_text("ping_interval: 45\nwrite_deadline: 4\nstreaming { id: x }\n")
    code, text = said("check", file)
    assert code == 0
    assert sorted(text.splitlines()) == [
        f"{file}: can be served",
        f'warning: {file}:1: invalid use of field "ping_interval": ping_interval should be converted to a duration',
        f'warning: {file}:2: invalid use of field "write_deadline": write_deadline should be converted to a duration',
    ]


def test_check_disturbs_nothing(file, tmp_path, monkeypatch):
    """No port in use, no other server, no file, no process, no folder for temporary files."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with ExitStack() as listening:
        client, route, leaf, gateway, web, mqtt, other = (
            listening.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(7)
        )
        others = listening.enter_context(socket.create_server(("127.0.0.1", 0)))
        others.settimeout(0)
        url = f"nats://u:p@127.0.0.1:{others.getsockname()[1]}"
        file.write_text(f"""
            listen: "127.0.0.1:{client}", server_name: a, prof_port: {other}
            log_file: "{tmp_path}/nats.log", pid_file: "{tmp_path}/nats.pid", ports_file_dir: "{tmp_path}"
            jetstream {{ store_dir: "{tmp_path}/js" }}
            cluster {{ name: c, port: {route}, routes: ["{url}", "{url}0"] }}
            leafnodes {{ port: {leaf}, remotes: [ {{ url: "{url}" }}, {{ urls: ["{url}/x"] }} ] }}
            gateway {{ name: c, listen: "127.0.0.1:{gateway}", gateways: [ {{ name: d, url: "{url}" }} ] }}
            websocket {{ port: {web}, no_tls: true }}
            mqtt {{ port: {mqtt} }}
            accounts {{ SYS {{ users: [ {{ user: s, password: s }} ] }}, A {{ jetstream: on }} }}
            system_account: SYS
            streaming {{ store: FILE, dir: "{tmp_path}/store" }}
            """)
        assert examine(file, ["-n", "b"], {}).complaints == ()
        with pytest.raises(BlockingIOError):
            others.accept()
    assert {path.name for path in tmp_path.iterdir()} == {"stan.conf", "tmp"}
    assert list(temporary.iterdir()) == []
    assert children() == []


def children():
    """Process ids of our children, zombies too."""
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(") ")[2].split()[1] == str(os.getpid())
    ]


# --- errors behind which reading goes on ---------------------------------------------------------------------------------


def errors(text: str) -> list[str]:
    with pytest.raises(ConfError) as caught:
        parse_conf(text.encode(), "f")
    return [str(error) for error in (caught.value, *caught.value.others)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a: $b\nc: $d\n", 2),
        ("a { b: $c\n d: 1 }\ne: $f", 2),
        ("a: 99999999999999999999\nb: \\q\nc: 1 2\nd: 1", 3),
        ("a: [ $x\n ]\nb: $c", 2),
        ('a: "no end\nb: $c', 1),
        ("a: { b: 1 2 }\nc: $d", 1),
        ("a: {\n", 1),
        ("\n".join(f"a: $v{number}" for number in range(100)), 51),
    ],
)
def test_reading_goes_on_with_the_next_line_where_that_is_safe(text, count):
    assert len(errors(text)) == count


def test_what_could_be_read_is_kept():
    with pytest.raises(ConfError) as caught:
        parse_conf(b"a: 1\nb: $c\nd: 2", "f")
    assert {key: node.data for key, node in caught.value.document.items()} == {"a": 1, "d": 2}
