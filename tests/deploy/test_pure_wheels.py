"""Wheels for every machine: with STAN_PURE=1 nothing is compiled, and nothing else is missing."""

from zipfile import ZipFile

import pytest

from stan.product import VERSION
from tests.kit.distributions import INSTALL_SECONDS_MAX, build_wheels, copy_sources, files_in

pytestmark = pytest.mark.timeout(3 * INSTALL_SECONDS_MAX)


def test_pure_wheels_are_for_every_machine_and_have_all_but_the_kernels(wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("STAN_PURE", "1")
    for name, pure in build_wheels(copy_sources(tmp_path), tmp_path / "wheels").items():
        assert pure.name.endswith("-py3-none-any.whl")
        with ZipFile(pure) as archive:
            tag = archive.read(f"{name.replace('-', '_')}-{VERSION}.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: true" in tag
        assert files_in(pure) == {file for file in files_in(wheels[name]) if not file.endswith((".so", ".pyd"))}
