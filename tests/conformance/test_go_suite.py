"""The Go client's own tests, unchanged, with our server in the place of the original.

They are not ours to carry: STAN_GO_SUITE names a checkout of nats-io/stan.go, and GOPATH a tree with what it imports. The tests
import the original as a package; ours of that name (`go/server.go`) starts a process instead. They listen on port 4222.
"""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.original import ORIGINAL, needs_original
from tests.kit.ports import accepts
from tests.kit.server import COMMAND, ROOT, until

SUITE_SECONDS_MAX = 900
PORT = 4222
OURS = Path(__file__).parent / "go" / "server.go"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The compiled tests."""
    given = os.environ.get("STAN_GO_SUITE")
    if not given:
        pytest.skip("STAN_GO_SUITE names no checkout of nats-io/stan.go")
    if accepts(PORT):
        pytest.skip(f"port {PORT}, which the suite needs, is in use")
    assert shutil.which("go"), "the suite needs go on PATH"
    packages = tmp_path / "src" / "github.com" / "nats-io"
    shutil.copytree(given, packages / "stan.go", ignore=shutil.ignore_patterns(".git"))
    server = packages / "nats-streaming-server" / "server"
    server.mkdir(parents=True)
    shutil.copy(OURS, server)
    (server.parent / "go.mod").write_text("module github.com/nats-io/nats-streaming-server\n")
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("GOPATH")]))
    env = os.environ | {"GOPATH": paths, "GO111MODULE": "off"}
    program = tmp_path / "suite"
    subprocess.run(["go", "test", "-c", "-o", program, "."], cwd=packages / "stan.go", env=env, check=True)
    return program


def results(suite: Path, *command: str) -> dict[str, str]:
    """How each test ended, against a server of *command*."""
    env = os.environ | {"STAN_COMMAND": "\n".join(command)}
    limit = f"-test.timeout={SUITE_SECONDS_MAX}s"
    with subprocess.Popen(
        [suite, "-test.v", limit], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate()
        finally:
            with suppress(ProcessLookupError):  # a server that its test has not ended
                os.killpg(process.pid, signal.SIGTERM)
    until(lambda: not accepts(PORT))
    return {name: how for how, name in re.findall(r"^--- (\w+): (\w+) ", said, re.MULTILINE)}


@pytest.mark.timeout(SUITE_SECONDS_MAX + 120)
def test_own_suite_of_the_go_client_passes(suite):
    found = results(suite, *COMMAND)
    assert len(found) > 50
    assert not [name for name, how in found.items() if how == "FAIL"]


@needs_original
@pytest.mark.timeout(SUITE_SECONDS_MAX + 120)
def test_as_many_tests_pass_as_with_the_original(suite):
    found = results(suite, ORIGINAL)
    assert not [name for name, how in found.items() if how == "FAIL"]
