"""Fixtures that all tests share: a real server, a NATS of our own, and no contexts of whoever runs the tests.

Property tests make the same inputs in every run, and a busy machine is no failure; `--hypothesis-profile explore` makes new ones.
Files that need the extra test-spark are skipped where it is not installed.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.server import external_nats, stan_server
from tests.lanes import DOCUMENTS, ROOT, SPARK

__all__ = ["external_nats", "stan_server"]

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("steady")


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory):
    """The commands do not see what whoever runs the tests has set up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("STAN_CONTEXT", raising=False)
        yield


class LeftOut(pytest.Module):
    """A file that is not imported, as the packages of its lane are not installed."""

    def collect(self):
        pytest.skip(f"{', '.join(SPARK.missing())} not installed: the extra test-spark", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Leave out the files of lanes that need the extra test-spark, where it is not installed."""
    needing = any(module_path.is_relative_to(ROOT / path) for path in (*SPARK.paths, DOCUMENTS))
    return LeftOut.from_parent(parent, path=module_path) if needing and SPARK.missing() else None
