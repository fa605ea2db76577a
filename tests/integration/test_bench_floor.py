"""`python -m tests.bench_floor`: it runs to its end, prints figures and leaves no process behind."""

import json
import subprocess
import sys

import pytest

from tests.kit.server import ROOT


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_the_floor_is_measured(nodes):
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench_floor", "--nodes", nodes, "-n", "20", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["msgs_per_s"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
