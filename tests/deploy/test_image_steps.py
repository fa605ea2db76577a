"""The steps of the image, run in a clean virtual environment: what it installs serves and is healthy."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.ports import free_port
from tests.kit.server import ROOT, StanServer, until

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
INSTALL_SECONDS_MAX = 600


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_SECONDS_MAX + 120)
def test_steps_of_the_image_give_a_server_that_is_healthy(tmp_path: Path):
    source, home = tmp_path / "source", tmp_path / "stan"
    source.mkdir()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *names, to = line.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / to, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(ROOT / name, source / to)
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
