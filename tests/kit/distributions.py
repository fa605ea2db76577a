"""Our distributions as wheels, and environments of their own into which packages come and go.

Nearly all is built without a C compiler: installations elsewhere build the kernels, and this shows that all runs without them.
Promises: the index is asked for other people's packages only; a test for which it has no answer is skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.kit.server import ROOT

FOLDERS = {
    "stan-protocol": "clients/stan_protocol",
    "stan-client": "clients/stan_client",
    "stan-lake": "clients/stan_lake",
    "pyspark-stan": "clients/pyspark_stan",
    "stan-aio-client": "clients/stan_aio",
    "stan-broker": ".",
    "stan-bench": "clients/stan_bench",
}
"""Our distributions, and where their sources are."""
INSTALL_SECONDS_MAX = 600
UNREACHABLE = ("Could not find a version", "No matching distribution", "NewConnectionError", "Temporary failure")


CLIENT = """
import asyncio, sys
import stan_client

async def main():
    async with await stan_client.connect(sys.argv[1], client_id="alone") as client:
        await client.publish("greetings", b"hello")
        subscription = await client.subscribe("greetings", start=stan_client.everything())
        print((await anext(aiter(subscription))).data)

asyncio.run(main())
"""
"""A program that publishes and subscribes at the server that its argument names, and prints b'hello'."""


def bare(*, compiler: bool = False) -> dict[str, str]:
    """The environment without what leads to the sources, and without a compiler."""
    found = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    return found if compiler else found | {"CC": "false"}


def run(*command: str | Path, cwd: Path, compiler: bool = False) -> str:
    """Run a program, which has to succeed; returns what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=bare(compiler=compiler),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0 and any(word in done.stdout for word in UNREACHABLE):
        pytest.skip(f"needs packages that the index does not give: {' '.join(map(str, command))}")
    assert done.returncode == 0, done.stdout
    return done.stdout


def copy_sources(to: Path) -> Path:
    """Copy what distributions are built from: a build leaves things behind, and takes what an earlier one has left."""
    for name in ("stan", "clients"):
        shutil.copytree(
            ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, to)
    return to


def build_wheels(
    source: Path,
    made: Path,
    python: str | Path = sys.executable,
    *,
    names: Collection[str] = FOLDERS,
    compiler: bool = False,
) -> dict[str, Path]:
    """Build all of them, or those that are named, from a copy of the sources."""
    folders = [source / FOLDERS[name] for name in names]
    words = ("wheel", "--quiet", "--no-deps", "--wheel-dir", made)
    run(python, "-m", "pip", *words, *folders, cwd=source, compiler=compiler)
    return {name: next(made.glob(f"{name.replace('-', '_')}-*.whl")) for name in names}


def files_in(wheel: Path) -> set[str]:
    """Names of the files in a wheel."""
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def inside(root: Path) -> tuple[str, ...]:
    """What goes before a command that is to run with another *root*, and a /proc there, as containers have one."""
    return () if root == Path("/") else ("unshare", "--mount-proc", f"--root={root}")


class Environment:
    """A virtual environment, here or in a chroot."""

    def __init__(
        self, home: Path, wheels: dict[str, Path], python: str | Path = sys.executable, root: Path = Path("/")
    ) -> None:
        """Make it, of this *python*.

        Args:
            home: where it will be, as seen from *root*.
            wheels: ours, which the index is not asked for.
            python: the program, as seen from *root*.
            root: of the chroot that all runs in; the file system's own: none.
        """
        self.root = root
        self.home = home
        self.programs = home / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.programs / "python"
        self._ours = next(iter(wheels.values())).parent
        if root != Path("/"):
            shutil.copytree(self._ours, root / "wheels")
            self._ours = Path("/wheels")
        self._run(python, "-m", "venv", home)

    def command(self, program: str | Path, *words: str | Path) -> tuple[str, ...]:
        """How to call a program of it from outside."""
        return (*inside(self.root), *map(str, (self.programs / program, *words)))

    def _run(self, program: str | Path, *words: str | Path) -> str:
        return run(*self.command(program, *words), cwd=self.root)

    def pip(self, command: str, *words: str | Path) -> None:
        """Run pip."""
        self._run("python", "-m", "pip", command, "--disable-pip-version-check", "--quiet", *words)

    def install(self, *packages: str | Path) -> None:
        """Install packages, with what they need."""
        self.pip("install", "--find-links", self._ours, *packages)

    def install_bare(self, *packages: str | Path) -> None:
        """Install packages one after the other, without what they need."""
        for package in packages:
            self.pip("install", "--no-deps", package)

    def does(self, code: str, *arguments: str) -> str:
        """Run Python code, which has to succeed; returns what it printed."""
        return self._run("python", "-c", code, *arguments)

    def says(self, program: str, *words: str) -> str:
        """Run one of its programs, which has to succeed; returns what it printed."""
        return self._run(program, *words)
