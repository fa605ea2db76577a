"""The lanes in which all tests run: each test is in one of them, and what may fail once is what starts real processes."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.lanes import EVERYTHING, LANES, ROOT, Result, counts, may_run_again, slowest

COMPUTING, PROCESSES, *_ = LANES


def result(lane, code=1, *failed, output=""):
    return Result(lane, code, output, 1.0, failed)


def within(lane, name):
    left_out = [path for option, path in zip(lane.options, lane.options[1:], strict=False) if option == "--ignore"]
    return any(map(Path(name).is_relative_to, lane.paths)) and not any(map(Path(name).is_relative_to, left_out))


def test_each_test_file_is_in_one_lane():
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100
    assert [
        (name, lanes) for name in files if len(lanes := [lane.name for lane in LANES if within(lane, name)]) != 1
    ] == []


@cache
def imported(file):
    """Packages without which a test file, or a part of the kit, cannot be imported."""
    packages = set()
    for node in ast.parse(file.read_text()).body:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            ours = ROOT / (name.replace(".", "/") + ".py")
            packages |= imported(ours) if name.startswith("tests.") and ours.exists() else {name.partition(".")[0]}
    return packages


def test_a_lane_that_always_runs_imports_no_package_of_the_larger_extra():
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if imported(path).intersection(EVERYTHING)]
    names = [str(path.relative_to(ROOT)) for path in files]
    assert len(names) > 20
    assert [name for lane in LANES if not lane.needs for name in names if within(lane, name)] == []


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
def test_only_a_few_tests_with_real_processes_run_again(results, again):
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
