"""Wheels with kernels of the Python that runs: tagged for old systems, and a server and a client out of them."""

import importlib.util
import re
import sys

import pytest

from tests.kit.distributions import INSTALL_SECONDS_MAX
from tests.wheels import WITH_KERNELS, looked_at


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is for Linux")
@pytest.mark.skipif(importlib.util.find_spec("auditwheel") is None, reason="auditwheel is not installed")
@pytest.mark.timeout(3 * INSTALL_SECONDS_MAX)
def test_wheels_with_kernels_are_for_old_systems_too_and_serve(tmp_path):
    wheels = looked_at(sys.executable, tmp_path)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name in WITH_KERNELS:
        assert re.search(rf"-{python}-{python}-manylinux\S+\.whl$", wheels[name].name)
