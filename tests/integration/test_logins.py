"""Logins to the pages of a real server: no way around them, health for everybody, and a configuration that is refused."""

import http.client
import subprocess

import pytest

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
