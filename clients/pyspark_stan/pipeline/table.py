"""A channel read as a table: it is a changelog, and the newest message of each key is the current row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_stan.datasource import StanDataSource
from pyspark_stan.pipeline.flow import decode
from pyspark_stan.pipeline.payload import Payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PART: Final = r"try_cast(regexp_extract(_channel, '\\.~([0-9]+)$', 1) AS int)"
"""Number of the part from which a message comes: keys go only to parts with higher numbers, whose sequences begin again."""


def latest(rows: "DataFrame", *keys: str) -> "DataFrame":
    """Return for each value of *keys* the row of the newest message."""
    newest = F.max_by(F.struct("*"), F.struct(F.expr(_PART), "_sequence"))
    return rows.groupBy(*keys).agg(newest.alias("newest")).select("newest.*")


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
