"""Fixtures that all tests share: a real server, a NATS of our own, and no contexts of whoever runs the tests.

Property tests make the same inputs in every run, and a busy machine is no failure; `--hypothesis-profile explore` makes new ones.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.server import external_nats, stan_server

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
