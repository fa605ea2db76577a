"""The JavaScript client's own tests, unchanged, with our server in the place of the original.

They are not ours to carry: STAN_JS_SUITE names a checkout of nats-io/stan.js in which `npm install` was run. Their harness
sleeps half a second after it has started a server and does not look whether it is ready, and some tests race a server's end;
so a test counts as passed if it passes in one of a few rounds.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.server import ROOT

ROUNDS_MAX = 4
ROUND_SECONDS_MAX = 240


def launcher(directory: Path) -> Path:
    """A directory for PATH with a `nats-streaming-server` that is ours: the installed one, which starts faster, or the source."""
    installed = Path(sys.executable).with_name("nats-streaming-server")
    target = directory / "nats-streaming-server"
    if installed.exists():
        target.symlink_to(installed)
    else:
        source = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m stan.server.main "$@"'
        target.write_text(f"#!/bin/sh\n{source}\n", encoding="utf-8")
        target.chmod(0o755)
    return directory


def failures(suite: Path, env: dict[str, str], report: Path) -> set[str]:
    """Run all tests of the suite; the titles of those that fail."""
    command = ["node_modules/.bin/mocha", "--timeout", "10000", "--exit", "--reporter", "json"]
    command += ["--reporter-option", f"output={report}", *sorted(str(file) for file in (suite / "test").glob("*.js"))]
    ended = subprocess.run(
        command, cwd=suite, env=env, capture_output=True, text=True, timeout=ROUND_SECONDS_MAX, check=False
    )
    assert report.exists(), ended.stderr
    result = json.loads(report.read_text(encoding="utf-8"))
    assert result["stats"]["tests"] > 0
    passed = {test["fullTitle"] for test in result["passes"]}
    return {test["fullTitle"] for test in result["tests"] + result["failures"]} - passed


@pytest.mark.timeout(ROUNDS_MAX * ROUND_SECONDS_MAX)
def test_own_suite_of_the_javascript_client_passes(tmp_path):
    given = os.environ.get("STAN_JS_SUITE")
    if not given:
        pytest.skip("STAN_JS_SUITE names no checkout of nats-io/stan.js")
    suite = Path(given).resolve()
    assert shutil.which("node"), "the suite needs node on PATH"
    assert (suite / "node_modules" / ".bin" / "mocha").exists(), f"run `npm install` in {suite}"
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    env = os.environ | {"PATH": f"{launcher(bin_dir)}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(scratch)}

    failing: set[str] | None = None
    for number in range(ROUNDS_MAX):
        failed = failures(suite, env, tmp_path / f"round{number}.json")
        failing = failed if failing is None else failing & failed
        if not failing:
            break

    assert not failing
