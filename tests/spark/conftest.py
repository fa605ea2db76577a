"""One broker and one Spark session for all tests of this folder, both made when they are asked for first.

Most tests here need neither. Those that do take a channel of their own (`channel`) and a checkpoint in `tmp_path`, and run their
streams with the trigger availableNow.
"""

import itertools
import os
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark_stan import ensure_java

from tests.kit.server import ROOT, StanServer

SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Quiet, small and quick: fewer tasks, no 40 ms pauses on the loopback, checkpoints without a helper process for each file."""
SECONDS_MAX = 300
"""Of a test with a session; the first one starts it, which takes a minute on a machine that is busy."""
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A running broker with a FILE store."""
    with StanServer(tmp_path_factory.mktemp("broker"), "-mc", "0") as server:
        yield server


@pytest.fixture
def channel():
    """A name that no other test uses."""
    return f"test.{next(_numbers)}"


def slim_home(directory):
    """A SPARK_HOME whose workers import the installed pyspark, which is compiled, instead of a zip that is not."""
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "sbin", "jars"):
        (directory / name).symlink_to(installed / name)
    return directory


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory):
    """What a process must know so that a session in it starts fast, also with this checkout not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS"):
            patch.delenv(name, raising=False)
        patch.setenv("SPARK_HOME", str(slim_home(tmp_path_factory.mktemp("spark"))))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        patch.setenv(
            "PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "clients"), os.environ.get("PYTHONPATH", "")])
        )
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # put back afterwards
        if not os.environ["JAVA_HOME"]:
            patch.delenv("JAVA_HOME")
        ensure_java()
        yield


@pytest.fixture(scope="session")
def spark(spark_environment, tmp_path_factory):
    """A session with two workers."""
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in {**SESSION, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
