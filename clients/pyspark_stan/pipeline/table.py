"""A channel read as a table: it is a changelog, and the newest message of each key is the current row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_stan.datasource import StanDataSource
from pyspark_stan.pipeline.flow import decode
from pyspark_stan.pipeline.payload import Payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def latest(rows: "DataFrame", *keys: str, by: str = "_sequence") -> "DataFrame":
    """Return for each value of *keys* the row with the greatest *by*."""
    return rows.groupBy(*keys).agg(F.max_by(F.struct("*"), by).alias("newest")).select("newest.*")


def read_table(spark: "SparkSession", columns: Mapping[str, str], *keys: str, **options: str) -> "DataFrame":
    """Return the table whose changelog a channel is: one row per key, from the newest JSON message with this key.

    Args:
        spark: the session.
        columns: the columns of the table and their types.
        keys: the columns that identify a row.
        options: of the data source: servers, subscribe, ...
    """
    spark.dataSource.register(StanDataSource)
    messages = spark.read.format("stan").options(**options).load()
    payload = Payload(format="json", columns=columns, malformed="fail")
    return latest(decode(messages, payload), *keys).select(*columns, "_sequence", "_timestamp")
