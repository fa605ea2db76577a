"""The steps of the image, run in a clean virtual environment, and in a bare Debian: what it installs serves and is healthy."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import chroot
from tests.kit.distributions import CLIENT, inside, run
from tests.kit.ports import free_port
from tests.kit.server import ROOT, StanServer, until

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
INSTALL_SECONDS_MAX = 600


def copy_what_is_copied(source):
    """Do what COPY says of the sources."""
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *names, to = line.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / to, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(ROOT / name, source / to)


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_SECONDS_MAX + 120)
def test_steps_of_the_image_give_a_server_that_is_healthy(tmp_path: Path):
    source, home = tmp_path / "source", tmp_path / "stan"
    source.mkdir()
    copy_what_is_copied(source)
    (steps,) = re.findall(r"^RUN (python -m venv .+)$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
    steps = steps.replace("python -m", f"{shlex.quote(sys.executable)} -m").replace("/opt/stan", str(home))
    bare = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    done = subprocess.run(
        ["/bin/sh", "-ec", steps],
        cwd=source,
        env=bare,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    asked = json.loads(re.search(r"^    CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])
    port = free_port()
    asked = [str(home / "bin" / "python"), *asked[1:-1], asked[-1].replace("8222", str(port))]
    command = (str(home / "bin" / "stan-server"),)
    with StanServer(tmp_path, "-m", str(port), command=command):
        until(lambda: subprocess.run(asked, env=bare, capture_output=True, check=False).returncode == 0)
    assert subprocess.run(asked, env=bare, capture_output=True, check=False).returncode != 0


def steps_of(stage):
    """What RUN says in a stage, one command each."""
    return re.findall(r"^RUN (.+)$", stage.replace("\\\n", ""), re.MULTILINE)


@pytest.mark.timeout(3 * INSTALL_SECONDS_MAX)
def test_the_image_made_in_a_chroot_serves_who_is_outside(tmp_path):
    """All of its steps, in the order of the Dockerfile; the only difference is whose Python it is."""
    build, image = (chroot.bare_debian(tmp_path / name) for name in ("build", "image"))
    first, second = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    (build / "source").mkdir()
    copy_what_is_copied(build / "source")
    headers = "apt-get update && apt-get install -y --no-install-recommends python3-dev"  # the base image has them
    for step in (headers, *steps_of(first)):
        run(*inside(build), "/bin/sh", "-ec", f"cd /source; {step}", cwd=tmp_path, compiler=True)
    (image / "opt").mkdir(exist_ok=True)
    (build / "opt/stan").rename(image / "opt/stan")
    for step in steps_of(second):
        run(*inside(image), "/bin/sh", "-ec", step, cwd=tmp_path)
    path = "PATH=/opt/stan/bin:/usr/bin:/bin"
    user = re.search(r"^USER (\S+)$", second, re.MULTILINE)[1]
    within = (*inside(image), "chroot", f"--userspec={user}", "/", "/usr/bin/env", path)
    port = free_port()
    health = json.loads(re.search(r"^    CMD (\[.*\])$", second, re.MULTILINE)[1])
    health = [*within, *health[:-1], health[-1].replace("8222", str(port))]
    kernel = "from stan.protocol.kernel import server; print(server.NAME)"
    assert run(*within, "python", "-c", kernel, cwd=tmp_path) == "compiled\n"
    with StanServer(tmp_path, "-dir", "/data", "-m", str(port), command=(*within, "stan-server")) as server:
        until(lambda: subprocess.run(health, capture_output=True, check=False).returncode == 0)
        code = [sys.executable, "-c", CLIENT, server.url]
        assert subprocess.run(code, capture_output=True, text=True, check=True).stdout == "b'hello'\n"
        assert list((image / "data").iterdir())
