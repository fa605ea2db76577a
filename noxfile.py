"""What developers run: `nox -l` lists it, `nox -s quick` before each commit.

All sessions use one environment: the one that nox runs in if the project's tools are in it, else `.venv`, which is made and
filled when it is needed, and again when what belongs into it has changed.
What follows `--` goes to the program that a session is about: `nox -s quick -- -k lease`, `nox -s sim -- 1000 --world cluster`.
"""

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.sessions = ["quick"]
nox.options.default_venv_backend = "none"

ROOT = Path(__file__).parent
OWN = ROOT / ".venv"
TOOLS = ("aiohttp", "hypothesis", "mypy", "nats", "pytest", "pytest_asyncio", "ruff", "xdist")
"""Packages by which an environment that the project may use is known."""
INSTALLED_BY = ("pyproject.toml", "setup.py", "requirements-dev.txt", *map(str, ROOT.glob("clients/*/pyproject.toml")))
"""What says which packages belong into it."""

QUICK = ("tests/unit", "tests/contracts", "tests/scripts", "tests/test_promises.py", "tests/test_tidy.py")
QUICK_OF = {
    "stan_protocol": ("tests/unit/stan_protocol",),
    "stan_client": ("tests/unit/stan_client",),
    "stan_lake": tuple(
        f"tests/property/test_lake_{name}.py" for name in ("chunks", "crashes", "iceberg", "small_files")
    ),
    "pyspark_stan": tuple(
        f"tests/spark/test_{name}.py"
        for name in ("payloads", "pipeline_config", "sink", "source_options", "source_planning", "typed_read")
    ),
}
"""For each distribution beside the broker: its own tests that start no server and no JVM."""
SIM_SEEDS = "200"


def environment(session: nox.Session) -> str:
    """The Python of the environment, with everything in it."""
    if Path(sys.prefix) != OWN and all(map(find_spec, TOOLS)):
        return sys.executable
    python = str(OWN / ("Scripts" if os.name == "nt" else "bin") / "python")
    wanted = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in INSTALLED_BY)).hexdigest()
    stamp = OWN / "installed-by-nox"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        session.run(sys.executable, "-m", "venv", str(OWN))
        session.run(python, "-m", "pip", "install", "--quiet", "-r", "requirements-dev.txt")
        stamp.write_text(wanted, encoding="utf-8")
    return python


def run(session: nox.Session, *modules: tuple[str, ...]) -> None:
    """Run Python modules with their arguments, one after the other, on the sources as they lie."""
    python = environment(session)
    paths = [str(ROOT), str(ROOT / "clients"), os.environ.get("PYTHONPATH", "")]
    for module in modules:
        session.run(python, "-m", *module, env={"PYTHONPATH": os.pathsep.join(filter(None, paths))})


@nox.session
def quick(session: nox.Session) -> None:
    """Lint, format, types, and tests that compute for a moment, of all or, with `-- stan_client`, of one. Before each commit."""
    package, *options = session.posargs or ("",)
    if package in QUICK_OF:
        checks = (("ruff", "check", f"clients/{package}"), ("mypy", "-p", package))
        paths = QUICK_OF[package]
    else:
        checks = (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",))
        paths, options = QUICK, list(session.posargs)
    workers = (os.cpu_count() or 1) + 1  # some wait
    run(session, *checks, ("pytest", "-q", "-n", str(workers), "--dist", "loadfile", *paths, *options))


@nox.session
def test(session: nox.Session) -> None:
    """All tests, in lanes beside each other; with arguments those of pytest. Before a change is proposed."""
    run(session, ("pytest", *session.posargs) if session.posargs else ("tests.lanes",))


@nox.session
def sim(session: nox.Session) -> None:
    """N seeds of the simulator, on all cores: `nox -s sim -- N`, and further options of `python -m tests.sim`."""
    seeds, options = SIM_SEEDS, session.posargs
    if options and options[0].isdigit():
        seeds, *options = options
    run(session, ("tests.sim", "--seeds", seeds, "--jobs", str(os.cpu_count()), *options))


@nox.session
def chaos(session: nox.Session) -> None:
    """Real processes that are killed, frozen and cut off; with arguments those of `python -m tests.chaos`."""
    run(session, ("tests.chaos", *session.posargs) if session.posargs else ("pytest", "tests/chaos"))


@nox.session
def bench(session: nox.Session) -> None:
    """What this machine's broker takes and delivers: `stan bench`, by default of a broker of its own."""
    run(session, ("stan.cli.main", "bench", *(session.posargs or ("bench", "--start", "-ns", "1"))))


@nox.session
def docs(session: nox.Session) -> None:
    """Links, citations and names in the pages for people, the promises about security, and the site, into `site/`."""
    tests = ("tests/test_docs.py", "tests/test_promises.py", "tests/unit/docs")
    run(session, ("pytest", "-q", *tests, *session.posargs), ("mkdocs", "build", "--strict"))


@nox.session
def wheels(session: nox.Session) -> None:
    """Build, tag and try the wheels with kernels of the Pythons that are named: `nox -s wheels -- python3.12 python3.13`."""
    run(session, ("tests.wheels", *session.posargs))


@nox.session
def version(session: nox.Session) -> None:
    """Show the version, wherever it stands, or write another one there: `nox -s version -- 0.2.0` (RELEASING.md)."""
    run(session, ("tests.version", *session.posargs))
