"""The user that our own connection becomes beside those of the operator, and what nats-server gets to read."""

from pathlib import Path

import pytest

from stan.config import Config, TlsConfig
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import parse

OWN = "own-secret"


def plain(data: object) -> object:
    """Values without their places."""
    if isinstance(data, dict):
        return {key: plain(node.data) for key, node in data.items()}
    return [plain(node.data) for node in data] if isinstance(data, list) else data


def told(text: str, *argv: str) -> Config:
    """What `-c f` with *text* comes to, where we may have a user of our own."""
    parsed = parse(["-c", "f", *argv], lambda file: parse_conf(text.encode(), str(file)), {}, OWN)
    assert parsed.complaints == ()
    return parsed.config


def authorization(config: Config) -> object:
    """What nats-server reads of it."""
    return plain(parse_conf(config.embedded.config_text or b"", "f"))["authorization"]


EVERYTHING = {"publish": ">", "subscribe": ">"}
OURS = {"user": "_stan-server", "password": OWN, "permissions": EVERYTHING}


def test_one_user_becomes_a_list_with_us():
    config = told("authorization {\n user: u, password: p, timeout: 2\n}\nstreaming {}")
    assert authorization(config) == {
        "timeout": 2,
        "users": [{"user": "u", "password": "p", "permissions": EVERYTHING}, OURS],
    }
    assert (config.nats.user, config.nats.password) == ("_stan-server", OWN)


@pytest.mark.parametrize("user", ["user: u, password: p, permissions: { publish: a }", "nkey: UABC"])
def test_we_are_added_to_a_list_of_users(user):
    config = told(f"Authorization {{ users: [ {{ {user} }} ], default_permissions: {{ publish: x }} }}\nstreaming {{}}")
    text = parse_conf(config.embedded.config_text, "f")
    first, ours = plain(text)["Authorization"]["users"]
    assert (first["user"] if "user" in first else first["nkey"]) in {"u", "UABC"}
    assert ours == OURS
    assert config.nats.user == "_stan-server"


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("authorization { token: t }", ("", "", "t")),
        ("authorization { token: '$2a$hash' }\nstreaming { token: t }", ("", "", "t")),
        (
            "authorization { users: [ { user: a, password: b } ] }\nstreaming { username: a, password: b }",
            ("a", "b", ""),
        ),
        ("authorization { users: [ { user: a, password: b } ], auth_callout { issuer: A } }", ("", "", "")),
        ("authorization { users: 3 }", ("", "", "")),
        ("authorization: 3", ("", "", "")),
        ("port: 1", ("", "", "")),
        ("accounts { A: { users: [ { user: a, password: b } ] } }", ("", "", "")),
    ],
)
def test_who_cannot_or_need_not_be_added_is_not(text, login):
    config = told(text)
    assert (config.nats.user, config.nats.password, config.nats.token) == login
    assert OWN.encode() not in (config.embedded.config_text or b"")


@pytest.mark.parametrize("argv", [["-ns", "nats://h:1"], ["-user", "a", "-pass", "b"], ["-auth", "t"]])
def test_flags_decide_over_the_users_of_the_file(argv):
    config = told("authorization { users: [ { user: x, password: y } ] }", *argv)
    assert OWN.encode() not in (config.embedded.config_text or b"")
    assert config.embedded.own_user == ("_stan-server" if "-user" in argv else "")


def test_own_password_is_never_shown():
    config = told("authorization { user: u, password: p }\nstreaming {}")
    assert OWN not in repr(config)
    assert OWN not in repr(config.shown())


def test_tls_of_the_embedded_server_is_known_to_our_connection():
    assert told("tls { cert_file: c, key_file: k, verify: true }").nats.tls == TlsConfig(
        pinned=Path("c"), client_cert=Path("c"), client_key=Path("k")
    )
    assert told("port: 1", "--tls", "--tlscert", "c", "--tlskey", "k").nats.tls == TlsConfig(pinned=Path("c"))
    assert told(
        "tls { cert_file: c, key_file: k }", "-tls_client_cert", "m", "-tls_client_key", "n"
    ).nats.tls == TlsConfig(pinned=Path("c"), client_cert=Path("m"), client_key=Path("n"))
    assert told("tls { cert_file: c }", "--tls=false").nats.tls is None
    assert told("tls { cert_file: c }", "-ns", "nats://h:1").nats.tls is None


def test_routes_with_passwords_are_no_arguments_of_nats_server():
    config = told("port: 1", "-cluster", "nats://u:p@h:1", "-routes", "nats://u:p@h:2,nats://h:3", "-cluster_name", "n")
    assert config.embedded.extra_args == ("--cluster_name=n",)
    assert config.embedded.routes == ("nats://u:p@h:2", "nats://h:3")
    assert config.embedded.listen_routes == "nats://u:p@h:1"
    assert "u:p" not in repr(config)


def test_routes_with_passwords_beside_a_cluster_block_are_refused():
    parsed = parse(["-c", "f", "-routes", "nats://u:p@h:2"], lambda file: parse_conf(b"cluster { name: x }", str(file)))
    assert parsed.complaints == ("-routes with a password: put it into the cluster block of the file, which there is",)
