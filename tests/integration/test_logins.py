"""Logins to the pages of a real server: no way around them, health for everybody, and a configuration that is refused."""

import http.client
import json
import subprocess

import pytest

from stan.config import NatsConfig
from stan.edge.nats.password_check import is_password
from tests.kit.ports import free_port
from tests.kit.server import COMMAND, ROOT, StanServer

TOKEN = "0123456789abcdef0123"  # noqa: S105 - of a test
CONFIG = f"""
streaming {{
  dashboard {{ users: [{{ user: ops, password: of-ops, token: "{TOKEN}" }}, {{ user: some, password: x, channels: "a.>" }}] }}
}}
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A server with logins; the address of its pages."""
    port, directory = free_port(), tmp_path_factory.mktemp("logins")
    (directory / "stan.conf").write_text(CONFIG)
    with StanServer(directory, "-c", str(directory / "stan.conf"), "-m", str(port)) as server:
        yield server, f"http://127.0.0.1:{port}"


def asked(real, method, path, **headers):
    host, port = real[1].removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT"])
@pytest.mark.parametrize(
    "path",
    [
        *(
            "/varz",
            "/dashboard/../varz",
            "/dashboard/%2e%2e/varz",
            "/dashboard/..%2fvarz",
            "/dashboard/.%2e/connz?subs=1",
        ),
        *(
            "/healthz/../varz",
            "/healthz/%2e%2e/varz",
            "//varz",
            "/dashboard//../varz",
            "/streaming/isFTActive/../serverz",
        ),
        *("/streaming/channelsz?subs=1", "/api/v1/%2e%2e/%2e%2e/varz", "/metrics", "/", "/streaming", "/%76arz"),
    ],
)
def test_no_way_around_the_login_leads_to_another_page(real, method, path):
    status, body = asked(real, method, path)
    assert status in (301, 400, 401, 403, 404, 405), (status, body[:200])
    assert b"server_id" not in body


@pytest.mark.parametrize("path", ["/healthz/live", "/healthz/ready", "/healthz", "/dashboard/", "/dashboard/main.js"])
def test_health_and_the_page_that_asks_who_it_is_are_for_everybody(real, path):
    assert asked(real, "GET", path)[0] == 200


@pytest.mark.parametrize("path", ["/varz", "/connz", "/metrics", "/streaming/channelsz?subs=1", "/api/v1/overview"])
def test_a_token_opens_all_pages_for_a_program(real, path):
    assert asked(real, "GET", path, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_secrets_are_in_no_log(real):
    asked(real, "GET", "/varz", Authorization="Bearer wrong-and-long-enough")
    assert not any(secret in real[0].log() for secret in (TOKEN, "of-ops", "wrong-and-long-enough"))


def test_mistakes_end_the_start_with_their_lines(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("streaming {\n dashboard {\n  users: [\n   { user: a }\n   { user: b, token: short }\n  ]\n }\n}\n")
    run = subprocess.run(
        [*COMMAND, "-c", str(file), "-m", "-1"], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert run.returncode == 1
    assert f'{file}:4: "a" has no password and no token' in run.stderr
    assert f'{file}:5: the token of "b" is shorter than 16 characters' in run.stderr


HASH = "$2b$04$abcdefghijklmnopqrstuuQdlWcjpxqT5yQtTz6Y8v4C9XmS7iBXC"
PASSWORD = "of-hashed"  # noqa: S105 - of a test
HASHED = f"""
streaming {{
  permissions {{ users: [{{ user: hashed, password: "{HASH}" }}], allow: [{{ user: hashed, admin_read: ">" }}] }}
  dashboard {{ users: [{{ user: hashed }}] }}
}}
"""


def logged_in(url, password):
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    headers = {"Origin": url, "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/login", json.dumps({"user": "hashed", "password": password}), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_hashed_password_is_checked_by_nats(tmp_path):
    (tmp_path / "stan.conf").write_text(HASHED)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with StanServer(tmp_path, "-c", str(tmp_path / "stan.conf"), "-m", str(port)):
        assert logged_in(url, "wrong") == 401
        assert logged_in(url, HASH) == 401
        assert logged_in(url, PASSWORD) == 200


async def test_nats_that_takes_any_password_lets_nobody_in(tmp_path):
    with StanServer(tmp_path, store="MEMORY") as server:
        assert not await is_password(NatsConfig(), (server.url,), "hashed", PASSWORD)
        assert not await is_password(NatsConfig(), (f"nats://127.0.0.1:{free_port()}",), "hashed", PASSWORD)


async def test_logins_in_the_url_of_nats_open_nothing(tmp_path):
    flags = ("--user", "broker", "--pass", "of-broker")
    with StanServer(tmp_path, *flags, store="MEMORY") as server:
        url = server.url.replace("nats://", "nats://broker:of-broker@")
        assert not await is_password(NatsConfig(), (url,), "hashed", PASSWORD)
        assert await is_password(NatsConfig(), (url,), "broker", "of-broker")
