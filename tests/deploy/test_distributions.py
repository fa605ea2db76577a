"""What is taken alone works alone: wheels and source archives of all distributions, each in a fresh environment.

The index is asked for other people's packages only; ours come from a directory.
"""

import os
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import venv
from itertools import chain
from pathlib import Path

import pytest

from stan import __version__
from tests.kit.server import ROOT, StanServer

INSTALL_SECONDS_MAX = 900
FOLDERS = {
    "stan-protocol": "clients/stan_protocol",
    "stan-client": "clients/stan_client",
    "stan-lake": "clients/stan_lake",
    "pyspark-stan": "clients/pyspark_stan",
    "stan-broker": ".",
}
CLIENT_BYTES_MAX = 5_000_000
"""Of the client and what it needs, but for zstandard, which has 23 MB of its own."""
BARE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

pytestmark = [pytest.mark.timeout(INSTALL_SECONDS_MAX), pytest.mark.xdist_group("distributions")]


def settings_of(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command, compiler=True, **options):
    done = subprocess.run(
        [*map(str, command)],
        env=BARE if compiler else BARE | {"CC": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Wheels of all distributions, built from copies of what git knows."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for folder in ("stan", "clients"):
        run("cp", "-a", ROOT / folder, source)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        run("cp", ROOT / name, source)
    folders = [source / folder for folder in FOLDERS.values()]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, *folders)
    return made


@pytest.fixture
def python_with(wheels, tmp_path):
    """Makes an environment with some of our distributions, and what these need."""

    def make(*names):
        home = tmp_path / "environment"
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", wheels, *names)
        return python

    return make


def site_of(python):
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def ours_in(python):
    there = {path.name.split("-")[0] for path in site_of(python).glob("*.dist-info")}
    return there & {name.replace("-", "_") for name in FOLDERS}


def test_all_distributions_are_of_one_version_and_name_each_other_by_it():
    settings = {name: settings_of(folder)["project"] for name, folder in FOLDERS.items()}
    (version,) = {project.get("version", __version__) for project in settings.values()}
    for name, project in settings.items():
        assert project["name"] == name
        extras = project.get("optional-dependencies", {}).values()
        for text in [*project["dependencies"], *chain.from_iterable(extras)]:
            other, _, of = text.partition("==")
            if other.split("[")[0] in FOLDERS and other.split("[")[0] != name:
                assert of == version, f"{name} needs {text}"


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS.values() if folder != "."])
def test_every_package_of_a_client_is_named(folder):
    package = Path(folder).name
    inits = (ROOT / folder).rglob("__init__.py")
    there = {".".join((package, *path.parent.relative_to(ROOT / folder).parts)) for path in inits}
    assert {name for name in there if ".build" not in name} == set(
        settings_of(folder)["tool"]["setuptools"]["packages"]
    )
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (ROOT / folder / "py.typed").exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_source_archive_has_what_a_build_needs(name, tmp_path, wheels):
    folder = FOLDERS[name]
    source = tmp_path / "source"
    source.mkdir()
    for entry in ("stan", "clients", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        run("cp", "-a", ROOT / entry, source)
    code = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    build = tmp_path / "build"
    venv.create(build, with_pip=True)
    python = build / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "setuptools>=77", "cython>=3.1")
    archive = tmp_path / run(python, "-c", code, cwd=source / folder).split()[-1]
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    made = tmp_path / "again"
    build_it = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", made)
    run(*build_it, unpacked, compiler=False)
    (wheel,), (other,) = made.iterdir(), wheels.glob(f"{name.replace('-', '_')}-*.whl")
    assert wheel.name == other.name
    assert contents(python, wheel) == contents(python, other)


def contents(python, wheel):
    lines = run(python, "-m", "zipfile", "--list", wheel).splitlines()[1:]
    return {name for name in (line.split()[0] for line in lines) if not name.endswith(".so")}


CLIENT = """
    import asyncio, sys
    import stan_client

    async def main():
        async with await stan_client.connect("test-cluster", "alone", servers=sys.argv[1]) as client:
            await client.publish("greetings", b"hello")
            subscription = await client.subscribe("greetings", start=stan_client.everything())
            print((await anext(aiter(subscription))).data)

    asyncio.run(main())
"""


def test_the_client_alone_publishes_and_subscribes(python_with, tmp_path):
    python = python_with("stan-client")
    assert ours_in(python) == {"stan_protocol", "stan_client"}
    with StanServer(tmp_path) as server:
        assert run(python, "-c", textwrap.dedent(CLIENT), server.url) == "b'hello'\n"
    site = site_of(python)
    others = ("zstandard", "pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = [path for path in site.rglob("*") if path.relative_to(site).parts[0].split("-")[0] not in others]
    size = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
    assert size < CLIENT_BYTES_MAX
    assert not (site / "stan").exists()
    heavy = "import sys, stan_client; print(*sys.modules)"
    assert not {"aiohttp", "typer", "pyarrow", "nats.js", "stan"} & set(run(python, "-c", heavy).split())


def test_the_broker_alone_serves(python_with, tmp_path):
    python = python_with("stan-broker")
    assert ours_in(python) == {"stan_protocol", "stan_client", "stan_broker"}
    with StanServer(tmp_path, command=(str(python.parent / "stan-server"),)) as server:
        stan = python.parent / "stan"
        run(stan, "pub", "greetings", "hello", "-s", server.url)
        assert "hello" in run(stan, "sub", "greetings", "--from", "first", "--count", "1", "-s", server.url)


SPARK = """
    import os, sys
    import pyspark_stan
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    pyspark_stan.register(spark)
    options = {"servers": sys.argv[1], "clusterId": "test-cluster"}
    frame = spark.createDataFrame([(b"one",), (b"two",)], "value binary")
    written = frame.write.format("stan").options(**options, channel="numbers", delivery="at-least-once")
    written.mode("append").save()
    found = spark.read.format("stan").options(**options).option("subscribe", "numbers").load()
    print("read:", sorted(bytes(row.value).decode() for row in found.select("value").collect()))
"""


def test_the_spark_format_alone_reads_and_writes(python_with, tmp_path):
    python = python_with("pyspark-stan[java]")
    assert ours_in(python) == {"stan_protocol", "stan_client", "pyspark_stan"}
    with StanServer(tmp_path) as server:
        assert "read: ['one', 'two']" in run(python, "-c", textwrap.dedent(SPARK), server.url)
