"""What a new Python worker of Spark imports for a task: counted in modules, since the time of it depends on the machine."""

import subprocess
import sys

import pytest

from tests.kit.server import ROOT

SPARK = "import sys\nimport pyarrow, pyspark.sql.datasource\nbefore = set(sys.modules)\n"
NEEDLESS = (
    *("aiohttp", "nats.js.api", "importlib.metadata", "difflib", "pandas", "typer", "uvloop", "pyspark_stan.pipeline"),
    *("stan.protocol.kernel.server", "stan_protocol.proto.admin_pb2", "stan.core", "stan.edge", "stan.log"),
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
        (("pyspark_stan.reading.source", "pyspark_stan.reading.reading", "pyspark_stan.reading.decode"), 153),
        (("pyspark_stan.writing.sink", "pyspark_stan.writing.routing", "pyspark_stan.writing.sending"), 154),
    ],
    ids=["source", "sink"],
)
def test_a_worker_imports_what_its_task_needs(modules, most):
    found = imported(*modules)

    assert not set(NEEDLESS) & set(found)
    assert set(modules) <= set(found)
    assert len(found) <= most


READ = """
from stan_client.reading.fetching import Fetched
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.proto.wire_pb2 import MsgProto
from pyspark.sql.types import LongType, StringType, StructType
from pyspark_stan.schema import full_schema

response = FetchResponse(uid=1, first_sequence=1, last_sequence=2, next_sequence=3)
for number in (1, 2):
    body = MsgProto(sequence=number, data=b'{"id": 1}', reply=b"r"[number - 1:], timestamp=number)
    body.headers.add(key=b"k", value=b"v")
    response.records += body.ByteSize().to_bytes(4, "little") + body.SerializeToString()
    response.runs.add(first_sequence=number, count=1)
found = Fetched("orders", response)
"""
PLAIN = (
    "from pyspark_stan.reading.decode import Decoder\nprint(Decoder(full_schema(headers=True, key=True)).batch(found))"
)
TYPED = """
from pyspark_stan.options import source_options
from pyspark_stan.payloads.schema import PayloadSchema
from pyspark_stan.reading.registry import Registered
from pyspark_stan.reading.typed_decode import TypedDecoder

options = source_options({"servers": "nats://a:1", "subscribe": "orders", "schema": "auto"})
registered = [Registered("orders", {1: PayloadSchema("json", b'{"properties": {"id": {"type": "integer"}}}')})]
print(TypedDecoder(StructType().add("id", LongType()).add("_channel", StringType()), registered, options).batch(found))
"""
WRITE = """
import pyarrow as pa
from pyspark.sql.types import StructType
from pyspark_stan.writing.routing import Router
from pyspark_stan.writing.sink_options import sink_options

offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 1, 2)))
values = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
batch = pa.RecordBatch.from_arrays([values] * 3, names=["value", "key", "reply"])
options = sink_options({"servers": "nats://a:1", "channel": "a", "includeKey": "true", "includeReply": "true"}, None)
router = Router(options, 1 << 20, int, None)
print([*router.add(batch), *router.rest()])
"""


@pytest.mark.parametrize("code", [READ + PLAIN, READ + TYPED, WRITE], ids=["plain", "typed", "sink"])
def test_rows_are_read_and_written_without_pandas(code):
    """Which Arrow imports by itself for some of its functions, where it is installed."""
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", f"{code}\nimport sys\nassert 'pandas' not in sys.modules"]
    subprocess.run(command, check=True, cwd=ROOT)
