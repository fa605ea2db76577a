"""What makes a release: workflows, pieces of the changelog, and the page that tells its steps, which agree with each other."""

import re
import tomllib

import pytest
import yaml

from tests.deploy.test_deploy_files import checked
from tests.kit.server import ROOT
from tests.version import PROJECTS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^\s*(?:- )?uses: ([\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(?:\.\d+)*)$")
TOOL = re.compile(r"\b([a-z][a-z-]+)==(\d[\w.]*)")

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def pythons_released() -> list[str]:
    """Versions of Python for which there are wheels, as 3.11."""
    tags = re.findall(r"cp3(\d+)-\*", SETTINGS["tool"]["cibuildwheel"]["build"])
    return [f"3.{minor}" for minor in tags]


@each_workflow
def test_workflow_fits_its_schema(path):
    checked("check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)


@each_workflow
def test_actions_are_pinned_by_commit(path):
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not PINNED.match(line)] == []


@each_workflow
def test_a_workflow_may_read_and_only_the_upload_may_more(path):
    found = yaml.safe_load(path.read_text())
    assert found["permissions"] == {"contents": "read"}
    assert {name for name, job in found["jobs"].items() if "permissions" in job} <= {"upload"}
    for job in found["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_is_tested_is_what_wheels_are_built_for_and_what_is_claimed():
    pythons = workflow("ci")["jobs"]["run"]["strategy"]["matrix"]["python"]
    assert pythons == pythons_released()
    claims = {f"Programming Language :: Python :: {python}" for python in pythons}
    for file in PROJECTS:
        project = tomllib.loads((ROOT / file).read_text())["project"]
        assert claims <= set(project["classifiers"]), file
        assert project["requires-python"] == f">={pythons[0]}", file
        assert project["authors"], file
    protocol = tomllib.loads((ROOT / "clients" / "stan_protocol" / "pyproject.toml").read_text())
    assert protocol["tool"]["cibuildwheel"]["build"] == SETTINGS["tool"]["cibuildwheel"]["build"]


@pytest.mark.parametrize("folder", [".", "clients/stan_protocol"])
def test_a_wheel_without_its_kernels_is_no_success(folder):
    """The test of a built wheel asks for each module that setup.py compiles."""
    text = (ROOT / folder / "setup.py").read_text()
    command = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["test-command"]
    compiled = set(re.findall(r'"(_stan\w*_kernel)"', text))
    assert compiled
    assert compiled == set(re.findall(r"'(_stan\w*_kernel)'", command))


def test_page_and_workflow_use_the_same_tools():
    page, release = ((ROOT / name).read_text() for name in ("RELEASING.md", ".github/workflows/release.yml"))
    told = {(name, version) for name, version in TOOL.findall(page) if not name.startswith("stan")}
    used = set(TOOL.findall(release))
    assert used <= told
    for command in (
        "python -m build",
        "twine check --strict",
        "cyclonedx-py environment",
        "pip-licenses --python released/bin/python --format=json --with-license-file",
        "licences-of-java.tar.gz",
        "sha256sum",
    ):
        assert command in page, command
        assert command in release, command


def test_pieces_of_the_changelog_have_a_kind():
    kinds = {kind["directory"] for kind in SETTINGS["tool"]["towncrier"]["type"]}
    pieces = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    for path in pieces:
        name = re.fullmatch(r"(?:\+[a-z0-9-]+|\d+)\.([a-z]+)\.md", path.name)
        assert name, path.name
        assert name[1] in kinds, path.name
        assert path.read_text().strip().endswith((".", ":", ")")), path.name
    readme = (ROOT / "changes" / "README.md").read_text()
    assert all(f"| `{kind}` |" in readme for kind in kinds)


def test_changelog_has_the_place_where_a_section_goes():
    start = SETTINGS["tool"]["towncrier"]["start_string"]
    assert (ROOT / "CHANGELOG.md").read_text().count(start) == 1
