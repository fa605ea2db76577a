"""Fixtures that all tests share: a real server, a NATS of our own, and no contexts of whoever runs the tests."""

import pytest

from tests.kit.server import external_nats, stan_server

__all__ = ["external_nats", "stan_server"]


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory):
    """The commands do not see what whoever runs the tests has set up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("STAN_CONTEXT", raising=False)
        yield
