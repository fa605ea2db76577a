"""One broker and one Spark session for all tests of this folder, both made when they are asked for first.

Most tests here need neither. Those that do take a channel of their own (`channel`) and a checkpoint in `tmp_path`, and run their
streams with the trigger availableNow.
"""

import contextlib
import importlib.util
import itertools
import os
from pathlib import Path

import pytest
from pyspark_stan import ensure_java
from stan_client.blocking import BlockingClient

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
CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
"""The session is a server of Spark Connect as well."""
OF_CONNECT = ("pandas", "grpc", "grpc_status", "zstandard")
"""Packages that a client of Spark Connect needs, and each worker that runs a function of its queries."""
SECONDS_MAX = 300
"""Of a test with a session; the first one starts it, which takes a minute on a machine that is busy."""
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    for item in items:
        if {"spark", "connect"} & {*getattr(item, "fixturenames", ())} and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A running broker with a FILE store."""
    with StanServer(tmp_path_factory.mktemp("broker"), "-mc", "0") as server:
        yield server


@pytest.fixture
def client(broker):
    """A client of it."""
    with BlockingClient(broker.url) as found:
        yield found


@pytest.fixture
def channel():
    """A name that no other test uses."""
    return f"test.{next(_numbers)}"


@pytest.fixture
def task(monkeypatch):
    """Say which task of a query the code runs in, without Spark."""
    from pyspark import TaskContext  # noqa: PLC0415 - not installed everywhere
    from pyspark_stan.writing import identity  # noqa: PLC0415

    monkeypatch.setattr(identity, "_saves", type(identity._saves)())
    of_workers = type(identity._saves)()

    @contextlib.contextmanager
    def workers():
        """The code runs in a process of Spark's, which does not know what the user's has seen."""
        with monkeypatch.context() as patch:
            patch.setattr(identity, "_saves", of_workers)
            yield

    def be(partition=0, attempt=0, batch=None, query="q1", **properties):
        context = object.__new__(TaskContext)  # calling the class gives the one there is
        context._partitionId, context._attemptNumber = partition, attempt
        told = {"sql.streaming.queryId": query, **properties}
        if batch is not None:
            told["streaming.sql.batchId"] = str(batch)
        context._localProperties = told
        monkeypatch.setattr(TaskContext, "_taskContext", context)
        return context

    be.workers = workers
    return be


def slim_home(directory):
    """A SPARK_HOME whose workers import the installed pyspark, which is compiled, instead of a zip that is not."""
    installed = Path(importlib.util.find_spec("pyspark").origin).parent
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


def missing(*packages):
    """Those of *packages* that are not installed."""
    return [package for package in packages if importlib.util.find_spec(package) is None]


@pytest.fixture(scope="session")
def spark(spark_environment, tmp_path_factory):
    """A session with two workers, to which clients of Spark Connect can connect."""
    from pyspark import SparkContext  # noqa: PLC0415 - not installed everywhere
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").appName("tests")
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    for key, value in {**SESSION, **warehouse, **({} if missing(*OF_CONNECT) else CONNECT)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


@pytest.fixture(scope="session")
def remote(spark):
    """Where clients of Spark Connect find the session."""
    if missing(*OF_CONNECT):
        pytest.skip(f"Spark Connect needs {', '.join(missing(*OF_CONNECT))}")
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture
def connect(remote):
    """A session of Spark Connect."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415 - not installed everywhere

    session = ConnectSession.builder.remote(remote).create()
    yield session
    session.stop()
