"""What is taken alone works alone: each distribution from its wheel in a fresh environment, and from its source archive.

With STAN_CHROOT the environments are in a bare Debian each (tests/kit/chroot.py), from wheels for every machine.
"""

import tarfile
import textwrap
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from stan.product import VERSION
from tests.kit import chroot
from tests.kit.distributions import CLIENT, FOLDERS, INSTALL_SECONDS_MAX, Environment, files_in, run
from tests.kit.server import ROOT, StanServer

CLIENT_BYTES_MAX = 7_000_000
"""Of the client and what it needs."""

pytestmark = pytest.mark.timeout(3 * INSTALL_SECONDS_MAX)


def settings_of(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def environment(tmp_path, wheels):
    if chroot.asked_for():
        return Environment(Path("/environment"), wheels, "/usr/bin/python3", chroot.bare_debian(tmp_path / "root"))
    return Environment(tmp_path / "environment", wheels)


def site_of(environment):
    return environment.root / Path(
        environment.does("import sysconfig; print(sysconfig.get_path('purelib'))").strip("/\n")
    )


def ours_in(environment):
    there = {path.name.split("-")[0].replace("_", "-") for path in site_of(environment).glob("*.dist-info")}
    return there & FOLDERS.keys()


def test_all_distributions_are_of_one_version_and_name_each_other_by_it():
    settings = {name: settings_of(folder)["project"] for name, folder in FOLDERS.items()}
    assert {project.get("version", VERSION) for project in settings.values()} == {VERSION}
    for name, project in settings.items():
        assert project["name"] == name
        extras = project.get("optional-dependencies", {}).values()
        for text in [*project["dependencies"], *chain.from_iterable(extras)]:
            other, _, of = text.partition("==")
            if other.split("[")[0] in FOLDERS.keys() - {name}:
                assert of == VERSION, f"{name} needs {text}"


@pytest.mark.parametrize("name", [name for name, folder in FOLDERS.items() if folder != "."])
def test_every_package_of_a_client_is_in_its_wheel(name, wheels):
    folder = ROOT / FOLDERS[name]
    base = folder if name == "stan-aio-client" else folder.parent
    suffixes = {".py", ".pyi", ".proto", ".toml", ".typed", ".pyx", ".pxd"}
    there = {path for path in folder.rglob("*") if path.suffix in suffixes and "build" not in path.parts}
    there -= {folder / "setup.py", folder / "pyproject.toml"}
    assert {path.relative_to(base).as_posix() for path in there} <= files_in(wheels[name])
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.fixture(scope="module")
def builder(tmp_path_factory, wheels):
    """An environment that builds without asking the index."""
    made = Environment(tmp_path_factory.mktemp("builder") / "environment", wheels)
    made.install("setuptools>=77", "cython>=3.1")
    return made


@pytest.mark.parametrize("name", FOLDERS)
def test_a_source_archive_has_what_a_build_needs(name, tmp_path, sources, builder, wheels):
    code = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    archive = tmp_path / run(builder.python, "-c", code, cwd=sources / FOLDERS[name]).split()[-1]
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = tmp_path / "again"
    builder.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", again, unpacked)
    (wheel,) = again.iterdir()
    assert wheel.name == wheels[name].name
    assert files_in(wheel) == files_in(wheels[name])


def test_the_client_alone_publishes_and_subscribes(environment, tmp_path):
    environment.install("stan-client")
    assert ours_in(environment) == {"stan-protocol", "stan-client"}
    with StanServer(tmp_path) as server:
        assert environment.does(CLIENT, server.url) == "b'hello'\n"
    site = site_of(environment)
    others = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = [path for path in site.rglob("*") if path.relative_to(site).parts[0].split("-")[0] not in others]
    assert sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc") < CLIENT_BYTES_MAX
    assert not (site / "stan").exists()
    loaded = set(environment.does("import sys, stan_client; print(*sys.modules)").split())
    assert not loaded & {"aiohttp", "typer", "pyarrow", "backports.zstd", "nats.js", "stan"}


def refused(environment, command):
    """What `stan` says to a command that ends with an exit code."""
    code = "import sys; from stan.cli.main import main; sys.argv = ['stan', *sys.argv[1:]]; main()"
    return environment.does(
        f"try:\n    exec({code!r})\nexcept SystemExit as end:\n    print(end.code)", *command.split()
    )


def test_the_broker_alone_serves(environment, tmp_path):
    environment.install("stan-broker")
    assert ours_in(environment) == {"stan-protocol", "stan-client", "stan-broker"}
    store = str(environment.home / "store")  # as it sees it
    with StanServer(tmp_path, "-dir", store, command=environment.command("stan-server")) as server:
        environment.says("stan", "pub", "greetings", "hello", "-s", server.url)
        asked = environment.says("stan", "sub", "greetings", "--from", "first", "--count", "1", "-s", server.url)
    assert "hello" in asked
    for command, needed in (
        ("pipeline", "pyspark-stan"),
        ("lake", "stan-lake"),
        ("bench", "stan-bench"),
        ("demo", "stan-bench"),
    ):
        assert f"`stan {command}` needs {needed}, which is not installed: pip install {needed}" in refused(
            environment, command
        )


def test_the_demonstration_comes_with_a_distribution_of_its_own(environment):
    environment.install("stan-bench")
    assert ours_in(environment) == {"stan-protocol", "stan-client", "stan-broker", "stan-bench"}
    assert "All of it holds" in environment.says("stan", "demo")
    assert "`stan demo --spark` needs pyspark-stan, which is not installed" in refused(environment, "demo --spark")


SPARK = """
    import os, sys
    import pyspark_stan
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    pyspark_stan.ensure_java()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    pyspark_stan.register(spark)
    options = {"servers": sys.argv[1], "clusterId": "test-cluster"}
    frame = spark.createDataFrame([(b"one",), (b"two",)], "value binary")
    written = frame.write.format("stan").options(**options, channel="numbers", delivery="at-least-once")
    written.mode("append").save()
    found = spark.read.format("stan").options(**options).option("subscribe", "numbers").load()
    print("read:", sorted(bytes(row.value).decode() for row in found.select("value").collect()))
"""


def test_the_spark_format_alone_reads_and_writes(environment, tmp_path):
    environment.install("pyspark-stan[java]")
    assert ours_in(environment) == {"stan-protocol", "stan-client", "pyspark-stan"}
    with StanServer(tmp_path) as server:
        assert "read: ['one', 'two']" in environment.does(textwrap.dedent(SPARK), server.url)
