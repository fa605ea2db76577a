"""The lanes in which all tests run: each test is in one of them, and what may fail once is what starts real processes."""

import pytest

from tests.lanes import LANES, ROOT, Lane, Result, counts, may_run_again, run_all, slowest
from tests.unsteady import look

COMPUTING, PROCESSES, *_ = LANES
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


def result(lane, code=1, *failed, output=""):
    return Result(lane, code, output, 1.0, failed)


def within(lane, name):
    left_out = [path for option, path in zip(lane.options, lane.options[1:], strict=False) if option == "--ignore"]
    return any(name == path or name.startswith(f"{path}/") for path in lane.paths) and name not in left_out


def test_each_test_file_is_in_one_lane():
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100
    assert [
        (name, lanes) for name in files if len(lanes := [lane.name for lane in LANES if within(lane, name)]) != 1
    ] == []


def test_a_lane_names_what_is_there():
    assert [path for lane in LANES for path in lane.paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("results", "again"),
    [
        ([result(COMPUTING, 0), result(PROCESSES, 1, "a", "b")], ("a", "b")),
        ([result(COMPUTING, 0), result(PROCESSES, 0)], ()),
        ([result(COMPUTING, 1, "c"), result(PROCESSES, 1, "a")], ()),
        ([result(COMPUTING, 0), result(PROCESSES, 1, *map(str, range(11)))], ()),
        ([result(PROCESSES, 1)], ()),
        ([result(PROCESSES, 2, "a")], ()),
        ([result(COMPUTING, 3), result(PROCESSES, 1, "a")], ()),
    ],
)
def test_only_a_few_tests_with_real_processes_run_once_more(results, again):
    assert may_run_again(results) == again


def test_slowest_are_those_of_all_lanes():
    one = "1.50s call     tests/a.py::b\n0.20s setup    tests/a.py::c\n"
    other = "0.90s teardown tests/d.py::e[x y]\n"
    found = slowest([result(COMPUTING, output=one), result(PROCESSES, output=other)])
    assert [line.split("::")[1] for line in found] == ["b", "e[x y]", "c"]


def test_counts_are_sums_over_lanes():
    one, other = (
        "x\n=== 3 passed, 1 skipped in 2.0s ===",
        "9 passed\n==== 1 failed, 1200 passed in 70s (0:01:10) ====\n",
    )
    assert (
        counts([result(COMPUTING, output=one), result(PROCESSES, output=other)]) == "1,203 passed, 1 skipped, 1 failed"
    )


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
