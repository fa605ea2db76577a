"""Three distributions have the import name `stan`: PyStan, the original's Python client, and ours. Installed beside each other,
each finds its own modules, whichever came first.

The client of the original needs `asyncio-nats-client`, in whose place nats-py has come (both are imported as `nats`): it is
installed without what it asks for, and only found, not run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from zipfile import ZipFile

import pytest

from stan.product import VERSION
from tests.kit.server import ROOT

INSTALL_SECONDS_MAX = 240
ASK_SECONDS_MAX = 60
UNREACHABLE = ("Could not find a version", "No matching distribution", "NewConnectionError", "Temporary failure")

PYSTAN = "pystan==3.10.0"
ORIGINAL = "asyncio-nats-streaming==0.4.0"

OURS_WORKS = f"import stan.server.main, stan.product; assert stan.product.VERSION == {VERSION!r}"
OTHER_WORKS = {
    PYSTAN: "import stan; assert stan.build.__module__ == 'stan.model'; import stan.fit; stan.fit.Fit",
    ORIGINAL: (
        "from stan.aio.errors import ErrConnectReqTimeout, StanError; from importlib.util import find_spec; "
        "assert all(map(find_spec, ('stan.aio.client', 'stan.pb.protocol_pb2')))"
    ),
}


def bare() -> dict[str, str]:
    """The environment without what leads to the sources, and without a compiler: the kernels have no part in this."""
    return {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")} | {"CC": "false"}


def run(*command: str | Path, cwd: Path, timeout: int = ASK_SECONDS_MAX) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=bare(), capture_output=True, text=True, timeout=timeout, check=False
    )


class Environment:
    """A virtual environment of its own, into which packages come and go."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.programs = home / ("Scripts" if os.name == "nt" else "bin")

    def pip(self, *words: str | Path) -> None:
        """Run pip; the test is skipped if the index does not answer or does not have a package."""
        command = (self.programs / "python", "-m", "pip", *words, "--disable-pip-version-check", "--quiet")
        done = run(*command, cwd=self.home, timeout=INSTALL_SECONDS_MAX)
        if done.returncode != 0 and any(word in done.stderr for word in UNREACHABLE):
            pytest.skip(f"needs packages that the index does not give: pip {' '.join(map(str, words))}")
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *packages: str | Path) -> None:
        """Install packages one after the other, without what they ask for."""
        for package in packages:
            self.pip("install", "--no-deps", package)

    def does(self, code: str) -> None:
        done = run(self.programs / "python", "-c", code, cwd=self.home)
        assert done.returncode == 0, done.stderr

    def says(self, program: str, *words: str) -> str:
        done = run(self.programs / program, *words, cwd=self.home)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: a build leaves things behind, and takes what an earlier one has left."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("stan", "clients"):
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    return copy


def built(project: Path, made: Path) -> Path:
    """The wheel of a project."""
    building = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, project)
    done = run(*building, cwd=project, timeout=INSTALL_SECONDS_MAX)
    if done.returncode != 0 and any(word in done.stderr for word in UNREACHABLE):
        pytest.skip("needs an index that gives what builds a wheel")
    assert done.returncode == 0, done.stderr
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """The broker's wheel."""
    return built(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def old_api(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """The wheel of the old API over our client, which takes the place of the original's client."""
    return built(source / "clients" / "stan_aio", tmp_path_factory.mktemp("old_api"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """An environment with everything that ours and PyStan ask for."""
    home = tmp_path_factory.mktemp("environment")
    done = run(sys.executable, "-m", "venv", home, cwd=home)
    assert done.returncode == 0, done.stderr
    made = Environment(home)
    made.pip("install", PYSTAN)
    made.pip("install", wheel)
    made.pip("uninstall", "--yes", "pystan", "stan-broker")
    return made


@pytest.fixture
def clean(environment: Environment) -> Iterator[Environment]:
    """The environment with neither of them."""
    yield environment
    environment.pip("uninstall", "--yes", "pystan", "asyncio-nats-streaming", "stan-aio-client", "stan-broker")


@pytest.mark.timeout(4 * INSTALL_SECONDS_MAX)
@pytest.mark.parametrize("other", [PYSTAN, ORIGINAL])
@pytest.mark.parametrize("first", ["ours", "other"])
def test_each_finds_its_own_modules_beside_the_other(clean, wheel, other, first):
    packages = {"ours": wheel, "other": other}
    clean.install(packages.pop(first), *packages.values())
    for code in permutations((OURS_WORKS, OTHER_WORKS[other])):
        clean.does("; ".join(code))
    assert clean.says("stan", "--version") == f"stan {VERSION}\n"
    assert clean.says("stan-server", "--version").endswith(f"stan {VERSION}\n")


@pytest.mark.timeout(4 * INSTALL_SECONDS_MAX)
@pytest.mark.parametrize("other", [PYSTAN, ORIGINAL])
def test_each_stays_when_the_other_goes(clean, wheel, other):
    clean.install(wheel, other)
    clean.pip("uninstall", "--yes", other.split("==")[0])
    clean.does(f"{OURS_WORKS}; import stan; assert stan.__file__ is None")
    clean.install(other)
    clean.pip("uninstall", "--yes", "stan-broker")
    clean.does(OTHER_WORKS[other])


OLD_API_WORKS = (
    "from stan.aio.client import Client; from stan.aio.errors import StanError; import stan.pb.protocol_pb2; Client()"
)


@pytest.mark.timeout(4 * INSTALL_SECONDS_MAX)
def test_old_api_over_our_client_is_beside_pystan_too(clean, wheel, old_api):
    clean.install(old_api, wheel, PYSTAN)
    for code in permutations((OLD_API_WORKS, OURS_WORKS, OTHER_WORKS[PYSTAN])):
        clean.does("; ".join(code))
    clean.pip("uninstall", "--yes", "pystan")
    clean.does(f"{OLD_API_WORKS}; {OURS_WORKS}")


def test_wheel_has_no_file_that_belongs_to_others(environment, wheel, tmp_path):
    """What two distributions both have, the one that comes later overwrites, and the one that goes first takes along."""
    environment.pip("download", "--no-deps", "--dest", tmp_path, PYSTAN)
    (others,) = tmp_path.glob("pystan-*.whl")
    ours, theirs = (names_of(path) for path in (wheel, others))
    assert "stan/model.py" in theirs
    assert "stan/server/main.py" in ours
    assert not ours & theirs
    assert not {name for name in ours if name.startswith(("stan/aio/", "stan/pb/")) or name == "stan/__init__.py"}


def names_of(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())
