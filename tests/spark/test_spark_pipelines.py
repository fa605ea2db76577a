"""Spark's declarative pipelines over channels: the example of docs/spark-recipes.md, run twice by the command of Spark's."""

import json
import os
import subprocess
import sys

import pytest

from tests.kit.documents import blocks
from tests.kit.server import ROOT
from tests.spark.filling import fill

SPEC, PROGRAM = (
    block for block in blocks() if block.page == "docs/spark-recipes.md" and block.heading == "Declarative pipelines"
)
(AUTO_CDC,) = (block for block in blocks() if (block.heading, block.language) == ("Change data (Auto CDC)", "text"))
SECONDS_MAX = 280


@pytest.fixture
def pipelines(remote, broker, channel, tmp_path):
    """Runs an example, from and to channels of the test's own; returns what is said if it fails."""
    (tmp_path / "transformations").mkdir()
    spec = SPEC.text.replace("/var/lib/stan", str(tmp_path)).replace("name: shop", "name: shop\ndatabase: default")
    (tmp_path / "spark-pipeline.yml").write_text(spec)

    def run(program=PROGRAM, *, fails=False):
        text = program.text.replace("nats://127.0.0.1:4222", broker.url).replace("shop.", f"{channel}.")
        (tmp_path / "transformations" / "shop.py").write_text(text)
        command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", "spark-pipeline.yml"]
        path = os.pathsep.join([str(ROOT), str(ROOT / "clients"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "SPARK_REMOTE": remote, "PYTHONPATH": path}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, timeout=SECONDS_MAX, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def large(client, channel):
    info = client.info([f"{channel}.large-orders"])[f"{channel}.large-orders"]
    answers = client.read_range(f"{channel}.large-orders", 1, info.last)
    return sorted(json.loads(message.data)["id"] for answer in answers for message in answer.messages())


def test_the_example_runs_and_goes_on_where_it_was(spark, client, channel, pipelines):
    kinds = {"id": {"type": "integer"}, "state": {"type": "string"}, "total": {"type": "number"}}
    schema = json.dumps({"type": "object", "properties": kinds}).encode()
    client._wait(client._direct.admin.add_schema(f"{channel}.orders", schema))
    orders = [json.dumps({"id": n, "state": "paid" if n % 2 else "placed", "total": n}).encode() for n in range(20)]
    fill(client, f"{channel}.orders", orders)
    pipelines()
    assert large(client, channel) == list(range(11, 20))
    fill(client, f"{channel}.orders", [b'{"id": 20, "state": "paid", "total": 20}'])
    pipelines()
    assert large(client, channel) == list(range(11, 21))
    try:
        counts = {row["state"]: row["count"] for row in spark.table("by_state").collect()}
        assert counts == {"placed": 10, "paid": 11}
    finally:
        for name in ("orders", "by_state"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_auto_cdc_takes_a_channel_and_wants_a_table_with_merge(spark, client, channel, pipelines):
    """The page says so. Once this fails, Spark has such tables of its own, and the example is to be run to its end."""
    fill(client, f"{channel}.prices", [b"1"])
    try:
        assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in pipelines(AUTO_CDC, fails=True)
    finally:
        spark.sql("DROP TABLE IF EXISTS prices_now")
