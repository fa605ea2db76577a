"""The documentation's site can be built without a complaint, and a real server has no metric that is not on its page."""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from docs.generator.metrics import families
from tests.kit.ports import free_port
from tests.kit.server import StanServer

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path / "site").parent.as_posix() for path in (tmp_path / "site").rglob("index.html")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"README"} <= pages
    assert {f"features/{page.stem}" for page in (ROOT / "docs/features").glob("*.md")} <= pages
    api = (tmp_path / "site/reference/stan_client/index.html").read_text(encoding="utf-8")
    assert 'id="stan_client.Client.publish"' in api


def test_every_metric_of_a_server_is_one_of_the_page(tmp_path):
    port = free_port()
    with StanServer(tmp_path, "-m", str(port)), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    told = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert len(told) > 20
    assert told.keys() <= {family.name for family in families()}
