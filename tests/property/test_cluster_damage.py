"""Random damage to the nodes of an old cluster: reading never fails, and what one node has lost comes from the others."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stan.errors import StartError
from tests.kit.old_cluster import NODES, migrate, moved, unpack
from tests.property.test_migration_damage import add, cut, damage, flip, remove, repeat, scramble, zero

HOW = st.tuples(
    st.sampled_from([flip, zero, cut, remove, repeat, scramble, add]),
    st.integers(0, 1 << 20),
    st.sampled_from([1, 4, 8, 33, 200, 5000]),
)
CHECKED = [
    *("store/orders/msgs.1.dat", "store/orders/msgs.2.dat", "store/orders/msgs.1.idx", "store/jobs/msgs.1.dat"),
    *("store/small/msgs.1.dat", "store/clients.dat", "state.bin", "meta.json"),
]
"""Files with checksums, and one that is not needed."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A cluster in order, and what the original showed of it."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, unpack("snapshots", directory)


def place(source, node, name):
    """The path of a file relative to *source*; those of a snapshot are in a directory of its own."""
    if "." in name and "/" not in name and name != "raft.log":
        (path,) = (source / node / "raft").glob(f"test-cluster/snapshots/*/{name}")
        return str(path.relative_to(source))
    return f"{node}/raft/test-cluster/raft.log" if name == "raft.log" else f"{node}/{name}"


@settings(max_examples=30, deadline=None)
@given(
    damages=st.lists(
        st.tuples(st.sampled_from(NODES), st.sampled_from([*CHECKED, "raft.log"]), HOW), min_size=1, max_size=6
    ),
    nodes=st.sampled_from(["a", "b", "abc"]),
)
def test_damage_of_any_kind_is_survived(whole, damages, nodes):
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "old"
        shutil.copytree(whole[0], source)
        for node, file, (how, at, size) in damages:
            damage(source, place(source, node, file), how, at, size)
        with contextlib.suppress(StartError):  # no log that tells the state is left
            report = migrate(source, nodes, Path(name) / "new")
            assert all(problem.file.startswith(str(source)) for problem in [*report.problems, *report.hints])


@settings(max_examples=20, deadline=None)
@given(node=st.sampled_from(NODES), file=st.sampled_from(CHECKED), how=HOW)
def test_one_damage_to_what_has_checksums_costs_nothing_if_all_nodes_are_given(whole, node, file, how):
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "old"
        shutil.copytree(whole[0], source)
        damage(source, place(source, node, file), *how)
        report = migrate(source, "abc", Path(name) / "new")
        assert report.problem_count == 0
        result = moved(report, Path(name) / "new", whole[1])
        assert result == {part: whole[1][part] for part in result}
