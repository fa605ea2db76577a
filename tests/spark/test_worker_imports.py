"""What a new Python worker of Spark imports for a task: counted in modules, since the time of it depends on the machine."""

import subprocess
import sys

import pytest

from tests.kit.server import ROOT

SPARK = "import sys\nimport pyarrow, pyspark.sql.datasource\nbefore = set(sys.modules)\n"
NEEDLESS = (
    *("aiohttp", "nats.js.api", "importlib.metadata", "pandas", "typer", "pyspark_stan.pipeline"),
    *("stan.protocol.kernel.server", "stan.protocol.proto.admin_pb2", "stan.core", "stan.edge", "stan.log"),
    *(
        "stan_client.client",
        "stan_client.publishing",
        "stan_client.subscribing.subscription",
        "stan_client.requests.admin",
        "stan_client.reading.table",
    ),
    *(
        "stan_client.reading.consumer",
        "stan_client.reading.group_consumer",
        "stan_client.messages.middleware",
        "stan_client.dead_letters",
    ),
)
"""Modules that no task of a source or sink has a use for."""


def imported(*modules: str) -> list[str]:
    """The modules that are new after an import of *modules* into a Python that has what Spark itself imports."""
    code = f"{SPARK}import {', '.join(modules)}\nprint(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()


@pytest.mark.parametrize(
    ("modules", "most"),
    [
        (("pyspark_stan.reading.source", "pyspark_stan.reading.reading", "pyspark_stan.reading.decode"), 160),
        (("pyspark_stan.writing.sink", "pyspark_stan.writing.routing", "pyspark_stan.writing.sending"), 163),
    ],
    ids=["source", "sink"],
)
def test_a_worker_imports_what_its_task_needs(modules, most):
    found = imported(*modules)

    assert not set(NEEDLESS) & set(found)
    assert set(modules) <= set(found)
    assert len(found) <= most
