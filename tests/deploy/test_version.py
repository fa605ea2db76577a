"""The version stands in each of its places, and one command writes it there."""

from stan.product import VERSION
from tests.kit.server import ROOT
from tests.version import PLACES, PROJECTS, for_chart
from tests.version import main as write_version


def test_the_version_stands_in_every_place():
    assert {ROOT / file for file in PROJECTS} == {ROOT / "pyproject.toml", *ROOT.glob("clients/*/pyproject.toml")}
    for place in PLACES:
        found = place.found(ROOT)
        assert found or not place.needed, place.file
        assert set(found) <= {for_chart(VERSION) if place.chart else VERSION}, place.file


def test_a_version_is_written_in_every_place_and_nowhere_else(tmp_path):
    for file in {place.file for place in PLACES}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes((ROOT / file).read_bytes())
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert write_version(["7.8.9rc1"], tmp_path) == 0
    for place in PLACES:
        assert set(place.found(tmp_path)) <= {"7.8.9-rc1" if place.chart else "7.8.9rc1"}, place.file
    assert not any(f"=={VERSION}" in path.read_text() for path in before)
    assert write_version([VERSION], tmp_path) == 0
    assert before == {path: path.read_text() for path in before}
    assert write_version(["next"], tmp_path) == 2
