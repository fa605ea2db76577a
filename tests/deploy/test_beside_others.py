"""Three distributions have the import name `stan`: PyStan, the original's Python client, and ours. Installed beside each other,
each finds its own modules, whichever came first.

The client of the original needs `asyncio-nats-client`, in whose place nats-py has come (both are imported as `nats`): it is
installed without what it asks for, and only found, not run.
"""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from stan.product import VERSION
from tests.kit.distributions import INSTALL_SECONDS_MAX, Environment, files_in

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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Environment:
    """An environment with everything that ours and PyStan need."""
    made = Environment(tmp_path_factory.mktemp("beside") / "environment", wheels)
    made.install(PYSTAN, "stan-broker")
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
def test_each_finds_its_own_modules_beside_the_other(clean, wheels, other, first):
    packages = {"ours": wheels["stan-broker"], "other": other}
    clean.install_bare(packages.pop(first), *packages.values())
    for code in permutations((OURS_WORKS, OTHER_WORKS[other])):
        clean.does("; ".join(code))
    assert clean.says("stan", "--version") == f"stan {VERSION}\n"
    assert clean.says("stan-server", "--version").endswith(f"stan {VERSION}\n")


@pytest.mark.timeout(4 * INSTALL_SECONDS_MAX)
@pytest.mark.parametrize("other", [PYSTAN, ORIGINAL])
def test_each_stays_when_the_other_goes(clean, wheels, other):
    clean.install_bare(wheels["stan-broker"], other)
    clean.pip("uninstall", "--yes", other.split("==")[0])
    clean.does(f"{OURS_WORKS}; import stan; assert stan.__file__ is None")
    clean.install_bare(other)
    clean.pip("uninstall", "--yes", "stan-broker")
    clean.does(OTHER_WORKS[other])


OLD_API_WORKS = (
    "from stan.aio.client import Client; from stan.aio.errors import StanError; import stan.pb.protocol_pb2; Client()"
)


@pytest.mark.timeout(4 * INSTALL_SECONDS_MAX)
def test_old_api_over_our_client_is_beside_pystan_too(clean, wheels):
    clean.install_bare(wheels["stan-aio-client"], wheels["stan-broker"], PYSTAN)
    for code in permutations((OLD_API_WORKS, OURS_WORKS, OTHER_WORKS[PYSTAN])):
        clean.does("; ".join(code))
    clean.pip("uninstall", "--yes", "pystan")
    clean.does(f"{OLD_API_WORKS}; {OURS_WORKS}")


def test_wheel_has_no_file_that_belongs_to_others(environment, wheels, tmp_path):
    """What two distributions both have, the one that comes later overwrites, and the one that goes first takes along."""
    environment.pip("download", "--no-deps", "--dest", tmp_path, PYSTAN)
    (others,) = tmp_path.glob("pystan-*.whl")
    ours, theirs = map(files_in, (wheels["stan-broker"], others))
    assert "stan/model.py" in theirs
    assert "stan/server/main.py" in ours
    assert not ours & theirs
    assert not {name for name in ours if name.startswith(("stan/aio/", "stan/pb/")) or name == "stan/__init__.py"}
