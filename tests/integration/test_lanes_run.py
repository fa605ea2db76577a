"""Lanes and the search for unsteady tests, with a pytest that really runs: a project with a test that fails at times."""

import pytest

from tests.lanes import Lane, run_all
from tests.unsteady import look

ONCE = """
from pathlib import Path

def test_once():
    seen = Path(__file__).with_name("seen")
    number = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (number + 1))
    assert number not in FAILS_AT

def test_always():
    pass
"""


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    """A project whose only file of tests has one that fails the first time."""
    (tmp_path / "test_once.py").write_text(f"FAILS_AT = {{0}}\n{ONCE}")
    for module in ("lanes", "unsteady"):
        monkeypatch.setattr(f"tests.{module}.ROOT", tmp_path)


@pytest.mark.parametrize(
    ("real", "fails_at", "code", "end"),
    [
        (True, {0}, 0, "run again: test_once.py::test_once"),
        (True, {0, 1}, 1, "run again: test_once.py::test_once"),
        (True, {0, 2}, 1, "run again: test_once.py::test_once"),
        (False, {0}, 1, "nothing was run again"),
    ],
)
async def test_what_failed_passes_in_two_more_runs_or_is_a_failure(tmp_path, capsys, real, fails_at, code, end):
    (tmp_path / "test_once.py").write_text(f"FAILS_AT = {fails_at}\n{ONCE}")
    assert await run_all([Lane("lane", ("test_once.py",), real=real)], tmp_path / "work") == code
    *before, last = capsys.readouterr().out.splitlines()
    assert "1 failed, 1 passed" in "\n".join(before)
    assert last.startswith("FAILED after" if code else "passed after")
    assert last.endswith(end)


async def test_a_lane_without_its_packages_is_left_out_and_said_so(tmp_path, capsys):
    assert await run_all([Lane("lane", ("test_once.py",), needs=("no_such_package",))], tmp_path) == 0
    assert "left out: lane: no_such_package not installed" in capsys.readouterr().out


async def test_unsteady_ones_are_counted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failures = await look(["test_once.py"], [], runs=2, hogs=1)
    assert failures == {"test_once.py::test_once": 1}
    first, second = capsys.readouterr().out.splitlines()
    assert "failed, see" in first
    assert second.endswith("passed")
