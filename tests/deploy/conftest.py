"""Our wheels, built once for all tests that install them."""

import pytest

from tests.kit import chroot
from tests.kit.distributions import build_wheels, copy_sources


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the sources."""
    return copy_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory, sources):
    """The wheels of all our distributions, by name."""
    with pytest.MonkeyPatch.context() as patch:
        if chroot.asked_for():  # its Python may be another one
            patch.setenv("STAN_PURE", "1")
        return build_wheels(sources, tmp_path_factory.mktemp("wheels"))
