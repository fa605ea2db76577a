"""What people have for NATS Streaming Server in containers starts this server: arguments, variables, files, paths and ports.

The files in `tests/fixtures/old-deployments` have the forms of the images on Docker Hub and of the Helm chart `stan`. The
entrypoint of the image is run with their arguments; only paths and ports are those of the test.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stan.settings.nats_conf import load
from stan.settings.settings import Parsed, parse
from tests.kit.ports import free_port
from tests.kit.server import COMMAND, ROOT, StanServer, until

OLD = ROOT / "tests" / "fixtures" / "old-deployments"
ENTRYPOINT = ROOT / "deploy" / "entrypoint.sh"
COMPOSED = yaml.safe_load((OLD / "compose.yaml").read_text())["services"]
POD = yaml.safe_load((OLD / "kubernetes.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]
ANYWHERE = "0.0.0.0"  # noqa: S104 - as in a container
IMAGE = (ROOT / "deploy" / "Dockerfile").read_text()


class Place:
    """Where a container has its paths and ports in a test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {port: free_port() for port in ("4222", "6222", "8222")}
        for name in ("etc/stan-config", "data/stan", "var/run/stan"):
            (directory / name).mkdir(parents=True)

    def moved(self, text: str) -> str:
        """A text with the paths and ports of the test."""
        text = re.sub(r"(?<![\w/.])/(?=(?:etc/stan-config|data/stan|var/run/stan)\b)", f"{self.directory}/", text)
        return re.sub(r"\b(4222|6222|8222)\b", lambda port: str(self.ports[port[1]]), text)

    def configured(self, name: str) -> None:
        """Put a configuration where it is mounted."""
        text = self.moved((OLD / name).read_text())
        text = re.sub(r"^http:", f"port: {self.ports['4222']}\nhttp:", text, flags=re.MULTILINE)
        (self.directory / "etc/stan-config/stan.conf").write_text(text)


def programs(directory: Path) -> str:
    """A PATH with the program of the image; it says its arguments where the variable ECHOED is set."""
    program = directory / "bin" / "stan-server"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\n[ -z "${{ECHOED-}}" ] || exec echo "$@"\ncd {ROOT}\nexec {shlex.join(COMMAND)} "$@"\n'
    )
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


class InContainer(StanServer):
    """The image's entrypoint with the arguments of a container."""

    def __init__(self, place: Place, *arguments: str) -> None:
        super().__init__(place.directory)
        self.port = place.ports["4222"]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._command = [str(ENTRYPOINT), *map(place.moved, arguments)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PATH", programs(tmp_path))
    monkeypatch.setenv("STAN_HTTP_HOST", re.search(r"STAN_HTTP_HOST=(\S+)", IMAGE)[1])
    monkeypatch.setenv("POD_NAME", "stan-0")
    monkeypatch.setenv("CLUSTER_ADVERTISE", "127.0.0.1")
    return Place(tmp_path)


def arguments_of(service: dict) -> list[str]:
    command = service["command"]
    return shlex.split(command) if isinstance(command, str) else command


def ready(server: StanServer, place: Place, path: str) -> bool:
    """Whether a probe from outside of the container, by an address, finds the page."""
    page = f"http://127.0.0.2:{place.ports['8222']}{path}"
    asked = f"import urllib.request; print(urllib.request.urlopen({page!r}, timeout=20).status)"
    return (
        server.running
        and subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False).stdout == b"200\n"
    )


@pytest.mark.parametrize("name", COMPOSED)
def test_service_of_a_compose_file_starts(place, name):
    place.configured("one.conf")
    with InContainer(place, *arguments_of(COMPOSED[name])) as server:
        assert ready(server, place, "/streaming/serverz")
        assert (place.directory / "data/stan/store/stan.json").exists()


def test_pod_of_the_old_chart_starts_and_is_ready(place):
    place.configured("one.conf")
    with InContainer(place, *POD["args"]) as server:
        probe = POD["readinessProbe"]["httpGet"]
        assert ready(server, place, probe["path"])
        assert ready(server, place, "/metrics?legacy=nss")
        pid = int((place.directory / "var/run/stan/stan.pid").read_text())
        assert pid == server.pid  # which the chart's reloader sends its signal to
        server.signal(1)
        until(lambda: "Reloaded" in server.log(), why=server.log)


def test_command_that_is_no_server_is_run(place):
    done = subprocess.run([ENTRYPOINT, "echo", "-m", "x"], capture_output=True, text=True, check=True)
    assert done.stdout == "-m x\n"


@pytest.mark.parametrize("name", ["", "stan-server", "nats-streaming-server", "/nats-streaming-server"])
def test_flags_are_the_servers_with_its_name_or_without(place, name, monkeypatch):
    monkeypatch.setenv("ECHOED", "1")
    done = subprocess.run([ENTRYPOINT, *filter(None, [name]), "-m", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "-m a b\n"
    assert subprocess.run([ENTRYPOINT], capture_output=True, text=True, check=True).stdout == "\n"


def understood(name: str, *flags: str) -> Parsed:
    environ = {"POD_NAME": "stan-1", "CLUSTER_ADVERTISE": "stan-1.stan.default.svc", "STAN_HTTP_HOST": ANYWHERE}
    return parse(["-sc", str(OLD / name), *flags], lambda file: load(file, environ), environ)


def test_configurations_of_the_old_chart_mean_what_they_did():
    one = understood("one.conf").config
    assert one.validate() == []
    assert one.notices == (f"Options without effect in this version: fds_limit ({OLD / 'one.conf'}:7)",)
    assert (one.limits.channels, one.limits.for_channel("orders.eu").msgs, one.limits.for_channel("audit").msgs) == (
        0,
        5,
        1000,
    )
    assert (one.monitor.host, one.monitor.port) == (ANYWHERE, 8222)
    cluster = understood("cluster.conf").config
    assert cluster.validate() == []
    assert (cluster.cluster.node_id, cluster.cluster.peers) == ("stan-1", ("stan-0", "stan-2"))
    elsewhere = understood("elsewhere.conf").config
    assert elsewhere.validate() == []
    assert (elsewhere.ft_group, elsewhere.nats.urls, elsewhere.nats.user) == (
        "pair",
        ("nats://nats.example:4222",),
        "joe",
    )
    assert elsewhere.nats.tls.client_ca == Path("/etc/nats/certs/ca.crt")
    assert elsewhere.pid_file == Path("/var/run/stan/stan.pid")


@pytest.mark.parametrize(
    ("name", "flags", "complaint"),
    [
        ("sql.conf", (), "driver (FILE:6): a SQL store is a SQLite file here, postgres is not served: use sqlite"),
        (
            "one.conf",
            ("--file_slice_archive_script", "/etc/stan-config/backup.sh"),
            "-file_slice_archive_script: this version runs no archive script",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_place(name, flags, complaint):
    assert understood(name, *flags).complaints == (complaint.replace("FILE", str(OLD / name)),)
