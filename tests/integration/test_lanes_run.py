"""Lanes and the search for unsteady tests, with a pytest that really runs: a project with a test that fails the first time."""

import pytest

from tests.lanes import Lane, run_all
from tests.unsteady import look

ONCE = """
from pathlib import Path

def test_once():
    flag = Path(__file__).with_name("flag")
    if not flag.exists():
        flag.touch()
        raise AssertionError

def test_always():
    pass
"""


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    """A project whose only file of tests has one that fails the first time."""
    (tmp_path / "test_once.py").write_text(ONCE)
    for module in ("lanes", "unsteady"):
        monkeypatch.setattr(f"tests.{module}.ROOT", tmp_path)


@pytest.mark.parametrize("real", [True, False])
async def test_what_failed_once_runs_alone_and_is_named_in_the_last_line(tmp_path, capsys, real):
    lane = Lane("lane", ("test_once.py",), real=real)
    code = await run_all([lane], tmp_path / "work")
    *before, last = capsys.readouterr().out.splitlines()
    assert code == (not real)
    assert "1 failed, 1 passed" in "\n".join(before)
    assert last.startswith("passed after" if real else "FAILED after")
    assert last.endswith("test_once.py::test_once" if real else "nothing was run twice")


async def test_unsteady_ones_are_counted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failures = await look(["test_once.py"], [], runs=2, hogs=1)
    assert failures == {"test_once.py::test_once": 1}
    first, second = capsys.readouterr().out.splitlines()
    assert "failed, see" in first
    assert second.endswith("passed")
